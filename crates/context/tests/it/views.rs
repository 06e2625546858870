//! Every selector on every kind of content.

use portcullis_context::view::{Slice, VIEW_MAX_BYTES};
use portcullis_context::{Handle, Selector, Source, View, ViewError, view_artifact};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::shelf::{Shelf, owner};

struct Fixture {
    shelf: Shelf,
    handle: Handle,
    owner: portcullis_context::Owner,
}

impl Fixture {
    fn new(media_type: &str, content: &[u8]) -> Self {
        Self::of(media_type, content, Source::Text)
    }

    fn of(media_type: &str, content: &[u8], source: Source) -> Self {
        let (shelf, owner) = (Shelf::new(), owner("ann"));
        let handle = shelf.keep_as(&owner, media_type, content, source).unwrap();
        Self { shelf, handle, owner }
    }

    fn view(&self, selector: Value) -> Result<View, ViewError> {
        self.view_within(selector, VIEW_MAX_BYTES)
    }

    fn view_within(&self, selector: Value, max: usize) -> Result<View, ViewError> {
        let opened = self.shelf.artifacts.open(self.handle, &self.owner).unwrap();
        view_artifact(&opened, &Selector::read(&selector)?, max)
    }

    fn text(&self, selector: Value) -> String {
        text(self.view(selector).unwrap())
    }
}

fn text(view: View) -> String {
    match view.slice {
        Slice::Text(text) | Slice::Part(text) => text,
    }
}

fn numbered(lines: usize) -> String {
    (0..lines).map(|n| format!("line {n}\n")).collect()
}

