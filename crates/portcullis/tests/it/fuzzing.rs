//! The doors, tried with what no client would send: HTTP and JSON-RPC that is nearly right (PRO §6).
//!
//! The cases are made from a seed, so that a failure can be had again: `PORTCULLIS_FUZZ_SEED`. They go on for a few seconds, or
//! for as long as `PORTCULLIS_SOAK_SECONDS` says; `cargo xtask test` says a minute.

#![allow(clippy::print_stdout, reason = "a failure is had again by its seed")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::support::{Operator, guarded_spy, modern_meta};

fn budget() -> Duration {
    let seconds = std::env::var("PORTCULLIS_SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(4))
}

/// Numbers that are the same for the same seed (xorshift64*).
struct Dice(u64);

impl Dice {
    fn new() -> Self {
        let seed = std::env::var("PORTCULLIS_FUZZ_SEED").ok().and_then(|text| text.parse().ok());
        let seed = seed.unwrap_or_else(|| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
            now.as_nanos() as u64 | 1
        });
        println!("PORTCULLIS_FUZZ_SEED={seed}");
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn one<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }
}

/// Pieces that parsers stumble over.
const PIECES: [&[u8]; 22] = [
    b"\"",
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b"\xff\xfe",
    b"\x00",
    b"{",
    b"}",
    b"[[[[[[[[[[[[[[[[",
    b"]]]]",
    b",",
    b":",
    b"null",
    b"-0",
    b"1e999999",
    b"99999999999999999999999999",
    b"\"id\":1,\"id\":2,",
    b"\"method\":\"tools/call\",",
    b"\"jsonrpc\":\"1.0\",",
    b"\"_meta\":{},",
    b"\r\n",
    b"\xe2\x80\xae",
];

/// A text with a few things wrong.
fn damaged(dice: &mut Dice, text: &[u8]) -> Vec<u8> {
    let mut text = text.to_vec();
    for _ in 0..=dice.below(4) {
        let at = dice.below(text.len());
        let to = (at + 1 + dice.below(12)).min(text.len());
        match dice.below(6) {
            0 => {
                if let Some(byte) = text.get_mut(at) {
                    *byte ^= 1 << dice.below(8);
                }
            }
            1 => drop(text.drain(at..to)),
            2 => {
                let copy = text[at..to].to_vec();
                text.splice(at..at, copy);
            }
            3 => text.truncate(at),
            _ => drop(text.splice(at..at, dice.one(&PIECES.map(|piece| piece)).iter().copied())),
        }
        if text.is_empty() {
            text.push(b' ');
        }
    }
    text
}

fn messages() -> Vec<Vec<u8>> {
    let call = |arguments: Value| json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "spy__echo", "arguments": arguments, "_meta": modern_meta()}});
    let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "f", "version": "1"}}});
    let listen = json!({"jsonrpc": "2.0", "id": 5, "method": "resources/read", "params": {"uri": "portcullis://spy/spy%3A%2F%2Freadme", "_meta": modern_meta()}});
    let list = |method: &str| json!({"jsonrpc": "2.0", "id": "a", "method": method, "params": {"cursor": "x", "_meta": modern_meta()}});
    let all = [
        initialize.clone(),
        call(json!({"text": "x"})),
        call(json!({"text": {"deep": [1, 2.5, null, "\u{e9}"]}})),
        list("tools/list"),
        list("server/discover"),
        list("prompts/get"),
        list("tasks/get"),
        listen,
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}),
        json!({"jsonrpc": "2.0", "id": "x", "result": {"action": "accept"}}),
        json!({"jsonrpc": "2.0", "id": "x", "error": {"code": -1, "message": "no"}}),
        json!([initialize, {"jsonrpc": "2.0", "id": 2, "method": "ping"}]),
    ];
    all.iter().map(|message| message.to_string().into_bytes()).collect()
}

