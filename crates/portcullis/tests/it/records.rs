//! The records adapter, between an agent and a real records server whose log tells what reached it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::support::{Daemon, Home, Operator, eventually, exchange, program};

/// A records server.
pub(crate) struct Rs {
    child: Child,
    rs: String,
    admin: String,
    pub(crate) tokens: Value,
}

impl Rs {
    fn start(home: &Home, args: &[&str]) -> Self {
        let ready = home.beside("records.json");
        let mut command = Command::new(program("records-server"));
        command.args(["--deterministic", "--ready-file"]).arg(&ready).args(args);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let text = eventually("the records server", || {
            assert!(child.try_wait().unwrap().is_none(), "the records server ended");
            fs::read_to_string(&ready).ok()
        });
        let ready: Value = serde_json::from_str(&text).unwrap();
        let url = |key: &str| ready[key].as_str().unwrap().to_owned();
        Self { child, rs: url("rs"), admin: url("admin"), tokens: ready["tokens"].clone() }
    }

    fn turn(&self, method: &str, path: &str, body: &Value) -> Value {
        let address = self.admin.strip_prefix("http://").unwrap();
        let reply =
            exchange(address, method, path, &[("Content-Type", "application/json")], &body.to_string())
                .unwrap();
        reply.json()
    }

    pub(crate) fn fault(&self, fault: Value) {
        assert_eq!(self.turn("POST", "/fault", &fault)["ok"], true);
    }

    /// What reached it since the last look: method, path and query.
    pub(crate) fn asked(&self) -> Vec<Value> {
        let log = self.turn("GET", "/log", &json!({}));
        self.turn("DELETE", "/log", &json!({}));
        log.as_array().unwrap().clone()
    }

