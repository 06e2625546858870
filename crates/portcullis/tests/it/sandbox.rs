//! What a confined program can do, tried by one that tries everything (the sandbox's test matrix).

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{eventually, program};

fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn sandbox(flags: &[&str], command: &[&str]) -> Command {
    let mut sandbox = Command::new(env!("CARGO_BIN_EXE_portcullis"));
    sandbox.args(["sandbox", "run"]).args(flags).arg("--").args(command).stdin(Stdio::null());
    sandbox
}

/// What came of an act.
fn evil(flags: &[&str], act: &[&str]) -> Value {
    let program = program("evil");
    let command = [&[program.to_str().unwrap()], act].concat();
    let output = sandbox(flags, &command).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|_| {
        panic!("{act:?}: {:?} {text} {}", output.status, String::from_utf8_lossy(&output.stderr))
    })
}

fn worked(flags: &[&str], act: &[&str]) -> String {
    let outcome = evil(flags, act);
    assert_eq!(outcome["worked"], true, "{outcome}");
    outcome["seen"].as_str().unwrap().to_owned()
}

/// Fails with one of these errors.
fn refused(flags: &[&str], act: &[&str], errors: &[i32]) {
    let outcome = evil(flags, act);
    assert_eq!(outcome["worked"], false, "{outcome}");
    let errno = outcome["errno"].as_i64().unwrap_or_default();
    assert!(errors.iter().any(|error| i64::from(*error) == errno), "{outcome}");
}

const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const ESRCH: i32 = 3;
const EACCES: i32 = 13;
const EXDEV: i32 = 18;
const EROFS: i32 = 30;
const ENOSYS: i32 = 38;
const EAFNOSUPPORT: i32 = 97;

#[test]
fn files_of_the_host_do_not_exist_for_a_confined_program() {
    // S-FS-1, S-FS-4
    let dir = folder();
    let secret = dir.path().join("secret");
    fs::write(&secret, "hunter2").unwrap();
    for path in
        [secret.to_str().unwrap(), "/root/.bashrc", "/etc/gshadow", "/var/log/dpkg.log", "/sys/kernel/notes"]
    {
        refused(&[], &["read", path], &[ENOENT, EACCES]);
    }
    for path in ["/proc/self/root", "/proc/1/root"] {
        let seen = evil(&[], &["list", path]);
        assert!(!seen.to_string().contains("boot") && !seen.to_string().contains("home"), "{seen}");
    }
    let passwd = worked(&[], &["read", "/etc/passwd"]);
    assert!(passwd.starts_with("sandbox:") && passwd.lines().count() == 1, "{passwd}");
    // What lies where thieves look first is not the host's.
    let shadow = worked(&[], &["read", "/etc/shadow"]);
    assert!(shadow.len() == 64 && !shadow.contains(':'), "{shadow}");
    refused(&[], &["list", "/"], &[EACCES]);
    let gateway = std::process::id();
    refused(&[], &["read", &format!("/proc/{gateway}/environ")], &[ENOENT, EACCES]);
}

#[test]
fn a_read_only_scope_can_be_read_and_nothing_else() {
    // S-FS-2, SBX-31
    let dir = folder();
    let inside = dir.path().join("note");
    fs::write(&inside, "hello").unwrap();
    let path = inside.to_str().unwrap();
    let ro = ["--ro", dir.path().to_str().unwrap()];
    assert_eq!(worked(&ro, &["read", path]), "hello");
    let beside = dir.path().join("other");
    for act in [
        vec!["write", path],
        vec!["write", beside.to_str().unwrap()],
        vec!["rename", path, beside.to_str().unwrap()],
        vec!["chmod", path],
    ] {
        refused(&ro, &act, &[EROFS, EACCES, EPERM, EXDEV]);
    }
    assert_eq!(fs::read_to_string(&inside).unwrap(), "hello");
    assert!(!beside.exists());
}

