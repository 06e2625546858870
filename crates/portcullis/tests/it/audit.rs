//! The evidence as its readers see it: `audit verify`, `audit show`, `audit export`, `why`.

use std::fs;
use std::path::PathBuf;

use portcullis_core::Sha256Digest;
use serde_json::{Value, json};

use crate::support::{Home, guarded_spy};

/// The folder of the one log.
fn log_dir(home: &Home) -> PathBuf {
    fs::read_dir(home.path().join("audit")).unwrap().flatten().find(|e| e.path().is_dir()).unwrap().path()
}

#[test]
fn a_record_can_be_shown_with_its_proof_and_the_checkpoint_holds_the_log_to_it() {
    // AUD-30, AUD-32, AUD-50, A-2
    let (home, _spy) = guarded_spy("");
    let shown = home.json(&["audit", "show", "0", "--proof"]);
    assert_eq!(shown["record"]["event"], "system.initialized");
    assert_eq!(shown["proof"]["index"], 0);
    let id = shown["record"]["id"].as_str().unwrap();
    assert_eq!(home.json(&["audit", "show", id])["record"], shown["record"]);
    assert_eq!(home.fails(&["audit", "show", "100000"]).0, 8);

    let kept = home.beside("kept");
    fs::copy(log_dir(&home).join("tlog/checkpoint"), &kept).unwrap();
    let kept = kept.to_str().unwrap();
    let vkey = shown["record"]["data"]["vkey"].as_str().unwrap();
    let output = home.run(&["audit", "verify", "--checkpoint", kept, "--vkey", vkey]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.lines().count() == 1 && text.contains("is whole"), "{text}");

    // Another log, written by somebody else, is not the one the checkpoint was made over. It is the longer one: how much a
    // registration leaves on record varies by a record or two, and a shorter log would be told to have lost its end.
    let (other, _spy) = guarded_spy("");
    other.serve().stop();
    let output = other.run(&["--output", "json", "audit", "verify", "--checkpoint", kept]);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["problems"][0]["kind"], json!("inconsistent_checkpoint"), "{report}");
    assert_eq!(home.fails(&["audit", "verify", "--vkey", "nonsense"]).0, 7);
}

#[test]
fn evidence_is_exactly_what_the_server_saw_and_reading_it_is_recorded_first() {
    // A-15, AUD-40, AUD-44
    let (home, spy) = guarded_spy("");
    let daemon = home.serve();
    daemon.approved_call(&home, "spy__echo", &json!({"text": "a canary 77f3"})).unwrap();
    let intent = &home.events("execution.intent")[0];
    let seq = intent["seq"].to_string();
    let (exit, _) = home.fails(&["audit", "show", &seq, "--evidence", "--reason", " "]);
    assert_eq!(exit, 7, "a reason is needed");
    let shown = home.json(&["audit", "show", &seq, "--evidence", "--reason", "incident 12"]);
    let pieces = shown["evidence"].as_array().unwrap();
    let text = |role: &str| {
        let piece = pieces.iter().find(|piece| piece["role"] == role).unwrap();
        piece["text"].as_str().unwrap().trim_end().to_owned()
    };
    assert_eq!(text("request"), spy.frames("tools/call")[0].trim_end());
    assert!(text("proposal").contains("a canary 77f3"));
    let read = &home.events("audit.evidence_read")[0];
    assert_eq!(read["data"]["reason"], "incident 12");
    assert_eq!(read["actor"]["kind"], "operator");
    assert_eq!(read["data"]["objects"].as_array().unwrap().len(), pieces.len());
    daemon.stop();
    // Nothing of it can be read on the disk without the key.
    let mut folders = vec![log_dir(&home)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else {
                let bytes = fs::read(entry.path()).unwrap();
                assert!(!bytes.windows(13).any(|window| window == b"a canary 77f3"), "{:?}", entry.path());
            }
        }
    }
}

