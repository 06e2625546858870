//! What must not have happened: each rule looks at all records on its own, slowly and separately.

use std::collections::HashMap;

use serde_json::Value;

use crate::Finding;

type Records<'a> = &'a [Value];
/// Looks at the records and reports those it objects to.
type Rule = fn(Records<'_>, &mut dyn FnMut(&Value, &str));

pub(crate) fn check(records: Records<'_>) -> Vec<Finding> {
    let rules: [(&str, Rule); 9] = [
        ("INV-MP-001", declarations),
        ("INV-MP-002", permits),
        ("INV-MP-003", validations),
        ("INV-MP-004", registrations),
        ("INV-MP-005", lives),
        ("INV-MP-006", classes),
        ("AUD-A", outcomes),
        ("AUD-68", once),
        ("ADM-53", operations),
    ];
    let mut found = Vec::new();
    for (name, rule) in rules {
        rule(records, &mut |record, detail| {
            found.push(Finding::new(record["seq"].as_u64().unwrap_or(0), name, detail));
        });
    }
    found
}

fn of<'a>(records: Records<'a>, event: &'static str) -> impl Iterator<Item = (usize, &'a Value)> {
    records.iter().enumerate().filter(move |(_, record)| record["event"] == event)
}

fn permit_of<'a>(records: Records<'a>, event: &'static str, intent: &Value) -> Vec<(usize, &'a Value)> {
    let id = &intent["data"]["permit_id"];
    of(records, event).filter(|(_, record)| record["data"]["permit_id"] == *id).collect()
}

fn server_of(record: &Value) -> &str {
    record["tool_id"].as_str().and_then(|id| id.split_once('/')).map_or("", |(server, _)| server)
}

fn declarations(records: Records<'_>, report: &mut dyn FnMut(&Value, &str)) {
    for (at, intent) in of(records, "execution.intent") {
        let digest = intent["data"]["declaration_sha256"].as_str().unwrap_or_default();
        let is_it = |record: &Value| {
            record["data"]["version"].as_str().is_some_and(|version| version.ends_with(digest))
        };
        let mut in_force = None;
        for record in &records[..at] {
            match record["event"].as_str().unwrap_or_default() {
                "declaration.accepted" if is_it(record) => in_force = Some(true),
                "declaration.superseded" | "declaration.withdrawn" if is_it(record) => in_force = Some(false),
                "server.removed" if record["data"]["server"] == server_of(intent) => {
                    in_force = in_force.map(|_| false);
                }
                _ => {}
            }
        }
        match in_force {
            Some(true) => {}
            Some(false) => report(intent, "the declaration was no longer in force"),
            None => report(intent, "the declaration was not accepted"),
        }
    }
}

fn permits(records: Records<'_>, report: &mut dyn FnMut(&Value, &str)) {
    for (at, intent) in of(records, "execution.intent") {
        let issued = permit_of(records, "permit.issued", intent);
        let fits = match issued.as_slice() {
            [(before, permit)] => {
                *before < at
                    && permit["tool_id"] == intent["tool_id"]
                    && permit["data"]["request_sha256"] == intent["data"]["request_sha256"]
            }
            _ => false,
        };
        if !fits {
            report(intent, "not exactly one fitting permit");
        }
        if permit_of(records, "execution.intent", intent).iter().any(|(other, _)| *other < at) {
            report(intent, "the permit was used before");
        }
    }
}

fn validations(records: Records<'_>, report: &mut dyn FnMut(&Value, &str)) {
    for (at, intent) in of(records, "execution.intent") {
        let before = |event| permit_of(records, event, intent).iter().any(|(other, _)| *other < at);
        if !before("permit.validated") {
            report(intent, "not validated");
        }
        if before("execution.denied") {
            report(intent, "denied before");
        }
    }
}

fn registrations(records: Records<'_>, report: &mut dyn FnMut(&Value, &str)) {
    let mut registered: Vec<&str> = Vec::new();
    for record in records {
        let operator = record["actor"]["kind"] == "operator";
        match record["event"].as_str().unwrap_or_default() {
            "server.registered" if operator => {
                registered.extend(record["data"]["record"]["server_identity"].as_str());
            }
            "server.registered" => report(record, "registered by nobody"),
            _ => {}
        }
        if record["tool_id"].is_string() && !registered.contains(&server_of(record)) {
            report(record, "about a server that is not registered");
        }
    }
}

/// Every admin operation is announced once by an operator and concluded once, before the gateway starts again.
fn operations(records: Records<'_>, report: &mut dyn FnMut(&Value, &str)) {
    let concluding = ["admin.op_executed", "admin.op_failed"];
    let same = |a: &Value, b: &Value| a["data"]["op_id"] == b["data"]["op_id"];
    for (at, intent) in of(records, "admin.op_intent") {
        if intent["actor"]["kind"] != "operator" {
            report(intent, "not an operator's");
        }
        if of(records, "admin.op_intent").any(|(other, before)| other < at && same(before, intent)) {
            report(intent, "announced twice");
        }
        let mut concluded = 0;
        for record in &records[at + 1..] {
            if record["event"] == "system.started" && concluded == 0 {
                report(intent, "not concluded before the next start");
                break;
            }
            if concluding.iter().any(|event| record["event"] == *event) && same(record, intent) {
                concluded += 1;
                if concluded == 2 {
                    report(record, "concluded twice");
                }
            }
        }
    }
    for event in concluding {
        for (at, record) in of(records, event).filter(|(_, record)| record["data"]["op_id"].is_string()) {
            let announced =
                of(records, "admin.op_intent").any(|(before, intent)| before < at && same(intent, record));
            if !announced {
                report(record, "concluded and never announced");
            }
        }
    }
}

