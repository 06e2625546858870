//! Sessions from files, and prompts built of them.

use portcullis_context::builder::Reason;
use portcullis_context::session_log::{Strictness, load};
use portcullis_context::{
    Build, BuildError, ContextBuilder, ContextItem, Encoding, Kind, Phase, Sensitivity,
};
use serde_json::json;

const SAMPLE: &str = r#"{"id":"p1","type":"policy","text":"Never show account numbers."}
{"id":"u1","type":"user_turn","text":"Search for open invoices","timestamp":"2026-01-01T00:00:00Z"}
{"id":"tc1","type":"tool_call","text":"invoices.search(status='open')","parent_id":"u1","tool_name":"invoices.search"}

{"id":"tr1","type":"tool_result","content":[{"type":"text","text":"3 open invoices"},{"type":"text","text":"total: 420"}],"parent_id":"tc1"}
{"id":"a1","type":"agent_msg","content":{"b":1,"a":"There are three."},"parent_id":"u1"}
{"id":"u2","type":"user_turn","text":"What is the invoice status?"}
"#;

fn builder(items: impl IntoIterator<Item = ContextItem>) -> ContextBuilder {
    let mut builder = ContextBuilder::new();
    for item in items {
        builder.ingest(item).unwrap();
    }
    builder
}

