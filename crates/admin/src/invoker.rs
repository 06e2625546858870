//! The one door to every operation (ADM-1), and the order in which it refuses (admin §4).

use std::sync::Arc;
use std::time::Instant;

use portcullis_core::canon::to_jcs;
use portcullis_core::name::has_visible_character;
use portcullis_core::{Clock, EventId, Sha256Digest, SystemClock};
use portcullis_gateway::Control;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::actor::{Actor, Channel};
use crate::boundary;
use crate::cx::{ActorRef, Cx};
use crate::envelope::Envelope;
use crate::error::{AdminError, Violation};
use crate::events;
use crate::grant::{AdminGrant, Op, new_op_id};
use crate::metric::Calls;
use crate::registry::{Registry, RegistryFault};
use crate::reply::Handled;
use crate::roles::Roles;
use crate::tool::{Class, Entrance, ToolDef};
use crate::tools;

/// The longest reason, in characters (ADM-50).
const LONGEST_REASON: usize = 500;

/// Calls admin tools: for MCP, for commands and for the console alike.
#[derive(Debug, Clone)]
pub struct Invoker {
    control: Arc<Control>,
    registry: Arc<Registry>,
    roles: Arc<Roles>,
    calls: Arc<Calls>,
    clock: SystemClock,
}

impl Invoker {
    /// An invoker over a running control plane, with every tool there is.
    pub fn new(control: Arc<Control>) -> Result<Self, RegistryFault> {
        Self::with(control, Registry::build(tools::modules())?, Roles::default())
    }

    /// The same with these tools and roles.
    pub fn with(control: Arc<Control>, registry: Registry, roles: Roles) -> Result<Self, RegistryFault> {
        Ok(Self {
            control,
            registry: Arc::new(registry),
            roles: Arc::new(roles),
            calls: Arc::default(),
            clock: SystemClock,
        })
    }

    /// Every tool.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// How many calls came to what.
    pub fn calls(&self) -> &Calls {
        &self.calls
    }

    /// The tools that an actor sees.
    pub fn visible(&self, actor: Option<&Actor>, channel: Channel) -> Vec<&ToolDef> {
        let shown: Vec<&ToolDef> = (self.registry.tools())
            .filter(|tool| tool.is_wired() && self.roles.shows(tool, actor, channel))
            .collect();
        events::filtered(actor, shown.len(), self.registry.len() - shown.len());
        shown
    }

    /// Calls a tool, by its whole name or without the prefix. `args` are what the caller sent, unread.
    pub async fn call(
        &self,
        tool: &str,
        args: &RawValue,
        actor: Option<&Actor>,
        channel: Channel,
    ) -> Envelope {
        let request_id = format!("req_{}", EventId::new(self.clock.now()));
        let started = Instant::now();
        let found = self.registry.get(tool).filter(|tool| self.roles.shows(tool, actor, channel));
        let tool_name = found.map_or("unknown", ToolDef::name);
        let call = events::Call { tool_name, request_id: &request_id, actor, channel };
        call.started();
        let Some(tool) = found else {
            call.unknown();
            let envelope = Envelope::unknown_tool(&request_id);
            self.calls.count("unknown", envelope.outcome());
            return envelope;
        };
        let envelope = match self.handled(tool, args, actor, channel).await {
            Ok(Handled { data, pagination, receipt }) => {
                call.succeeded(receipt.as_ref(), started.elapsed());
                Envelope::ok(tool.name(), &request_id, data, pagination)
            }
            Err(error) => {
                call.failed(&error);
                Envelope::error(tool.name(), &request_id, error)
            }
        };
        self.calls.count(tool.name(), envelope.outcome());
        envelope
    }

    /// The same with arguments that have been read already.
    pub async fn call_value(
        &self,
        tool: &str,
        args: &Value,
        actor: Option<&Actor>,
        channel: Channel,
    ) -> Envelope {
        let raw = serde_json::value::to_raw_value(args).expect("a value is JSON");
        self.call(tool, &raw, actor, channel).await
    }

    async fn handled(
        &self,
        tool: &ToolDef,
        args: &RawValue,
        actor: Option<&Actor>,
        channel: Channel,
    ) -> Result<Handled, AdminError> {
        let mut object = boundary::object(args)?;
        let guarded = match tool.class() {
            Class::Admin => Some(guarded(&mut object, actor)?),
            Class::Read | Class::Write => None,
        };
        let prepared = (tool.prepare)(&object)?;
        let entrance = match (tool.class(), guarded) {
            (Class::Read, _) => Entrance::Read,
            (Class::Write, _) => Entrance::Write(self.write_actor(tool, actor)?),
            (Class::Admin, Some((proof, reason))) => Entrance::Admin(AdminGrant {
                tool: tool.name().to_owned(),
                op_id: new_op_id(self.clock.now()),
                operator: proof,
                reason,
                args_sha256: digest(&object),
                log: self.control.log().clone(),
                approver: None,
            }),
            (Class::Admin, None) => return Err(AdminError::guardrail(Violation::MissingActor)),
        };
        let cx = Cx {
            control: self.control.clone(),
            registry: self.registry.clone(),
            roles: self.roles.clone(),
            actor: actor.cloned(),
            channel,
        };
        // A task of its own: who hangs up does not stop what has begun, and a defect ends only this call (ADM-31).
        let running = tokio::spawn(prepared(cx, entrance));
        running.await.unwrap_or_else(|_| Err(AdminError::failure("the handler panicked")))
    }

    fn write_actor(&self, tool: &ToolDef, actor: Option<&Actor>) -> Result<ActorRef, AdminError> {
        let missing = || AdminError::argument("actor", "required");
        let actor = actor.filter(|actor| actor.usable_id().is_some()).ok_or_else(missing)?;
        let proof = actor.proof().ok_or_else(missing)?.clone();
        let reason = format!("{} by {}", tool.short_name(), actor.id());
        Ok(ActorRef::new(actor.clone(), Op::new(new_op_id(self.clock.now()), proof, reason)))
    }
}

/// The triple, in its order (ADM-50). What it took out of the arguments is not seen by the handler.
fn guarded(
    object: &mut Map<String, Value>,
    actor: Option<&Actor>,
) -> Result<(portcullis_governance::operator::OperatorProof, String), AdminError> {
    let missing = |violation| AdminError::guardrail(violation);
    let actor = actor.filter(|actor| actor.usable_id().is_some());
    let proof = actor.and_then(Actor::proof).ok_or_else(|| missing(Violation::MissingActor))?;
    if object.remove("confirm") != Some(Value::Bool(true)) {
        return Err(missing(Violation::MissingConfirm));
    }
    match object.remove("reason") {
        Some(Value::String(reason))
            if has_visible_character(&reason) && reason.chars().count() <= LONGEST_REASON =>
        {
            Ok((proof.clone(), reason))
        }
        _ => Err(missing(Violation::MissingReason)),
    }
}

/// The digest of the arguments without confirmation and reason.
fn digest(object: &Map<String, Value>) -> Sha256Digest {
    Sha256Digest::of(&to_jcs(object).unwrap_or_default())
}
