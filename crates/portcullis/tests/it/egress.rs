//! Servers that talk to others: through the gate, and how far that goes (SBX-45 to SBX-49, SBX-60).

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::support::{Daemon, Home, Spy, eventually};

/// A host on our own loopback that writes down what it is asked for.
struct Host {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Host {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let mut line = String::new();
                let _ = BufReader::new(&stream).read_line(&mut line);
                log.lock().unwrap().push(line.trim_end().to_owned());
                let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
            }
        });
        Self { port, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// A home whose spy may talk to `api.example`, which is our host.
fn scene(host: &Host, addrs: &str) -> (Home, Spy) {
    let home = Home::new("[sandbox.hosts]\n\"api.example\" = [\"127.0.0.1\"]\n");
    let spy = Spy::new(&home);
    let scope = format!(
        "scopes:\n  api: {{ kind: egress, host: api.example, port: {}, tls: none, addrs: [{addrs}] }}\n",
        host.port
    );
    let declaration = spy.declaration().replacen("scopes:\n", &scope, 1).replacen(
        "side_effects: []\n    scopes: []",
        "side_effects: [network]\n    unbound: true\n    scopes: [api]",
        1,
    );
    let file = home.beside("spy.yaml");
    fs::write(&file, declaration).unwrap();
    let args = spy.add_args(&file);
    home.json(&args.iter().map(String::as_str).collect::<Vec<_>>());
    (home, spy)
}

fn said(spy: &Spy) -> Vec<String> {
    let tried = spy.log_events("escape");
    tried.iter().map(|attempt| attempt["outcome"].as_str().unwrap().to_owned()).collect()
}

fn get(host: &Host, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: api.example:{}\r\n\r\n", host.port)
}

fn call(daemon: &Daemon, home: &Home, tool: &str, arguments: &Value) -> Value {
    daemon.approved_call(home, tool, arguments).unwrap()
}

#[test]
fn a_call_that_may_reach_a_host_does_and_it_is_on_record_under_its_permit() {
    // SBX-45, SBX-46, SBX-47, SBX-48, S-NET-2
    let host = Host::new();
    let (home, spy) = scene(&host, "127.0.0.1");
    let by_name = format!("api.example:{}", host.port);
    let through_proxy = format!("GET http://{by_name}/proxy HTTP/1.1\r\nHost: {by_name}\r\n\r\n");
    spy.control(
        &json!({"isolate": {"say": {by_name: get(&host, "/name"), "127.0.0.1:3128": through_proxy}}}),
    );
    let daemon = home.serve();
    let answer = call(&daemon, &home, "spy__echo", &json!({"text": "x"}));
    assert_eq!(answer["result"]["structuredContent"]["text"], "x", "{answer}");
    assert_eq!(said(&spy), ["HTTP/1.1 204 No Content", "HTTP/1.1 204 No Content"]);
    let mut asked = host.asked();
    asked.sort_unstable();
    assert_eq!(asked, ["GET /name HTTP/1.1", "GET /proxy HTTP/1.1"]);
    let allowed = eventually("both on record", || {
        let events = home.events("sandbox.egress_allowed");
        (events.len() == 2).then_some(events)
    });
    let permit = home.events("execution.intent")[0]["data"]["permit_id"].clone();
    assert!(allowed.iter().all(|event| event["data"]["permit_id"] == permit), "{allowed:?}");
    assert!(allowed.iter().all(|event| event["data"]["bytes_out"].as_u64() > Some(0)));

    // S-NET-5: a call of a tool that does not say it uses the network opens no door.
    let answer = call(&daemon, &home, "spy__add", &json!({"a": 1, "b": 2}));
    assert!(answer["result"].is_object(), "{answer}");
    assert_eq!(said(&spy)[2..], ["HTTP/1.1 403 Forbidden", "HTTP/1.1 403 Forbidden"]);
    assert_eq!(host.asked().len(), 2);
    assert_eq!(home.json(&["mcp", "list"])[0]["state"], "active");
    daemon.stop();
    assert_eq!(home.events("sandbox.egress_denied").len(), 2);
    home.verify();
}

#[test]
fn a_name_that_nobody_declared_does_not_exist_inside() {
    // S-NET-4
    let host = Host::new();
    let (home, spy) = scene(&host, "127.0.0.1");
    let long = format!("{}.exfiltrated.example:80", "a".repeat(60));
    spy.control(&json!({"isolate": {"connect": [long]}}));
    let daemon = home.serve();
    let answer = call(&daemon, &home, "spy__echo", &json!({"text": "x"}));
    assert!(answer["result"].is_object(), "{answer}");
    assert_eq!(said(&spy).len(), 1);
    assert_ne!(said(&spy)[0], "ok");
    daemon.stop();
    let denied = home.events("sandbox.dns_denied");
    assert!(denied[0]["data"]["name"].as_str().unwrap().ends_with(".exfiltrated.example"), "{denied:?}");
    assert_eq!(home.json(&["mcp", "list"])[0]["state"], "active");
}

#[test]
fn a_server_that_tries_another_host_is_ended_and_its_answer_withheld() {
    // SBX-46, SBX-60, SBX-63, MP-FH-008, S-NET-3
    let host = Host::new();
    for words in [
        "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned(),
        format!("CONNECT 127.0.0.1:{} HTTP/1.1\r\nHost: x\r\n\r\n", host.port),
        format!("GET http://api.example:{}/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", host.port),
    ] {
        let (home, spy) = scene(&host, "127.0.0.1");
        spy.control(&json!({"isolate": {"say": {"127.0.0.1:3128": words}}}));
        let daemon = home.serve();
        let answer = call(&daemon, &home, "spy__echo", &json!({"text": "secret of the server"}));
        let error = &answer["error"];
        assert_eq!(
            (&error["code"], &error["data"]["details"]["code"]),
            (&json!(-31008), &json!("MP-FH-008"))
        );
        assert!(!answer.to_string().contains("secret of the server"), "{answer}");
        eventually("the halt", || (home.json(&["mcp", "list"])[0]["state"] == "halted").then_some(()));
        eventually("its end", || spy.processes().is_empty().then_some(()));
        assert!(daemon.call("spy__echo", &json!({"text": "again"})).unwrap()["error"].is_object());
        daemon.stop();
        let denied = &home.events("sandbox.egress_denied")[0]["data"];
        let permit = &home.events("execution.intent")[0]["data"]["permit_id"];
        assert_eq!((&denied["violation"], &denied["permits"][0]), (&json!(true), permit));
        assert_eq!(home.events("mcp.scope_violation").len(), 1);
        assert_eq!(home.events("trust.violation").len(), 1, "trust is reset");
        home.verify();
    }
    assert!(host.asked().is_empty());
}

#[test]
fn a_declared_name_that_leads_to_this_machine_is_not_followed() {
    // SBX-46: an address that is not global must be declared.
    let host = Host::new();
    let (home, spy) = scene(&host, "10.0.0.7");
    let by_name = format!("api.example:{}", host.port);
    spy.control(&json!({"isolate": {"say": {by_name: get(&host, "/")}}}));
    let daemon = home.serve();
    let answer = call(&daemon, &home, "spy__echo", &json!({"text": "x"}));
    assert_eq!(answer["error"]["data"]["details"]["code"], "MP-FH-008", "{answer}");
    daemon.stop();
    assert!(host.asked().is_empty());
}

#[test]
fn policy_closes_every_way_out_whatever_was_declared() {
    // SBX-10: of processes that run already, too, and after a restart.
    let host = Host::new();
    let (home, spy) = scene(&host, "127.0.0.1");
    let by_name = format!("api.example:{}", host.port);
    spy.control(&json!({"isolate": {"say": {by_name: get(&host, "/name")}}}));
    let mut daemon = home.serve();
    call(&daemon, &home, "spy__echo", &json!({"text": "before"}));
    assert_eq!(host.asked().len(), 1);
    let apply = |denied: bool| {
        let folder = home.beside(&format!("policy-{denied}"));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("settings.toml"), format!("[isolation]\ndeny_egress = {denied}\n")).unwrap();
        home.json(&["policy", "apply", folder.to_str().unwrap(), "--reason", "a test"]);
    };
    apply(true);
    call(&daemon, &home, "spy__echo", &json!({"text": "closed"}));
    daemon.stop();
    daemon = home.serve();
    call(&daemon, &home, "spy__echo", &json!({"text": "still closed"}));
    assert_eq!(host.asked().len(), 1, "{:?}", host.asked());
    assert_eq!(said(&spy)[1..], ["HTTP/1.1 403 Forbidden", "HTTP/1.1 403 Forbidden"]);
    let denied = home.events("sandbox.egress_denied");
    assert!(denied.iter().all(|event| event["data"]["reason"] == "policy lets nothing out"), "{denied:?}");
    apply(false);
    call(&daemon, &home, "spy__echo", &json!({"text": "open"}));
    assert_eq!(host.asked().len(), 2);
    assert_eq!(home.json(&["mcp", "list"])[0]["state"], "active", "nobody did anything wrong");
    daemon.stop();
}
