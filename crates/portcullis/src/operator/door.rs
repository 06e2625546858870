//! The one way to change something (ADM-1): a tool is called, as the operator who asks.

use std::future::Future;
use std::sync::Arc;

use portcullis_admin::{Actor, AdminError, Channel, DomainCode, Envelope, Invoker};
use portcullis_core::{ErrorCode, ServerIdentity};
use portcullis_gateway::Control;
use portcullis_gateway::control::{CaptureKind, Given};
use portcullis_governance::operator::OperatorProof;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Answer;
use super::desk::Desk;
use super::looking::Looking;
use crate::failure::Failure;
use crate::identity::Passphrase;

/// The most rows that a tool gives at once (ADM-40).
const PAGE: u32 = 500;
/// Why, where a command asks for no reason.
pub(super) const NO_REASON: &str = "by command; no reason is asked for";

/// The door to one tool, for one operator.
pub(super) struct Door<'d> {
    tool: &'static str,
    invoker: &'d Invoker,
    control: &'d Arc<Control>,
    operator: &'d OperatorProof,
    looking: Looking<'d>,
}

/// What a tool said, and a look at what has become of it.
pub(super) struct Done<'d> {
    pub(super) said: Value,
    pub(super) seen: &'d Looking<'d>,
}

impl<'d> Door<'d> {
    pub(super) fn to(tool: &'static str, desk: &'d Desk, operator: &'d OperatorProof) -> Self {
        let looking = Looking::new(&desk.control, &desk.edge, operator);
        Self { tool, invoker: &desk.invoker, control: &desk.control, operator, looking }
    }

    fn actor(&self) -> Actor {
        Actor::operator_here(self.operator.clone())
    }

