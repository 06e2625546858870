//! What the reference implementation was seen to do (`gateway/corpus/pdpp`), replayed through the gateway: its answers must
//! come through, and where it was wrong the gateway must not be.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::admin::Program;
use crate::agent::Agent;
use crate::records::{Guarded, Rs, add, guarded, token_file, unescaped};
use crate::support::{Home, Operator, Spy};
use crate::surface::described;

fn captures(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn results() -> Vec<Value> {
    captures(include_str!("../../../gateway/corpus/pdpp/mcp-results.jsonl"))
}

/// A value whose strings were cleaned for models, as the server sent it.
fn as_sent(shown: &Value) -> Value {
    let text = unescaped(&shown.to_string().replace("&quot;", "\\\""));
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"))
}

const GATE: &str = r#"
[[gate]]
id = "pdpp-expand"
tools = ["pdpp/query_records"]
args = ["/expand", "/expand_limit"]
subject = { stream = "/stream", connection_id = "/connection_id?" }
source = { kind = "tool", tool = "schema", args = { stream = "{stream}", connection_id = "{connection_id?}" } }
rows = ["/streams/*", "/connectors/*/streams/*", "/data/streams/*", "/data/connectors/*/streams/*"]
key = ["name", "stream", "stream_name"]
equals = "{stream}"
require = "/expand_capabilities"
error = { code = "invalid_expand", param = "expand", message = "Stream '{stream}' advertises no expand_capabilities (requested: {values}). See GET /v1/schema (expand_capabilities)." }
[[gate.self_test]]
args = { stream = "s", expand = ["a"] }
response = '{"connectors":[{"streams":[{"name":"s","expand_capabilities":[]}]}]}'
expect = "deny"
[[gate.self_test]]
args = { stream = "s", expand = ["a"] }
response = '{"connectors":[{"streams":[{"name":"s","expand_capabilities":[{"name":"a"}]}]}]}'
expect = "allow"
"#;

#[test]
fn the_reference_servers_own_tools_are_gated_by_its_schema_and_answer_as_they_did() {
    // REC-83, T-REC-27, SURF-80, T-SURF-22
    let home = Home::new("");
    let capture: Value =
        serde_json::from_str(include_str!("../../../gateway/corpus/pdpp/mcp-tools-list.json")).unwrap();
    let mut tools = capture["body"]["result"]["tools"].as_array().unwrap().clone();
    // One that writes, as the spy itself does, so that all of theirs are what they say.
    tools.push(described("note_down", "Note something down for later."));
    let spy = Spy::speaking(&home, "pdpp", "2025-11-25");
    spy.offers(&home, &tools, &json!({}));
    let config = format!("[policy]\npreset = \"observe\"\n{GATE}");
    std::fs::write(home.path().join("portcullis.toml"), config).unwrap();
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2025-11-25");
    let schema = results().into_iter().find(|capture| capture["name"] == "mcp-schema").unwrap();
    let schema = schema["body"]["result"].clone();
    let sent = |tool: &str| {
        spy.frames("tools/call").iter().filter(|frame| frame.contains(&format!("\"{tool}\""))).count()
    };
    // What was granted for the source counts; for a gate nobody is asked.
    spy.answers(&json!({"schema": schema}));
    agent.call("pdpp__schema", json!({}));
    let mut replayed = [0; 3];
    for capture in
        results().iter().filter(|capture| capture["request"]["method"] == "tools/call").chain(&packaged())
    {
        let name = capture["name"].as_str().unwrap();
        let request = &capture["request"];
        let (tool, arguments) = match request["params"].is_object() {
            true => (&request["params"]["name"], &request["params"]["arguments"]),
            false => (&request["name"], &request["args"]),
        };
        let (tool, arguments) = (tool.as_str().unwrap(), arguments.clone());
        let answered = &capture["body"]["result"];
        let mut answers = json!({"schema": schema});
        answers[tool] = answered.clone();
        spy.answers(&answers);
        let before = sent(tool);
        let shown = agent.call(&format!("pdpp__{tool}"), arguments.clone());
        if tool == "nope" {
            assert_eq!(shown["error"]["code"], -32602, "{shown}");
            continue;
        }
        let expands = |key: &str| {
            let value = &arguments[key];
            value.as_array().is_some_and(|list| !list.is_empty())
                || value.as_object().is_some_and(|map| !map.is_empty())
        };
        let code = &shown["result"]["structuredContent"]["details"]["code"];
        if ["mcp-query-limit101", "mcp-query-unknownarg", "mcp-query-filter-string"].contains(&name) {
            assert_eq!((code, sent(tool)), (&json!("schema"), before), "{name}: {shown}");
            replayed[0] += 1;
        } else if tool == "query_records"
            && arguments["stream"] != "nope"
            && (expands("expand") || expands("expand_limit"))
        {
            // Its own gate looked in the wrong place and let these through; here they reach nobody.
            assert_eq!((code, sent(tool)), (&json!("invalid_expand"), before), "{name}: {shown}");
            assert_eq!(shown["result"]["structuredContent"]["details"]["source"], "pdpp/schema");
            replayed[1] += 1;
        } else {
            assert_eq!(sent(tool), before + 1, "{name}: {shown}");
            assert_eq!(shown["result"]["isError"], answered["isError"], "{name}");
            // GNT-P6: the structure of an error goes if the tool's own schema forbids it; its text says the same.
            let structured = &shown["result"]["structuredContent"];
            if answered["isError"] != true || structured.is_object() {
                assert_eq!(as_sent(structured), answered["structuredContent"], "{name}");
            }
            let text = |result: &Value| result["content"][0]["text"].as_str().unwrap().to_owned();
            // What is JSON stays JSON, string by string; anything else is one text.
            match serde_json::from_str::<Value>(&text(&shown["result"])) {
                Ok(found) => {
                    let sent: Value = serde_json::from_str(&text(answered)).unwrap();
                    assert_eq!(as_sent(&found), sent, "{name}");
                }
                Err(_) => assert_eq!(unescaped(&text(&shown["result"])), text(answered), "{name}"),
            }
            replayed[2] += 1;
        }
    }
    assert_eq!(replayed, [3, 6, 28]);
}

/// The same tools through a client with several grants.
fn packaged() -> Vec<Value> {
    captures(include_str!("../../../gateway/corpus/pdpp/mcp-package-results.jsonl"))
}

/// Pages whose size the specification speaks of, with what they came to as structure.
fn large_pages() -> [(Value, usize); 3] {
    let read = |text: &str| serde_json::from_str(text).unwrap();
    [
        (read(include_str!("../../../gateway/corpus/pdpp/mcp-size-bodies100.json")), 220_908),
        (read(include_str!("../../../gateway/corpus/pdpp/mcp-size-bodies100-fields.json")), 19_641),
        (read(include_str!("../../../gateway/corpus/pdpp/mcp-size-query100.json")), 51_965),
    ]
}

#[test]
fn large_pages_of_the_reference_have_the_same_rows_here_and_fewer_words_around_them() {
    // REC-41, REC-42, SURF-75, T-REC-16; mcp-size-*.json
    let guarded: Guarded = guarded("", &["--profile", "v01"]).warmed();
    for (capture, size) in large_pages() {
        let (name, answered) = (&capture["name"], &capture["body"]["result"]["structuredContent"]);
        assert_eq!(answered.to_string().len(), size, "{name}");
        let page = guarded.good("query_records", capture["request"]["params"]["arguments"].clone());
        let (ours, theirs) = (&page["structuredContent"]["data"], &answered["data"]);
        assert_eq!(as_sent(&ours["data"]), theirs["data"], "{name}");
        assert_eq!(ours["has_more"], theirs["has_more"], "{name}");
        let text = page["content"][0]["text"].as_str().unwrap();
        assert!(text.len() <= 1_792 && text.starts_with("70 record(s) from "), "{name}: {text}");
        let structured = page["structuredContent"].to_string().len();
        assert!(structured < size, "{name}: {structured}");
    }
}

#[test]
fn large_pages_of_the_references_own_server_are_measured_and_pass_as_they_are() {
    // SURF-70, SURF-71, SURF-75, T-SURF-19; mcp-size-*.json
    let home = Home::new("[policy]\npreset = \"observe\"\n");
    let spy = Spy::speaking(&home, "pdpp", "2025-11-25");
    let names = ["bodies", "bodies_fields", "messages"];
    let tools: Vec<Value> =
        names.iter().chain(&["note_down"]).map(|name| described(name, "Read a page of records.")).collect();
    spy.offers(&home, &tools, &json!({}));
    let answers = names
        .iter()
        .zip(large_pages())
        .map(|(name, (capture, _))| ((*name).to_owned(), capture["body"]["result"].clone()));
    spy.answers(&Value::Object(answers.collect()));
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2025-11-25");
    for (name, (capture, size)) in names.iter().zip(large_pages()) {
        let shown = agent.call(&format!("pdpp__{name}"), json!({}))["result"].clone();
        let sent = &capture["body"]["result"];
        assert_eq!(as_sent(&shown["structuredContent"]), sent["structuredContent"], "{name}");
        assert_eq!(sent["structuredContent"].to_string().len(), size, "{name}");
        let report = home.json(&["results", "report", "--profile", "strict"]);
        let rows = report["tools"].as_array().unwrap();
        let row = rows.iter().find(|row| row["tool"] == format!("pdpp/{name}")).unwrap();
        // What is measured is what is shown, where some characters are escaped.
        assert_eq!(row["structured"]["max"], shown["structuredContent"].to_string().len(), "{row}");
    }
}

/// A resource server that answers as it is told, and remembers what it was asked.
#[derive(Clone, Default)]
struct Stub {
    answer: Arc<Mutex<Schema>>,
    asked: Arc<Mutex<Vec<String>>>,
}

/// What it answers about one stream.
#[derive(Clone, Default)]
enum Schema {
    #[default]
    Reset,
    Body(u16, &'static str, String),
}

impl Stub {
    /// Where it listens. It ends with the test's process.
    fn start(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let stub = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let stub = stub.clone();
                std::thread::spawn(move || stub.serve(stream));
            }
        });
        address
    }

    fn serve(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream);
        let mut first = String::new();
        if reader.read_line(&mut first).unwrap_or(0) == 0 {
            return;
        }
        let mut line = String::new();
        while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
            line.clear();
        }
        let target = first.split(' ').nth(1).unwrap_or_default().replace("%5B", "[").replace("%5D", "]");
        let (status, kind, body) = match target.as_str() {
            // Whose token it is.
            "/v1/schema?view=compact" => {
                let body = json!({"object": "schema", "bearer": {"scope": "grant", "token_kind": "client"}, "connectors": []});
                (200, "application/json", body.to_string())
            }
            schema if schema.starts_with("/v1/schema") => {
                self.asked.lock().unwrap().push(target.clone());
                match self.answer.lock().unwrap().clone() {
                    // Nothing is said before the connection ends.
                    Schema::Reset => return,
                    Schema::Body(status, kind, body) => (status, kind, body),
                }
            }
            _ => {
                self.asked.lock().unwrap().push(target.clone());
                let body = json!({"object": "list", "has_more": false, "data": [], "url": "/v1/streams/s/records", "meta": {"count": {"kind": "none"}, "warnings": []}});
                (200, "application/json", body.to_string())
            }
        };
        let head = format!(
            "HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        let mut stream = reader.into_inner();
        let _ = stream.write_all(format!("{head}{body}").as_bytes());
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read(&mut [0; 1]);
    }
}

