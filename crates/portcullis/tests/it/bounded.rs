//! Results that are larger than clients take.

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::support::{Operator, Spy, open_home};

fn bodies() -> Value {
    let capture: Value =
        serde_json::from_str(include_str!("../../../gateway/corpus/pdpp/mcp-size-bodies100.json")).unwrap();
    capture["body"]["result"].clone()
}

#[test]
fn results_that_are_too_large_are_told_of_summarised_or_cut_as_the_operator_wants() {
    // SURF-70, SURF-71, SURF-72, SURF-73, T-SURF-19, T-SURF-20
    let home = open_home();
    let spy = Spy::speaking(&home, "spy", "2025-11-25");
    let page = json!({"type": "object", "properties": {"cursor": {"type": "string"}, "fields": {"type": "array", "items": {"type": "string"}}}, "additionalProperties": false});
    let tool =
        |name: &str| json!({"name": name, "description": "Read bodies of messages.", "inputSchema": page});
    let tools: Vec<Value> =
        ["pass", "summarise", "truncate", "spill"].iter().map(|name| tool(name)).collect();
    spy.offers(&home, &tools, &json!({}));
    let config = r#"
[policy]
preset = "observe"
[surface.results."spy/summarise"]
content_bytes = 1024
content_on_over = "summarise"
[surface.results."spy/truncate"]
structured_on_over = "truncate"
[surface.results."spy/spill"]
structured_on_over = "spill"
structured_bytes = 20000
"#;
    std::fs::write(home.path().join("portcullis.toml"), config).unwrap();
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2025-11-25");
    let sent = bodies();
    let text = serde_json::to_string(&sent["structuredContent"]).unwrap();
    let plain = json!({"content": [{"type": "text", "text": "x".repeat(3_000)}], "structuredContent": {"next_page_token": "tok".repeat(30), "rows": [{"id": "é".repeat(300)}]}});
    spy.answers(&json!({"pass": sent, "summarise": {"content": [{"type": "text", "text": text}], "structuredContent": sent["structuredContent"]}, "truncate": sent, "spill": sent}));
    let call = |name: &str| {
        let answer = agent.call(&format!("spy__{name}"), json!({}));
        assert!(answer["result"].is_object(), "{answer}");
        answer["result"].clone()
    };
    let rows = |result: &Value| result["structuredContent"]["data"]["data"].as_array().unwrap().len();
    let passed = call("pass");
    assert_eq!(passed["structuredContent"].to_string(), sent["structuredContent"].to_string());
    assert!(passed["_meta"]["io.portcullis/result"].is_null(), "{}", passed["_meta"]);
    let summed = call("summarise");
    let lines = summed["content"][0]["text"].as_str().unwrap();
    assert!(lines.len() <= 1_024 && lines.starts_with("70 row(s). has_more=false"), "{lines}");
    assert!(
        lines.lines().last().unwrap().ends_with("more row(s); page with cursor or narrow with fields"),
        "{lines}"
    );
    assert_eq!(rows(&summed), 70);
    let cut = call("truncate");
    let mark = &cut["_meta"]["io.portcullis/result"];
    assert!(cut["structuredContent"].to_string().len() <= 65_536 && rows(&cut) > 10, "{}", rows(&cut));
    assert_eq!((&mark["rows_total"], &mark["rows_shown"]), (&json!(70), &json!(rows(&cut))), "{mark}");
    assert_eq!((&mark["bytes_total"], mark.get("handle")), (&json!(220_908), None), "{mark}");
    let spilt = call("spill");
    let mark = &spilt["_meta"]["io.portcullis/result"];
    assert!(spilt["structuredContent"].to_string().len() <= 20_000, "{mark}");
    // All of it is where the handle says, for who made the call.
    let listed = agent.result("tools/list", json!({}));
    assert!(listed["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "tool_view"));
    let selector = json!({"type": "json_pointer", "pointer": "/data/data/69/id"});
    let viewed = agent.call("tool_view", json!({"handle": mark["handle"], "selector": selector}));
    assert!(
        viewed["result"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains(sent["structuredContent"]["data"]["data"][69]["id"].as_str().unwrap()),
        "{viewed}"
    );
    // A text that is no JSON is kept and its structure summed up; cursors and characters stay whole.
    spy.answers(&json!({"summarise": plain}));
    let summed = call("summarise");
    let lines = summed["content"][0]["text"].as_str().unwrap();
    assert!(lines.starts_with(&format!("1 row(s). next_page_token={}\nid=é", "tok".repeat(30))), "{lines}");
    assert!(lines.contains("…(+44)"), "{lines}");
    assert_eq!(summed["_meta"]["io.portcullis/result"]["bytes_total"], 3_000, "{summed}");
    // Nothing is invented where there is nothing: no rows, and no list at all.
    let padded = |structured: Value| json!({"content": [{"type": "text", "text": "x".repeat(3_000)}], "structuredContent": structured});
    spy.answers(&json!({"summarise": padded(json!({"rows": [], "has_more": false}))}));
    let none = call("summarise")["content"][0]["text"].clone();
    assert_eq!(none, "0 row(s). has_more=false");
    spy.answers(&json!({"summarise": padded(json!({"name": "one", "inner": {"a": 1, "b": 2}}))}));
    let outline = call("summarise")["content"][0]["text"].as_str().unwrap().to_owned();
    assert!(outline.contains("name=one") && !outline.contains("row(s)"), "{outline}");
    // SURF-75: how large results are is a report of its own.
    let report = home.json(&["results", "report", "--profile", "strict"]);
    let pass = report["tools"].as_array().unwrap().iter().find(|row| row["tool"] == "spy/pass").unwrap();
    assert_eq!((&pass["structured"]["max"], &pass["cut_share"]), (&json!(220_908), &json!(1.0)), "{report}");
    home.verify();
}

#[test]
fn a_few_rows_can_be_asked_for_by_tool_by_profile_and_by_call() {
    // SURF-72, SURF-74, T-SURF-21
    let home = open_home();
    let spy = Spy::speaking(&home, "spy", "2025-11-25");
    let input = json!({"type": "object", "properties": {}, "additionalProperties": false});
    let list = |least: usize| json!({"type": "object", "required": ["rows"], "properties": {"rows": {"type": "array", "minItems": least, "items": {"type": "object"}}}});
    let tools = [
        json!({"name": "plain", "description": "Read rows of things.", "inputSchema": input, "outputSchema": list(0)}),
        json!({"name": "compact", "description": "Read rows of things.", "inputSchema": input, "outputSchema": list(0)}),
        json!({"name": "many", "description": "Read rows of things.", "inputSchema": input, "outputSchema": list(8)}),
    ];
    spy.offers(&home, &tools, &json!({}));
    let config = "[policy]\npreset = \"observe\"\n[surface]\nprofile = \"mine\"\n[surface.profiles.mine]\n[surface.results.\"spy/compact\"]\nresult_detail = \"compact\"\n";
    let write = |profile: &str| {
        std::fs::write(
            home.path().join("portcullis.toml"),
            config.replace("[surface.profiles.mine]\n", &format!("[surface.profiles.mine]\n{profile}")),
        )
        .unwrap();
    };
    write("");
    let rows: Vec<Value> = (0..12).map(|n| json!({"id": n})).collect();
    let result =
        json!({"content": [{"type": "text", "text": "12 rows"}], "structuredContent": {"rows": rows}});
    spy.answers(&json!({"plain": result, "compact": result, "many": result}));
    let shown = |agent: &Agent, name: &str, meta: Value| {
        let answer =
            agent.ask("tools/call", json!({"name": format!("spy__{name}"), "arguments": {}, "_meta": meta}));
        answer["result"]["structuredContent"]["rows"].as_array().unwrap_or_else(|| panic!("{answer}")).len()
    };
    let compact = || json!({"io.portcullis/result_detail": "compact"});
    let daemon = home.serve();
    let operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2025-11-25");
    assert_eq!(shown(&agent, "plain", json!({})), 12);
    assert_eq!(shown(&agent, "plain", compact()), 5);
    assert_eq!(shown(&agent, "compact", json!({})), 5);
    assert_eq!(shown(&agent, "compact", json!({"io.portcullis/result_detail": "full"})), 12);
    // What promised at least eight rows keeps all.
    assert_eq!(shown(&agent, "many", compact()), 12);
    drop(operator);
    daemon.stop();
    write("result_detail = \"compact\"\n");
    let daemon = home.serve();
    assert_eq!(shown(&Agent::open(&daemon, "2025-11-25"), "plain", json!({})), 5);
}