    /// What the tool shows, in the form in which commands tell it: a call of the tool in everything else. It is not there for
    /// who does not see the tool (ADM-71), it is logged and counted, and what is kept secret is masked in its refusals.
    pub(super) async fn looked<'s, F>(&'s self, look: impl FnOnce(&'s Looking<'d>) -> F) -> Answer
    where
        F: Future<Output = Answer> + Send,
    {
        let actor = self.actor();
        let whose = (Some(&actor), Channel::Operator);
        let told = self.invoker.looked(self.tool, whose, look(&self.looking), in_words_of_tools).await;
        let masked = |failure: Failure| Failure { message: self.control.masked(&failure.message), ..failure };
        told.unwrap_or_else(|| Err(hidden(self.tool))).map_err(masked)
    }

    /// How many approvals there are of a server's tools: what ends with it.
    pub(super) fn approvals_of(&self, server: &ServerIdentity) -> usize {
        self.looking.approvals_of(server)
    }

    /// How many permits of a server's tools are not under way yet: they end with it too.
    pub(super) fn waiting_permits_of(&self, server: &ServerIdentity) -> usize {
        self.looking.waiting_permits_of(server)
    }

    /// Whether a server may be started without this at all.
    pub(super) fn is_waivable(&self, facility: &str) -> Result<(), Failure> {
        Ok(self.looking.is_waivable(facility)?)
    }

    /// Asks a tool that changes nothing.
    pub(super) async fn ask(&self, tool: &str, args: Value) -> Answer {
        told(tool, &self.call(tool, args).await)
    }

    /// The same about something that may not be there, which is said as commands say it.
    pub(super) async fn found(&self, tool: &str, args: Value, absent: impl FnOnce() -> String) -> Answer {
        let envelope = self.call(tool, args).await;
        match envelope.failure().filter(|error| error.code() == DomainCode::NotFound) {
            Some(_) => Err(Failure::new(ErrorCode::NotFound, absent())),
            None => told(tool, &envelope),
        }
    }

    /// The same with arguments as they were written.
    pub(super) async fn ask_raw(&self, tool: &str, args: &RawValue) -> Answer {
        told(tool, &self.invoker.call(tool, args, Some(&self.actor()), Channel::Operator).await)
    }

    /// Whether the operator sees another tool.
    pub(super) fn sees(&self, tool: &str) -> bool {
        self.invoker.sees(tool, Some(&self.actor()), Channel::Operator)
    }

    /// Every row of a tool that lists, page after page.
    pub(super) async fn rows(&self, tool: &str, args: Value) -> Result<Vec<Value>, Failure> {
        let mut rows: Vec<Value> = Vec::new();
        loop {
            let mut page = args.clone();
            (page["offset"], page["limit"]) = (json!(rows.len()), json!(PAGE));
            let envelope = self.call(tool, page).await;
            let total = envelope.pagination().map_or(0, |page| page.total);
            let Value::Array(more) = told(tool, &envelope)? else { return Ok(rows) };
            if more.is_empty() {
                return Ok(rows);
            }
            rows.extend(more);
            if rows.len() as u64 >= total {
                return Ok(rows);
            }
        }
    }

    /// Does it: the operator has typed the command, which is its confirmation.
    pub(super) async fn act(&self, args: Value, reason: &str) -> Result<Done<'_>, Failure> {
        let mut args = args;
        if let Some(args) = args.as_object_mut() {
            args.insert("confirm".into(), json!(true));
            args.insert("reason".into(), json!(reason.chars().take(500).collect::<String>()));
        }
        self.done(args).await
    }

    /// Does what destroys nothing and gives no authority, and so takes no reason.
    pub(super) async fn write(&self, args: Value) -> Result<Done<'_>, Failure> {
        self.done(args).await
    }

    async fn done(&self, args: Value) -> Result<Done<'_>, Failure> {
        let envelope = self.call(self.tool, args).await;
        let said = told(self.tool, &envelope)?;
        // ADM-54: nothing has happened yet.
        match said["pending_approval"].as_str().filter(|_| envelope.http_status() == 202) {
            Some(id) => {
                let message =
                    format!("another operator must agree first: portcullis approve grant {id} --reason WHY");
                Err(Failure::new(ErrorCode::AuthRequired, message))
            }
            None => Ok(Done { said, seen: &self.looking }),
        }
    }

    async fn call(&self, tool: &str, args: Value) -> Envelope {
        let mut args = args;
        if let Some(args) = args.as_object_mut() {
            args.retain(|_, value| !value.is_null());
        }
        self.invoker.call_value(tool, &args, Some(&self.actor()), Channel::Operator).await
    }

    /// What a capture is for.
    pub(super) fn capture_kind(&self, id: &str) -> Result<CaptureKind, Failure> {
        Ok(self.control.capture_kind(self.operator, id)?)
    }

    /// The key that waits under an id that a tool gave out: to the operator, once, over a socket that only the gateway's
    /// user can open.
    pub(super) fn fetch(&self, capture_id: &Value) -> Answer {
        Ok(json!(self.control.fetch_key(self.operator, text(capture_id))?.expose()))
    }

    /// Gives what is expected under such an id.
    pub(super) async fn give(&self, capture_id: &Value, value: &Passphrase) -> Result<Given, Failure> {
        Ok(self.control.give(self.operator, text(capture_id), value.bytes()).await?)
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// What an admin tool said.
fn told(tool: &str, envelope: &Envelope) -> Answer {
    match (envelope.data(), envelope.failure()) {
        (Some(data), _) => serde_json::from_str(data.get())
            .map_err(|error| Failure::new(ErrorCode::Internal, error.to_string())),
        (None, Some(error)) => Err(Failure::from(error)),
        (None, None) => Err(hidden(tool)),
    }
}

fn in_words_of_tools(failure: &Failure) -> AdminError {
    let message = failure.message.clone();
    match failure.code.as_str() {
        "NOT_FOUND" => AdminError::not_found(message),
        "CONFLICT" => AdminError::conflict(message),
        "VALIDATION" | "ARGS_INVALID" => {
            AdminError::argument(failure.field.as_deref().unwrap_or("<arguments>"), message)
        }
        _ => AdminError::failure(message),
    }
}

fn hidden(tool: &str) -> Failure {
    Failure::new(ErrorCode::NotFound, format!("there is no admin tool {tool} for you"))
}
