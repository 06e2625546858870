//! a log in which something happened that must not happen, and two readers who have to notice: ours, and
//! `auditck`, which shares no code with it.

use std::path::{Path, PathBuf};
use std::process::Command;

use portcullis_audit::{AuditLog, Event, EventName, Options, check_invariants};
use portcullis_core::{Actor, ProposalId, RegistrationEpoch, Timestamp};
use serde_json::{Value, json};

use crate::support::{guarded_spy, program};

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const DIGEST: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
const REQUEST: &str = "6ae8a75555209fd6c44157c0aed8016e763ff435a19cf186f76863140143ff72";

/// One event of a forged log, to be changed before it is written.
#[derive(Clone)]
struct Line {
    name: EventName,
    actor: Actor,
    of_the_call: bool,
    epoch: RegistrationEpoch,
    data: Value,
}

/// The events of a call in which everything is right.
fn honest() -> Vec<Line> {
    let epoch = RegistrationEpoch::from_bytes([7; 16]);
    let operator = Actor::operator("ana");
    let (version, permit, approval) =
        (format!("1:{DIGEST}"), "01JD4Z8Q4T3M5R7N9P1S2V6W8X", "5b0c96354b026249e8ec44cbbd15012e");
    let classes = json!({"side_effects": ["read"], "scopes": ["ws"]});
    let mut issued = json!({"permit_id": permit, "request_sha256": REQUEST, "sandbox_profile_sha256": null});
    let mut intent = json!({
        "permit_id": permit, "request_sha256": REQUEST, "declaration_sha256": DIGEST, "approval_id": approval,
        "sandbox_profile_sha256": null,
    });
    for member in ["side_effects", "scopes"] {
        issued[member] = classes[member].clone();
        intent[member] = classes[member].clone();
    }
    let line = |name, actor: &Actor, of_the_call, data| Line {
        name,
        actor: actor.clone(),
        of_the_call,
        epoch,
        data,
    };
    let agent = Actor::server("agent");
    use EventName as E;
    vec![
        line(E::SystemStarted, &Actor::system(), false, json!({})),
        line(E::ServerRegistered, &operator, false, json!({"record": {"server_identity": "fs"}})),
        line(
            E::DeclarationAccepted,
            &operator,
            false,
            json!({"server": "fs", "version": version, "tools": {"read": classes}}),
        ),
        line(E::PolicyEvaluated, &agent, true, json!({"decision": "approval"})),
        line(
            E::ApprovalRecorded,
            &operator,
            true,
            json!({"approval_id": approval, "decision": "approved", "scope": "once"}),
        ),
        line(E::PermitIssued, &agent, true, issued),
        line(E::PermitValidated, &agent, true, json!({"permit_id": permit})),
        line(E::ExecutionIntent, &agent, true, intent),
        line(E::ExecutionResult, &agent, true, json!({"permit_id": permit, "outcome": "result"})),
        line(E::SystemStopped, &Actor::system(), false, json!({})),
    ]
}

fn write(dir: &Path, lines: &[Line]) -> PathBuf {
    let log = AuditLog::open(Options::new(dir.join("audit"), dir.join("kek"))).unwrap();
    let tool = format!("fs/read@1.0.0#1:{DIGEST}").parse().unwrap();
    let proposal = ProposalId::new(NOW);
    for line in lines {
        let mut event = Event::new(line.name, &line.actor).data(&line.data).epoch(line.epoch);
        if line.of_the_call {
            event = event.tool(&tool).proposal(proposal);
        }
        log.commit_blocking(vec![event]).unwrap();
    }
    log.close();
    log.dir().to_owned()
}

/// Which invariants each of the two readers finds broken.
fn broken(dir: &Path) -> (Vec<String>, Vec<String>) {
    let verdicts = check_invariants(&[dir.to_owned()]).unwrap();
    let ours = verdicts
        .iter()
        .filter(|(_, verdict)| !verdict.violations.is_empty())
        .map(|(name, _)| (*name).to_owned());
    let output = Command::new(program("auditck")).arg(dir).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let kinds = report["invariants"]
        .as_array()
        .unwrap()
        .iter()
        .map(|found| found["kind"].as_str().unwrap().to_owned());
    let mut theirs: Vec<String> = kinds.collect();
    theirs.sort();
    theirs.dedup();
    assert_eq!(output.status.success(), report["ok"].as_bool().unwrap(), "{report}");
    assert_eq!(report["logs"][0]["problems"], json!([]), "the log itself is whole");
    let mut ours: Vec<String> = ours.collect();
    ours.sort();
    (ours, theirs)
}

