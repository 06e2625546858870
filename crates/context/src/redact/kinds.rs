//! What secrets look like (CTX-42).
//!
//! Each kind has the literals without which it cannot occur, so that a text without any of them is passed over at the
//! speed of one search, and an expression that runs in linear time.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

/// One kind of secret.
pub(super) struct Kind {
    pub(super) name: Cow<'static, str>,
    /// Without one of these, in any case of letters, there is none; empty if nobody knows.
    pub(super) hints: &'static [&'static str],
    pub(super) find: Find,
}

/// How a kind is found.
pub(super) enum Find {
    /// The whole match, or its group `v` if there is one, if it passes the test.
    Shape(Regex, fn(&str) -> bool),
    /// A PEM block, to its end or for sixteen kibibytes.
    Pem,
}

/// The heuristic kind, which can be turned off.
pub(super) const ASSIGNMENT: &str = "assignment";
/// The longest private key that is looked for.
const PEM_BYTES: usize = 16 * 1024;

fn any(_: &str) -> bool {
    true
}

/// The published kinds. The order matters where one looks like another.
pub(super) fn published() -> Vec<Kind> {
    let kind =
        |name: &'static str, hints: &'static [&'static str], pattern: &str, test: fn(&str) -> bool| Kind {
            name: Cow::Borrowed(name),
            hints,
            find: Find::Shape(Regex::new(pattern).expect("a fixed pattern"), test),
        };
    // Between a name and its value: quotes, also escaped ones, and one sign.
    let assigned = r#"(?:\\*["'])?\s*[=:]\s*(?:\\*["'])?"#;
    vec![
        Kind { name: Cow::Borrowed("private_key"), hints: &["PRIVATE KEY-----"], find: Find::Pem },
        kind(
            "aws_access_key",
            &["A3T", "AKIA", "ASIA", "AGPA", "AIDA", "AROA", "AIPA", "ANPA", "ANVA"],
            "(?:A3T[A-Z0-9]|AKIA|ASIA|AGPA|AIDA|AROA|AIPA|ANPA|ANVA)[A-Z0-9]{16}",
            any,
        ),
        kind(
            "aws_secret",
            &["secret"],
            &format!(
                r"(?i:secret)[A-Za-z0-9_.-]{{0,64}}{assigned}(?P<v>[A-Za-z0-9/+=]{{40}})(?:[^A-Za-z0-9/+=]|\z)"
            ),
            any,
        ),
        kind(
            "github_token",
            &["ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"],
            r"gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{22,255}",
            any,
        ),
        kind("gitlab_token", &["glpat-"], r"glpat-[A-Za-z0-9_-]{20,}", any),
        kind("slack_token", &["xox", "xapp-"], r"xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,}", any),
        kind(
            "stripe_key",
            &["sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_"],
            r"[sr]k_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9]{16,}",
            any,
        ),
        kind("google_api_key", &["AIza"], r"AIza[A-Za-z0-9_-]{35}", any),
        kind("anthropic_key", &["sk-ant-"], r"sk-ant-[A-Za-z0-9_-]{20,}", any),
        kind("openai_key", &["sk-"], r"\bsk-[A-Za-z0-9_-]{20,}", any),
        kind("sendgrid_key", &["SG."], r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}", any),
        kind("npm_token", &["npm_"], r"npm_[A-Za-z0-9]{36}", any),
        kind("jwt", &["eyJ"], r"eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*", any),
        kind(
            "bearer",
            &["bearer ", "basic "],
            r"\b(?i:bearer|basic) +(?P<v>[A-Za-z0-9._~+/=-]{8,})",
            is_credential,
        ),
        kind(
            "url_credentials",
            &["://"],
            r#"[A-Za-z][A-Za-z0-9+.-]*://(?P<v>[^\s/@:"'<>\[\]]*:[^\s/@"'<>\[\]]+)@"#,
            any,
        ),
        kind(
            ASSIGNMENT,
            &["password", "passwd", "secret", "token", "api_key", "api-key", "apikey"],
            &format!(
                r#"(?i:password|passwd|secret|token|api[_-]?key){assigned}(?P<v>[^\s"'\\,;&<>(){{}}\[\]]{{8,}})"#
            ),
            is_random,
        ),
    ]
}

/// Words that prose puts behind `Basic` are no credentials.
fn is_credential(value: &str) -> bool {
    value.len() >= 20 || !value.bytes().all(|byte| byte.is_ascii_lowercase())
}

/// At least three bits a character.
pub(super) fn is_random(value: &str) -> bool {
    let mut counts = [0_u32; 256];
    for byte in value.bytes() {
        counts[usize::from(byte)] += 1;
    }
    let total = value.len() as f64;
    let bits: f64 = counts
        .iter()
        .filter(|count| **count > 0)
        .map(|count| {
            let share = f64::from(*count) / total;
            -share * share.log2()
        })
        .sum();
    // Eight different characters are three bits, whatever the arithmetic says.
    bits >= 3.0 - 1e-9
}

/// Whether a member of this name holds a secret, if its value looks like one.
pub(super) fn is_secret_name(name: &str) -> bool {
    static NAMES: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new("(?i)(?:password|passwd|secret|token|api[_-]?key)$").expect("a fixed pattern")
    });
    NAMES.is_match(name)
}

impl Find {
    /// Every place in a text, in order, none overlapping another.
    pub(super) fn all(&self, text: &str) -> Vec<Range<usize>> {
        match self {
            Find::Shape(pattern, test) => (pattern.captures_iter(text))
                .filter_map(|found| found.name("v").or_else(|| found.get(0)))
                .filter(|value| test(value.as_str()) && !value.is_empty())
                .map(|value| value.range())
                .collect(),
            Find::Pem => pem(text),
        }
    }
}

fn pem(text: &str) -> Vec<Range<usize>> {
    static BEGIN: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----").expect("a fixed pattern"));
    static END: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----").expect("a fixed pattern"));
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(begin) = BEGIN.find_at(text, from) {
        let window = &text[begin.end()..text.floor_char_boundary(begin.end() + PEM_BYTES)];
        let end = END.find(window).map_or(window.len(), |end| end.end());
        from = begin.end() + end;
        found.push(begin.start()..from);
    }
    found
}
