//! Trust as the control plane keeps it: following the log, promoting what has earned it, demoting what broke its word.

use std::path::Path;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};

use portcullis_audit::{AuditLog, DurableRecord, Event, EventName, read, read_from};
use portcullis_core::error::{Fault, one_line};
use portcullis_core::{Actor, ErrorCode, ServerIdentity, ToolId};
use portcullis_governance::accepted::AcceptedTool;
use portcullis_governance::approval::{Scope, State as ApprovalState};
use portcullis_governance::operator::OperatorProof;
use portcullis_governance::registry::{ServerEntry, ToolTrust, Trust};
use portcullis_governance::subject::Subject;
use portcullis_governance::trust::{Ledger, Standing, ceiling, is_trust_event, server_ceiling};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::evidence::blocking;
use super::registration::need_reason;
use super::{Control, ControlError, State};

/// The ledger, and what of the log it has not taken yet. Never locked by a call.
#[derive(Debug)]
pub(super) struct TrustBook(Mutex<Following>);

#[derive(Debug)]
struct Following {
    ledger: Ledger,
    records: Receiver<DurableRecord>,
}

/// The ledger between two starts: a shortcut, which the log can always replace.
#[derive(Serialize, Deserialize)]
struct Snapshot {
    log: String,
    ledger: Ledger,
}

impl TrustBook {
    /// Subscribed before it reads, so that nothing falls between; what comes twice is taken once.
    pub(super) fn open(
        home: &Path,
        log: &AuditLog,
        records: Receiver<DurableRecord>,
    ) -> Result<Self, ControlError> {
        let internal = |error: String| ControlError::new(ErrorCode::Internal, error);
        let kept = std::fs::read(home.join("state/trust.json")).ok();
        let kept = kept.and_then(|text| serde_json::from_slice::<Snapshot>(&text).ok());
        let mut ledger = kept
            .filter(|kept| kept.log == log.id().to_string() && kept.ledger.next_seq() <= log.next_seq())
            .map(|kept| kept.ledger)
            .unwrap_or_default();
        for record in read_from(log.dir(), ledger.next_seq()).map_err(|error| internal(error.to_string()))? {
            let record = record.map_err(|error| internal(error.to_string()))?;
            if is_trust_event(record.event) {
                ledger.take(&record);
            }
        }
        Ok(Self(Mutex::new(Following { ledger, records })))
    }

    /// Does something with a ledger that has taken everything durable.
    fn with<T>(&self, look: impl FnOnce(&Ledger) -> T) -> T {
        let mut following = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Following { ledger, records } = &mut *following;
        for record in records.try_iter() {
            match record.parse() {
                Ok(record) => ledger.take(&record),
                Err(error) => tracing::error!(%error, "a record about trust cannot be read"),
            }
        }
        look(ledger)
    }

    /// Keeps the ledger for the next start. Losing it costs time, nothing else.
    pub(super) fn keep(&self, home: &Path, log: &AuditLog) {
        let snapshot = Snapshot { log: log.id().to_string(), ledger: self.with(Clone::clone) };
        let path = home.join("state/trust.json");
        let temporary = path.with_extension("tmp");
        if let Ok(text) = serde_json::to_vec(&snapshot)
            && std::fs::write(&temporary, text).is_ok()
        {
            let _ = std::fs::rename(&temporary, &path);
        }
    }
}

/// What trust is about.
#[derive(Debug, Clone)]
enum About {
    Server(ServerEntry),
    Tool(ServerEntry, Arc<AcceptedTool>),
}

impl About {
    fn entry(&self) -> &ServerEntry {
        match self {
            About::Server(entry) | About::Tool(entry, _) => entry,
        }
    }

    /// The members by which the ledger knows it.
    fn named(&self) -> Value {
        let server = &self.entry().record.server_identity;
        match self {
            About::Server(_) => json!({"server": server}),
            About::Tool(_, tool) => {
                json!({"server": server, "tool": tool.id().item().to_string(), "tool_id": tool.id()})
            }
        }
    }

    fn event(&self, name: EventName, actor: &Actor, more: Value) -> Event {
        let mut data = self.named();
        if let (Some(data), Value::Object(more)) = (data.as_object_mut(), more) {
            data.extend(more);
        }
        Event::new(name, actor).epoch(self.entry().epoch()).data(data)
    }

    fn ceiling(&self) -> Trust {
        let tier = self.entry().record.assigned_trust_tier;
        match self {
            About::Server(_) => server_ceiling(tier),
            About::Tool(_, tool) => ceiling(tier, tool.side_effects()),
        }
    }