#[test]
fn what_a_gateway_exported_is_verified_by_an_implementation_that_is_not_ours() {
    // A-3, AUD-30, AUD-31: of a run with approvals, calls, refusals, a restart and a changed signer.
    let (home, spy) = guarded_spy("[policy]\npreset = \"observe\"\n");
    let daemon = home.serve();
    daemon.approved_call(&home, "spy__echo", &json!({"text": "first"})).unwrap();
    daemon.call("spy__nothing", &json!({})).unwrap();
    let early = home.beside("early");
    home.json(&["audit", "export", "--out", early.to_str().unwrap()]);
    let old = crate::outsider::verified(&early);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| daemon.call("spy__echo", &json!({"text": "lasting"})));
        home.grant_next("until-version-change");
        first.join().unwrap().unwrap();
    });
    // Enough for more than one full tile.
    for n in 0..60 {
        let reply = daemon.call("spy__echo", &json!({"text": format!("call {n}")})).unwrap();
        assert!(reply["result"].is_object(), "{reply}");
    }
    daemon.stop();
    home.json(&["audit", "rotate-signer", "--reason", "yearly"]);
    home.serve().stop();
    let late = home.beside("late");
    let exported = home.json(&["audit", "export", "--out", late.to_str().unwrap()]);
    let new = crate::outsider::verified(&late);
    assert_eq!(json!(new.size()), exported["size"], "{exported}");
    assert!(new.size() > 512 && old.size() < new.size(), "{} and {}", old.size(), new.size());
    crate::outsider::grew(&late, &old, &new);
    assert_eq!(spy.calls(), 62);

    // The records in it are those of the log, and theirs is a check that can fail.
    let lines = fs::read_to_string(late.join("records.ndjson")).unwrap();
    let log = home.log();
    for (line, record) in lines.lines().zip(&log) {
        assert_eq!(&serde_json::from_str::<Value>(line).unwrap(), record);
    }
    let forged = lines.replacen("\"agent\"", "\"human\"", 1);
    assert_ne!(forged, lines);
    fs::write(late.join("records.ndjson"), forged).unwrap();
    assert!(std::panic::catch_unwind(|| crate::outsider::verified(&late)).is_err());
}

#[test]
fn an_export_is_recorded_and_verifies_without_the_gateway() {
    // AUD-30
    let (home, _spy) = guarded_spy("");
    let out = home.beside("export");
    let out = out.to_str().unwrap();
    let exported = home.json(&["audit", "export", "--out", out]);
    let report = home.json(&["audit", "verify", "--dir", out]);
    assert_eq!(report["ok"], true, "{report}");
    assert_eq!(report["checked"], exported["records"]);
    let vkey = home.beside("export/vkey");
    home.json(&["audit", "verify", "--dir", out, "--vkey", vkey.to_str().unwrap()]);
    assert_eq!(home.events("audit.exported")[0]["actor"]["kind"], "operator");
    assert_eq!(home.fails(&["audit", "export", "--out", out]).0, 7, "it is not empty");
}

