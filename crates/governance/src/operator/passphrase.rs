//! Passphrases of operators: what is kept of one, and how many guesses there are (GOV-104).

use std::collections::VecDeque;
use std::time::Duration;

use argon2::{Algorithm, Argon2, Params, Version};
use portcullis_core::digest::{parse_hex, to_hex};
use portcullis_core::{Secret, Timestamp};
use rand::RngExt as _;
use serde::{Deserialize, Serialize};

/// The shortest passphrase that is taken.
pub const SHORTEST: usize = 12;

/// 19 MiB and two passes: what OWASP asks of argon2id with one lane.
const MEMORY_KIB: u32 = 19 * 1024;
const PASSES: u32 = 2;

/// This many failures within [`WINDOW`] lock the method for as long.
const MAX_FAILURES: usize = 5;
const WINDOW: Duration = Duration::from_secs(60);

/// What is kept of a passphrase: enough to recognise it, not to know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verifier {
    algorithm: String,
    hash: String,
    memory_kib: u32,
    passes: u32,
    salt: String,
}

impl Verifier {
    /// Makes one with a fresh salt; `None` if the passphrase is too short. Takes tens of milliseconds: not for an
    /// async thread.
    pub fn new(passphrase: &Secret<String>) -> Option<Self> {
        if passphrase.expose().chars().count() < SHORTEST {
            return None;
        }
        let salt: [u8; 16] = rand::rng().random();
        let hash = hash(passphrase, &salt, MEMORY_KIB, PASSES)?;
        Some(Self {
            algorithm: "argon2id".into(),
            hash: to_hex(hash.expose()),
            memory_kib: MEMORY_KIB,
            passes: PASSES,
            salt: to_hex(&salt),
        })
    }

    /// Whether this is the passphrase. Takes as long as making one.
    pub fn matches(&self, passphrase: &Secret<String>) -> bool {
        let (Some(salt), Some(expected)) = (parse_hex::<16>(&self.salt), parse_hex::<32>(&self.hash)) else {
            return false;
        };
        self.algorithm == "argon2id"
            && hash(passphrase, &salt, self.memory_kib, self.passes)
                .is_some_and(|hash| hash == Secret::new(expected))
    }
}

fn hash(passphrase: &Secret<String>, salt: &[u8], memory: u32, passes: u32) -> Option<Secret<[u8; 32]>> {
    // A verifier that was tampered with must not make us allocate what it says.
    let params = Params::new(memory.min(256 * 1024), passes.min(16), 1, Some(32)).ok()?;
    let mut out = [0; 32];
    let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    argon.hash_password_into(passphrase.expose().as_bytes(), salt, &mut out).ok()?;
    Some(Secret::new(out))
}

/// Failed attempts, so that guessing is slow however fast the guesser.
#[derive(Debug, Default)]
pub struct Lockout {
    failures: VecDeque<Timestamp>,
    until: Option<Timestamp>,
}

impl Lockout {
    /// Until when nobody is let in, if so.
    pub fn locked(&self, now: Timestamp) -> Option<Timestamp> {
        self.until.filter(|until| now < *until)
    }

    /// One more failure.
    pub fn failed(&mut self, now: Timestamp) {
        self.failures.retain(|at| now.since(*at) < WINDOW);
        self.failures.push_back(now);
        if self.failures.len() >= MAX_FAILURES {
            self.failures.clear();
            self.until = Some(now.after(WINDOW));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Secret<String> {
        Secret::new(text.into())
    }

    #[test]
    fn a_passphrase_is_recognised_and_nothing_else() {
        // GOV-104
        let verifier = Verifier::new(&secret("correct horse battery")).unwrap();
        assert!(verifier.matches(&secret("correct horse battery")));
        for wrong in ["", "correct horse batterz", "correct horse battery "] {
            assert!(!verifier.matches(&secret(wrong)), "{wrong:?}");
        }
        let again = Verifier::new(&secret("correct horse battery")).unwrap();
        assert_ne!(again, verifier, "salted");
        assert!(Verifier::new(&secret("too short")).is_none());
        let text = serde_json::to_string(&verifier).unwrap();
        assert!(!text.contains("horse"));
        let kept: Verifier = serde_json::from_str(&text).unwrap();
        assert!(kept.matches(&secret("correct horse battery")));
        let other = Verifier { algorithm: "plain".into(), ..kept };
        assert!(!other.matches(&secret("correct horse battery")));
    }

    #[test]
    fn five_failures_in_a_minute_lock_for_a_minute() {
        // GOV-104
        let at = |seconds: u64| Timestamp::from_millis(1_800_000_000_000 + seconds * 1000);
        let mut lockout = Lockout::default();
        for second in [0, 30, 59, 60, 61] {
            lockout.failed(at(second));
        }
        assert_eq!(lockout.locked(at(61)), None, "the first was more than a minute ago");
        lockout.failed(at(62));
        assert_eq!(lockout.locked(at(62)), Some(at(122)));
        assert_eq!(lockout.locked(at(121)), Some(at(122)));
        assert_eq!(lockout.locked(at(122)), None);
    }
}
