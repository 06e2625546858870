//! What passes through the doors: the gateway's side of egress (SBX-45 to SBX-49).
//!
//! A connection from inside is carried only toward a declared host, only while a call that may reach it is under way, and
//! only if what is said first is what was declared: TLS with that host's name, or HTTP with it. The gate resolves names
//! itself and connects to addresses it has looked at; the program never learns one. Everything else is refused, and
//! most of it means that the program is not what it was taken for.

mod address;
mod crossing;
mod first_words;
mod names;
mod replace;
mod substitution;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

use crate::bait::Watched;
use crate::broker::{Secret, StandIns};
use crate::doors::Door;
use crate::notify::Attempt;
use crate::profile::{EgressScope, Profile};
use crate::sentry::Sentry;
pub use address::is_global;

/// How long connections of a call that is over may linger, for clients that keep them.
const GRACE: Duration = Duration::from_secs(5);
/// So many refusals of one process are told; it may try as often as it likes.
const TOLD: usize = 256;

/// The ways out of one namespace.
#[derive(Debug)]
pub struct Doors {
    profile: Profile,
    open: Vec<(Door, OwnedFd)>,
    stand_ins: StandIns,
    outlook: Outlook,
    closed: Arc<AtomicBool>,
}

/// What is to be seen of a process besides what comes through its doors.
#[derive(Debug)]
pub(crate) struct Outlook {
    pub(crate) sentry: Arc<Sentry>,
    pub(crate) told: UnboundedReceiver<Attempt>,
    pub(crate) watched: Vec<Watched>,
    /// What is in its baits.
    pub(crate) contents: Vec<String>,
}

impl Doors {
    /// Takes the listeners, and the connections that the self-test made to them.
    pub(crate) fn new(
        profile: Profile,
        open: Vec<(Door, OwnedFd)>,
        stand_ins: StandIns,
        outlook: Outlook,
        closed: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        for (door, listener) in &open {
            rustix::io::ioctl_fionbio(listener, true)?;
            if *door != Door::Names {
                while rustix::net::accept(listener).is_ok() {}
            }
        }
        Ok(Self { profile, open, stand_ins, outlook, closed })
    }

    /// Whether credentials are put into what goes through some of them.
    pub fn substitutes(&self) -> bool {
        !self.stand_ins.each.is_empty()
    }
}

/// What the gate saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observed {
    /// A connection was carried, and is over.
    Allowed {
        /// Where to, as declared.
        scope: String,
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// Bytes sent.
        bytes_out: u64,
        /// Bytes received.
        bytes_in: u64,
        /// For which call; none if the server may talk in the background.
        permit: Option<String>,
    },
    /// A connection was refused.
    Denied {
        /// Where to, as far as it said; printable.
        target: String,
        /// The port.
        port: u16,
        /// Why.
        reason: &'static str,
        /// What kind of violation it is (SBX-60); none if it is only told.
        violation: Option<&'static str>,
        /// The calls under way (SBX-63).
        permits: Vec<String>,
    },
    /// Something was tried that is no connection.
    Attempted {
        /// `syscall`, `bait`, `artifact` or `file`.
        kind: &'static str,
        /// Which call or file.
        what: String,
        /// Whether it left its scopes by trying.
        violation: bool,
        /// The calls under way (SBX-63).
        permits: Vec<String>,
    },
    /// A name was asked for that is not declared.
    NameDenied {
        /// Which; printable.
        name: String,
    },
}

/// Whom the gate tells.
pub type Told = Box<dyn Fn(Observed) + Send + Sync>;

/// The gate of one process. Dropping it closes all doors and cuts what goes through them.
#[derive(Debug)]
pub struct Gate {
    watch: Arc<Watch>,
    _doors: JoinSet<()>,
}

impl Gate {
    /// Opens the doors. `known` are names that are not asked of the machine's resolver; `outward` is how hosts prove who
    /// they are that credentials go to; `told` hears what happens.
    pub fn open(
        doors: Doors,
        known: BTreeMap<String, Vec<IpAddr>>,
        outward: Option<Arc<ClientConfig>>,
        told: Told,
    ) -> io::Result<Self> {
        let Outlook { sentry, told: mut attempts, watched, contents } = doors.outlook;
        let watch = Arc::new(Watch {
            profile: doors.profile,
            known,
            stand_ins: doors.stand_ins,
            outward,
            passes: Mutex::default(),
            loans: Mutex::default(),
            told,
            refusals: AtomicUsize::new(0),
            sentry,
            watched,
            contents,
            closed: doors.closed,
        });
        let mut tasks = JoinSet::new();
        for watched in watch.watched.clone() {
            let sentry = Arc::clone(&watch.sentry);
            tasks.spawn(watched.tell(move |attempt| sentry.saw(attempt)));
        }
        let observer = Arc::clone(&watch);
        tasks.spawn(async move {
            while let Some(attempt) = attempts.recv().await {
                observer.attempted(attempt);
            }
        });
        for (door, listener) in doors.open {
            let watch = Arc::clone(&watch);
            match door {
                Door::Host(index) => {
                    let listener = tokio::net::TcpListener::from_std(TcpListener::from(listener))?;
                    let host = move |stream| crossing::direct(Arc::clone(&watch), index, stream);
                    tasks.spawn(crossing::accept(listener, host));
                }
                Door::Proxy => {
                    let listener = tokio::net::TcpListener::from_std(TcpListener::from(listener))?;
                    tasks.spawn(crossing::accept(listener, move |stream| {
                        crossing::proxied(Arc::clone(&watch), stream)
                    }));
                }
                Door::Names => {
                    let socket = tokio::net::UdpSocket::from_std(UdpSocket::from(listener))?;
                    tasks.spawn(names::over_udp(watch, socket));
                }
                Door::NamesOverTcp => {
                    let listener = tokio::net::TcpListener::from_std(TcpListener::from(listener))?;
                    tasks.spawn(crossing::accept(listener, move |stream| {
                        names::over_tcp(Arc::clone(&watch), stream)
                    }));
                }
            }
        }
        Ok(Self { watch, _doors: tasks })
    }

