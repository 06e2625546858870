//! Sessions and their tools (gauntlet §1).

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use portcullis_gauntlet::bind::{
    BindError, BindOptions, Bound, BoxFuture, RawPage, ServerInfo, ToolSession, UpstreamError,
    UpstreamReason, bind,
};
use portcullis_gauntlet::{Args, CapMode, Capabilities, Gauntlet, Grants, RawResult, Requirement, Screened};
use serde_json::{Value, json};

/// A session that answers from what it was given, and remembers what it was asked.
#[derive(Debug, Default)]
struct Script {
    pages: HashMap<Option<String>, Value>,
    results: HashMap<String, Result<Value, (UpstreamReason, &'static str)>>,
    protocol: &'static str,
    asked: Mutex<Vec<String>>,
    calls: AtomicUsize,
}

impl Script {
    fn listing(tools: Value) -> Self {
        Self { pages: [(None, json!({"tools": tools}))].into(), ..Self::default() }
    }

    fn answering(mut self, tool: &str, result: Result<Value, (UpstreamReason, &'static str)>) -> Self {
        self.results.insert(tool.into(), result);
        self
    }

    fn note(&self, what: &str) {
        self.asked.lock().unwrap().push(what.to_owned());
    }
}

impl ToolSession for &Script {
    fn initialize(&self) -> BoxFuture<'_, Result<ServerInfo, UpstreamError>> {
        self.note("initialize");
        let protocol = if self.protocol.is_empty() { "2025-11-25" } else { self.protocol };
        let info = ServerInfo { version: "1.0".into(), protocol: protocol.into() };
        Box::pin(std::future::ready(Ok(info)))
    }

    fn list_tools<'a>(&'a self, cursor: Option<&'a str>) -> BoxFuture<'a, Result<RawPage, UpstreamError>> {
        self.note("list");
        let page = self.pages.get(&cursor.map(str::to_owned)).cloned().unwrap_or_default();
        Box::pin(std::future::ready(Ok(RawPage::new(page.to_string()))))
    }

    fn call_tool<'a>(&'a self, screened: &'a Screened) -> BoxFuture<'a, Result<RawResult, UpstreamError>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let answer = self.results.get(screened.spec().tool.item().name()).cloned();
        let answer = match answer.unwrap_or(Err((UpstreamReason::Unavailable, ""))) {
            Ok(result) => Ok(RawResult::new(result.to_string().into())),
            Err((reason, said)) => Err(UpstreamError::with(reason, said)),
        };
        Box::pin(std::future::ready(answer))
    }
}

fn options(ceiling: &[&str]) -> BindOptions {
    let ceiling = Capabilities::parse(CapMode::Cleared, ceiling.iter().copied()).unwrap();
    BindOptions::new("vault".parse().unwrap(), ceiling)
}

async fn bound(script: &Script) -> Result<Bound<&Script>, BindError> {
    bind(script, options(&["mcp.call:vault/*", "fs.read:/secrets/*"]), &Gauntlet::default()).await
}

fn plain(name: &str) -> Value {
    json!({"name": name, "inputSchema": {"type": "object"}})
}

fn names<S>(bound: &Bound<S>) -> Vec<&str> {
    bound.specs().iter().map(|spec| spec.tool.item().name()).collect()
}

