//! The malicious server behind a gateway, act by act: what it sees of the host, and what is left of it (the sandbox's
//! test matrix, with the gateway as root and as somebody).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::evil::{Declared, Evil, NOTHING, ask, outcome};
use crate::support::{Daemon, Home, eventually, program};

/// Somebody who is nobody.
const NOBODY: &str = "65534";

/// A gateway with the evil server, which has one folder to read and one to write.
fn scene() -> (Home, Evil) {
    scene_in(Home::new(""))
}

fn scene_in(home: Home) -> (Home, Evil) {
    let evil = Evil::new(&home);
    for folder in ["ro", "rw", "elsewhere"] {
        fs::create_dir(home.beside(folder)).unwrap();
        fs::write(home.beside(folder).join("note"), format!("a note in {folder}")).unwrap();
    }
    home.give(&home.beside("rw"));
    home.give(&home.beside("rw").join("note"));
    let scope = |name: &str, access: &str| {
        format!("\n  {name}: {{ kind: fs, path: {}, access: {access} }}", home.beside(name).display())
    };
    let scopes = scope("ro", "ro") + &scope("rw", "rw");
    let powers = "side_effects: [read, write], unbound: true, scopes: [ro, rw], credentials: []";
    evil.register(&home, &Declared { scopes: &scopes, act: powers, other: NOTHING }, &[]);
    (home, evil)
}

fn tried(daemon: &Daemon, home: &Home, act: &[&str]) -> Value {
    outcome(&ask(daemon, home, "evil__act", act))
}

