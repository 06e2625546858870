//! The one door to every operation (ADM-1), and the order in which it refuses (admin §4).

use std::future::Future;
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
use crate::deferred::{Asked, Deferred, Operation};
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
    pub(crate) control: Arc<Control>,
    registry: Arc<Registry>,
    /// Roles that stay as they are, where somebody gave some; else those of the control plane.
    fixed: Option<Arc<Roles>>,
    calls: Arc<Calls>,
    pub(crate) clock: SystemClock,
}

impl Invoker {
    /// An invoker over a running control plane, with every tool there is.
    pub fn new(control: Arc<Control>) -> Result<Self, RegistryFault> {
        let invoker = Self {
            fixed: None,
            ..Self::with(control, Registry::build(tools::modules())?, Roles::default())?
        };
        // ADM-54
        let four_eyes = invoker.control.four_eyes();
        if !four_eyes.is_empty() && invoker.control.independent_operators() < 2 {
            let patterns = four_eyes.join(" ");
            tracing::warn!(
                patterns,
                "admin.four_eyes wants two operators, and fewer are enrolled who count as two; see admin.founders"
            );
        }
        Ok(invoker)
    }

    /// The same with these tools and roles.
    pub fn with(control: Arc<Control>, registry: Registry, roles: Roles) -> Result<Self, RegistryFault> {
        Ok(Self {
            control,
            registry: Arc::new(registry),
            fixed: Some(Arc::new(roles)),
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

    /// Who sees what now.
    pub fn roles(&self) -> Arc<Roles> {
        self.fixed.clone().unwrap_or_else(|| Arc::new(Roles::of_gateway(&self.control)))
    }

    /// The tools that an actor sees.
    pub fn visible(&self, actor: Option<&Actor>, channel: Channel) -> Vec<&ToolDef> {
        let roles = self.roles();
        let shown: Vec<&ToolDef> = (self.registry.tools())
            .filter(|tool| tool.is_wired() && roles.shows(tool, actor, channel))
            .collect();
        events::filtered(actor, shown.len(), self.registry.len() - shown.len());
        shown
    }

    /// Whether an actor sees a tool, by its whole name or without the prefix.
    pub fn sees(&self, tool: &str, actor: Option<&Actor>, channel: Channel) -> bool {
        self.found(tool, actor, channel).is_some_and(ToolDef::is_wired)
    }

    /// A look that is told in another form than the tool's own, as commands do: it is there for who sees the tool, and is
    /// logged and counted as a call of it. `None` if the tool is not there for this actor; `said` is what a failure is in the
    /// words of tools.
    pub async fn looked<T, E>(
        &self,
        tool: &str,
        (actor, channel): (Option<&Actor>, Channel),
        look: impl Future<Output = Result<T, E>> + Send,
        said: impl FnOnce(&E) -> AdminError + Send,
    ) -> Option<Result<T, E>> {
        let (request_id, started) = (self.request_id(), Instant::now());
        let found = self.found(tool, actor, channel).filter(|tool| tool.class() == Class::Read);
        let call = events::Call::of(found, &request_id, actor, channel);
        call.started();
        let Some(tool) = found else {
            self.unknown(&call);
            return None;
        };
        let told = look.await;
        let outcome = match &told {
            Ok(_) => {
                call.succeeded(None, started.elapsed());
                "success"
            }
            Err(error) => {
                let error = said(error).masked(&self.control);
                call.failed(&error);
                Envelope::error(tool.name(), &request_id, error).outcome()
            }
        };
        self.calls.count(tool.name(), outcome);
        Some(told)
    }

    /// A tool, by its whole name or without the prefix, if it is there for an actor.
    fn found(&self, tool: &str, actor: Option<&Actor>, channel: Channel) -> Option<&ToolDef> {
        let roles = self.roles();
        self.registry.get(tool).filter(|tool| roles.shows(tool, actor, channel))
    }

    fn request_id(&self) -> String {
        format!("req_{}", EventId::new(self.clock.now()))
    }

    fn unknown(&self, call: &events::Call<'_>) -> Envelope {
        call.unknown();
        let envelope = Envelope::unknown_tool(call.request_id);
        self.calls.count("unknown", envelope.outcome());
        envelope
    }

    /// Calls a tool, by its whole name or without the prefix. `args` are what the caller sent, unread.
    pub async fn call(
        &self,
        tool: &str,
        args: &RawValue,
        actor: Option<&Actor>,
        channel: Channel,
    ) -> Envelope {
        let (request_id, started) = (self.request_id(), Instant::now());
        let found = self.found(tool, actor, channel);
        let call = events::Call::of(found, &request_id, actor, channel);
        call.started();
        let Some(tool) = found else { return self.unknown(&call) };
        // Boxed: how deep it goes behind the door is nothing that whoever stands before it has to be compiled with.
        let envelope = match Box::pin(self.handled(tool, args, actor, channel)).await {
            Ok(Outcome::Done(Handled { data, pagination, receipt })) => {
                call.succeeded(receipt.as_ref(), started.elapsed());
                Envelope::ok(tool.name(), &request_id, data, pagination)
            }
            Ok(Outcome::Deferred(deferred)) => {
                call.deferred(&deferred);
                Envelope::pending(tool.name(), &request_id, &deferred.approval_id)
            }
            Err(error) => {
                let error = error.masked(&self.control);
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
    ) -> Result<Outcome, AdminError> {
        let mut object = boundary::object(args)?;
        let guarded = match tool.class() {
            Class::Admin => Some(guarded(&mut object, actor)?),
            Class::Read | Class::Write => None,
        };
        let prepared = (tool.prepare)(&object)?;
        if let Some((proof, reason)) = guarded.as_ref().filter(|_| self.takes_two(tool, &object)) {
            let (digest, here) = (digest(&object), actor.is_some_and(Actor::is_here));
            let asked = Asked { tool, object: &object, digest, operator: proof, here, reason };
            return self.defer(asked).await.map(Outcome::Deferred);
        }
        let entrance = match (tool.class(), guarded) {
            (Class::Read, _) => Entrance::Read,
            (Class::Write, _) => Entrance::Write(self.write_actor(tool, actor)?),
            (Class::Admin, Some((proof, reason))) => Entrance::Admin(AdminGrant {
                tool: tool.name().to_owned(),
                op_id: new_op_id(self.clock.now()),
                operator: proof,
                reason,
                args_sha256: digest(&object),
                control: self.control.clone(),
                approver: None,
            }),
            (Class::Admin, None) => return Err(AdminError::guardrail(Violation::MissingActor)),
        };
        // A task of its own: who hangs up does not stop what has begun, and a defect ends only this call (ADM-31).
        let running = tokio::spawn(prepared(self.cx(actor, channel), entrance));
        let done = running.await.unwrap_or_else(|_| Err(AdminError::failure("the handler panicked")));
        done.map(Outcome::Done)
    }

    fn cx(&self, actor: Option<&Actor>, channel: Channel) -> Cx {
        Cx {
            control: self.control.clone(),
            registry: self.registry.clone(),
            roles: self.roles(),
            invoker: self.clone(),
            actor: actor.cloned(),
            channel,
        }
    }

    /// Does what one operator asked for and another agreed to (ADM-54).
    pub(crate) async fn run_deferred(
        &self,
        operation: &Operation,
        approver: &str,
    ) -> Result<Box<RawValue>, AdminError> {
        let requester = operation.asker();
        let roles = self.roles();
        let tool = self.registry.get(&operation.tool);
        let tool = tool.filter(|tool| roles.shows(tool, Some(&requester), Channel::Operator));
        let gone = || AdminError::conflict("who asked for it may not do it any more");
        let tool = tool.ok_or_else(gone)?;
        let prepared = (tool.prepare)(&operation.arguments)?;
        let grant = AdminGrant {
            tool: tool.name().to_owned(),
            op_id: new_op_id(self.clock.now()),
            operator: operation.requester(),
            reason: operation.reason.clone(),
            args_sha256: digest(&operation.arguments),
            control: self.control.clone(),
            approver: Some(approver.to_owned()),
        };
        let cx = self.cx(Some(&requester), Channel::Operator);
        Ok(prepared(cx, Entrance::Admin(grant)).await?.data)
    }

    fn write_actor(&self, tool: &ToolDef, actor: Option<&Actor>) -> Result<ActorRef, AdminError> {
        let missing = || AdminError::argument("actor", "required");
        let actor = actor.filter(|actor| actor.usable_id().is_some()).ok_or_else(missing)?;
        let proof = actor.proof().ok_or_else(missing)?.clone();
        // What cannot be recorded does not begin, also where it would leave nothing but a small trace.
        if let Some(blocked) = self.control.log().blocked() {
            return Err(blocked.into());
        }
        let reason = self.control.masked(&format!("{} by {}", tool.short_name(), actor.id()));
        Ok(ActorRef::new(actor.clone(), Op::new(new_op_id(self.clock.now()), proof, reason)))
    }
}

/// What a call came to that was not refused.
enum Outcome {
    Done(Handled),
    Deferred(Deferred),
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
