//! Answers that hold for every call of a tool.
//!
//! Asking Cedar takes some microseconds, three times per call. The shipped policies look only at the tool, its server
//! and the mode, so their answers change only with the snapshot that holds the tool; there they are kept. Policies of an
//! operator's own are asked each time, and what they say is put together with what is kept.

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

impl Answer {
    /// Something went wrong, which lets nothing through.
    pub(super) fn error() -> Self {
        Self { allowed: false, reasons: [ERROR.to_owned()].into() }
    }

    fn is_error(&self) -> bool {
        !self.allowed && self.reasons.iter().any(|reason| reason == ERROR)
    }

    /// Somebody said no, rather than nobody yes.
    fn is_forbidden(&self) -> bool {
        !self.allowed && !self.reasons.is_empty()
    }

    /// What two sets of policies say as one: what either forbids is forbidden, then what either permits is allowed.
    pub(super) fn and(self, other: Self) -> Self {
        if self.is_error() || other.is_error() {
            return Self::error();
        }
        let reasons_of = |which: fn(&Self) -> bool| {
            let both = [&self, &other].into_iter().filter(|answer| which(answer));
            both.flat_map(|answer| answer.reasons.iter().cloned()).collect::<Arc<[String]>>()
        };
        let forbids = reasons_of(Self::is_forbidden);
        if forbids.is_empty() {
            let permits = reasons_of(|answer| answer.allowed);
            Self { allowed: self.allowed || other.allowed, reasons: permits }
        } else {
            Self { allowed: false, reasons: forbids }
        }
    }
}

const ERROR: &str = "error";

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
    fn two_sets_say_together_what_one_of_both_would() {
        // GOV-801, GOV-803
        let answer = |allowed, reasons: &[&str]| Answer {
            allowed,
            reasons: reasons.iter().map(|reason| (*reason).to_owned()).collect(),
        };
        let (yes, also, no, never, silent) = (
            answer(true, &["p"]),
            answer(true, &["q"]),
            answer(false, &["f"]),
            answer(false, &["g"]),
            answer(false, &[]),
        );
        for (a, b, allowed, reasons) in [
            (&yes, &also, true, &["p", "q"][..]),
            (&yes, &silent, true, &["p"]),
            (&silent, &also, true, &["q"]),
            (&yes, &never, false, &["g"]),
            (&no, &also, false, &["f"]),
            (&no, &never, false, &["f", "g"]),
            (&no, &silent, false, &["f"]),
            (&silent, &silent, false, &[]),
            (&yes, &Answer::error(), false, &["error"]),
            (&Answer::error(), &no, false, &["error"]),
        ] {
            let both = a.clone().and(b.clone());
            assert_eq!(both.allowed, allowed, "{a:?} {b:?}");
            assert_eq!(&*both.reasons, reasons, "{a:?} {b:?}");
        }
    }

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
