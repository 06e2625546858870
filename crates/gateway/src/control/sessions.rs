//! Sessions as operators see them, and the checkpoints that stop them (GOV-1202, GOV-1203).
//!
//! Stopping comes before recording, as with a halt: a session that goes on although it should not is what must not happen.
//! Going on comes after.

use std::sync::Arc;

use portcullis_audit::{Event, EventName};
use portcullis_core::error::one_line;
use portcullis_core::{Actor, ApprovalId, ErrorCode, ServerIdentity, SessionId};
use portcullis_governance::approval::{Scope, State as ApprovalState};
use portcullis_governance::operator::OperatorProof;
use portcullis_governance::registry::ServerEntry;
use portcullis_governance::session::{Checkpoint, Session, SessionState, Trigger};
use portcullis_store::CheckpointRow;
use serde::Serialize;
use serde_json::json;

use super::registration::need_reason;
use super::{Control, ControlError};

/// A live session.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct SessionRow {
    pub session_id: SessionId,
    pub principal: String,
    /// What its client calls itself.
    pub client: String,
    pub state: SessionState,
    pub opened_at: String,
    pub used_at: String,
    pub steps: u64,
    pub checkpoint_epoch: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Checkpoint>,
}

impl SessionRow {
    fn of(session: &Session) -> Self {
        Self {
            session_id: session.id(),
            principal: session.principal().to_string(),
            client: session.client().to_owned(),
            state: session.state(),
            opened_at: session.opened_at().to_string(),
            used_at: session.used_at().to_string(),
            steps: session.steps(),
            checkpoint_epoch: session.checkpoint_epoch(),
            checkpoint: session.checkpoint(),
        }
    }
}

/// A session that was ended.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct Ended {
    #[serde(flatten)]
    pub session: SessionRow,
    pub approvals_invalidated: usize,
}

impl Control {
    /// The sessions that are not over, oldest first.
    pub fn sessions(&self) -> Vec<SessionRow> {
        self.sessions.list().iter().map(|session| SessionRow::of(session)).collect()
    }

    /// Ends a session: nothing more leaves for it, and what was approved for its life ends with it (GOV-906).
    pub async fn end_session(
        &self,
        operator: &OperatorProof,
        id: SessionId,
        reason: &str,
    ) -> Result<Ended, ControlError> {
        need_reason(reason)?;
        let _one_at_a_time = self.state.lock().await;
        let session = self.live_session(id)?;
        session.end();
        let ended = self.for_sessions(|session| session == id);
        let data = json!({"by": operator.name(), "reason": one_line(reason)});
        let mut events = vec![Event::new(EventName::SessionEnded, &operator.actor()).session(id).data(data)];
        events.extend(self.invalidations(&ended, "session_end"));
        self.commit(operator, events).await?;
        self.book.end(&ended, ApprovalState::Invalidated);
        self.shaping.artifacts().session_ended(id);
        Ok(Ended { session: SessionRow::of(&session), approvals_invalidated: ended.len() })
    }

    /// Stops a session until an operator lets it go on.
    pub async fn open_checkpoint(
        &self,
        operator: &OperatorProof,
        id: SessionId,
        reason: &str,
    ) -> Result<SessionRow, ControlError> {
        need_reason(reason)?;
        let _one_at_a_time = self.state.lock().await;
        let session = self.live_session(id)?;
        let now = self.clock.now();
        let checkpoint = Checkpoint::new(&session, Trigger::Operator, one_line(reason), now);
        if !session.open_checkpoint(checkpoint.clone()) {
            return Err(ControlError::new(ErrorCode::Conflict, format!("session {id} is stopped already")));
        }
        self.commit(operator, vec![opened(&operator.actor(), &checkpoint)]).await?;
        Ok(SessionRow::of(&session))
    }

    /// Lets a stopped session go on. Permits from before stay dead.
    pub async fn resolve_checkpoint(
        &self,
        operator: &OperatorProof,
        id: SessionId,
        reason: &str,
    ) -> Result<SessionRow, ControlError> {
        need_reason(reason)?;
        let _one_at_a_time = self.state.lock().await;
        let session = self.live_session(id)?;
        if session.checkpoint().is_none() {
            return Err(ControlError::new(ErrorCode::Conflict, format!("nothing stops session {id}")));
        }
        let event = resolved(&operator.actor(), id, "operator", reason);
        self.commit(operator, vec![event]).await?;
        session.resolve_checkpoint();
        Ok(SessionRow::of(&session))
    }

    /// Sessions that were stopped before the gateway was started are stopped still.
    pub(super) fn restore_stopped(&self, stopped: Vec<CheckpointRow>) -> Result<(), ControlError> {
        let pending = self.book.list(Some(ApprovalState::Pending));
        for row in stopped {
            let mut checkpoint: Checkpoint = serde_json::from_value(row.checkpoint).map_err(|error| {
                let message = format!("a recorded checkpoint cannot be read: {error}");
                ControlError::new(ErrorCode::Internal, message)
            })?;
            // Asked for after the checkpoint was recorded.
            let about_it = pending.iter().find(|approval| {
                approval.session == checkpoint.session_id
                    && Some(approval.fingerprint) == checkpoint.fingerprint
            });
            checkpoint.approval_id = about_it.map(|approval| approval.approval_id);
            self.sessions.enter(&Arc::new(Session::stopped(checkpoint, self.clock.now())), false);
        }
        Ok(())
    }

