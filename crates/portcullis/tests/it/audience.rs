//! Who is shown what: lists and footprints by agent and kind of client, and what administrators measure of them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::admin::Program;
use crate::agent::Agent;
use crate::support::{Daemon, Home, Spy, modern_meta};
use crate::surface::described;

/// One modern request with an agent's key, if it has one.
fn asked(daemon: &Daemon, method: &str, key: Option<&str>) -> Value {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": modern_meta()}});
    let bearer = key.map(|key| format!("Bearer {key}"));
    let mut headers = vec![("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", method)];
    headers.extend(bearer.as_deref().map(|bearer| ("Authorization", bearer)));
    daemon.post(&headers, &body).unwrap().json()["result"].clone()
}

fn names(list: &Value) -> Vec<&str> {
    list["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

fn two_servers(home: &Home) {
    for name in ["near", "far"] {
        let spy = Spy::speaking(home, name, "2025-11-25");
        let tools = [
            described("look", "Look at one of the things."),
            described("wait", "Wait for one of the things."),
        ];
        spy.offers(home, &tools, &json!({}));
    }
}

#[test]
fn nobody_is_shown_what_it_could_never_call_nor_what_the_operator_hides() {
    // SURF-1, SURF-50, SURF-51, CAT-53, T-SURF-6
    let home = Home::new("");
    two_servers(&home);
    let config = "[policy]\npreset = \"observe\"\n[surface.principals]\n\"agent:ci\" = \"codex\"\n[catalog.filter.near]\nexclude = [\"wait\"]\n";
    std::fs::write(home.path().join("portcullis.toml"), config).unwrap();
    let key = home.json(&["key", "create", "ci", "--grant", "mcp.call:far/look"])["key"].clone();
    let key = key.as_str();
    let daemon = home.serve();
    assert_eq!(names(&asked(&daemon, "tools/list", None)), ["far__look", "far__wait", "near__look"]);
    let listed = asked(&daemon, "tools/list", key);
    assert_eq!(names(&listed), ["far__look"]);
    // Not even that the other is there.
    for told in [listed, asked(&daemon, "server/discover", key)] {
        assert!(told["_meta"]["io.portcullis/servers"]["far"].is_object(), "{told}");
        assert!(!told.to_string().contains("near"), "{told}");
    }
    // What is measured for it is what it is shown.
    let mine = home.json(&["footprint", "--principal", "agent:ci"]);
    assert_eq!((&mine["principal"], &mine["profile"]), (&json!("agent:ci"), &json!("codex")));
    assert_eq!(mine["tools"]["count"], 1, "{mine}");
    let all = home.json(&["footprint"]);
    assert_eq!((&all["tools"]["count"], &all["profile"]), (&json!(3), &json!("strict")), "{all}");
    assert_eq!(home.json(&["footprint", "--principal", "ci", "--profile", "strict"])["profile"], "strict");
    let (exit, error) = home.fails(&["footprint", "--principal", "agent:nobody"]);
    assert!(exit != 0 && error["message"].as_str().unwrap().contains("no agent \"agent:nobody\""), "{error}");
    // SURF-52: the most that anybody was shown in the last hour, by kind of client.
    let metrics = Program::new(&home, &daemon).metrics();
    for (profile, report) in [("strict", &all), ("codex", &mine)] {
        let line = format!(
            "portcullis_surface_bytes{{profile=\"{profile}\",mode=\"passthrough\",part=\"tools\"}} {}",
            report["tools"]["bytes"]
        );
        assert!(metrics.contains(&line), "{line}\n{metrics}");
    }
    assert!(metrics.contains("portcullis_surface_ladder_step{profile=\"codex\",mode=\"passthrough\"} 0"));
    assert!(!metrics.contains("__look"), "never a label per tool: {metrics}");
}

#[test]
fn a_client_is_what_it_calls_itself_only_where_lists_may_depend_on_that() {
    // SURF-61, SURF-80, SURF-82
    let home = Home::new("");
    Spy::new(&home).register(&home);
    let config = "[surface.match]\n\"agen?\" = \"plain\"\n[surface.profiles.plain]\nerror_structured = false\n[surface.principals]\n\"agent:ci\" = \"plain\"\n";
    std::fs::write(home.path().join("portcullis.toml"), config).unwrap();
    let key = home.json(&["key", "create", "ci"])["key"].as_str().unwrap().to_owned();
    let daemon = home.serve();
    for (revision, is_structured) in [("2025-11-25", false), ("2026-07-28", true)] {
        let refused = Agent::open(&daemon, revision).call("spy__echo", json!({}))["result"].clone();
        assert_eq!(refused["isError"], true, "{refused}");
        assert!(refused["content"][0]["text"].as_str().unwrap().contains("ARGS_INVALID"), "{refused}");
        assert_eq!(refused["structuredContent"].is_object(), is_structured, "{revision}: {refused}");
    }
    // What the operator says of an agent counts in every era.
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "spy__echo", "arguments": {}, "_meta": modern_meta()}});
    let bearer = format!("Bearer {key}");
    let headers = [
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "spy__echo"),
        ("Authorization", bearer.as_str()),
    ];
    let refused = daemon.post(&headers, &body).unwrap().json()["result"].clone();
    assert!(refused["isError"] == true && refused.get("structuredContent").is_none(), "{refused}");
}

#[test]
fn a_client_is_what_is_said_of_where_it_comes_in_before_what_it_calls_itself() {
    // SURF-61
    let home = Home::new("");
    Spy::new(&home).register(&home);
    let config = |listener: &str| {
        let profiles =
            "[surface.match]\n\"agen?\" = \"strict\"\n[surface.profiles.plain]\nerror_structured = false\n";
        let text = format!("{profiles}[surface.listeners]\n{listener} = \"plain\"\n");
        std::fs::write(home.path().join("portcullis.toml"), text).unwrap();
    };
    for (listener, by_http, by_stdio) in [("http", false, true), ("stdio", true, false)] {
        config(listener);
        let daemon = home.serve();
        for revision in ["2025-11-25", "2026-07-28"] {
            let refused = Agent::open(&daemon, revision).call("spy__echo", json!({}))["result"].clone();
            assert_eq!(refused["isError"], true, "{refused}");
            assert_eq!(
                refused["structuredContent"].is_object(),
                by_http,
                "{listener}, {revision}: {refused}"
            );
        }
        let refused = over_stdio(&home, &json!({"name": "spy__echo", "arguments": {}}));
        assert_eq!(refused["isError"], true, "{refused}");
        assert_eq!(refused["structuredContent"].is_object(), by_stdio, "{listener}: {refused}");
        daemon.stop();
    }
    for (line, word) in [("stdio = \"nobody\"", "there is no profile 'nobody'"), ("fax = \"strict\"", "fax")]
    {
        std::fs::write(home.path().join("portcullis.toml"), format!("[surface.listeners]\n{line}\n"))
            .unwrap();
        let (_, error) = home.fails(&["mcp", "list"]);
        assert!(error["message"].as_str().unwrap().contains(word), "{error}");
    }
}

/// The result of one call by a client on standard input and output.
fn over_stdio(home: &Home, call: &Value) -> Value {
    let mut child = home
        .command()
        .args(["serve", "--stdio"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "agent", "version": "1"}});
    let mut input = child.stdin.take().unwrap();
    for message in [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}),
    ] {
        writeln!(input, "{message}").unwrap();
    }
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut messages = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let answer = messages.find(|message| message["id"] == 2).expect("an answer");
    drop(input);
    child.wait().unwrap();
    answer["result"].clone()
}
