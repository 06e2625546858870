//! What clients hear of unasked, and streams they can come back to (PRO-31, PRO-67, PRO-69).

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::agent::{Agent, REVISIONS};
use crate::support::{Daemon, Home, Operator, Spy, eventually, open_home};

/// A gateway with one spy, and another to come.
fn scene() -> (Home, Spy, Spy) {
    let home = open_home();
    let (first, second) =
        (Spy::speaking(&home, "spy-a", "2025-11-25"), Spy::speaking(&home, "spy-b", "2025-11-25"));
    first.register(&home);
    (home, first, second)
}

#[test]
fn an_accepted_change_is_announced_once_to_every_kind_of_client() {
    // PRO §3, CTX-94
    let (home, _first, second) = scene();
    let daemon = home.serve();
    let legacy: Vec<Agent> = REVISIONS[..4].iter().map(|revision| Agent::open(&daemon, revision)).collect();
    let standing: Vec<_> = legacy.iter().map(|agent| agent.send("GET", "/mcp", "", &[])).collect();
    assert!(standing.iter().all(|stream| stream.status == 200 && stream.streams()));
    let modern = Agent::open(&daemon, REVISIONS[4]);
    assert_eq!(modern.hello["capabilities"]["tools"]["listChanged"], true);
    let wish = |wish: &str| json!({"notifications": {wish: true, "x": 7}});
    let mut listening = modern.begin_as(41, "subscriptions/listen", wish("toolsListChanged"));
    let mut elsewhere = modern.begin_as(42, "subscriptions/listen", wish("nothingListChanged"));
    for (stream, id, agreed) in
        [(&mut listening, 41, json!({"toolsListChanged": true})), (&mut elsewhere, 42, json!({}))]
    {
        let first = stream.next().unwrap();
        assert_eq!(first["method"], "notifications/subscriptions/acknowledged", "{first}");
        let params = &first["params"];
        assert_eq!(params["_meta"]["io.modelcontextprotocol/subscriptionId"], id);
        assert_eq!(params["notifications"], agreed, "{first}");
    }

    second.register(&home);
    for mut stream in standing {
        for list in ["tools", "resources", "prompts"] {
            let method = format!("notifications/{list}/list_changed");
            assert_eq!(stream.next().unwrap(), json!({"jsonrpc": "2.0", "method": method}));
        }
    }
    let heard = listening.next().unwrap();
    assert_eq!(heard["method"], "notifications/tools/list_changed");
    assert_eq!(heard["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 41);
    // Halting changes no list, so nobody hears of it; ending says so to who asked to hear.
    home.json(&["mcp", "halt", "spy-b", "--reason", "a test"]);
    daemon.stop();
    for (mut stream, id) in [(listening, 41), (elsewhere, 42)] {
        let last = stream.next().unwrap();
        assert_eq!((&last["id"], &last["result"]["resultType"]), (&json!(id), &json!("complete")), "{last}");
        assert!(stream.next().is_none());
    }
}

#[test]
fn a_client_on_stdio_hears_of_changes_in_both_eras() {
    let (home, _first, second) = scene();
    let daemon = home.serve();
    drop(daemon);
    for modern in [false, true] {
        let mut child = home
            .command()
            .args(["serve", "--stdio"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut say = |message: Value| writeln!(input, "{message}").unwrap();
        let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
        if modern {
            let meta = crate::support::modern_meta();
            let params = json!({"_meta": meta, "notifications": {"toolsListChanged": true}});
            say(json!({"jsonrpc": "2.0", "id": "l", "method": "subscriptions/listen", "params": params}));
            assert_eq!(next()["method"], "notifications/subscriptions/acknowledged");
        } else {
            let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}});
            say(json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}));
            assert_eq!(next()["id"], 1);
            say(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
            say(json!({"jsonrpc": "2.0", "id": 2, "method": "ping"}));
            assert_eq!(next()["id"], 2);
        }
        if modern {
            home.json(&["mcp", "remove", "spy-b", "--reason", "a test"]);
        } else {
            second.register(&home);
        }
        assert_eq!(next()["method"], "notifications/tools/list_changed");
        drop(input);
        if modern {
            let last = next();
            assert_eq!((&last["id"], &last["result"]["resultType"]), (&json!("l"), &json!("complete")));
        }
        assert!(child.wait().unwrap().success(), "it ends with its input");
    }
}