#[test]
fn evidence_is_exported_for_its_recipient_alone_and_opened_by_tools_that_are_not_ours() {
    // AUD-44: the original age opens the keys, auditck the objects.
    use std::process::Command;
    let (home, spy) = guarded_spy("");
    let daemon = home.serve();
    let long = "a canary 3c1d ".repeat(400);
    daemon.approved_call(&home, "spy__echo", &json!({"text": long})).unwrap();
    let identity = home.beside("identity");
    let made = Command::new("age-keygen").arg("-o").arg(&identity).output().expect("THIS TEST NEEDS age");
    let said = String::from_utf8_lossy(&made.stderr).into_owned();
    let recipient = said.trim().rsplit(' ').next().unwrap();
    let out = home.beside("export");
    let out = out.to_str().unwrap();
    let args = ["audit", "export", "--out", out, "--with-evidence"];
    assert_eq!(home.run(&args).status.code(), Some(2), "for whom?");
    let fails = |recipient: &str, reason: &str| {
        home.fails(&[&args[..], &["--recipient", recipient, "--reason", reason]].concat()).0
    };
    assert_eq!((fails("age1nobody", "case 9"), fails(recipient, " ")), (7, 7));
    assert!(!std::path::Path::new(out).exists() && home.events("audit.evidence_read").is_empty());

    let exported = home.json(&[&args[..], &["--recipient", recipient, "--reason", "case 9"]].concat());
    assert!(exported["evidence"]["objects"].as_u64().unwrap() >= 4, "{exported}");
    let read = &home.events("audit.evidence_read")[0];
    assert_eq!((&read["data"]["reason"], &read["data"]["recipient"]), (&json!("case 9"), &json!(recipient)));
    assert_eq!(read["data"]["objects"].as_array().unwrap().len() as u64, exported["evidence"]["objects"]);
    let report = home.json(&["audit", "verify", "--dir", out, "--evidence"]);
    assert_eq!(report["ok"], true, "{report}");

    // Without the identity there is nothing to read; with it, every object opens to what was sent.
    let sealed = home.beside("export/evidence/keys.age");
    let keys = home.beside("keys");
    let opened =
        Command::new("age").arg("-d").arg("-i").arg(&identity).arg("-o").arg(&keys).arg(&sealed).output();
    let opened = opened.unwrap();
    assert!(opened.status.success(), "{}", String::from_utf8_lossy(&opened.stderr));
    let auditck = |keys: &std::path::Path| -> (Option<i32>, Value) {
        let mut command = Command::new(crate::support::program("auditck"));
        let output = command.arg(out).arg("--evidence-keys").arg(keys).output().unwrap();
        (output.status.code(), serde_json::from_slice(&output.stdout).unwrap())
    };
    let (code, report) = auditck(&keys);
    let evidence = &report["logs"][0]["evidence"];
    assert_eq!((code, &evidence["opened"]), (Some(0), &exported["evidence"]["objects"]), "{report}");
    assert_eq!(spy.calls(), 1);

    // A key opens one object and no other.
    let text = fs::read_to_string(&keys).unwrap();
    let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (first, second) = (lines[0]["key"].clone(), lines[1]["key"].clone());
    assert_ne!(first, second);
    lines[0]["key"] = second;
    fs::write(&keys, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    assert_eq!(auditck(&keys).0, Some(1));

    // An object that was changed or taken out is noticed by both.
    let object =
        fs::read_dir(home.beside("export/evidence/objects")).unwrap().flatten().next().unwrap().path();
    let mut bytes = fs::read(&object).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&object, bytes).unwrap();
    let output = home.run(&["--output", "json", "audit", "verify", "--dir", out, "--evidence"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &report["problems"][0]["kind"]), (Some(1), &json!("evidence_digest")));
    assert_eq!(auditck(&home.beside("identity")).0, Some(1));
    let bare = home.beside("bare");
    home.json(&["audit", "export", "--out", bare.to_str().unwrap()]);
    assert_eq!(home.fails(&["audit", "verify", "--dir", bare.to_str().unwrap(), "--evidence"]).0, 5);
    daemon.stop();
}

#[test]
fn why_tells_the_whole_story_of_a_call_on_one_page() {
    let (home, _spy) = guarded_spy("");
    let daemon = home.serve();
    let reply = daemon.approved_call(&home, "spy__echo", &json!({"text": "hello there"})).unwrap();
    let proposal = reply["result"]["_meta"]["io.portcullis/call"]["proposal_id"].as_str().unwrap();
    let output = home.run(&["why", proposal]);
    let page = String::from_utf8_lossy(&output.stdout).into_owned();
    for told in [
        "answered",
        "agent:local",
        "calling itself",
        "spy/echo@1.0.0",
        "allowed if an operator approves",
        "base/untrusted-asks",
        "approved by operator:",
        "once",
        "“test”",
        "passed all eight checks",
        "hello there",
        "tools/call",
        "until permit.issued",
        "in all",
        "records ",
    ] {
        assert!(page.contains(told), "{told:?} in\n{page}");
    }
    assert!(page.lines().count() < 60, "{page}");
    let by_permit = home.events("permit.issued")[0]["data"]["permit_id"].as_str().unwrap().to_owned();
    let story = home.json(&["why", &by_permit, "--no-evidence"]);
    assert_eq!(story["proposal"], proposal);
    assert_eq!(home.json(&["why", "last", "--no-evidence"])["proposal"], proposal);
    assert!(story["steps"].as_array().unwrap().len() >= 8, "{story}");
    assert_eq!(home.events("audit.evidence_read").len(), 1, "only the first opened evidence");

    daemon.call("spy__nothing", &json!({})).unwrap();
    let story = home.json(&["why", "last"]);
    assert_eq!(story["end"]["how"], "refused: there is no such tool");
    assert_eq!(home.fails(&["why", "01JD4Z8Q4T3M5R7N9P1S2V6W8X"]).0, 8);
}