#[test]
fn a_writable_scope_can_be_written_and_links_out_of_it_lead_nowhere() {
    // SBX-32
    let (dir, outside) = (folder(), folder());
    fs::write(outside.path().join("secret"), "hunter2").unwrap();
    std::os::unix::fs::symlink(outside.path(), dir.path().join("out")).unwrap();
    let rw = ["--rw", dir.path().to_str().unwrap()];
    let new = dir.path().join("new");
    worked(&rw, &["write", new.to_str().unwrap()]);
    assert_eq!(fs::read_to_string(&new).unwrap(), "evil");
    refused(&rw, &["read", dir.path().join("out/secret").to_str().unwrap()], &[ENOENT, EACCES]);
    // What it wrote cannot be run, neither from the scope nor from /tmp.
    refused(&rw, &["run", new.to_str().unwrap()], &[EACCES]);
}

#[test]
fn there_is_no_network_but_its_own_loopback() {
    // S-NET-1
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let name = format!("portcullis-test-{}", std::process::id());
    let local = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    tcp.set_nonblocking(true).unwrap();
    udp.set_nonblocking(true).unwrap();
    local.set_nonblocking(true).unwrap();
    for act in [
        ["tcp", &tcp.local_addr().unwrap().to_string()],
        ["tcp", "192.0.2.1:80"],
        ["udp", "192.0.2.1:53"],
        ["abstract", &name],
        ["resolve", "example.org"],
    ] {
        assert_eq!(evil(&[], &act)["worked"], false, "{act:?}");
    }
    let _ = evil(&[], &["udp", &udp.local_addr().unwrap().to_string()]);
    assert!(tcp.accept().is_err() && local.accept().is_err());
    assert!(udp.recv(&mut [0; 8]).is_err());
    // Families that runtimes probe are said not to exist; others and raw sockets are refused.
    for family in ["10", "16"] {
        refused(&[], &["socket", family, "2"], &[EAFNOSUPPORT]);
    }
    for (family, kind) in [("17", "3"), ("40", "1"), ("2", "3")] {
        refused(&[], &["socket", family, kind], &[EPERM]);
    }
}

#[test]
fn dangerous_calls_are_refused_or_do_not_exist() {
    // S-PROC-3
    for call in [
        "unshare",
        "clone",
        "mount",
        "bpf",
        "keyctl",
        "userfaultfd",
        "ptrace",
        "process_vm_readv",
        "open_by_handle_at",
        "setns",
    ] {
        refused(&[], &["call", call], &[EPERM]);
    }
    for call in ["clone3", "io_uring"] {
        refused(&[], &["call", call], &[ENOSYS]);
    }
    // SBX-34: numbers that no rule knows end who uses them.
    let program = program("evil");
    let ended = sandbox(&[], &[program.to_str().unwrap(), "call", "x32"]).output().unwrap();
    assert!(!ended.status.success() && ended.stdout.is_empty(), "{ended:?}");
    refused(&[], &["kill", &std::process::id().to_string()], &[ESRCH, EPERM]);
}

#[test]
fn nothing_can_be_executed_but_what_is_declared() {
    // S-PROC-4
    for shell in ["/bin/sh", "/usr/bin/env", "/usr/bin/git"] {
        refused(&[], &["run", shell], &[ENOENT, EACCES]);
    }
    let wc = fs::canonicalize("/usr/bin/wc").unwrap();
    let wc = wc.to_str().unwrap();
    assert!(worked(&["--exec", wc], &["run", wc, "/etc/passwd"]).trim_start().starts_with("1 "));
    refused(&["--exec", wc], &["run", "/bin/sh"], &[ENOENT, EACCES]);
    // The loader cannot be used to start what may not be started: it is not in the view.
    let seen = evil(&[], &["run", "/lib64/ld-linux-x86-64.so.2", "/bin/ls"]);
    assert!(!seen["seen"].as_str().unwrap_or_default().contains("etc"), "{seen}");
}