    /// A call is under way that may reach these scopes and send so many bytes.
    pub fn admit(&self, permit: String, scopes: Vec<String>, bytes: u64) -> Pass {
        let mut passes = self.watch.passes();
        let number = passes.next;
        passes.next += 1;
        passes.held.push(Held { number, permit, scopes, bytes, until: None });
        Pass { watch: Arc::clone(&self.watch), number }
    }

    /// How the process has tried to leave its scopes, if it has.
    pub fn escaped(&self) -> Option<&'static str> {
        // Events of files wait to be read; whoever asks wants to know of those too.
        for attempt in self.watch.watched.iter().flat_map(Watched::look) {
            self.watch.sentry.saw(attempt);
        }
        self.watch.sentry.escaped()
    }

    /// Whether what a process said has something in it that it can only have from a bait (SBX-61).
    pub fn has_bait(&self, said: &[u8]) -> bool {
        let has = self
            .watch
            .contents
            .iter()
            .any(|content| memchr::memmem::find(said, content.as_bytes()).is_some());
        if has {
            self.watch.sentry.saw(Attempt::Bait("a bait's content in an answer".into()));
        }
        has
    }

    /// A credential is on loan to a call: its placeholder is replaced by what `value` gives, for as long as it gives
    /// something and the loan is held.
    pub fn lend(&self, class: &str, value: Value) -> Loan {
        let mut loans = self.watch.loans();
        let number = loans.next;
        loans.next += 1;
        loans.held.push((number, class.to_owned(), value));
        Loan { watch: Arc::clone(&self.watch), number }
    }
}

/// Gives a credential's value while it may be used.
pub type Value = Box<dyn Fn() -> Option<Arc<Secret>> + Send + Sync>;

/// A credential that is on loan to a call. Dropped when the call is over.
#[derive(Debug)]
pub struct Loan {
    watch: Arc<Watch>,
    number: u64,
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.watch.loans().held.retain(|(number, _, _)| *number != self.number);
    }
}

#[derive(Default)]
struct Loans {
    next: u64,
    held: Vec<(u64, String, Value)>,
}

/// A call that may talk to somebody. Dropped when the call is over.
#[derive(Debug)]
pub struct Pass {
    watch: Arc<Watch>,
    number: u64,
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut passes = self.watch.passes();
        let until = Instant::now() + GRACE;
        if let Some(held) = passes.held.iter_mut().find(|held| held.number == self.number) {
            held.until = Some(until);
        }
    }
}

/// What all doors of one process share.
struct Watch {
    profile: Profile,
    known: BTreeMap<String, Vec<IpAddr>>,
    stand_ins: StandIns,
    outward: Option<Arc<ClientConfig>>,
    passes: Mutex<Passes>,
    loans: Mutex<Loans>,
    told: Told,
    refusals: AtomicUsize,
    sentry: Arc<Sentry>,
    watched: Vec<Watched>,
    contents: Vec<String>,
    /// Whether policy lets nothing out of any process (SBX-10).
    closed: Arc<AtomicBool>,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Passes {
    next: u64,
    held: Vec<Held>,
}

#[derive(Debug)]
struct Held {
    number: u64,
    permit: String,
    scopes: Vec<String>,
    /// How many may still be sent.
    bytes: u64,
    /// Set when the call is over.
    until: Option<Instant>,
}

/// For which call something is carried.
enum Leave {
    Call(String),
    Background,
}

impl Leave {
    fn permit(self) -> Option<String> {
        match self {
            Leave::Call(permit) => Some(permit),
            Leave::Background => None,
        }
    }
}

impl Watch {
    /// Whether something may go to this host now (SBX-47). A new connection needs a call that is still under way.
    fn leave(&self, scope: &EgressScope, new: bool) -> Option<Leave> {
        if self.closed.load(Ordering::Acquire) {
            return None;
        }
        let mut passes = self.passes();
        let now = Instant::now();
        passes.held.retain(|held| held.until.is_none_or(|until| now < until));
        let covers = |held: &&Held| {
            (held.until.is_none() || !new) && held.scopes.iter().any(|name| self.same_place(name, scope))
        };
        // Calls under way before calls that linger.
        let held = passes.held.iter().filter(covers).min_by_key(|held| held.until.is_some());
        match held {
            Some(held) => Some(Leave::Call(held.permit.clone())),
            None => self.profile.background_egress.then_some(Leave::Background),
        }
    }