    fn standing<'l>(&self, ledger: &'l Ledger) -> Option<&'l Standing> {
        match self {
            About::Server(entry) => ledger.server(&entry.record.server_identity, entry.epoch()),
            About::Tool(_, tool) => ledger.tool(tool),
        }
    }

    /// The state it could be in by what it did: for a tool the lesser of its own and its server's (GOV-1104).
    fn eligible(&self, ledger: &Ledger) -> Trust {
        let own = self.standing(ledger).map_or(Trust::Untrusted, Standing::eligible);
        match self {
            About::Server(_) => own,
            About::Tool(entry, _) => own.min(About::Server(entry.clone()).eligible(ledger)),
        }
        .min(self.ceiling())
    }
}

impl State {
    /// The entries with the trust they have now: what was recorded, as far as their tier lets it (GOV-1102).
    pub(super) fn trusted_entries(&self) -> Vec<ServerEntry> {
        self.trust.with(|ledger| {
            let with_trust = |entry: &ServerEntry| {
                let standing = About::Server(entry.clone());
                let recorded = standing.standing(ledger).map_or(Trust::Untrusted, |standing| standing.state);
                let tools = entry.declaration.everything().filter_map(|tool| {
                    let known = ledger.tool(tool)?;
                    let limit = ceiling(entry.record.assigned_trust_tier, tool.side_effects());
                    let trust = ToolTrust { state: known.state.min(limit), violations: known.violations };
                    Some((tool.id().clone(), trust))
                });
                let tools = Arc::new(tools.collect());
                ServerEntry { trust: recorded.min(standing.ceiling()), tools, ..entry.clone() }
            };
            self.entries.values().map(with_trust).collect()
        })
    }

    fn everything(&self) -> Vec<About> {
        let of = |entry: &ServerEntry| {
            // One record per id: completing an argument counts for what has the argument.
            let is_one = |tool: &&Arc<AcceptedTool>| !matches!(tool.subject(), Subject::Completion { .. });
            let tools = entry.declaration.everything().filter(is_one).cloned();
            let tools = tools.map(|tool| About::Tool(entry.clone(), tool)).collect::<Vec<_>>();
            std::iter::once(About::Server(entry.clone())).chain(tools)
        };
        self.entries.values().flat_map(of).collect()
    }

    /// By the whole id, by `<server>/<tool>`, or by the server's name.
    fn about(&self, id: &str) -> Result<About, ControlError> {
        let is = |about: &About| match about {
            About::Server(entry) => entry.record.server_identity.as_str() == id,
            About::Tool(_, tool) => tool.id().as_str() == id || tool.id().short() == id,
        };
        self.everything().into_iter().find(is).ok_or_else(|| {
            let shown = portcullis_core::name::printable(id);
            let message =
                format!("there is no server or tool {shown}; `portcullis trust list` names those there are");
            ControlError::new(ErrorCode::NotFound, message)
        })
    }
}

impl Control {
    /// Every record, servers before their tools.
    pub async fn trust_records(&self) -> Vec<Value> {
        let state = self.state.lock().await;
        let policy = state.policy.version();
        state.trust.with(|ledger| {
            state.everything().iter().map(|about| row(about, ledger, &policy.to_string())).collect()
        })
    }

    /// One record.
    pub async fn trust_record(&self, id: &str) -> Result<Value, ControlError> {
        let state = self.state.lock().await;
        let about = state.about(id)?;
        let policy = state.policy.version().to_string();
        Ok(state.trust.with(|ledger| row(&about, ledger, &policy)))
    }

    /// Trusts what has earned it; nothing else can be trusted (GOV-1104).
    pub async fn grant_trust(
        &self,
        operator: &OperatorProof,
        id: &str,
        reason: &str,
    ) -> Result<Value, ControlError> {
        need_reason(reason)?;
        let state = self.state.lock().await;
        let about = state.about(id)?;
        let conflict = |message: String| ControlError::new(ErrorCode::Conflict, message);
        state.trust.with(|ledger| {
            let standing =
                about.standing(ledger).ok_or_else(|| conflict(format!("{id} was never called")))?;
            if standing.state == Trust::Trusted {
                return Err(conflict(format!("{id} is trusted already")));
            }
            if about.ceiling() < Trust::Trusted {
                let tier = about.entry().record.assigned_trust_tier;
                return Err(conflict(format!("{id} cannot be trusted on tier {tier} with what it does")));
            }
            if about.eligible(ledger) < Trust::Trusted {
                let missing = standing.missing_for(Trust::Trusted);
                let message = if standing.eligible() == Trust::Trusted {
                    format!("{id} has not earned it yet: its server has not")
                } else {
                    format!("{id} has not earned it yet: {missing}")
                };
                return Err(conflict(message));
            }
            Ok(())
        })?;
        let more = json!({"reason": one_line(reason), "state": Trust::Trusted});
        let event = about.event(EventName::TrustGranted, &operator.actor(), more);
        self.commit(operator, vec![event]).await?;
        self.world.swap(state.world());
        let policy = state.policy.version().to_string();
        Ok(state.trust.with(|ledger| row(&about, ledger, &policy)))
    }