#[test]
fn the_expand_gate_decides_where_the_reference_decides_and_where_it_should_have() {
    // REC-60, REC-62, REC-63, REC-66, T-REC-8, T-REC-10, T-REC-11; gate-probe.jsonl
    let stub = Stub::default();
    let home = Home::new("[policy]\npreset = \"observe\"\n");
    let file = token_file(&home, "grant.token", &json!("a-token-of-a-grant"));
    let url = stub.start();
    home.json(&add(&url, &file));
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2025-11-25");
    agent.call("personal__query_records", json!({"stream": "s"}));
    let caps = |caps: Value| json!([{"name": "s", "expand_capabilities": caps}]);
    let body = |body: Value| Schema::Body(200, "application/json", body.to_string());
    let able = json!([{"name": "a", "usable": true}]);
    let captured = captures(include_str!("../../../gateway/corpus/pdpp/gate-probe.jsonl"));
    assert_eq!(captured.len(), 14);
    for case in &captured {
        let name = case["case"].as_str().unwrap();
        let empty = body(json!({"streams": caps(json!([]))}));
        let two =
            json!([{"name": "s", "expand_capabilities": []}, {"name": "s", "expand_capabilities": able}]);
        *stub.answer.lock().unwrap() = match name {
            "flat, caps present" | "flat, other relation" => body(json!({"streams": caps(able.clone())})),
            "flat, caps usable:false" => {
                body(json!({"streams": caps(json!([{"name": "a", "usable": false}]))}))
            }
            "nested connectors (real RS shape), caps empty" => {
                body(json!({"connectors": [{"streams": caps(json!([]))}]}))
            }
            "data-wrapped flat, caps empty" => body(json!({"data": {"streams": caps(json!([]))}})),
            "two rows same name, first empty second has" => body(json!({"streams": two})),
            "schema 503" => Schema::Body(503, "application/json", "{}".into()),
            "schema 401" => Schema::Body(401, "application/json", "{}".into()),
            "schema network error" => Schema::Reset,
            "schema invalid json body" => Schema::Body(200, "application/json", "{not json".into()),
            "schema text/html 200" => Schema::Body(200, "text/html", "<p>hello</p>".into()),
            "flat, caps empty" | "flat, caps empty, expand_limit only" | "expand empty array" => empty,
            other => panic!("{other}"),
        };
        let arguments = match name {
            "flat, other relation" => json!({"stream": "s", "expand": ["zzz"]}),
            "flat, caps empty, expand_limit only" => json!({"stream": "s", "expand_limit": {"a": 1}}),
            "expand empty array" => json!({"stream": "s", "expand": []}),
            _ => json!({"stream": "s", "expand": ["a"]}),
        };
        stub.asked.lock().unwrap().clear();
        let shown = agent.call("personal__query_records", arguments)["result"].clone();
        let asked = std::mem::take(&mut *stub.asked.lock().unwrap());
        let reached = asked.iter().any(|target| target.starts_with("/v1/streams/"));
        // Where the specification says that the reference is wrong, the opposite is right.
        let wrong = [
            "flat, caps empty, expand_limit only",
            "nested connectors (real RS shape), caps empty",
            "two rows same name, first empty second has",
            "schema network error",
            "schema invalid json body",
        ];
        let seen = case["records_called"] == true;
        assert_eq!(reached, seen != wrong.contains(&name), "{name}: {shown} {asked:?}");
        assert_eq!(shown["isError"] == true, !reached, "{name}: {shown}");
        if reached {
            assert!(asked.len() == 1 || asked[0] == "/v1/schema?view=compact&stream=s", "{name}: {asked:?}");
        } else {
            let details = &shown["structuredContent"]["details"];
            assert_eq!(
                (&details["code"], &details["gate"]),
                (&json!("invalid_expand"), &json!("records-expand"))
            );
            assert_eq!(asked, ["/v1/schema?view=compact&stream=s"], "{name}");
        }
        if !wrong.contains(&name) {
            assert_eq!(json!(asked), case["rs_calls"], "{name}");
        }
    }
    // SURF-52: each verdict with its reason, and how long the documents took.
    let metrics = Program::new(&home, &daemon).metrics();
    for line in [
        "portcullis_gate_verdicts_total{gate=\"records-expand\",verdict=\"allow\",reason=\"\"} 4",
        "portcullis_gate_verdicts_total{gate=\"records-expand\",verdict=\"deny\",reason=\"\"} 4",
        "portcullis_gate_verdicts_total{gate=\"records-expand\",verdict=\"source_error\",reason=\"http_503\"} 1",
        "portcullis_gate_source_seconds_count{gate=\"records-expand\"} 13",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
}

#[test]
fn the_adapter_asks_what_the_references_working_gate_asks() {
    // REC-61, REC-66, T-REC-8; mcp-package-results.jsonl
    let guarded: Guarded = guarded("", &["--profile", "v01"]).warmed();
    let captured = packaged();
    for name in ["mcp-pkg-expand-labels", "mcp-pkg-fetch-expand", "mcp-pkg-expandlimit-only"] {
        let capture = captured.iter().find(|capture| capture["name"] == name).unwrap();
        let (tool, args) = (capture["request"]["name"].as_str().unwrap(), capture["request"]["args"].clone());
        let no = guarded.refused(tool, args);
        assert_eq!(no["details"]["code"], "invalid_expand", "{name}: {no}");
        let asked: Vec<String> = guarded.rs.asked().iter().map(Rs::target).collect();
        let schema = "/v1/schema?view=compact&stream=labels&connection_id=cin_gmail_work";
        assert_eq!(asked, [schema], "{name}");
        // `expand_limit` alone went to the records there, and was refused by them.
        let theirs = capture["rs_calls"][0].as_str().unwrap();
        assert_eq!(theirs.starts_with(schema), name != "mcp-pkg-expandlimit-only", "{theirs}");
    }
}
