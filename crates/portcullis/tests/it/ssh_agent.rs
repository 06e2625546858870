//! Operators whose ssh-agent signs what they ask for (GOV-104), with a real one.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::approvals::enrol;
use crate::support::{Home, Spy, eventually};

const WITH_KEYS: &str = "[approvals]\nwait = \"300ms\"\n[operator]\nauth = [\"ssh-agent\"]\n";

/// An agent with a key of its own.
struct Agent {
    process: Child,
    socket: PathBuf,
    key: PathBuf,
}

impl Agent {
    fn with_key(home: &Home, name: &str) -> Self {
        let (socket, key) = (home.beside(&format!("{name}.sock")), home.beside(&format!("{name}.key")));
        let process = process_of(Command::new("ssh-agent").arg("-D").arg("-a").arg(&socket));
        let agent = Self { process, socket, key };
        eventually("the agent to listen", || agent.socket.exists().then_some(()));
        let made =
            Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&agent.key).status();
        assert!(made.unwrap().success());
        assert!(agent.add());
        agent
    }

    fn add(&self) -> bool {
        let mut add = Command::new("ssh-add");
        add.arg("-q").arg(&self.key).env("SSH_AUTH_SOCK", &self.socket).stdin(Stdio::null());
        add.status().unwrap().success()
    }

    fn public(&self) -> String {
        format!("{}.pub", self.key.display())
    }
}

fn process_of(command: &mut Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs a command as an operator with this agent.
fn signed(home: &Home, agent: &Agent, who: &str, args: &[&str]) -> (i32, Value) {
    let mut command = home.command();
    command.args(["--output", "json", "--operator", who]).args(args).env("SSH_AUTH_SOCK", &agent.socket);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let document = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.code().unwrap(), document)
}

#[test]
fn an_operator_proves_who_it_is_with_a_key_in_its_ssh_agent() {
    // GOV-104
    let home = Home::new(WITH_KEYS);
    let (ana, eve) = (Agent::with_key(&home, "ana"), Agent::with_key(&home, "eve"));
    let rsa = home.beside("rsa");
    let made =
        Command::new("ssh-keygen").args(["-q", "-t", "rsa", "-b", "2048", "-N", "", "-f"]).arg(&rsa).status();
    assert!(made.unwrap().success());
    let refused = home.fails(&["operator", "enrol", "ana", "--ssh-key", &format!("{}.pub", rsa.display())]);
    assert_eq!((refused.0, &refused.1["field"]), (7, &json!("ssh-key")), "{refused:?}");
    let private = home.fails(&["operator", "enrol", "ana", "--ssh-key", ana.key.to_str().unwrap()]);
    assert_eq!(private.0, 7, "the private half is nobody's business: {private:?}");
    let enrolled = home.json(&["operator", "enrol", "ana", "--ssh-key", &ana.public()]);
    assert!(enrolled["ssh_key"].as_str().unwrap().starts_with("ssh-ed25519 "), "{enrolled}");

    // Without a running gateway, and through one.
    let spy = Spy::new(&home);
    let file = home.beside("spy.yaml");
    fs::write(&file, spy.declaration()).unwrap();
    let add = spy.add_args(&file);
    let add: Vec<&str> = add.iter().map(String::as_str).collect();
    assert_eq!(home.fails(&add).0, 6, "no agent, no operator");
    assert_eq!(signed(&home, &eve, "ana", &add).0, 6, "the agent has another key");
    assert_eq!(signed(&home, &eve, "eve", &add).0, 6, "nobody enrolled it");
    assert_eq!(home.json(&["mcp", "list"]), json!([]));
    let (exit, record) = signed(&home, &ana, "ana", &add);
    assert_eq!((exit, &record["registered_by"]), (0, &json!("operator:ana")), "{record}");
    let daemon = home.serve();
    let waiting = daemon.call("spy__echo", &json!({"text": "a"})).unwrap();
    let id = waiting["error"]["data"]["details"]["approval_id"].as_str().unwrap().to_owned();
    let grant = ["approve", "grant", id.as_str(), "--reason", "mine", "--yes"];
    assert_eq!(home.fails(&grant).0, 6);
    assert_eq!(signed(&home, &eve, "ana", &grant).0, 6);
    let (exit, granted) = signed(&home, &ana, "ana", &grant);
    assert_eq!((exit, &granted["decisions"][0]["method"]), (0, &json!("ssh-agent")), "{granted}");
    assert!(daemon.call("spy__echo", &json!({"text": "a"})).unwrap()["result"].is_object());

    // Another operator, enrolled by the first; after a restart both are known.
    let (exit, _) = signed(&home, &ana, "ana", &["operator", "enrol", "eve", "--ssh-key", &eve.public()]);
    assert_eq!(exit, 0);
    daemon.stop();
    let daemon = home.serve();
    assert_eq!(signed(&home, &eve, "eve", &["key", "create", "ci"]).0, 0);
    let (exit, _) = signed(&home, &ana, "ana", &["operator", "remove", "eve", "--reason", "left"]);
    assert_eq!((exit, signed(&home, &eve, "eve", &["key", "create", "ide"]).0), (0, 6));
    daemon.stop();
    let failed = home.events("operator.auth_failed");
    assert!(failed.iter().all(|event| event["data"]["method"] == "ssh-agent"), "{failed:?}");
    assert_eq!(spy.calls(), 1);
    home.verify();
}

