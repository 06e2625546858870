//! Operators' sessions in the browser (GOV-104).
//!
//! A session begins with a passphrase or a security key and is carried by a cookie of 256 random bits. Only the digest of those bits is
//! kept, in memory: who reads the gateway's memory dump or its disk cannot take a session over, and a restart ends
//! all of them. What a page shows by itself does not keep a session alive; what its operator does, does.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use portcullis_core::{Secret, Sha256Digest, Timestamp};
use portcullis_governance::operator::OperatorProof;
use portcullis_governance::operator::webauthn::CredentialId;
use rand::RngExt as _;
use subtle::ConstantTimeEq as _;

use crate::confirmation::Sent;

/// Sessions kept at most; the one that was idle longest goes first.
const MAX_SESSIONS: usize = 1_000;

/// How long a session lasts.
#[derive(Debug, Clone, Copy)]
pub struct SessionLife {
    /// Without anything done in it.
    pub idle: Duration,
    /// Altogether.
    pub whole: Duration,
}

impl Default for SessionLife {
    fn default() -> Self {
        Self { idle: Duration::from_secs(30 * 60), whole: Duration::from_secs(12 * 3600) }
    }
}

/// An operator who logged in.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    /// Who, and how it was proved.
    pub(crate) operator: OperatorProof,
    /// When the operator was enrolled: another passphrase is another enrolment, and ends what the old one began.
    pub(crate) enrolled_at: Timestamp,
    /// The security key it began with: that must still be enrolled, and signs each change.
    pub(crate) passkey: Option<CredentialId>,
    /// Whether it has signed this request.
    pub(crate) confirmed: bool,
    /// The form that this request is, if it is one.
    pub(crate) sent: Option<Arc<Sent>>,
    /// What every form of this session carries and no other site knows.
    csrf: Arc<Secret<String>>,
}

impl Session {
    /// The token that forms of this session carry.
    pub(crate) fn csrf(&self) -> &str {
        self.csrf.expose()
    }

    /// Whether nothing may be changed before its key has signed that.
    pub(crate) fn needs_key(&self) -> bool {
        self.passkey.is_some() && !self.confirmed
    }

    /// Whether a form is of this session.
    pub(crate) fn wrote(&self, token: &str) -> bool {
        self.csrf.expose().as_bytes().ct_eq(token.as_bytes()).into()
    }
}

#[derive(Debug)]
struct Kept {
    session: Session,
    began: Instant,
    last: Instant,
}

impl Kept {
    fn is_over(&self, life: SessionLife, now: Instant) -> bool {
        now.duration_since(self.last) >= life.idle || now.duration_since(self.began) >= life.whole
    }
}

/// All sessions.
#[derive(Debug)]
pub(crate) struct Sessions {
    life: SessionLife,
    kept: Mutex<HashMap<Sha256Digest, Kept>>,
}

/// Whether looking a session up counts as something its operator did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// The operator did something: the idle time begins again.
    Acts,
    /// The page looked by itself.
    Watches,
}

impl Sessions {
    /// None yet.
    pub(crate) fn new(life: SessionLife) -> Self {
        Self { life, kept: Mutex::default() }
    }

    /// How long they last.
    pub(crate) fn life(&self) -> SessionLife {
        self.life
    }

    /// Begins one; returns the cookie's value.
    pub(crate) fn begin(
        &self,
        operator: OperatorProof,
        enrolled_at: Timestamp,
        passkey: Option<CredentialId>,
        now: Instant,
    ) -> Secret<String> {
        let id = token();
        let session =
            Session { operator, enrolled_at, passkey, confirmed: false, sent: None, csrf: Arc::new(token()) };
        let mut kept = self.lock();
        kept.retain(|_, kept| !kept.is_over(self.life, now));
        if kept.len() >= MAX_SESSIONS {
            let idlest = kept.iter().min_by_key(|(_, kept)| kept.last).map(|(digest, _)| *digest);
            idlest.map(|digest| kept.remove(&digest));
        }
        kept.insert(digest(id.expose()), Kept { session, began: now, last: now });
        id
    }

    /// The session of a cookie, if it has not ended.
    pub(crate) fn find(&self, cookie: &str, usage: Use, now: Instant) -> Option<Session> {
        let mut kept = self.lock();
        let digest = digest(cookie);
        let entry = kept.get_mut(&digest)?;
        if entry.is_over(self.life, now) {
            kept.remove(&digest);
            return None;
        }
        if usage == Use::Acts {
            entry.last = now;
        }
        Some(entry.session.clone())
    }

    /// Ends one.
    pub(crate) fn end(&self, cookie: &str) {
        self.lock().remove(&digest(cookie));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Sha256Digest, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// 256 random bits in hexadecimal.
fn token() -> Secret<String> {
    let bits: [u8; 32] = rand::rng().random();
    Secret::new(portcullis_core::digest::to_hex(&bits))
}

fn digest(cookie: &str) -> Sha256Digest {
    Sha256Digest::of(cookie.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_governance::operator::{Method, Separation};

    const LIFE: SessionLife = SessionLife { idle: Duration::from_secs(60), whole: Duration::from_secs(150) };

    fn alice() -> OperatorProof {
        OperatorProof::authenticated("alice", Method::Passphrase, Separation::SameUid)
    }

    fn begun(sessions: &Sessions, now: Instant) -> String {
        sessions.begin(alice(), Timestamp::from_millis(0), None, now).expose().clone()
    }

    #[test]
    fn a_session_ends_when_idle_and_in_any_case_after_its_whole_life() {
        // GOV-104
        let (sessions, start) = (Sessions::new(LIFE), Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let idle = begun(&sessions, start);
        assert!(sessions.find(&idle, Use::Watches, at(59)).is_some());
        assert!(sessions.find(&idle, Use::Watches, at(60)).is_none(), "watching keeps nothing alive");
        assert!(sessions.find(&idle, Use::Acts, at(30)).is_none(), "over is over");

        let busy = begun(&sessions, start);
        for second in [50, 100, 149] {
            assert!(sessions.find(&busy, Use::Acts, at(second)).is_some(), "{second}");
        }
        assert!(sessions.find(&busy, Use::Acts, at(150)).is_none());
    }

    #[test]
    fn only_the_cookie_itself_finds_a_session_and_only_its_own_token_fits() {
        let (sessions, now) = (Sessions::new(LIFE), Instant::now());
        let (one, other) = (begun(&sessions, now), begun(&sessions, now));
        assert_eq!(one.len(), 64, "256 bits");
        assert_ne!(one, other);
        let session = sessions.find(&one, Use::Acts, now).unwrap();
        let stranger = sessions.find(&other, Use::Acts, now).unwrap();
        assert!(session.wrote(session.csrf()) && !session.wrote(stranger.csrf()) && !session.wrote(""));
        for wrong in ["", &one[1..], &digest(&one).to_string()] {
            assert!(sessions.find(wrong, Use::Acts, now).is_none(), "{wrong}");
        }
        sessions.end(&one);
        assert!(sessions.find(&one, Use::Acts, now).is_none());
        assert!(sessions.find(&other, Use::Acts, now).is_some());
    }

    #[test]
    fn there_are_never_more_sessions_than_fit() {
        let (sessions, now) = (Sessions::new(LIFE), Instant::now());
        let first = begun(&sessions, now);
        for _ in 0..MAX_SESSIONS {
            begun(&sessions, now + Duration::from_secs(1));
        }
        assert_eq!(sessions.lock().len(), MAX_SESSIONS);
        assert!(sessions.find(&first, Use::Acts, now).is_none(), "the one that was idle longest");
    }
}
