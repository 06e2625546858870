//! The MCP edge: two eras, two transports, and requests that are not ours.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::{Daemon, Home, eventually, guarded_spy, modern_meta};

fn initialize(daemon: &Daemon, version: &str) -> (Value, String) {
    let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}});
    let reply = daemon
        .post(&[], &json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}))
        .unwrap();
    let session = reply.header("mcp-session-id").unwrap().to_owned();
    (reply.json()["result"].clone(), session)
}

#[test]
fn a_legacy_client_gets_a_session_and_governed_calls() {
    // PRO-1, PRO-4, PRO-33, PRO-60
    let (home, spy) = guarded_spy("");
    let daemon = home.serve();
    assert_eq!(initialize(&daemon, "2025-11-25").0["protocolVersion"], "2025-11-25");
    assert_eq!(initialize(&daemon, "2024-11-05").0["protocolVersion"], "2024-11-05");
    let (result, session) = initialize(&daemon, "1999-01-01");
    assert_eq!(result["protocolVersion"], "2025-11-25");
    assert_eq!(result["serverInfo"]["name"], "portcullis");
    let headers = [("Mcp-Session-Id", session.as_str())];
    let note = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(daemon.post(&headers, &note).unwrap().status, 202);
    let ask = |method: &str, params: Value| {
        daemon
            .post(&headers, &json!({"jsonrpc": "2.0", "id": "a", "method": method, "params": params}))
            .unwrap()
    };
    assert_eq!(ask("ping", json!({})).json()["result"], json!({}));
    let tools = ask("tools/list", json!({})).json();
    assert_eq!(tools["result"]["tools"].as_array().unwrap().len(), 9, "{tools}");
    assert!(tools["result"].get("resultType").is_none() && tools["result"].get("ttlMs").is_none());
    assert_eq!(tools["result"]["_meta"]["io.portcullis/servers"]["spy"]["status"], "ok");
    assert_eq!(ask("resources/subscribe", json!({"uri": "x:y"})).json()["error"]["code"], -32601);
    let called = std::thread::scope(|scope| {
        let call =
            scope.spawn(|| ask("tools/call", json!({"name": "spy__echo", "arguments": {"text": "x"}})));
        home.grant_next("once");
        call.join().unwrap().json()
    });
    assert_eq!(called["result"]["structuredContent"]["text"], "x", "{called}");
    assert!(called["result"].get("resultType").is_none());
    // A session ends when told to, and an unknown one is 404.
    assert_eq!(daemon.http("DELETE", "/mcp", &headers, "").unwrap().status, 204);
    assert_eq!(ask("ping", json!({})).status, 404);
    assert_eq!(daemon.post(&[], &json!({"jsonrpc": "2.0", "id": 1, "method": "ping"})).unwrap().status, 400);
    assert_eq!(spy.calls(), 1);
}

