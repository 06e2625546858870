//! How much a client wants to hear of servers' logs.

/// The severities of RFC 5424, from the least to the most severe.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(crate) enum Level {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl Level {
    /// As a threshold: more severe than anything.
    pub(crate) const OFF: u8 = u8::MAX;

    /// As a threshold says it.
    pub(crate) fn of_threshold(threshold: u8) -> Option<&'static str> {
        const NAMES: [&str; 8] =
            ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];
        NAMES.get(usize::from(threshold)).copied()
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "debug" => Level::Debug,
            "info" => Level::Info,
            "notice" => Level::Notice,
            "warning" => Level::Warning,
            "error" => Level::Error,
            "critical" => Level::Critical,
            "alert" => Level::Alert,
            "emergency" => Level::Emergency,
            _ => return None,
        })
    }
}
