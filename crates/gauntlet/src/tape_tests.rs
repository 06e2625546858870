//! Whether the reader reads what is written, and refuses what the library refuses.

use super::*;
use proptest::prelude::*;
use serde_json::json;

fn read(text: &str) -> Result<Value, Fault> {
    Tape::read(text, &mut 0).map(|tape| tape.root().value())
}

#[test]
fn what_is_read_is_what_is_written() {
    let text = r#" {"a":[1,-0.5e2,"x\"\u00e9\ud83d\ude00",{}], "b" : {"c":null,"d":[[],true,false]},"":""} "#;
    assert_eq!(read(text), Ok(serde_json::from_str(text).unwrap()));
    let mut count = 0;
    let tape = Tape::read(text, &mut count).unwrap();
    assert!(tape.has_space() && tape.has_escapes());
    assert_eq!(count, 13);
    let root = tape.root();
    assert_eq!(root.get("b").unwrap().raw(), r#"{"c":null,"d":[[],true,false]}"#);
    assert_eq!(root.get("a").unwrap().items().nth(2).unwrap().text(), "x\"é😀");
    assert_eq!((root.get("c").is_none(), root.items().count()), (true, 0));
    assert!(!Tape::read(r#"[1,{"a":2}]"#, &mut 0).unwrap().has_space());
}

#[test]
fn what_two_readers_could_read_differently_is_refused() {
    // GNT-P1
    for (text, reason) in [
        (r#"{"a":1,"b":{"c":1,"c":2}}"#, "a member occurs twice"),
        (r#"{"a":1,"\u0061":2}"#, "a member occurs twice"),
        (r#"["\ud800"]"#, "half a surrogate pair"),
        (r#"["\udc00\ud800"]"#, "half a surrogate pair"),
        (r#"["\ud800\u0041"]"#, "half a surrogate pair"),
        ("[1e400]", "a number beyond what a double can hold"),
    ] {
        assert_eq!(read(text), Err(Fault::Shape(reason)), "{text}");
    }
    let many: Vec<String> = (0..20).map(|n| format!("\"k{}\":0", n % 19)).collect();
    assert_eq!(read(&format!("{{{}}}", many.join(","))), Err(Fault::Shape("a member occurs twice")));
}

#[test]
fn a_flaw_counts_unless_it_is_in_what_is_given_up() {
    let tape = Tape::read_result(r#"{"a":{"x":1,"x":2},"b":[1e999]}"#).unwrap();
    let [a, b] = ["a", "b"].map(|name| tape.root().get(name));
    assert_eq!((tape.flaw(None), tape.flaw(a)), (Some("a member occurs twice"), None));
    assert_eq!(tape.flaw(b), Some("a member occurs twice"), "it is the first that counts");
}

#[test]
fn nothing_is_deeper_longer_or_more_than_allowed() {
    let nested = |depth| "[".repeat(depth) + &"]".repeat(depth);
    assert!(read(&nested(MAX_DEPTH)).is_ok());
    assert_eq!(read(&nested(MAX_DEPTH + 1)), Err(Fault::TooDeep));
    let named = |len| format!("{{\"{}\":0}}", "k".repeat(len));
    assert!(read(&named(MAX_KEY_BYTES)).is_ok());
    assert_eq!(read(&named(MAX_KEY_BYTES + 1)), Err(Fault::KeyTooLong));
    let escaped = format!("{{\"{}\":0}}", "\\u006b".repeat(MAX_KEY_BYTES));
    assert!(read(&escaped).is_ok(), "what counts is the name, not how it is written");
    let mut count = MAX_NODES - 2;
    assert!(Tape::read("[0]", &mut count).is_ok());
    assert_eq!(Tape::read("0", &mut count).err(), Some(Fault::TooManyNodes));
}

/// Pieces that JSON is made of, and some that it is not.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "\"a\"",
        "\"b\":",
        "\\",
        "\\n",
        "\\u0041",
        "\\uD83D\\uDE00",
        "\\uD83D",
        "0",
        "-",
        "1.5",
        "01",
        "1e5",
        "E",
        ".",
        "true",
        "false",
        "null",
        "nul",
        " ",
        "\n",
        "\u{1}",
        "é",
        "\u{7f}",
        "\"longer than eight bytes\"",
        "{}",
        "[]",
    ]);
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

fn documents() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..12)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn its_verdicts_are_those_of_the_library(text in pieces()) {
        let refused_by_us_alone = |fault| matches!(fault, Fault::Shape(reason) if reason != "not valid JSON");
        match (read(&text), serde_json::from_str::<Value>(&text)) {
            (Ok(ours), Ok(theirs)) => prop_assert_eq!(ours, theirs),
            (Err(fault), Ok(_)) => prop_assert!(refused_by_us_alone(fault), "{}: {:?}", text, fault),
            (Ok(ours), Err(error)) => prop_assert!(false, "{}: {} but {}", text, ours, error),
            (Err(_), Err(_)) => {}
        }
    }

    #[test]
    fn any_document_is_read_back(document in documents(), pretty in any::<bool>()) {
        let text = if pretty { serde_json::to_string_pretty(&document) } else { serde_json::to_string(&document) };
        let text = text.unwrap();
        prop_assert_eq!(read(&text), Ok(serde_json::from_str(&text).unwrap()));
    }

    #[test]
    fn eight_bytes_at_a_time_are_one_byte_at_a_time(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let plain = bytes.iter().take_while(|byte| !matches!(**byte, b'"' | b'\\' | ..0x20)).count();
        prop_assert_eq!(plain_len(&bytes), plain);
    }
}
