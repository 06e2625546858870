//! One approval as an operator is shown it (GOV-902).

use serde_json::Value;

use crate::desk::{text, texts};
use crate::visible::{self, Piece};

/// Everything a decision rests on, in words.
#[derive(Debug)]
pub(crate) struct Card {
    pub(crate) id: String,
    pub(crate) state: String,
    /// `<server>/<tool>`.
    pub(crate) name: String,
    /// The whole identity, with version and pin.
    pub(crate) tool: String,
    pub(crate) asks: String,
    pub(crate) session: String,
    pub(crate) requested_at: String,
    pub(crate) expires_at: String,
    pub(crate) risk: String,
    pub(crate) arguments: Vec<Piece>,
    pub(crate) classes: Vec<String>,
    pub(crate) scopes: Vec<String>,
    pub(crate) bindings: Vec<Piece>,
    pub(crate) credentials: Vec<String>,
    pub(crate) idempotency: String,
    pub(crate) trust: String,
    pub(crate) isolation: String,
    pub(crate) transport: String,
    pub(crate) justification: Vec<Piece>,
    pub(crate) policies: Vec<String>,
    pub(crate) policy: String,
    pub(crate) offers: Vec<Offer>,
    pub(crate) decisions: Vec<Decision>,
    /// The digest of what is shown, which a decision repeats.
    pub(crate) seen: String,
    /// Whether it must be confirmed a second time.
    pub(crate) careful: bool,
    /// Whether this operator has decided already; then another one is needed.
    pub(crate) is_mine: bool,
}

/// A scope that can be chosen.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) scope: String,
    pub(crate) words: &'static str,
    pub(crate) covers: String,
    pub(crate) quorum: u64,
    pub(crate) chosen: bool,
}

/// What one operator decided.
#[derive(Debug)]
pub(crate) struct Decision {
    pub(crate) by: String,
    pub(crate) at: String,
    pub(crate) reason: Vec<Piece>,
}

/// How far the server is confined, and what of that somebody waived.
fn isolation(server: &Value) -> String {
    let mut words = text(&server["isolation"]);
    if server["isolation"] == "unmanaged-local"
        && let Some(reason) = server["isolation_reason"].as_str()
    {
        words.push_str(&format!(", waived: {reason}"));
    }
    let waived = texts(&server["waived"]);
    if !waived.is_empty() {
        words.push_str(&format!(", without {} (waived)", waived.join(" and ")));
    }
    words
}

impl Card {
    /// Reads what `approvals_get` answers. `operator` is who looks at it.
    pub(crate) fn new(approval: &Value, operator: &str) -> Self {
        let presented = &approval["presented"];
        let tool = text(&approval["tool"]);
        let classes = texts(&presented["classes"]);
        let idempotency = text(&presented["idempotency"]);
        // Once one operator has chosen how far it reaches, the others can only agree.
        let settled = approval["scope"].as_str();
        let offers = presented["offers"].as_array().into_iter().flatten();
        let mut offers: Vec<Offer> =
            offers.map(Offer::new).filter(|offer| settled.is_none_or(|scope| offer.scope == scope)).collect();
        if let Some(first) = offers.first_mut() {
            first.chosen = true;
        }
        let decisions: Vec<Decision> =
            approval["decisions"].as_array().into_iter().flatten().map(Decision::new).collect();
        Self {
            id: text(&approval["approval_id"]),
            state: text(&approval["status"]),
            name: tool.split_once('@').map_or(tool.as_str(), |(name, _)| name).to_owned(),
            asks: text(&approval["requested_by"]),
            session: text(&presented["evidence"]["lineage"]["session"]),
            requested_at: text(&approval["requested_at"]),
            expires_at: text(&approval["expires_at"]),
            risk: text(&approval["risk_level"]),
            arguments: visible::json(&presented["arguments"]),
            scopes: texts(&presented["scopes"]),
            bindings: match &presented["bindings"] {
                Value::Array(items) if items.is_empty() => Vec::new(),
                Value::Object(items) if items.is_empty() => Vec::new(),
                Value::Null => Vec::new(),
                bindings => visible::json(bindings),
            },
            credentials: texts(&presented["credentials"]),
            trust: text(&presented["evidence"]["trust"]),
            isolation: isolation(&presented["server"]),
            transport: text(&presented["server"]["transport"]),
            justification: visible::pieces(&text(&presented["server"]["justification"])),
            policies: texts(&presented["policies"]),
            policy: text(&presented["evidence"]["policy"]),
            seen: text(&approval["presented_sha256"]),
            careful: needs_second_confirmation(&classes, &idempotency),
            is_mine: decisions.iter().any(|decision| decision.by == operator),
            tool,
            classes,
            idempotency,
            offers,
            decisions,
        }
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.state == "pending"
    }

