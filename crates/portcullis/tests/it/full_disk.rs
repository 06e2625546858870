//! The log on a disk that runs full under a running gateway: a real tmpfs, mounted by the test, filled by another
//! process.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Daemon, Home, Spy, eventually};

/// A home whose audit folder is a disk of its own; unmounted when dropped.
struct Disk {
    home: Home,
}

impl Disk {
    /// Not being able to mount is a failed test: nothing was tested.
    fn new(config: &str) -> Self {
        let home = Home::new(&format!("{config}[audit]\nsegment_bytes = 8388608\nmin_free = 16777216\n"));
        let audit = home.path().join("audit");
        std::fs::create_dir(&audit).unwrap();
        let options = ["-t", "tmpfs", "-o", "size=64m,mode=0700", "none"];
        let mounted = Command::new("mount").args(options).arg(&audit).output().unwrap();
        assert!(
            mounted.status.success(),
            "THIS TEST MOUNTS A FILE SYSTEM AND COULD NOT; run it as root: {}",
            String::from_utf8_lossy(&mounted.stderr)
        );
        Self { home }
    }

    /// Another process takes all of the room but so many KiB.
    fn fill(&self, leave: u64) -> PathBuf {
        let filler = self.home.path().join("audit/filler");
        let space = rustix::fs::statvfs(filler.parent().unwrap()).unwrap();
        let free = space.f_bavail * space.f_frsize / 1024;
        let (out, count) =
            (format!("of={}", filler.display()), format!("count={}", free.saturating_sub(leave)));
        let mut dd = Command::new("dd");
        dd.args(["if=/dev/zero", &out, "bs=1k", "oflag=append", "conv=notrunc"]);
        if leave > 0 {
            dd.arg(&count);
        }
        dd.output().unwrap();
        std::fs::set_permissions(&filler, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        filler
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.home.path().join("audit")).status();
    }
}

fn health(daemon: &Daemon) -> (u16, Value) {
    let reply = daemon.http("GET", "/health", &[], "").unwrap();
    (reply.status, reply.json())
}

fn code(response: &Value) -> i64 {
    response["error"]["code"].as_i64().unwrap_or_default()
}

#[test]
fn a_full_disk_blocks_a_call_before_anything_is_sent() {
    // A-7, AUD-3, AUD-63, AUD-64
    let disk = Disk::new("");
    let home = &disk.home;
    let spy = Spy::new(home);
    spy.register(home);
    let daemon = home.serve();
    assert_eq!(health(&daemon).1["status"], "ok");
    disk.fill(4096);
    assert_eq!(health(&daemon), (200, json!({"status": "degraded", "reason": "audit_free_space"})));
    let filler = disk.fill(0);
    // The first call of the day needs a key of its own, for which there is no room.
    let response = daemon.approved_call(home, "spy__echo", &json!({"text": "never sent"})).unwrap();
    assert_eq!(code(&response), -31010, "{response}");
    // Agents are told that, not where; the operator is told the cause.
    assert!(!response.to_string().contains("os error"), "{response}");
    assert_eq!(spy.calls(), 0);
    // Whoever was refused finds the gateway blocked: nobody else is served in between.
    assert_eq!(health(&daemon), (503, json!({"status": "blocked", "reason": "audit_persistence"})));
    assert_eq!(code(&daemon.call("spy__echo", &json!({"text": "nor this"})).unwrap()), -31010);
    let (exit, error) = home.fails(&["audit", "unblock", "--reason", "too early"]);
    assert!(exit != 0 && error["message"].as_str().unwrap().contains("os error 28"), "{error}");
    assert_eq!(health(&daemon).0, 503);

    std::fs::remove_file(filler).unwrap();
    assert_eq!(home.json(&["audit", "unblock", "--reason", "made room"])["unblocked"], true);
    assert_eq!(health(&daemon).1["status"], "ok");
    let response = daemon.approved_call(home, "spy__echo", &json!({"text": "sent"})).unwrap();
    assert_eq!(response["result"]["structuredContent"]["text"], "sent", "{response}");
    assert_eq!(spy.calls(), 1);
    let unblocked = &home.events("audit.unblocked")[0];
    assert_eq!(
        (&unblocked["actor"]["kind"], &unblocked["data"]["reason"]),
        (&json!("operator"), &json!("made room"))
    );
    assert_eq!(home.events("audit.persistence_failure").len(), 1);
    assert_eq!(home.json(&["audit", "unblock", "--reason", "again"])["unblocked"], false);
    daemon.stop();
    let report = home.json(&["audit", "verify", "--invariants", "--evidence"]);
    assert_eq!(report["ok"], true, "{report}");
}

