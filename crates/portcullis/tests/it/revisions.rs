//! Every client revision over every server revision (PRO-3, PRO-53, T-PRO-1).

use serde_json::{Value, json};

use crate::agent::{Agent, REVISIONS};
use crate::support::{Home, Operator, Spy, open_home};

/// One server of each revision, named after it.
fn five_servers() -> (Home, Vec<Spy>) {
    let home = open_home();
    let spies = REVISIONS.map(|revision| {
        let spy = Spy::speaking(&home, &format!("spy-{revision}"), revision);
        spy.register(&home);
        spy
    });
    (home, spies.into())
}

fn tool(server: &str, tool: &str) -> String {
    format!("spy-{server}__{tool}")
}

#[test]
fn twenty_five_pairs_list_call_and_fail_alike() {
    // PRO-1, PRO-2, PRO-3, T-PRO-1
    let (home, spies) = five_servers();
    let daemon = home.serve();
    let operator = Operator::on_duty(&home);
    for client in REVISIONS {
        let agent = Agent::open(&daemon, client);
        let outcomes = &agent.hello["_meta"]["io.portcullis/servers"];
        for server in REVISIONS {
            assert_eq!(
                outcomes[format!("spy-{server}")],
                json!({"status": "ok", "tools": 9, "resources": 2, "prompts": 1}),
                "{outcomes}"
            );
        }
        let list = agent.result("tools/list", json!({}));
        assert_eq!(list["tools"].as_array().unwrap().len(), 45);
        assert_eq!(list.get("ttlMs").is_some(), agent.is_modern(), "{client}");
        assert_ne!(list.get("cacheScope"), Some(&json!("public")), "{client}");
        for server in REVISIONS {
            let pair = format!("client {client}, server {server}");
            let called = agent.call(&tool(server, "echo"), json!({"text": pair}));
            assert_eq!(called["result"]["structuredContent"]["text"], pair.as_str(), "{called}");
            assert_eq!(called["result"].get("resultType").is_some(), agent.is_modern(), "{pair}: {called}");
            let failed = agent.call(&tool(server, "fail"), json!({"message": "so it is"}));
            assert_eq!(failed["result"]["isError"], true, "{pair}: {failed}");
            // PRO-70: a server's own error keeps its code and text.
            let error = agent.call(&tool(server, "rpc_error"), json!({"code": -32050, "message": "mine"}));
            assert_eq!(
                (&error["error"]["code"], &error["error"]["message"]),
                (&json!(-32050), &json!("mine"))
            );
            assert!(error["error"]["data"]["io.portcullis/call"]["event"].is_string(), "{pair}: {error}");
            let unknown = agent.call(&tool(server, "nothing"), json!({}));
            assert_eq!(unknown["error"]["code"], -32602, "{pair}: {unknown}");
            read_prompt_and_complete(&agent, server);
        }
    }
    drop(operator);
    daemon.stop();
    for spy in &spies {
        assert_eq!(spy.calls(), 15, "each call reached its own server once");
    }
    home.verify();
}