    fn live_session(&self, id: SessionId) -> Result<Arc<Session>, ControlError> {
        self.sessions.get(id).ok_or_else(|| {
            let message =
                format!("there is no live session {id}; `portcullis session list` names those there are");
            ControlError::new(ErrorCode::NotFound, message)
        })
    }

    /// Stops the sessions that used tools of a server which lost their trust: those named, or all. Gives the events.
    pub(super) fn stop_users_of(
        &self,
        entry: &ServerEntry,
        tools: Option<&[String]>,
        reason: &str,
    ) -> Vec<Event> {
        let server = &entry.record.server_identity;
        let demoted = |tool: &portcullis_core::ToolId| {
            let item = tool.item().to_string();
            let named = |tools: &[String]| {
                tools.iter().any(|tool| *tool == item || tool.replacen(' ', ":", 1) == item)
            };
            tool.server() == server && tools.is_none_or(named)
        };
        let stop = |session: &Session| {
            let reason = format!("it used server '{server}', {}", one_line(reason));
            let checkpoint = Checkpoint::new(session, Trigger::Demotion, reason, self.clock.now());
            let checkpoint = checkpoint.because_of(server);
            let stopped = session.has_used(demoted) && session.open_checkpoint(checkpoint.clone());
            stopped.then(|| opened(&Actor::system(), &checkpoint))
        };
        self.sessions.list().iter().filter_map(|session| stop(session)).collect()
    }

    /// The sessions that are stopped because of a server, for an operator who has decided about it: that lets them go on,
    /// once the decision is durable. With them come the events.
    pub(super) fn stopped_because_of(
        &self,
        operator: &OperatorProof,
        server: &ServerIdentity,
        how: &str,
    ) -> (Vec<Arc<Session>>, Vec<Event>) {
        let is_about = |checkpoint: &Checkpoint| checkpoint.server.as_ref() == Some(server);
        self.stopped(operator, how, is_about)
    }

    /// The session that is stopped until this approval is given (GOV-1203), likewise.
    pub(super) fn stopped_until(
        &self,
        operator: &OperatorProof,
        approval: ApprovalId,
    ) -> (Vec<Arc<Session>>, Vec<Event>) {
        self.stopped(operator, "approval", |checkpoint| checkpoint.approval_id == Some(approval))
    }

    fn stopped(
        &self,
        operator: &OperatorProof,
        how: &str,
        is_about: impl Fn(&Checkpoint) -> bool,
    ) -> (Vec<Arc<Session>>, Vec<Event>) {
        let sessions = self.sessions.list().into_iter();
        let sessions: Vec<_> =
            sessions.filter(|session| session.checkpoint().is_some_and(|found| is_about(&found))).collect();
        let event = |session: &Arc<Session>| resolved(&operator.actor(), session.id(), how, "");
        let events = sessions.iter().map(event).collect();
        (sessions, events)
    }

    /// Another policy is about to be in force: every session that called something passes a checkpoint. With the sessions
    /// come the events.
    pub(super) fn all_pass(&self) -> (Vec<Arc<Session>>, Vec<Event>) {
        let used = self.sessions.list().into_iter();
        let used: Vec<_> = used.filter(|session| session.steps() > 0).collect();
        let events = used.iter().flat_map(|session| {
            let reason = "another policy is in force";
            let checkpoint = Checkpoint::new(session, Trigger::PolicyActivation, reason, self.clock.now());
            let system = Actor::system();
            [opened(&system, &checkpoint), resolved(&system, session.id(), "automatic", "")]
        });
        let events = events.collect();
        (used, events)
    }

    /// Lets sessions expire that nobody uses, and ends what was approved for the life of those that are over.
    pub(super) async fn tend_sessions(&self) {
        let gone = self.sessions.sweep(self.clock.now());
        let over = |name| {
            move |(id, principal): &(SessionId, portcullis_core::Principal)| {
                Event::new(name, &Actor::from(principal)).session(*id).data(json!({}))
            }
        };
        let mut events: Vec<Event> = gone.expired.iter().map(over(EventName::SessionExpired)).collect();
        events.extend(gone.left.iter().map(over(EventName::SessionEnded)));
        for (id, _) in gone.expired.iter().chain(&gone.left) {
            self.shaping.artifacts().session_ended(*id);
        }
        let is_gone = |session| gone.expired.iter().chain(&gone.left).any(|(id, _)| *id == session);
        let ended = match &self.replicas {
            None => self.for_sessions(|session| self.sessions.get(session).is_none()),
            // Sessions that are not here may be another replica's.
            Some(_) => self.for_sessions(is_gone),
        };
        events.extend(self.invalidations(&ended, "session_end"));
        if !events.is_empty() && self.change_in_any_case(events).await.is_ok() {
            self.book.end(&ended, ApprovalState::Invalidated);
        }
    }

    /// The grants that were given for the life of such sessions.
    fn for_sessions(&self, is_one: impl Fn(SessionId) -> bool) -> Vec<ApprovalId> {
        let granted = self.book.list(Some(ApprovalState::Approved));
        let granted =
            granted.iter().filter(|grant| grant.scope == Some(Scope::Session) && is_one(grant.session));
        granted.map(|grant| grant.approval_id).collect()
    }
}

fn opened(actor: &Actor, checkpoint: &Checkpoint) -> Event {
    let data = json!({"checkpoint": checkpoint});
    Event::new(EventName::CheckpointOpened, actor).session(checkpoint.session_id).data(data)
}

fn resolved(actor: &Actor, session: SessionId, how: &str, reason: &str) -> Event {
    let data = json!({"how": how, "reason": one_line(reason)});
    Event::new(EventName::CheckpointResolved, actor).session(session).data(data)
}
