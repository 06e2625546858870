//! Failing on demand.

use std::sync::{Mutex, PoisonError};

use serde::Deserialize;

/// How one request fails.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    #[serde(default)]
    pub method: Option<String>,
    pub path_prefix: String,
    pub kind: Kind,
    #[serde(default)]
    pub status: Option<u16>,
    #[serde(default)]
    pub delay_ms: Option<u64>,
    #[serde(default)]
    pub body_bytes: Option<usize>,
    /// Where a redirect leads.
    #[serde(default)]
    pub location: Option<String>,
    #[serde(default = "once")]
    pub count: usize,
}

fn once() -> usize {
    1
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Status,
    Hang,
    Reset,
    BadJson,
    Html,
    Truncate,
    Slow,
    Redirect,
    Large,
}

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Status => "status",
            Kind::Hang => "hang",
            Kind::Reset => "reset",
            Kind::BadJson => "bad_json",
            Kind::Html => "html",
            Kind::Truncate => "truncate",
            Kind::Slow => "slow",
            Kind::Redirect => "redirect",
            Kind::Large => "large",
        }
    }
}

/// Those that are armed.
#[derive(Debug, Default)]
pub struct Faults(Mutex<Vec<Fault>>);

impl Faults {
    pub fn arm(&self, fault: Fault) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(fault);
    }

    pub fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The fault that this request meets, used up by one.
    pub fn take(&self, method: &str, path: &str) -> Option<Fault> {
        let mut armed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fault = armed.iter_mut().find(|fault| {
            fault.count > 0
                && path.starts_with(&fault.path_prefix)
                && fault.method.as_deref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(method))
        })?;
        fault.count -= 1;
        Some(fault.clone())
    }
}
