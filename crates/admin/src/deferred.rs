//! Four eyes (ADM-54): what one operator asked for waits until another agrees, and then happens once.
//!
//! A call that takes two is not done but kept, with its arguments, their digest and what it was about as that was when it
//! was asked for. Who agrees sees exactly that. If what it is about has changed since, nothing is done: the second operator
//! would agree to something else than the first asked for.

use std::time::Duration;

use portcullis_audit::{Event, EventName};
use portcullis_core::canon::to_jcs;
use portcullis_core::scrub::scrub;
use portcullis_core::{ApprovalId, Clock as _, Sha256Digest, Timestamp};
use portcullis_gateway::Control;
use portcullis_gateway::control::{Document, Versioned};
use portcullis_governance::operator::{Method, OperatorProof, Separation};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::actor::Actor;
use crate::error::{AdminError, Violation};
use crate::grant::Op;
use crate::invoker::Invoker;
use crate::roles::tag_matches;
use crate::tool::{Class, ToolDef};

/// What waits for another operator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Operation {
    pub(crate) approval_id: ApprovalId,
    pub(crate) tool: String,
    pub(crate) arguments: Map<String, Value>,
    pub(crate) args_sha256: Sha256Digest,
    pub(crate) reason: String,
    pub(crate) requested_by: String,
    method: Method,
    separation: Separation,
    /// Whether it was asked for at the gateway's own socket.
    #[serde(default)]
    here: bool,
    pub(crate) requested_at: Timestamp,
    pub(crate) expires_at: Timestamp,
    /// What it is about, as that was.
    target_sha256: Sha256Digest,
    state: Waiting,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) decided_by: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Waiting {
    Pending,
    Approved,
    Denied,
    Withdrawn,
    Invalidated,
}

impl Document for Operation {
    const KIND: &'static str = "operation";

    fn id(&self) -> String {
        self.approval_id.to_string()
    }
}

impl Operation {
    /// Who asked, as it proved that then.
    pub(crate) fn requester(&self) -> OperatorProof {
        OperatorProof::authenticated(self.requested_by.clone(), self.method, self.separation)
    }

    /// The same as an actor.
    pub(crate) fn asker(&self) -> Actor {
        match self.here {
            true => Actor::operator_here(self.requester()),
            false => Actor::operator(self.requester()),
        }
    }

    /// Where in its life it is.
    pub(crate) fn status(&self, now: Timestamp) -> &'static str {
        match self.state {
            Waiting::Pending if now >= self.expires_at => "expired",
            Waiting::Pending => "pending",
            Waiting::Approved => "approved",
            Waiting::Denied => "denied",
            Waiting::Withdrawn => "withdrawn",
            Waiting::Invalidated => "invalidated",
        }
    }

    /// What the second operator is shown.
    pub(crate) fn presented(&self) -> Value {
        json!({
            "tool": self.tool, "arguments": self.arguments, "reason": scrub(&self.reason),
            "requested_by": self.requested_by, "requested_at": self.requested_at, "expires_at": self.expires_at,
        })
    }

    pub(crate) fn presented_sha256(&self) -> Sha256Digest {
        Sha256Digest::of(&to_jcs(&self.presented()).unwrap_or_default())
    }
}

/// A call that waits now.
#[derive(Debug)]
pub(crate) struct Deferred {
    pub(crate) approval_id: String,
    pub(crate) reason: String,
}

/// A call that takes two.
pub(crate) struct Asked<'a> {
    pub(crate) tool: &'a ToolDef,
    pub(crate) object: &'a Map<String, Value>,
    pub(crate) digest: Sha256Digest,
    pub(crate) operator: &'a OperatorProof,
    pub(crate) here: bool,
    pub(crate) reason: &'a str,
}

impl Invoker {
    /// Whether a call takes two operators. Deciding about that does not, or nothing ever would be.
    pub(crate) fn takes_two(&self, tool: &ToolDef, arguments: &Map<String, Value>) -> bool {
        let patterns = self.control.four_eyes();
        tool.class() == Class::Admin
            && tool.domain() != "approvals"
            && !self.is_first_enrolment(tool)
            && (patterns.iter().any(|pattern| tag_matches(pattern, &tool.tag()))
                || (!patterns.is_empty() && is_about_four_eyes(tool, arguments)))
    }

    /// Whether somebody is enrolled where nobody is yet who could agree to it. Who is enrolled so counts as who enrolled it,
    /// until somebody else vouches for it.
    fn is_first_enrolment(&self, tool: &ToolDef) -> bool {
        tool.short_name() == "users_enrol" && self.control.operators().len() < 2
    }