#[test]
fn who_is_not_the_operator_is_shown_no_evidence() {
    //
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::CommandExt as _;
    let (home, _spy) = guarded_spy("");
    let daemon = home.serve();
    daemon.approved_call(&home, "spy__echo", &json!({"text": "x"})).unwrap();
    let seq = home.events("execution.intent")[0]["seq"].to_string();
    if rustix::process::geteuid().is_root() {
        // Another user, who can start the program and find the socket, but is not the gateway's.
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("portcullis");
        fs::copy(env!("CARGO_BIN_EXE_portcullis"), &program).unwrap();
        for path in [folder.path(), &program] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let output = std::process::Command::new(&program)
            .arg("--home")
            .arg(home.path())
            .args(["audit", "show", &seq, "--evidence", "--reason", "curious"])
            .uid(65534)
            .gid(65534)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(6), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stdout.is_empty());
    }
    assert!(home.events("audit.evidence_read").is_empty());
}

#[test]
fn without_an_operators_credential_nothing_is_decrypted_even_for_the_gateways_own_user() {
    // A-26, AUD-44
    use crate::approvals::{decide, enrol, waiting};
    const PASSPHRASE: &str = "ana likes quiet gates";
    let home = Home::new("[approvals]\nwait = \"300ms\"\n[operator]\nauth = [\"passphrase\"]\n");
    enrol(&home, "ana", PASSPHRASE);
    let as_ana = |args: &[&str]| decide(&home, "ana", PASSPHRASE, args);
    let spy = crate::support::Spy::new(&home);
    let file = home.beside("spy.yaml");
    fs::write(&file, spy.declaration()).unwrap();
    let add = spy.add_args(&file);
    assert_eq!(as_ana(&add.iter().map(String::as_str).collect::<Vec<_>>()).0, 0);
    let daemon = home.serve();
    let arguments = json!({"text": "a canary 9b1e"});
    let id = waiting(&daemon.call("spy__echo", &arguments).unwrap());
    assert_eq!(as_ana(&["approve", "grant", &id, "--reason", "fine", "--yes"]).0, 0);
    assert!(daemon.call("spy__echo", &arguments).unwrap()["result"].is_object());

    let seq = home.events("execution.intent")[0]["seq"].to_string();
    let out = home.beside("export");
    let recipient = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p";
    let looks: [&[&str]; 3] = [
        &["audit", "show", &seq, "--evidence", "--reason", "curious"],
        &["why", "last"],
        &[
            "audit",
            "export",
            "--out",
            out.to_str().unwrap(),
            "--with-evidence",
            "--recipient",
            recipient,
            "--reason",
            "x",
        ],
    ];
    let refused = |look: &[&str]| {
        let output = home.run(look);
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert_eq!(output.status.code(), Some(6), "{look:?}: {said}");
        assert!(!said.contains("canary 9b1e"), "{look:?}: {said}");
    };
    looks.iter().for_each(|look| refused(look));
    assert_eq!(decide(&home, "ana", "ana likes loud gates!", looks[0]).0, 6, "a wrong one is none");
    assert!(home.events("audit.evidence_read").is_empty() && !out.exists());
    let (exit, shown) = as_ana(looks[0]);
    assert!(exit == 0 && shown["evidence"].to_string().contains("canary 9b1e"), "{shown}");
    assert_eq!(home.events("audit.evidence_read").len(), 1);
    daemon.stop();
    // Without a gateway the command would have to open the log itself, and asks for the same.
    refused(looks[0]);
    assert_eq!(home.events("audit.evidence_read").len(), 1);
    home.verify();
}

#[test]
fn a_result_that_is_too_large_is_a_failure_on_record_and_nothing_of_it_is_handed_on() {
    // AUD-45
    let (home, _spy) = guarded_spy("");
    let daemon = home.serve();
    let response = daemon.approved_call(&home, "spy__big", &json!({"bytes": 400_000})).unwrap();
    let said = response.to_string();
    assert!(said.contains("RESULT_TOO_LARGE") && said.len() < 2000, "{}", &said[..said.len().min(2000)]);
    let result = &home.events("execution.result")[0];
    assert_eq!(result["data"]["outcome"], "too_large", "{result}");
    assert!(result["data"]["bytes"].as_u64().unwrap() > 262_144, "{result}");
    let prefix = &result["evidence"][0];
    assert_eq!(prefix["role"], "response");
    assert!(
        (1..=result["data"]["bytes"].as_u64().unwrap()).contains(&prefix["bytes"].as_u64().unwrap()),
        "{result}"
    );
    daemon.stop();
    home.verify();
}