#[test]
fn nothing_of_ours_is_inherited() {
    // S-ENV-1
    let program = program("evil");
    let mut command = sandbox(&["--env", "MODE=test"], &[program.to_str().unwrap(), "environment"]);
    command.env("AWS_SECRET_ACCESS_KEY", "hunter2").env("SSH_AUTH_SOCK", "/tmp/agent");
    let output = command.output().unwrap();
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut names: Vec<&str> =
        seen["seen"].as_str().unwrap().lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    names.sort_unstable();
    assert_eq!(names, ["HOME", "LANG", "MODE", "PATH", "TMPDIR"]);
    assert_eq!(worked(&[], &["descriptors"]), "[0, 1, 2]");
}

#[test]
fn resources_are_bounded() {
    // S-PROC-1
    let doctor = diagnosis();
    let bounded =
        doctor["facilities"].as_array().unwrap().iter().any(|f| f["name"] == "cgroup" && f["status"] == "ok");
    let filled: u64 = worked(&[], &["fill", "/tmp/full"]).parse().unwrap();
    assert!(filled <= 64, "{filled} MiB in /tmp");
    if !bounded {
        // Where no group can be made, that must be said; there is nothing else to hold it to.
        let facilities = doctor["facilities"].as_array().unwrap();
        let cgroup = facilities.iter().find(|facility| facility["name"] == "cgroup").unwrap();
        assert_eq!((&cgroup["status"], &doctor["verdict"]), (&json!("degraded"), &json!("degraded")));
        assert!(cgroup["fix"].as_str().is_some_and(|fix| !fix.is_empty()), "{cgroup}");
        return;
    }
    let program = program("evil");
    let forks: u64 =
        worked(&["--pids", "16", "--exec", program.to_str().unwrap()], &["forks", "200"]).parse().unwrap();
    assert!(forks < 16, "{forks}");
    let output =
        sandbox(&["--memory", "64"], &[program.to_str().unwrap(), "allocate", "2000"]).output().unwrap();
    assert!(!output.status.success() || String::from_utf8_lossy(&output.stdout).contains("\"worked\":false"));
}

#[test]
fn what_leaves_its_parents_behind_ends_with_the_launcher_all_the_same() {
    // S-PROC-2
    let dir = folder();
    let marker = dir.path().join("here");
    let program = program("evil");
    let rw = ["--rw", dir.path().to_str().unwrap()];
    let mut child = sandbox(&rw, &[program.to_str().unwrap(), "linger", marker.to_str().unwrap()])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    eventually("the program to leave its parents behind", || marker.exists().then_some(()));
    let needle = marker.to_str().unwrap().to_owned();
    assert!(processes_with(&needle) >= 2);
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("everything to end", || (processes_with(&needle) == 0).then_some(()));
}

/// How many processes have this among their arguments.
fn processes_with(needle: &str) -> usize {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(needle)).count()
}

#[test]
fn a_scope_that_cannot_be_shown_as_declared_starts_nothing() {
    // S-FS-3: the self-test and the launcher fail closed, and say which facility it was.
    let missing = sandbox(&["--ro", "/does/not/exist"], &["/bin/true"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(7));
    for path in ["/", "/proc"] {
        let output = sandbox(&["--ro", path], &["/usr/bin/id"]).output().unwrap();
        assert_eq!(output.status.code(), Some(5), "{path}");
        assert!(output.stdout.is_empty(), "{path}");
    }
}

#[test]
fn exit_codes_and_streams_are_the_programs_own() {
    let sh = fs::canonicalize("/bin/sh").unwrap();
    let run = |script: &str| sandbox(&[], &[sh.to_str().unwrap(), "-c", script]).output().unwrap();
    let output = run("echo out; echo err >&2; exit 42");
    assert_eq!(output.status.code(), Some(42));
    assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b"out\n"[..], &b"err\n"[..]));
    assert_eq!(run("kill -9 $$").status.code(), Some(137));
}