#[test]
fn heads_and_tails_are_characters() {
    // CTX-30
    let fixture = Fixture::new("text/plain", "äöü\nß€😀".as_bytes());
    assert_eq!(fixture.text(json!({"type": "head", "chars": 2})), "äö");
    assert_eq!(fixture.text(json!({"type": "tail", "chars": 2})), "€😀");
    assert_eq!(fixture.text(json!({"type": "tail", "chars": 0})), "");
    let whole = fixture.view(json!({"type": "head"})).unwrap();
    assert_eq!((whole.more.is_none(), text(whole)), (true, "äöü\nß€😀".into()));
    let long = Fixture::new("text/plain", numbered(5_321).as_bytes());
    let head = long.view(json!({"type": "head", "chars": 10})).unwrap();
    assert_eq!(head.more.unwrap().to_string(), r#"more: {"type":"lines","start":1,"end":101} of 5321 lines"#);
    // Never more than fits, and never half a character.
    let wide = Fixture::new("text/plain", "😀".repeat(10_000).as_bytes());
    let head = wide.view_within(json!({"type": "head", "chars": 9_000}), 1_001).unwrap();
    assert_eq!(text(head), "😀".repeat(250));
    assert_eq!(
        text(wide.view_within(json!({"type": "tail", "chars": 9_000}), 1_001).unwrap()),
        "😀".repeat(250)
    );
}

#[test]
fn lines_are_half_open_and_count_from_either_end() {
    // CTX-30, T-CTX-15
    let fixture = Fixture::new("text/plain", numbered(5_321).as_bytes());
    assert_eq!(fixture.text(json!({"type": "lines", "start": 900, "end": 902})), "line 900\nline 901\n");
    assert_eq!(fixture.text(json!({"type": "lines", "start": -2})), "line 5319\nline 5320\n");
    assert_eq!(fixture.text(json!({"type": "lines", "start": 9, "end": 3})), "");
    assert_eq!(fixture.text(json!({"type": "lines", "start": 99_999})), "");
    let view = fixture.view(json!({"type": "lines", "start": 0, "end": 200})).unwrap();
    assert_eq!(
        view.more.unwrap().to_string(),
        r#"more: {"type":"lines","start":200,"end":400} of 5321 lines"#
    );
    // Following `more` shows every line once.
    let (mut selector, mut all) = (json!({"type": "lines"}), String::new());
    loop {
        let view = fixture.view_within(selector, 5_000).unwrap();
        assert!(view.bytes() <= 5_000);
        let more = view.more.clone();
        all.push_str(&text(view));
        match more {
            Some(more) => selector = more.selector,
            None => break,
        }
    }
    assert_eq!(all, numbered(5_321));
    let one_line = Fixture::new("text/plain", "x".repeat(50_000).as_bytes());
    let view = one_line.view(json!({"type": "lines"})).unwrap();
    assert_eq!(view.more.unwrap().selector, json!({"type": "bytes", "offset": 16_384}));
}

#[test]
fn matches_have_the_numbers_that_lines_takes() {
    // CTX-30
    let fixture = Fixture::new("text/plain", numbered(500).as_bytes());
    assert_eq!(
        fixture.text(json!({"type": "grep", "pattern": "line 1[0-2]$"})),
        "10: line 10\n11: line 11\n12: line 12\n"
    );
    let around = fixture.text(json!({"type": "grep", "pattern": "e 7$", "context": 1}));
    assert_eq!(around, "6- line 6\n7: line 7\n8- line 8\n");
    let view = fixture.view(json!({"type": "grep", "pattern": "line", "max": 2})).unwrap();
    let more = view.more.clone().unwrap();
    assert_eq!((text(view), &more.selector["start"]), ("0: line 0\n1: line 1\n".into(), &json!(2)));
    assert_eq!(fixture.text(more.selector), "2: line 2\n3: line 3\n");
    assert_eq!(fixture.text(json!({"type": "grep", "pattern": "absent"})), "");
    let wrong = [json!("("), json!("a".repeat(257)), json!(7), json!(r"(\w{1000}){1000}"), json!("(?=a)")];
    for pattern in wrong {
        let error = fixture.view(json!({"type": "grep", "pattern": pattern})).unwrap_err();
        assert_eq!(error.details(), json!({"field": "pattern"}), "{pattern}");
    }
    let error = fixture.view(json!({"type": "grep", "pattern": "a", "context": 11})).unwrap_err();
    assert_eq!(error.details(), json!({"field": "context"}));
}

#[test]
fn a_hostile_pattern_takes_no_longer_than_another() {
    // T-CTX-29: linear, so a mebibyte is answered at once where backtracking would not end
    let fixture = Fixture::new("text/plain", "a".repeat(1 << 20).as_bytes());
    let view = fixture.view(json!({"type": "grep", "pattern": "(a+)+$"})).unwrap();
    assert_eq!(view.bytes(), VIEW_MAX_BYTES);
    assert_eq!(fixture.text(json!({"type": "grep", "pattern": "(a+)+b"})), "");
}

#[test]
fn json_is_shown_as_it_was_written() {
    // CTX-30
    let document = r#"{"b":1.50,"a":{"x":[10,20,30,40],"~/":"odd"},"big":12345678901234567890}"#;
    let fixture = Fixture::new("application/json", document.as_bytes());
    assert_eq!(fixture.text(json!({"type": "json_keys", "keys": ["big", "a"]})).lines().next(), Some("{"));
    assert!(fixture.text(json!({"type": "json_keys", "keys": ["b"]})).contains("\"b\": 1.5"));
    assert_eq!(fixture.text(json!({"type": "json_pointer", "pointer": "/b"})), "1.50");
    assert_eq!(fixture.text(json!({"type": "json_pointer", "pointer": "/big"})), "12345678901234567890");
    assert_eq!(fixture.text(json!({"type": "json_pointer", "pointer": "/a/~0~1"})), "\"odd\"");
    assert_eq!(fixture.text(json!({"type": "json_pointer", "pointer": ""})), document);
    let slice =
        fixture.view(json!({"type": "json_pointer", "pointer": "/a/x", "start": 1, "end": 3})).unwrap();
    assert_eq!(slice.more.clone().unwrap().selector["start"], 3);
    assert_eq!(text(slice), "[20,30]");
    assert_eq!(fixture.text(json!({"type": "json_pointer", "pointer": "/a/x", "start": -1})), "[40]");
    for (selector, field) in [
        (json!({"type": "json_pointer", "pointer": "/a/none"}), "pointer"),
        (json!({"type": "json_pointer", "pointer": "/a/x/04"}), "pointer"),
        (json!({"type": "json_pointer", "pointer": "a"}), "pointer"),
        (json!({"type": "json_pointer"}), "pointer"),
        (json!({"type": "json_keys"}), "keys"),
        (json!({"type": "json_keys", "keys": ["zzz"]}), "keys"),
    ] {
        assert_eq!(
            fixture.view(selector.clone()).unwrap_err().details(),
            json!({"field": field}),
            "{selector}"
        );
    }
    let prose = Fixture::new("text/plain", b"not json");
    let error = prose.view(json!({"type": "json_keys", "keys": ["a"]})).unwrap_err();
    assert_eq!(error.details(), json!({"use": ["head", "lines", "grep"]}));
}

#[test]
fn an_array_that_is_too_long_continues() {
    let document = json!((0..5_000).map(|n| json!({"id": n})).collect::<Vec<_>>()).to_string();
    let fixture = Fixture::new("application/json", document.as_bytes());
    let (mut selector, mut seen) = (json!({"type": "json_pointer", "pointer": ""}), 0);
    loop {
        let view = fixture.view(selector).unwrap();
        assert!(view.bytes() <= VIEW_MAX_BYTES);
        let more = view.more.clone();
        for item in serde_json::from_str::<Vec<Value>>(&text(view)).unwrap() {
            assert_eq!(item["id"], seen);
            seen += 1;
        }
        match more {
            Some(more) => selector = more.selector,
            None => break,
        }
    }
    assert_eq!(seen, 5_000);
}

#[test]
fn rows_of_csv_are_filtered_sorted_and_counted() {
    // issue 8: artifacts can be queried, not only paged
    let csv = "id,status,amount,note\n1,open,10,\"a, b\"\n2,closed,5,\n3,open,2.5,x\n4,open,,y\n";
    let fixture = Fixture::new("text/csv", csv.as_bytes());
    assert_eq!(
        fixture.text(json!({"type": "rows", "end": 1})),
        "id,status,amount,note\n1,open,10,\"a, b\"\n"
    );
    let columns = json!({"type": "rows", "columns": ["note", "id"], "end": 1});
    assert_eq!(fixture.text(columns), "note,id\n\"a, b\",1\n");
    let query = |pattern: &str| fixture.text(json!({"type": "rows", "columns": ["id"], "pattern": pattern}));
    assert_eq!(query("where status = open and amount > 2"), "id\n1\n3\n");
    assert_eq!(query("where status = open | sort amount"), "id\n4\n3\n1\n");
    assert_eq!(query("sort -id"), "id\n4\n3\n2\n1\n");
    let counted = query("count, sum(amount), max(amount) by status");
    assert_eq!(
        counted,
        "{\"status\":\"open\",\"count\":3,\"sum(amount)\":12.5,\"max(amount)\":10}\n{\"status\":\"closed\",\"count\":1,\"sum(amount)\":5,\"max(amount)\":5}\n"
    );
    assert_eq!(query("where status = none | avg(amount)"), "{\"avg(amount)\":null}\n");
    for (selector, field) in [
        (json!({"type": "rows", "columns": ["nope"]}), "columns"),
        (json!({"type": "rows", "pattern": "where nope = 1"}), "pattern"),
        (json!({"type": "rows", "pattern": "drop table"}), "pattern"),
    ] {
        assert_eq!(fixture.view(selector).unwrap_err().details(), json!({"field": field}));
    }
    let tsv = Fixture::new("text/tab-separated-values", b"a\tb\n1\t2\n");
    assert_eq!(tsv.text(json!({"type": "rows", "columns": ["b"]})), "b\n2\n");
}

#[test]
fn rows_of_json_are_elements_of_an_array() {
    let rows: Vec<Value> = (0..100)
        .map(|n| json!({"id": n, "user": {"name": format!("u{}", n % 3)}, "ok": n % 2 == 0}))
        .collect();
    let fixture =
        Fixture::new("application/json", json!({"data": {"rows": rows}, "n": 1}).to_string().as_bytes());
    let select = |mut selector: Value| {
        selector["type"] = "rows".into();
        selector["pointer"] = "/data/rows".into();
        fixture.view(selector).unwrap()
    };
    let view = select(json!({"columns": ["id", "user.name"], "end": 2}));
    assert_eq!(view.more.clone().unwrap().selector["pointer"], "/data/rows");
    assert_eq!(text(view), "{\"id\":0,\"user.name\":\"u0\"}\n{\"id\":1,\"user.name\":\"u1\"}\n");
    let counted = text(select(json!({"pattern": "where ok = true | count by user.name"})));
    assert_eq!(counted.lines().count(), 3);
    assert!(counted.contains("{\"user.name\":\"u0\",\"count\":17}"), "{counted}");
    let error = fixture.view(json!({"type": "rows", "pointer": "/data"})).unwrap_err();
    assert_eq!(error.to_string(), "pointer: there is no array; arrays are at /data/rows");
}

#[test]
fn what_is_not_text_is_shown_as_bytes_or_as_its_part() {
    // CTX-30, T-CTX-11
    let bytes: Vec<u8> = (0..=255).collect();
    let fixture = Fixture::of("image/png", &bytes, Source::Image);
    for selector in
        [json!({"type": "head"}), json!({"type": "lines"}), json!({"type": "grep", "pattern": "a"})]
    {
        let error = fixture.view(selector).unwrap_err();
        assert_eq!(error.details(), json!({"use": ["bytes", "part"]}));
    }
    assert_eq!(fixture.text(json!({"type": "bytes", "offset": 250, "length": 3})), "+vv8");
    let view = fixture.view_within(json!({"type": "bytes"}), 100).unwrap();
    assert_eq!(view.more.unwrap().selector["offset"], 100);
    let part: Value = serde_json::from_str(&fixture.text(json!({"type": "part"}))).unwrap();
    assert_eq!((&part["type"], &part["mimeType"]), (&json!("image"), &json!("image/png")));
    let resource = Fixture::of("application/zip", &bytes, Source::Resource("file:///a.zip".into()));
    let part: Value = serde_json::from_str(&resource.text(json!({"type": "part"}))).unwrap();
    assert_eq!(part["resource"]["uri"], "file:///a.zip");
    assert!(part["resource"]["blob"].is_string());
    let error = Fixture::new("text/plain", b"x").view(json!({"type": "part"})).unwrap_err();
    assert!(error.to_string().contains("only images"));
    assert_eq!(
        fixture.view(json!({"type": "bytes", "offset": 300})).unwrap_err().details(),
        json!({"field": "offset"})
    );
}

#[test]
fn a_wrong_selector_is_told_by_its_field() {
    // CTX-30
    for (selector, field) in [
        (json!(null), "selector"),
        (json!([]), "selector"),
        (json!({}), "type"),
        (json!({"type": 3}), "type"),
        (json!({"type": "sql"}), "type"),
        (json!({"type": "head", "chars": "9"}), "chars"),
        (json!({"type": "head", "chars": 1.5}), "chars"),
        (json!({"type": "head", "chars": -1}), "chars"),
        (json!({"type": "lines", "start": true}), "start"),
        (json!({"type": "rows", "columns": "a"}), "columns"),
        (json!({"type": "bytes", "length": -4}), "length"),
        (json!({"type": "head", "\u{1b}[31m": 1}), "selector"),
    ] {
        assert_eq!(Selector::read(&selector).unwrap_err().details(), json!({"field": field}), "{selector}");
    }
}

fn selectors() -> impl Strategy<Value = Value> {
    let kind = prop::sample::select(portcullis_context::view::TYPES.to_vec());
    let number = prop_oneof![
        (-20_i64..20).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        Just(json!("x"))
    ];
    let word = prop_oneof![
        "[a-z/~0-9*(|=.\" ]{0,12}".prop_map(Value::from),
        Just(json!(["a", "b"])),
        Just(json!(3))
    ];
    (
        kind,
        prop::collection::btree_map("chars|start|end|context|max|offset|length", number, 0..4),
        prop::collection::btree_map("keys|columns|pointer|pattern", word, 0..3),
    )
        .prop_map(|(kind, numbers, words)| {
            let mut selector = json!({"type": kind});
            for (name, value) in numbers.into_iter().chain(words) {
                selector[name] = value;
            }
            selector
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn no_selector_makes_a_view_panic_or_too_large(selector in selectors(), content in prop_oneof!["\\PC{0,60}", "[a,\"\n1]{0,80}", Just("[{\"a\":1},{\"a\":[2]}]".to_owned())], max in 1_usize..100) {
        thread_local! {
            static SHELF: Shelf = Shelf::new();
        }
        SHELF.with(|shelf| {
            let owner = owner("ann");
            let handle = shelf.keep(&owner, "text/plain", content.as_bytes()).unwrap();
            let opened = shelf.artifacts.open(handle, &owner).unwrap();
            if let Ok(view) = Selector::read(&selector).and_then(|selector| view_artifact(&opened, &selector, max)) {
                // Bytes are shown in base64.
                prop_assert!(view.bytes() <= max * 4 / 3 + 4, "{} > {max}", view.bytes());
            }
            Ok(())
        })?;
    }
}
