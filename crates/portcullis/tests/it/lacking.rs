//! Machines that lack a facility: nothing is started, and what is missing is named, with what helps (SBX §11).

use std::fs;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::evil::{Declared, Evil, NOTHING, ask, outcome};
use crate::support::{Daemon, Home, eventually, program};

/// A command behind a filter that takes a facility away.
fn without(facility: &str, command: &Command) -> Command {
    let mut filtered = Command::new(program("evil"));
    filtered
        .args(["without", facility])
        .arg(command.get_program())
        .args(command.get_args())
        .stdin(Stdio::null());
    filtered
}

fn serve_without(home: &Home, facility: &str) -> Daemon {
    let ready = home.beside("ready.json");
    let _ = fs::remove_file(&ready);
    let mut command = home.command();
    command.args(["serve", "--listen", "127.0.0.1:0", "--ready-file"]).arg(&ready);
    let child = without(facility, &command).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut daemon = Daemon { child, address: String::new(), console: String::new() };
    let text = eventually("the gateway to be ready", || fs::read_to_string(&ready).ok());
    let ready: Value = serde_json::from_str(&text).unwrap();
    let url = ready["mcp"].as_str().unwrap();
    daemon.address = url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
    daemon
}

#[test]
fn what_a_machine_lacks_is_named_and_nothing_is_started() {
    // SBX-70, SBX-72, S-HOST-1, S-ST-1
    let home = Home::new("");
    let marker = home.beside("ran");
    for (taken, facility, helps) in [
        ("unshare", "userns", "user namespaces"),
        ("mount", "mountns", "namespaces"),
        ("pivot_root", "mountns", "namespaces"),
        ("landlock", "landlock", "kernel 6.2"),
        ("inotify", "bait", "inotify"),
        ("notify", "seccomp_notify", "kernel 5.5"),
    ] {
        let mut doctor = Command::new(env!("CARGO_BIN_EXE_portcullis"));
        doctor.args(["--output", "json", "sandbox", "doctor"]);
        let output = without(taken, &doctor).output().unwrap();
        assert_eq!(output.status.code(), Some(7), "{taken}");
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(found["verdict"], "blocked", "{taken}: {found}");
        let missing =
            found["facilities"].as_array().unwrap().iter().find(|one| one["name"] == facility).unwrap();
        assert_eq!(missing["status"], "missing", "{taken}: {found}");
        assert!(missing["fix"].as_str().unwrap().contains(helps), "{taken}: {missing}");
        assert_eq!(missing["waivable"], json!(matches!(facility, "landlock" | "seccomp_notify")));

        let mut run = Command::new(env!("CARGO_BIN_EXE_portcullis"));
        let folder = marker.parent().unwrap();
        run.args(["--output", "json", "sandbox", "run", "--rw", folder.to_str().unwrap(), "--"]);
        run.arg(program("evil")).args(["write", marker.to_str().unwrap()]);
        let output = without(taken, &run).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(!output.status.success(), "{taken}: {said}");
        assert!(
            said.contains(facility) && said.contains("what helps") && said.contains("MP-FH-007"),
            "{said}"
        );
        assert!(!marker.exists(), "{taken}: it ran");
    }
}

#[test]
fn a_facility_is_waived_by_an_operator_for_one_server_and_a_while() {
    // SBX-2, SBX-71, S-HOST-1, S-HOST-2
    let home = Home::new("");
    let evil = Evil::new(&home);
    evil.register(&home, &Declared { scopes: "", act: NOTHING, other: NOTHING }, &[]);
    let daemon = serve_without(&home, "landlock");
    let answer = ask(&daemon, &home, "evil__act", &["say", "hello"]);
    let details = &answer["error"]["data"]["details"];
    assert_eq!(
        (&details["code"], &details["facility"]),
        (&json!("MP-FH-007"), &json!("landlock")),
        "{answer}"
    );
    assert!(details["fix"].as_str().unwrap().contains("6.2") && details["waivable"] == true, "{answer}");
    assert!(evil.processes().is_empty() && home.events("execution.intent").is_empty());

    let waive = |facility: &str, expires: &str| {
        home.command()
            .args(["--output", "json", "sandbox", "waive", "--server", "evil", "--facility", facility])
            .args(["--reason", "test", "--expires", expires])
            .output()
            .unwrap()
    };
    // Neither a process of its own, nor its view of files, nor its network, nor its empty environment.
    for minimum in
        ["userns", "pidns", "mountns", "view", "netns", "egress", "environment", "seccomp", "limits"]
    {
        assert_eq!(waive(minimum, "30d").status.code(), Some(7), "{minimum} is not waivable");
    }
    assert_eq!(waive("landlock", "91d").status.code(), Some(7), "too long");
    assert!(waive("landlock", "30d").status.success());
    // What was approved and not spent still stands, so this asks for something else.
    let said = std::thread::scope(|scope| {
        let call = scope.spawn(|| daemon.call("evil__act", &json!({"do": ["say", "hello again"]})).unwrap());
        let pending = home.next_pending();
        let shown = home.json(&["approve", "show", pending["approval_id"].as_str().unwrap()]);
        assert_eq!(shown["presented"]["server"]["waived"], json!(["landlock"]), "{shown}");
        home.grant_next("once");
        outcome(&call.join().unwrap())
    });
    assert_eq!(said["seen"], "hello again");
    let explained = home.json(&["sandbox", "explain", "evil"]);
    assert_eq!(explained["waivers"][0]["facility"], "landlock", "{explained}");
    daemon.stop();
    let established = home.events("sandbox.established").pop().unwrap();
    assert_eq!(established["data"]["layers"]["waived"], json!(["landlock"]), "{established}");
    let granted = &home.events("sandbox.waiver_granted")[0]["data"];
    assert_eq!((&granted["server"], &granted["reason"]), (&json!("evil"), &json!("test")));

    // After a restart it is still in force; without a credential nobody grants one.
    let daemon = serve_without(&home, "landlock");
    assert_eq!(outcome(&ask(&daemon, &home, "evil__act", &["say", "again"]))["seen"], "again");
    daemon.stop();
    fs::write(home.path().join("portcullis.toml"), "[operator]\nauth = [\"passphrase\"]\n").unwrap();
    assert_eq!(waive("landlock", "30d").status.code(), Some(6), "no credential");
    home.verify();
}

#[test]
fn a_cage_can_be_looked_at_and_tried() {
    // SBX-72, SBX-10
    let home = Home::new("");
    let evil = Evil::new(&home);
    let folder = home.beside("ws");
    fs::create_dir(&folder).unwrap();
    let scopes = format!("\n  ws: {{ kind: fs, path: {}, access: ro }}", folder.display());
    let reads = "side_effects: [read], unbound: true, scopes: [ws], credentials: []";
    evil.register(&home, &Declared { scopes: &scopes, act: reads, other: NOTHING }, &[]);
    let shown = home.run(&["sandbox", "explain", "evil"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    for expected in [
        format!("{}  read only", folder.display()),
        "none but itself".into(),
        "none: there is no network in there".into(),
        "[read] ws".into(),
    ] {
        assert!(shown.contains(&expected), "{expected}: {shown}");
    }
    let tested = home.json(&["sandbox", "test", "evil"]);
    assert_eq!((&tested["ok"], &tested["server"]), (&json!(true), &json!("evil")), "{tested}");
    assert!(evil.processes().is_empty());
    fs::remove_dir(&folder).unwrap();
    let (_, error) = home.fails(&["sandbox", "test", "evil"]);
    assert!(error["message"].as_str().unwrap().contains("view"), "{error}");
}