fn diagnosis() -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis"));
    let output = command.args(["--output", "json", "sandbox", "doctor"]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_doctor_says_what_this_machine_can_do() {
    // SBX-70, SBX-72
    let found = diagnosis();
    assert_ne!(found["verdict"], "blocked", "{found}");
    let names: Vec<&str> = found["facilities"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|facility| facility["name"].as_str())
        .collect();
    for name in
        ["userns", "mountns", "pidns", "netns", "proc", "landlock", "seccomp", "cgroup", "uid_separation"]
    {
        assert!(names.contains(&name), "{name}");
    }
    assert!(found["backend"].as_str().is_some_and(|backend| backend.contains("namespaces")), "{found}");
    assert!(["dedicated-uid", "same-uid"].contains(&found["separation"].as_str().unwrap()), "{found}");
    assert!(Path::new("/var/tmp").read_dir().unwrap().flatten().all(|entry| {
        !entry.file_name().to_string_lossy().starts_with(&format!("portcullis-canary-{}", std::process::id()))
    }));
}

#[test]
fn a_layer_that_is_left_out_is_noticed_before_the_program_runs() {
    // SBX-40, SBX-41, S-ST-1: each layer by itself, in a build that can leave it out.
    let dir = folder();
    let marker = dir.path().join("ran");
    let program = program("evil");
    let rw = ["--rw", dir.path().to_str().unwrap()];
    let act = [program.to_str().unwrap(), "write", marker.to_str().unwrap()];
    for (failpoint, facility) in [
        ("sandbox.sabotage_mounts", "view"),
        ("sandbox.sabotage_network", "netns"),
        ("sandbox.sabotage_limits", "limits"),
        ("sandbox.sabotage_landlock", "landlock"),
        ("sandbox.sabotage_seccomp", "seccomp"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis"));
        command.args(["--output", "json", "sandbox", "run"]).args(rw).arg("--").args(act);
        command.env("PORTCULLIS_FAILPOINTS", format!("{failpoint}=err(EIO)")).stdin(Stdio::null());
        let output = command.output().unwrap();
        let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        assert_eq!(said["error"]["details"]["facility"], facility, "{failpoint}: {output:?}");
        assert_eq!(said["error"]["details"]["code"], "MP-FH-007", "{failpoint}: {said}");
        assert!(!marker.exists(), "{failpoint}: it ran");
    }
    assert_eq!(worked(&rw, &act[1..]), "");
    assert!(marker.exists());
}

#[test]
fn what_a_program_writes_never_takes_on_the_rights_of_its_owner() {
    // SBX-34: the owner is whoever runs the gateway, and the file lies on the host.
    let dir = folder();
    let file = dir.path().join("tool");
    let rw = ["--rw", dir.path().to_str().unwrap()];
    refused(&rw, &["borrow", file.to_str().unwrap()], &[EPERM]);
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o6000, 0, "{mode:o}");
    worked(&rw, &["chmod", file.to_str().unwrap()]);
}

#[test]
fn descriptors_that_somebody_left_open_reach_nobody() {
    // SBX-20, SBX-40, S-ENV-1: whoever starts us may leave any number open.
    let dir = folder();
    let secret = dir.path().join("secret");
    fs::write(&secret, "hunter2").unwrap();
    let line = format!(
        "for fd in 3 4 5 6 7 8 9; do eval \"exec $fd<'{}'\"; done; exec '{}' sandbox run -- '{}' descriptors",
        secret.display(),
        env!("CARGO_BIN_EXE_portcullis"),
        program("evil").display()
    );
    let output = Command::new("/bin/sh").args(["-c", &line]).stdin(Stdio::null()).output().unwrap();
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    assert_eq!(seen["seen"], "[0, 1, 2]", "{output:?}");
}