#[test]
fn a_disk_that_fills_while_a_server_works_withholds_the_result_and_says_so_in_the_log() {
    // A-8, AUD-2, AUD-3, AUD-63
    let disk = Disk::new("[policy]\npreset = \"observe\"\n");
    let home = &disk.home;
    let spy = Spy::new(home);
    spy.register(home);
    let daemon = home.serve_with("upstream.after_transmit=sleep(150)");
    std::thread::scope(|scope| {
        let call = scope.spawn(|| daemon.call("spy__echo", &json!({"text": "first"})));
        home.grant_next("until-version-change");
        assert!(call.join().unwrap().unwrap().get("result").is_some());
    });
    // Answers that fill a pack before long: what cannot be compressed, as much as may come.
    let noise: String =
        (0..3000u32).map(|n| portcullis_core::Sha256Digest::of(&n.to_be_bytes()).to_string()).collect();
    let text = format!("withheld {noise}");
    let answer = json!({"content": [{"type": "text", "text": text}], "structuredContent": {"text": "x"}});
    spy.control(&json!({"result": {"echo": answer}}));
    disk.fill(2048);
    let mut calls = 1;
    let response = loop {
        calls += 1;
        assert!(calls < 200, "the disk never ran full");
        let response = std::thread::scope(|scope| {
            let call = scope.spawn(|| daemon.call("spy__echo", &json!({"text": "x"})));
            // It is at the server: now the rest of the disk goes.
            eventually("the frame", || (spy.calls() == calls).then_some(()));
            disk.fill(0);
            call.join().unwrap().unwrap()
        });
        if response.get("error").is_some() {
            break response;
        }
    };
    assert_eq!(
        (code(&response), &response["error"]["data"]["details"]["outcome"]),
        (-31010, &json!("unknown"))
    );
    assert!(!response.to_string().contains("withheld"), "{response}");
    assert_eq!(spy.calls(), calls, "one frame, and no other");
    assert_eq!(health(&daemon).0, 503);
    // In the log already, in the room that was kept back.
    let permit = |event: &Value| event["data"]["permit_id"].clone();
    let indeterminate = eventually("the outcome", || home.events("execution.indeterminate").first().cloned());
    assert_eq!(permit(&indeterminate), permit(home.events("execution.intent").last().unwrap()));
    assert_eq!(home.events("audit.blocked").len(), 1);
    assert_eq!(home.events("execution.result").len(), calls - 1);

    // What the reserve gave up is gone too, so nothing can be unblocked until there is room again.
    let filler = disk.fill(0);
    assert_ne!(home.fails(&["audit", "unblock", "--reason", "too early"]).0, 0);
    assert_eq!(code(&daemon.call("spy__echo", &json!({"text": "x"})).unwrap()), -31010);
    std::fs::remove_file(filler).unwrap();
    home.json(&["audit", "unblock", "--reason", "made room"]);
    spy.control(&json!({}));
    let response = daemon.call("spy__echo", &json!({"text": "after"})).unwrap();
    assert_eq!(response["result"]["structuredContent"]["text"], "after", "{response}");
    let names: Vec<Value> = home.log().iter().map(|record| record["event"].clone()).collect();
    let at = |name: &str| names.iter().position(|found| found == name).unwrap_or_else(|| panic!("no {name}"));
    assert!(at("audit.blocked") < at("execution.indeterminate"));
    assert_eq!(at("audit.persistence_failure") + 1, at("audit.unblocked"));
    assert!(at("execution.indeterminate") < at("audit.persistence_failure"));
    daemon.stop();
    let report = home.json(&["audit", "verify", "--invariants", "--evidence"]);
    assert_eq!(report["ok"], true, "{report}");
}

#[test]
fn a_log_that_is_gone_or_open_to_others_blocks_with_the_cause_on_standard_error() {
    // A-11, AUD-64
    use std::io::Read as _;
    let home = Home::new("");
    let spy = Spy::new(&home);
    spy.register(&home);
    let mut daemon = home.serve();
    let audit = home.path().join("audit");
    let log =
        std::fs::read_dir(&audit).unwrap().flatten().find(|entry| entry.path().is_dir()).unwrap().path();
    let chmod = |mode| {
        std::fs::set_permissions(&log, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    chmod(0o777);
    let response = daemon.call("spy__echo", &json!({"text": "x"})).unwrap();
    assert_eq!(code(&response), -31010, "{response}");
    assert_eq!(health(&daemon).0, 503);
    chmod(0o700);
    home.json(&["audit", "unblock", "--reason", "private again"]);
    let moved = home.beside("moved");
    std::fs::rename(&log, &moved).unwrap();
    let response = daemon.call("spy__echo", &json!({"text": "x"})).unwrap();
    assert_eq!(code(&response), -31010, "{response}");
    let (exit, error) = home.fails(&["audit", "unblock", "--reason", "it is gone"]);
    assert!(exit != 0 && error["message"].as_str().unwrap().contains("os error 2"), "{error}");
    std::fs::rename(&moved, &log).unwrap();
    home.json(&["audit", "unblock", "--reason", "it is back"]);
    assert_eq!(spy.calls(), 0);
    Command::new("kill").arg(daemon.child.id().to_string()).status().unwrap();
    eventually("the gateway to end", || daemon.child.try_wait().unwrap());
    let mut said = String::new();
    daemon.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let lines: Vec<&str> =
        said.lines().filter(|line| line.contains("MP-FH-010") && line.contains("unblock")).collect();
    assert_eq!(lines.len(), 2, "{said}");
    let path = log.to_str().unwrap();
    assert!(lines[0].contains("chmod 700") && lines[0].contains(path), "{said}");
    assert!(lines[1].contains("os error 2") && lines[1].contains(path), "{said}");
    home.verify();
}

#[test]
fn where_others_rely_on_it_the_log_is_not_kept_in_memory() {
    // AUD-25
    for mode in ["ci", "enterprise"] {
        let disk = Disk::new(&format!("[gateway]\nmode = \"{mode}\"\n[operator]\nauth = [\"uid\"]\n"));
        let (exit, error) = disk.home.fails(&["mcp", "list"]);
        let message = error["message"].as_str().unwrap();
        assert!(exit == 7 && message.contains("tmpfs") && message.contains("audit"), "{error}");
    }
    // Elsewhere it is said and allowed.
    let disk = Disk::new("");
    let output = disk.home.command().args(["mcp", "list"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("tmpfs") && said.contains("audit"), "{said}");
}
