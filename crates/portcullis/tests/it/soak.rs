//! a gateway that is killed again and again under load, at no chosen moment.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Daemon, guarded_spy};

const CLIENTS: usize = 64;

/// Short unless somebody wants it long: `PORTCULLIS_SOAK_SECONDS`. `cargo xtask test` wants a minute.
fn budget() -> Duration {
    let seconds = std::env::var("PORTCULLIS_SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(6))
}

#[test]
fn killed_at_random_under_load_it_never_sends_twice_and_never_releases_what_it_did_not_record() {
    //
    let (home, spy) = guarded_spy("[policy]\npreset = \"observe\"\n[approvals]\nwait = \"20s\"\n");
    let daemon = home.serve();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| daemon.call("spy__echo", &json!({"text": "the first"})));
        home.grant_next("until-version-change");
        first.join().unwrap().unwrap();
    });
    daemon.stop();

    // What clients were given: the record each result says it stands on, and what they had asked for. No two calls ask for
    // the same, so that a frame that left twice could not pass for two calls.
    let released: Mutex<Vec<(String, String)>> = Mutex::default();
    let refused: Mutex<Value> = Mutex::default();
    let started = Instant::now();
    let mut kills = 0u64;
    while started.elapsed() < budget() {
        let mut daemon = home.serve();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (released, refused, daemon, stop) = (&released, &refused, &daemon, &stop);
            for client in 0..CLIENTS {
                scope.spawn(move || {
                    for n in 0.. {
                        if stop.load(Ordering::Relaxed) {
                            return;
                        }
                        let text = format!("round {kills}, client {client}, call {n}");
                        let Some(reply) = call(&daemon.address, &text) else { return };
                        let mark = &reply["result"]["_meta"]["io.portcullis/call"];
                        match mark["event"].as_str() {
                            Some(event) => {
                                assert_eq!(reply["result"]["structuredContent"]["text"], text, "{reply}");
                                released.lock().unwrap().push((event.to_owned(), text));
                            }
                            None => *refused.lock().unwrap() = reply,
                        }
                    }
                });
            }
            // Every other round is under way before its time begins; the others may die while they start.
            let before = released.lock().unwrap().len();
            let under_way = Instant::now();
            while kills % 2 == 1
                && released.lock().unwrap().len() == before
                && under_way.elapsed() < Duration::from_secs(10)
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            // Between 50 and 500 ms, by a digest of the count: no two rounds alike, and the same in every run.
            let digest = portcullis_core::Sha256Digest::of(&kills.to_be_bytes());
            let pause =
                50 + u64::from(u16::from_be_bytes([digest.as_bytes()[0], digest.as_bytes()[1]])) % 450;
            std::thread::sleep(Duration::from_millis(pause));
            rustix::process::kill_process(
                rustix::process::Pid::from_child(&daemon.child),
                rustix::process::Signal::KILL,
            )
            .unwrap();
            stop.store(true, Ordering::Relaxed);
        });
        daemon.wait_for_death();
        kills += 1;
        if kills.is_multiple_of(5) {
            home.verify();
        }
    }
    // One more start closes what the last kill left open.
    let daemon: Daemon = home.serve();
    daemon.stop();

    let report = home.json(&["audit", "verify", "--invariants", "--evidence"]);
    assert_eq!(report["ok"], true, "after {kills} kills: {report}");
    let log = home.log();
    let of = |name: &str| -> Vec<&Value> { log.iter().filter(|record| record["event"] == name).collect() };
    let (intents, results) = (of("execution.intent"), of("execution.result"));
    let frames = spy.frames("tools/call");
    assert!(frames.len() <= intents.len(), "{} frames for {} intents", frames.len(), intents.len());
    let mut sent: HashSet<String> = HashSet::new();
    for frame in &frames {
        let frame: Value = serde_json::from_str(frame).unwrap();
        let text = frame["params"]["arguments"]["text"].as_str().unwrap().to_owned();
        assert!(sent.insert(text), "sent twice: {frame}");
    }
    let recorded: HashSet<String> = (results.iter())
        .map(|record| format!("{}/{}", record["log"].as_str().unwrap(), record["seq"]))
        .collect();
    let released = released.lock().unwrap();
    for (event, text) in released.iter() {
        assert!(recorded.contains(event), "{event} was released and is not in the log");
        assert!(sent.contains(text), "{text}: answered and never asked");
    }
    let distinct: HashSet<&String> = released.iter().map(|(event, _)| event).collect();
    assert_eq!(distinct.len(), released.len(), "one result was released twice");
    assert!(
        kills >= 3 && !released.is_empty(),
        "{kills} kills, {} results: nothing was tested; the last refusal: {}",
        released.len(),
        refused.lock().unwrap()
    );
}

/// One call; `None` when the gateway is gone.
fn call(address: &str, text: &str) -> Option<Value> {
    use std::io::{Read as _, Write as _};
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "spy__echo", "arguments": {"text": text}, "_meta": crate::support::modern_meta()},
    })
    .to_string();
    let mut stream = std::net::TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\nAccept: \
         application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: \
         spy__echo\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body.as_bytes()).ok()?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).ok()?;
    serde_json::from_str(reply.split_once("\r\n\r\n")?.1).ok()
}
