use super::*;
use crate::finding::FindingKind;

/// Definitions that live as long as a test needs them.
struct Server {
    ctx: ServerCtx,
    definitions: Vec<Box<RawValue>>,
}

fn server(name: &str, acceptance: u64, definitions: &[Value]) -> Server {
    let definitions =
        definitions.iter().map(|value| serde_json::value::to_raw_value(value).unwrap()).collect();
    Server { ctx: ServerCtx { server: name.into(), acceptance, ..ServerCtx::default() }, definitions }
}

fn build(servers: &[&Server]) -> CatalogSnapshot {
    let sources: Vec<Source<'_>> = servers
        .iter()
        .map(|server| Source {
            server: server.ctx.clone(),
            definitions: server.definitions.iter().map(|raw| ToolDef::tool(raw)).collect(),
        })
        .collect();
    CatalogSnapshot::build(1, &sources, &BuildOptions::default())
}

fn issue() -> Value {
    json!({"name": "github.create_issue", "description": "d",
        "inputSchema": {"type": "object", "properties": {"title": {}}, "required": ["title"]}})
}

fn ids(snapshot: &CatalogSnapshot) -> Vec<(&str, &str)> {
    snapshot.items().iter().map(|item| (item.id.as_str(), item.server.as_str())).collect()
}

fn kinds(snapshot: &CatalogSnapshot) -> Vec<FindingKind> {
    snapshot.findings().iter().map(|finding| finding.kind).collect()
}

#[test]
fn who_was_accepted_first_keeps_the_id_whatever_the_order_of_connecting() {
    // CAT-26, T-CAT-7
    let first = server("github", 1, &[issue()]);
    let second = server("evil", 2, &[issue()]);
    let third = server("evil-two", 3, &[issue()]);
    let wanted = [
        ("evil-two:create_issue#34afee88", "evil-two"),
        ("evil:create_issue#34afee88", "evil"),
        ("github:create_issue#34afee88", "github"),
    ];
    let snapshot = build(&[&first, &second, &third]);
    assert_eq!(ids(&snapshot), wanted);
    assert_eq!(kinds(&snapshot), [FindingKind::IdCollision; 2]);
    assert!(
        snapshot.findings()[0].detail.contains("'github'")
            && snapshot.findings()[0].detail.contains("'evil'")
    );
    let reversed = build(&[&third, &second, &first]);
    assert_eq!(ids(&reversed), wanted);
    assert_eq!(reversed.digest(), snapshot.digest());
}

#[test]
fn a_taken_namespace_is_counted_on() {
    // CAT-26: `<server>-2` where `<server>` is taken too.
    let first = server("github", 1, &[issue()]);
    let named_so = json!({"name": "evil.create_issue", "_meta": {"version": "1"}});
    let versioned = json!({"name": "github.create_issue", "_meta": {"version": "1"}});
    let other = server("other", 2, &[versioned.clone(), named_so]);
    let evil = server("evil", 3, &[versioned]);
    let snapshot = build(&[&evil, &other, &first]);
    let found = ids(&snapshot);
    assert!(
        found.contains(&("evil:create_issue@1", "other"))
            && found.contains(&("evil-2:create_issue@1", "evil")),
        "{found:?}"
    );
}

#[test]
fn a_bad_definition_touches_no_other() {
    // CAT-42, CAT-26, T-CAT-6
    let other = json!({"name": "twice", "description": "two"});
    let snapshot = build(&[&server(
        "srv",
        1,
        &[
            json!({"name": "list", "inputSchema": []}),
            json!({"name": "props", "inputSchema": {"properties": []}}),
            json!({"name": "twice", "description": "one"}),
            other,
            json!({"name": "same", "description": "d"}),
            json!({"description": "d", "name": "same"}),
            json!({"name": "remote", "inputSchema": {"$ref": "http://127.0.0.1:1/x"}}),
            json!({"description": "nameless"}),
            json!({"name": "fine", "description": "d"}),
        ],
    )]);
    let listed: Vec<&str> =
        snapshot.everything().iter().map(|index| snapshot.items()[index].upstream_name.as_str()).collect();
    assert_eq!(listed, ["fine", "same"]);
    let counts = snapshot.counts();
    assert_eq!((counts.registered, counts.quarantined, counts.skipped), (2, 4, 1));
    for kind in [
        FindingKind::NotWellFormed,
        FindingKind::DuplicateDefinition,
        FindingKind::DuplicateIdentical,
        FindingKind::RemoteRef,
        FindingKind::NameMissing,
    ] {
        assert!(kinds(&snapshot).contains(&kind), "{kind:?}");
    }
    let twice = snapshot.lookup("mcp:twice", snapshot.everything()).unwrap();
    assert_eq!(snapshot.items()[twice].standing, Standing::Quarantined(FindingKind::DuplicateDefinition));
}

