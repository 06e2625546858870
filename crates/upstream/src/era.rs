//! The two eras of the protocol.

use std::fmt;

/// The revision of the modern era.
pub const MODERN_REVISION: &str = "2026-07-28";
/// The revisions of the legacy era, newest first. The first is what we propose.
pub const LEGACY_REVISIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// Whether a server opens with `initialize` and keeps a session, or takes every request for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Era {
    /// 2024-11-05 to 2025-11-25.
    Legacy,
    /// 2026-07-28.
    Modern,
}

impl Era {
    /// The word in status and evidence.
    pub fn as_str(self) -> &'static str {
        match self {
            Era::Legacy => "legacy",
            Era::Modern => "modern",
        }
    }
}

impl fmt::Display for Era {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The legacy revision with this name, if it is one we know (PRO-62: a server may echo any string).
pub(crate) fn legacy_revision(name: &str) -> Option<&'static str> {
    LEGACY_REVISIONS.into_iter().find(|known| *known == name)
}