    /// Why nothing may go anywhere now.
    fn why_not(&self) -> &'static str {
        match self.closed.load(Ordering::Acquire) {
            true => "policy lets nothing out",
            false => "no call is under way that may reach it",
        }
    }

    /// Takes bytes off what the call may send (SBX-48); whether there were enough.
    fn spend(&self, scope: &EgressScope, bytes: u64) -> bool {
        if self.closed.load(Ordering::Acquire) {
            return false;
        }
        let mut passes = self.passes();
        let covering = |held: &&mut Held| held.scopes.iter().any(|name| self.same_place(name, scope));
        match passes.held.iter_mut().filter(covering).min_by_key(|held| held.until.is_some()) {
            Some(held) if held.bytes >= bytes => {
                held.bytes -= bytes;
                true
            }
            Some(_) => false,
            None => self.profile.background_egress,
        }
    }

    /// Two scopes may name one place, which has one door.
    fn same_place(&self, name: &str, scope: &EgressScope) -> bool {
        self.profile
            .egress
            .iter()
            .any(|known| known.scope == name && known.host == scope.host && known.port == scope.port)
    }

    fn carried(&self, scope: &EgressScope, bytes_out: u64, bytes_in: u64, permit: Option<String>) {
        let (host, port) = (scope.host.clone(), scope.port);
        (self.told)(Observed::Allowed {
            scope: scope.scope.clone(),
            host,
            port,
            bytes_out,
            bytes_in,
            permit,
        });
    }

    /// A refusal that says nothing about the program.
    fn refuse(&self, target: &str, port: u16, reason: &'static str) {
        if self.refusals.fetch_add(1, Ordering::Relaxed) < TOLD {
            self.denied(target, port, reason, None);
        }
    }

    /// A refusal of what an honest program would not try, unless it is expected (SBX-49).
    fn accuse(&self, target: &str, port: u16, reason: &'static str) {
        self.accuse_of("egress", target, port, reason);
    }

    fn accuse_of(&self, kind: &'static str, target: &str, port: u16, reason: &'static str) {
        if self.sentry.expects(target) {
            return self.refuse(target, port, reason);
        }
        self.sentry.found(kind);
        if self.refusals.fetch_add(1, Ordering::Relaxed) < TOLD {
            self.denied(target, port, reason, Some(kind));
        }
    }

    /// Something was tried, and it is known already whether that is the end.
    fn attempted(&self, attempt: Attempt) {
        if self.refusals.fetch_add(1, Ordering::Relaxed) >= TOLD {
            return;
        }
        let violation = self.sentry.kind(&attempt);
        let (kind, what) = match attempt {
            Attempt::Address(to, port) => {
                return self.denied(&to.to_string(), port, "an address beyond its own loopback", violation);
            }
            Attempt::Call(name) | Attempt::Probe(name) => ("syscall", name.to_owned()),
            Attempt::Bait(path) => ("bait", path),
            Attempt::Artifact(path) => ("artifact", path),
            Attempt::File(path) => ("file", path),
        };
        let (violation, permits) = (violation.is_some(), self.under_way());
        (self.told)(Observed::Attempted { kind, what: printable(&what), violation, permits });
    }

    /// The calls under way; if there are none, those that are just over: telling takes longer than trying.
    fn under_way(&self) -> Vec<String> {
        let passes = self.passes();
        let of = |fits: fn(&Held) -> bool| -> Vec<String> {
            passes.held.iter().filter(|held| fits(held)).map(|held| held.permit.clone()).collect()
        };
        let now = of(|held| held.until.is_none());
        if now.is_empty() { of(|held| held.until.is_some_and(|until| Instant::now() < until)) } else { now }
    }

    fn denied(&self, target: &str, port: u16, reason: &'static str, violation: Option<&'static str>) {
        let permits = self.under_way();
        (self.told)(Observed::Denied { target: printable(target), port, reason, violation, permits });
    }

    fn name_denied(&self, name: &str) {
        if self.refusals.fetch_add(1, Ordering::Relaxed) < TOLD {
            (self.told)(Observed::NameDenied { name: printable(name) });
        }
    }

    /// The value of a class, if a call has it now.
    fn on_loan(&self, class: &str) -> Option<Arc<Secret>> {
        self.loans().held.iter().find(|(_, known, _)| known == class).and_then(|(_, _, value)| value())
    }

    fn loans(&self) -> MutexGuard<'_, Loans> {
        self.loans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn passes(&self) -> MutexGuard<'_, Passes> {
        self.passes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a hostile program wrote, fit for a record.
fn printable(text: &str) -> String {
    text.chars().take(253).map(|c| if c.is_ascii_graphic() { c } else { '?' }).collect()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