#[test]
fn nothing_that_operators_can_do_changes_what_is_recorded() {
    // AUD-4
    let (home, _spy) = guarded_spy("");
    let daemon = home.serve();
    daemon.approved_call(&home, "spy__echo", &json!({"text": "kept"})).unwrap();
    let before = home.log();
    let segment = log_dir(&home).join("segments/00000000000000000000.seg");
    let bytes = fs::read(&segment).unwrap();
    let written = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    home.json(&["mcp", "halt", "spy", "--reason", "x"]);
    home.json(&["mcp", "remove", "spy", "--reason", "x"]);
    home.json(&["audit", "retention", "run"]);
    home.json(&["audit", "rotate-signer", "--reason", "x"]);
    home.json(&["audit", "rebuild-index"]);
    daemon.stop();
    fs::remove_dir_all(home.path().join("state")).unwrap();
    home.json(&["mcp", "list"]);
    assert!(fs::read(&segment).unwrap()[..written] == bytes[..written], "a record was changed");
    assert_eq!(home.log()[..before.len()], before);
    home.verify();
}

#[test]
fn what_agents_say_is_cut_before_it_is_recorded() {
    // AUD-12: the whole of it is evidence.
    let (home, _spy) = guarded_spy("");
    let daemon = home.serve();
    daemon.call(&"x".repeat(2000), &json!({})).unwrap();
    daemon.stop();
    let received = &home.events("proposal.received")[0];
    assert_eq!(received["data"]["name"].as_str().unwrap().len(), 256, "{received}");
}

#[test]
fn each_session_can_have_evidence_keys_of_its_own() {
    // AUD-42
    let (home, _spy) = guarded_spy("[audit]\nkey_granularity = \"session\"\n");
    let daemon = home.serve();
    let arguments = json!({"text": "x"});
    daemon.approved_call(&home, "spy__echo", &arguments).unwrap();
    daemon.stop();
    let session = home.events("execution.intent")[0]["session"].clone();
    let created = home.events("audit.key_created");
    let own = created
        .iter()
        .find(|event| event["data"]["session"] == session && event["data"]["class"] == "standard");
    let own = own.unwrap_or_else(|| panic!("{created:?}"));
    let intent = &home.events("execution.intent")[0];
    assert_eq!(intent["evidence"][0]["key"], own["data"]["key"], "{intent}");
    let report = home.json(&["audit", "verify", "--evidence"]);
    assert_eq!(report["ok"], true, "{report}");
}

#[test]
fn no_digest_in_the_log_gives_away_arguments_that_can_be_guessed() {
    // what a million guesses are compared with, once the keys are gone.
    let (home, _spy) = guarded_spy("");
    let daemon = home.serve();
    daemon.approved_call(&home, "spy__echo", &json!({"text": "314159"})).unwrap();
    daemon.stop();
    let text = serde_json::to_string(&home.log()).unwrap();
    let digests: std::collections::HashSet<Sha256Digest> =
        text.split(|c: char| !c.is_ascii_hexdigit()).filter_map(|word| word.parse().ok()).collect();
    assert!(digests.len() > 20, "{digests:?}");
    // By the bytes alone, audit's own tests.
    for guess in 0..1_000_000u32 {
        let arguments = format!("{{\"text\":\"{guess:06}\"}}");
        assert!(!digests.contains(&Sha256Digest::of(arguments.as_bytes())), "{arguments}");
    }
}

