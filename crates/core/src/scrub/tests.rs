//! What is found, what is not, and that nothing is missed for speed.

use super::*;

/// Every pattern tried on every text, whatever it is suspected of.
fn by_patterns_alone(text: &str) -> String {
    let once = |text: &str| {
        SHAPES.iter().fold(text.to_owned(), |text, shape| {
            shape.pattern.replace_all(&text, |found: &Captures<'_>| (shape.mask)(found)).into_owned()
        })
    };
    let masked = once(text);
    match percent_decoded(&masked) {
        Some(decoded) if once(&decoded) != decoded => once(&decoded),
        _ => masked,
    }
}

/// A part of a text that something may be found in.
fn part() -> impl proptest::strategy::Strategy<Value = String> {
    let names = SECRET_KEYS.iter().chain(&SECRET_HEADERS).map(|name| (*name).to_owned());
    let marks = [
        "sk-",
        "AKIA",
        "ASIA",
        "ghp_",
        "ghr_",
        "github_pat_",
        "glpat-",
        "xoxb-",
        "AIza",
        "npm_",
        "hf_",
        "pypi-",
        "pcl_",
        "eyJ",
        ".",
        "gAAAA",
        "BeaRer",
        " ",
        "-----BEGIN PRIVATE KEY-----",
        "-----END PRIVATE KEY-----",
        "Set-COOKIE",
        "=",
        ":",
        " : ",
        "\\\"",
        "\"",
        "'",
        "?code=",
        "&Code=",
        "code",
        "?",
        "&",
        "://",
        "@",
        "%3D",
        "%3a",
        "%",
        "%2",
        "\u{a0}",
        "\u{2003}=",
        "\u{17f}",
        "pa\u{17f}\u{17f}wd",
        "to\u{212a}en",
        "x",
        "-",
        "_",
        "\n",
        "ü",
    ];
    let words: Vec<String> = marks.into_iter().map(ToOwned::to_owned).chain(names).collect();
    proptest::prop_oneof![
        4 => proptest::sample::select(words),
        1 => "[A-Z0-9]{0,17}",
        2 => "[ -~]{0,6}",
        1 => "\\PC{0,3}",
    ]
}

#[test]
fn a_corpus_is_scrubbed_as_by_the_patterns_alone() {
    // ADM-61, ADM-83
    let corpus = include_str!("../scrub.rs").lines().chain(include_str!("tests.rs").lines());
    for line in corpus {
        assert_eq!(scrub(line), by_patterns_alone(line), "{line}");
    }
}

#[test]
fn every_shape_is_masked() {
    // ADM-61, admin §8 shapes 1 to 5
    for (text, scrubbed) in [
        ("password=hunter2", "password=***"),
        ("login failed: pwd: hunter2, user u", "login failed: pwd: ***, user u"),
        ("api_key='a b c' x", "api_key=*** x"),
        ("x-api-key=\"a \\\" b\" x", "x-api-key=*** x"),
        (r#"{"client_secret":"s3","client_id":"c"}"#, r#"{"client_secret":***,"client_id":"c"}"#),
        ("{'token': 'abc', 'n': 1}", "{'token': ***, 'n': 1}"),
        (r#"{\"access_token\":\"abc\",\"n\":1}"#, r#"{\"access_token\":***,\"n\":1}"#),
        ("https://h/cb?code=abc&state=1", "https://h/cb?code=***&state=1"),
        ("Authorization: Digest username=\"M\", response=\"abc\"\nnext", "Authorization: ***\nnext"),
        ("proxy-authorization: Basic dTpw", "proxy-authorization: ***"),
        ("{\"Cookie\": \"a=b; c=d\", \"x\": 1}", "{\"Cookie\": ***, \"x\": 1}"),
        ("Set-Cookie: id=1; HttpOnly", "Set-Cookie: ***"),
        ("sent bearer abc.def upstream", "sent bearer *** upstream"),
        ("postgres://u:p@ss@h/db", "postgres://***@h/db"),
        ("postgres://u:pa/ss@h/db x@y", "postgres://***@h/db x@y"),
        ("key sk-ant-api03-abcdef", "key ***"),
        ("(AKIAIOSFODNN7EXAMPLE)", "(***)"),
        ("ghp_abcdefABCDEF github_pat_11AAAAAA_x glpat-abcdefgh", "*** *** ***"),
        ("xoxb-123456-abc AIzaSyabcdef npm_abcdefgh hf_abcdefgh", "*** *** *** ***"),
        ("pypi-AgEIcHlwaS5 pcl_abcdefgh gAAAAABabcdef=", "*** *** ***"),
        ("pck_abcdefgh pco_abcdefgh", "*** ***"),
        ("jwt eyJhbGciOi.eyJzdWIi.c2ln end", "jwt *** end"),
        ("a -----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY----- b", "a *** b"),
        ("a -----BEGIN PRIVATE KEY-----\nMII", "a ***"),
        ("redirect to x?access_token%3Dabc%26y", "redirect to x?access_token=***&y"),
    ] {
        assert_eq!(scrub(text), scrubbed, "{text}");
    }
}

#[test]
fn a_bare_token_is_known_wherever_it_stands() {
    // ADM-24
    for text in ["ghp_abcdefABCDEF", "see pcl_abcdefgh.", "-----BEGIN PRIVATE KEY-----\nMII"] {
        assert!(is_bare_token(text), "{text}");
    }
    for text in ["risk-free", "sk-1", "a token", "password=hunter2"] {
        assert!(!is_bare_token(text), "{text}");
    }
}

#[test]
fn what_is_no_secret_survives() {
    // ADM-63
    for text in [
        "status_code=404",
        "exit_code=1 total_tokens=5 session_id=s1 client_id=abc",
        "the token was refused",
        "50 % of %41 is fine",
        "mail a@b.example",
        "code=7",
        "risk-free mask-making",
    ] {
        assert_eq!(scrub(text), text);
        assert!(matches!(scrub(text), Cow::Borrowed(_)), "{text}");
    }
    assert!(is_secret_key("Authorization") && is_secret_key("api_key"));
    assert!(!is_secret_key("session_id") && !is_secret_key("total_tokens"));
}

#[test]
fn what_cannot_be_scrubbed_is_withheld() {
    // ADM-62
    assert_eq!(scrub(&"x".repeat(MAX_BYTES + 1)), WITHHELD);
    assert_eq!(scrub(&"x".repeat(MAX_BYTES)).len(), MAX_BYTES);
    let none = KnownSecrets::default();
    // Suspected, so that patterns are tried, and innocent.
    let text = "a text of some bearer; nothing in it";
    assert_eq!(scrub_while(text, &none, || true), text);
    assert_eq!(scrub_while(text, &none, || false), WITHHELD, "its time is over");
    let defect = || -> bool { panic!("a defect, not a failure of this test") };
    assert_eq!(scrub_while(text, &none, defect), WITHHELD, "after an internal error");
}

#[test]
fn known_secrets_are_masked_in_every_spelling() {
    // admin §8 shape 6
    let secret = Secret::new("tr0ub4dor&3/?x".to_owned());
    let known = KnownSecrets::new([&secret]);
    for spelling in spellings_of(secret.expose()) {
        let shown = scrub_knowing(&format!("<{spelling}>"), &known).into_owned();
        assert_eq!(shown, "<***>", "{spelling}");
    }
    assert!(!format!("{known:?}").contains("tr0ub"));
    assert_eq!(scrub_knowing("abc", &KnownSecrets::new([&Secret::new("abc".to_owned())])), "abc");
}

proptest::proptest! {
    #[test]
    fn a_secret_behind_its_name_is_never_shown(
        key in proptest::sample::select(SECRET_KEYS.to_vec()),
        separator in proptest::sample::select(vec!["=", ": ", "\":\"", "' : '", "=\"", "='", "\\\":\\\""]),
        value in "Zq[A-Za-z0-9]{6,20}",
        around in "[ -~]{0,10}",
    ) {
        let text = format!("{around} {key}{separator}{value}");
        proptest::prop_assert!(!scrub(&text).contains(&value), "{}", text);
    }

    #[test]
    fn no_suspicion_is_missing_that_a_pattern_would_confirm(parts in proptest::collection::vec(part(), 0..10)) {
        let text = parts.concat();
        // ADM-61, ADM-83
        let by_patterns = by_patterns_alone(&text);
        proptest::prop_assert_eq!(scrub(&text), by_patterns, "{}", text);
    }
}
