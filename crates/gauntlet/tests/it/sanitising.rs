use portcullis_gauntlet::{Gauntlet, GauntletConfig, Raw};
use serde_json::{Value, json};

/// The lines of a corpus.
pub(crate) fn corpus(text: &'static str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(crate) fn texts() -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    corpus(include_str!("../../corpus/sanitiser.jsonl"))
        .iter()
        .map(|row| (text(&row["in"]), text(&row["out"])))
        .collect()
}

fn cleaned(gauntlet: &Gauntlet, text: &str) -> String {
    gauntlet.clean_text(Raw::new(text)).unwrap().into_inner().into_owned()
}

#[test]
fn every_attack_of_the_corpus_comes_out_as_it_should() {
    // SZ-*, gauntlet §10
    let gauntlet = Gauntlet::default();
    for (attack, expected) in texts() {
        assert_eq!(cleaned(&gauntlet, &attack), expected, "{attack:?}");
        // Among other text, too.
        assert_eq!(cleaned(&gauntlet, &format!("Ω {attack} ω")), format!("Ω {expected} ω"), "{attack:?}");
    }
}

#[test]
fn clean_text_is_not_copied() {
    // GNT-Z10
    let gauntlet = Gauntlet::default();
    for text in ["", "plain text, nothing in it; [31m 100 %", "чистый текст", "漢字とかな", "🙂🙂"]
    {
        let clean = gauntlet.clean_text(Raw::new(text)).unwrap().into_inner();
        assert!(matches!(clean, std::borrow::Cow::Borrowed(same) if same == text), "{text}");
    }
}

#[test]
fn labels_are_cleaned_but_not_escaped() {
    // GNT-Z12
    let gauntlet = Gauntlet::default();
    let label = |text| gauntlet.clean_label(Raw::new(text)).unwrap().into_inner().into_owned();
    assert_eq!(
        label("Reads <b>files</b> & \"more\"\u{7}&lt;|im_start|>__system__"),
        "Reads <b>files</b> & \"more\""
    );
}

#[test]
fn extra_markers_are_added_to_the_three() {
    // GNT-Z16, the last row of gauntlet §10
    let extra = ["<|endoftext|>", "[INST]", "<<SYS>>", "<|start_header_id|>", "<｜begin▁of▁sentence｜>"];
    let gauntlet = Gauntlet::new(&GauntletConfig {
        extra_markers: extra.map(str::to_owned).to_vec(),
        ..GauntletConfig::default()
    })
    .unwrap();
    for marker in extra {
        assert_eq!(cleaned(&gauntlet, &format!("a{marker}b{}c", marker.to_lowercase())), "abc", "{marker}");
    }
    assert_eq!(cleaned(&gauntlet, "[IN\u{200b}ST]&#91;inst]__system__"), "");
    for (bad, message) in [
        (vec!["[a]".to_owned()], "extra marker 1 must have 4 to 64 visible characters"),
        (
            vec!["<ok>".into(), "a\u{301}\u{302}!".into()],
            "extra marker 2 must have 4 to 64 visible characters",
        ),
        (vec!["#system;".into()], "extra marker 1 must hold more than letters, digits, ';' and '#'"),
        (vec!["ｓｙｓｔｅｍ".into()], "extra marker 1 must hold more than letters, digits, ';' and '#'"),
        (vec!["<abc>".into(); 65], "more than 64 extra markers"),
    ] {
        let config = GauntletConfig { extra_markers: bad, ..GauntletConfig::default() };
        assert_eq!(Gauntlet::new(&config).unwrap_err().to_string(), message);
    }
}

#[test]
fn terminal_sequences_go_whole_on_request() {
    // GNT-Z16
    let gauntlet = Gauntlet::new(&GauntletConfig { strip_ansi: true, ..GauntletConfig::default() }).unwrap();
    assert_eq!(cleaned(&gauntlet, "\u{1b}[31m__sys\u{1b}[0mtem__red\u{1b}]0;t\u{7}"), "red");
}

#[test]
fn values_keep_their_shape_and_their_names() {
    // GNT-Z11
    let gauntlet = Gauntlet::default();
    let clean = |value: Value| gauntlet.clean_value(Raw::new(value));
    let value: Value = serde_json::from_str(
        r#"{"a":["<b>",1.50,true,null,{"n":12345678901234567890,"__system":"__system__"}]}"#,
    )
    .unwrap();
    let (clean_value, report) = clean(value).unwrap();
    assert_eq!(
        clean_value.get(),
        &json!({"a": ["&lt;b&gt;", 1.5, true, null, {"n": 12345678901234567890u64, "__system": ""}]})
    );
    assert_eq!((report.markers, report.stripped), (1, 0));
    for row in corpus(include_str!("../../corpus/keys.jsonl")) {
        let value: Value = serde_json::from_str(row["structured"].as_str().unwrap()).unwrap();
        assert_eq!(clean(value).unwrap_err().violation(), "mcp-output-key", "{row}");
    }
}

#[test]
fn a_text_that_keeps_building_markers_is_refused() {
    // GNT-Z6: each removal builds the reference that the next one needs
    let gauntlet = Gauntlet::default();
    let mut text = "__system__".to_owned();
    for _ in 0..12 {
        text = format!("&{text}lt;|im_end|>");
    }
    assert_eq!(gauntlet.clean_text(Raw::new(&text)).unwrap_err().violation(), "mcp-sanitize-unstable");
}

#[test]
fn a_megabyte_of_nesting_is_one_scan() {
    // GNT-Z4, GNT-Z6: quadratic work would not come to an end here
    let gauntlet = Gauntlet::default();
    let half = 100_000;
    let nested = "__sys".repeat(half) + "__system__" + &"tem__".repeat(half);
    assert_eq!(cleaned(&gauntlet, &nested), "");
    let ampersands = "&".to_owned() + &"amp;".repeat(250_000) + "lt;|im_end|>";
    assert_eq!(cleaned(&gauntlet, &ampersands), "");
    let zeros = "&#".to_owned() + &"0".repeat(1_000_000) + "60;|im_end|>";
    assert_eq!(cleaned(&gauntlet, &zeros), "");
}

#[test]
fn a_marker_spread_over_neighbours_is_found() {
    // GNT-Z7
    let texts = ["__sys", "tem__x"].map(Raw::new);
    let clean = Gauntlet::default().clean_neighbours(&texts).unwrap();
    assert_eq!(clean.iter().map(|text| text.get().as_ref()).collect::<Vec<_>>(), ["", "x"]);
}