#[test]
fn nothing_is_sent_before_its_intent_is_synced_however_many_call() {
    // T-INV-1, A-14, AUD-1, AUD-20: as the kernel saw it.
    use std::process::{Command, Stdio};
    const CLIENTS: usize = 64;
    const EACH: usize = 3;
    let (home, spy) = guarded_spy("[policy]\npreset = \"observe\"\n");
    let daemon = home.serve();
    let arguments = json!({"text": "traced"});
    std::thread::scope(|scope| {
        let first = scope.spawn(|| daemon.call("spy__echo", &arguments));
        home.grant_next("until-version-change");
        first.join().unwrap().unwrap();
    });
    let trace = home.beside("trace");
    let mut strace = Command::new("strace")
        .args([
            "-f",
            "-y",
            "-s",
            "1000000",
            "-e",
            "trace=write,writev,sendto,sendmsg,pwrite64,fdatasync",
            "-o",
        ])
        .arg(&trace)
        .args(["-p", &daemon.child.id().to_string()])
        .stderr(Stdio::null())
        .spawn()
        .expect("THIS TEST NEEDS strace");
    // Attached when it sees a call.
    let mut warm = 0;
    crate::support::eventually("strace to see something", || {
        warm += 1;
        daemon.call("spy__echo", &arguments).unwrap();
        fs::read_to_string(&trace).is_ok_and(|text| text.contains("tools/call")).then_some(())
    });
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                for _ in 0..EACH {
                    let reply = daemon.call("spy__echo", &arguments).unwrap();
                    assert_eq!(reply["result"]["structuredContent"]["text"], "traced", "{reply}");
                }
            });
        }
    });
    assert_eq!(spy.calls(), 1 + warm + CLIENTS * EACH);
    Command::new("kill").args(["-INT", &strace.id().to_string()]).status().unwrap();
    strace.wait().unwrap();
    daemon.stop();
    home.verify();

    // Each frame that leaves must find more intents synced than frames have left before it.
    let text = fs::read_to_string(&trace).unwrap();
    let (mut written, mut synced, mut sent, mut syncs) = (0, 0, 0, 0);
    let (mut begun, mut syncing) = (true, None);
    for line in text.lines() {
        let (thread, of_segment) = (line.split(' ').next(), line.contains(".seg>"));
        if line.contains("pwrite64(") && of_segment {
            written += line.matches("execution.intent").count();
        } else if line.contains("fdatasync(") && of_segment && line.contains("<unfinished") {
            syncing = thread;
        } else if (line.contains("fdatasync(") && of_segment)
            || (line.contains("<... fdatasync resumed>") && syncing == thread)
        {
            (synced, syncing) = (written, None);
            syncs += 1;
        } else if line.contains("\\\"tools/call\\\"") && !line.contains("resumed>") {
            // strace may have come between the intent of the first and its frame.
            if !(std::mem::take(&mut begun) && synced == 0) {
                // Several that are ready leave together.
                sent += line.matches("\\\"tools/call\\\"").count();
                assert!(sent <= synced, "frame {sent} left with {synced} intents synced: {line}");
            }
        }
    }
    assert!(sent >= CLIENTS * EACH, "{sent} frames were seen");
    // P-2: calls share their syncs.
    assert!(syncs < 2 * sent, "{syncs} syncs for {sent} calls with two commits each");
}

#[test]
fn evidence_is_forgotten_on_schedule_and_its_keys_can_be_listed_and_held() {
    // A-16, AUD-43 through the commands; audit's own tests have the days pass.
    let (home, _spy) = guarded_spy("[audit.retention]\nstandard = \"30d\"\n");
    let daemon = home.serve();
    daemon.approved_call(&home, "spy__echo", &json!({"text": "x"})).unwrap();
    let keys = home.json(&["audit", "retention", "list"]);
    let standard = keys.as_array().unwrap().iter().find(|key| key["class"] == "standard").unwrap();
    assert_eq!((&standard["expired"], &standard["check"]), (&json!(false), &json!("ok")));
    let name = standard["key"].as_str().unwrap();
    home.json(&["audit", "retention", "hold", name, "--reason", "case 7"]);
    let held = home.json(&["audit", "retention", "list"]);
    assert!(held.as_array().unwrap().iter().any(|key| key["key"] == name && key["held"] == true), "{held}");
    let executed = home.events("admin.op_executed");
    let hold = executed.iter().find(|event| event["data"]["op"] == "audit.retention.hold").unwrap();
    assert_eq!(hold["data"]["reason"], "case 7");
    assert_eq!(home.fails(&["audit", "retention", "hold", "std-20000101-1", "--reason", "x"]).0, 8);
    assert_eq!(home.fails(&["audit", "retention", "hold", "nonsense", "--reason", "x"]).0, 7);
    assert_eq!(home.json(&["audit", "retention", "run"])["destroyed"], json!([]));
    daemon.stop();
    let report = home.json(&["audit", "verify", "--evidence"]);
    assert_eq!(report["ok"], true, "{report}");
}

