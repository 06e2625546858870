//! Real processes: this test binary, started again to play one role.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};

use portcullis_audit::{AuditLog, Event, EventName, RetentionClass, Role};
use portcullis_core::Actor;

use crate::home::{event, options_in};

/// A running role; killed when dropped.
pub(crate) struct Child {
    process: std::process::Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Child {
    /// Starts `role` on the home, with these failpoints armed.
    pub(crate) fn start(role: &str, home: &Path, failpoints: &str) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child::role", "--ignored", "--nocapture", "--test-threads=1"])
            .env("AUDIT_TEST_ROLE", role)
            .env("AUDIT_TEST_HOME", home)
            .env("PORTCULLIS_FAILPOINTS", failpoints)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Reads what it says until a line contains `text`, and returns that line from there on.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        for line in self.lines.by_ref() {
            let line = line.unwrap();
            if let Some(at) = line.find(text) {
                return line[at..].to_owned();
            }
        }
        panic!("the child ended without saying {text:?}");
    }

    /// Reads what it says until a line begins with one of the two.
    #[cfg(feature = "failpoints")]
    pub(crate) fn wait_for_either(&mut self, one: &str, other: &str) -> String {
        let found =
            self.lines.by_ref().map(Result::unwrap).find(|line| line.contains(one) || line.contains(other));
        found.expect("the child says one or the other")
    }

    pub(crate) fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Waits for its end; whether it was killed by a signal.
    #[cfg(feature = "failpoints")]
    pub(crate) fn was_killed(mut self) -> bool {
        std::os::unix::process::ExitStatusExt::signal(&self.process.wait().unwrap()).is_some()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The roles. Ignored as a test; run by [`Child::start`].
#[test]
#[ignore = "a role for other tests to start"]
#[allow(clippy::print_stdout)]
fn role() {
    let Ok(role) = std::env::var("AUDIT_TEST_ROLE") else { return };
    let home = std::env::var("AUDIT_TEST_HOME").unwrap();
    let mut options = options_in(Path::new(&home));
    if role == "hurry" {
        options.commit_timeout = std::time::Duration::from_millis(200);
    }
    let log = match AuditLog::open(options) {
        Ok(log) => log,
        Err(error) => return println!("open failed: {error}"),
    };
    match role.as_str() {
        // Waits less than the disk takes, and then for what it was not told.
        "hurry" => {
            let refused = log.commit_blocking(vec![event(1)]);
            println!("told: {}", refused.unwrap_err());
            while log.next_seq() < 2 {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            println!("landed, blocked: {}", log.blocked().is_some());
        }
        // Commits one event and holds the log until it is killed.
        "hold" => {
            log.commit_blocking(vec![event(1)]).unwrap();
            println!("holding");
            loop {
                std::thread::sleep(std::time::Duration::from_secs(60));
            }
        }
        // Commits until that fails, saying what was acknowledged.
        "commit" => {
            for n in 0..80 {
                match log.commit_blocking(vec![event(n), event(n)]) {
                    Ok(receipt) => println!("durable {}", receipt.seq),
                    Err(blocked) => {
                        println!("blocked {:?} then {:?}", blocked, log.commit_blocking(vec![event(n)]));
                        println!("health {:?} stats {:?}", log.health(), log.stats());
                        return;
                    }
                }
            }
            println!("done");
        }
        // One call: an intent with evidence, then a result.
        "call" => {
            let of = |name, role| {
                Event::new(name, &Actor::system()).evidence(role, RetentionClass::Standard, "bytes".into())
            };
            for (name, role) in
                [(EventName::ExecutionIntent, Role::Request), (EventName::ExecutionResult, Role::Response)]
            {
                match log.commit_blocking(vec![of(name, role)]) {
                    Ok(_) => println!("durable {name}"),
                    Err(blocked) => return println!("blocked {blocked}"),
                }
            }
        }
        other => panic!("no role {other}"),
    }
}
