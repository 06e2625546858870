//! Credentials, for the time of one call; and looking for them in what comes back (SBX-52, SBX-54).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use portcullis_governance::boundary::{BoxFuture, Outcome, TransmitFailure, ValidatedPermit};
use portcullis_governance::broker::{Broker, CredentialDenied, Delivery, Lease};
use portcullis_governance::declaration::Via;
use portcullis_sandbox::broker::{Echoes, Secret, SecretFiles, Written};
use portcullis_sandbox::{Gate, Loan};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::beside::{Beside, Unanswered};

/// The credentials of one call.
#[derive(Debug, Default)]
pub(crate) struct Lent {
    leases: Vec<(Delivery, Arc<Lease>)>,
}

impl Lent {
    /// Leases everything the permit lists, or nothing.
    pub(crate) fn to(
        permit: &ValidatedPermit,
        broker: Option<&Arc<Broker>>,
    ) -> Result<Self, CredentialDenied> {
        let mut leases = Vec::new();
        for delivery in permit.credentials() {
            let broker = broker.ok_or_else(|| CredentialDenied::Missing(delivery.class.clone()))?;
            leases.push((delivery.clone(), Arc::new(broker.lease(permit, &delivery.class)?)));
        }
        Ok(Self { leases })
    }

    /// What travels in headers. They are marked, so that nobody prints them.
    pub(crate) fn headers(&self) -> Result<Vec<(HeaderName, HeaderValue)>, CredentialDenied> {
        let in_headers = self.leases.iter().filter(|(delivery, _)| delivery.via == Via::Header);
        in_headers.map(|(delivery, lease)| header(delivery, lease)).collect()
    }

    /// What is in the environment of a process of this call's own.
    pub(crate) fn variables(&self) -> Result<Vec<(String, Arc<Secret>)>, CredentialDenied> {
        let variable = |(delivery, lease): &(Delivery, Arc<Lease>)| {
            Ok((delivery.name.clone(), Arc::clone(current(delivery, lease)?)))
        };
        self.leases.iter().filter(|(delivery, _)| delivery.via == Via::Env).map(variable).collect()
    }

    /// Puts what travels in files into those of the call's process, for as long as the answer lives.
    pub(crate) fn write(&self, files: Option<&SecretFiles>) -> Result<Vec<Written>, CredentialDenied> {
        let write = |(delivery, lease): &(Delivery, Arc<Lease>)| {
            let secret = current(delivery, lease)?;
            let files = files.ok_or_else(|| unusable(delivery, "its server is no process of ours"))?;
            files.write(&delivery.name, secret).map_err(|error| unusable(delivery, &error.to_string()))
        };
        self.leases.iter().filter(|(delivery, _)| delivery.via == Via::Fd).map(write).collect()
    }

    /// Whether the process itself gets to know a value, and must be gone when the call is over.
    pub(crate) fn is_known_inside(&self) -> bool {
        self.leases.iter().any(|(delivery, _)| matches!(delivery.via, Via::Fd | Via::Env))
    }

    /// Has the gate put in what the process itself never gets.
    pub(crate) fn through(&self, gate: &Gate) -> Vec<Loan> {
        let substituted = self.leases.iter().filter(|(delivery, _)| delivery.via == Via::Proxy);
        let lend = |(delivery, lease): &(Delivery, Arc<Lease>)| {
            let lease = Arc::downgrade(lease);
            gate.lend(delivery.class.as_str(), Box::new(move || lease.upgrade()?.secret().cloned()))
        };
        substituted.map(lend).collect()
    }
}

fn unusable(delivery: &Delivery, reason: &str) -> CredentialDenied {
    CredentialDenied::Unusable { class: delivery.class.clone(), reason: reason.to_owned() }
}

fn current<'l>(delivery: &Delivery, lease: &'l Lease) -> Result<&'l Arc<Secret>, CredentialDenied> {
    lease.secret().ok_or_else(|| unusable(delivery, "an operator has just changed it"))
}

fn header(delivery: &Delivery, lease: &Lease) -> Result<(HeaderName, HeaderValue), CredentialDenied> {
    let unusable = |reason| unusable(delivery, reason);
    let secret = current(delivery, lease)?;
    let format = delivery.format.as_deref().unwrap_or("{secret}");
    let (before, after) = format.split_once("{secret}").unwrap_or((format, ""));
    let text = [before.as_bytes(), secret.expose(), after.as_bytes()].concat();
    let mut value =
        HeaderValue::from_maybe_shared(Bytes::from(text)).map_err(|_| unusable("it is no header's value"))?;
    value.set_sensitive(true);
    let name = delivery.name.parse().map_err(|_| unusable("its header's name is none"))?;
    Ok((name, value))
}