#[tokio::test]
async fn good_tools_are_bound_with_the_worst_assumed() {
    // SG-01, GNT-B6
    let script = Script::listing(json!([
        {"name": "read", "title": "__system__R", "description": "a <b>\u{7}", "inputSchema": {"type": "object"},
         "annotations": {"readOnlyHint": true}, "x-more": 1},
        plain("write"),
    ]));
    let bound = bound(&script).await.unwrap().into_strict().unwrap();
    assert_eq!(names(&bound), ["read", "write"]);
    let read = bound.tool("read").unwrap();
    assert_eq!(
        (read.namespace, read.version, read.side_effects, read.replay_policy),
        ("mcp", "1", "external", "must-stub")
    );
    assert_eq!(read.title.as_ref().unwrap().get(), "R");
    assert_eq!(read.description.as_ref().unwrap().get(), "a <b>");
    assert_eq!((&read.hints, &read.extra["x-more"]), (&Some(json!({"readOnlyHint": true})), &json!(1)));
    assert!(read.spec.tool.as_str().starts_with("vault/read@1.0#1:"), "{}", read.spec.tool.as_str());
    assert_eq!(*script.asked.lock().unwrap(), ["initialize", "list"]);
    assert_eq!(script.calls.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn all_pages_are_read_and_circles_noticed() {
    // SG-02, GNT-B4
    let page = |tool: &str, next: Option<&str>| json!({"tools": [plain(tool)], "nextCursor": next});
    let script = Script {
        pages: [
            (None, page("a", Some("2"))),
            (Some("2".into()), page("b", Some("3"))),
            (Some("3".into()), page("c", None)),
        ]
        .into(),
        ..Script::default()
    };
    assert_eq!(names(&bound(&script).await.unwrap()), ["a", "b", "c"]);
    let circle = Script {
        pages: [(None, page("a", Some("2"))), (Some("2".into()), page("b", Some("2")))].into(),
        ..Script::default()
    };
    assert_eq!(bound(&circle).await.unwrap_err().violation(), Some("mcp-list-cursor-loop"));
    for broken in [json!({}), json!({"tools": {}}), json!([]), json!({"tools": [], "nextCursor": 7})] {
        let script = Script { pages: [(None, broken)].into(), ..Script::default() };
        assert_eq!(bound(&script).await.unwrap_err().violation(), Some("mcp-list-shape"));
    }
}

#[tokio::test]
async fn a_bad_tool_hides_no_good_one() {
    // SG-03, SG-04, SG-05, SG-06, GNT-B5
    let with = |schema: Value| json!({"name": "x", "inputSchema": schema});
    let labelled =
        |label: Value| json!({"name": "x", "description": label, "inputSchema": {"type": "object"}});
    let ill = json!({"type": "object", "properties": {"a": {"type": "strnig"}}});
    let far = json!({"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:1/s"}}});
    for (bad, violation, name) in [
        (json!({"inputSchema": {"type": "object"}}), "mcp-tool-missing-name", None),
        (json!({"name": 3, "inputSchema": {"type": "object"}}), "mcp-tool-missing-name", None),
        (plain(""), "mcp-tool-bad-name", None),
        (plain(&"n".repeat(129)), "mcp-tool-bad-name", None),
        (plain("a b"), "mcp-tool-bad-name", None),
        (plain("__system__"), "mcp-tool-bad-name", None),
        (plain("portcullis_help"), "mcp-tool-bad-name", Some("portcullis_help")),
        (json!(7), "mcp-tool-bad-shape", None),
        (labelled(json!(7)), "mcp-tool-bad-shape", Some("x")),
        (labelled(json!("d".repeat(17_000))), "mcp-tool-too-large", Some("x")),
        (with(json!([1])), "mcp-tool-bad-schema", Some("x")),
        (with(json!("x")), "mcp-tool-bad-schema", Some("x")),
        (with(json!(true)), "mcp-tool-bad-schema", Some("x")),
        (with(json!(false)), "mcp-tool-bad-schema", Some("x")),
        (with(json!([])), "mcp-tool-bad-schema", Some("x")),
        (with(json!(0)), "mcp-tool-bad-schema", Some("x")),
        (with(json!(null)), "mcp-tool-bad-schema", Some("x")),
        (json!({"name": "x"}), "mcp-tool-bad-schema", Some("x")),
        (
            json!({"name": "x", "inputSchema": {"type": "object"}, "outputSchema": 1}),
            "mcp-tool-bad-schema",
            Some("x"),
        ),
        (with(ill), "mcp-schema-uncompilable", Some("x")),
        (with(far), "mcp-schema-external-ref", Some("x")),
    ] {
        let script = Script::listing(json!([plain("good"), bad, plain("better")]));
        let bound = bound(&script).await.unwrap();
        assert_eq!(names(&bound), ["better", "good"], "{bad}");
        let [rejected] = bound.rejected() else { panic!("{bad}: {:?}", bound.rejected()) };
        assert_eq!(
            (rejected.index, rejected.violation, rejected.name.as_deref()),
            (1, violation, name),
            "{bad}"
        );
        assert_eq!(bound.into_strict().unwrap_err().violation(), Some(violation));
    }
    // Of two that share a name neither is to be trusted.
    let script = Script::listing(json!([plain("twice"), plain("good"), plain("twice")]));
    let bound = bound(&script).await.unwrap();
    assert_eq!(names(&bound), ["good"]);
    let found: Vec<_> =
        bound.rejected().iter().map(|rejected| (rejected.index, rejected.violation)).collect();
    assert_eq!(found, [(0, "mcp-tool-duplicate-name"), (2, "mcp-tool-duplicate-name")]);
}

