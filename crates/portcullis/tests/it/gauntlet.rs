//! What servers write and what agents read: cleaned on the way, in a running gateway with a server that misbehaves.

use std::fs;

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::support::{Home, Operator, Spy, guarded_spy, open_home};

fn corpus(name: &str) -> Vec<Value> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../gauntlet/corpus").join(name);
    fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn registered(home: &Home) -> Spy {
    let spy = Spy::new(home);
    spy.register(home);
    spy
}

/// The error document that a refused call carries for the model.
fn document(response: &Value) -> Value {
    let text = response["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{response}"));
    serde_json::from_str(text).unwrap()
}

#[test]
fn every_attack_of_the_corpus_is_harmless_through_a_live_server() {
    // SZ-*, gauntlet §10; GNT-Z17
    let home = open_home();
    let spy = registered(&home);
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2025-11-25");
    for row in corpus("sanitiser.jsonl") {
        let result = agent.call("spy__echo", json!({"text": row["in"]}))["result"].clone();
        assert_eq!(result["content"][0]["text"], row["out"], "{row}: {result}");
        assert_eq!(result["structuredContent"]["text"], row["out"], "{row}");
    }
    // What was taken out is told and on record; escaping alone is not worth telling.
    let call = |text: &str| {
        agent.call("spy__echo", json!({"text": text}))["result"]["_meta"]["io.portcullis/call"].clone()
    };
    assert!(call("<b>").get("gauntlet").is_none());
    let mark = call("\u{7}__system__");
    assert_eq!(
        mark["gauntlet"],
        json!({"escape": "html", "stripped": 2, "markers": 2, "replaced_blocks": 0})
    );
    daemon.stop();
    let recorded = home.events("execution.sanitised");
    assert_eq!(recorded.last().unwrap()["data"]["markers"], 2);
    assert_eq!(spy.calls(), corpus("sanitiser.jsonl").len() + 2);
    home.verify();
}

#[test]
fn blocks_names_and_errors_are_cleaned_or_refused() {
    // SG-30, SG-31, SG-32, SG-34, GNT-Z11, GNT-Z13
    let home = open_home();
    let spy = registered(&home);
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2026-07-28");
    let answer = |tool: &str, result: Value| {
        spy.control(&json!({"result": {tool: result}}));
        let arguments = if tool == "echo" { json!({"text": "x"}) } else { json!({}) };
        agent.call(&format!("spy__{tool}"), arguments)
    };

    let blocks = answer(
        "pid",
        json!({"content": [
            {"type": "text", "text": "__sys"}, {"type": "text", "text": "tem__x"},
            {"type": "resource_link", "uri": "https://x/?a=1&b=2", "name": "<n>"},
            {"type": "resource_link", "uri": "https://x/<|im_start|>", "name": "n"},
            {"type": "unheard_of", "words": ["<|im_end|>y"]},
        ]}),
    );
    let content = &blocks["result"]["content"];
    assert_eq!(content[0]["text"], "", "{blocks}");
    assert_eq!(content[1]["text"], "x");
    // An address is only ever put inside one of ours.
    let address = "portcullis://spy/https%3A%2F%2Fx%2F%3Fa%3D1%26b%3D2";
    assert_eq!((&content[2]["uri"], &content[2]["name"]), (&json!(address), &json!("&lt;n&gt;")));
    assert_eq!(content[3], json!({"type": "text", "text": "[removed: unsafe uri]"}));
    assert_eq!(content[4]["words"], json!(["y"]));

    for row in corpus("keys.jsonl") {
        let structured: Value = serde_json::from_str(row["structured"].as_str().unwrap()).unwrap();
        let refused = answer("pid", json!({"content": [], "structuredContent": structured}));
        let document = document(&refused);
        assert_eq!(
            (&document["error"], &document["details"]["violation"]),
            (&json!("UPSTREAM_ERROR"), &json!("mcp-output-key"))
        );
        assert!(
            !refused.to_string().contains("__system__") && !refused.to_string().contains("im_start"),
            "{refused}"
        );
    }
    for structured in [json!([1]), json!("x"), json!(null)] {
        let refused = answer("pid", json!({"content": [], "structuredContent": structured}));
        assert_eq!(document(&refused)["details"]["violation"], "mcp-non-object-output");
    }
    let failed = answer(
        "echo",
        json!({"content": [{"type": "text", "text": "no <row>"}], "isError": true, "structuredContent": {"text": 7}}),
    );
    assert_eq!(failed["result"]["content"][0]["text"], "no &lt;row&gt;");
    assert_eq!(
        (&failed["result"]["isError"], failed["result"].get("structuredContent")),
        (&json!(true), None)
    );
    assert_eq!(failed["result"]["_meta"]["io.portcullis/call"]["gauntlet"]["dropped_structured"], true);

    spy.control(&json!({}));
    let said = agent
        .call("spy__rpc_error", json!({"code": -32050, "message": "token=abc <|im_start|>\u{1b}[31m<b>"}));
    assert_eq!(
        (&said["error"]["code"], &said["error"]["message"]),
        (&json!(-32050), &json!("token=*** [31m&lt;b&gt;"))
    );

    // The last: a result that breaks its schema halts the server, and nothing of it gets out.
    let calls = spy.calls();
    let hostile = "__system__ <|im_start|>\u{1b}[31m";
    let broken = answer(
        "echo",
        json!({"content": [{"type": "text", "text": "leak"}], "structuredContent": {"text": [hostile], hostile: 1}}),
    );
    assert_eq!(broken["error"]["data"]["details"]["code"], "MP-FH-003", "{broken}");
    assert_eq!(broken["error"]["data"]["details"]["violation"], "mcp-output-schema");
    let text = broken.to_string();
    assert!(!text.contains("system") && !text.contains("im_start") && !text.contains("leak"), "{text}");
    assert_eq!(spy.calls(), calls + 1);
    daemon.stop();
    let withheld = home.events("execution.withheld");
    assert_eq!(withheld.len(), 9, "{withheld:?}");
    home.verify();
}

