//! Answers that hold for every call of a tool.
//!
//! Asking Cedar takes some microseconds, three times per call. The shipped policies look only at the tool, its server
//! and the mode, so their answers change only with the snapshot that holds the tool; there they are kept. As soon as an
//! operator adds a policy of their own, nothing is kept and Cedar is asked each time.

use std::sync::{Arc, OnceLock};

use portcullis_core::PolicyVersion;

use super::MAX_QUORUM;
use super::facts::Action;
use crate::approval::Scope;
use crate::record::Mode;

/// What Cedar said to one question.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) allowed: bool,
    pub(super) reasons: Arc<[String]>,
}

/// Two questions without an approval, and one for each scope and number of operators.
const SLOTS: usize = 2 + Scope::ALL.len() * MAX_QUORUM as usize;

/// The answers about one tool under one policy in one mode.
#[derive(Debug, Default)]
pub(super) struct Answers {
    given_by: OnceLock<(PolicyVersion, Mode)>,
    kept: [OnceLock<Answer>; SLOTS],
}

impl Answers {
    /// The answer of the policy with this key, asked for at most once. Another policy is always asked: its answers are
    /// not ours to keep.
    pub(super) fn get_or_ask(
        &self,
        key: (PolicyVersion, Mode),
        action: Action,
        approval: Option<(Scope, u32)>,
        ask: impl FnOnce() -> Answer,
    ) -> Answer {
        if *self.given_by.get_or_init(|| key) != key {
            return ask();
        }
        match slot(action, approval) {
            Some(slot) => self.kept[slot].get_or_init(ask).clone(),
            None => ask(),
        }
    }
}

fn slot(action: Action, approval: Option<(Scope, u32)>) -> Option<usize> {
    match (action, approval) {
        (Action::Invoke, None) => Some(0),
        (Action::InvokeUnattended, None) => Some(1),
        (Action::Invoke, Some((scope, approvers @ 1..=MAX_QUORUM))) => {
            Some(2 + scope as usize * MAX_QUORUM as usize + approvers as usize - 1)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_core::Sha256Digest;

    #[test]
    fn answers_are_kept_per_question_and_never_cross_policies_or_modes() {
        let answers = Answers::default();
        let version = |text: &[u8]| PolicyVersion { counter: 1, sha256: Sha256Digest::of(text) };
        let ask = |key, action, approval, allowed| {
            let answer = || Answer { allowed, reasons: Arc::default() };
            answers.get_or_ask(key, action, approval, answer).allowed
        };
        let ours = (version(b"a"), Mode::Local);
        assert!(ask(ours, Action::Invoke, None, true));
        assert!(ask(ours, Action::Invoke, None, false), "kept");
        for other in [(version(b"b"), Mode::Local), (version(b"a"), Mode::Team)] {
            assert!(!ask(other, Action::Invoke, None, false));
        }
        assert!(!ask(ours, Action::InvokeUnattended, None, false));
        let mut seen = std::collections::BTreeSet::new();
        for scope in Scope::ALL {
            for approvers in 1..=MAX_QUORUM {
                assert!(seen.insert(slot(Action::Invoke, Some((scope, approvers))).unwrap()));
            }
        }
        assert_eq!((seen.first(), seen.last()), (Some(&2), Some(&(SLOTS - 1))));
        assert_eq!(slot(Action::Invoke, Some((Scope::Once, MAX_QUORUM + 1))), None);
    }
}