#[test]
fn checkpoints_go_to_the_configured_sinks() {
    // AUD-34
    let home = Home::new("");
    let kept = home.beside("kept");
    fs::write(
        home.path().join("portcullis.toml"),
        format!("[audit]\nsinks = [\"file:{}\"]\n", kept.display()),
    )
    .unwrap();
    home.json(&["mcp", "list"]);
    assert_eq!(fs::read(&kept).unwrap(), fs::read(log_dir(&home).join("tlog/checkpoint")).unwrap());
    home.json(&["audit", "verify", "--checkpoint", kept.to_str().unwrap()]);
    fs::write(home.path().join("portcullis.toml"), "[audit]\nsinks = [\"mail:me\"]\n").unwrap();
    assert_eq!(home.fails(&["mcp", "list"]).0, 7);
}

#[test]
fn records_are_found_the_same_with_an_index_without_one_and_with_a_broken_one() {
    // A-18, AUD-66
    let (home, _spy) = guarded_spy("");
    let daemon = home.serve();
    let reply = daemon.approved_call(&home, "spy__echo", &json!({"text": "found"})).unwrap();
    let proposal = reply["result"]["_meta"]["io.portcullis/call"]["proposal_id"].as_str().unwrap().to_owned();
    daemon.stop();
    let index = log_dir(&home).join("index.db");
    assert!(index.exists() && home.events("audit.index_rebuilt").is_empty(), "a new log begins with one");
    let permit = home.events("permit.issued")[0]["data"]["permit_id"].as_str().unwrap().to_owned();
    let first = home.json(&["audit", "show", "0"])["record"].clone();
    let questions: Vec<Vec<&str>> = vec![
        vec!["audit", "log", "--limit", "100000"],
        vec!["audit", "log", "--limit", "3"],
        vec!["audit", "log", "--limit", "3", "--offset", "2"],
        vec!["audit", "log", "--event", "approval."],
        vec!["audit", "log", "--event", "execution.intent"],
        vec!["audit", "log", "--tool", "spy/echo"],
        vec!["audit", "log", "--proposal", &proposal],
        vec!["audit", "log", "--actor", "agent:local", "--event", "proposal."],
        vec!["audit", "log", "--actor", "agent:nobody"],
        vec!["audit", "log", "--since", first["time"].as_str().unwrap(), "--limit", "5"],
        vec!["audit", "log", "--until", first["time"].as_str().unwrap()],
        vec!["audit", "show", first["id"].as_str().unwrap()],
        vec!["why", &proposal, "--no-evidence"],
        vec!["why", &permit, "--no-evidence"],
        vec!["why", "last", "--no-evidence"],
    ];
    let ask = || -> Vec<Value> { questions.iter().map(|question| home.json(question)).collect() };
    let before = ask();
    assert!(
        before[3].as_array().unwrap().len() >= 3 && before[4].as_array().unwrap().len() == 1,
        "{before:?}"
    );

    // Without one everything is read, and the answers are the same.
    fs::remove_file(&index).unwrap();
    assert_eq!(ask(), before);
    assert!(!index.exists(), "who only reads makes none");
    // One that is no database, one that is damaged inside, one of another log's past: never believed.
    fs::write(&index, "not a database").unwrap();
    fs::set_permissions(&index, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(ask(), before);
    home.json(&["mcp", "list"]);
    let rebuilt = home.events("audit.index_rebuilt");
    assert_eq!((rebuilt.len(), &rebuilt[0]["data"]["reason"]), (1, &json!("unreadable")), "{rebuilt:?}");

    let asked = home.json(&["audit", "rebuild-index"]);
    let rebuilt = home.events("audit.index_rebuilt");
    assert_eq!(rebuilt.len(), 2);
    assert_eq!(
        (&rebuilt[1]["actor"]["kind"], &rebuilt[1]["data"]["records"]),
        (&json!("operator"), &asked["records"])
    );
    // The index is found by what it says of the log, so one that says something else is noticed at the next start.
    let mut bytes = fs::read(&index).unwrap();
    let needle = b"execution.intent";
    let at = bytes.windows(needle.len()).position(|window| window == needle).unwrap();
    bytes[at] = b'X';
    fs::write(&index, bytes).unwrap();
    home.json(&["mcp", "list"]);
    let rebuilt = home.events("audit.index_rebuilt");
    assert_eq!((rebuilt.len(), &rebuilt[2]["data"]["reason"]), (3, &json!("damaged")), "{rebuilt:?}");
    let of_the_call = |answers: &[Value]| answers[6].clone();
    assert_eq!(of_the_call(&ask()), of_the_call(&before));
    home.verify();
}

#[test]
fn checkpoints_can_be_signed_with_another_key_from_now_on() {
    // AUD-33
    let (home, _spy) = guarded_spy("");
    let daemon = home.serve();
    let done = home.json(&["audit", "rotate-signer", "--reason", "yearly"]);
    let checkpoint = fs::read_to_string(log_dir(&home).join("tlog/checkpoint")).unwrap();
    assert_eq!(checkpoint.lines().filter(|line| line.starts_with('\u{2014}')).count(), 2, "{checkpoint}");
    let rotated = &home.events("audit.signer_rotated")[0];
    assert_eq!((&rotated["data"]["old"], &rotated["data"]["new"]), (&done["old"], &done["new"]));
    assert_eq!(rotated["actor"]["kind"], "operator");
    daemon.stop();
    home.verify();
    home.json(&["audit", "verify", "--vkey", done["new"].as_str().unwrap()]);
    let auditck =
        std::process::Command::new(crate::support::program("auditck")).arg(log_dir(&home)).output().unwrap();
    assert!(auditck.status.success(), "{}", String::from_utf8_lossy(&auditck.stdout));
}

#[test]
fn a_witness_that_does_not_know_the_log_is_an_alarm_and_a_bad_key_is_refused() {
    // AUD-34: through the gateway's own HTTP client. What a witness checks and signs is in audit's own tests.
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, received) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = vec![0; 65536];
            let mut read = 0;
            // A checkpoint ends with a signature line.
            while !String::from_utf8_lossy(&request[..read]).contains('\u{2014}') {
                match stream.read(&mut request[read..]) {
                    Ok(0) | Err(_) => break,
                    Ok(more) => read += more,
                }
            }
            let _ = sender.send(String::from_utf8_lossy(&request[..read]).into_owned());
            let _ =
                stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    let config = |vkey: &str| {
        format!(
            "[audit]\nsink_interval = \"1s\"\n[[audit.witness]]\nurl = \"http://{address}/w\"\nvkey = \"{vkey}\"\n"
        )
    };
    let home = Home::new(&config("nonsense"));
    assert_eq!(home.fails(&["mcp", "list"]).0, 7);
    let key = witness_key();
    fs::write(home.path().join("portcullis.toml"), config(&key)).unwrap();
    let daemon = home.serve();
    let request = received.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
    assert!(request.starts_with("POST /w/add-checkpoint HTTP/1.1"), "{request}");
    assert!(request.contains("\r\n\r\nold 0\n\n"), "{request}");
    let page = crate::support::eventually("the alarm", || {
        let page = daemon.http("GET", "/health", &[], "").unwrap().json();
        (page["status"] == "degraded").then_some(page)
    });
    assert_eq!(page["reason"], "audit_witness");
    daemon.stop();
    home.verify();
}

/// The key of some witness.
fn witness_key() -> String {
    let key = ed25519_dalek::SigningKey::from_bytes(&[9; 32]).verifying_key();
    portcullis_audit::NoteKey::witness("witness.example/w1", key).to_string()
}

#[test]
fn how_long_evidence_may_take_is_configured_within_bounds() {
    // AUD-20, AUD-24
    for (key, value, fits) in [
        ("group_delay", "2ms", true),
        ("group_delay", "6ms", false),
        ("commit_timeout", "2s", true),
        ("commit_timeout", "10ms", false),
        ("commit_timeout", "1h", false),
    ] {
        let home = Home::new(&format!("[audit]\n{key} = \"{value}\"\n"));
        match fits {
            true => drop(home.json(&["mcp", "list"])),
            false => {
                let (exit, error) = home.fails(&["mcp", "list"]);
                assert_eq!((exit, &error["field"]), (7, &json!(format!("audit.{key}"))), "{error}");
            }
        }
    }
}