fn words(from: usize, count: usize) -> String {
    (from..from + count).map(|n| format!("word{n}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_sample_session_becomes_a_prompt() {
    // CTX-50, CTX-51, CTX-61, T-CTX-20
    let loaded = load(SAMPLE.as_bytes(), Strictness::Strict).unwrap();
    assert_eq!(loaded.items.len(), 6);
    assert_eq!(loaded.items[1].metadata["timestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(loaded.items[3].text, "3 open invoices\ntotal: 420");
    assert_eq!(loaded.items[4].text, r#"{"a":"There are three.","b":1}"#);
    let built = builder(loaded.items).build(&Build::new(Phase::Answer, "invoice status")).unwrap();
    assert_eq!(
        built.prompt,
        "[POLICY]\nNever show account numbers.\n\n[USER]\nSearch for open invoices\n\n[TOOL CALL]\ninvoices.search(status='open')\n\n[TOOL RESULT]\n3 open invoices\ntotal: 420\n\n[AGENT]\n{\"a\":\"There are three.\",\"b\":1}\n\n[USER]\nWhat is the invoice status?"
    );
    assert_eq!(built.tokens, Encoding::Cl100k.count(&built.prompt));
    assert!(built.tokens <= 6_000 && built.dropped.is_empty());
    let route = builder(load(SAMPLE.as_bytes(), Strictness::Strict).unwrap().items)
        .build(&Build::new(Phase::Route, "invoice status"))
        .unwrap();
    assert_eq!(route.included, ["p1", "u1", "u2"]);
    assert!(route.dropped.iter().all(|dropped| dropped.reason == Reason::Kind));
    assert_eq!(route.included.len() + route.dropped.len(), 6);
}

#[test]
fn a_bad_line_is_told_with_its_place_and_nothing_is_loaded() {
    // CTX-51, T-CTX-20
    let text = b"{\"id\":\"a\",\"type\":\"user_turn\",\"text\":\"x\"}
{\"id\":\"b\",\"type\":\"shout\",\"text\":\"x\"}
{\"id\":\"c\",\"type\":\"user_turn\"}
{\"id\":\"a\",\"type\":\"user_turn\",\"text\":\"again\"}
[1]
{\"id\":\"d\",\"type\":\"user_turn\",\"text\":\"\xff\"}
{\"type\":\"user_turn\",\"text\":\"x\"}
{\"id\":\"e\",\"type\":\"tool_call\",\"text\":\"x\",\"parent_id\":\"f\"}
{\"id\":\"f\",\"type\":\"tool_call\",\"text\":\"x\",\"parent_id\":\"e\"}
{\"id\":\"g\",\"type\":\"tool_call\",\"text\":\"x\",\"parent_id\":\"nowhere\"}
{\"id\":\"h\",\"type\":\"tool_call\",\"text\":\"x\",\"sensitivity\":\"secret\"}
";
    let error = load(text, Strictness::Strict).unwrap_err();
    let places: Vec<(usize, &str)> = error.errors.iter().map(|error| (error.line, error.field)).collect();
    let want = [
        (2, "type"),
        (3, "text"),
        (4, "id"),
        (5, "line"),
        (6, "line"),
        (7, "id"),
        (8, "parent_id"),
        (11, "sensitivity"),
    ];
    assert_eq!(places, want, "{error}");
    assert!(error.to_string().contains("line 8: parent_id: a cycle: e -> f -> e"), "{error}");
    let lenient = load(text, Strictness::Lenient).unwrap();
    let ids: Vec<&str> = lenient.items.iter().map(|item| item.id.as_str()).collect();
    assert_eq!((ids, lenient.skipped.len()), (vec!["a", "f", "g"], 8));
    let odd: Vec<usize> = lenient.warnings.iter().map(|warning| warning.line).collect();
    assert_eq!(odd, [9, 10]);
    let many = "nonsense\n".repeat(50);
    let error = load(many.as_bytes(), Strictness::Strict).unwrap_err();
    assert_eq!((error.errors.len(), error.total), (20, 50));
    let long = format!("{{\"id\":\"a\",\"type\":\"user_turn\",\"text\":\"{}\"}}", "x".repeat(4 << 20));
    assert_eq!(load(long.as_bytes(), Strictness::Strict).unwrap_err().errors[0].reason, "longer than 4 MiB");
}

#[test]
fn everything_that_fits_is_in_and_the_budget_is_of_the_whole_prompt() {
    // CTX-62, CTX-65, CTX-67, T-CTX-13
    let small =
        builder((0..400).map(|n| ContextItem::new(format!("m{n}"), Kind::AgentMsg, format!("message {n}"))));
    let built = small.build(&Build::new(Phase::Answer, "message")).unwrap();
    assert_eq!((built.included.len(), built.dropped.len()), (400, 0));
    let place = |id: &str| built.included.iter().position(|other| other == id).unwrap();
    assert!(place("m7") < place("m8") && place("m8") < place("m399"));
    for encoder in [Encoding::Cl100k, Encoding::O200k] {
        let heavy = builder((0..3_000).map(|n| {
            let text =
                json!({"id": n, "hash": format!("{:x}", n * 7_919), "values": [n, n + 1, n + 2]}).to_string();
            ContextItem::new(format!("j{n}"), Kind::AgentMsg, text)
        }));
        let build = Build {
            encoder,
            header: "Be brief.",
            footer: "Answer now.",
            ..Build::new(Phase::Answer, "values")
        };
        let built = heavy.build(&build).unwrap();
        assert!(built.tokens <= 6_000 && built.tokens > 5_000, "{}", built.tokens);
        assert_eq!(built.tokens, encoder.count(&built.prompt));
        assert_eq!(built.included.len() + built.dropped.len(), 3_000);
        assert!(
            built.prompt.starts_with("Be brief.\n\n[AGENT]\n") && built.prompt.ends_with("\n\nAnswer now.")
        );
        assert_eq!(heavy.build(&build).unwrap(), built, "equal input, equal bytes");
    }
}

#[test]
fn what_must_be_in_the_prompt_is_or_the_budget_is_too_small() {
    // CTX-62
    let items = || {
        let mut items = vec![
            ContextItem::new("p", Kind::Policy, words(0, 50)),
            ContextItem::new("u1", Kind::UserTurn, words(100, 300)),
            ContextItem::new("u2", Kind::UserTurn, words(500, 50)),
        ];
        items
            .extend((0..50).map(|n| ContextItem::new(format!("a{n}"), Kind::AgentMsg, words(n * 1_000, 30))));
        items
    };
    let built =
        builder(items()).build(&Build { budget: Some(400), ..Build::new(Phase::Answer, "") }).unwrap();
    assert!(built.included.contains(&"p".to_owned()) && built.included.contains(&"u2".to_owned()));
    assert!(!built.included.contains(&"u1".to_owned()) && built.tokens <= 400);
    let error =
        builder(items()).build(&Build { budget: Some(100), ..Build::new(Phase::Answer, "") }).unwrap_err();
    let BuildError::BudgetTooSmall { needed, budget } = error;
    assert!(needed > 100 && budget == 100);
}

#[test]
fn a_result_comes_with_its_call_or_not_at_all() {
    // CTX-63
    let call = ContextItem::new("c", Kind::ToolCall, words(0, 200)).child_of("u");
    let mut secret = ContextItem::new("s", Kind::ToolCall, "key=abc");
    secret.sensitivity = Sensitivity::Confidential;
    let items = vec![
        ContextItem::new("u", Kind::UserTurn, "go"),
        call,
        ContextItem::new("r", Kind::ToolResult, "short result").child_of("c"),
        secret,
        ContextItem::new("rs", Kind::ToolResult, "result of a secret call").child_of("s"),
    ];
    let all = builder(items.clone()).build(&Build::new(Phase::Answer, "")).unwrap();
    assert_eq!(all.included, ["u", "c", "r", "rs"]);
    assert!(
        all.prompt
            .contains("[TOOL CALL]\n(left out: confidential)\n\n[TOOL RESULT]\nresult of a secret call"),
        "{}",
        all.prompt
    );
    assert!(!all.prompt.contains("key=abc"));
    let tight =
        builder(items.clone()).build(&Build { budget: Some(60), ..Build::new(Phase::Answer, "") }).unwrap();
    assert_eq!(tight.included, ["u", "rs"], "the call does not fit, so its result is not there either");
    let redacted =
        builder(items).build(&Build { redact_sensitive: true, ..Build::new(Phase::Answer, "") }).unwrap();
    assert!(redacted.prompt.contains("[TOOL CALL]\n[REDACTED: confidential]"), "{}", redacted.prompt);
}

#[test]
fn of_two_that_say_the_same_one_stays() {
    // CTX-64
    let near = |n: usize| format!("{} extra{n}", words(0, 30));
    let mut items: Vec<ContextItem> =
        (0..20).map(|n| ContextItem::new(format!("d{n}"), Kind::DocSnippet, near(n))).collect();
    items.push(ContextItem::new("other", Kind::DocSnippet, words(500, 30)));
    items.extend((0..3).map(|n| ContextItem::new(format!("u{n}"), Kind::UserTurn, near(0))));
    items.extend((0..3).map(|n| ContextItem::new(format!("short{n}"), Kind::AgentMsg, "ok, done")));
    let built = builder(items).build(&Build::new(Phase::Answer, "")).unwrap();
    let duplicates = built.dropped.iter().filter(|dropped| dropped.reason == Reason::Duplicate).count();
    // The turns of the user say it already, and are never dropped as duplicates themselves.
    assert_eq!((duplicates, built.included.len()), (20, 7));
}

#[test]
fn long_results_are_said_in_short_and_second_ones_get_their_own_id() {
    // CTX-60, CTX-61
    let mut builder = ContextBuilder::new();
    builder.ingest(ContextItem::new("c1", Kind::ToolCall, "list()")).unwrap();
    let long = "row: value\n".repeat(1_000);
    assert_eq!(builder.ingest_tool_result("c1", &long, "list", "text/plain", 2_000), "result:c1");
    assert_eq!(builder.ingest_tool_result("c1", "short", "list", "text/plain", 2_000), "result:c1:2");
    assert!(
        builder.items()[1].text.len() < 1_000
            && builder.items()[1].text.contains("(… 11000 characters in all)")
    );
    assert_eq!(builder.items()[2].text, "short");
    assert_eq!(builder.items()[1].parent_id.as_deref(), Some("c1"));
    assert!(builder.ingest(ContextItem::new("c1", Kind::UserTurn, "again")).is_err());
}

#[test]
fn a_limit_per_kind_is_only_there_if_wanted() {
    // CTX-65
    let items = (0..60).map(|n| ContextItem::new(format!("a{n}"), Kind::AgentMsg, format!("message {n}")));
    let mut build = Build::new(Phase::Answer, "");
    let builder = builder(items);
    assert_eq!(builder.build(&build).unwrap().included.len(), 60);
    build.max_per_kind.insert(Kind::AgentMsg, 10);
    let built = builder.build(&build).unwrap();
    assert_eq!(built.included.len(), 10);
    assert_eq!(built.dropped.iter().filter(|dropped| dropped.reason == Reason::Limit).count(), 50);
}

#[test]
fn tags_count_instead_of_the_query() {
    // CTX-61
    let tagged = |id: &str, tag: &str| {
        let mut item = ContextItem::new(id, Kind::DocSnippet, words(id.len() * 100, 60));
        item.metadata.insert("tags".into(), json!([tag]));
        item
    };
    let builder = builder([tagged("a", "billing"), tagged("bb", "travel"), tagged("ccc", "travel")]);
    let tags = ["billing".to_owned()];
    let build = Build { query_tags: &tags, budget: Some(220), ..Build::new(Phase::Answer, "") };
    assert_eq!(builder.build(&build).unwrap().included, ["a"]);
}

#[test]
fn the_work_grows_hardly_faster_than_the_conversation() {
    // B-CTX-6: no timing, but no comparison of everything with everything either: this would not end otherwise
    let items = (0..30_000).map(|n| ContextItem::new(format!("m{n}"), Kind::AgentMsg, words(n * 40, 12)));
    let built = builder(items).build(&Build::new(Phase::Answer, "word7")).unwrap();
    assert!(built.tokens <= 6_000);
    assert_eq!(built.included.len() + built.dropped.len(), 30_000);
}