#[test]
fn each_seeded_violation_is_found_by_both_readers_and_an_honest_log_by_none() {
    // A-21, AUD-51
    use EventName as E;
    let at = |lines: &[Line], name: E| lines.iter().position(|line| line.name == name).unwrap();
    type Change = Box<dyn Fn(&mut Vec<Line>)>;
    let removed =
        |name: E| -> Change { Box::new(move |lines: &mut Vec<Line>| lines.retain(|line| line.name != name)) };
    let data = |name: E, member: &'static str, value: Value| -> Change {
        Box::new(move |lines: &mut Vec<Line>| {
            let at = lines.iter().position(|line| line.name == name).unwrap();
            lines[at].data[member] = value.clone();
        })
    };
    let inserted_before_intent = |name: E, value: Value| -> Change {
        Box::new(move |lines: &mut Vec<Line>| {
            let intent = lines.iter().position(|line| line.name == E::ExecutionIntent).unwrap();
            let line = Line { name, data: value.clone(), of_the_call: false, ..lines[0].clone() };
            lines.insert(intent, line);
        })
    };
    let doubled = |name: E| -> Change {
        Box::new(move |lines: &mut Vec<Line>| {
            let at = lines.iter().position(|line| line.name == name).unwrap();
            lines.insert(at, lines[at].clone());
        })
    };
    let version = format!("1:{DIGEST}");
    let permit = json!({"permit_id": "01JD4Z8Q4T3M5R7N9P1S2V6W8X"});
    let cases: Vec<(&str, &str, Change)> = vec![
        ("no accepted declaration", "INV-MP-001", removed(E::DeclarationAccepted)),
        (
            "superseded",
            "INV-MP-001",
            inserted_before_intent(E::DeclarationSuperseded, json!({"version": version})),
        ),
        (
            "withdrawn",
            "INV-MP-001",
            inserted_before_intent(E::DeclarationWithdrawn, json!({"version": version})),
        ),
        ("no permit", "INV-MP-002", removed(E::PermitIssued)),
        ("another request", "INV-MP-002", data(E::PermitIssued, "request_sha256", json!(DIGEST))),
        ("used twice", "INV-MP-002", doubled(E::ExecutionIntent)),
        ("issued twice", "INV-MP-002", doubled(E::PermitIssued)),
        ("not validated", "INV-MP-003", removed(E::PermitValidated)),
        ("denied before", "INV-MP-003", inserted_before_intent(E::ExecutionDenied, permit)),
        ("never registered", "INV-MP-004", removed(E::ServerRegistered)),
        (
            "registered by nobody",
            "INV-MP-004",
            Box::new(move |lines| {
                let at = at(lines, E::ServerRegistered);
                lines[at].actor = Actor::system();
            }),
        ),
        (
            "version changed",
            "INV-MP-005",
            inserted_before_intent(E::ServerVersionChanged, json!({"server": "fs"})),
        ),
        (
            "another epoch",
            "INV-MP-005",
            Box::new(move |lines| {
                let at = at(lines, E::ApprovalRecorded);
                lines[at].epoch = RegistrationEpoch::from_bytes([8; 16]);
            }),
        ),
        ("other classes", "INV-MP-006", data(E::PermitIssued, "side_effects", json!(["write"]))),
        (
            "other scopes than accepted",
            "INV-MP-006",
            data(E::DeclarationAccepted, "tools", json!({"read": {"side_effects": ["read"], "scopes": []}})),
        ),
        (
            "another profile than accepted",
            "INV-MP-006",
            data(
                E::DeclarationAccepted,
                "tools",
                json!({"read": {"side_effects": ["read"], "scopes": ["ws"], "profile_sha256": DIGEST}}),
            ),
        ),
        (
            "not among what was accepted",
            "INV-MP-006",
            Box::new(move |lines| {
                let at = at(lines, E::DeclarationAccepted);
                let others = json!({"write": {"side_effects": ["read"], "scopes": ["ws"]}});
                (lines[at].data["tools"], lines[at].data["items"]) = (others, json!(1));
            }),
        ),
        ("no halt", "INV-MP-006", inserted_before_intent(E::McpScopeViolation, json!({"server": "fs"}))),
        ("no intent", "AUD-A", removed(E::ExecutionIntent)),
        ("two results", "AUD-A", doubled(E::ExecutionResult)),
        ("policy denied", "AUD-A", data(E::PolicyEvaluated, "decision", json!("deny"))),
        ("approval missing", "AUD-A", removed(E::ApprovalRecorded)),
        ("approval denied", "AUD-A", data(E::ApprovalRecorded, "decision", json!("denied"))),
        ("approval not named", "AUD-A", data(E::ExecutionIntent, "approval_id", Value::Null)),
        (
            "left open over a start",
            "AUD-A",
            Box::new(move |lines| {
                lines.retain(|line| line.name != E::ExecutionResult);
                lines.push(lines[0].clone());
            }),
        ),
        ("once used twice", "AUD-68", doubled(E::ExecutionIntent)),
    ];
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let folder = |n: usize| {
        let folder = dir.path().join(n.to_string());
        std::fs::create_dir(&folder).unwrap();
        folder
    };
    assert_eq!(broken(&write(&folder(999), &honest())), (Vec::new(), Vec::new()));
    for (n, (what, invariant, change)) in cases.iter().enumerate() {
        let mut lines = honest();
        change(&mut lines);
        let (ours, theirs) = broken(&write(&folder(n), &lines));
        assert!(ours.iter().any(|name| name == invariant), "{what}: {ours:?}");
        assert_eq!(ours, theirs, "{what}");
    }
}

