//! Looking at a server: permission for handshakes and lists, recorded before anything is sent (GOV-404).

use portcullis_audit::{AuditBlocked, AuditLog, Event, EventName, Receipt};
use portcullis_core::{Actor, ServerIdentity, ServerVersion};
use portcullis_sandbox::{Layers, Observed};
use serde_json::json;

use super::BoxFuture;

/// Permission for one listing exchange with a server: handshake, `server/discover`, one page of a list
/// (GOV-404). Consumed by the exchange.
#[derive(Debug)]
pub struct ProbePermit {
    method: String,
    _receipt: Receipt,
}

impl ProbePermit {
    /// What may be asked.
    pub fn method(&self) -> &str {
        &self.method
    }
}

/// Why a probe may not be sent.
pub type ProbeDenied = AuditBlocked;

/// Hands out probe permits, each durably recorded as `server.probed` before anything is sent.
pub trait ProbeAuthority: Send + Sync + std::fmt::Debug {
    /// Permission to send `method` to `server`.
    fn authorise<'a>(
        &'a self,
        server: &'a ServerIdentity,
        method: &'a str,
    ) -> BoxFuture<'a, Result<ProbePermit, ProbeDenied>>;

    /// Records what confines a process of `server` that was just started (SBX-11).
    fn confined(&self, server: &ServerIdentity, layers: &Layers, cgroup: &str) {
        let _ = (server, layers, cgroup);
    }

    /// Records what a process of `server` sent out, or tried to (SBX-48).
    fn observed(&self, server: &ServerIdentity, what: &Observed) {
        let _ = (server, what);
    }
}

/// Probe permits for one version of a server.
#[derive(Debug, Clone)]
pub struct Prober {
    log: AuditLog,
    version: ServerVersion,
}

impl Prober {
    /// For the server version that is registered or about to be.
    pub fn new(log: AuditLog, version: ServerVersion) -> Self {
        Self { log, version }
    }
}

impl ProbeAuthority for Prober {
    fn authorise<'a>(
        &'a self,
        server: &'a ServerIdentity,
        method: &'a str,
    ) -> BoxFuture<'a, Result<ProbePermit, ProbeDenied>> {
        Box::pin(async move {
            let target = format!("{server}/probe:{method}@{}#0", self.version);
            let data = json!({"credentials": [], "method": method, "server": server, "side_effects": [], "target": target});
            let event = Event::new(EventName::ServerProbed, &Actor::system()).data(data);
            let receipt = self.log.commit(vec![event]).await?;
            Ok(ProbePermit { method: method.to_owned(), _receipt: receipt })
        })
    }

    fn confined(&self, server: &ServerIdentity, layers: &Layers, cgroup: &str) {
        let data = json!({"cgroup": cgroup, "layers": layers, "server": server});
        // If the log is blocked, so is the probe that comes next, and nothing is asked of the process.
        let _ = self.log.append(vec![Event::new(EventName::SandboxEstablished, &Actor::system()).data(data)]);
    }

    fn observed(&self, server: &ServerIdentity, what: &Observed) {
        let (name, data) = match what {
            Observed::Allowed { scope, host, port, bytes_out, bytes_in, permit } => (
                EventName::SandboxEgressAllowed,
                json!({"bytes_in": bytes_in, "bytes_out": bytes_out, "host": host, "permit_id": permit, "port": port, "scope": scope, "server": server}),
            ),
            Observed::Denied { target, port, reason, violation, permits } => (
                EventName::SandboxEgressDenied,
                json!({"kind": violation, "permits": permits, "port": port, "reason": reason, "server": server, "target": target, "violation": violation.is_some()}),
            ),
            // What was done with files is told where the process is ended for it.
            Observed::Attempted { kind: "bait" | "artifact" | "file", .. } => return,
            Observed::Attempted { what, violation, permits, .. } => (
                EventName::SandboxSyscallDenied,
                json!({"call": what, "permits": permits, "server": server, "violation": violation}),
            ),
            Observed::NameDenied { name } => {
                (EventName::SandboxDnsDenied, json!({"name": name, "server": server}))
            }
        };
        let _ = self.log.append(vec![Event::new(name, &Actor::server(server.as_str())).data(data)]);
    }
}