/// Resources, prompts and completions of one pair (PRO-12, PRO §1, PRO §4).
fn read_prompt_and_complete(agent: &Agent, server: &str) {
    let pair = format!("client {}, server {server}", agent.revision);
    let readme = format!("portcullis://spy-{server}/spy%3A%2F%2Freadme");
    let read = agent.result("resources/read", json!({"uri": readme}));
    assert_eq!(read["contents"][0]["uri"], readme.as_str(), "{pair}: {read}");
    assert_eq!(read["contents"][0]["text"], "Read me.");
    // SURF-86, T-SURF-32: the server says that it may be kept for a day and shared with everybody.
    let kept = agent.is_modern().then(|| (json!(0), json!("private")));
    let told = read.get("ttlMs").cloned().zip(read.get("cacheScope").cloned());
    assert_eq!(told, kept, "{pair}: {read}");
    let template = format!("portcullis://spy-{server}/spy://item/{{id}}");
    let item = agent.result("resources/read", json!({"uri": template.replace("{id}", "a%20b")}));
    assert_eq!(item["contents"][0]["text"], "item a%20b", "what the client wrote is what the server got");
    // A resource that is not there, for the server or for us, has its era's code.
    let absent = if agent.is_modern() { -32602 } else { -32002 };
    for uri in [
        template.replace("{id}", "missing"),
        template.replace("{id}", "a/b"),
        format!("portcullis://spy-{server}/spy%3A%2F%2Fhidden"),
        "portcullis://nowhere/spy%3A%2F%2Freadme".into(),
        "spy://readme".into(),
        "file:///etc/passwd".into(),
    ] {
        let answer = agent.ask("resources/read", json!({"uri": uri}));
        assert_eq!(answer["error"]["code"], absent, "{pair} {uri}: {answer}");
    }
    let name = format!("spy-{server}__greet");
    let prompt = agent.result("prompts/get", json!({"name": name, "arguments": {"whom": "Ada"}}));
    assert_eq!(prompt["messages"][0]["content"]["text"], "Greet Ada.");
    assert_eq!(prompt["messages"][1]["content"]["uri"], readme.as_str(), "a link can be followed");
    let missing = agent.ask("prompts/get", json!({"name": name, "arguments": {}}));
    assert_eq!(missing["error"]["code"], -32602, "{pair}: {missing}");
    for reference in
        [json!({"type": "ref/prompt", "name": name}), json!({"type": "ref/resource", "uri": template})]
    {
        let argument = if reference["name"].is_string() { "whom" } else { "id" };
        let params = json!({"ref": reference, "argument": {"name": argument, "value": "al"}});
        let completed = agent.result("completion/complete", params);
        assert_eq!(completed["completion"]["values"], json!(["alice", "alfred"]), "{pair}");
        let params = json!({"ref": reference, "argument": {"name": "nonsense", "value": "al"}});
        assert_eq!(agent.ask("completion/complete", params)["error"]["code"], -32602, "{pair}");
    }
}

#[test]
fn resources_prompts_and_templates_are_listed_as_declared_under_names_of_ours() {
    // PRO-10, PRO-12, GOV-401, T-DEC-3
    let (home, spies) = five_servers();
    let daemon = home.serve();
    for revision in REVISIONS {
        let agent = Agent::open(&daemon, revision);
        for capability in ["tools", "resources", "prompts", "completions"] {
            assert!(agent.hello["capabilities"][capability].is_object(), "{revision} {capability}");
        }
        let list = agent.result("resources/list", json!({}));
        let resources = list["resources"].as_array().unwrap();
        let uris: Vec<&str> = resources.iter().map(|item| item["uri"].as_str().unwrap()).collect();
        assert_eq!(uris.len(), 10, "two of each server, and none that is not declared: {uris:?}");
        assert!(uris.contains(&"portcullis://spy-2025-03-26/spy%3A%2F%2Freadme"), "{uris:?}");
        assert!(uris.contains(&"portcullis://spy-2025-03-26/spy%3A%2F%2Fitem%2F1"), "{uris:?}");
        assert_eq!(resources[0]["x-own"], json!([1, 2]), "unknown members stay");
        let templates = agent.result("resources/templates/list", json!({}));
        assert_eq!(
            templates["resourceTemplates"][0]["uriTemplate"],
            "portcullis://spy-2024-11-05/spy://item/{id}"
        );
        let prompts = agent.result("prompts/list", json!({}));
        assert_eq!(prompts["prompts"][4]["name"], "spy-2026-07-28__greet");
    }
    daemon.stop();
    for spy in &spies {
        assert!(spy.frames("resources/read").is_empty() && spy.frames("prompts/get").is_empty());
    }
}