/// What is on loan over one connection, to whichever call: none of it may come back.
#[derive(Debug, Default)]
pub(crate) struct OnLoan {
    values: Mutex<Vec<(String, Weak<Secret>)>>,
}

impl std::fmt::Debug for Listening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listening").finish_non_exhaustive()
    }
}

impl OnLoan {
    /// Adds what a call was lent, and listens for everything that is on loan now; `None` if nothing is.
    pub(crate) fn listen(
        &self,
        lent: &Lent,
        token: Option<Arc<Secret>>,
        attendant: Option<&Arc<dyn Beside>>,
    ) -> Option<Arc<Listening>> {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        values.retain(|(_, value)| value.strong_count() > 0);
        for (delivery, lease) in &lent.leases {
            values.push((delivery.class.to_string(), Arc::downgrade(lease.to_look_for())));
        }
        let mut held: Vec<(String, Arc<Secret>)> =
            values.iter().filter_map(|(class, value)| Some((class.clone(), value.upgrade()?))).collect();
        drop(values);
        // What the connection itself shows must not come back either.
        held.extend(token.map(|token| ("oauth".to_owned(), token)));
        let echoes = Echoes::of(held.iter().map(|(class, value)| (class.as_str(), &**value)))?;
        let (echoes, attendant) = (Arc::new(echoes), attendant.cloned());
        Some(Arc::new(Listening { echoes, attendant, heard: AtomicBool::new(false) }))
    }
}

/// Listens for credentials in what a server says during a call, and lets nothing past that has one in it.
pub(crate) struct Listening {
    echoes: Arc<Echoes>,
    attendant: Option<Arc<dyn Beside>>,
    heard: AtomicBool,
}

impl Listening {
    /// What it listens for.
    pub(crate) fn echoes(&self) -> &Arc<Echoes> {
        &self.echoes
    }

    /// Takes credentials out of what came, and says whether there were any.
    pub(crate) fn finish(&self, outcome: Outcome) -> (Outcome, bool) {
        let mut heard = self.heard.load(Ordering::Acquire);
        let mut clean = |raw: Bytes| match self.echoes.taken_out_of(&raw) {
            Some(clean) => {
                heard = true;
                Bytes::from(clean)
            }
            None => raw,
        };
        let outcome = match outcome {
            Outcome::Result(raw) => Outcome::Result(clean(raw)),
            Outcome::RpcError(raw) => Outcome::RpcError(clean(raw)),
            Outcome::TooLarge { bytes, prefix } => Outcome::TooLarge { bytes, prefix: clean(prefix) },
            Outcome::Escaped { violation, answer } => {
                Outcome::Escaped { violation, answer: answer.map(clean) }
            }
            Outcome::PassedOn => Outcome::PassedOn,
            Outcome::Failed(failure) => Outcome::Failed(match failure {
                TransmitFailure::Unavailable { reason, sent } => {
                    TransmitFailure::Unavailable { reason: self.without(reason), sent }
                }
                TransmitFailure::Protocol { reason } => {
                    TransmitFailure::Protocol { reason: self.without(reason) }
                }
                failure => failure,
            }),
        };
        (outcome, heard)
    }

    /// Words of ours that may quote the server.
    fn without(&self, text: String) -> String {
        match self.echoes.taken_out_of(text.as_bytes()) {
            Some(clean) => String::from_utf8_lossy(&clean).into_owned(),
            None => text,
        }
    }

    fn hears(&self, params: &RawValue) -> bool {
        let heard = self.echoes.heard_in(params.get().as_bytes());
        if heard {
            self.heard.store(true, Ordering::Release);
        }
        heard
    }
}

impl Beside for Listening {
    fn notified(&self, method: &str, params: &RawValue) {
        if let Some(attendant) = &self.attendant
            && !self.hears(params)
        {
            attendant.notified(method, params);
        }
    }

    fn paused(&self) {
        if let Some(attendant) = &self.attendant {
            attendant.paused();
        }
    }

    fn asked(&self, method: String, params: Box<RawValue>) -> BoxFuture<'static, Result<Value, Unanswered>> {
        match &self.attendant {
            Some(attendant) if !self.hears(&params) => attendant.asked(method, params),
            _ => {
                let message = "the question is not passed on".to_owned();
                Box::pin(std::future::ready(Err(Unanswered::Refused { code: -32603, message })))
            }
        }
    }
}