    /// An entry of its log as it was asked for.
    pub(crate) fn target(entry: &Value) -> String {
        let pair = |pair: &Value| format!("{}={}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap());
        let query: Vec<String> = entry["query"].as_array().unwrap().iter().map(pair).collect();
        let path = entry["path"].as_str().unwrap();
        if query.is_empty() { path.to_owned() } else { format!("{path}?{}", query.join("&")) }
    }

    fn paths(&self) -> Vec<String> {
        self.asked().iter().map(|entry| entry["path"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Rs {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A gateway with a records server behind it.
pub(crate) struct Guarded {
    pub(crate) home: Home,
    pub(crate) rs: Rs,
    pub(crate) daemon: Daemon,
    pub(crate) agent: Agent,
    _operator: Operator,
}

pub(crate) fn token_file(home: &Home, name: &str, token: &Value) -> String {
    let file = home.beside(name);
    fs::write(&file, token.as_str().unwrap()).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    file.to_str().unwrap().to_owned()
}

pub(crate) fn add<'a>(url: &'a str, file: &'a str) -> Vec<&'a str> {
    vec![
        "mcp",
        "add",
        "personal",
        "--transport",
        "records",
        "--url",
        url,
        "--credential-file",
        file,
        "--justification",
        "mail",
        "--deployment-mode",
        "local",
    ]
}

pub(crate) fn guarded(config: &str, args: &[&str]) -> Guarded {
    let home = Home::new(&format!("[policy]\npreset = \"observe\"\n{config}"));
    let rs = Rs::start(&home, args);
    let file = token_file(&home, "grant.token", &rs.tokens["client"]);
    let record = home.json(&add(&rs.rs, &file));
    // REC-1, GOV-103
    assert_eq!((&record["boundary_kind"], &record["transport"]), (&json!("builtin"), &json!("records")));
    let daemon = home.serve();
    let operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2025-11-25");
    rs.asked();
    Guarded { home, rs, daemon, agent, _operator: operator }
}

impl Guarded {
    fn call(&self, tool: &str, arguments: Value) -> Value {
        let answer = self.agent.call(&format!("personal__{tool}"), arguments);
        assert!(answer["result"].is_object(), "{answer}");
        answer["result"].clone()
    }

    /// A call that must succeed.
    fn good(&self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments);
        assert_ne!(result["isError"], true, "{result}");
        result
    }

    /// The document of a refusal.
    pub(crate) fn refused(&self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], true, "{result}");
        let document: Value =
            serde_json::from_str(&unescaped(result["content"][0]["text"].as_str().unwrap())).unwrap();
        // SURF-80: the same as structure, for clients that show only that.
        let structured = &result["structuredContent"];
        let codes = |document: &Value| (document["error"].clone(), document["details"]["code"].clone());
        assert_eq!(codes(structured), codes(&document));
        document
    }

    /// The first call of a tool also looks at the credential; after this, only what is asked for reaches the server.
    pub(crate) fn warmed(self) -> Self {
        self.good("schema", json!({}));
        self.rs.asked();
        self
    }
}

pub(crate) fn unescaped(text: &str) -> String {
    text.replace("&#39;", "'")
        .replace("&#x27;", "'")
        .replace("&quot;", "\"")
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
}

fn text(result: &Value) -> String {
    unescaped(result["content"][0]["text"].as_str().unwrap())
}

#[test]
fn the_list_is_what_is_written_down_and_the_instructions_name_what_to_do_first() {
    // REC-20, REC-21, REC-80, T-REC-1, T-REC-2, T-REC-3
    let guarded = guarded("", &["--profile", "rich"]);
    let listed = guarded.agent.result("tools/list", json!({}));
    let wanted: Vec<Value> =
        serde_json::from_str(include_str!("../../../gateway/corpus/records/tools.json")).unwrap();
    let found = listed["tools"].as_array().unwrap();
    assert_eq!(found.len(), 13);
    for (found, wanted) in found.iter().zip(&wanted) {
        let mut plain = found.clone();
        plain["name"] = json!(found["name"].as_str().unwrap().strip_prefix("personal__").unwrap());
        assert_eq!(plain.to_string(), wanted.to_string());
    }
    let told = guarded.agent.hello["instructions"].as_str().unwrap();
    let head = told[..512].trim_end();
    for topic in [
        "call schema, then schema(stream)",
        "connection_id",
        "Filters are typed objects",
        "page with limit and cursor",
    ] {
        assert!(head.contains(topic), "{head}");
    }
    assert!(head.ends_with('.') && told.contains("Records notes: "), "{told}");
    assert!(!told.to_lowercase().contains("owner"), "{told}");
}

#[test]
fn three_queries_go_through_the_whole_gate() {
    // REC-40, REC-41, T-REC-16, T-REC-18
    let guarded = guarded("", &["--profile", "rich"]).warmed();
    let schema = guarded.good("schema", json!({"stream": "messages"}));
    assert!(
        text(&schema)
            .starts_with("schema: connectors=1 streams=1 detail=compact\nstream messages connector=gmail"),
        "{}",
        text(&schema)
    );
    assert!(text(&schema).contains("expand=message_bodies|attachments"));
    let count = guarded.good("aggregate", json!({"stream": "messages", "metric": "count"}));
    assert_eq!(text(&count), "count(messages) = 70");
    assert_eq!(count["structuredContent"]["data"]["value"], 70);
    let sum =
        guarded.good("aggregate", json!({"stream": "messages", "metric": "sum", "field": "size_bytes"}));
    assert_eq!(sum["structuredContent"]["data"]["value"], 82_150);
    let page = guarded.good(
        "query_records",
        json!({
            "stream": "messages", "limit": 2, "connection_id": "cin_gmail_work", "fields": ["subject"],
            "filter": {"from_email": "p1@example.com", "received_at": {"gte": "2026-01-01T00:00:00Z"}},
        }),
    );
    let first = text(&page);
    assert!(first.starts_with("2 record(s) from messages. has_more=true next_cursor="), "{first}");
    assert!(first.contains("\ncin_gmail_work/messages:m11 subject=Status w11"), "{first}");
    assert!(page["structuredContent"]["request_id"].as_str().unwrap().starts_with("req_"));
    let log = guarded.rs.asked();
    // REC-31, T-REC-5
    assert_eq!(
        log.last().unwrap()["query"],
        json!([
            ["limit", "2"],
            ["filter[from_email]", "p1@example.com"],
            ["filter[received_at][gte]", "2026-01-01T00:00:00Z"],
            ["fields", "subject"],
            ["connection_id", "cin_gmail_work"],
        ])
    );
    let hits = guarded.good("search", json!({"q": "invoice", "limit": 2, "streams": ["messages"]}));
    let id = hits["structuredContent"]["results"][0]["id"].as_str().unwrap().to_owned();
    assert!(
        text(&hits).contains(&format!("first_fetch_id={id}")) && !text(&hits).contains("mark"),
        "{}",
        text(&hits)
    );
    let document = guarded.good("fetch", json!({"id": id}));
    assert_eq!(document["structuredContent"]["id"], id.as_str());
    let body = guarded.good("fetch", json!({"id": "cin_gmail_work/message_bodies:b1"}));
    assert!(body["structuredContent"]["text"].as_str().unwrap().starts_with("Dear reader"));
    // T-REC-17
    let window = guarded.good(
        "read_record_field",
        json!({"id": "cin_gmail_work/message_bodies:b1", "field_path": "body_text", "limit_chars": 100}),
    );
    assert!(
        text(&window).starts_with(
            "cin_gmail_work/message_bodies:b1 body_text 0..100 of 2701 next: offset_chars=100\nDear reader"
        ),
        "{}",
        text(&window)
    );
    let next = guarded.good("read_record_field", json!({"id": "cin_gmail_work/message_bodies:b1", "field_path": "body_text", "limit_chars": 100, "cursor": "100"}));
    assert_eq!(next["structuredContent"]["window"]["start_chars"], 100);
    assert_eq!(
        guarded.refused(
            "read_record_field",
            json!({"id": "cin_gmail_work/message_bodies:b1", "field_path": "body_text", "q": "zebra"})
        )["details"]["code"],
        "query_not_found"
    );
    assert_eq!(
        guarded.refused(
            "read_record_field",
            json!({"id": "cin_gmail_work/messages:m1", "field_path": "size_bytes"})
        )["details"]["http_status"],
        422
    );
    // REC-33, T-REC-15
    let fan = guarded.good("query_records", json!({"stream": "messages", "limit": 2, "fields": ["subject"]}));
    assert!(text(&fan).contains("4 rows for limit 2: several connections; page one with connection_id=cin_gmail_personal|cin_gmail_work"), "{}", text(&fan));
    // Seventy long rows stay within their lines.
    let long = guarded.good("query_records", json!({"stream": "message_bodies", "limit": 100}));
    assert!(long["content"][0]["text"].as_str().unwrap().len() <= 1_792);
    assert_eq!(long["structuredContent"]["data"]["data"].as_array().unwrap().len(), 70);
    let none = guarded.good("query_records", json!({"stream": "messages", "filter": {"subject": "nothing"}}));
    assert_eq!(text(&none), "0 record(s) from messages. has_more=false");
    guarded.home.verify();
}

#[test]
fn what_cannot_be_meant_reaches_nobody() {
    // REC-30, REC-32, T-REC-4, T-REC-6, T-SURF-22
    let guarded = guarded("", &["--profile", "rich"]).warmed();
    for (tool, arguments, code) in [
        ("query_records", json!({"stream": "messages", "limit": 101}), "schema"),
        ("query_records", json!({"stream": "messages", "limit": 0}), "schema"),
        ("query_records", json!({"stream": "messages", "limit": "5"}), "schema"),
        ("query_records", json!({"stream": "messages", "order": "up"}), "schema"),
        ("query_records", json!({"stream": ""}), "schema"),
        ("query_records", json!({"stream": "a/b"}), "invalid_stream"),
        ("query_records", json!({"stream": "a\\b"}), "invalid_stream"),
        ("query_records", json!({"stream": "a\u{7}"}), "invalid_stream"),
        ("query_records", json!({"stream": ".."}), "invalid_stream"),
        ("query_records", json!({"stream": "x".repeat(257)}), "invalid_stream"),
        ("query_records", json!({"stream": "messages", "connection_id": "a/b"}), "invalid_connection"),
        ("query_records", json!({"stream": "messages", "filter": {"f": {}}}), "invalid_filter"),
        ("query_records", json!({"stream": "messages", "filter": {"filter[a]": 1}}), "invalid_filter"),
        ("query_records", json!({"stream": "messages", "filter": {"a": [1]}}), "schema"),
        ("query_records", json!({"stream": "messages", "filter": {"a": null}}), "schema"),
        ("query_records", json!({"stream": "messages", "expand_limit": {}}), "invalid_expand"),
        ("fetch", json!({"id": "a/b/c:d"}), "invalid_id"),
        ("fetch", json!({"id": ":x"}), "invalid_id"),
        ("fetch", json!({"id": "s:"}), "invalid_id"),
        (
            "read_record_field",
            json!({"id": "s:r", "field_path": "x", "q": "a", "cursor": "1"}),
            "invalid_field_window_selector",
        ),
        (
            "read_record_field",
            json!({"id": "s:r", "field_path": "x", "before_chars": 1}),
            "invalid_field_window_selector",
        ),
        (
            "read_record_field",
            json!({"id": "s:r", "field_path": "x", "cursor": "ten"}),
            "invalid_field_window_selector",
        ),
        ("create_event_subscription", json!({}), "callback_required"),
        (
            "create_event_subscription",
            json!({"callback_url": "http://hooks.example.com/"}),
            "callback_not_allowed",
        ),
        ("query_records", json!({"stream": "messages", "filter": "a=b"}), "schema"),
        ("query_records", json!({"stream": "messages", "more": 1}), "schema"),
        ("query_records", json!({"stream": "../x"}), "invalid_stream"),
        ("query_records", json!({"stream": "messages", "filter": {}}), "invalid_filter"),
        ("query_records", json!({"stream": "messages", "filter": {"a": {"foo": 1}}}), "invalid_filter"),
        ("fetch", json!({"id": "nocolon"}), "invalid_id"),
        (
            "fetch",
            json!({"id": "cin_gmail_work/messages:m1", "connection_id": "cin_gmail_personal"}),
            "conflicting_connection_id",
        ),
        ("read_record_field", json!({"field_path": "x"}), "invalid_field_window_selector"),
        (
            "create_event_subscription",
            json!({"callback_url": "https://hooks.example.com.evil/"}),
            "callback_not_allowed",
        ),
    ] {
        let refused = guarded.refused(tool, arguments.clone());
        assert_eq!(refused["error"], "ARGS_INVALID", "{refused}");
        // SURF-80
        assert_eq!(refused["details"]["code"], code, "{arguments}: {refused}");
    }
    assert_eq!(guarded.rs.paths(), Vec::<String>::new());
    let ambiguous = guarded.refused("fetch", json!({"id": "messages:m1"}));
    assert_eq!(ambiguous["details"]["retry_with"], "connection_id");
    assert_eq!(ambiguous["details"]["choices"][1]["connection_id"], "cin_gmail_work");
    guarded.rs.asked();
    guarded.good("fetch", json!({"id": "messages:m1", "connection_id": "cin_gmail_work"}));
    guarded.good("fetch", json!({"id": "cin_gmail_work/messages:m1"}));
    // What was right once is not remembered: without it the server is asked, and says so again.
    assert_eq!(guarded.refused("fetch", json!({"id": "messages:m1"}))["details"]["http_status"], 409);
    let sent: Vec<Value> = guarded.rs.asked().iter().map(|entry| entry["query"].clone()).collect();
    let work = json!([["connection_id", "cin_gmail_work"]]);
    assert_eq!(sent, [work.clone(), work, json!([])]);
}

#[test]
fn expansion_is_refused_where_the_live_schema_has_none() {
    // REC-60, REC-61, REC-64, T-REC-7, T-REC-8, T-REC-9
    let guarded = guarded("", &["--profile", "rich"]).warmed();
    let page = guarded.good("query_records", json!({"stream": "messages", "limit": 1, "connection_id": "cin_gmail_work", "expand": ["message_bodies"]}));
    assert!(page["structuredContent"]["data"]["data"][0]["expanded"]["message_bodies"].is_object());
    let log = guarded.rs.asked();
    assert_eq!(
        log.iter().map(|entry| entry["path"].as_str().unwrap()).collect::<Vec<_>>(),
        ["/v1/schema", "/v1/streams/messages/records"]
    );
    assert_eq!(
        log[0]["query"],
        json!([["view", "compact"], ["stream", "messages"], ["connection_id", "cin_gmail_work"]])
    );
    for (tool, arguments) in [
        ("query_records", json!({"stream": "labels", "expand": ["messages"]})),
        ("query_records", json!({"stream": "labels", "expand_limit": {"messages": 2}})),
        ("fetch", json!({"id": "cin_gmail_work/labels:INBOX", "expand": ["messages"]})),
        ("fetch", json!({"id": "cin_gmail_work/labels:INBOX", "expand_limit": {"messages": 2}})),
    ] {
        let refused = guarded.refused(tool, arguments);
        assert_eq!(refused["details"]["code"], "invalid_expand", "{refused}");
        assert_eq!(
            (&refused["details"]["gate"], &refused["details"]["verdict"]),
            (&json!("records-expand"), &json!("deny"))
        );
        let message = refused["message"].as_str().unwrap();
        assert!(
            message.contains("'labels'") && message.contains("GET /v1/schema (expand_capabilities)"),
            "{message}"
        );
        assert_eq!(refused["path"], format!("personal/{tool}"));
    }
    let log = guarded.rs.asked();
    assert!(log.iter().all(|entry| entry["path"] == "/v1/schema") && log.len() == 4, "{log:?}");
    assert_eq!(log[2]["query"][2], json!(["connection_id", "cin_gmail_work"]));
    guarded.good("query_records", json!({"stream": "labels", "expand": []}));
    assert_eq!(guarded.rs.paths(), ["/v1/streams/labels/records"]);
    // A capability binds the next call, in both directions.
    let relation = json!([{"name": "messages", "usable": true}]);
    guarded.rs.turn("PUT", "/capabilities", &json!({"stream": "labels", "expand": relation}));
    let forwarded = guarded.refused(
        "query_records",
        json!({"stream": "labels", "connection_id": "cin_gmail_work", "expand": ["messages"]}),
    );
    assert_eq!(
        (&forwarded["error"], &forwarded["details"]["http_status"]),
        (&json!("UPSTREAM_ERROR"), &json!(400))
    );
    guarded.rs.turn("PUT", "/capabilities", &json!({"stream": "labels", "expand": []}));
    assert_eq!(
        guarded.refused("query_records", json!({"stream": "labels", "expand": ["messages"]}))["details"]["verdict"],
        "deny"
    );
}

#[test]
fn every_shape_of_the_schema_gives_the_same_verdict() {
    // REC-62, T-REC-10
    let guarded = guarded("", &["--profile", "rich"]).warmed();
    for shape in ["nested", "flat", "wrapped", "wrapped-nested"] {
        guarded.rs.turn("PUT", "/schema-shape", &json!({"shape": shape}));
        guarded.good("query_records", json!({"stream": "messages", "limit": 1, "expand": ["attachments"], "connection_id": "cin_gmail_work"}));
        let refused = guarded.refused("query_records", json!({"stream": "labels", "expand": ["x"]}));
        assert_eq!(refused["details"]["verdict"], "deny", "{shape}");
        // One of two connections can: that one, or any.
        guarded.rs.turn(
            "PUT",
            "/capabilities",
            &json!({"stream": "messages", "connection_id": "cin_gmail_work", "expand": []}),
        );
        guarded.good("query_records", json!({"stream": "messages", "limit": 1, "expand": ["attachments"]}));
        let refused = guarded.refused("query_records", json!({"stream": "messages", "limit": 1, "expand": ["attachments"], "connection_id": "cin_gmail_work"}));
        assert_eq!(refused["details"]["verdict"], "deny", "{shape}");
        guarded.rs.turn(
            "PUT",
            "/capabilities",
            &json!({"stream": "messages", "connection_id": "cin_gmail_work", "expand": null}),
        );
    }
}

#[test]
fn a_schema_that_cannot_be_read_stops_nothing_but_is_told_of() {
    // REC-63, SURF-92, SURF-95, T-REC-11
    let guarded = guarded("", &["--profile", "rich"]).warmed();
    let asked = json!({"stream": "messages", "limit": 1, "connection_id": "cin_gmail_work", "expand": ["attachments"]});
    let faults = [
        json!({"kind": "status", "status": 503}),
        json!({"kind": "status", "status": 401}),
        json!({"kind": "hang", "delay_ms": 4000}),
        json!({"kind": "reset"}),
        json!({"kind": "bad_json"}),
        json!({"kind": "html"}),
        json!({"kind": "large", "body_bytes": 2_097_152}),
        json!({"kind": "redirect"}),
    ];
    for fault in faults {
        let mut fault = fault;
        fault["path_prefix"] = json!("/v1/schema");
        guarded.rs.fault(fault.clone());
        guarded.good("query_records", asked.clone());
        assert_eq!(guarded.rs.paths().last().unwrap(), "/v1/streams/messages/records", "{fault}");
    }
    assert_eq!(guarded.home.events("gate.never_decides").len(), 0);
    for _ in 0..12 {
        guarded.rs.fault(json!({"path_prefix": "/v1/schema", "kind": "status", "status": 503}));
        guarded.good("query_records", asked.clone());
    }
    let told = eventually("the alarm", || guarded.home.events("gate.never_decides").pop());
    assert!(told["data"]["reason"].as_str().unwrap().contains("records-expand"), "{told}");
    // The relation itself is judged by the server, unless the operator wants it judged here.
    guarded.rs.asked();
    let passed = guarded.refused(
        "query_records",
        json!({"stream": "messages", "limit": 1, "connection_id": "cin_gmail_work", "expand": ["thread"]}),
    );
    assert_eq!(passed["details"]["upstream"]["code"], "invalid_expand");
}

#[test]
fn relations_are_judged_here_if_the_operator_wants_it() {
    // REC-65, T-REC-12, T-REC-13
    let guarded = guarded("[records.personal]\nstrict_relations = true\n", &["--profile", "rich"]).warmed();
    let refused = guarded.refused("query_records", json!({"stream": "messages", "expand": ["thread"]}));
    assert_eq!(refused["details"]["verdict"], "deny");
    assert_eq!(guarded.rs.paths(), ["/v1/schema"]);
    guarded.rs.turn("PUT", "/profile", &json!({"profile": "v01"}));
    assert_eq!(
        guarded.refused("query_records", json!({"stream": "messages", "expand": ["attachments"]}))["details"]
            ["verdict"],
        "deny"
    );
    let plain = guarded.refused("query_records", json!({"stream": "messages", "filter": {"is_seen": true}}));
    assert_eq!(
        (&plain["details"]["code"], &plain["details"]["upstream"]["param"]),
        (&json!("invalid_request"), &json!("filter"))
    );
}

#[test]
fn pages_and_changes_lead_to_the_end_once() {
    // T-REC-14
    let guarded = guarded("", &["--profile", "rich"]).warmed();
    let (mut ids, mut cursor) = (Vec::new(), None);
    loop {
        let mut asked = json!({"stream": "messages", "limit": 7, "fields": ["subject"], "connection_id": "cin_gmail_work"});
        if let Some(cursor) = &cursor {
            asked["cursor"] = json!(cursor);
        }
        let page = guarded.good("query_records", asked)["structuredContent"]["data"].clone();
        ids.extend(page["data"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned()));
        cursor = page["next_cursor"].as_str().map(ToOwned::to_owned);
        if cursor.is_none() {
            assert_eq!(page["has_more"], false);
            break;
        }
    }
    let count = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!((count, ids.len()), (30, 30));
    let changes = |since: &str| {
        guarded.good(
            "query_records",
            json!({"stream": "labels", "connection_id": "cin_gmail_work", "changes_since": since}),
        )["structuredContent"]["data"]
            .clone()
    };
    let first = changes("beginning");
    assert_eq!(first["data"].as_array().unwrap().len(), 2);
    let line = json!({"connection_id": "cin_gmail_work", "stream": "labels", "data": {"name": "New", "is_system": false}});
    guarded.rs.turn("POST", "/ingest", &line);
    let second = changes(first["next_changes_since"].as_str().unwrap());
    assert_eq!(second["data"].as_array().unwrap().len(), 1);
    assert_eq!(second["data"][0]["id"], "New");
}

#[test]
fn only_tokens_of_grants_are_used() {
    // REC-10, REC-11, REC-12, T-REC-19, T-REC-20
    let home = Home::new("[policy]\npreset = \"observe\"\n");
    let rs = Rs::start(&home, &[]);
    let owner = token_file(&home, "some.token", &rs.tokens["owner"]);
    let (_, error) = home.fails(&add(&rs.rs, &owner));
    assert!(error["message"].as_str().unwrap().contains("only grant-scoped tokens are used"), "{error}");
    let named = token_file(&home, "owner.token", &rs.tokens["client"]);
    let (_, error) = home.fails(&add(&rs.rs, &named));
    assert!(error["message"].as_str().unwrap().contains("named like an owner"), "{error}");
    let shared = token_file(&home, "shared.token", &rs.tokens["client"]);
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o644)).unwrap();
    let (_, error) = home.fails(&add(&rs.rs, &shared));
    assert!(error["message"].as_str().unwrap().contains("others can read"), "{error}");
    assert!(rs.asked().iter().all(|entry| entry["path"] == "/v1/schema"));

    let file = token_file(&home, "grant.token", &rs.tokens["client"]);
    home.json(&add(&rs.rs, &file));
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2025-11-25");
    let count =
        |agent: &Agent| agent.call("personal__aggregate", json!({"stream": "messages", "metric": "count"}));
    assert_eq!(count(&agent)["result"]["structuredContent"]["data"]["value"], 70);
    // Another grant's token, put in its place: held to that grant.
    fs::write(&file, rs.tokens["narrow"].as_str().unwrap()).unwrap();
    assert_eq!(count(&agent)["result"]["structuredContent"]["data"]["value"], 40);
    fs::write(&file, rs.tokens["owner"].as_str().unwrap()).unwrap();
    rs.asked();
    let refused = count(&agent);
    assert!(refused.to_string().contains("owner_credential_refused"), "{refused}");
    assert!(rs.asked().iter().all(|entry| entry["path"] == "/v1/schema"));
    eventually("the halt", || home.events("server.halted").pop());
    assert_eq!(home.events("records.credential_refused").len(), 1);
    // T-REC-25: no token anywhere.
    let everything = home.log().iter().map(Value::to_string).collect::<String>();
    for token in ["client", "narrow", "owner"] {
        assert!(!everything.contains(rs.tokens[token].as_str().unwrap()), "{token}");
    }
}

#[test]
fn what_the_server_says_no_to_is_passed_on_in_its_words() {
    // REC-75, T-REC-20, T-REC-24
    let guarded = guarded("", &[]).warmed();
    let asked = json!({"stream": "messages", "metric": "count"});
    for (fault, error, code) in [
        (json!({"kind": "html", "status": 502}), "UPSTREAM_ERROR", "http_502"),
        (json!({"kind": "status", "status": 503}), "UPSTREAM_UNAVAILABLE", "fault"),
        (json!({"kind": "status", "status": 429}), "RATE_LIMITED", "fault"),
        (json!({"kind": "reset"}), "UPSTREAM_UNAVAILABLE", "reset"),
        (json!({"kind": "html"}), "UPSTREAM_ERROR", "not_json"),
        (json!({"kind": "bad_json"}), "UPSTREAM_ERROR", "bad_json"),
        (json!({"kind": "large", "body_bytes": 9_437_184}), "RESULT_TOO_LARGE", "body_too_large"),
        (
            json!({"kind": "redirect", "location": "http://127.0.0.1:9/elsewhere"}),
            "UPSTREAM_ERROR",
            "redirect",
        ),
    ] {
        let mut fault = fault;
        fault["path_prefix"] = json!("/v1/streams");
        guarded.rs.fault(fault.clone());
        let refused = guarded.refused("aggregate", asked.clone());
        assert_eq!(
            (&refused["error"], &refused["details"]["code"]),
            (&json!(error), &json!(code)),
            "{fault}"
        );
    }
    assert_eq!(
        guarded.refused("query_records", json!({"stream": "threads"}))["details"]["code"],
        "context.stream_not_allowed"
    );
    guarded.rs.turn("POST", "/grants/grt_0000000000000001/revoke", &json!({}));
    let revoked = guarded.refused("aggregate", asked.clone());
    assert_eq!(
        (&revoked["error"], &revoked["details"]["code"]),
        (&json!("PERMISSION_DENIED"), &json!("grant_revoked"))
    );
    guarded.rs.turn("POST", "/tokens/client/expire", &json!({}));
    assert_eq!(guarded.refused("aggregate", asked)["error"], "AUTH_FAILED");
    let labels: Vec<Value> = guarded.rs.asked().iter().map(|entry| entry["token_label"].clone()).collect();
    assert!(labels.iter().all(|label| label == "client"), "{labels:?}");
}

#[test]
fn subscriptions_are_made_where_allowed_and_their_secret_is_nobody_elses() {
    // REC-70, REC-74, T-REC-21, T-REC-23
    let config = "[records.personal]\ncallback_allow = [\"http://127.0.0.1:9/hooks\"]\n";
    let guarded = guarded(config, &["--profile", "rich"]).warmed();
    let found = guarded.good("discover_event_subscription_capabilities", json!({}));
    assert_eq!(found["structuredContent"]["supported"], true);
    let made = guarded.good(
        "create_event_subscription",
        json!({"callback_url": "http://127.0.0.1:9/hooks/a", "streams": ["labels"]}),
    );
    assert_eq!(made["structuredContent"]["data"]["secret"], "[held by gateway]");
    let id = made["structuredContent"]["data"]["subscription_id"].as_str().unwrap().to_owned();
    assert_eq!(text(&made), format!("{id} pending_verification"));
    let kept = guarded.home.path().join("records/personal").join(format!("{id}.secret"));
    let secret = fs::read_to_string(&kept).unwrap();
    assert!(secret.starts_with("whsec_"));
    assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(
        text(&guarded.good("list_event_subscriptions", json!({}))),
        format!("1 subscription(s) {id} pending_verification")
    );
    guarded.good("send_test_event", json!({"subscription_id": id}));
    let rotated =
        guarded.good("update_event_subscription", json!({"subscription_id": id, "rotate_secret": true}));
    assert!(!rotated.to_string().contains("whsec_"));
    let newer = fs::read_to_string(&kept).unwrap();
    assert_ne!(newer, secret);
    let holds_a_secret = |text: &str| text.contains(&secret) || text.contains(&newer);
    let deleted = guarded.good("delete_event_subscription", json!({"subscription_id": id}));
    assert_eq!(deleted["structuredContent"]["data"], json!({"deleted": true}));
    let gone = guarded.refused("get_event_subscription", json!({"subscription_id": id}));
    assert_eq!(gone["details"]["code"], "not_found");
    let everything = guarded.home.log().iter().map(Value::to_string).collect::<String>();
    assert!(!holds_a_secret(&everything));
    let evidence = guarded.home.events("execution.result");
    let seqs: Vec<String> = evidence.iter().map(|event| event["seq"].to_string()).collect();
    for seq in seqs {
        let shown = guarded.home.run(&["audit", "show", &seq, "--evidence", "--reason", "test"]);
        assert!(!holds_a_secret(&String::from_utf8_lossy(&shown.stdout)));
    }
    drop(guarded.daemon);
}

#[test]
fn without_events_there_are_seven_tools() {
    // REC-20, T-REC-3
    let guarded = guarded("[records.personal]\nevents = \"off\"\n", &[]);
    let listed = guarded.agent.result("tools/list", json!({}));
    assert_eq!(listed["tools"].as_array().unwrap().len(), 7);
}

#[test]
fn change_events_are_received_verified_kept_and_counted_once() {
    // REC-71, REC-72, REC-73, T-REC-21, T-REC-22, T-REC-23
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config = format!(
        "[gateway]\nlisten = \"127.0.0.1:{port}\"\n[records.personal]\nevents = \"gateway\"\npublic_url = \"http://127.0.0.1:{port}\"\n"
    );
    let home = Home::new(&format!("[policy]\npreset = \"observe\"\n{config}"));
    let rs = Rs::start(&home, &["--profile", "rich"]);
    rs.turn("PUT", "/clock", &json!({"now": null}));
    let file = token_file(&home, "grant.token", &rs.tokens["client"]);
    home.json(&add(&rs.rs, &file));
    let listen = format!("127.0.0.1:{port}");
    let daemon = home.serve_as("", &["--listen", &listen]);
    let _operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2025-11-25");
    let call =
        |tool: &str, arguments: Value| agent.call(&format!("personal__{tool}"), arguments)["result"].clone();
    let refused = call("create_event_subscription", json!({"callback_url": "https://example.com/x"}));
    assert!(refused.to_string().contains("callback_not_allowed"), "{refused}");
    let made = call("create_event_subscription", json!({"streams": ["labels"]}));
    let data = &made["structuredContent"]["data"];
    assert_eq!(
        (&data["secret"], &data["callback_url"]),
        (&json!("[held by gateway]"), &json!("[held by gateway]")),
        "{made}"
    );
    let id = data["subscription_id"].as_str().unwrap().to_owned();
    let state = || {
        call("get_event_subscription", json!({"subscription_id": id}))["structuredContent"]["data"].clone()
    };
    eventually("the challenge to be echoed", || (state()["status"] == "active").then_some(()));
    call("send_test_event", json!({"subscription_id": id}));
    eventually("the test event", || (state()["received"]["count"] == 1).then_some(()));
    let line = json!({"connection_id": "cin_gmail_work", "stream": "labels", "data": {"name": "New", "is_system": false}});
    rs.turn("POST", "/ingest", &line);
    let received = eventually("the change", || {
        Some(state()["received"].clone()).filter(|received| received["count"] == 2)
    });
    assert_eq!(received["latest"][0]["stream"], "labels");
    let since = received["latest"][0]["changes_since"].as_str().unwrap();
    let delta = call(
        "query_records",
        json!({"stream": "labels", "connection_id": "cin_gmail_work", "changes_since": since}),
    );
    assert_eq!(delta["structuredContent"]["data"]["data"][0]["id"], "New");
    let events = home.events("records.event_received");
    assert_eq!(events.len(), 2);
    assert_eq!(events[1]["data"]["type"], "pdpp.records.changed");
    // Nobody else is believed, and what was had before counts no more.
    let hook = fs::read_dir(home.path().join("records/hooks")).unwrap().next().unwrap().unwrap();
    let token = hook.file_name().to_string_lossy().trim_end_matches(".json").to_owned();
    let address = daemon.address.clone();
    let headers =
        [("webhook-id", "evt_forged"), ("webhook-timestamp", "1800000000"), ("webhook-signature", "v1,AAAA")];
    let post = |path: &str| exchange(&address, "POST", path, &headers, "{}").unwrap().status;
    assert_eq!(post(&format!("/records/personal/{token}")), 401);
    assert_eq!(post("/records/personal/0123456789abcdef0123456789abcdef"), 404);
    assert_eq!(
        exchange(&address, "POST", &format!("/records/personal/{token}"), &[], "{}").unwrap().status,
        400
    );
    assert_eq!(
        exchange(&address, "GET", &format!("/records/personal/{token}"), &headers, "").unwrap().status,
        405
    );
    assert_eq!(state()["received"]["count"], 2);
    let kept: Value = serde_json::from_slice(&fs::read(hook.path()).unwrap()).unwrap();
    let secret = kept["secret"].as_str().unwrap();
    let everything = home.log().iter().map(Value::to_string).collect::<String>();
    assert!(!everything.contains(secret) && !everything.contains(&token));
    let before = call("delete_event_subscription", json!({"subscription_id": id}));
    assert_eq!(before["structuredContent"]["data"]["deleted"], true, "{before}");
    assert_eq!(post(&format!("/records/personal/{token}")), 404);
}

/// A server made for one answer: what it was sent, request by request.
struct Stub {
    address: String,
    seen: std::sync::Arc<std::sync::Mutex<Vec<String>>>,
}

impl Stub {
    /// Answers every request with what `answer` makes of its head and body.
    fn answering(answer: impl Fn(&str) -> String + Send + 'static) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let seen = std::sync::Arc::<std::sync::Mutex<Vec<String>>>::default();
        let noted = seen.clone();
        // Ends with the test's process; nothing else holds the port.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let Some(request) = read_request(&stream) else { continue };
                let reply = answer(&request);
                noted.lock().unwrap().push(request);
                use std::io::Write as _;
                let _ = (&stream).write_all(reply.as_bytes());
            }
        });
        Self { address, seen }
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