    /// How many operators must agree, at least.
    pub(crate) fn quorum(&self) -> u64 {
        self.offers.iter().map(|offer| offer.quorum).min().unwrap_or(1)
    }

    /// The colour of its state.
    pub(crate) fn tone(&self) -> &'static str {
        match self.state.as_str() {
            "approved" | "consumed" => "good",
            "denied" | "revoked" | "invalidated" => "bad",
            "pending" => "warn",
            _ => "",
        }
    }

    /// The colour of its risk.
    pub(crate) fn danger(&self) -> &'static str {
        match self.risk.as_str() {
            "low" => "good",
            "medium" => "warn",
            _ => "bad",
        }
    }

    /// What its state means, for who was not there.
    pub(crate) fn outcome(&self) -> &'static str {
        match self.state.as_str() {
            "pending" => "waits for an operator",
            "approved" => "approved, and not used up",
            "consumed" => "approved and used",
            "denied" => "denied",
            "expired" => "expired: nobody decided in time, or it was not used in time",
            "withdrawn" => "withdrawn by who asked",
            "revoked" => "approved, and taken back",
            "invalidated" => "ended, because something it rested on changed",
            _ => "",
        }
    }
}

impl Offer {
    fn new(offer: &Value) -> Self {
        let scope = text(&offer["scope"]);
        let words = match scope.as_str() {
            "once" => "Once",
            "session" => "This session",
            "until-version-change" => "Until it changes",
            _ => "",
        };
        let quorum = offer["quorum"].as_u64().unwrap_or(1);
        Self { words, covers: text(&offer["covers"]), quorum, chosen: false, scope }
    }
}

impl Decision {
    fn new(decision: &Value) -> Self {
        let reason = visible::pieces(&text(&decision["reason"]));
        Self { by: text(&decision["by"]), at: text(&decision["at"]), reason }
    }
}

/// GOV-902: what executes, cannot be classified, or writes without being repeatable.
fn needs_second_confirmation(classes: &[String], idempotency: &str) -> bool {
    let has = |wanted: &str| classes.iter().any(|class| class == wanted);
    has("execute") || has("other") || (has("write") && idempotency != "idempotent")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_changes_things_is_confirmed_a_second_time() {
        // GOV-902
        let careful = |classes: &[&str], idempotency: &str| {
            let classes: Vec<String> = classes.iter().map(ToString::to_string).collect();
            needs_second_confirmation(&classes, idempotency)
        };
        assert!(!careful(&["read"], "not-idempotent") && !careful(&["read", "write"], "idempotent"));
        assert!(careful(&["write"], "not-idempotent") && careful(&["write"], "unknown"));
        assert!(careful(&["execute"], "idempotent") && careful(&["other", "read"], "idempotent"));
    }

    #[test]
    fn who_comes_second_can_only_agree_to_what_the_first_one_chose() {
        // GOV-905
        let offers = json!([
            {"scope": "once", "quorum": 2, "covers": "x"}, {"scope": "session", "quorum": 2, "covers": "y"},
        ]);
        let fresh = Card::new(&json!({"status": "pending", "presented": {"offers": offers}}), "bob");
        assert_eq!((fresh.offers.len(), fresh.quorum(), fresh.is_mine), (2, 2, false));
        let begun = json!({
            "status": "pending", "scope": "session", "decisions": [{"by": "alice", "at": "x", "reason": "fine"}],
            "presented": {"offers": offers},
        });
        let bob = Card::new(&begun, "bob");
        assert_eq!(bob.offers.iter().map(|offer| offer.scope.as_str()).collect::<Vec<_>>(), ["session"]);
        assert!(bob.offers[0].chosen && !bob.is_mine && Card::new(&begun, "alice").is_mine);
    }
}