fn at(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Everything that must fail does, and the host is as it was.
fn holds(daemon: &Daemon, home: &Home) {
    // S-FS-1
    let gateway = daemon.child.id();
    for path in [
        home.beside("elsewhere").join("note"),
        home.path().join("portcullis.toml"),
        home.path().join("keys/evidence.kek"),
        format!("/proc/{gateway}/mem").into(),
        format!("/proc/{gateway}/environ").into(),
        "/home".into(),
        "/usr/bin/env".into(),
    ] {
        let seen = tried(daemon, home, &["read", at(&path)]);
        assert_eq!(seen["worked"], false, "{}: {seen}", path.display());
    }
    let environ = tried(daemon, home, &["read", "/proc/1/environ"]);
    assert!(!environ.to_string().contains("PATH="), "{environ}");
    // S-FS-2
    let (ro, rw) = (home.beside("ro").join("note"), home.beside("rw").join("note"));
    assert_eq!(tried(daemon, home, &["read", at(&ro)])["seen"], "a note in ro");
    let new = home.beside("ro").join("new");
    for act in [
        vec!["write", at(&ro)],
        vec!["write", at(&new)],
        vec!["rename", at(&ro), at(&new)],
        vec!["chmod", at(&ro)],
    ] {
        assert_eq!(tried(daemon, home, &act)["worked"], false, "{act:?}");
    }
    assert_eq!(fs::read_to_string(&ro).unwrap(), "a note in ro");
    assert_eq!(tried(daemon, home, &["write", at(&rw)])["worked"], true);
    assert_eq!(fs::read_to_string(&rw).unwrap(), "evil");
    for act in [
        vec!["truncate", at(&ro)],
        vec!["link", at(&ro), at(&new)],
        vec!["symlink", at(&ro), at(&new)],
        vec!["mknod", at(&new)],
        vec!["remove", at(&ro)],
    ] {
        assert_eq!(tried(daemon, home, &act)["worked"], false, "{act:?}");
    }
    assert_eq!(fs::read_dir(home.beside("ro")).unwrap().count(), 1);
    // S-FS-3: a link that is swapped for a folder while it is read leads nowhere, however often.
    let (folder, elsewhere) = (home.beside("rw"), home.beside("elsewhere"));
    let raced = tried(daemon, home, &["race", at(&folder), at(&elsewhere), "10000"]);
    let (inside, escaped) = raced["seen"].as_str().unwrap().split_once(' ').unwrap();
    assert_eq!(escaped, "0", "{raced}");
    assert_ne!(inside, "0", "{raced}");
    // S-FS-4: no way round leads out.
    for path in [
        folder.join("../elsewhere/note"),
        Path::new("/proc/self/root").join(elsewhere.strip_prefix("/").unwrap()).join("note"),
        Path::new("/proc/self/cwd/../..").join(elsewhere.strip_prefix("/").unwrap()).join("note"),
        "/proc/self/fd/3".into(),
    ] {
        assert_eq!(tried(daemon, home, &["read", at(&path)])["worked"], false, "{}", path.display());
    }
    // S-FS-4, S-ENV-1
    assert_eq!(tried(daemon, home, &["descriptors"])["seen"], "[0, 1, 2]");
    let environment = tried(daemon, home, &["environment"]);
    assert!(!environment.to_string().contains("hunter2"), "{environment}");
    // S-PROC-1, S-PROC-4
    for act in [
        vec!["kill".to_owned(), gateway.to_string()],
        vec!["run".to_owned(), "/bin/sh".to_owned()],
        vec!["run".to_owned(), at(&rw).to_owned()],
    ] {
        let act: Vec<&str> = act.iter().map(String::as_str).collect();
        assert_eq!(tried(daemon, home, &act)["worked"], false, "{act:?}");
    }
    // S-NET-1: what is no violation fails as well.
    for act in [&["icmp"][..], &["socket", "10", "1"], &["socket", "16", "3"], &["abstract", "nobody-there"]]
    {
        assert_eq!(tried(daemon, home, act)["worked"], false, "{act:?}");
    }
    assert_eq!(home.json(&["mcp", "list"])[0]["state"], "active");
}

#[test]
fn a_gateway_that_runs_as_whoever_tests_it_holds() {
    // S-FS-1, S-FS-2, S-FS-4, S-PROC-1, S-PROC-4, S-ENV-1
    let (home, _evil) = scene();
    let ready = home.beside("ready.json");
    let mut command = home.command();
    command.args(["serve", "--listen", "127.0.0.1:0", "--ready-file"]).arg(&ready);
    command.env("AWS_SECRET_ACCESS_KEY", "hunter2").env("SSH_AUTH_SOCK", "/tmp/agent-hunter2");
    let daemon = started(&mut command, &ready);
    holds(&daemon, &home);
    daemon.stop();
    home.verify();
}

#[test]
fn nothing_is_left_when_the_gateway_is_killed() {
    // S-PROC-2: left behind its parents, and in a session of its own.
    let (home, evil) = scene();
    let marker = home.beside("rw").join("lingering");
    let mut daemon = home.serve();
    std::thread::scope(|scope| {
        let call = scope.spawn(|| daemon.call("evil__act", &json!({"do": ["linger", at(&marker)]})));
        home.grant_next("once");
        eventually("it to leave its parents behind", || marker.exists().then_some(()));
        assert!(evil.processes().len() >= 2);
        Command::new("kill").args(["-9", &daemon.child.id().to_string()]).status().unwrap();
        assert!(call.join().unwrap().is_none());
    });
    daemon.wait_for_death();
    eventually("everything to end", || evil.processes().is_empty().then_some(()));
}

#[test]
fn a_gateway_that_runs_as_nobody_holds() {
    // S-FS-1 to S-FS-4, S-PROC-1, S-PROC-4, S-ENV-1: rootless, without a range of user ids and without control groups.
    let Some(home) = Home::of_nobody("") else { return };
    let (home, evil) = scene_in(home);
    let daemon = home.serve();
    holds(&daemon, &home);
    for (act, kind) in [(&["read", "/etc/shadow"][..], "bait"), (&["tcp", "192.0.2.1:80"], "egress")] {
        let answer = ask(&daemon, &home, "evil__act", act);
        assert_eq!(answer["error"]["data"]["details"]["code"], "MP-FH-008", "{kind}: {answer}");
        eventually("the halt", || (home.json(&["mcp", "list"])[0]["state"] == "halted").then_some(()));
        eventually("its end", || evil.processes().is_empty().then_some(()));
        home.json(&["mcp", "resume", "evil", "--reason", "again"]);
    }
    daemon.stop();
    let established = home.events("sandbox.established");
    assert!(established.iter().all(|event| event["data"]["cgroup"] == "none"), "{established:?}");
    home.verify();
}

#[test]
fn a_server_that_does_not_want_to_end_is_ended_and_one_that_shouts_fills_nothing() {
    // S-PROC-1, S-PROC-2, SBX-21, SBX-22
    let (home, evil) = scene();
    let daemon = home.serve();
    let resident = || {
        let status = fs::read_to_string(format!("/proc/{}/status", daemon.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    };
    tried(&daemon, &home, &["say", "hello"]);
    let before = resident();
    assert_eq!(tried(&daemon, &home, &["shout", "1000000"])["worked"], true);
    assert!(resident() < before + (64 << 10), "{before} kB, then {} kB", resident());
    assert_eq!(tried(&daemon, &home, &["deaf"])["worked"], true);
    daemon.stop();
    assert!(evil.processes().is_empty());
    home.verify();
}

#[test]
fn a_folder_below_which_something_else_is_mounted_is_not_shown() {
    // S-FS-3, SBX-31. Only where the tests may mount.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::create_dir(folder.path().join("below")).unwrap();
    let line = format!(
        "mount -t tmpfs none '{folder}/below' && exec '{portcullis}' --output json sandbox run --ro '{folder}' -- '{evil}' say hello",
        folder = folder.path().display(),
        portcullis = env!("CARGO_BIN_EXE_portcullis"),
        evil = program("evil").display(),
    );
    let output = Command::new("unshare").args(["--mount", "/bin/sh", "-c", &line]).output().unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if said.contains("unshare failed")
        || said.contains("permission denied")
        || said.contains("must be superuser")
    {
        return;
    }
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("view") && said.contains(folder.path().to_str().unwrap()), "{said}");
    assert!(!said.contains("\"worked\":true"), "{said}");
}

/// The same server as a program of another kind.
fn other_form(home: &Home, interpreter: &str, form: &str) -> Option<Evil> {
    let found = Command::new("sh").args(["-c", &format!("command -v {interpreter}")]).output().unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    let interpreter = fs::canonicalize(found.trim()).ok()?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../servers/evil/forms").join(form);
    let script = home.beside(form);
    fs::copy(source, &script).unwrap();
    let file = home.beside("evil.yaml");
    let scope = |name: &str, access: &str| {
        format!("\n  {name}: {{ kind: fs, path: {}, access: {access} }}", home.beside(name).display())
    };
    for folder in ["ro", "elsewhere"] {
        fs::create_dir(home.beside(folder)).unwrap();
        fs::write(home.beside(folder).join("note"), format!("a note in {folder}")).unwrap();
    }
    let scopes = scope("ro", "ro");
    let powers = "side_effects: [read], unbound: true, scopes: [ro], credentials: []";
    fs::write(&file, Evil::declaration(&Declared { scopes: &scopes, act: powers, other: NOTHING })).unwrap();
    let mut args = vec!["mcp", "add", "evil", "--transport", "stdio", "--server-version", "1.0.0"];
    args.extend([
        "--justification",
        "to see it fail",
        "--deployment-mode",
        "local",
        "--capability-declaration",
    ]);
    args.extend([at(&file), "--", at(&interpreter), at(&script)]);
    home.json(&args);
    Some(Evil { executable: interpreter })
}

#[test]
fn a_runtime_of_another_kind_is_confined_alike() {
    // §13: the forms of the fixture. S-FS-1, S-FS-2, S-NET-1, S-PROC-4, S-ENV-1, S-BAIT-1
    for (interpreter, form) in [("node", "evil.mjs"), ("/usr/bin/python3", "evil.py")] {
        let home = Home::new("");
        other_form(&home, interpreter, form).unwrap_or_else(|| panic!("{interpreter} is needed"));
        let daemon = home.serve();
        let (ro, elsewhere) = (home.beside("ro").join("note"), home.beside("elsewhere").join("note"));
        assert_eq!(tried(&daemon, &home, &["read", at(&ro)])["seen"], "a note in ro", "{form}");
        let gateway = daemon.child.id().to_string();
        for act in [
            vec!["read", at(&elsewhere)],
            vec!["read", "/etc/gshadow"],
            vec!["write", at(&ro)],
            vec!["list", "/root"],
            vec!["run", "/bin/sh", "-c", "true"],
            vec!["kill", &gateway],
            vec!["resolve", "example.com"],
            vec!["tcp", "127.0.0.1:22"],
            vec!["fetch", "http://example.com/"],
        ] {
            let seen = tried(&daemon, &home, &act);
            assert_eq!(seen["worked"], false, "{form} {act:?}: {seen}");
        }
        let environment = tried(&daemon, &home, &["environment"]);
        assert!(!environment.to_string().contains("CARGO"), "{environment}");
        assert_eq!(home.json(&["mcp", "list"])[0]["state"], "active", "{form}");
        let answer = ask(&daemon, &home, "evil__act", &["tcp", "192.0.2.1:80"]);
        assert_eq!(answer["error"]["data"]["details"]["code"], "MP-FH-008", "{form}: {answer}");
        daemon.stop();
        home.verify();
    }
}

#[test]
fn whoever_has_no_rights_confines_as_well() {
    // Rootless, without a range of user ids. Only where the tests may become somebody else.
    let is_root =
        fs::read_to_string("/proc/self/status").unwrap().lines().any(|line| line == "Uid:\t0\t0\t0\t0");
    if !is_root {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copied = |name: &str, from: &Path| {
        let to = folder.path().join(name);
        fs::copy(from, &to).unwrap();
        to
    };
    let portcullis = copied("portcullis", Path::new(env!("CARGO_BIN_EXE_portcullis")));
    let evil = copied("evil", &program("evil"));
    let secret = folder.path().join("secret");
    fs::write(&secret, "hunter2").unwrap();
    let as_nobody = |args: &[&str]| {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--"])
            .arg(&portcullis)
            .args(args);
        command.stdin(Stdio::null()).output().unwrap()
    };
    let doctor = as_nobody(&["--output", "json", "sandbox", "doctor"]);
    let found: Value = serde_json::from_slice(&doctor.stdout).unwrap();
    assert_ne!(found["verdict"], "blocked", "{found}");
    for act in [
        vec!["read", at(&secret)],
        vec!["read", "/home"],
        vec!["write", "/etc/passwd"],
        vec!["tcp", "192.0.2.1:80"],
        vec!["call", "mount"],
        vec!["call", "unshare"],
        vec!["call", "ptrace"],
        vec!["socket", "17", "3"],
        vec!["run", "/bin/sh"],
    ] {
        let output = as_nobody(&[&["sandbox", "run", "--", at(&evil)], act.as_slice()].concat());
        let seen: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("{act:?}: {}", String::from_utf8_lossy(&output.stderr)));
        assert_eq!(seen["worked"], false, "{act:?}: {seen}");
    }
}

fn started(command: &mut Command, ready: &Path) -> Daemon {
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut daemon = Daemon { child, address: String::new(), console: String::new() };
    let text = eventually("the gateway to be ready", || fs::read_to_string(ready).ok());
    let ready: Value = serde_json::from_str(&text).unwrap();
    let url = ready["mcp"].as_str().unwrap();
    daemon.address = url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
    daemon
}
