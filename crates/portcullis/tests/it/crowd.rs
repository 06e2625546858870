//! Many clients and servers at once: nothing is mixed up, nothing is left behind (T-PRO-5, T-PRO-10).

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::agent::{Agent, REVISIONS};
use crate::support::{Daemon, Home, Operator, Spy, eventually, open_home};

const SERVERS: usize = 10;
const CLIENTS: usize = 200;

/// Short unless somebody wants it long: `PORTCULLIS_SOAK_SECONDS`. `cargo xtask test` wants a minute.
fn budget() -> Duration {
    let seconds = std::env::var("PORTCULLIS_SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(5))
}

/// A gateway with `count` servers of all revisions, each called once, so that everything that stays is there.
fn scene(count: usize) -> (Home, Vec<Spy>, Daemon) {
    let home = open_home();
    let spies: Vec<Spy> = (0..count)
        .map(|at| {
            let spy = Spy::speaking(&home, &format!("spy{at}"), REVISIONS[at % REVISIONS.len()]);
            spy.register(&home);
            spy
        })
        .collect();
    let daemon = home.serve();
    let operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2026-07-28");
    for at in 0..count {
        for (tool, arguments) in [("echo", json!({"text": "x"})), ("slow", json!({"ms": 2}))] {
            let called = agent.call(&format!("spy{at}__{tool}"), arguments);
            assert!(called.get("result").is_some(), "{called}");
        }
    }
    drop(operator);
    (home, spies, daemon)
}

/// What a gateway holds: open descriptors, children, threads, and its own memory in KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Holdings {
    descriptors: usize,
    children: usize,
    sessions: usize,
    resident: u64,
}

impl Holdings {
    fn of(home: &Home, daemon: &Daemon, spies: &[Spy]) -> Self {
        let proc = format!("/proc/{}", daemon.child.id());
        let status = fs::read_to_string(format!("{proc}/status")).unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident = resident.and_then(|text| text.trim().trim_end_matches(" kB").parse().ok()).unwrap();
        let sessions = home.json(&["session", "list"]);
        let live = sessions.as_array().unwrap().iter().filter(|session| session["state"] == "active").count();
        Self {
            descriptors: fs::read_dir(format!("{proc}/fd")).unwrap().count(),
            children: spies.iter().map(|spy| spy.processes().len()).sum(),
            sessions: live,
            resident,
        }
    }
}

