//! Servers in their cages, called through the gateway.

use std::fs;

use serde_json::json;

use crate::evil::{Declared, Evil, NOTHING, outcome};
use crate::support::{Home, Operator, Spy};

/// How the spy is registered, with more.
fn add(home: &Home, spy: &Spy, more: &[&str]) -> Vec<String> {
    let file = home.beside("spy.yaml");
    fs::write(&file, spy.declaration()).unwrap();
    let mut args = spy.add_args(&file);
    let at = args.iter().position(|arg| arg == "--").unwrap();
    args.splice(at..at, more.iter().map(|arg| (*arg).to_owned()));
    args
}

fn strs(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

#[test]
fn a_confined_server_is_called_like_any_other_and_its_cage_is_on_record() {
    // SBX-10, SBX-11, SBX-73, INV-MP-006
    let home = Home::new("");
    let spy = Spy::new(&home);
    let record = home.json(&strs(&add(&home, &spy, &[])));
    assert_eq!(record["isolation_class"], "enforced");
    assert_eq!(record["process"]["profile"]["fs"][0]["path"], spy.workspace.to_str().unwrap());
    let daemon = home.serve();
    let answer = daemon.approved_call(&home, "spy__echo", &json!({"text": "x"})).unwrap();
    assert_eq!(answer["result"]["structuredContent"]["text"], "x", "{answer}");
    let established = home.events("sandbox.established");
    assert!(!established.is_empty());
    let layers = &established[0]["data"]["layers"];
    assert_eq!(layers["seccomp"], "pcl-1");
    assert!(layers["checks"].as_array().unwrap().iter().any(|check| check == "netns: tcp"), "{layers}");
    // The cage is part of what was shown, permitted and intended (SBX-11).
    let digest = &record["process"]["profile_sha256"];
    assert!(digest.is_string());
    for event in ["evidence.prepared", "permit.issued", "execution.intent"] {
        assert_eq!(&home.events(event)[0]["data"]["sandbox_profile_sha256"], digest, "{event}");
    }
    // Nothing of it runs in a namespace of ours (SBX-73).
    let running = spy.processes();
    assert!(!running.is_empty());
    for pid in running {
        for kind in ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"] {
            let of = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/{kind}")).unwrap();
            assert_ne!(of(&pid.to_string()), of("self"), "{kind}");
        }
    }
    // It really ran in there: its log is in the one folder it may write.
    assert!(fs::read_to_string(spy.workspace.join("spy.log")).unwrap().contains("tools/call"));
    daemon.stop();
    assert!(spy.processes().is_empty());
    home.verify();
}

#[test]
fn a_server_that_cannot_be_confined_as_declared_is_not_started() {
    // MP-FH-007: at registration, and at a call when the scope is gone by then.
    let home = Home::new("");
    let spy = Spy::new(&home);
    let elsewhere = home.beside("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::remove_dir(&spy.workspace).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &spy.workspace).unwrap();
    let (_, error) = home.fails(&strs(&add(&home, &spy, &[])));
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("cannot be confined") && message.contains("view"), "{message}");
    assert!(fs::read_dir(&elsewhere).unwrap().next().is_none(), "nothing ran");

    fs::remove_file(&spy.workspace).unwrap();
    fs::create_dir(&spy.workspace).unwrap();
    home.json(&strs(&add(&home, &spy, &[])));
    let daemon = home.serve();
    fs::rename(&spy.workspace, home.beside("moved")).unwrap();
    let answer = daemon.approved_call(&home, "spy__echo", &json!({"text": "x"})).unwrap();
    assert_eq!(answer["error"]["data"]["details"]["code"], "MP-FH-007", "{answer}");
    assert!(!home.events("mcp.isolation_failure").is_empty());
    assert!(home.events("execution.intent").is_empty());
    home.verify();
}

#[test]
fn a_folder_that_is_part_of_the_program_is_pinned_with_everything_in_it() {
    // GOV §3, SBX-30: a changed file anywhere in it, and nothing is started.
    let home = Home::new("");
    let spy = Spy::new(&home);
    let modules = home.beside("modules");
    fs::create_dir_all(modules.join("deep")).unwrap();
    fs::write(modules.join("deep/file.js"), "1").unwrap();
    home.json(&strs(&add(&home, &spy, &["--artifact", modules.to_str().unwrap()])));
    fs::write(modules.join("deep/file.js"), "2").unwrap();
    let daemon = home.serve();
    let answer = daemon.approved_call(&home, "spy__echo", &json!({"text": "x"})).unwrap();
    assert_eq!(answer["error"]["data"]["details"]["code"], "MP-FH-009", "{answer}");
    assert!(home.events("execution.intent").is_empty());
}

#[test]
fn what_runs_is_what_was_accepted_however_fast_its_file_is_swapped() {
    // SBX-30, S-ART-1: the file is another program every few milliseconds, while processes are started of it.
    let home = Home::new("");
    let evil = Evil::new(&home);
    let nothing = Declared { scopes: "", act: NOTHING, other: NOTHING };
    evil.register(&home, &nothing, &["--process-model", "per_call"]);
    let kept = home.path().join("artifacts/pinned");
    let pin = &home.events("server.registered")[0]["data"]["record"]["artifact_pins"][0]["sha256"];
    assert!(kept.join(pin.as_str().unwrap()).is_file());
    let (own, other) = (home.beside("own"), home.beside("other"));
    fs::copy(&evil.executable, &own).unwrap();
    fs::copy(crate::support::program("spyd"), &other).unwrap();
    let daemon = home.serve();
    let operator = Operator::on_duty(&home);
    let (swap, stop) = std::sync::mpsc::channel::<()>();
    let answers = std::thread::scope(|scope| {
        // Dropped with this closure, however it ends: then swapping ends too.
        let _until_the_end = swap;
        let (home, evil) = (&home, &evil);
        scope.spawn(move || {
            let place = home.beside("next");
            while stop.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                for from in [&other, &own] {
                    // Another file each time, put in place in one step.
                    fs::copy(from, &place).unwrap();
                    fs::rename(&place, &evil.executable).unwrap();
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
            }
        });
        let mut answers = Vec::new();
        for _ in 0..12 {
            // A start may be found wanting at any time, also that of the process for the call after the next.
            if home.json(&["mcp", "list"])[0]["state"] == "halted" {
                home.run(&["mcp", "resume", "evil", "--reason", "again"]);
            }
            let answer = daemon.call("evil__act", &json!({"do": ["say", "mine"]})).unwrap();
            if answer["error"].is_object() {
                // Changed, halted meanwhile, or left alone after so many failures: it was not called.
                let refusals = ["POLICY_DENIED", "UPSTREAM_UNAVAILABLE", "AUTH_REQUIRED"];
                assert!(refusals.contains(&answer["error"]["data"]["error"].as_str().unwrap()), "{answer}");
            }
            answers.push(answer);
        }
        answers
    });
    drop(operator);
    for answer in answers.iter().filter(|answer| !answer["error"].is_object()) {
        assert_eq!(outcome(answer)["seen"], "mine", "{answer}");
    }
    daemon.stop();
    // Whatever ran never listed anything else.
    assert!(home.events("mcp.ungoverned_surface_detected").is_empty());
    assert!(home.events("mcp.declaration_mismatch").is_empty());
    home.verify();
}
