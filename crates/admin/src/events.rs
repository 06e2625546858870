//! Log lines of admin calls (admin §9). Only the invoker and the registry write them; handlers never do (ADM-30).

use std::time::Duration;

use crate::actor::{Actor, Channel};
use crate::envelope::DomainCode;
use crate::error::AdminError;
use crate::grant::AuditReceipt;
use crate::tool::ToolDef;

const HANDLERS: &str = "portcullis.admin.handlers";
/// At most so many places of a refused document are named.
const MOST_LOCATIONS: usize = 5;

pub(crate) fn registry_built(count: usize, modules: usize) {
    tracing::info!(event = "mcp.registry.built", count, modules);
    tracing::info!(event = "mcp.registry.frozen", count);
}

pub(crate) fn registry_duplicate(key: &str, first: &str, second: &str) {
    tracing::error!(event = "mcp.registry.duplicate", key, first, second);
}

pub(crate) fn filtered(actor: Option<&Actor>, shown: usize, hidden: usize) {
    tracing::debug!(event = "mcp.scoping.filtered", actor_id = Actor::label(actor), shown, hidden);
}

fn validation_failed(boundary: &'static str, error: &AdminError) {
    let places = error.locations();
    tracing::warn!(
        event = "api.boundary.validation_failed",
        boundary,
        error_type = error.error_type(),
        error = error.message(),
        error_count = places.len(),
        error_locations = places.iter().take(MOST_LOCATIONS).cloned().collect::<Vec<_>>().join(" "),
        truncated = places.len() > MOST_LOCATIONS,
    );
}

/// The lines of one call.
pub(crate) struct Call<'a> {
    pub(crate) tool_name: &'a str,
    pub(crate) request_id: &'a str,
    pub(crate) actor: Option<&'a Actor>,
    pub(crate) channel: Channel,
}

impl<'a> Call<'a> {
    /// A call of this tool, or of one that is not there: the name that was asked for is not ours to repeat.
    pub(crate) fn of(
        tool: Option<&'a ToolDef>,
        request_id: &'a str,
        actor: Option<&'a Actor>,
        channel: Channel,
    ) -> Self {
        Self { tool_name: tool.map_or("unknown", ToolDef::name), request_id, actor, channel }
    }

    pub(crate) fn started(&self) {
        tracing::debug!(
            event = "mcp.server.invoke.start",
            tool_name = self.tool_name,
            request_id = self.request_id,
            actor_id = Actor::label(self.actor),
            channel = self.channel.as_str(),
        );
    }

    pub(crate) fn succeeded(&self, receipt: Option<&AuditReceipt>, took: Duration) {
        let (tool_name, request_id) = (self.tool_name, self.request_id);
        let actor_id = Actor::label(self.actor);
        tracing::info!(target: HANDLERS, event = "mcp.handler.invoke_success", tool_name, request_id, actor_id);
        if let Some(receipt) = receipt {
            tracing::info!(
                target: HANDLERS,
                event = "mcp.admin_op.executed",
                tool_name,
                request_id,
                actor_id,
                reason = receipt.reason,
                target_id = receipt.target.as_str(),
                op_id = receipt.op_id,
                approver_id = receipt.approver,
            );
        }
        tracing::debug!(target: HANDLERS, event = "mcp.handler.outcome", tool_name, request_id, outcome = "success");
        tracing::debug!(
            event = "mcp.server.invoke.success",
            tool_name,
            request_id,
            actor_id,
            channel = self.channel.as_str(),
            duration_us = took.as_micros() as u64,
        );
    }

    pub(crate) fn deferred(&self, deferred: &crate::deferred::Deferred) {
        let (tool_name, request_id) = (self.tool_name, self.request_id);
        tracing::info!(
            target: HANDLERS,
            event = "mcp.admin_op.deferred",
            tool_name,
            request_id,
            actor_id = Actor::label(self.actor),
            reason = deferred.reason,
            target_id = deferred.approval_id,
        );
        tracing::debug!(target: HANDLERS, event = "mcp.handler.outcome", tool_name, request_id, outcome = "pending");
    }

    pub(crate) fn failed(&self, error: &AdminError) {
        let (tool_name, request_id) = (self.tool_name, self.request_id);
        let (error_type, text) = (error.error_type(), error.message());
        if let Some(boundary) = error.boundary() {
            validation_failed(boundary, error);
        }
        match error.code() {
            DomainCode::InvalidArgument => {
                tracing::warn!(target: HANDLERS, event = "mcp.handler.argument_invalid", tool_name, request_id, error = text);
            }
            DomainCode::GuardrailViolated => {
                let violation = error.violation().map_or("", crate::error::Violation::as_str);
                tracing::warn!(target: HANDLERS, event = "mcp.handler.guardrail_violated", tool_name, request_id, violation);
            }
            DomainCode::NotSupported if error.is_capability_gap() => {
                tracing::info!(target: HANDLERS, event = "mcp.handler.capability_gap", tool_name, request_id, reason = text);
            }
            DomainCode::NotSupported => {
                tracing::warn!(target: HANDLERS, event = "mcp.handler.not_implemented", tool_name, request_id, reason = text);
            }
            _ => {
                let ctx = error.context();
                tracing::warn!(
                    target: HANDLERS, event = "mcp.handler.invoke_failed", tool_name, request_id, error_type, error = text, %ctx
                );
            }
        }
        tracing::warn!(
            event = "mcp.server.invoke.failed",
            tool_name,
            request_id,
            error_type,
            error = text,
            domain_code = error.code().as_str(),
        );
    }

    pub(crate) fn unknown(&self) {
        tracing::warn!(
            event = "mcp.server.invoke.failed",
            tool_name = "unknown",
            request_id = self.request_id,
            error_type = "UnknownTool",
            error = "Unknown tool",
            domain_code = "not_found",
        );
    }
}