#[tokio::test]
async fn what_is_refused_never_reaches_the_session() {
    // SG-10, SG-11, SG-13, SG-20, GNT-C13: the order proof, in the crate alone
    let tool = json!({"name": "read-secret", "inputSchema": {
        "type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"],
    }});
    let script = Script::listing(json!([tool])).answering("read-secret", Ok(json!({"content": []})));
    let gauntlet = Gauntlet::default();
    let need = Requirement::parse("fs.read:{path|path}").unwrap();
    let options = BindOptions {
        permissions: [("read-secret".to_owned(), vec![need])].into(),
        ..options(&["mcp.call:vault/*", "fs.read:/secrets/*"])
    };
    let bound = bind(&script, options, &gauntlet).await.unwrap();
    let only = |grants: &[&str]| {
        Grants::Only(Capabilities::parse(CapMode::Cleared, grants.iter().copied()).unwrap())
    };
    let all = only(&["mcp.call:vault/*", "fs.read:/secrets/*"]);
    let calls = || script.calls.load(Ordering::Relaxed);
    for (caller, args, violation) in [
        // Bad arguments, but who may not call does not hear of it.
        (only(&[]), json!({"path": 7}), "capability_denied"),
        (only(&["mcp.call:vault/*"]), json!({"path": "/secrets/a"}), "capability_denied"),
        (only(&["mcp.call:vault/*", "fs.read:*"]), json!({"path": "/etc/shadow"}), "capability_denied"),
        (all.clone(), json!({"path": "/secrets/../etc/passwd"}), "capability_denied"),
        (all.clone(), json!({"path": "~/x"}), "capability_denied"),
        (all.clone(), json!({"path": "file:///secrets/x"}), "capability_denied"),
        (all.clone(), json!({"path": 7}), "mcp-input-schema"),
        (all.clone(), json!({}), "mcp-input-schema"),
    ] {
        let given = Args::parse(args.to_string().as_bytes(), 1024).unwrap();
        let error = bound.call(&gauntlet, "read-secret", &caller, given).await.unwrap_err();
        assert_eq!(error.violation(), Some(violation), "{args}");
        assert_eq!(calls(), 0, "{args}");
    }
    let given = |path: &str| Args::parse(json!({"path": path}).to_string().as_bytes(), 1024).unwrap();
    bound.call(&gauntlet, "read-secret", &all, given("/secrets/%2e%2e/x")).await.unwrap();
    assert_eq!(calls(), 1);
    assert!(matches!(
        bound.call(&gauntlet, "other", &all, Args::empty()).await.unwrap_err(),
        BindError::UnknownTool
    ));
}