fn lives(records: Records<'_>, report: &mut dyn FnMut(&Value, &str)) {
    for (at, intent) in of(records, "execution.intent") {
        let id = &intent["data"]["approval_id"];
        let recorded = of(records, "approval.recorded")
            .filter(|(before, record)| *before < at && record["data"]["approval_id"] == *id)
            .last();
        let Some((since, approval)) = recorded.filter(|_| id.is_string()) else { continue };
        let server = server_of(approval);
        let changed = records[since..at].iter().any(|record| {
            matches!(record["event"].as_str(), Some("server.removed" | "server.version_changed"))
                && record["data"]["server"] == server
        });
        if changed {
            report(intent, "the server changed after its approval");
        }
        if approval["epoch"] != intent["epoch"] {
            report(intent, "the approval is of another life of the server");
        }
    }
}

fn classes(records: Records<'_>, report: &mut dyn FnMut(&Value, &str)) {
    for (at, intent) in of(records, "execution.intent") {
        let same = |other: &Value| {
            ["side_effects", "scopes", "sandbox_profile_sha256"]
                .iter()
                .all(|member| other["data"][member] == intent["data"][member])
        };
        if permit_of(records, "permit.issued", intent).iter().any(|(_, permit)| !same(permit)) {
            report(intent, "other classes, scopes or profile than the permit");
        }
        let digest = intent["data"]["declaration_sha256"].as_str().unwrap_or_default();
        let tool = intent["tool_id"]
            .as_str()
            .and_then(|id| id.split('@').next()?.split_once('/'))
            .map(|(_, tool)| tool);
        let says = |record: &Value| {
            record["data"]["version"].as_str().is_some_and(|version| version.ends_with(digest))
        };
        // A declaration of many tools is described by several records, of which the first says how many tools there are.
        let parts: Vec<&Value> = (records[..at].iter())
            .filter(|record| {
                matches!(record["event"].as_str(), Some("declaration.accepted" | "declaration.described"))
            })
            .filter(|record| says(record))
            .collect();
        let accepted = parts.iter().rev().find_map(|record| record["data"]["tools"].get(tool?));
        let Some(accepted) = accepted else {
            if parts.iter().any(|record| record["data"]["items"].is_u64()) {
                report(intent, "not among what was accepted");
            }
            continue;
        };
        if ["side_effects", "scopes"].iter().any(|member| accepted[member] != intent["data"][member]) {
            report(intent, "other classes or scopes than accepted");
        }
        let profile = accepted.get("profile_sha256");
        if profile.is_some_and(|profile| *profile != intent["data"]["sandbox_profile_sha256"]) {
            report(intent, "another sandbox profile than accepted");
        }
    }
    for (at, violation) in of(records, "mcp.scope_violation") {
        let server = match server_of(violation) {
            "" => violation["data"]["server"].as_str().unwrap_or_default(),
            server => server,
        };
        if !of(&records[at..], "server.halted").any(|(_, record)| record["data"]["server"] == server) {
            report(violation, "not followed by a halt");
        }
    }
}

fn outcomes(records: Records<'_>, report: &mut dyn FnMut(&Value, &str)) {
    for (at, result) in of(records, "execution.result") {
        let intents = permit_of(records, "execution.intent", result);
        if !intents.iter().any(|(before, _)| *before < at) {
            report(result, "no intent");
        } else if permit_of(records, "execution.result", result).iter().any(|(before, _)| *before < at) {
            report(result, "a second result");
        }
    }
    for (at, intent) in of(records, "execution.intent") {
        let decided = of(&records[..at], "policy.evaluated")
            .filter(|(_, record)| record["proposal"] == intent["proposal"])
            .last()
            .map(|(_, record)| record["data"]["decision"].as_str().unwrap_or_default());
        let id = &intent["data"]["approval_id"];
        let granted = of(&records[..at], "approval.recorded").any(|(_, record)| {
            record["data"]["approval_id"] == *id && record["data"]["decision"] == "approved"
        });
        match decided {
            Some("deny") => report(intent, "policy denied it"),
            Some("approval") if id.is_null() => report(intent, "an approval was required"),
            _ if id.is_string() && !granted => report(intent, "its approval is not granted on record"),
            _ => {}
        }
        let mut open = true;
        for record in &records[at + 1..] {
            let event = record["event"].as_str().unwrap_or_default();
            let ends = ["execution.result", "execution.indeterminate", "execution.cancelled"];
            if ends.contains(&event) && record["data"]["permit_id"] == intent["data"]["permit_id"] {
                open = false;
            }
            if event == "system.started" && record["log"] == intent["log"] {
                if open {
                    report(intent, "left open over a start");
                }
                break;
            }
        }
    }
}

fn once(records: Records<'_>, report: &mut dyn FnMut(&Value, &str)) {
    let mut uses: HashMap<&str, u32> = HashMap::new();
    for (_, intent) in of(records, "execution.intent") {
        let Some(id) = intent["data"]["approval_id"].as_str() else { continue };
        let is_once = of(records, "approval.recorded")
            .any(|(_, record)| record["data"]["approval_id"] == id && record["data"]["scope"] == "once");
        let used = uses.entry(id).or_default();
        *used += 1;
        if is_once && *used > 1 {
            report(intent, "an approval for one use, used again");
        }
    }
}
