//! Servers with user ids of their own, and what each may use (SBX-20, SBX-35, SBX-70).

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::evil::{Declared, Evil, NOTHING, ask, outcome};
use crate::support::{Home, Spy, eventually};

fn we_are_root() -> bool {
    fs::read_to_string("/proc/self/status").unwrap().lines().any(|line| line == "Uid:\t0\t0\t0\t0")
}

/// As whom a process runs, seen from the host.
fn uid_of(pid: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:\t")).unwrap();
    line.split('\t').next().unwrap().parse().unwrap()
}

/// A server with a folder that it may write to.
fn writing(home: &Home) -> (Evil, PathBuf) {
    let evil = Evil::new(home);
    let folder = home.beside("rw");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("ours"), "ours").unwrap();
    home.give(&folder);
    home.give(&folder.join("ours"));
    let scopes = format!("\n  rw: {{ kind: fs, path: {}, access: rw }}", folder.display());
    let powers = "side_effects: [read, write], unbound: true, scopes: [rw], credentials: []";
    evil.register(home, &Declared { scopes: &scopes, act: powers, other: NOTHING }, &[]);
    (evil, folder)
}

#[test]
fn each_server_of_a_gateway_that_is_root_has_a_user_of_its_own_and_what_it_writes_is_ours() {
    // SBX-20, SBX-11, SBX-70
    if !we_are_root() {
        return;
    }
    let home = Home::new("[sandbox]\nuid_base = 1900000000\n");
    let (evil, folder) = writing(&home);
    // Nobody but us may read it, and so nobody but us and whoever we show it to.
    fs::set_permissions(folder.join("ours"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let spy = Spy::new(&home);
    spy.register(&home);
    let daemon = home.serve();
    let (ours, new) = (folder.join("ours"), folder.join("new"));
    assert_eq!(outcome(&ask(&daemon, &home, "evil__act", &["read", ours.to_str().unwrap()]))["seen"], "ours");
    assert_eq!(outcome(&ask(&daemon, &home, "evil__act", &["write", new.to_str().unwrap()]))["worked"], true);
    let written = fs::metadata(&new).unwrap();
    assert_eq!((written.uid(), written.gid()), (0, 0), "what it wrote is ours");
    daemon.approved_call(&home, "spy__echo", &json!({"text": "x"})).unwrap();
    let (of_evil, of_spy) = (uid_of(evil.processes()[0]), uid_of(spy.processes()[0]));
    assert!(of_evil >= 1_900_000_000 && of_spy >= 1_900_000_000, "{of_evil} {of_spy}");
    assert_ne!(of_evil, of_spy);
    daemon.stop();
    let established = home.events("sandbox.established");
    assert!(
        established.iter().all(|event| event["data"]["layers"]["uid_separation"] == true),
        "{established:?}"
    );
    home.verify();
}

#[test]
fn where_a_user_of_its_own_is_needed_and_cannot_be_had_nothing_is_started() {
    // SBX-70: in mode enterprise. A gateway that is not root has none to give.
    let config = |mode: &str| format!("[gateway]\nmode = \"{mode}\"\n[operator]\nauth = [\"uid\"]\n");
    let Some(home) = Home::of_nobody(&config("enterprise")) else { return };
    let evil = Evil::new(&home);
    let file = home.beside("evil.yaml");
    fs::write(&file, Evil::declaration(&Declared { scopes: "", act: NOTHING, other: NOTHING })).unwrap();
    let mut args = vec!["mcp", "add", "evil", "--transport", "stdio", "--server-version", "1.0.0"];
    args.extend(["--justification", "to see it fail", "--deployment-mode", "enterprise"]);
    args.extend(["--capability-declaration", file.to_str().unwrap(), "--"]);
    args.extend([evil.executable.to_str().unwrap(), "serve"]);
    let (_, error) = home.fails(&args);
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("uid_separation") && message.contains("root"), "{error}");
    assert!(home.json(&["mcp", "list"]).as_array().unwrap().is_empty());
    // Elsewhere it is only recorded.
    fs::write(home.path().join("portcullis.toml"), config("team")).unwrap();
    home.json(&args);
    let established = home.events("sandbox.established").pop().unwrap();
    assert_eq!(established["data"]["layers"]["uid_separation"], false, "{established}");
}

/// What ends a call whose server takes more memory than it may.
fn exhausts(home: &Home) {
    let evil = Evil::new(home);
    evil.register(home, &Declared { scopes: "", act: NOTHING, other: NOTHING }, &[]);
    let daemon = home.serve();
    let answer = ask(&daemon, home, "evil__act", &["hoard", "200"]);
    let details = &answer["error"]["data"]["details"];
    assert_eq!(details["code"], "MP-FH-001", "{answer}");
    assert!(answer.to_string().contains("resource_limit"), "{answer}");
    eventually("its end", || evil.processes().is_empty().then_some(()));
    daemon.stop();
    let exited = home.events("sandbox.process_exited");
    let told =
        |event: &Value| event["data"]["reason"].as_str().is_some_and(|r| r.starts_with("resource_limit"));
    assert!(exited.iter().any(told), "{exited:?}");
    home.verify();
}

const LITTLE: &str = "[sandbox.limits]\nmemory = 67108864\ncpu = 0.5\n";

#[test]
fn a_server_that_takes_too_much_memory_is_ended_and_it_is_said_why() {
    // SBX-35, S-PROC-1: by a control group where there is one.
    exhausts(&Home::new(LITTLE));
}

#[test]
fn a_server_that_takes_too_much_memory_is_ended_where_there_is_no_control_group() {
    // SBX-35: nobody makes groups.
    if let Some(home) = Home::of_nobody(LITTLE) {
        exhausts(&home);
        let established = home.events("sandbox.established").pop().unwrap();
        assert_eq!(established["data"]["cgroup"], "none", "{established}");
    }
}

#[test]
fn a_server_has_its_share_of_the_processors() {
    // SBX-12, SBX-35. Only where there is a group for that.
    let home = Home::new(LITTLE);
    let evil = Evil::new(&home);
    let record = evil.register(&home, &Declared { scopes: "", act: NOTHING, other: NOTHING }, &[]);
    assert_eq!(record["process"]["limits"]["cpu"], 0.5, "{record}");
    let daemon = home.serve();
    outcome(&ask(&daemon, &home, "evil__act", &["say", "hello"]));
    let groups = fs::read_to_string(format!("/proc/{}/cgroup", evil.processes()[0])).unwrap();
    let group = groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        controllers.split(',').any(|name| name == "cpu").then(|| path.trim_start_matches('/').to_owned())
    });
    let Some(group) = group.filter(|group| group.contains("portcullis-")) else { return };
    let folder = PathBuf::from("/sys/fs/cgroup/cpu").join(group);
    let read = |file: &str| fs::read_to_string(folder.join(file)).unwrap().trim().parse::<u64>().unwrap();
    assert_eq!(read("cpu.cfs_quota_us") * 2, read("cpu.cfs_period_us"));
    daemon.stop();
}
