//! A call's story as ten steps: what happened at each, or that it was not reached.

use serde_json::Value;

use super::duration;
use crate::desk::{text, texts};
use crate::visible::{self, Piece};

/// One step of the path of a call.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) title: &'static str,
    pub(crate) reached: bool,
    /// Whether the call ended here, not as wished.
    pub(crate) ended: bool,
    pub(crate) facts: Vec<(&'static str, Vec<Piece>)>,
    /// When, since the call came in.
    pub(crate) after: String,
    /// The approval, where there is one to look at.
    pub(crate) approval: String,
}

/// The steps of `call`, which is what `calls_get` tells.
pub(crate) fn steps(call: &Value) -> Vec<Step> {
    let (who, what, decision) = (&call["who"], &call["what"], &call["decision"]);
    let (approval, permit) = (&call["approval"], &call["permit"]);
    let (sent, received, end) = (&call["sent"], &call["received"], &call["end"]);
    let list = |value: &Value| texts(value).join(", ");
    let after = |event: &str| {
        let noted = call["steps"].as_array().into_iter().flatten().find(|step| step[0] == event);
        noted.and_then(|step| step[1].as_u64()).map(duration).unwrap_or_default()
    };
    let facts = |pairs: &[(&'static str, String)]| -> Vec<(&'static str, Vec<Piece>)> {
        pairs
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| (*name, visible::pieces(value)))
            .collect()
    };
    let bytes = |value: &Value| value.as_u64().map(|bytes| format!("{bytes} bytes")).unwrap_or_default();
    let canonical = !what["request_sha256"].is_null();
    let denied = decision["verdict"] == "deny";
    let answered = !received.is_null();
    let mut all = vec![
        (
            "Intake",
            !who.is_null(),
            "proposal.received",
            facts(&[
                ("agent", text(&who["actor"])),
                ("calls itself", text(&who["client"])),
                ("asks for", text(&what["asked_for"])),
                ("session", text(&who["session"])),
                ("step of the session", text(&who["step"])),
                ("at", text(&who["time"])),
            ]),
        ),
        (
            "Canonical form",
            canonical,
            "proposal.canonicalized",
            facts(&[
                ("tool", text(&what["tool_id"])),
                ("does", list(&what["side_effects"])),
                ("may touch", list(&what["scopes"])),
                ("request", text(&what["request_sha256"])),
            ]),
        ),
        (
            "Policy",
            !decision.is_null(),
            "policy.evaluated",
            facts(&[
                (
                    "verdict",
                    match decision["verdict"].as_str() {
                        Some("unattended") => "allowed, nobody needs to be asked".to_owned(),
                        Some("approval") => "allowed if an operator approves".to_owned(),
                        _ => text(&decision["verdict"]),
                    },
                ),
                ("rules", list(&decision["rules"])),
                ("version", text(&decision["policy"])),
            ]),
        ),
        (
            "Evidence",
            !decision.is_null() && !denied,
            "evidence.prepared",
            facts(&[("trust", text(&what["trust"]))]),
        ),
        (
            "Approval",
            !approval.is_null(),
            "approval.determined",
            facts(&[
                ("outcome", text(&approval["outcome"]).replace('_', " ")),
                ("scope", text(&approval["scope"])),
            ]),
        ),
        (
            "Decision on record",
            approval["decision"].is_string(),
            "",
            facts(&[
                ("decision", text(&approval["decision"])),
                ("by", text(&approval["by"])),
                ("because", text(&approval["reason"])),
                ("at", text(&approval["decided_at"])),
                ("waited", approval["waited_ms"].as_u64().map(|ms| duration(ms * 1000)).unwrap_or_default()),
            ]),
        ),
        (
            "Permit",
            !permit.is_null(),
            "permit.issued",
            facts(&[("permit", text(&permit["permit_id"])), ("valid until", text(&permit["expires"]))]),
        ),
        (
            "Boundary",
            permit["validated"] == true || permit["denied_by"].is_string(),
            "permit.validated",
            facts(&[
                (
                    "checks",
                    if permit["denied_by"].is_null() {
                        "all eight held, before and after the intent was on disk".to_owned()
                    } else {
                        String::new()
                    },
                ),
                ("failed check", text(&permit["denied_by"])),
            ]),
        ),
        (
            "Sent",
            !sent.is_null(),
            "execution.intent",
            facts(&[
                ("at", text(&sent["time"])),
                ("size", bytes(&sent["bytes"])),
                ("on record as", text(&sent["seq"])),
            ]),
        ),
        (
            "Result",
            answered,
            "execution.result",
            facts(&[
                ("outcome", text(&received["outcome"])),
                ("size", bytes(&received["bytes"])),
                ("on record as", text(&received["seq"])),
                (
                    "changed before the agent saw it",
                    if call["changed"].is_null() {
                        "nothing".to_owned()
                    } else {
                        call["changed"].to_string()
                    },
                ),
            ]),
        ),
    ];
    // Nobody decides where nobody has to.
    if approval["outcome"] == "not_needed" {
        all.remove(5);
    }
    let last = all.iter().rposition(|(_, reached, ..)| *reached);
    let went_well = end["how"] == "answered";
    let steps = all.into_iter().enumerate().map(|(index, (title, reached, event, mut facts))| {
        let ended = !went_well && Some(index) == last;
        if ended {
            facts.push(("here it ended", visible::pieces(&text(&end["how"]))));
            facts
                .extend(end["data"]["message"].as_str().map(|message| ("because", visible::pieces(message))));
        }
        let approval = if title == "Approval" { text(&approval["approval_id"]) } else { String::new() };
        Step { title, reached, ended, facts, after: after(event), approval }
    });
    steps.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_story_is_told_in_ten_steps_and_ends_where_it_ended() {
        let story = json!({
            "who": {"actor": "agent:x"}, "what": {"request_sha256": "aa"}, "decision": {"verdict": "approval"},
            "approval": {"outcome": "required", "approval_id": "id", "decision": "denied", "by": "operator:ada"},
            "end": {"how": "not sent: an operator denied it", "data": {"message": "no"}}, "steps": [["policy.evaluated", 120]],
        });
        let told = steps(&story);
        assert_eq!(told.len(), 10);
        let reached: Vec<usize> =
            (1..).zip(&told).filter(|(_, step)| step.reached).map(|(number, _)| number).collect();
        assert_eq!(reached, [1, 2, 3, 4, 5, 6]);
        assert_eq!(
            told.iter().filter(|step| step.ended).map(|step| step.title).collect::<Vec<_>>(),
            ["Decision on record"]
        );
        assert_eq!((told[2].after.as_str(), told[4].approval.as_str()), ("120 µs", "id"));
        let unattended = json!({"approval": {"outcome": "not_needed"}, "end": {"how": "answered"}});
        assert_eq!(steps(&unattended).len(), 9);
    }
}
