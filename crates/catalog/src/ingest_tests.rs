use super::*;

pub(crate) fn raw(value: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).unwrap()
}

fn one(value: &Value, effects: &[Effect]) -> (SelectableItem, Vec<FindingKind>) {
    let raw = raw(value);
    let definition = ToolDef { effects: effects.iter().copied().collect(), ..ToolDef::tool(&raw) };
    let mut findings = Vec::new();
    let ctx = ServerCtx { server: "srv".into(), ..ServerCtx::default() };
    let ingested = ingest(&definition, &ctx, 0, &mut findings).unwrap();
    (ingested.item, findings.into_iter().map(|finding| finding.kind).collect())
}

#[test]
fn known_definitions_have_their_known_ids() {
    // CAT-22, T-CAT-2
    let schema = |properties: &[&str], required: &[&str]| {
        let properties: Map<String, Value> =
            properties.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
        json!({"type": "object", "properties": properties, "required": required})
    };
    for (name, schema, id) in [
        ("github.create_issue", schema(&["title"], &["title"]), "github:create_issue#34afee88"),
        ("github.create_issue", schema(&["title"], &[]), "github:create_issue#64398c08"),
        ("search_database", schema(&["query", "limit"], &[]), "mcp:search_database#547048ac"),
        ("read_file", schema(&["path"], &["path"]), "mcp:read_file#85b56782"),
        ("slack_send_message", json!(null), "slack:slack_send_message#2fae1fd2"),
        ("filesystem/read", json!({}), "filesystem:read#2a7b574b"),
    ] {
        let (item, _) = one(&json!({"name": name, "inputSchema": schema}), &[]);
        assert_eq!(item.id, id);
        assert_eq!(item.upstream_name, name);
    }
    let versioned = json!({"name": "github.create_issue", "_meta": {"version": "1.4.0"}});
    assert_eq!(one(&versioned, &[]).0.id, "github:create_issue@1.4.0");
    let number = json!({"name": "billing.refund", "_meta": {"version": 1}});
    assert_eq!(one(&number, &[]).0.id, "billing:refund@1");
    let odd = json!({"name": "billing.refund", "_meta": {"version": "1 2"}});
    let (item, findings) = one(&odd, &[]);
    assert!(item.version.is_none() && item.id.contains('#'), "{}", item.id);
    assert!(findings.contains(&FindingKind::VersionUnusable));
}