#[test]
fn one_server_may_keep_its_own_names_and_only_one() {
    // PRO-65
    let home = Home::new("[policy]\npreset = \"observe\"\n[gateway]\nnames = \"bare\"\n");
    let spy = Spy::speaking(&home, "spy-one", "2025-11-25");
    spy.register(&home);
    let other = Spy::speaking(&home, "spy-two", "2025-11-25");
    let file = home.beside("two.yaml");
    std::fs::write(&file, other.declaration()).unwrap();
    let args = other.add_args(&file);
    let (code, error) = home.fails(&args.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!((code, &error["code"], &error["field"]), (1, &json!("CONFLICT"), &json!("gateway.names")));
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2025-11-25");
    assert_eq!(agent.call("echo", json!({"text": "x"}))["result"]["structuredContent"]["text"], "x");
    let read = agent.result("resources/read", json!({"uri": "spy://item/7"}));
    assert_eq!(
        read["contents"][0],
        json!({"uri": "spy://item/7", "mimeType": "text/plain", "text": "item 7"})
    );
    assert_eq!(
        agent.result("prompts/get", json!({"name": "greet", "arguments": {"whom": "x"}}))["messages"][1]["content"]
            ["uri"],
        "spy://readme"
    );
}

#[test]
fn only_sessions_of_2025_03_26_take_batches_and_each_element_is_a_call_of_its_own() {
    // PRO §3, GOV-303
    let (home, spies) = five_servers();
    let daemon = home.serve();
    let operator = Operator::on_duty(&home);
    let echo = |id: u64, text: &str| {
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
               "params": {"name": tool("2025-11-25", "echo"), "arguments": {"text": text}}})
    };
    let note = json!({"jsonrpc": "2.0", "method": "notifications/whatever"});
    let batch = json!([echo(1, "a"), note, echo(2, "b"), echo(2, "again"), {"jsonrpc": "2.0"}, echo(3, "c"),
        {"jsonrpc": "2.0", "id": 9, "method": "initialize", "params": {}}]);
    for revision in REVISIONS {
        let agent = Agent::open(&daemon, revision);
        let mut reply = agent.post(&batch, &[]);
        if revision != "2025-03-26" {
            assert_eq!(reply.status, 400, "{revision}");
            assert_eq!(reply.next().unwrap()["error"]["code"], -32600, "{revision}");
            continue;
        }
        let answers: Value = reply.next().unwrap();
        let texts: Vec<&Value> =
            answers.as_array().unwrap().iter().map(|a| &a["result"]["structuredContent"]["text"]).collect();
        assert_eq!(texts, [&json!("a"), &json!("b"), &Value::Null, &Value::Null, &json!("c"), &Value::Null]);
        assert_eq!(answers[2]["error"]["code"], -32600, "an id in use is not used again");
        assert_eq!(answers[3]["error"]["code"], -32600);
        assert_eq!(answers[5]["error"]["code"], -32600);
        assert_eq!(agent.post(&json!([note]), &[]).status, 202);
        assert_eq!(agent.post(&json!([]), &[]).status, 400);
    }
    drop(operator);
    daemon.stop();
    assert_eq!(spies[3].calls(), 3);
    assert_eq!(home.events("execution.intent").len(), 3);
}