#[test]
fn a_modern_client_ends_what_it_listens_to_with_a_notification_too() {
    // PRO-69, PRO-20
    let (home, _first, second) = scene();
    let daemon = home.serve();
    let agent = Agent::open(&daemon, "2026-07-28");
    let listen = |id: u64| {
        let mut stream =
            agent.begin_as(id, "subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
        assert_eq!(stream.next().unwrap()["method"], "notifications/subscriptions/acknowledged");
        stream
    };
    let cancel = |id: u64| agent.tell("notifications/cancelled", json!({"requestId": id}));
    let (mut ended, mut lasting) = (listen(71), listen(72));
    cancel(71);
    let last = ended.next().unwrap();
    assert_eq!((&last["id"], &last["result"]["resultType"]), (&json!(71), &json!("complete")), "{last}");
    assert_eq!(last["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 71);
    assert!(ended.next().is_none(), "and the stream is over");
    // Which of two is meant nobody can tell, so neither ends; nor does anything of what is not there.
    let mut twin = listen(72);
    cancel(72);
    cancel(73);
    second.register(&home);
    for stream in [&mut lasting, &mut twin] {
        assert_eq!(stream.next().unwrap()["method"], "notifications/tools/list_changed");
    }
}

#[test]
fn a_legacy_client_that_lost_its_stream_gets_the_rest_exactly_once() {
    // PRO-67, T-PRO-8
    let (home, first, _second) = scene();
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    for revision in &REVISIONS[..4] {
        let agent = Agent::open(&daemon, revision);
        let other = Agent::open(&daemon, revision);
        let params = json!({"name": "spy-a__slow", "arguments": {"ms": 700}, "_meta": {"progressToken": 1}});
        let calls = first.calls();
        let mut stream = agent.begin("tools/call", params);
        let progress = stream.next().unwrap();
        assert_eq!(progress["method"], "notifications/progress", "{revision}: {progress}");
        let last = stream.last_event.clone().expect("events have ids");
        drop(stream);
        let resume =
            |agent: &Agent, last: &str| agent.send("GET", "/mcp", "", &[("Last-Event-ID", last.into())]);
        // Hanging up did not cancel it, and nobody else's session knows the stream.
        assert_eq!(resume(&other, &last).status, 400, "{revision}");
        let rest: Vec<Value> = resume(&agent, &last).collect();
        assert_eq!(rest.len(), 1, "{revision}: {rest:?}");
        assert_eq!(rest[0]["result"]["content"][0]["text"], "done", "{revision}");
        assert_eq!(first.calls(), calls + 1, "it was asked for once");
        for unknown in ["", "9/9", "x", "1/999"] {
            assert_eq!(resume(&agent, unknown).status, 400, "{revision} {unknown:?}");
        }
        assert_eq!(agent.send("DELETE", "/mcp", "", &[]).status, 204);
        assert_eq!(resume(&agent, &last).status, 404);
    }
    drop(daemon);
    assert!(home.events("execution.cancelled").is_empty());
}

#[test]
fn an_answer_that_takes_its_time_comes_on_a_stream() {
    // PRO-31: what would sit silent for long can be kept alive and come back to
    let (home, _first, _second) = scene();
    let daemon = home.serve();
    for revision in ["2025-11-25", "2026-07-28"] {
        let agent = Agent::open(&daemon, revision);
        // It waits for an approval until its answer has turned into a stream.
        let params = json!({"name": "spy-a__echo", "arguments": {"text": revision}});
        let mut stream = agent.begin("tools/call", params);
        assert!(stream.streams(), "{revision}");
        home.grant_next("once");
        let answer = stream.next().unwrap();
        assert_eq!(answer["result"]["content"][0]["text"], revision, "{answer}");
        assert_eq!(stream.last_event.is_some(), revision != "2026-07-28");
    }
}

/// A client as it was in 2024: what it posts is answered on its stream.
struct OldClient<'d> {
    daemon: &'d Daemon,
    stream: crate::agent::Stream,
    address: String,
    agent: Agent,
}

impl<'d> OldClient<'d> {
    fn open(daemon: &'d Daemon) -> Self {
        // Only for its way of sending: it takes no part in the session.
        let mut agent = Agent::open(daemon, "2024-11-05");
        agent.session = None;
        let mut stream = agent.send("GET", "/sse", "", &[]);
        assert_eq!(stream.status, 200);
        let address = stream.first_data();
        assert!(address.starts_with("/messages?session="), "{address}");
        Self { daemon, stream, address, agent }
    }

    fn post(&self, message: &Value) -> u16 {
        self.agent.send("POST", &self.address, &message.to_string(), &[]).status
    }

    fn ask(&mut self, id: u64, method: &str, params: Value) -> Value {
        assert_eq!(self.post(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})), 202);
        let answer = self.stream.next().unwrap();
        assert_eq!(answer["id"], id, "{answer}");
        answer["result"].clone()
    }
}

#[test]
fn a_client_of_the_first_revision_is_served_on_its_own_two_endpoints() {
    // PRO-31
    let (home, first, second) = scene();
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let mut client = OldClient::open(&daemon);
    let hello = json!({"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}});
    assert_eq!(client.ask(1, "initialize", hello)["protocolVersion"], "2024-11-05");
    assert_eq!(client.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})), 202);
    assert_eq!(client.ask(2, "tools/list", json!({}))["tools"].as_array().unwrap().len(), 9);
    let called = client.ask(3, "tools/call", json!({"name": "spy-a__echo", "arguments": {"text": "old"}}));
    assert_eq!(called["content"][0]["text"], "old");
    second.register(&home);
    assert_eq!(client.stream.next().unwrap()["method"], "notifications/tools/list_changed");

    let agent = Agent::open(client.daemon, "2024-11-05");
    let ping = json!({"jsonrpc": "2.0", "id": 4, "method": "ping"}).to_string();
    for address in ["/messages", "/messages?session=", "/messages?session=00000000000000000000000000000000"] {
        assert_eq!(agent.send("POST", address, &ping, &[]).status, 404, "{address}");
    }
    assert_eq!(agent.send("GET", "/messages", "", &[]).status, 405);
    assert_eq!(agent.send("POST", "/sse", &ping, &[]).status, 405);
    let address = client.address.clone();
    drop(client);
    eventually("the end of the stream", || {
        (agent.send("POST", &address, &ping, &[]).status == 404).then_some(())
    });
    assert_eq!(first.calls(), 1);
}