fn read_request(mut stream: &std::net::TcpStream) -> Option<String> {
    use std::io::Read as _;
    stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).ok()?;
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length: ").map(str::to_owned)
            });
            if body.len() >= length.map_or(0, |length| length.trim().parse::<usize>().unwrap_or(0)) {
                return Some(text);
            }
        }
        match stream.read(&mut buffer).ok()? {
            0 => return None,
            read => bytes.extend_from_slice(&buffer[..read]),
        }
    }
}

fn http_reply(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[test]
fn a_token_nobody_vouches_for_is_refused_and_none_follows_a_redirect() {
    // REC-4, REC-10, T-REC-19, T-REC-24
    let home = Home::new("[policy]\npreset = \"observe\"\n");
    let silent = Stub::answering(|_| {
        http_reply("200 OK", r#"{"object":"schema","detail":"compact","connectors":[]}"#)
    });
    let file = token_file(&home, "grant.token", &json!("pdpp_secret_token_0123456789"));
    let url = format!("http://{}", silent.address);
    let (_, error) = home.fails(&add(&url, &file));
    assert!(error["message"].as_str().unwrap().contains("does not say what kind of token"), "{error}");
    let seen = silent.seen();
    assert!(
        !seen.is_empty() && seen.iter().all(|request| request.starts_with("GET /v1/schema?view=compact ")),
        "{seen:?}"
    );
    // Only what is needed is sent along.
    assert!(
        seen[0].contains("authorization: Bearer pdpp_secret_token")
            && !seen[0].to_lowercase().contains("cookie"),
        "{}",
        seen[0]
    );
    // The operator can vouch for it.
    fs::write(
        home.path().join("portcullis.toml"),
        "[policy]\npreset = \"observe\"\n[records.personal]\nallow_unlabelled_token = true\n",
    )
    .unwrap();
    home.json(&add(&url, &file));

    let home = Home::new("[policy]\npreset = \"observe\"\n");
    let elsewhere = Stub::answering(|_| http_reply("200 OK", "{}"));
    let location = format!("http://{}/v1/schema", elsewhere.address);
    let moved = Stub::answering(move |_| {
        format!(
            "HTTP/1.1 307 Moved\r\nlocation: {location}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        )
    });
    let file = token_file(&home, "grant.token", &json!("pdpp_secret_token_0123456789"));
    let (_, error) = home.fails(&add(&format!("http://{}", moved.address), &file));
    assert!(error["message"].is_string());
    assert_eq!((moved.seen().is_empty(), elsewhere.seen().len()), (false, 0));
}

#[test]
fn what_is_forwarded_is_what_the_server_answers() {
    // REC-64, T-REC-7
    let guarded = guarded("", &["--profile", "rich"]).warmed();
    let asked = json!({"stream": "messages", "limit": 2, "connection_id": "cin_gmail_work", "expand": ["attachments"], "expand_limit": {"attachments": 1}});
    let shown = guarded.good("query_records", asked)["structuredContent"]["data"].to_string();
    // Its links are texts, and texts are escaped.
    let shown: Value = serde_json::from_str(&shown.replace("&amp;", "&")).unwrap();
    let path = "/v1/streams/messages/records?limit=2&expand=attachments&expand_limit%5Battachments%5D=1&connection_id=cin_gmail_work";
    let bearer = format!("Bearer {}", guarded.rs.tokens["client"].as_str().unwrap());
    let own = exchange(
        guarded.rs.rs.strip_prefix("http://").unwrap(),
        "GET",
        path,
        &[("Authorization", &bearer)],
        "",
    )
    .unwrap()
    .json();
    assert_eq!(shown, own);
    let single =
        guarded.good("fetch", json!({"id": "cin_gmail_work/messages:m0", "expand": ["message_bodies"]}));
    assert!(single["structuredContent"]["metadata"]["expanded"]["message_bodies"].is_object(), "{single}");
}

#[test]
fn long_texts_are_read_on_to_their_end_and_windows_are_as_asked() {
    // REC-40, REC-41, T-REC-16, T-REC-17, T-REC-18
    let guarded = guarded("", &["--profile", "rich"]).warmed();
    let whole: String = (0..10_000).map(|n| format!("é{n:03}", n = n % 1_000)).collect();
    let line = json!({"connection_id": "cin_gmail_work", "stream": "message_bodies", "data": {"id": "long", "message_id": "m0", "body_text": whole, "body_source": "text/plain"}});
    guarded.rs.turn("POST", "/ingest", &line);
    let fetched = guarded.good("fetch", json!({"id": "cin_gmail_work/message_bodies:long"}));
    let structured = &fetched["structuredContent"];
    assert_eq!(structured["metadata"]["text_chars"], 40_000, "{}", structured["metadata"]);
    assert!(fetched["content"][0]["text"].as_str().unwrap().len() <= 2_048);
    let mut read = structured["text"].as_str().unwrap().to_owned();
    let next = &structured["metadata"]["next"];
    assert_eq!(next["tool"], "read_record_field");
    // SURF-76, REC-42: one hint for the one field that was cut, none where nothing was, and no ladder of them.
    assert!(next.to_string().len() <= 512, "{next}");
    let short =
        guarded.good("fetch", json!({"id": "cin_gmail_work/messages:m1"}))["structuredContent"].clone();
    assert!(short["metadata"].get("next").is_none(), "{short}");
    let page = guarded.good("query_records", json!({"stream": "message_bodies", "limit": 5}));
    for told in [&short, &page, &fetched] {
        let told = told.to_string();
        assert!(!told.contains("content_ladder") && !told.contains("provider_url"), "{told}");
    }
    let mut arguments = next["args"].clone();
    loop {
        let window =
            guarded.good("read_record_field", arguments.clone())["structuredContent"]["window"].clone();
        read.push_str(window["text"].as_str().unwrap());
        let Some(cursor) = window["next_cursor"].as_str() else { break };
        arguments =
            json!({"id": "cin_gmail_work/message_bodies:long", "field_path": "body_text", "cursor": cursor});
    }
    assert_eq!(read, whole);
    // By search, and beyond the end.
    let field = |more: Value| {
        let mut asked = json!({"id": "cin_gmail_work/message_bodies:b1", "field_path": "body_text"});
        asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        asked
    };
    let hit = guarded
        .good("read_record_field", field(json!({"q": "overdue", "before_chars": 4, "after_chars": 8})));
    let window = &hit["structuredContent"]["window"];
    assert!(
        window["text"].as_str().unwrap().contains("overdue") && window["match_start_chars"].is_u64(),
        "{window}"
    );
    let past = guarded.good("read_record_field", field(json!({"offset_chars": 99_999})));
    assert_eq!(past["structuredContent"]["window"]["text"], "", "{past}");
    // Seventy rows of bodies, and with fewer fields.
    let wide = guarded.good("query_records", json!({"stream": "message_bodies", "limit": 100}));
    let narrow = guarded
        .good("query_records", json!({"stream": "message_bodies", "limit": 100, "fields": ["message_id"]}));
    let size = |result: &Value| result["structuredContent"].to_string().len();
    assert!(size(&narrow) * 4 < size(&wide), "{} {}", size(&narrow), size(&wide));
    assert!(wide["content"][0]["text"].as_str().unwrap().len() <= 1_792);
    let report = guarded.home.json(&["results", "report"]);
    let row = report["tools"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["tool"] == "personal/query_records")
        .unwrap()
        .clone();
    assert_eq!(row["structured"]["max"].as_u64().unwrap() as usize, size(&wide), "{row}");
    // Hybrid search does not page; whose answer that is can be seen.
    let hybrid = guarded.refused("search", json!({"q": "invoice", "mode": "hybrid", "cursor": "x"}));
    assert!(hybrid["details"]["upstream"]["code"].is_string(), "{hybrid}");
    for mode in ["lexical", "semantic", "hybrid"] {
        let hits = guarded.good(
            "search",
            json!({"q": "overdue invoice", "mode": mode, "limit": 3, "streams": ["messages"]}),
        );
        assert!(!hits["structuredContent"]["results"].as_array().unwrap().is_empty(), "{mode}");
    }
    let groups =
        guarded.good("aggregate", json!({"stream": "messages", "metric": "count", "group_by": "is_seen"}));
    assert_eq!(
        text(&groups).lines().next().unwrap(),
        "count(messages) by is_seen: 2 group(s)",
        "{}",
        text(&groups)
    );
    guarded.home.verify();
}

#[test]
fn arguments_nobody_can_use_are_not_listed_until_somebody_can() {
    // SURF-96, T-SURF-31, T-REC-13
    let home = Home::new("[policy]\npreset = \"observe\"\n");
    let rs = Rs::start(&home, &["--profile", "v01"]);
    let file = token_file(&home, "grant.token", &rs.tokens["client"]);
    home.json(&add(&rs.rs, &file));
    let config = r#"
[policy]
preset = "observe"
[[gate]]
id = "personal-expand"
tools = ["personal/query_records"]
args = ["/expand", "/expand_limit"]
subject = { stream = "/stream", connection_id = "/connection_id?" }
source = { kind = "tool", tool = "schema", args = { stream = "{stream}", connection_id = "{connection_id?}" } }
rows = ["/data/connectors/*/streams/*"]
key = ["name"]
equals = "{stream}"
require = "/expand_capabilities"
prune = true
prune_seconds = 1
error = { code = "invalid_expand", param = "expand", message = "'{stream}' has nothing to expand" }
"#;
    fs::write(home.path().join("portcullis.toml"), config).unwrap();
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2025-11-25");
    // Policy lets the source run unattended once somebody granted it.
    agent.call("personal__schema", json!({}));
    let expands = || {
        let listed = agent.result("tools/list", json!({}));
        let query = listed["tools"]
            .as_array()
            .unwrap()
            .iter()
            .find(|tool| tool["name"] == "personal__query_records")
            .unwrap()
            .clone();
        query["inputSchema"]["properties"]["expand"].is_object()
    };
    eventually("what no stream supports to go", || (!expands()).then_some(()));
    let mut news = agent.send("GET", "/mcp", "", &[]);
    // Sent all the same, it meets the gate.
    let refused =
        agent.call("personal__query_records", json!({"stream": "messages", "expand": ["attachments"]}));
    assert_eq!(refused["result"]["structuredContent"]["details"]["gate"], "personal-expand", "{refused}");
    rs.turn("PUT", "/profile", &json!({"profile": "rich"}));
    let told = news.next().unwrap();
    assert_eq!(told["method"], "notifications/tools/list_changed", "{told}");
    assert!(expands(), "now some can");
    let page = agent.call("personal__query_records", json!({"stream": "messages", "limit": 1, "connection_id": "cin_gmail_work", "expand": ["attachments"]}));
    assert!(page["result"]["structuredContent"]["data"]["data"].is_array(), "{page}");
}

#[test]
fn names_are_the_same_for_every_client_and_bare_where_the_operator_wants_it() {
    // SURF-36, REC-3, REC-20, REC-41, T-REC-3
    for (config, prefix, count) in [
        ("[surface]\nprofile = \"codex\"\n", "personal__", 13),
        ("[surface]\nprofile = \"claude-code\"\nmode = \"enforce\"\n", "personal__", 13),
        ("[surface]\nprofile = \"chatgpt\"\n[records.personal]\nbare_names = true\n", "", 13),
        ("[records.personal]\nbare_names = true\nevents = \"off\"\n", "", 7),
    ] {
        let guarded = guarded(config, &["--profile", "rich"]);
        let listed = guarded.agent.result("tools/list", json!({}));
        let names: Vec<&str> =
            listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        let wanted: Vec<Value> =
            serde_json::from_str(include_str!("../../../gateway/corpus/records/tools.json")).unwrap();
        let wanted: Vec<String> = wanted
            .iter()
            .take(count)
            .map(|tool| format!("{prefix}{}", tool["name"].as_str().unwrap()))
            .collect();
        assert_eq!(names, wanted, "{config}");
        if !config.contains("chatgpt") {
            continue;
        }
        // Some clients look for exactly these two, and read documents.
        let hits = guarded.agent.call("search", json!({"q": "invoice", "streams": ["messages"], "limit": 2}));
        let text: Value =
            serde_json::from_str(hits["result"]["content"][0]["text"].as_str().unwrap()).unwrap();
        let id = text["results"][0]["id"].as_str().unwrap();
        let record = guarded.agent.call("fetch", json!({"id": id}));
        let text: Value =
            serde_json::from_str(record["result"]["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(
            (text["id"].as_str(), text["metadata"]["stream"].as_str()),
            (Some(id), Some("messages")),
            "{text}"
        );
    }
}

#[test]
fn a_grant_that_is_gone_is_an_alarm_and_its_tools_stay() {
    // REC-75, T-REC-20
    let guarded = guarded("", &["--profile", "rich"]).warmed();
    let count = json!({"stream": "messages", "metric": "count"});
    // Another connection than the grant's.
    let narrow = guarded.rs.tokens["narrow"].as_str().unwrap().to_owned();
    let file = guarded.home.beside("grant.token");
    let client = fs::read_to_string(&file).unwrap();
    fs::write(&file, narrow).unwrap();
    let outside =
        guarded.refused("query_records", json!({"stream": "messages", "connection_id": "cin_gmail_work"}));
    assert_eq!(
        (&outside["error"], outside["details"]["code"].as_str().unwrap().starts_with("context.")),
        (&json!("AUTH_FAILED"), true),
        "{outside}"
    );
    fs::write(&file, &client).unwrap();
    guarded.rs.turn("POST", "/grants/grt_0000000000000001/revoke", &json!({}));
    assert_eq!(guarded.refused("aggregate", count.clone())["error"], "PERMISSION_DENIED");
    let alarmed = || {
        let output = guarded.home.command().args(["--output", "json", "doctor"]).output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        report["findings"].to_string().contains("grant_revoked")
    };
    eventually("the alarm", || alarmed().then_some(()));
    assert_eq!(guarded.agent.result("tools/list", json!({}))["tools"].as_array().unwrap().len(), 13);
    // Another grant, and it is over.
    fs::write(&file, guarded.rs.tokens["narrow"].as_str().unwrap()).unwrap();
    guarded.good("aggregate", count);
    eventually("the alarm to end", || (!alarmed()).then_some(()));
}

#[test]
fn deliveries_are_retried_and_a_replayed_or_forged_one_changes_nothing() {
    // REC-71, REC-72, REC-73, T-REC-21, T-REC-22, T-REC-23
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let gateway = format!("127.0.0.1:{port}");
    // Between the server and the gateway: writes deliveries down, and can lose one.
    let (to, lose) = (gateway.clone(), std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false)));
    let losing = lose.clone();
    let relay = Stub::answering(move |request| {
        if losing.swap(false, std::sync::atomic::Ordering::SeqCst) {
            return http_reply("500 Down", "{}");
        }
        send_raw(&to, request)
    });
    let home = Home::new(&format!(
        "[policy]\npreset = \"observe\"\n[gateway]\nlisten = \"{gateway}\"\n[records.personal]\nevents = \"gateway\"\npublic_url = \"http://{}\"\n",
        relay.address
    ));
    let rs = Rs::start(&home, &["--profile", "rich"]);
    rs.turn("PUT", "/clock", &json!({"now": null}));
    let file = token_file(&home, "grant.token", &rs.tokens["client"]);
    home.json(&add(&rs.rs, &file));
    let daemon = home.serve_as("", &["--listen", &gateway]);
    let _operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2025-11-25");
    let call =
        |tool: &str, arguments: Value| agent.call(&format!("personal__{tool}"), arguments)["result"].clone();
    let made = call("create_event_subscription", json!({"streams": ["labels"]}));
    let id = made["structuredContent"]["data"]["subscription_id"]
        .as_str()
        .unwrap_or_else(|| panic!("{made}"))
        .to_owned();
    let state = || {
        call("get_event_subscription", json!({"subscription_id": id}))["structuredContent"]["data"].clone()
    };
    eventually("the challenge to be echoed", || (state()["status"] == "active").then_some(()));
    // A delivery that is lost comes again.
    lose.store(true, std::sync::atomic::Ordering::SeqCst);
    call("send_test_event", json!({"subscription_id": id}));
    eventually("the loss", || (!lose.load(std::sync::atomic::Ordering::SeqCst)).then_some(()));
    assert_eq!(state()["received"]["count"], 0);
    rs.turn("POST", "/deliver", &json!({}));
    eventually("the second attempt", || (state()["received"]["count"] == 1).then_some(()));
    let deliveries: Vec<String> =
        relay.seen().into_iter().filter(|request| request.contains("pdpp.subscription.test")).collect();
    assert!(deliveries.len() >= 2, "{deliveries:?}");
    let delivery = deliveries.last().unwrap();
    let status = |request: &str| send_raw(&gateway, request).split(' ').nth(1).unwrap().to_owned();
    // The very same once more: taken, and counted once.
    assert_eq!(status(delivery), "200");
    let (head, body) = delivery.split_once("\r\n\r\n").unwrap();
    let altered = |from: &str, to: &str| format!("{head}\r\n\r\n{}", body.replace(from, to));
    assert_eq!(status(&altered("subscription.test", "subscription.tesT")), "401");
    // Another time, id or signature is not what was signed.
    for name in ["webhook-timestamp: ", "webhook-id: "] {
        let line = head.lines().find(|line| line.starts_with(name)).unwrap();
        let other = head.replace(line, &format!("{name}1700000000"));
        assert_eq!(status(&format!("{other}\r\n\r\n{body}")), "401", "{name}");
    }
    let signature = head.lines().find_map(|line| line.strip_prefix("webhook-signature: ")).unwrap();
    let two = head.replace(signature, &format!("v1,AAAA {signature}"));
    assert_eq!(status(&format!("{two}\r\n\r\n{body}")), "200");
    let huge = format!(
        "{}\r\n\r\n{}",
        head.replace(&format!("content-length: {}", body.len()), "content-length: 1048576"),
        "x".repeat(1 << 20)
    );
    assert_eq!(status(&huge), "413");
    assert_eq!(state()["received"]["count"], 1);
    assert_eq!(home.events("records.event_received").len(), 1);
    // Who has another grant finds nothing, and a revoked one is told of.
    fs::write(&file, rs.tokens["narrow"].as_str().unwrap()).unwrap();
    let foreign = call("get_event_subscription", json!({"subscription_id": id}));
    assert_eq!(foreign["structuredContent"]["details"]["http_status"], 404, "{foreign}");
    // Nothing that is secret is anywhere but where it belongs.
    let hooks = home.path().join("records/hooks");
    let hook: Value = serde_json::from_slice(
        &fs::read(fs::read_dir(&hooks).unwrap().next().unwrap().unwrap().path()).unwrap(),
    )
    .unwrap();
    let secrets: Vec<String> = ["client", "narrow", "owner"]
        .iter()
        .map(|name| rs.tokens[*name].as_str().unwrap().to_owned())
        .chain([hook["secret"].as_str().unwrap().to_owned()])
        .collect();
    daemon.stop();
    let mut places = vec![home.path()];
    while let Some(place) = places.pop() {
        for entry in fs::read_dir(place).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                places.push(path);
            } else if !path.starts_with(&hooks) {
                let bytes = fs::read(&path).unwrap_or_default();
                for secret in &secrets {
                    let found = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
                    assert!(!found, "{} holds a secret", path.display());
                }
            }
        }
    }
}

/// Sends a request as it was written down; the whole reply.
fn send_raw(address: &str, request: &str) -> String {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    // What is refused early may not be read to its end.
    let _ = stream.write_all(request.as_bytes());
    let mut reply = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(read) = stream.read(&mut buffer) {
        if read == 0 {
            break;
        }
        reply.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&reply);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length: ").map(str::to_owned)
            });
            if length.is_some_and(|length| body.len() >= length.trim().parse::<usize>().unwrap_or(0)) {
                break;
            }
        }
    }
    let text = String::from_utf8_lossy(&reply).into_owned();
    // Whoever passes it on closes after it.
    text.replacen("\r\n", "\r\nconnection: close\r\n", 1)
}
