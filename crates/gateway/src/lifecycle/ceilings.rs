//! What operators ordered about this agent and this tool, after policy has decided: it only ever takes away.

use portcullis_audit::{Event, EventName};
use portcullis_context::Encoding;
use portcullis_core::error::{ErrorDocument, Fault};
use portcullis_core::{Actor, ErrorCode};
use portcullis_gauntlet::covers_by_name;
use portcullis_governance::approval::Scope;
use portcullis_governance::registry::ToolEntry;
use serde_json::{Value, json};

use super::{Answered, Call, Lifecycle, Proposal, Response};
use crate::orders::{Autonomy, ToolOrder};
use crate::quotas::{Turn, Used, Who};

/// Up to this many bytes tokens are counted exactly; above, three bytes are one.
const EXACT_BYTES: usize = 4 * 1024;

/// How far a call goes by itself.
#[derive(Debug)]
pub(super) struct Ceiling {
    /// Whether an operator is asked, whatever policy says.
    pub(super) asks: bool,
    /// The widest approval that counts.
    pub(super) widest: Scope,
    /// Held while the call is under way.
    _turn: Option<Turn>,
}

impl Ceiling {
    /// Nothing was ordered.
    pub(super) fn none() -> Self {
        Self { asks: false, widest: Scope::UntilVersionChange, _turn: None }
    }
}

/// Whether anybody may use the tool, and this caller has what is wanted besides its declaration.
pub(super) fn is_in_use(order: &ToolOrder, call: &Call, entry: &ToolEntry) -> Result<(), ErrorDocument> {
    let path = entry.tool.id().short();
    if order.quarantined {
        let message = "an operator has put this tool under quarantine; nobody uses it for now";
        return Err(ErrorDocument::fault(Fault::NotAccepted, path, message).with("code", "quarantined"));
    }
    let held = call.access.grants_of(call.session.principal());
    let mode = call.access.mode();
    // `declared` stands for what declarations offer; what an operator wants besides must be granted by name.
    let missing = order.extra_permissions.iter().find(|wanted| !covers_by_name(mode, &held, wanted));
    match missing {
        Some(wanted) => {
            let message = format!("an operator wants callers of this tool to have the grant {wanted}");
            let document = ErrorDocument::new(ErrorCode::PermissionDenied, path, message);
            Err(document.with("capability", json!(wanted)))
        }
        None => Ok(()),
    }
}

fn crossed(used: &Used) -> Value {
    let quota = &used.quota;
    json!({
        "action": quota.action, "limit": quota.limit, "metric": quota.metric, "subject": quota.subject,
        "used": used.used, "window": quota.window,
    })
}

impl Lifecycle {
    /// The agent's autonomy, and the quotas the call would use.
    pub(super) fn below_ceilings(
        &self,
        call: &Call,
        entry: &ToolEntry,
        proposal: &mut Proposal,
    ) -> Result<Ceiling, ErrorDocument> {
        let (orders, path) = (self.orders.load(), entry.tool.id().short());
        let refuse = |proposal: &mut Proposal, document: ErrorDocument| {
            let data = json!({"error": document.error.as_str(), "message": document.message, "step": 3});
            proposal.trail.note(EventName::ProposalRefused, data);
            document
        };
        let principal = call.session.principal();
        let autonomy = orders.autonomy(principal);
        if autonomy == Autonomy::Locked {
            let message = "an operator has locked this agent; none of its calls pass";
            let document = ErrorDocument::new(ErrorCode::PolicyDenied, path, message);
            return Err(refuse(proposal, document.with("code", "autonomy")));
        }
        let admitted = match self.meter.admit(&orders, self.who(call, entry), self.clock.now()) {
            Ok(admitted) => admitted,
            Err(quota) => {
                let (metric, window) = (quota.metric.as_str(), quota.window.as_str());
                let message = format!(
                    "the quota of {} {metric} a {window} for {} is used up",
                    quota.limit, quota.subject
                );
                let document = ErrorDocument::new(ErrorCode::RateLimited, path, message)
                    .with("code", "quota")
                    .with("subject", quota.subject.to_string())
                    .with("metric", metric)
                    .with("limit", quota.limit);
                return Err(refuse(proposal, document));
            }
        };
        for used in &admitted.crossed {
            proposal.trail.note(EventName::QuotaCrossed, crossed(used));
        }
        let widest = match autonomy {
            Autonomy::Supervised | Autonomy::Semi => Scope::Once,
            _ if admitted.asks => Scope::Once,
            Autonomy::Locked | Autonomy::Full => Scope::UntilVersionChange,
        };
        Ok(Ceiling { asks: admitted.asks || autonomy == Autonomy::Supervised, widest, _turn: admitted.turn })
    }

    /// Counts what a call came to against quotas.
    pub(super) fn count_result(&self, call: &Call, entry: &ToolEntry, response: &Response) {
        let orders = self.orders.load();
        if orders.quotas().is_empty() {
            return;
        }
        let (Answered::Result(result) | Answered::InputRequired(result)) = &response.answered else { return };
        let json = result.json();
        let tokens = match std::str::from_utf8(json) {
            Ok(text) if text.len() <= EXACT_BYTES => Encoding::Cl100k.count(text),
            _ => json.len() / 3,
        };
        let spent = (json.len() as u64, tokens as u64);
        let actor = Actor::from(call.session.principal());
        let reached = self.meter.spent(&orders, self.who(call, entry), spent, self.clock.now());
        let events: Vec<Event> = (reached.iter())
            .map(|used| {
                let event = Event::new(EventName::QuotaCrossed, &actor).session(call.session.id());
                event.tool(entry.tool.id()).data(crossed(used))
            })
            .collect();
        if !events.is_empty() {
            // The call is over and on record; nobody waits for this.
            let _ = self.log.append(events);
        }
    }

    fn who<'a>(&self, call: &'a Call, entry: &'a ToolEntry) -> Who<'a> {
        Who {
            principal: call.session.principal(),
            session: call.session.id(),
            server: entry.tool.id().server().as_str(),
            tool: entry.tool.id().short(),
        }
    }
}