#[test]
fn a_modern_client_needs_no_session_and_headers_must_agree_with_the_body() {
    // PRO-1, PRO-61
    let (home, _spy) = guarded_spy("");
    let daemon = home.serve();
    let request =
        |method: &str, params: Value| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let headers = |method: &'static str| vec![("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", method)];
    let found = daemon
        .post(&headers("server/discover"), &request("server/discover", json!({"_meta": modern_meta()})))
        .unwrap();
    assert_eq!(found.json()["result"]["resultType"], "complete");
    assert!(found.json()["result"]["supportedVersions"].as_array().unwrap().contains(&json!("2026-07-28")));
    let tools = daemon
        .post(&headers("tools/list"), &request("tools/list", json!({"_meta": modern_meta()})))
        .unwrap()
        .json();
    assert_eq!(tools["result"]["cacheScope"], "private");
    assert_eq!(tools["result"]["resultType"], "complete");
    let tool =
        tools["result"]["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "spy__echo").unwrap();
    assert!(tool["_meta"]["io.portcullis/tool_id"].as_str().unwrap().starts_with("spy/echo@1.0.0#1:"));

    let refused = |headers: &[(&str, &str)], body: &Value, status: u16, code: i64| {
        let reply = daemon.post(headers, body).unwrap();
        assert_eq!(
            (reply.status, reply.json()["error"]["code"].as_i64()),
            (status, Some(code)),
            "{body}: {}",
            reply.body
        );
    };
    refused(&headers("tools/call"), &request("tools/list", json!({"_meta": modern_meta()})), 400, -32020);
    refused(
        &[("Mcp-Method", "tools/list")],
        &request("tools/list", json!({"_meta": modern_meta()})),
        400,
        -32020,
    );
    refused(
        &headers("tools/call"),
        &request("tools/call", json!({"name": "spy__echo", "_meta": modern_meta()})),
        400,
        -32020,
    );
    refused(&headers("tools/list"), &request("tools/list", json!({})), 400, -32602);
    let future = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2099-01-01"}});
    refused(&headers("tools/list"), &request("tools/list", future.clone()), 400, -32020);
    let agreed = [("MCP-Protocol-Version", "2099-01-01"), ("Mcp-Method", "tools/list")];
    refused(&agreed, &request("tools/list", future), 400, -32022);
    refused(&headers("initialize"), &request("initialize", json!({"_meta": modern_meta()})), 404, -32601);
    refused(&headers("nonsense"), &request("nonsense", json!({"_meta": modern_meta()})), 404, -32601);
}

/// Opens the stream of an old client; the status, and the connection for as long as it is to last.
fn open_stream(daemon: &Daemon) -> (u16, TcpStream) {
    let mut stream = TcpStream::connect(&daemon.address).unwrap();
    let head = format!("GET /sse HTTP/1.1\r\nHost: {}\r\nAccept: text/event-stream\r\n\r\n", daemon.address);
    stream.write_all(head.as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(stream.try_clone().unwrap()).read_line(&mut line).unwrap();
    (line.split(' ').nth(1).unwrap().parse().unwrap(), stream)
}

#[test]
fn an_agent_has_as_many_streams_and_as_large_requests_as_its_operator_allows() {
    // PRO-31
    let (home, _spy) = guarded_spy("[gateway.http]\nstreams = 2\nbody_bytes = 65536\n");
    let daemon = home.serve();
    let first = open_stream(&daemon);
    let second = open_stream(&daemon);
    assert_eq!((first.0, second.0), (200, 200));
    assert_eq!(open_stream(&daemon).0, 429);
    // A call is answered all the same, as one document.
    daemon.list_tools();
    drop(first);
    eventually("the place to be free again", || (open_stream(&daemon).0 == 200).then_some(()));
    let long = json!({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": "x".repeat(70_000)}});
    let headers = [("Content-Type", "application/json")];
    assert_eq!(daemon.http("POST", "/mcp", &headers, &long.to_string()).unwrap().status, 413);
    drop(daemon);
    for (key, value) in [
        ("streams", "0"),
        ("body_bytes", "1"),
        ("header_bytes", "1"),
        ("read_timeout", "\"1h\""),
        ("idle_timeout", "\"25h\""),
    ] {
        let home = Home::new(&format!("[gateway.http]\n{key} = {value}\n"));
        let (exit, error) = home.fails(&["serve", "--listen", "127.0.0.1:0"]);
        assert_eq!((exit, &error["field"]), (7, &json!(format!("gateway.http.{key}"))), "{error}");
    }
}

#[test]
fn requests_from_elsewhere_and_malformed_ones_are_refused() {
    // PRO-31, PRO-32, and the first rows of the protocol's security list
    let (home, spy) = guarded_spy("");
    let daemon = home.serve();
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    let json_type = ("Content-Type", "application/json");
    for (headers, status) in [
        (vec![json_type, ("Origin", "https://evil.example")], 403),
        (vec![json_type, ("Host", "evil.example")], 403),
        (vec![json_type, ("Host", "localhost.evil.example:80")], 403),
        (vec![("Content-Type", "text/plain")], 415),
        (vec![json_type, ("Accept", "text/html")], 406),
        (vec![json_type, ("Origin", "http://localhost:3000")], 400),
    ] {
        assert_eq!(daemon.http("POST", "/mcp", &headers, &ping).unwrap().status, status, "{headers:?}");
    }
    for (body, code) in [
        ("[1", -32700),
        ("[]", -32600),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, -32600),
    ] {
        let reply = daemon.http("POST", "/mcp", &[json_type], body).unwrap();
        assert_eq!((reply.status, &reply.json()["error"]["code"]), (400, &json!(code)), "{body}");
    }
    assert_eq!(daemon.http("PUT", "/mcp", &[], "").unwrap().status, 405);
    assert_eq!(daemon.http("GET", "/mcp", &[], "").unwrap().status, 406);
    let events = ("Accept", "text/event-stream");
    assert_eq!(daemon.http("GET", "/mcp", &[events], "").unwrap().status, 400, "a stream is a session's");
    assert_eq!(daemon.http("GET", "/.well-known/oauth-protected-resource", &[], "").unwrap().status, 404);
    let large =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"x":"{}"}}}}"#, "x".repeat(5 << 20));
    // The gateway may close while we still write; either way nothing was taken.
    assert!(daemon.http("POST", "/mcp", &[json_type], &large).is_none_or(|reply| reply.status == 413));
    assert_eq!(daemon.http("GET", "/health", &[], "").unwrap().status, 200);
    assert_eq!(spy.calls(), 0);
}

