//! What somebody should look at and no call fails for: a gate that never decides, a grant that is gone.
//!
//! An alarm stays until what it is about has ended. Operators see it in the console and in `portcullis doctor`.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;

/// Something that is wrong now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Alarm {
    /// A server's name, or that of a gate.
    pub about: String,
    /// What kind of thing it is.
    pub kind: AlarmKind,
    /// In our words.
    pub what: String,
    /// What to do.
    pub fix: String,
}

/// The kinds of alarms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AlarmKind {
    /// A gate was asked often and has never decided (SURF-95).
    GateNeverDecides,
    /// The grant behind a credential is gone (REC-75).
    CredentialUnavailable,
    /// A list of tools cannot be made to fit its clients (SURF-65).
    SurfaceRefused,
}

/// All alarms of a gateway.
#[derive(Debug, Default)]
pub struct Alarms(Mutex<BTreeMap<(AlarmKind, String), Alarm>>);

impl Alarms {
    /// Raises an alarm, or says it anew.
    pub(crate) fn raise(&self, kind: AlarmKind, about: &str, what: String, fix: String) {
        let alarm = Alarm { about: about.to_owned(), kind, what, fix };
        self.lock().insert((kind, about.to_owned()), alarm);
    }

    /// What it was about has ended.
    pub(crate) fn end(&self, kind: AlarmKind, about: &str) {
        self.lock().remove(&(kind, about.to_owned()));
    }

    /// A gate that never decides.
    pub(crate) fn undecided(&self, gate: &str, (unknown_subject, source_error): (u64, u64)) {
        let what = format!(
            "the gate has decided nothing in {} calls: {unknown_subject} times its document did not know the subject, {source_error} times it could not be read",
            unknown_subject + source_error
        );
        let fix = format!(
            "portcullis gate test {gate} --live; compare `rows`, `key` and the source with what the server answers"
        );
        self.raise(AlarmKind::GateNeverDecides, gate, what, fix);
    }

    /// A grant that is gone.
    pub(crate) fn without_grant(&self, server: &str, code: &str) {
        let what = format!("its credential is of no use any more: {code}");
        let fix = format!(
            "have the grant renewed and put the new token into the file that `portcullis mcp show {server}` names"
        );
        self.raise(AlarmKind::CredentialUnavailable, server, what, fix);
    }

    /// Whether there is no alarm of a kind.
    pub(crate) fn is_silent(&self, kind: AlarmKind) -> bool {
        !self.lock().keys().any(|(raised, _)| *raised == kind)
    }

    /// Every alarm there is.
    pub fn all(&self) -> Vec<Alarm> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(AlarmKind, String), Alarm>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_stays_until_its_cause_has_ended() {
        // SURF-95, REC-75
        let alarms = Alarms::default();
        alarms.undecided("expand", (20, 0));
        alarms.undecided("expand", (999, 1));
        alarms.without_grant("personal", "grant_revoked");
        assert_eq!(alarms.all().len(), 2);
        assert!(alarms.all()[0].what.contains("1000 calls"), "{:?}", alarms.all());
        alarms.end(AlarmKind::GateNeverDecides, "expand");
        assert_eq!(alarms.all().len(), 1);
    }
}
