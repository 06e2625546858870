//! What operators order about agents and tools, as agents meet it: real gateway, real server, real calls.

use serde_json::{Value, json};

use crate::admin::Program;
use crate::agent::Agent;
use crate::support::{Daemon, Home, eventually, guarded_spy, open_home};

fn act(program: &Program<'_>, tool: &str, mut args: Value) -> Value {
    args["confirm"] = json!(true);
    args["reason"] = json!("for a test");
    let reply = program.call(&format!("portcullis_{tool}"), &args.to_string());
    assert_eq!(reply.status, 200, "{tool}: {}", reply.body);
    reply.json()["data"].clone()
}

fn echo(daemon: &Daemon, text: &str) -> Value {
    daemon.call("spy__echo", &json!({"text": text})).unwrap()
}

/// The code of the refusal that an agent reads.
fn refusal(answer: &Value) -> Value {
    let document = &answer["result"]["structuredContent"];
    let document = if document.is_null() { &answer["error"]["data"] } else { document };
    assert!(!document.is_null(), "{answer}");
    json!({"error": document["error"], "code": document["details"]["code"], "message": document["message"]})
}

#[test]
fn a_quota_refuses_calls_beyond_it_and_is_remembered_by_the_log() {
    // admin §12: quotas
    let (home, spy) = guarded_spy("[policy]\npreset = \"observe\"\n");
    let daemon = home.serve();
    daemon.approved_call(&home, "spy__echo", &json!({"text": "one"})).unwrap();
    home.json(&["approve", "list"]);
    let program = Program::new(&home, &daemon);
    // What was called before the quota was set counts too.
    let quota = json!({"subject": "tool:spy/echo", "metric": "calls", "limit": 2, "window": "month", "action": "refuse"});
    act(&program, "quotas_set", quota);
    let usage = program.call("portcullis_quotas_usage", r#"{"subject":"tool:spy/echo"}"#).json();
    assert_eq!(usage["data"][0]["used"], 1, "{usage}");
    std::thread::scope(|scope| {
        let call = scope.spawn(|| echo(&daemon, "two"));
        home.grant_next("once");
        let answered = call.join().unwrap();
        assert_eq!(answered["result"]["structuredContent"]["text"], "two", "{answered}");
    });
    let before = spy.calls();
    let refused = refusal(&echo(&daemon, "three"));
    assert_eq!((&refused["error"], &refused["code"]), (&json!("RATE_LIMITED"), &json!("quota")), "{refused}");
    assert_eq!(spy.calls(), before, "nothing was sent");
    assert_eq!(home.events("quota.crossed").len(), 1, "wholly used up");
    daemon.stop();

    // A restart forgets nothing.
    let daemon = home.serve();
    assert_eq!(refusal(&echo(&daemon, "four"))["code"], "quota");
    let program = Program::new_named(&home, &daemon, "again");
    act(&program, "quotas_clear", json!({"subject": "tool:spy/echo", "metric": "calls"}));
    std::thread::scope(|scope| {
        let call = scope.spawn(|| echo(&daemon, "five"));
        home.grant_next("once");
        assert_eq!(call.join().unwrap()["result"]["structuredContent"]["text"], "five");
    });
    daemon.stop();
    home.verify();
}

/// A gateway where the echo of the spy passes without asking.
fn trusting() -> (Home, crate::support::Spy) {
    let home = open_home();
    let spy = crate::support::Spy::new(&home);
    spy.register(&home);
    (home, spy)
}

#[test]
fn autonomy_is_a_ceiling_after_the_policy_decision() {
    // admin §12: clients_set_autonomy
    let (home, spy) = trusting();
    let daemon = home.serve();
    // One wide approval, so that calls pass by themselves.
    std::thread::scope(|scope| {
        let call = scope.spawn(|| echo(&daemon, "first"));
        home.grant_next("until-version-change");
        call.join().unwrap();
    });
    assert_eq!(echo(&daemon, "second")["result"]["structuredContent"]["text"], "second");
    let program = Program::new(&home, &daemon);

    act(&program, "clients_set_autonomy", json!({"client_id": "local", "level": "locked"}));
    let before = spy.calls();
    let locked = refusal(&echo(&daemon, "third"));
    assert_eq!(
        (&locked["error"], &locked["code"]),
        (&json!("POLICY_DENIED"), &json!("autonomy")),
        "{locked}"
    );
    assert_eq!(spy.calls(), before);

    // Supervised and semi: the wide approval does not count, and only this one call can be approved.
    for level in ["supervised", "semi"] {
        act(&program, "clients_set_autonomy", json!({"client_id": "local", "level": level}));
        std::thread::scope(|scope| {
            let call = scope.spawn(|| echo(&daemon, level));
            let pending = home.next_pending();
            let scopes: Vec<&str> = pending["offers"]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(|offer| offer["scope"].as_str())
                .collect();
            assert_eq!(scopes, ["once"], "{pending}");
            home.grant_next("once");
            assert_eq!(call.join().unwrap()["result"]["structuredContent"]["text"], level);
        });
    }
    act(&program, "clients_set_autonomy", json!({"client_id": "local", "level": "full"}));
    assert_eq!(
        echo(&daemon, "last")["result"]["structuredContent"]["text"],
        "last",
        "the wide one counts again"
    );
    daemon.stop();
    home.verify();
}

#[test]
fn a_tool_under_quarantine_is_refused_and_one_with_extra_permissions_wants_them() {
    // admin §12: tools_set_state, tools_override
    let (home, spy) = trusting();
    let daemon = home.serve();
    std::thread::scope(|scope| {
        let call = scope.spawn(|| echo(&daemon, "first"));
        home.grant_next("until-version-change");
        call.join().unwrap();
    });
    let program = Program::new(&home, &daemon);
    let order = act(&program, "tools_set_state", json!({"tool": "spy/echo", "state": "quarantined"}));
    assert_eq!((&order["state"], &order["version"]), (&json!("quarantined"), &json!(1)));
    let before = spy.calls();
    assert_eq!(refusal(&echo(&daemon, "x"))["code"], "quarantined");
    assert_eq!(spy.calls(), before);
    let listed = program.call("portcullis_tools_list", r#"{"state":"quarantined"}"#).json();
    assert_eq!(listed["data"].as_array().unwrap().len(), 1, "{listed}");
    daemon.stop();

    let daemon = home.serve();
    assert_eq!(refusal(&echo(&daemon, "x"))["code"], "quarantined", "after a restart");
    let program = Program::new_named(&home, &daemon, "again");
    act(&program, "tools_set_state", json!({"tool": "spy/echo", "state": "active"}));
    assert_eq!(echo(&daemon, "back")["result"]["structuredContent"]["text"], "back");
    act(&program, "tools_override", json!({"tool": "spy/echo", "extra_permissions": ["pii.read:people"]}));
    let lacking = refusal(&echo(&daemon, "x"));
    assert_eq!(lacking["error"], "PERMISSION_DENIED", "{lacking}");
    let key = home.json(&["key", "create", "ci", "--grant", "mcp.call:spy/*", "--grant", "pii.read:*"]);
    assert!(key["key"].is_string(), "{key}");
    daemon.stop();
    home.verify();
}

#[test]
fn how_a_tools_texts_are_written_can_be_ordered() {
    // admin §12: tools_override; GNT-Z15
    let (home, _spy) = trusting();
    let daemon = home.serve();
    std::thread::scope(|scope| {
        let call = scope.spawn(|| echo(&daemon, "<b>"));
        home.grant_next("until-version-change");
        let answered = call.join().unwrap();
        assert!(
            answered["result"]["structuredContent"]["text"].as_str().unwrap().contains("&lt;"),
            "{answered}"
        );
    });
    let program = Program::new(&home, &daemon);
    act(&program, "tools_override", json!({"tool": "spy/echo", "escape": "none"}));
    let plain = eventually("the order to be in force", || {
        let answered = echo(&daemon, "<i>");
        answered["result"]["structuredContent"]["text"].as_str().map(str::to_owned)
    });
    assert_eq!(plain, "<i>");
    daemon.stop();
}

#[test]
fn a_profile_decides_what_its_clients_are_shown() {
    // admin §12: profiles_put; CAT-53: prompts, resources and instructions as well as tools
    let (home, _spy) = trusting();
    let daemon = home.serve();
    let names = || -> Vec<String> {
        let listed = daemon.list_tools();
        listed["result"]["tools"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|tool| tool["name"].as_str().map(str::to_owned))
            .collect()
    };
    assert!(names().contains(&"spy__echo".to_owned()));
    let program = Program::new(&home, &daemon);
    act(&program, "profiles_put", json!({"profile_id": "small", "mode": "gateway"}));
    act(&program, "clients_update", json!({"client_id": "local", "profile_id": "small"}));
    assert!(names().contains(&"tool_browse".to_owned()), "{:?}", names());
    act(
        &program,
        "profiles_put",
        json!({"profile_id": "small", "mode": "passthrough", "namespaces": ["another"]}),
    );
    assert!(!names().contains(&"spy__echo".to_owned()), "another server's tools only: {:?}", names());
    let shown = || {
        let agent = Agent::open(&daemon, "2025-11-25");
        let told = agent.hello["instructions"].as_str().unwrap().contains("- spy");
        let count =
            |method: &str, member: &str| agent.result(method, json!({}))[member].as_array().unwrap().len();
        (told, count("prompts/list", "prompts"), count("resources/list", "resources"))
    };
    assert_eq!(shown(), (false, 0, 0));
    act(
        &program,
        "profiles_put",
        json!({"profile_id": "small", "mode": "passthrough", "namespaces": ["spy"]}),
    );
    assert!(names().contains(&"spy__echo".to_owned()));
    let (told, prompts, resources) = shown();
    assert!(told && prompts > 0 && resources > 0, "{prompts} {resources}");
    daemon.stop();
}

#[test]
fn a_client_made_by_a_tool_gets_its_key_past_the_tools() {
    // ADM-4, ADM-24, SO-31
    let (home, _spy) = guarded_spy("[access]\nauthentication = \"required\"\n");
    let daemon = home.serve();
    let program = Program::new(&home, &daemon);
    let created = act(
        &program,
        "clients_create",
        json!({"client_id": "ci", "display_name": "CI", "kind": "service", "grants": ["declared"]}),
    );
    let id = created["capture_id"].as_str().unwrap();
    assert!(created["url"].as_str().unwrap().starts_with(&daemon.console), "{created}");
    let fetched = home.json(&["admin", "capture", id]);
    let key = fetched["key"].as_str().unwrap().to_owned();
    assert_eq!(home.fails(&["admin", "capture", id]).0, 8, "once");
    let ping = |key: &str| {
        let bearer = format!("Bearer {key}");
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": crate::support::modern_meta()}});
        let headers = [
            ("Authorization", bearer.as_str()),
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", "server/discover"),
        ];
        daemon.post(&headers, &body).unwrap().status
    };
    assert_eq!(ping(&key), 200);
    let rotated = act(&program, "clients_rotate_key", json!({"client_id": "ci"}));
    assert_eq!(ping(&key), 401, "the old one ends at once");
    let url = rotated["url"].as_str().unwrap().trim_start_matches(&daemon.console).to_owned();
    let newer = program.get(&url).json()["key"].as_str().unwrap().to_owned();
    assert_eq!(ping(&newer), 200);
    act(&program, "clients_revoke", json!({"client_id": "ci"}));
    assert_eq!(ping(&newer), 401);
    let log = serde_json::to_string(&home.log()).unwrap();
    for secret in [&key, &newer] {
        assert!(!log.contains(secret.as_str()) && !log.contains(secret.trim_start_matches("pck_")));
    }
    daemon.stop();
    home.verify();
}

#[test]
fn a_second_operator_agrees_by_the_same_command() {
    // ADM-54, ADM-2
    let home = Home::new("[admin]\nfour_eyes = [\"servers:admin\"]\n");
    let spy = crate::support::Spy::new(&home);
    let file = home.beside("spy.yaml");
    std::fs::write(&file, spy.declaration()).unwrap();
    let args = spy.add_args(&file);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (_, asked) = home.fails(&args);
    assert_eq!(asked["code"], "AUTH_REQUIRED", "{asked}");
    let pending = home.next_pending();
    assert_eq!(pending["tool_id"], "portcullis_servers_register", "{pending}");
    assert_eq!(home.events("admin.op_deferred").len(), 1);
    assert_eq!(home.json(&["mcp", "list"]), json!([]), "nothing was done");
    // The same user is the same operator.
    let id = pending["approval_id"].as_str().unwrap();
    let (_, own) = home.fails(&["approve", "grant", id, "--scope", "once", "--reason", "mine", "--yes"]);
    assert!(own["message"].as_str().unwrap().contains("another operator"), "{own}");
    home.json(&["approve", "deny", id, "--reason", "no"]);
    assert!(home.json(&["approve", "list", "--status", "pending"]).as_array().unwrap().is_empty());
    home.verify();
}