#[test]
fn only_a_name_is_needed() {
    // CAT-2
    let (item, findings) = one(&json!({"name": "create_issue"}), &[]);
    assert_eq!(item.description, "create issue");
    assert_eq!(findings, [FindingKind::DescriptionMissing]);
    assert_eq!(item.args_schema.get(), "{}");
    assert!(item.output_schema.is_none() && item.side_effects && item.tags == ["mcp"]);
    let titled = json!({"name": "x", "title": "Make it so", "description": " \n"});
    assert_eq!(one(&titled, &[]).0.description, "Make it so");
    let kept = json!({"name": "x", "outputSchema": {"type": "object", "z": 1, "a": 2}});
    let text = r#"{"name":"x","outputSchema": {"type":"object", "z":1,"a":2}}"#;
    assert_eq!(one(&kept, &[]).1, [FindingKind::DescriptionMissing]);
    let raw = RawValue::from_string(text.to_owned()).unwrap();
    let item = tool_to_selectable(&ToolDef::tool(&raw), &ServerCtx::default()).unwrap();
    assert_eq!(item.output_schema.unwrap().get(), r#"{"type":"object", "z":1,"a":2}"#);
    for nameless in [json!({}), json!({"name": ""}), json!({"name": 3}), json!([]), json!(null)] {
        let raw = super::tests::raw(&nameless);
        let finding = tool_to_selectable(&ToolDef::tool(&raw), &ServerCtx::default()).unwrap_err();
        assert_eq!(finding.kind, FindingKind::NameMissing);
    }
}

#[test]
fn a_hint_raises_caution_and_never_lowers_it() {
    // CAT-3, T-CAT-10
    let claims = json!({"name": "x", "description": "d", "annotations": {"readOnlyHint": true}});
    let (item, findings) = one(&claims, &[Effect::Write]);
    assert_eq!(item.safety().as_str(), "");
    assert_eq!(findings, [FindingKind::AnnotationContradiction]);
    assert!(!item.tags.contains(&"read-only".into()));
    let (item, findings) = one(&claims, &[Effect::Read]);
    assert_eq!((item.safety().as_str(), findings.len()), ("read_only", 0));
    let destroys = json!({"name": "x", "description": "d", "annotations": {"destructiveHint": true}});
    let (item, findings) = one(&destroys, &[Effect::Read]);
    assert_eq!(item.safety().as_str(), "destructive");
    assert_eq!(findings, [FindingKind::AnnotationContradiction]);
}

#[test]
fn twelve_awkward_tools_become_twelve_items() {
    // T-CAT-3, library part
    let long = "n".repeat(300);
    let names = [
        "plain",
        "GitHub.create",
        "3scale.list",
        "a/b/c",
        "with space",
        "查询",
        ".x",
        &long,
        "9lives",
        "café.order",
    ];
    let mut ids = std::collections::BTreeSet::new();
    for name in names {
        let (item, _) = one(&json!({"name": name}), &[]);
        crate::id::parse_id(&item.id).unwrap();
        assert_eq!(item.upstream_name, name);
        let declarable = name.parse::<ToolName>().is_ok();
        assert_eq!(item.standing == Standing::Callable, declarable, "{name}");
        ids.insert(item.id);
    }
    ids.insert(one(&json!({"name": "empty", "inputSchema": {}}), &[]).0.id);
    ids.insert(one(&json!({"name": "none", "inputSchema": null}), &[]).0.id);
    assert_eq!(ids.len(), 12);
    assert!(ids.contains("a:b_c#".to_owned().as_str()) || ids.iter().any(|id| id.starts_with("a:b_c#")));
    assert!(
        ids.iter().any(|id| id.starts_with("mcp:_9lives#")) && ids.iter().any(|id| id.starts_with("mcp:_#"))
    );
}

#[test]
fn sizes_are_flagged_or_quarantined_as_the_operator_says() {
    // CAT-42
    let large = json!({"name": "x", "description": "d", "inputSchema": {"description": "x".repeat(70_000)}});
    assert_eq!(one(&large, &[]).0.standing, Standing::Quarantined(FindingKind::SizeExceeded));
    let raw = raw(&large);
    let limits = SchemaLimits { on_exceeded: OnExceeded::Flag, ..SchemaLimits::default() };
    let ctx = ServerCtx { limits, ..ServerCtx::default() };
    let mut findings = Vec::new();
    let flagged = ingest(&ToolDef::tool(&raw), &ctx, 0, &mut findings).unwrap();
    assert_eq!((flagged.item.standing, findings[0].kind), (Standing::Callable, FindingKind::SizeExceeded));
    let not_one = json!({"name": "x", "inputSchema": []});
    assert_eq!(one(&not_one, &[]).0.standing, Standing::Quarantined(FindingKind::NotWellFormed));
}

#[test]
fn resources_and_prompts_have_spaces_of_their_own() {
    // CAT-30, CAT-32
    let raw = raw(&json!({"uri": "file:///docs/readme.md", "description": "d"}));
    let ctx = ServerCtx { server: "docs".into(), ..ServerCtx::default() };
    let mut findings = Vec::new();
    let resource = ToolDef { kind: Kind::Resource, ..ToolDef::tool(&raw) };
    let item = ingest(&resource, &ctx, 0, &mut findings).unwrap().item;
    assert_eq!(item.id, "resource::docs:readme.md#a8c506b1");
    assert_eq!(item.upstream_name, "file:///docs/readme.md");
    let raw = super::tests::raw(&json!({
        "name": "summarize_pr", "description": "d", "arguments": [{"name": "repo", "required": true}]
    }));
    let prompt = ToolDef { kind: Kind::Prompt, ..ToolDef::tool(&raw) };
    let item = ingest(&prompt, &ctx, 0, &mut findings).unwrap().item;
    assert_eq!(item.id, "prompt::mcp:summarize_pr#a85c17c1");
    let schema: Value = serde_json::from_str(item.args_schema.get()).unwrap();
    assert_eq!(
        schema,
        json!({"type": "object", "properties": {"repo": {"type": "string"}}, "required": ["repo"],
            "additionalProperties": false})
    );
    let raw = super::tests::raw(&json!({"uriTemplate": "db://{table}/rows{?limit,after*}", "name": "rows"}));
    let template = ToolDef { kind: Kind::Resource, ..ToolDef::tool(&raw) };
    let item = ingest(&template, &ctx, 0, &mut findings).unwrap().item;
    assert!(item.is_template);
    assert_eq!(item.signature.text(9), "(after:str, limit:str, table:str)");
}

#[test]
fn what_was_hidden_is_removed_and_told() {
    // CAT-42
    let (item, findings) = one(&json!({"name": "x", "description": "safe\u{202e} text\u{e0041}"}), &[]);
    assert_eq!(item.description, "safe text");
    assert_eq!(findings, [FindingKind::HiddenText]);
    let (item, findings) =
        one(&json!({"name": "x", "description": "d", "annotations": {"costHint": -1}}), &[]);
    assert!(item.cost_hint == 0.0 && findings == [FindingKind::CostUnusable]);
}
