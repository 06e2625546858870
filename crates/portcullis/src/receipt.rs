//! The receipt of a governed call: its story in a few lines, read from the evidence.

use std::path::Path;

use portcullis_audit::{EventName, Record};
use portcullis_core::tokens::Encoding;
use serde_json::{Value, json};

use crate::output::Output;

/// Everything the log says about one proposal.
pub(crate) fn of(audit_dir: &Path, proposal: &str, result_text: &str) -> Value {
    let all: Vec<Record> = match portcullis_audit::read(audit_dir) {
        Ok(records) => records.filter_map(Result::ok).collect(),
        Err(_) => Vec::new(),
    };
    let records: Vec<&Record> =
        all.iter().filter(|record| record.proposal.is_some_and(|id| id.to_string() == proposal)).collect();
    let find = |name: EventName| records.iter().find(|record| record.event == name);
    let data = |name: EventName, key: &str| find(name).map_or(Value::Null, |record| record.data[key].clone());
    let approval = records.iter().rev().find(|record| record.event == EventName::ApprovalDetermined);
    // The decision may have been recorded for an earlier, equal proposal.
    let approval_id = approval.map(|record| &record.data["approval_id"]).filter(|id| id.is_string());
    let approved_by = (all.iter())
        .filter(|record| record.event == EventName::ApprovalRecorded)
        .find(|record| approval_id == Some(&record.data["approval_id"]))
        .map(|record| record.data["by"].clone());
    json!({
        "proposal": proposal,
        "tool_id": find(EventName::PermitIssued).and_then(|record| record.tool_id.as_ref().map(ToString::to_string)),
        "decision": data(EventName::PolicyEvaluated, "decision"),
        "rules": data(EventName::PolicyEvaluated, "reasons"),
        "policy": find(EventName::PolicyEvaluated).and_then(|record| record.policy).map(|version| version.to_string()),
        "approval": approval.map(|record| record.data.clone()),
        "approved_by": approved_by,
        "permit": data(EventName::PermitIssued, "permit_id"),
        "request_sha256": data(EventName::ExecutionIntent, "request_sha256"),
        "intent_seq": find(EventName::ExecutionIntent).map(|record| record.seq),
        "result_seq": find(EventName::ExecutionResult).map(|record| record.seq),
        "log": records.first().map(|record| record.log.to_string()),
        "tokens": Encoding::O200k.count(result_text),
    })
}

/// The receipt for people.
pub(crate) fn render(receipt: &Value, output: &Output) -> String {
    let text = |value: &Value| match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            items.iter().map(|item| item.as_str().unwrap_or_default()).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    };
    let tool = text(&receipt["tool_id"]);
    let (tool, pin) = tool.split_once('#').unwrap_or((&tool, ""));
    let decision = match receipt["decision"].as_str() {
        Some("unattended") => "allowed, nobody needs to be asked".to_owned(),
        Some("approval") => "allowed if an operator approves".to_owned(),
        _ => text(&receipt["decision"]),
    };
    let approval = match receipt["approval"]["approval_id"].as_str() {
        Some(id) => {
            let by =
                receipt["approved_by"].as_str().map(|by| format!(" by operator:{by}")).unwrap_or_default();
            format!("{}{by}  {}", text(&receipt["approval"]["scope"]), output.dim(&id[..8.min(id.len())]))
        }
        None => "not needed".to_owned(),
    };
    let rows = [
        ("tool", format!("{tool}  {}", output.dim(&format!("#{}", &pin[..pin.len().min(10)])))),
        ("decision", decision),
        ("rule", text(&receipt["rules"])),
        ("approval", approval),
        ("permit", text(&receipt["permit"])),
        (
            "evidence",
            format!(
                "intent #{}, result #{} of log {}",
                text(&receipt["intent_seq"]),
                text(&receipt["result_seq"]),
                text(&receipt["log"])
            ),
        ),
        ("tokens", format!("{} in the result", text(&receipt["tokens"]))),
    ];
    rows.iter()
        .map(|(name, value)| format!("  {}  {value}", output.bold(&format!("{name:<9}"))))
        .collect::<Vec<_>>()
        .join("\n")
}