#[test]
fn the_order_of_servers_pages_and_keys_changes_nothing() {
    // CAT-51, T-CAT-17
    let keys = json!({"name": "a.b", "description": "d", "inputSchema": {"properties": {"x": {}, "y": {}}}});
    let text = r#"{"inputSchema":{"properties":{"y":{},"x":{}}},"description":"d","name":"a.b"}"#;
    let one = server("one", 1, &[keys, issue()]);
    let mut two = server("one", 1, &[issue()]);
    two.definitions.push(RawValue::from_string(text.into()).unwrap());
    let (one, two) = (build(&[&one]), build(&[&two]));
    assert_eq!(one.digest(), two.digest());
    assert_eq!(ids(&one), ids(&two));
    assert_eq!(
        one.items().iter().map(|item| &item.wire_name).collect::<Vec<_>>(),
        two.items().iter().map(|item| &item.wire_name).collect::<Vec<_>>()
    );
}

#[test]
fn lookups_take_ids_wire_names_and_base_ids_and_never_guess() {
    // CAT-23, T-CAT-20
    let search =
        |property: &str| json!({"name": "search_database", "inputSchema": {"properties": {property: {}}}});
    let snapshot = build(&[&server("a", 1, &[search("query")])]);
    let all = snapshot.everything();
    let index = snapshot.lookup("mcp:search_database", all).unwrap();
    let item = &snapshot.items()[index];
    assert_eq!(snapshot.lookup(&item.id, all), Ok(index));
    assert_eq!(snapshot.lookup("mcp__search_database", all), Ok(index));
    assert_eq!(snapshot.lookup(&item.id[..item.id.len() - 1], all), Err(NotOne::Unknown));
    let two = build(&[&server("a", 1, &[search("query")]), &server("b", 2, &[search("text")])]);
    let Err(NotOne::Several(candidates)) = two.lookup("mcp:search_database", two.everything()) else {
        panic!("there are two")
    };
    assert_eq!(candidates.len(), 2);
    // A hidden one does not make the other ambiguous, and is itself not there (CAT-53).
    let seen = two.view(|item| item.server == "b");
    let found = two.lookup("mcp:search_database", &seen).unwrap();
    assert_eq!(two.items()[found].server, "b");
    let hidden = two.items().iter().find(|item| item.server == "a").unwrap();
    assert_eq!(two.lookup(&hidden.id, &seen), Err(NotOne::Unknown));
    assert_eq!(two.lookup(&hidden.wire_name, &seen), Err(NotOne::Unknown));
}

#[test]
fn wire_names_fit_model_interfaces_and_are_unique() {
    // CAT-24, T-CAT-22
    let long = "x".repeat(120);
    let names = ["github.create:issue", "github.create_issue", "github.create/issue", &long, "a b", "查询"];
    let definitions: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
    let snapshot = build(&[&server("a", 1, &definitions)]);
    let mut wire: Vec<&str> = snapshot.items().iter().map(|item| item.wire_name.as_str()).collect();
    for name in &wire {
        assert!((1..=64).contains(&name.len()), "{name}");
        assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'), "{name}");
        assert!(
            snapshot.lookup(name, snapshot.everything()).is_ok()
                || names.iter().any(|n| n.contains([' ', ':', '查']))
        );
    }
    wire.sort_unstable();
    wire.dedup();
    assert_eq!(wire.len(), names.len());
}

#[test]
fn resources_of_one_id_are_numbered_in_the_order_of_acceptance() {
    // CAT-31
    let raw = serde_json::value::to_raw_value(&json!({"uri": "file:///a", "name": "a"})).unwrap();
    let source = |acceptance| Source {
        server: ServerCtx {
            server: format!("s{acceptance}"),
            namespace: Some("docs".into()),
            acceptance,
            ..ServerCtx::default()
        },
        definitions: vec![ToolDef { kind: crate::Kind::Resource, ..ToolDef::tool(&raw) }],
    };
    let snapshot = CatalogSnapshot::build(1, &[source(2), source(1)], &BuildOptions::default());
    let first = &snapshot.items()[0];
    assert_eq!((first.server.as_str(), first.id.contains('~')), ("s1", false));
    let second = &snapshot.items()[1];
    assert_eq!(second.id, format!("{}~2", first.id));
    assert_eq!(snapshot.lookup(&second.id, snapshot.everything()), Ok(1));
}

#[test]
fn every_answer_while_catalogues_are_swapped_is_of_exactly_one_of_them() {
    // T-CAT-13, CAT-50: eight thousand searches while fifty catalogues follow one another.
    let epoch = |number: usize| {
        let named =
            (0..20).map(|n| (format!("desk.report_{n}_of_{number}"), format!("Report of epoch {number}")));
        Arc::new(crate::fixture::catalogue(&named.collect::<Vec<_>>()))
    };
    let current = std::sync::RwLock::new(epoch(0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..1_000 {
                    let snapshot = current.read().unwrap().clone();
                    let options = SearchOptions { family_max: 0, ..SearchOptions::default() };
                    let hits = snapshot.search("report epoch", snapshot.everything(), options).unwrap();
                    assert_eq!(hits.len(), 10);
                    let suffix =
                        |index: usize| snapshot.items()[index].name.rsplit('_').next().unwrap().to_owned();
                    let first = suffix(hits[0].index);
                    assert!(hits.iter().all(|hit| suffix(hit.index) == first));
                }
            });
        }
        scope.spawn(|| {
            for number in 1..=50 {
                let next = epoch(number);
                *current.write().unwrap() = next;
            }
        });
    });
}