#[test]
fn small_courtesies_are_answered_by_the_gateway_itself() {
    // PRO §3: ping, logging/setLevel, unknown methods and notifications; PRO-60
    let (home, _spies) = five_servers();
    let daemon = home.serve();
    for revision in REVISIONS {
        let agent = Agent::open(&daemon, revision);
        let modern = agent.is_modern();
        let ping = agent.ask("ping", json!({}));
        assert_eq!(ping.get("result").is_some(), !modern, "{ping}");
        let level = agent.ask("logging/setLevel", json!({"level": "warning"}));
        assert_eq!(level.get("result").is_some(), !modern, "{level}");
        if !modern {
            assert_eq!(agent.ask("logging/setLevel", json!({"level": "loud"}))["error"]["code"], -32602);
        }
        for method in ["nonsense/method", "server/nonsense"] {
            let stream = agent.begin(method, json!({}));
            assert_eq!(stream.status, if modern { 404 } else { 200 }, "{revision} {method}");
            assert_eq!(stream.last().unwrap()["error"]["code"], -32601);
        }
        assert_eq!(agent.ask("tools/list", json!({"cursor": "made up"}))["error"]["code"], -32602);
    }
    let agent = Agent::open(&daemon, "2025-06-18");
    agent.tell("notifications/nonsense", json!({}));
    let health: Value = serde_json::from_str(&agent.send("GET", "/health", "", &[]).text()).unwrap();
    assert_eq!(health["ignored_notifications"], 1, "{health}");
    // A session without the version header is served; one with a wrong header is not (PRO-60).
    let headers = [("Mcp-Session-Id", agent.session.as_deref().unwrap())];
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    assert_eq!(daemon.post(&headers, &ping).unwrap().status, 200);
    let wrong = [headers[0], ("MCP-Protocol-Version", "1999-01-01")];
    assert_eq!(daemon.post(&wrong, &ping).unwrap().status, 400);
    // PRO-60: modern headers on an `initialize` that asks for a legacy revision.
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "mcp-remote", "version": "1"}});
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    let modern = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "initialize")];
    assert_eq!(daemon.post(&modern, &hello).unwrap().status, 200);
}

#[test]
fn a_server_that_is_gone_stays_listed_and_is_reported() {
    // PRO §3, T-PRO-3: others unaffected; outcomes in `_meta`; back when it is back
    let (home, spies) = five_servers();
    std::fs::rename(&spies[0].executable, home.beside("away")).unwrap();
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2025-11-25");
    let gone = agent.call(&tool("2024-11-05", "echo"), json!({"text": "x"}));
    assert_eq!(gone["error"]["code"], -31001, "{gone}");
    let there = agent.call(&tool("2025-03-26", "echo"), json!({"text": "x"}));
    assert_eq!(there["result"]["structuredContent"]["text"], "x");
    let list = agent.result("tools/list", json!({}));
    assert_eq!(list["tools"].as_array().unwrap().len(), 45, "its tools stay listed");
    let outcomes = &list["_meta"]["io.portcullis/servers"];
    let unavailable = json!({"status": "unavailable", "reason": "MP-FH-001"});
    assert_eq!(outcomes["spy-2024-11-05"], unavailable, "{outcomes}");
    assert_eq!(outcomes["spy-2025-03-26"]["status"], "ok", "{outcomes}");
    std::fs::rename(home.beside("away"), &spies[0].executable).unwrap();
    let back = agent.call(&tool("2024-11-05", "echo"), json!({"text": "back"}));
    assert_eq!(back["result"]["structuredContent"]["text"], "back", "{back}");
    let list = agent.result("tools/list", json!({}));
    assert_eq!(list["_meta"]["io.portcullis/servers"]["spy-2024-11-05"]["status"], "ok");
}

#[test]
fn an_empty_list_says_why() {
    // PRO-3
    let home = open_home();
    let daemon = home.serve();
    let list = Agent::open(&daemon, "2026-07-28").result("tools/list", json!({}));
    assert_eq!(list["tools"], json!([]));
    assert!(list["_meta"]["io.portcullis/empty"].as_str().unwrap().contains("no server is registered"));
}

#[test]
fn a_uri_that_two_templates_would_cover_is_refused_when_they_are_declared() {
    // T-DEC-3, GOV-407
    let home = Home::new("");
    let spy = Spy::new(&home);
    let twin = "  - { name: twin, version: \"1\", uri_template: \"spy://{+anything}\", side_effects: [], scopes: [], \
                credentials: [], failure_modes: [] }\nprompts:";
    let file = home.beside("spy.yaml");
    std::fs::write(&file, spy.declaration().replace("prompts:", twin)).unwrap();
    let args = spy.add_args(&file);
    let (exit, refused) = home.fails(&args.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(exit, 7, "{refused}");
    assert!(refused.to_string().contains("spy://item/{id}"), "{refused}");
    assert_eq!(home.json(&["mcp", "list"]), json!([]));
}