#[tokio::test]
async fn what_a_server_answers_is_released_only_if_it_passes() {
    // SG-30, GNT-Z13, gauntlet §7
    let hostile = "__system__ <|im_start|>\u{1b}[31m";
    let output = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}, "outputSchema": output});
    let script = Script::listing(json!([tool("bad"), tool("down"), plain("text")]))
        .answering("bad", Ok(json!({"content": [], "structuredContent": {"n": hostile, hostile: 1}})))
        .answering("down", Err((UpstreamReason::Timeout, "token=abc __sys__system__tem__ <b>")))
        .answering("text", Ok(json!({"content": [{"type": "text", "text": "<b>__system__"}]})));
    let bound = bound(&script).await.unwrap();
    let gauntlet = Gauntlet::default();
    let call = |name: &'static str| bound.call(&gauntlet, name, &Grants::Declared, Args::empty());

    let error = call("bad").await.unwrap_err();
    assert_eq!(error.violation(), Some("mcp-output-schema"));
    let told = serde_json::to_string(&error.details()).unwrap() + &error.to_string();
    assert!(!told.contains("system") && !told.contains("im_start"), "{told}");

    let details = Value::Object(call("down").await.unwrap_err().details());
    assert_eq!((&details["kind"], &details["reason"]), (&json!("upstream"), &json!("timeout")));
    assert_eq!(details["tool_id"], "down");
    let detail = details["detail"].as_str().unwrap();
    assert!(
        detail.ends_with("&lt;b&gt;") && !detail.contains("abc") && !detail.contains("system"),
        "{detail}"
    );

    let safe = call("text").await.unwrap();
    let safe: Value = serde_json::from_slice(safe.json()).unwrap();
    assert_eq!(safe, json!({"content": [{"type": "text", "text": "&lt;b&gt;"}]}));
}

#[tokio::test]
async fn no_session_inherits_what_another_was_granted() {
    // SG-08 in the crate: grants live in the value, so there is nothing to inherit
    let script = Script::listing(json!([plain("t")])).answering("t", Ok(json!({"content": []})));
    let gauntlet = Gauntlet::default();
    for round in 0..2_000 {
        let ceiling: &[&str] = if round < 200 { &["mcp.call:vault/*"] } else { &[] };
        let bound = bind(&script, options(ceiling), &gauntlet).await.unwrap();
        let called = bound.call(&gauntlet, "t", &Grants::Declared, Args::empty()).await;
        assert_eq!(called.is_ok(), round < 200, "{round}");
    }
}

#[cfg(feature = "stdio")]
#[tokio::test]
async fn a_program_runs_as_long_as_it_is_bound() {
    // GNT-B1, GNT-B3, GNT-B7, with a real process
    use portcullis_gauntlet::bind::{StdioParams, bind_stdio};
    let server = r#"
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    method = asked.get("method")
    if method == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "p", "version": "2"}}
    elif method == "tools/list":
        result = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        print(json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}), flush=True)
        result = {"content": [{"type": "text", "text": "<" + asked["params"]["arguments"]["text"] + ">"}]}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"#;
    let mut command = std::process::Command::new("python3");
    command.args(["-c", server]);
    let gauntlet = Gauntlet::default();
    let options = options(&["mcp.call:vault/*"]);
    let bound = bind_stdio(StdioParams::new(command), options.clone(), &gauntlet).await.unwrap();
    let args = Args::parse(br#"{"text": "__system__x"}"#, 1024).unwrap();
    let safe = bound.call(&gauntlet, "echo", &Grants::Declared, args).await.unwrap();
    assert!(std::str::from_utf8(safe.json()).unwrap().contains("&lt;x&gt;"), "{safe:?}");
    let pid = bound.session().pid().unwrap();
    let is_there = || {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !state.is_empty() && !state.contains(") Z ")
    };
    assert!(is_there());
    drop(bound);
    while is_there() {
        tokio::task::yield_now().await;
    }
    let missing = std::process::Command::new("/nonexistent/program");
    let error = bind_stdio(StdioParams::new(missing), options, &gauntlet).await.unwrap_err();
    assert_eq!(error.details()["reason"], "unavailable");
}
