//! two gateways, one state, on a real Postgres. What an operator decides at one counts at the other, what is
//! allowed once happens once, and a replica that cannot ask refuses.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Daemon, Home, Spy, eventually};

/// A database server of its own, on a socket in a folder of its own. Ended when dropped.
struct Postgres {
    dir: TempDir,
    server: Option<Child>,
}

impl Postgres {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut postgres = Self { dir, server: None };
        if is_root() {
            chown(postgres.dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let made = as_nobody("initdb")
            .args([
                "--auth",
                "trust",
                "--username",
                "portcullis",
                "--no-sync",
                "--no-locale",
                "--encoding",
                "UTF8",
            ])
            .arg("-D")
            .arg(postgres.dir.path().join("data"))
            .output()
            .expect("THIS TEST NEEDS postgresql");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        postgres.run();
        postgres
    }

    fn run(&mut self) {
        let data = self.dir.path().join("data");
        let mut command = as_nobody("postgres");
        command.arg("-D").arg(data).arg("-k").arg(self.dir.path());
        command.args(["-c", "listen_addresses=", "-c", "fsync=off"]);
        self.server = Some(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        eventually("the database", || (self.ask("SELECT 1").as_deref() == Some("1")).then_some(()));
    }

    /// At once, whoever is connected.
    fn stop(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = Command::new("kill").args(["-INT", &server.id().to_string()]).status();
            let _ = server.wait();
        }
    }

    fn psql(&self, sql: &str) -> Command {
        let mut command = as_nobody("psql");
        command.arg("-h").arg(self.dir.path()).args(["-U", "portcullis", "-d", "postgres", "-At", "-c", sql]);
        command
    }

    fn ask(&self, sql: &str) -> Option<String> {
        let output = self.psql(sql).output().unwrap();
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    fn config(&self) -> String {
        let socket = self.dir.path().display();
        format!(
            "[state]\npostgres = \"postgres://portcullis@localhost/postgres?host={socket}\"\n[artifacts]\nallow_local = true\n[approvals]\nwait = \"1s\"\n"
        )
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Postgres does not run as root.
const NOBODY: u32 = 65534;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn as_nobody(program: &str) -> Command {
    // Debian has the server's programs beside no other.
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    folders.sort();
    let found = folders.iter().rev().map(|folder| folder.join(program)).find(|path| path.exists());
    let mut command = Command::new(found.unwrap_or_else(|| program.into()));
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command.current_dir("/");
    command
}

fn error_code(response: &Value) -> i64 {
    response["error"]["code"].as_i64().unwrap_or_default()
}

/// Calls, is told to ask an operator, and has one grant it.
fn approval(daemon: &Daemon, home: &Home, arguments: &Value) -> String {
    let response = daemon.call("spy__echo", arguments).unwrap();
    let id = response["error"]["data"]["details"]["approval_id"].as_str();
    let id = id.unwrap_or_else(|| panic!("{response}")).to_owned();
    home.json(&["approve", "grant", &id, "--scope", "once", "--reason", "test", "--yes"]);
    id
}

fn state_of(home: &Home, approval: &str) -> String {
    let list = home.json(&["approve", "list"]);
    let found = list.as_array().unwrap().iter().find(|one| one["approval_id"] == approval).cloned();
    found.map(|one| one["state"].as_str().unwrap_or_default().to_owned()).unwrap_or_default()
}

fn log_dir(home: &Home) -> PathBuf {
    let found =
        fs::read_dir(home.path().join("audit")).unwrap().flatten().find(|entry| entry.path().is_dir());
    found.unwrap().path()
}

/// Both logs and what they say together, by two readers.
fn verify_together(homes: [&Home; 2]) {
    let dirs = homes.map(log_dir);
    let [a, b] = [dirs[0].to_str().unwrap(), dirs[1].to_str().unwrap()];
    let report = homes[0].json(&["audit", "verify", "--dir", a, "--dir", b, "--invariants"]);
    assert!(report.as_array().unwrap().iter().all(|log| log["ok"] == true), "{report}");
    let second = Command::new(crate::support::program("auditck")).args([a, b]).output().unwrap();
    assert!(second.status.success(), "{}", String::from_utf8_lossy(&second.stdout));
}

#[test]
fn what_is_decided_at_one_replica_counts_at_the_other_and_once_is_once() {
    // A-20, AUD-68, GOV-1006
    let postgres = Postgres::start();
    let (first, second) = (Home::new(&postgres.config()), Home::new(&postgres.config()));
    let spy = Spy::new(&first);
    spy.register(&first);
    let (a, b) = (first.serve(), second.serve());
    assert_eq!(second.json(&["mcp", "list"]), first.json(&["mcp", "list"]), "both know what one registered");

    // Asked and granted at the first, used at the second.
    let arguments = json!({"text": "across"});
    let id = approval(&a, &first, &arguments);
    eventually("the grant to be known", || (state_of(&second, &id) == "approved").then_some(()));
    let response = b.call("spy__echo", &arguments).unwrap();
    assert_eq!(response["result"]["structuredContent"]["text"], "across", "{response}");
    let granted = &first.events("approval.recorded")[0];
    let cause = format!("{}/{}", granted["log"].as_str().unwrap(), granted["seq"]);
    let intent = &second.events("execution.intent")[0];
    assert_eq!(intent["refs"], json!([cause]), "{intent}");
    assert!(first.events("execution.intent").is_empty());
    // It is used up, here and there: before that is known there nothing is called with it, and then another is asked for.
    let early = a.call("spy__echo", &arguments).unwrap();
    assert!(early["error"].is_object() && early.get("result").is_none(), "{early}");
    eventually("its use to be known", || (state_of(&first, &id) != "approved").then_some(()));
    let again = a.call("spy__echo", &arguments).unwrap();
    assert_eq!(again["error"]["data"]["error"], "AUTH_REQUIRED", "{again}");
    assert_ne!(again["error"]["data"]["details"]["approval_id"], json!(id), "{again}");
    assert_eq!(spy.calls(), 1);

    // Many at once, at both.
    let arguments = json!({"text": "race"});
    let id = approval(&b, &second, &arguments);
    eventually("the grant to be known", || (state_of(&first, &id) == "approved").then_some(()));
    let won: usize = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..8)
            .map(|n| {
                let (daemon, arguments) = (if n % 2 == 0 { &a } else { &b }, &arguments);
                scope.spawn(move || daemon.call("spy__echo", arguments).unwrap())
            })
            .collect();
        calls.into_iter().map(|call| usize::from(call.join().unwrap()["result"].is_object())).sum()
    });
    assert_eq!((won, spy.calls()), (1, 2), "what is allowed once happens once");

    // A halt at one stops the other, and is named as the cause when somebody there ends it.
    first.json(&["mcp", "halt", "spy", "--reason", "looks odd"]);
    eventually("the halt to be known", || {
        let servers = second.json(&["mcp", "list"]);
        servers.to_string().contains("halted").then_some(())
    });
    assert!(b.call("spy__echo", &arguments).unwrap()["error"].is_object());
    second.json(&["mcp", "resume", "spy", "--reason", "looked at"]);
    let halted = &first.events("server.halted")[0];
    let cause = format!("{}/{}", halted["log"].as_str().unwrap(), halted["seq"]);
    assert!(second.events("server.resumed")[0]["refs"].as_array().unwrap().contains(&json!(cause)));
    eventually("the resumption to be known", || {
        (!first.json(&["mcp", "list"]).to_string().contains("halted")).then_some(())
    });

    // A replica that starts again knows what the others did.
    let before = second.json(&["mcp", "list"]);
    b.stop();
    assert_eq!(second.json(&["mcp", "list"]), before);
    a.stop();
    verify_together([&first, &second]);
}

#[test]
fn a_replica_that_cannot_ask_refuses_and_tells_the_others_later() {
    // A-20, AUD-68, GOV-1006
    let mut postgres = Postgres::start();
    let (first, second) = (Home::new(&postgres.config()), Home::new(&postgres.config()));
    let spy = Spy::new(&first);
    spy.register(&first);
    let (a, b) = (first.serve(), second.serve());
    let arguments = json!({"text": "down"});
    let id = approval(&a, &first, &arguments);
    eventually("the grant to be known", || (state_of(&second, &id) == "approved").then_some(()));
    postgres.stop();
    let refused = eventually("the refusal", || {
        let response = b.call("spy__echo", &arguments).unwrap();
        (error_code(&response) == -31034).then_some(response)
    });
    assert!(!refused.to_string().contains("postgres"), "agents are told that, not where: {refused}");
    assert_eq!((error_code(&a.call("spy__echo", &arguments).unwrap()), spy.calls()), (-31034, 0));
    assert!(second.events("execution.intent").is_empty());
    // Soon it is known before anything is looked at, and why is on record.
    eventually("the refusal to be on record", || {
        b.call("spy__echo", &arguments).unwrap();
        let refused = second.events("proposal.refused");
        refused.last().filter(|last| last["data"]["error"] == "CONTROL_UNAVAILABLE").map(drop)
    });
    // What must not wait does not: it is on record here, and told when there is somebody to tell.
    first.json(&["mcp", "halt", "spy", "--reason", "cannot wait"]);
    assert_eq!(first.fails(&["mcp", "resume", "spy", "--reason", "needs the others"]).0, 5);
    postgres.run();
    eventually("the halt to be known", || {
        second.json(&["mcp", "list"]).to_string().contains("halted").then_some(())
    });
    first.json(&["mcp", "resume", "spy", "--reason", "over"]);
    eventually("calls to be taken again", || {
        let response = b.call("spy__echo", &arguments).unwrap();
        (error_code(&response) != -31034).then_some(())
    });
    a.stop();
    b.stop();
    verify_together([&first, &second]);
}

#[test]
fn what_could_not_be_told_blocks_that_object_until_it_is() {
    // AUD-68
    let postgres = Postgres::start();
    let (first, second) = (Home::new(&postgres.config()), Home::new(&postgres.config()));
    let spy = Spy::new(&first);
    spy.register(&first);
    let (mut a, b) = (first.serve(), second.serve());
    let response = a.call("spy__echo", &json!({"text": "stuck"})).unwrap();
    let id = response["error"]["data"]["details"]["approval_id"].as_str().unwrap().to_owned();
    eventually("the request to be known", || (state_of(&second, &id) == "pending").then_some(()));
    // Somebody holds what publishing needs, longer than anybody waits.
    let hold = "BEGIN; SELECT position FROM portcullis.counter FOR UPDATE; SELECT pg_sleep(600)";
    let mut holder = postgres.psql(hold).stdout(Stdio::null()).spawn().unwrap();
    eventually("the lock to be held", || {
        let sleeping = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        (postgres.ask(sleeping).as_deref() == Some("1")).then_some(())
    });
    first.json(&["approve", "grant", &id, "--scope", "once", "--reason", "test", "--yes"]);
    let (exit, error) = second.fails(&["approve", "deny", &id, "--reason", "too late"]);
    assert!(exit != 0 && error["message"].as_str().unwrap().contains("being changed by replica"), "{error}");
    // The replica dies before it could tell. Its log has the decision, and its next start tells.
    a.child.kill().unwrap();
    a.child.wait().unwrap();
    let ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    assert_eq!(postgres.ask(ended).as_deref(), Some("t"));
    holder.wait().unwrap();
    assert!(second.fails(&["approve", "deny", &id, "--reason", "still"]).0 != 0);
    let a = first.serve();
    eventually("the grant to be known", || (state_of(&second, &id) == "approved").then_some(()));
    let response = b.call("spy__echo", &json!({"text": "stuck"})).unwrap();
    assert_eq!(response["result"]["structuredContent"]["text"], "stuck", "{response}");
    a.stop();
    b.stop();
    verify_together([&first, &second]);
}

#[test]
fn a_copy_of_a_replica_is_refused_and_passwords_do_not_lie_in_the_configuration() {
    // AUD-68
    let postgres = Postgres::start();
    let home = Home::new(&postgres.config());
    let daemon = home.serve();
    let copy = Home::new(&postgres.config());
    copy_tree(&home.path(), &copy.path());
    let (exit, error) = copy.fails(&["mcp", "list"]);
    assert!(exit == 5 && error["message"].as_str().unwrap().contains("runs as replica"), "{error}");
    daemon.stop();
    copy.json(&["mcp", "list"]);

    let config = |line: &str| {
        fs::write(
            home.path().join("portcullis.toml"),
            format!("[artifacts]\nallow_local = true\n[state]\n{line}\n"),
        )
    };
    config("postgres = \"postgres://me:secret@db.example/x\"").unwrap();
    let (exit, error) = home.fails(&["mcp", "list"]);
    assert!(exit == 7 && !error.to_string().contains("secret"), "{error}");
    config("postgres = \"mysql://db.example/x\"").unwrap();
    assert_eq!(home.fails(&["mcp", "list"]).0, 7);
    let socket = postgres.dir.path().display();
    fs::write(home.beside("url"), format!("postgres://portcullis:secret@localhost/postgres?host={socket}\n"))
        .unwrap();
    config(&format!("postgres = \"file:{}\"", home.beside("url").display())).unwrap();
    home.json(&["mcp", "list"]);
}

/// Files and folders; a socket is nothing to copy.
fn copy_tree(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap().flatten() {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            fs::create_dir_all(&target).unwrap();
            fs::set_permissions(&target, fs::metadata(&path).unwrap().permissions()).unwrap();
            copy_tree(&path, &target);
        } else if kind.is_file() {
            fs::copy(&path, &target).unwrap();
        }
    }
}