    /// Keeps a call until another operator agrees.
    pub(crate) async fn defer(&self, asked: Asked<'_>) -> Result<Deferred, AdminError> {
        let now = self.clock.now();
        let life: Duration = self.control.four_eyes_ttl();
        let operation = Operation {
            approval_id: ApprovalId::random(),
            tool: asked.tool.name().to_owned(),
            arguments: asked.object.clone(),
            args_sha256: asked.digest,
            reason: self.control.masked(asked.reason),
            requested_by: asked.operator.name().to_owned(),
            method: asked.operator.method(),
            separation: asked.operator.separation(),
            here: asked.here,
            requested_at: now,
            expires_at: now.after(life),
            target_sha256: target_of(&self.control, asked.object).await,
            state: Waiting::Pending,
            decided_by: None,
        };
        let data = json!({
            "approval_id": operation.approval_id, "args_sha256": operation.args_sha256,
            "actor": operation.requested_by, "reason": operation.reason, "tool": operation.tool,
        });
        let event = Event::new(EventName::AdminOpDeferred, &asked.operator.actor()).data(data);
        self.control.set(asked.operator, &operation, Some(0), vec![event], |_| Ok(())).await?;
        Ok(Deferred { approval_id: operation.id(), reason: operation.reason })
    }

    /// Everything that waits or waited.
    pub(crate) fn operations(&self) -> Vec<Versioned<Operation>> {
        self.control.documents()
    }

    /// One of them.
    pub(crate) fn operation(&self, id: ApprovalId) -> Option<Versioned<Operation>> {
        self.control.document(&id.to_string())
    }

    /// Another operator agrees: it happens, once.
    pub(crate) async fn agree(
        &self,
        op: &Op,
        id: ApprovalId,
        seen: Sha256Digest,
    ) -> Result<Value, AdminError> {
        let Versioned { document: operation, version } = self.waiting(id)?;
        // A second name is not a second person.
        if !self.control.are_two(&operation.requested_by, op.operator().name()) {
            return Err(AdminError::guardrail(Violation::SelfApproval));
        }
        if operation.presented_sha256() != seen {
            let text = "what was decided about is not what is to be decided; look at the approval again";
            return Err(AdminError::conflict(text));
        }
        if target_of(&self.control, &operation.arguments).await != operation.target_sha256 {
            self.settle(op, (operation, version), Waiting::Invalidated).await?;
            return Err(AdminError::conflict("what it is about has changed since; ask for it again"));
        }
        // By version: of two who agree at once, one finds it decided.
        let operation = self.settle(op, (operation, version), Waiting::Approved).await?;
        let data = self.run_deferred(&operation, op.operator().name()).await?;
        Ok(serde_json::from_str(data.get()).unwrap_or(Value::Null))
    }

    /// Another operator does not, or the first thinks better of it.
    pub(crate) async fn refuse(&self, op: &Op, id: ApprovalId, withdraws: bool) -> Result<(), AdminError> {
        let Versioned { document: operation, version } = self.waiting(id)?;
        let own = operation.requested_by == op.operator().name();
        let state = match (withdraws, own) {
            (true, false) => return Err(AdminError::not_found(format!("approval '{id}' is not yours"))),
            (true, true) => Waiting::Withdrawn,
            (false, _) => Waiting::Denied,
        };
        self.settle(op, (operation, version), state).await.map(drop)
    }

    fn waiting(&self, id: ApprovalId) -> Result<Versioned<Operation>, AdminError> {
        let found = self.operation(id);
        let found = found.ok_or_else(|| AdminError::not_found(format!("approval '{id}' does not exist")))?;
        match found.document.status(self.clock.now()) {
            "pending" => Ok(found),
            status => Err(AdminError::conflict(format!("approval '{id}' is {status}, no longer pending"))),
        }
    }

    async fn settle(
        &self,
        op: &Op,
        (operation, version): (Operation, u64),
        state: Waiting,
    ) -> Result<Operation, AdminError> {
        let decided_by = Some(op.operator().name().to_owned());
        let operation = Operation { state, decided_by, ..operation };
        self.control.set(op.operator(), &operation, Some(version), Vec::new(), |_| Ok(())).await?;
        Ok(operation)
    }
}

/// What takes two is not for one to say, whatever the patterns are.
fn is_about_four_eyes(tool: &ToolDef, arguments: &Map<String, Value>) -> bool {
    let key = arguments.get("key").and_then(Value::as_str).unwrap_or_default();
    tool.domain() == "config" && key.starts_with("admin.four_eyes")
}

/// What arguments name, as it is now: a change of any of it changes the digest.
async fn target_of(control: &Control, arguments: &Map<String, Value>) -> Sha256Digest {
    let world = control.world();
    let mut target = vec![json!(world.registry().policy().version())];
    for (name, value) in arguments {
        let Some(id) = value.as_str() else { continue };
        let Some(kind) = name.strip_suffix("_id") else { continue };
        if let Some(kept) = control.kept_one(kind, id) {
            target.push(json!([kind, id, kept.version]));
        }
        let server = id.parse().ok().filter(|_| kind == "server");
        if let Some(entry) = server.and_then(|id| world.registry().server(&id).cloned()) {
            let record = &entry.record;
            target.push(json!([
                record.server_identity,
                record.declaration_version,
                record.state,
                record.server_version
            ]));
        }
        if kind == "user" {
            target.push(json!(control.operators().iter().any(|enrolled| enrolled.name == id)));
        }
        if kind == "client" {
            let key = control.keys().into_iter().find(|key| key.agent == id);
            target.push(json!(key.map(|key| (key.hash, key.grants))));
        }
    }
    Sha256Digest::of(&to_jcs(&target).unwrap_or_default())
}