    /// Takes all trust back; permits and wide approvals end with it.
    pub async fn revoke_trust(
        &self,
        operator: &OperatorProof,
        id: &str,
        reason: &str,
    ) -> Result<Value, ControlError> {
        need_reason(reason)?;
        let state = self.state.lock().await;
        let about = state.about(id)?;
        let entry = about.entry();
        let of_tool = match &about {
            About::Server(_) => None,
            About::Tool(_, tool) => Some(tool.id()),
        };
        let ended = self.wide_approvals(entry, of_tool);
        let more = json!({"reason": one_line(reason)});
        let mut events = vec![about.event(EventName::TrustRevoked, &operator.actor(), more)];
        events.extend(self.invalidations(&ended, "trust"));
        let named = of_tool.map(|tool| vec![tool.item().to_string()]);
        events.extend(self.stop_users_of(entry, named.as_deref(), "of which trust was taken back"));
        self.commit(operator, events).await?;
        match of_tool {
            Some(tool) => entry.live.reset_tool(tool),
            None => entry.live.reset(),
        }
        self.book.end(&ended, ApprovalState::Invalidated);
        self.world.swap(state.world());
        let policy = state.policy.version().to_string();
        Ok(state.trust.with(|ledger| row(&about, ledger, &policy)))
    }

    /// Recomputes everything from the first record of the log and compares (GOV-1103).
    pub async fn verify_trust(&self) -> Result<Value, ControlError> {
        let dir = self.log.dir().to_owned();
        let running = self.state.lock().await.trust.with(Clone::clone);
        let until = running.next_seq();
        let recomputed = blocking(move || {
            let mut ledger = Ledger::default();
            for record in read(&dir)? {
                let record = record?;
                if record.seq < until && is_trust_event(record.event) {
                    ledger.take(&record);
                }
            }
            Ok(ledger)
        })
        .await?;
        Ok(json!({"checked": recomputed.len(), "differences": running.differences(&recomputed)}))
    }

    /// GOV-1104: what has earned probation gets it, by an event of its own.
    pub(super) async fn promote(&self) {
        let state = self.state.lock().await;
        let due: Vec<About> = state.trust.with(|ledger| {
            let is_due = |about: &About| {
                about.standing(ledger).is_some_and(|standing| standing.state == Trust::Untrusted)
                    && about.eligible(ledger) >= Trust::Probationary
            };
            state.everything().into_iter().filter(is_due).collect()
        });
        if due.is_empty() {
            return;
        }
        let event = |about: &About| {
            let more = json!({"state": Trust::Probationary});
            about.event(EventName::TrustPromoted, &Actor::system(), more)
        };
        if self.log.commit(due.iter().map(event).collect()).await.is_ok() {
            self.world.swap(state.world());
        }
    }

    /// The event of a violation, and which tools it is about (GOV-1105): those named, or all with contamination.
    pub(super) fn violation(
        &self,
        state: &State,
        entry: &ServerEntry,
        fault: Fault,
        tools: &[String],
    ) -> Event {
        let settings = state.policy.settings();
        // Who cannot be told apart answers for all.
        let contaminated = tools.is_empty() || settings.contaminates(fault);
        let data = json!({
            "contamination": if contaminated { "server" } else { "none" },
            "fault": fault.as_str(),
            "reset_epoch": entry.live.reset_epoch(),
            "score": settings.violation_score(),
            "server": entry.record.server_identity,
            "tools": tools,
        });
        Event::new(EventName::TrustViolation, &Actor::system()).epoch(entry.epoch()).data(data)
    }

    fn wide_approvals(&self, entry: &ServerEntry, tool: Option<&ToolId>) -> Vec<portcullis_core::ApprovalId> {
        let server: &ServerIdentity = &entry.record.server_identity;
        let mut ids = self.book.of_server(server, entry.epoch());
        ids.retain(|id| {
            self.book.get(*id).is_some_and(|approval| {
                tool.is_none_or(|tool| &approval.tool_id == tool)
                    && approval.scope.is_some_and(|scope| scope != Scope::Once)
            })
        });
        ids
    }
}

fn row(about: &About, ledger: &Ledger, policy: &str) -> Value {
    let entry = about.entry();
    let record = &entry.record;
    let standing = about.standing(ledger).cloned().unwrap_or_else(|| Standing::new(record.registered_at));
    let (boundary_id, tool_id) = match about {
        About::Server(_) => (record.server_identity.to_string(), Value::Null),
        About::Tool(_, tool) => (tool.id().short().to_owned(), json!(tool.id())),
    };
    json!({
        "boundary_id": boundary_id, "tool_id": tool_id, "server": record.server_identity,
        "state": standing.state.min(about.ceiling()), "recorded": standing.state, "eligible": about.eligible(ledger),
        "tier": record.assigned_trust_tier, "score": standing.score(), "clean": standing.clean, "days": standing.days,
        "sessions": standing.sessions, "violations": standing.violations, "reset_epoch": standing.reset_epoch,
        "policy_version": policy, "since": standing.since, "last_event": standing.last_event,
    })
}