#[test]
fn a_real_run_keeps_every_invariant_and_both_readers_agree_on_its_root() {
    // AUD-51
    let (home, _spy) = guarded_spy("");
    let daemon = home.serve();
    daemon.approved_call(&home, "spy__echo", &json!({"text": "x"})).unwrap();
    daemon.call("spy__nothing", &json!({})).unwrap();
    daemon.stop();
    let report = home.json(&["audit", "verify", "--invariants"]);
    assert_eq!(report["ok"], true, "{report}");
    assert!(report["invariants"]["INV-MP-002"]["checked"].as_u64().unwrap() >= 1, "{report}");
    let output = Command::new(program("auditck")).arg(home.path().join("audit")).output().unwrap();
    let theirs: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(theirs["ok"], true, "{theirs}");
    assert_eq!(theirs["logs"][0]["root"], report["root"]);
    let out = home.beside("export");
    home.json(&["audit", "export", "--out", out.to_str().unwrap()]);
    let output = Command::new(program("auditck")).arg(&out).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    // A forged one is refused by the command too, with the kind it has.
    let dir = write(
        &home.beside(""),
        &honest().into_iter().filter(|l| l.name != EventName::PermitValidated).collect::<Vec<_>>(),
    );
    let output =
        home.run(&["--output", "json", "audit", "verify", "--invariants", "--dir", dir.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["problems"][0]["kind"], "invariant", "{report}");
}

#[test]
fn a_followed_log_goes_on_with_what_comes() {
    use std::io::{BufRead as _, BufReader};
    let (home, _spy) = guarded_spy("");
    let mut child = (home.command())
        .args(["--output", "ndjson", "audit", "log", "--follow", "--event", "server.", "--limit", "1"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let first = next();
    home.json(&["mcp", "halt", "spy", "--reason", "for a look"]);
    let halted = next();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(first["event"].as_str().unwrap().starts_with("server."));
    assert_eq!(halted["event"], "server.halted");
    assert!(halted["seq"].as_u64() > first["seq"].as_u64());
    // And the newest can be left out.
    let all = home.json(&["audit", "log", "--limit", "3"]);
    let before = home.json(&["audit", "log", "--limit", "2", "--offset", "1"]);
    assert_eq!(all.as_array().unwrap()[..2], before.as_array().unwrap()[..]);
}
