//! `portcullis_admin_calls_total{tool,outcome}`: how many calls came to what (admin §9).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

/// Counts of calls.
#[derive(Debug, Default)]
pub struct Calls(Mutex<BTreeMap<(String, &'static str), u64>>);

impl Calls {
    pub(crate) fn count(&self, tool: &str, outcome: &'static str) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((tool.to_owned(), outcome)).or_default() += 1;
    }

    /// How many calls of a tool came to an outcome; unknown tools are all `unknown` (ADM-33).
    pub fn of(&self, tool: &str, outcome: &'static str) -> u64 {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.get(&(tool.to_owned(), outcome)).copied().unwrap_or(0)
    }

    /// The text form that Prometheus reads.
    pub fn exposition(&self) -> String {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::from("# TYPE portcullis_admin_calls_total counter\n");
        for ((tool, outcome), count) in &*counts {
            let _ = writeln!(
                text,
                "portcullis_admin_calls_total{{tool=\"{tool}\",outcome=\"{outcome}\"}} {count}"
            );
        }
        text
    }
}