#[test]
fn an_agent_on_stdio_is_served_by_the_running_gateway_or_by_its_own() {
    // PRO-30: nothing but messages on stdout, and the call under way is finished when stdin ends.
    let (home, spy) = guarded_spy("");
    let talk = || {
        let mut child = home
            .command()
            .args(["serve", "--stdio"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut ask = |message: Value| {
            writeln!(stdin, "{message}").unwrap();
            serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap()
        };
        let before = ask(json!({"jsonrpc": "2.0", "id": 0, "method": "tools/list"}));
        assert_eq!(before["error"]["code"], -32600, "{before}");
        let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let hello = ask(json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}));
        assert_eq!(hello["result"]["protocolVersion"], "2025-06-18");
        let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "spy__add", "arguments": {"a": 1, "b": 2}}});
        let answer = std::thread::scope(|scope| {
            let answer = scope.spawn(|| ask(call));
            home.grant_next("once");
            answer.join().unwrap()
        });
        assert_eq!(answer["result"]["content"][0]["text"], "3", "{answer}");
        drop(stdin);
        assert!(child.wait().unwrap().success());
    };
    talk();
    assert!(spy.processes().is_empty(), "a gateway of one's own takes its servers with it");
    let daemon = home.serve();
    talk();
    assert_eq!(spy.processes().len(), 1, "the running gateway keeps its servers");
    daemon.stop();
    assert_eq!(spy.calls(), 2);
    home.verify();
}

#[test]
fn one_connection_carries_many_callers_and_their_answers_do_not_mix() {
    let (home, spy) = guarded_spy("[policy]\npreset = \"observe\"\n");
    let daemon = home.serve();
    std::thread::scope(|scope| {
        let call = scope.spawn(|| daemon.call("spy__echo", &json!({"text": "first"})));
        home.grant_next("until-version-change");
        call.join().unwrap()
    });
    std::thread::scope(|scope| {
        for caller in 0..8 {
            let daemon = &daemon;
            scope.spawn(move || {
                for turn in 0..25 {
                    let text = format!("{caller}-{turn}");
                    let response = daemon.call("spy__echo", &json!({"text": text})).unwrap();
                    assert_eq!(response["result"]["structuredContent"]["text"], text.as_str(), "{response}");
                }
            });
        }
    });
    assert_eq!(spy.processes().len(), 1, "one process serves all");
    drop(daemon);
    assert_eq!(spy.calls(), 201);
    assert_eq!(home.events("execution.intent").len(), 201);
    assert_eq!(home.events("execution.result").len(), 201);
    home.verify();
}

#[test]
fn what_reaches_the_server_is_the_canonical_document_and_nothing_of_the_client() {
    // GOV-704, T-CAN-1: spy bytes = hashed bytes; client _meta and spacing do not pass.
    let (home, spy) = guarded_spy("");
    let daemon = home.serve();
    std::thread::scope(|scope| {
        let call = scope.spawn(|| daemon.call_text("spy__add", "{ \"b\" : 2.0,\n \"a\" : 1e0 }"));
        home.grant_next("once");
        call.join().unwrap()
    });
    let frames = spy.frames("tools/call");
    assert_eq!(frames.len(), 1);
    assert!(frames[0].contains(r#""arguments":{"a":1,"b":2}"#), "{}", frames[0]);
    assert!(!frames[0].contains("\"test\""), "the client's own name must not pass: {}", frames[0]);
}

#[test]
fn with_bare_names_tools_keep_their_servers_names_and_there_is_room_for_one_server() {
    // PRO-65
    let (home, spy) = guarded_spy("[gateway]\nnames = \"bare\"\n");
    let daemon = home.serve();
    let answer = daemon.approved_call(&home, "echo", &json!({"text": "x"})).unwrap();
    assert_eq!(answer["result"]["structuredContent"]["text"], "x", "{answer}");
    assert_eq!(daemon.call("spy__echo", &json!({"text": "x"})).unwrap()["error"]["code"], -32602);
    let file = home.beside("other.yaml");
    std::fs::write(&file, spy.declaration().replace("identity: spy", "identity: other")).unwrap();
    let args: Vec<String> =
        spy.add_args(&file).into_iter().map(|arg| if arg == "spy" { "other".into() } else { arg }).collect();
    let (exit, error) = home.fails(&args.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!((exit, &error["field"]), (1, &json!("gateway.names")), "{error}");
}
