use super::*;
use crate::cards::tokens;
use crate::{Effects, ServerCtx, ToolDef, tool_to_selectable};

fn item(value: &Value, effects: &[Effect]) -> SelectableItem {
    let raw = serde_json::value::to_raw_value(value).unwrap();
    let effects: Effects = effects.iter().copied().collect();
    tool_to_selectable(&ToolDef { effects, ..ToolDef::tool(&raw) }, &ServerCtx::default()).unwrap()
}

fn issue() -> SelectableItem {
    let schema = json!({"type": "object", "properties": {"title": {"type": "string"}, "body": {"type": "string"}},
        "required": ["title"]});
    let value = json!({"name": "github.create_issue", "inputSchema": schema,
        "description": "Open a new GitHub issue with a title."});
    item(&value, &[Effect::Network, Effect::Write])
}

#[test]
fn a_card_has_its_three_forms() {
    // CAT-82
    let item = issue();
    let id = &item.id;
    assert_eq!(
        finished(&card(&item, Form::Lines).text, Form::Lines, 2, Some(7)),
        format!(
            "{id}(title:str, body?:str) [write,network] — Open a new GitHub issue with a title. (+2 similar)"
        )
    );
    assert_eq!(
        finished(&card(&item, Form::Json).text, Form::Json, 0, None),
        format!(
            "{{\"id\":\"{id}\",\"args\":\"(title:str, body?:str)\",\"fx\":[\"write\",\"network\"],\"d\":\"Open a new GitHub issue with a title.\"}}"
        )
    );
    let compat: Value =
        serde_json::from_str(&finished(&card(&item, Form::Compat).text, Form::Compat, 0, Some(7))).unwrap();
    let keys: Vec<&String> = compat.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "cost_hint",
            "description",
            "has_schema",
            "id",
            "kind",
            "name",
            "namespace",
            "safety",
            "score",
            "side_effects",
            "tags"
        ]
    );
    assert_eq!(compat["score"], 7);
}

#[test]
fn only_the_description_is_shortened_at_first() {
    // CAT-84
    let sentences = "First things are done here. Then others follow. ".repeat(8);
    let long = item(&json!({"name": "x.y", "description": sentences}), &[]);
    let text = card(&long, Form::Lines).text;
    assert!(text.ends_with('.') && text.starts_with(&format!("{}() [pure] — First", long.id)), "{text}");
    assert!(tokens(&text) <= 44);
    let unbroken = item(&json!({"name": "x.y", "description": "word ".repeat(200)}), &[]);
    let text = card(&unbroken, Form::Lines).text;
    assert!(text.ends_with("word…") && tokens(&text) <= 44 && tokens(&text) > 36, "{text}");
    let family = "👩‍👩‍👧‍👦".repeat(100);
    let emoji = item(&json!({"name": "x.y", "description": family}), &[]);
    assert!(tokens(&card(&emoji, Form::Lines).text) <= 80);
}

#[test]
fn then_parameters_are_counted_instead_of_shown_and_an_id_is_never_cut() {
    // CAT-81, CAT-84
    let properties: serde_json::Map<String, Value> =
        (0..40).map(|n| (format!("rather_long_parameter_{n}"), json!({"type": "string"}))).collect();
    let value = json!({"name": "x.y", "description": "d", "inputSchema": {"properties": properties}});
    let text = card(&item(&value, &[]), Form::Lines).text;
    assert!(text.contains(", …+") && tokens(&text) <= 80, "{text}");
    let odd: String = (0..60).map(|n| char::from(b'a' + (n * 7 % 26) as u8)).collect::<String>();
    let long = item(&json!({"name": format!("{odd}.{odd}")}), &[]);
    let rendered = card(&long, Form::Lines);
    assert!(rendered.text.starts_with(&long.id) && rendered.over_cap == (tokens(&rendered.text) > 80));
}

#[test]
fn ten_thousand_odd_definitions_keep_to_the_cap_or_say_so() {
    // T-CAT-16
    let mut state = 7u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let pieces = [
        "issue", " ", "\n", "查询", "🙂", "\u{202e}", ". ", "x", "__", "\"", "Ω", "a.b", "🇩🇪", "\\", "{}",
        "é",
    ];
    let mut text = |most: usize| -> String { (0..next(most)).map(|_| pieces[next(pieces.len())]).collect() };
    for round in 0..10_000 {
        let parameters: serde_json::Map<String, Value> = (0..round % 8)
            .map(|n| {
                (
                    format!("{}{n}", text(5)),
                    json!({"type": "string", "enum": [text(4), text(3)], "default": text(3)}),
                )
            })
            .collect();
        let value = json!({"name": format!("n{}", text(12)), "description": text(40),
            "inputSchema": {"type": "object", "properties": parameters}});
        let raw = serde_json::value::to_raw_value(&value).unwrap();
        let mut findings = Vec::new();
        let ingested =
            crate::ingest::ingest(&ToolDef::tool(&raw), &ServerCtx::default(), 0, &mut findings).unwrap();
        let form = Form::ALL[round % 3];
        let rendered = card(&ingested.item, form);
        let emitted = finished(&rendered.text, form, 0, None);
        assert!(rendered.over_cap || tokens(&emitted) <= 80, "{emitted}");
        assert!(!emitted.contains('\n'), "{emitted}");
        if form != Form::Lines {
            serde_json::from_str::<Value>(&emitted).unwrap();
        }
    }
}