/// One request, perhaps damaged in its head too, and whatever comes back.
fn knock(dice: &mut Dice, address: &str, body: &[u8]) -> Vec<u8> {
    let method = dice.one(&["POST", "POST", "POST", "POST", "GET", "DELETE", "PUT", "OPTIONS"]);
    let path = dice.one(&[
        "/mcp",
        "/mcp",
        "/mcp",
        "/mcp?mode=gateway",
        "/sse",
        "/messages?session=x",
        "/hooks/x",
        "/health",
        "/%2e%2e/mcp",
    ]);
    let mut head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
    );
    for header in [
        "MCP-Protocol-Version: 2026-07-28\r\n",
        "Mcp-Method: tools/call\r\n",
        "Mcp-Name: spy__echo\r\n",
        "Mcp-Session-Id: 0123456789abcdef0123456789abcdef\r\n",
        "Origin: http://evil.example\r\n",
        "Last-Event-ID: 0/0\r\n",
        "Authorization: Bearer x\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Expect: 100-continue\r\n",
    ] {
        if dice.below(3) == 0 {
            head += header;
        }
    }
    let length = if dice.below(8) == 0 { dice.below(1 << 20) } else { body.len() };
    head += &format!("Content-Length: {length}\r\nConnection: close\r\n\r\n");
    let mut text = head.into_bytes();
    if dice.below(4) == 0 {
        text = damaged(dice, &text);
    }
    text.extend_from_slice(body);
    let Ok(mut stream) = TcpStream::connect(address) else { return Vec::new() };
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let _ = stream.write_all(&text);
    let _ = stream.shutdown(Shutdown::Write);
    let mut reply = Vec::new();
    // A stream that stays open is as good an answer as any.
    let mut part = [0; 4096];
    while let Ok(read @ 1..) = stream.read(&mut part) {
        reply.extend_from_slice(&part[..read]);
        if reply.windows(17).any(|part| part == b"text/event-stream") || reply.len() > 1 << 20 {
            break;
        }
    }
    reply
}

#[test]
fn the_http_door_stands_whatever_knocks() {
    // PRO-31, PRO §6: malformed HTTP and JSON-RPC
    let (home, spy) = guarded_spy("[policy]\npreset = \"observe\"\n");
    let daemon = home.serve();
    let operator = Operator::on_duty(&home);
    let honest = Agent::open(&daemon, "2025-11-25");
    let is_well = |round: usize| {
        let echoed = honest.call("spy__echo", json!({"text": round.to_string()}));
        assert_eq!(echoed["result"]["structuredContent"]["text"], round.to_string(), "{echoed}");
    };
    is_well(0);
    let (mut dice, corpus, begun) = (Dice::new(), messages(), Instant::now());
    let mut rounds = 0;
    while begun.elapsed() < budget() {
        rounds += 1;
        let plain = &corpus[dice.below(corpus.len())];
        let body = damaged(&mut dice, plain);
        let reply = knock(&mut dice, &daemon.address, &body);
        let text = String::from_utf8_lossy(&reply);
        let status = text.split(' ').nth(1).unwrap_or_default();
        assert!(!matches!(status, "500" | "502" | "504"), "{text}\nto {:?}", String::from_utf8_lossy(&body));
        if let Some((head, document)) = text.split_once("\r\n\r\n")
            && head.to_ascii_lowercase().contains("content-type: application/json")
            && !document.is_empty()
        {
            // A request that forgot to hang up may have been taken for two.
            let first = serde_json::Deserializer::from_str(document).into_iter::<Value>().next();
            let answer = first.unwrap_or(Ok(Value::Null));
            assert!(answer.is_ok(), "{text}\nto {:?}", String::from_utf8_lossy(&body));
            assert!(!text.contains("internal error"), "{text}\nto {:?}", String::from_utf8_lossy(&body));
        }
        if rounds % 200 == 0 {
            is_well(rounds);
        }
    }
    assert!(rounds > 20, "nothing was tried");
    is_well(rounds);
    drop(operator);
    daemon.stop();
    // What reached the server was permitted, all of it.
    assert_eq!(spy.calls(), home.events("execution.intent").len());
    home.verify();
}

#[test]
fn the_stdio_door_answers_lines_with_lines() {
    // PRO-30: nothing else on stdout, whatever comes on stdin
    let (home, spy) = guarded_spy("[policy]\npreset = \"observe\"\n[approvals]\nwait = \"200ms\"\n");
    let mut command = home.command();
    let mut child = command
        .args(["serve", "--stdio"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let reading = std::thread::spawn(move || {
        let mut answers = 0;
        for line in stdout.lines() {
            let line = line.unwrap();
            let message: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("not JSON: {line:?}"));
            let whole = |message: &Value| message["jsonrpc"] == "2.0";
            assert!(
                whole(&message) || message.as_array().is_some_and(|batch| batch.iter().all(whole)),
                "{line}"
            );
            answers += 1;
        }
        answers
    });
    let (mut dice, corpus, begun) = (Dice::new(), messages(), Instant::now());
    while begun.elapsed() < budget() {
        let plain = &corpus[dice.below(corpus.len())];
        let mut line = if dice.below(5) == 0 { plain.clone() } else { damaged(&mut dice, plain) };
        line.retain(|byte| *byte != b'\n');
        line.push(b'\n');
        stdin.write_all(&line).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
    assert!(reading.join().unwrap() > 10, "nothing was answered");
    assert_eq!(spy.calls(), home.events("execution.intent").len());
    home.verify();
}
