//! `tool_view`: looking at what was kept of a result, governed like the call it is from (CTX-22, CTX-30).

use std::sync::Arc;

use portcullis_audit::{AuditBlocked, AuditLog, Event, EventName};
use portcullis_context::{Handle, NotThere, Owner, Record, Selector, View, ViewError, view_artifact};
use portcullis_core::error::ErrorDocument;
use portcullis_core::{Actor, ErrorCode, Timestamp};
use portcullis_governance::policy::Circumstances;
use portcullis_governance::registry::{Registry, ToolEntry};
use portcullis_governance::session::Session;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Shaping;
use crate::lifecycle::blocked;

/// The name of the tool.
pub(crate) const TOOL_VIEW: &str = "tool_view";
/// Its definition, byte for byte (CTX-71).
pub(crate) const TOOL_VIEW_DEFINITION: &str = r#"{"name":"tool_view","description":"Read part of a stored result by handle. Read-only.","inputSchema":{"type":"object","properties":{"handle":{"type":"string"},"selector":{"type":"object","properties":{"type":{"enum":["head","tail","lines","rows","json_keys","json_pointer","grep","bytes","part"]},"chars":{"type":"integer"},"start":{"type":"integer"},"end":{"type":"integer"},"keys":{"type":"array","items":{"type":"string"}},"columns":{"type":"array","items":{"type":"string"}},"pointer":{"type":"string"},"pattern":{"type":"string"},"context":{"type":"integer"},"max":{"type":"integer"},"offset":{"type":"integer"},"length":{"type":"integer"}},"required":["type"],"additionalProperties":false}},"required":["handle","selector"],"additionalProperties":false},"annotations":{"readOnlyHint":true}}"#;

/// The longest arguments that are read.
const MAX_ARGUMENTS: usize = 64 * 1024;

/// Who looks, and what is known about it.
pub(crate) struct Viewer<'a> {
    pub(crate) session: &'a Session,
    pub(crate) registry: &'a Registry,
    pub(crate) authenticated: bool,
    pub(crate) client: &'a str,
    pub(crate) groups: &'a [String],
    pub(crate) now: Timestamp,
}

impl Shaping {
    /// One view: found, allowed, recorded, shown. Gives the JSON of a tool result.
    pub(crate) async fn view(
        self: &Arc<Self>,
        log: &AuditLog,
        viewer: Viewer<'_>,
        arguments: Option<&RawValue>,
    ) -> Result<String, ErrorDocument> {
        let (handle, selector) = read_arguments(arguments)?;
        let owner = Owner { principal: viewer.session.principal().clone(), session: viewer.session.id() };
        let record = match handle {
            Some(handle) => self.artifacts.find(handle, &owner),
            None => Err(NotThere::Unknown),
        };
        let record = record.map_err(|error| view_failed(&error.into()))?;
        let event = |outcome: &str, bytes: usize| {
            Event::new(EventName::ArtifactViewed, &Actor::from(&owner.principal)).session(owner.session).data(json!({
                "bytes": bytes, "call_id": record.origin.call_id, "handle": record.handle, "outcome": outcome,
                "selector": selector.kind(), "tool": record.origin.tool_identity,
            }))
        };
        if let Err(document) = allowed(&viewer, &record, &selector) {
            let _ = log.append(vec![event("denied", 0)]);
            return Err(document);
        }
        let shown = self.looked_at(record.handle, owner.clone(), selector.clone()).await;
        let (outcome, bytes) = match &shown {
            Ok(view) => ("shown", view.bytes()),
            Err(_) => ("failed", 0),
        };
        // Durable before it is released, like any result.
        let recorded = log.commit(vec![event(outcome, bytes)]).await;
        recorded.map_err(|AuditBlocked { reason }| blocked(TOOL_VIEW, &reason))?;
        let view = shown.map_err(|error| view_failed(&error))?;
        Ok(format!("{{\"content\":[{}]}}", view.parts().join(",")))
    }

    async fn looked_at(
        self: &Arc<Self>,
        handle: Handle,
        owner: Owner,
        selector: Selector,
    ) -> Result<View, ViewError> {
        let shaping = Arc::clone(self);
        let looking = tokio::task::spawn_blocking(move || {
            let opened = shaping.artifacts.open(handle, &owner)?;
            view_artifact(&opened, &selector, shaping.options.view_max_bytes)
        });
        looking.await.unwrap_or(Err(NotThere::Unreadable.into()))
    }
}

/// What the source tool's entity says about looking at its results. The tool is the one of the record, in the registry
/// as it is now: a server that was halted or removed since shows nothing any more.
fn allowed(viewer: &Viewer<'_>, record: &Record, selector: &Selector) -> Result<(), ErrorDocument> {
    let denied = |message: &str| {
        ErrorDocument::new(ErrorCode::PolicyDenied, TOOL_VIEW, message).with("code", "policy")
    };
    let same = |entry: &&Arc<ToolEntry>| entry.tool.id().as_str() == record.origin.tool_identity;
    let registry = viewer.registry;
    let all = registry
        .tools()
        .iter()
        .chain(registry.resources())
        .chain(registry.templates())
        .chain(registry.prompts());
    let source = all.into_iter().find(same).filter(|entry| entry.server.is_active());
    let Some(source) = source else {
        return Err(denied("the tool this result is from is halted, changed or removed"));
    };
    let circumstances = Circumstances {
        authenticated: viewer.authenticated,
        client: viewer.client,
        groups: viewer.groups,
        session_calls: viewer.session.steps(),
        now: viewer.now,
    };
    let principal = viewer.session.principal();
    let may = registry.policy().may_view(principal, &source.facts, circumstances, selector.kind());
    may.map_err(|reasons| {
        let message = format!("policy denies this view: {}", reasons.join(", "));
        denied(&message).with("reasons", json!(*reasons))
    })
}

/// The arguments of the tool. A handle that is none is like one nobody has.
fn read_arguments(arguments: Option<&RawValue>) -> Result<(Option<Handle>, Selector), ErrorDocument> {
    let failed = |field: &'static str, reason: &str| {
        view_failed(&ViewError::Field { name: field, reason: reason.to_owned() })
    };
    let text = arguments.map_or("{}", RawValue::get);
    if text.len() > MAX_ARGUMENTS {
        return Err(failed("selector", "the arguments are too long"));
    }
    let arguments: Value = serde_json::from_str(text).map_err(|_| failed("selector", "nested too deeply"))?;
    let Value::Object(mut fields) = arguments else {
        return Err(failed("handle", "expected an object with handle and selector"));
    };
    let handle = fields.remove("handle");
    let selector = fields.remove("selector").ok_or_else(|| failed("selector", "is missing"))?;
    if !fields.is_empty() {
        return Err(failed("handle", "expected handle and selector, and nothing else"));
    }
    let Some(Value::String(handle)) = handle else { return Err(failed("handle", "expected a string")) };
    let selector = Selector::read(&selector).map_err(|error| view_failed(&error))?;
    Ok((handle.parse().ok(), selector))
}

fn view_failed(error: &ViewError) -> ErrorDocument {
    let mut document = ErrorDocument::new(ErrorCode::ViewFailed, TOOL_VIEW, error.to_string());
    if let Value::Object(details) = error.details() {
        for (key, value) in details {
            document = document.with(&key, value);
        }
    }
    document
}
