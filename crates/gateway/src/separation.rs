//! Under which users agents run, as far as the kernel tells (GOV-104, GOV-105).
//!
//! Operators reach the gateway as its own user only. Whether an agent does too decides what an approval is worth: one that
//! shares the operator's user could act as the operator, if nothing else confines it. That is measured, not assumed: the
//! peer of a socket in the home folder is known by its credentials, that of a loopback connection by the kernel's table.
//!
//! Who connected once as an agent is never again believed to be an operator for being that user, so the log keeps it.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use portcullis_audit::{AuditLog, Event, EventName};
use portcullis_core::Actor;
use portcullis_governance::operator::Separation;
use serde_json::json;

/// What the log calls a user that connected as an agent.
pub(crate) const KIND: &str = "agent_user";

/// The users that connected as agents.
#[derive(Debug, Default)]
pub struct AgentUsers {
    seen: Mutex<Seen>,
    /// Where it is written down.
    log: Option<AuditLog>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Since the start.
    uids: BTreeSet<u32>,
    /// Ever.
    ever: BTreeSet<u32>,
    /// Somebody of this machine connected of whom nothing could be found out.
    unknown: bool,
}

impl AgentUsers {
    /// Nobody yet but these, in earlier lives of this gateway; whoever comes is written down.
    pub(crate) fn remembered(log: AuditLog, ever: impl IntoIterator<Item = u32>) -> Self {
        let seen = Seen { ever: ever.into_iter().collect(), ..Seen::default() };
        Self { seen: Mutex::new(seen), log: Some(log) }
    }

    /// An agent connected as `uid`.
    pub fn connected(&self, uid: u32) {
        let first = {
            let mut seen = self.lock();
            seen.uids.insert(uid);
            seen.ever.insert(uid)
        };
        if let Some(log) = self.log.as_ref().filter(|_| first) {
            let data = json!({"document": {"uid": uid}, "id": uid.to_string(), "kind": KIND, "version": 1});
            // A log that takes nothing lets no call through either.
            let _ = log.append(vec![Event::new(EventName::AdminStateChanged, &Actor::system()).data(data)]);
        }
    }

    /// An agent connected over TCP. From another machine it is none of this machine's users.
    pub(crate) fn connected_from(&self, peer: SocketAddr, local: SocketAddr) {
        if !peer.ip().is_loopback() || self.shares_ours() {
            return;
        }
        match owner(peer, local) {
            Some(uid) => self.connected(uid),
            None => self.lock().unknown = true,
        }
    }

    /// Whether an agent was seen to run as the gateway's own user, and so as its operators do.
    pub fn shares_ours(&self) -> bool {
        self.lock().uids.contains(&rustix::process::geteuid().as_raw())
    }

    /// Whether an agent ever was: then being that user proves nothing any more (GOV-104).
    pub fn ever_shared_ours(&self) -> bool {
        self.lock().ever.contains(&rustix::process::geteuid().as_raw())
    }

    /// What a decision made now is worth. Without an agent to measure, or with one of whom nothing is known, no more is
    /// claimed than is known.
    pub fn separation(&self) -> Separation {
        let apart = {
            let seen = self.lock();
            !seen.uids.is_empty() && !seen.unknown
        };
        if apart && !self.shares_ours() { Separation::DedicatedUid } else { Separation::SameUid }
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who owns the other end of a connection within this machine.
fn owner(peer: SocketAddr, local: SocketAddr) -> Option<u32> {
    let table = match peer.ip() {
        IpAddr::V4(_) => "/proc/net/tcp",
        IpAddr::V6(_) => "/proc/net/tcp6",
    };
    find(&std::fs::read_to_string(table).ok()?, peer, local)
}

fn find(table: &str, peer: SocketAddr, local: SocketAddr) -> Option<u32> {
    let (peer, local) = (written(peer), written(local));
    table.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let is_it = fields.next()? == peer && fields.next()? == local;
        // Behind the addresses: state, queues, timer, retransmits, uid.
        is_it.then(|| fields.nth(4)?.parse().ok()).flatten()
    })
}

/// An address as the kernel's table writes it: words in the machine's own order.
fn written(address: SocketAddr) -> String {
    let words: String = match address.ip() {
        IpAddr::V4(ip) => format!("{:08X}", u32::from_ne_bytes(ip.octets())),
        IpAddr::V6(ip) => (ip.octets().chunks_exact(4))
            .map(|word| format!("{:08X}", u32::from_ne_bytes([word[0], word[1], word[2], word[3]])))
            .collect(),
    };
    format!("{words}:{:04X}", address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_of_a_connection_is_found_by_both_of_its_ends() {
        // GOV-105
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
                     0: 0100007F:1F90 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 1 1\n   \
                     1: 0100007F:D431 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1001        0 2 1\n";
        let (peer, local) = ("127.0.0.1:54321".parse().unwrap(), "127.0.0.1:8080".parse().unwrap());
        if cfg!(target_endian = "little") {
            assert_eq!(find(table, peer, local), Some(1001));
            assert_eq!(find(table, local, peer), Some(0));
        }
        assert_eq!(find(table, "127.0.0.1:54322".parse().unwrap(), local), None);
    }

    #[test]
    fn a_real_connection_is_our_own_and_so_nothing_is_separate() {
        // GOV-105
        let users = AgentUsers::default();
        assert_eq!(users.separation(), Separation::SameUid, "nothing was measured yet");
        users.connected(rustix::process::geteuid().as_raw() + 1);
        assert_eq!(users.separation(), Separation::DedicatedUid);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        users.connected_from(client.local_addr().unwrap(), listener.local_addr().unwrap());
        assert!(users.shares_ours());
        assert_eq!(users.separation(), Separation::SameUid);
    }

    #[test]
    fn who_comes_from_elsewhere_is_nobody_of_this_machine() {
        let users = AgentUsers::default();
        users.connected(rustix::process::geteuid().as_raw() + 1);
        users.connected_from("192.0.2.7:4000".parse().unwrap(), "192.0.2.1:8080".parse().unwrap());
        assert_eq!(users.separation(), Separation::DedicatedUid);
    }
}
