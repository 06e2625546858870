//! Clients that keep the listener waiting: with heads, with bodies, with nothing, and with answers that they do not read
//! (PRO-31, T-PRO-6: slow loris). Nothing here looks at a clock: what must end is waited for, and what must stay is asked
//! after something else has ended.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use crate::support::{Daemon, guarded_spy};

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

fn connect(daemon: &Daemon) -> TcpStream {
    let stream = TcpStream::connect(&daemon.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

/// The head of a request with a body of so many bytes, whose connection is kept.
fn head(daemon: &Daemon, length: usize, more: &str) -> String {
    format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{more}",
        daemon.address
    )
}

/// Reads one answer; its status, or none if the connection ends.
fn answer(stream: &TcpStream) -> Option<u16> {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut line, mut length) = (String::new(), 0);
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let status = line.split(' ').nth(1).unwrap().parse().unwrap();
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        match line.trim_end().to_ascii_lowercase().split_once(": ") {
            Some(("content-length", value)) => length = value.parse().unwrap(),
            Some(_) => {}
            None => break,
        }
    }
    reader.read_exact(&mut vec![0; length]).ok()?;
    Some(status)
}

fn ask(daemon: &Daemon, mut stream: &TcpStream) -> Option<u16> {
    stream.write_all(format!("{}\r\n{PING}", head(daemon, PING.len(), "")).as_bytes()).ok()?;
    answer(stream)
}

/// Waits until the gateway hangs up without a word.
fn ended(mut stream: TcpStream) {
    let mut rest = Vec::new();
    // A reset is an end as well; silence for half a minute is not.
    match stream.read_to_end(&mut rest) {
        Ok(_) => assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest)),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
    }
}

#[test]
fn a_request_that_stops_arriving_ends_its_connection_and_an_idle_one_is_kept() {
    // PRO-31, T-PRO-6
    let (home, spy) = guarded_spy("[gateway.http]\nread_timeout = \"1s\"\n");
    let daemon = home.serve();
    // A ping outside any session is refused, and the connection is good for the next.
    let kept = connect(&daemon);
    assert_eq!(ask(&daemon, &kept), Some(400));
    // Nothing at all, half a head, a head that grows by a byte now and then, and half a body.
    let silent = connect(&daemon);
    let mut half = connect(&daemon);
    half.write_all(head(&daemon, PING.len(), "X-Sl").as_bytes()).unwrap();
    let mut dripping = connect(&daemon);
    dripping.write_all(head(&daemon, PING.len(), "X-Drip: ").as_bytes()).unwrap();
    let mut drops = dripping.try_clone().unwrap();
    let drip = std::thread::spawn(move || {
        while drops.write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    let mut body = connect(&daemon);
    body.write_all(format!("{}\r\n{}", head(&daemon, PING.len(), ""), &PING[..9]).as_bytes()).unwrap();
    ended(silent);
    ended(half);
    ended(dripping);
    drip.join().unwrap();
    assert_eq!(answer(&body), Some(408));
    // It was idle for longer than any of them was let wait.
    assert_eq!(ask(&daemon, &kept), Some(400), "a connection between two requests is another matter");
    daemon.stop();
    assert_eq!(spy.calls(), 0);
}

#[test]
fn an_idle_connection_is_kept_as_long_as_its_operator_says_and_a_stream_is_not_idle() {
    // PRO-31
    let (home, _spy) = guarded_spy("[gateway.http]\nidle_timeout = \"1s\"\n");
    let daemon = home.serve();
    let mut stream = connect(&daemon);
    let open = format!("GET /sse HTTP/1.1\r\nHost: {}\r\nAccept: text/event-stream\r\n\r\n", daemon.address);
    stream.write_all(open.as_bytes()).unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let address = loop {
        let line = lines.next().unwrap().unwrap();
        if let Some(address) = line.strip_prefix("data: ") {
            break address.to_owned();
        }
    };
    let idle = connect(&daemon);
    assert_eq!(ask(&daemon, &idle), Some(400));
    ended(idle);
    // The stream was there before, and nothing was said on it since.
    let hello = json!({"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}});
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello});
    let json_type = [("Content-Type", "application/json")];
    assert_eq!(daemon.http("POST", &address, &json_type, &hello.to_string()).unwrap().status, 202);
    assert!(lines.any(|line| line.unwrap().contains("2024-11-05")));
}

#[test]
fn a_head_is_as_large_as_its_operator_allows() {
    // PRO-31, T-PRO-6
    for (config, limit) in [("", 32 << 10), ("[gateway.http]\nheader_bytes = 8192\n", 8 << 10)] {
        let (home, _spy) = guarded_spy(config);
        let daemon = home.serve();
        for (size, status) in [(limit - 1_024, 400), (limit + 1_024, 431)] {
            let mut stream = connect(&daemon);
            let more = format!("X-Long: {}\r\n", "x".repeat(size));
            let text = format!("{}\r\n{PING}", head(&daemon, PING.len(), &more));
            stream.write_all(text.as_bytes()).unwrap();
            assert_eq!(answer(&stream), Some(status), "{config:?} {size}");
        }
    }
}

#[test]
fn an_answer_that_nobody_reads_does_not_hold_its_connection() {
    // PRO-31, T-PRO-6: slow loris the other way
    let (home, _spy) = guarded_spy("[gateway.http]\nread_timeout = \"1s\"\n");
    let daemon = home.serve();
    // More than the system keeps for both ends, asked for and never read.
    let body = json!({"jsonrpc": "2.0", "id": 8, "method": "tools/list", "params": {"_meta": crate::support::modern_meta()}}).to_string();
    let more = "Accept: application/json\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/list\r\n";
    let request = format!("{}\r\n{body}", head(&daemon, body.len(), more));
    let mut greedy = connect(&daemon);
    greedy.set_write_timeout(Some(Duration::from_secs(30))).unwrap();
    let error = loop {
        if let Err(error) = greedy.write_all(request.as_bytes()) {
            break error;
        }
    };
    let hung_up =
        matches!(error.kind(), std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe);
    assert!(hung_up, "{error}");
    daemon.list_tools();
}