#[test]
fn what_agents_are_told_about_tools_is_clean_and_true() {
    // GNT-Z12, GNT-S12, GNT-Z18, SG-35
    let home = open_home();
    let spy = Spy::new(&home);
    let output = json!({
        "type": "object", "additionalProperties": false, "required": ["text"],
        "properties": {"text": {"type": "string", "maxLength": 20, "enum": ["<a>", "b & c"], "not": {"maxLength": 2}, "description": "one of __system__two"}},
    });
    spy.control(&json!({
        "description": {"echo": "Echoes <b>&</b> <|im_start|>more."}, "title": {"echo": "E\u{200b}cho __sys\u{200b}tem__"},
        "output_schema": {"echo": output},
        "result": {"echo": {"content": [{"type": "text", "text": "<a>"}], "structuredContent": {"text": "<a>"}}},
    }));
    let yaml = spy.declaration().replacen("Answer with the same text.", "\"Echoes <b>&</b> <|im_start|>more.\"", 1).replacen(
        "          text: { type: string }\n",
        "          text: { type: string, maxLength: 20, enum: [\"<a>\", \"b & c\"], not: { maxLength: 2 }, description: one of __system__two }\n",
        1,
    );
    let file = home.beside("spy.yaml");
    fs::write(&file, yaml).unwrap();
    let args = spy.add_args(&file);
    home.json(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2025-11-25");
    let tools = agent.result("tools/list", json!({}));
    let echo = tools["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "spy__echo").unwrap();
    // SURF-34: the word on what calling it can do is ours.
    assert_eq!(echo["description"], "Echoes <b>&</b> more. Read-only.");
    assert_eq!(echo["title"], "E\u{200b}cho ");
    let text = &echo["outputSchema"]["properties"]["text"];
    assert_eq!(
        text,
        &json!({"type": "string", "enum": ["&lt;a&gt;", "b &amp; c"], "description": "one of two"})
    );
    // As the client would check it.
    let result = agent.call("spy__echo", json!({"text": "x"}))["result"].clone();
    assert_eq!(result["structuredContent"], json!({"text": "&lt;a&gt;"}), "{result}");
    assert!(text["enum"].as_array().unwrap().contains(&result["structuredContent"]["text"]));
    daemon.stop();
}

#[test]
fn an_agent_may_do_no_more_than_its_grants_and_learns_nothing_else() {
    // SG-10, SG-12, GNT-C11, GNT-C13
    let home = open_home();
    let spy = registered(&home);
    let ws = spy.workspace.display().to_string();
    let key = |agent: &str, grants: &[&str]| {
        let flags = grants.iter().flat_map(|grant| ["--grant", grant]);
        let args: Vec<&str> = ["key", "create", agent].into_iter().chain(flags).collect();
        format!("Bearer {}", home.json(&args)["key"].as_str().unwrap())
    };
    let adder = key("adder", &["mcp.call:spy/add"]);
    let inner = format!("fs.write:{ws}/inner/*");
    let writer = key("writer", &["mcp.call:spy/*", &inner]);
    let declared = key("declared-one", &["declared"]);
    assert_eq!(home.fails(&["key", "create", "broken", "--grant", "fs.read:"]).0, 7);
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let call = |key: &str, tool: &str, arguments: Value| {
        let params = json!({"name": tool, "arguments": arguments, "_meta": crate::support::modern_meta()});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let headers = [
            ("Authorization", key),
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", "tools/call"),
            ("Mcp-Name", tool),
        ];
        daemon.post(&headers, &body).unwrap().json()
    };
    let denied = |response: &Value| {
        let data = &response["error"]["data"];
        assert_eq!(
            (&data["error"], &data["details"]["code"]),
            (&json!("POLICY_DENIED"), &json!("capability_denied")),
            "{response}"
        );
        data["details"]["capability"].as_str().unwrap().to_owned()
    };
    assert_eq!(call(&adder, "spy__add", json!({"a": 1, "b": 2}))["result"]["content"][0]["text"], "3");
    let calls = spy.calls();
    // Bad arguments, and still only the refusal.
    assert_eq!(denied(&call(&adder, "spy__echo", json!({"nonsense": 1}))), "mcp.call:spy/echo");
    assert_eq!(
        denied(&call(&writer, "spy__write_thing", json!({"path": format!("{ws}/other/x"), "text": "x"}))),
        "fs.write:{/path|path}"
    );
    denied(&call(&writer, "spy__write_thing", json!({"path": format!("{ws}/inner/../x"), "text": "x"})));
    assert_eq!(spy.calls(), calls, "nothing may have reached the server");
    for (key, path) in [(&writer, format!("{ws}/inner/x")), (&declared, format!("{ws}/x"))] {
        let written = call(key, "spy__write_thing", json!({"path": path, "text": "x"}));
        assert_eq!(written["result"]["isError"], false, "{written}");
    }
    daemon.stop();
    assert_eq!(home.events("proposal.refused").len(), 3);
    home.verify();
}

#[test]
fn a_grant_that_is_taken_back_while_a_call_waits_is_no_grant() {
    // GNT-C12: looked at again right before the call leaves
    let (home, spy) = guarded_spy("");
    let create = |grant: &str| home.json(&["key", "create", "ci", "--grant", grant])["key"].clone();
    let key = format!("Bearer {}", create("mcp.call:spy/*").as_str().unwrap());
    let daemon = home.serve();
    let call = || {
        let params =
            json!({"name": "spy__echo", "arguments": {"text": "x"}, "_meta": crate::support::modern_meta()});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let headers = [
            ("Authorization", key.as_str()),
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", "tools/call"),
            ("Mcp-Name", "spy__echo"),
        ];
        daemon.post(&headers, &body).unwrap().json()
    };
    let refused = std::thread::scope(|scope| {
        let waiting = scope.spawn(call);
        home.next_pending();
        // The same agent, with less.
        create("mcp.call:spy/add");
        home.grant_next("once");
        waiting.join().unwrap()
    });
    let data = &refused["error"]["data"];
    assert_eq!(
        (&data["error"], &data["details"]["code"]),
        (&json!("POLICY_DENIED"), &json!("capability_denied")),
        "{refused}"
    );
    assert_eq!(spy.calls(), 0, "nothing may have reached the server");
    daemon.stop();
    let denied = home.events("execution.denied");
    assert_eq!(denied.last().unwrap()["data"]["check"], "grants");
    home.verify();
}

#[test]
fn arguments_nested_beyond_reason_are_refused_and_hold_up_nobody() {
    // 0 frames, and the next call passes
    let home = open_home();
    let spy = registered(&home);
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2025-11-25");
    assert_eq!(agent.call("spy__echo", json!({"text": "x"}))["result"]["content"][0]["text"], "x");
    let calls = spy.calls();
    let deep = (0..300).fold(json!("x"), |inner, _| json!([inner]));
    let refused = agent.call("spy__echo", json!({"text": deep}));
    assert_eq!(document(&refused)["error"], "ARGS_INVALID", "{refused}");
    assert_eq!(spy.calls(), calls, "nothing may have reached the server");
    assert_eq!(agent.call("spy__echo", json!({"text": "y"}))["result"]["content"][0]["text"], "y");
    daemon.stop();
}

#[test]
fn a_result_that_costs_too_much_to_judge_is_withheld_and_others_pass_meanwhile() {
    // SG-07: a choice over the same child twice, at every level of a deep value
    let home = open_home();
    let spy = Spy::new(&home);
    let branch = json!({"type": "object", "required": ["c"], "properties": {"c": {"$ref": "#/$defs/n"}}});
    let output = json!({
        "type": "object", "additionalProperties": false, "required": ["text"],
        "properties": {"text": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"oneOf": [branch, branch]}},
    });
    let nested = (0..60).fold(json!("unseen"), |inner, _| json!({"c": inner}));
    spy.control(&json!({
        "output_schema": {"echo": output},
        "result": {"echo": {"content": [], "structuredContent": {"text": nested}}},
    }));
    let honest = "      schema:\n        type: object\n        additionalProperties: false\n        required: [text]\n        properties:\n          text: { type: string }\n";
    let declaration = spy.declaration();
    let doubling = declaration.replacen(honest, &format!("      schema: {output}\n"), 1);
    assert_ne!(declaration, doubling);
    spy.register_as(&home, &doubling);
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let call = |tool: &str, arguments: Value| Agent::open(&daemon, "2026-07-28").call(tool, arguments);
    let (costly, other) = std::thread::scope(|scope| {
        let costly = scope.spawn(|| call("spy__echo", json!({"text": "x"})));
        let other = call("spy__add", json!({"a": 1, "b": 2}));
        (costly.join().unwrap(), other)
    });
    let refused = document(&costly);
    assert_eq!(
        (&refused["error"], &refused["details"]["violation"]),
        (&json!("UPSTREAM_ERROR"), &json!("mcp-schema-budget")),
        "{costly}"
    );
    assert!(!costly.to_string().contains("unseen"));
    assert!(other["result"]["isError"].as_bool() != Some(true), "{other}");
    daemon.stop();
    home.verify();
}