/// One line to the operator socket, and one back.
fn say(stream: &mut UnixStream, message: &Value) {
    stream.write_all(format!("{message}\n").as_bytes()).unwrap();
}

#[test]
fn a_signature_is_good_for_nothing_but_what_it_was_made_for() {
    // GOV-104: five wrong ones lock the method, and passphrases are another one.
    let home = Home::new("[operator]\nauth = [\"ssh-agent\", \"passphrase\"]\n");
    let ana = Agent::with_key(&home, "ana");
    home.json(&["operator", "enrol", "ana", "--ssh-key", &ana.public()]);
    let daemon = home.serve();
    let request = json!({"do": "key_create", "agent": "ci", "grants": [], "lifetime": null});
    let answer = |challenge: bool, signature: &[u8]| -> Value {
        let mut stream = UnixStream::connect(home.path().join("run/operator.sock")).unwrap();
        if challenge {
            say(&mut stream, &json!({"challenge_for": "ana"}));
        }
        let credential = json!({"signature": {"name": "ana", "signature": signature}});
        say(&mut stream, &json!({"credential": credential, "request": request}));
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let last = text.lines().last().unwrap_or_default();
        serde_json::from_str(last).unwrap_or_else(|_| panic!("{text}"))
    };
    for (challenge, signature) in [(false, &b""[..]), (true, b""), (true, &[0; 83]), (false, &[0; 83])] {
        let refused = answer(challenge, signature);
        assert!(refused.to_string().contains("not signed with the key"), "{refused}");
    }
    assert_eq!(signed(&home, &ana, "ana", &["key", "create", "one"]).0, 0);
    assert!(answer(true, b"x").to_string().contains("not signed with the key"));
    let (exit, locked) = signed(&home, &ana, "ana", &["key", "create", "two"]);
    assert!(exit == 6 && locked.to_string().contains("too many failures"), "{locked}");
    daemon.stop();
    assert_eq!(home.events("operator.auth_failed").len(), 6);
    assert_eq!(home.json(&["key", "list"]).as_array().unwrap().len(), 1);
}

#[test]
fn an_operator_may_have_both_a_passphrase_and_a_key() {
    // GOV-104
    let home = Home::new("[operator]\nauth = [\"passphrase\", \"ssh-agent\", \"uid\"]\n");
    let ana = Agent::with_key(&home, "ana");
    enrol(&home, "ana", "ana likes quiet gates");
    home.json(&["operator", "enrol", "ana", "--ssh-key", &ana.public()]);
    let listed = home.json(&["operator", "list"]);
    assert!(listed[0]["ssh_key"].is_string() && listed[0]["verifier_sha256"].is_string(), "{listed}");
    let text = String::from_utf8(home.run(&["operator", "list"]).stdout).unwrap();
    assert!(text.contains("passphrase, ssh-agent"), "{text}");
    let (exit, created) = signed(&home, &ana, "ana", &["key", "create", "ci"]);
    assert_eq!(exit, 0, "{created}");
    assert_eq!(home.events("credential.stored")[0]["actor"]["id"], "ana");
}