#[test]
fn two_hundred_clients_of_ten_servers_leave_nothing_behind_and_hear_nothing_of_each_other() {
    // T-PRO-5, PRO-20, PRO-39
    let (home, spies, daemon) = scene(SERVERS);
    let before = Holdings::of(&home, &daemon, &spies);
    let (over, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (over, answered, daemon) = (&over, &answered, &daemon);
            scope.spawn(move || {
                let mut round = client;
                while !over.load(Ordering::Relaxed) {
                    one_visit(daemon, client, round, answered);
                    round += 1;
                }
            });
        }
        std::thread::sleep(budget());
        over.store(true, Ordering::Relaxed);
    });
    assert!(answered.load(Ordering::Relaxed) > CLIENTS as u64, "nothing was tested");
    let mut after = before;
    let settled = Instant::now();
    while settled.elapsed() < Duration::from_secs(25) {
        after = Holdings::of(&home, &daemon, &spies);
        let even = |one: Holdings| Holdings { resident: 0, ..one };
        if even(after) == even(before) {
            break;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    let counts = |one: Holdings| (one.descriptors, one.children, one.sessions);
    assert_eq!(counts(after), counts(before), "{before:?} {after:?}");
    // Memory that was used once is kept for the next time; what grows with every call is not.
    assert!(after.resident < before.resident + (96 << 10), "{before:?} {after:?}");
    daemon.stop();
    for spy in &spies {
        assert_eq!(spy.processes(), Vec::<u32>::new());
    }
    let report = home.json(&["audit", "verify", "--invariants"]);
    assert_eq!(report["ok"], true, "{report}");
}

/// One client comes, asks one server something only it would ask, and goes: politely, in the middle, or with a change of
/// mind.
fn one_visit(daemon: &Daemon, client: usize, round: usize, answered: &AtomicU64) {
    let revision = REVISIONS[(client + round) % REVISIONS.len()];
    let server = (client * 7 + round) % SERVERS;
    let agent = Agent::able(daemon, revision, json!({}));
    let text = format!("client {client}, round {round}");
    let params = json!({"name": format!("spy{server}__slow"), "arguments": {"ms": 400}});
    match round % 5 {
        // Hangs up: a modern call is cancelled by that, a legacy one goes on for nobody.
        3 => drop(agent.hang(900, "tools/call", params)),
        4 if !agent.is_modern() => {
            let waiting = agent.hang(901, "tools/call", params);
            agent.tell("notifications/cancelled", json!({"requestId": 901}));
            drop(waiting);
        }
        _ => {
            let called = agent.call(&format!("spy{server}__echo"), json!({"text": text}));
            match called.get("result") {
                Some(result) => {
                    assert_eq!(result["structuredContent"]["text"], text.as_str(), "somebody else's answer");
                    answered.fetch_add(1, Ordering::Relaxed);
                }
                // Too much at once is refused by name, never mixed up.
                None => assert!(called["error"]["code"].is_i64(), "{called}"),
            }
        }
    }
    if agent.session.is_some() {
        agent.send("DELETE", "/mcp", "", &[]);
    }
}

#[test]
fn sigterm_under_load_drains_and_leaves_no_child() {
    // T-PRO-10, PRO-39
    let (home, spies, mut daemon) = scene(3);
    let stop = AtomicBool::new(false);
    let status = std::thread::scope(|scope| {
        let answers: Vec<_> = (0..24)
            .map(|client| {
                let (stop, address) = (&stop, daemon.address.clone());
                scope.spawn(move || {
                    let mut whole = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let Some(answer) = call(&address, client % 3) else { break };
                        // Whatever came whole is an answer: a result, or a refusal that says why.
                        assert!(
                            answer.get("result").is_some() || answer["error"]["code"].is_i64(),
                            "{answer}"
                        );
                        whole += 1;
                    }
                    whole
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(700));
        Command::new("kill").arg(daemon.child.id().to_string()).status().unwrap();
        let status = eventually("the gateway to end", || daemon.child.try_wait().unwrap());
        stop.store(true, Ordering::Relaxed);
        let whole: u32 = answers.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert!(whole > 0, "nothing was tested");
        status
    });
    assert!(status.success(), "{status}");
    for spy in &spies {
        assert_eq!(spy.processes(), Vec::<u32>::new(), "a child was left behind");
    }
    // Nothing is left open: every intent has its end on record.
    let report = home.json(&["audit", "verify", "--invariants"]);
    assert_eq!(report["ok"], true, "{report}");
    let intents = home.events("execution.intent").len();
    let ends: usize = ["execution.result", "execution.cancelled", "execution.indeterminate"]
        .iter()
        .map(|name| home.events(name).len())
        .sum();
    assert_eq!(intents, ends);
}

#[test]
fn a_second_sigterm_does_not_wait() {
    // T-PRO-10
    let (home, spies, mut daemon) = scene(1);
    let agent = Agent::open(&daemon, "2025-11-25");
    let waiting = agent.hang(1, "tools/call", json!({"name": "spy0__slow", "arguments": {"ms": 60_000}}));
    eventually("the call to be under way", || (spies[0].frames("tools/call").len() == 3).then_some(()));
    let term = |pid: u32| Command::new("kill").arg(pid.to_string()).status().unwrap();
    term(daemon.child.id());
    std::thread::sleep(Duration::from_millis(300));
    assert!(daemon.child.try_wait().unwrap().is_none(), "it did not wait for the call");
    term(daemon.child.id());
    eventually("the gateway to end", || daemon.child.try_wait().unwrap());
    drop(waiting);
    eventually("no child to be left", || spies[0].processes().is_empty().then_some(()));
    home.verify();
}

/// One call on a connection of its own; `None` when the gateway is gone.
fn call(address: &str, server: usize) -> Option<Value> {
    let name = format!("spy{server}__slow");
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": name, "arguments": {"ms": 50}, "_meta": crate::support::modern_meta()},
    });
    let headers = [
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", &name),
    ];
    let reply = crate::support::exchange(address, "POST", "/mcp", &headers, &body.to_string())?;
    serde_json::from_str(&reply.body).ok()
}
