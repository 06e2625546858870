//! Taking secrets out of text that people or models will read (admin §8).
//!
//! Every error text, reason, comment and log string passes here before it goes into an envelope, a log or an event.
//! What looks like a secret is masked; when in doubt, it is. If anything goes wrong the whole text is withheld: a
//! scrubber that gives up and passes the text on is worse than none (ADM-62).
//!
//! All patterns run on an engine whose time is linear in the text, and the text is bounded, so that the time is too.
//! Nearly all text holds no secret, and that is seen in one or two passes over its bytes, before any pattern is tried.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;
use std::time::Duration;

use aho_corasick::packed::Searcher;
use memchr::{memchr, memchr2_iter, memchr3};
use regex::{Captures, Regex};

use crate::Secret;
use crate::clock::thread_time;

/// What stands for a secret.
pub const MASK: &str = "***";
/// What stands for a text that could not be scrubbed.
pub const WITHHELD: &str = "[redacted]";
/// The longest text that is scrubbed; a longer one is withheld.
pub const MAX_BYTES: usize = 64 * 1024;
/// How long a text may take, in time of the processor: a machine that is busy with others withholds nothing. The patterns of
/// an unoptimised build are many times slower.
const LONGEST: Duration = Duration::from_millis(if cfg!(debug_assertions) { 500 } else { 5 });

/// Names whose value is a secret.
const SECRET_KEYS: [&str; 23] = [
    "password",
    "passwd",
    "pwd",
    "passphrase",
    "secret",
    "client_secret",
    "api_secret",
    "token",
    "access_token",
    "refresh_token",
    "id_token",
    "auth_token",
    "session_token",
    "api_key",
    "apikey",
    "api-key",
    "x-api-key",
    "private_key",
    "assertion",
    "code_verifier",
    "credential",
    "credentials",
    "bearer",
];
const SECRET_HEADERS: [&str; 4] = ["authorization", "proxy-authorization", "cookie", "set-cookie"];

/// What well-known tokens look like wherever they stand (shape 4).
const TOKENS: [&str; 13] = [
    r"sk-[A-Za-z0-9_-]{6,}",
    r"(?:AKIA|ASIA)[A-Z0-9]{16}",
    r"gh[pousr]_[A-Za-z0-9]{6,}",
    r"github_pat_[A-Za-z0-9_]{6,}",
    r"glpat-[A-Za-z0-9_-]{6,}",
    r"xox[abprs]-[A-Za-z0-9-]{6,}",
    r"AIza[A-Za-z0-9_-]{6,}",
    r"npm_[A-Za-z0-9]{6,}",
    r"hf_[A-Za-z0-9]{6,}",
    r"pypi-[A-Za-z0-9_-]{6,}",
    // Ours: keys of agents, tokens of operators.
    r"pc[klo]_[A-Za-z0-9_-]{6,}",
    r"eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)*",
    r"gAAAA[A-Za-z0-9_=-]{6,}",
];

/// Whether a text holds something that looks like a token by itself, or a private key.
pub fn is_bare_token(text: &str) -> bool {
    static BARE: LazyLock<Regex> = LazyLock::new(|| {
        let pattern =
            format!("(?:^|[^A-Za-z0-9_-])(?:{}|-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----)", TOKENS.join("|"));
        Regex::new(&pattern).expect("a fixed pattern")
    });
    BARE.is_match(text)
}

/// Whether a field of this name holds a secret. The whole name counts: `total_tokens` holds none (ADM-63).
pub fn is_secret_key(name: &str) -> bool {
    SECRET_KEYS.iter().chain(&SECRET_HEADERS).any(|key| key.eq_ignore_ascii_case(name))
}

/// Masks what looks like a secret.
///
/// ```
/// use portcullis_core::scrub::scrub;
/// assert_eq!(scrub("GET /?access_token=abc status_code=404"), "GET /?access_token=*** status_code=404");
/// ```
pub fn scrub(text: &str) -> Cow<'_, str> {
    scrub_knowing(text, &KnownSecrets::default())
}

/// Masks what looks like a secret, and every secret that is known.
pub fn scrub_knowing<'t>(text: &'t str, known: &KnownSecrets) -> Cow<'t, str> {
    if text.len() > MAX_BYTES {
        return Cow::Borrowed(WITHHELD);
    }
    if is_quiet(text) {
        return known.mask(text);
    }
    // Made at the first use, which is not the text's fault.
    LazyLock::force(&SHAPES);
    let began = thread_time();
    scrub_while(text, known, || thread_time().saturating_sub(began) < LONGEST)
}

/// The same for as long as there is time. Without it, and after anything that should not have happened, nothing of the text
/// is shown (ADM-62).
fn scrub_while<'t>(text: &'t str, known: &KnownSecrets, there_is_time: impl Fn() -> bool) -> Cow<'t, str> {
    let scrubbed = catch_unwind(AssertUnwindSafe(|| {
        let once = masked(text, known, &there_is_time)?;
        // A secret may hide behind one level of percent-encoding; then the decoded text is what is shown.
        match percent_decoded(&once) {
            Some(decoded) => match masked(&decoded, known, &there_is_time)? {
                Cow::Owned(found) if found != decoded => Some(Cow::Owned(found)),
                _ => Some(once),
            },
            None => Some(once),
        }
    }));
    scrubbed.ok().flatten().unwrap_or(Cow::Borrowed(WITHHELD))
}

/// `None` if it took too long.
fn masked<'t>(
    text: &'t str,
    known: &KnownSecrets,
    there_is_time: &impl Fn() -> bool,
) -> Option<Cow<'t, str>> {
    let mut text = known.mask(text);
    for shape in SHAPES.iter() {
        if let Cow::Owned(found) =
            shape.pattern.replace_all(&text, |found: &Captures<'_>| (shape.mask)(found))
        {
            text = Cow::Owned(found);
        }
        if !there_is_time() {
            return None;
        }
    }
    Some(text)
}

/// How the tokens begin that have a dash or a bar in them, and a private key.
const DASHED: [&str; 16] = [
    "----", "sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "hub_pat_", "glpat-", "xox", "npm_", "hf_",
    "pypi-", "pck_", "pcl_", "pco_",
];

/// Whether nothing in a text can be a secret by its looks, seen in a few passes over its bytes.
fn is_quiet(text: &str) -> bool {
    static TOKENS: LazyLock<Option<Searcher>> = LazyLock::new(|| Searcher::new(DASHED));
    let bytes = text.as_bytes();
    // Names end in `:` or `=`, addresses with somebody in front have an `@`, what is encoded a `%`.
    if memchr3(b':', b'=', b'@', bytes).is_some() || is_lettered(bytes) {
        return false;
    }
    if memchr3(b'%', b'-', b'_', bytes).is_none() {
        return true;
    }
    memchr(b'%', bytes).is_none()
        && match &*TOKENS {
            Some(tokens) => tokens.find(bytes).is_none(),
            // A processor without the instructions for it.
            None => !DASHED.iter().any(|begin| text.contains(begin)),
        }
}

/// Whether there is `bearer`, however it is written, or the beginning of a token that is all letters. Their rarest letters are
/// looked for.
fn is_lettered(bytes: &[u8]) -> bool {
    let bearer = |at: usize| bytes[at..].get(..6).is_some_and(|word| word.eq_ignore_ascii_case(b"bearer"));
    let token = |at: usize| {
        let (before, from) = (&bytes[..at], &bytes[at..]);
        [&b"AKIA"[..], b"ASIA", b"AIza", b"AAAA"].iter().any(|begin| from.starts_with(begin))
            || (bytes[at] == b'J' && before.ends_with(b"ey"))
    };
    memchr2_iter(b'A', b'J', bytes).any(token) || memchr2_iter(b'b', b'B', bytes).any(bearer)
}

/// One shape of secrets, and what is left of a match.
struct Shape {
    pattern: Regex,
    mask: fn(&Captures<'_>) -> String,
}

static SHAPES: LazyLock<Vec<Shape>> = LazyLock::new(|| {
    let shape = |pattern: &str, mask| Shape { pattern: Regex::new(pattern).expect("a fixed pattern"), mask };
    // Behind the start or something that cannot be part of a name.
    let edge = r"(?P<edge>^|[^A-Za-z0-9_-])";
    let keys = SECRET_KEYS.join("|");
    let headers = SECRET_HEADERS.join("|");
    // A value in quotes, in quotes that are escaped themselves, or bare.
    let value = r#"(?:\\+"(?:[^"\\]|\\+[^"\\])*(?:\\+"|$)|"(?:[^"\\]|\\.)*(?:"|$)|\\*'[^']*(?:'|$)|[^\s,;&"'<>(){}\[\]]+)"#;
    let key_rest: fn(&Captures<'_>) -> String =
        |found| format!("{}{}{}{MASK}", &found["edge"], &found["key"], &found["sep"]);
    vec![
        shape(
            r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)",
            |_| MASK.into(),
        ),
        shape(
            &format!(
                r#"(?i){edge}(?P<key>{headers})(?P<sep>(?:\\*["'])?\s*[:=]\s*)(?:\\+"[^"\r\n]*|"[^"\r\n]*"?|'[^'\r\n]*'?|[^\r\n]+)"#
            ),
            key_rest,
        ),
        shape(&format!(r"(?i){edge}(?P<key>bearer)(?P<sep>\s+)[A-Za-z0-9._~+/=:-]+"), key_rest),
        shape(&format!(r#"(?i){edge}(?P<key>{keys})(?P<sep>(?:\\*["'])?\s*[:=]\s*){value}"#), key_rest),
        shape(r#"(?i)(?P<edge>[?&])(?P<key>code)(?P<sep>=)[^\s&"'#]+"#, key_rest),
        shape(r#"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)[^\s"']*@"#, |found| {
            format!("{}{MASK}@", &found["scheme"])
        }),
        shape(&format!("{edge}(?:{})", TOKENS.join("|")), |found| format!("{}{MASK}", &found["edge"])),
    ]
});

/// Decodes `%xx` once; `None` if there is nothing to decode or the result is no text.
fn percent_decoded(text: &str) -> Option<String> {
    let hex = |byte: u8| (byte as char).to_digit(16);
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    let mut found = false;
    while let [first, tail @ ..] = rest {
        match (first, tail) {
            (b'%', [high, low, after @ ..]) if hex(*high).is_some() && hex(*low).is_some() => {
                bytes.push((hex(*high)? * 16 + hex(*low)?) as u8);
                rest = after;
                found = true;
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    if found { String::from_utf8(bytes).ok() } else { None }
}

/// Secrets somebody holds, in every spelling they are likely to turn up in.
#[derive(Default)]
pub struct KnownSecrets(Vec<Secret<String>>);

impl KnownSecrets {
    /// The shortest value that is looked for: a shorter one would mask half of every text.
    pub const MIN_BYTES: usize = 4;

    /// Remembers these values as they are, in base64, in hexadecimal and percent-encoded.
    pub fn new<'v>(values: impl IntoIterator<Item = &'v Secret<String>>) -> Self {
        let mut spellings = Vec::new();
        for value in values.into_iter().map(Secret::expose).filter(|value| value.len() >= Self::MIN_BYTES) {
            spellings.extend(spellings_of(value));
        }
        // The longest first, or a part of one would be masked and the rest of it left.
        spellings.sort_by_key(|spelling| std::cmp::Reverse(spelling.len()));
        spellings.dedup();
        Self(spellings.into_iter().map(Secret::new).collect())
    }

    fn mask<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut text = Cow::Borrowed(text);
        for spelling in self.0.iter().map(Secret::expose) {
            if text.contains(spelling.as_str()) {
                text = Cow::Owned(text.replace(spelling.as_str(), MASK));
            }
        }
        text
    }
}

impl std::fmt::Debug for KnownSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KnownSecrets({} spellings)", self.0.len())
    }
}

fn spellings_of(value: &str) -> Vec<String> {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
    let mut percent = String::new();
    let mut every = String::new();
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            percent.push(char::from(byte));
        } else {
            let _ = write!(percent, "%{byte:02X}");
        }
        let _ = write!(every, "{byte:02x}");
    }
    vec![
        value.to_owned(),
        STANDARD_NO_PAD.encode(value),
        URL_SAFE_NO_PAD.encode(value),
        every.to_uppercase(),
        every,
        percent.to_lowercase(),
        percent,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::strategy::Strategy as _;

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
        let text = "a plain text: nothing in it";
        assert_eq!(scrub_while(text, &none, || true), text);
        assert_eq!(scrub_while(text, &none, || false), WITHHELD, "its time is over");
        let defect = || -> bool { panic!("a defect, not a failure of this test") };
        assert_eq!(scrub_while(text, &none, defect), WITHHELD, "after an internal error");
    }

    #[test]
    fn a_text_that_may_hold_a_secret_is_never_taken_for_a_quiet_one() {
        // ADM-61, ADM-83
        for text in ["", "the answer is forty-two", "a_b-c \"d\" (e) x/y/z", "Zürich, 50 tokens; 3 passwords"]
        {
            assert!(is_quiet(text), "{text}");
        }
        for text in [
            "password=x",
            "pwd: x",
            "bearer x",
            "BeArEr x",
            "u@h",
            "a%41",
            "sk-abcdef",
            "x AKIAIOSFODNN7EXAMPLE",
        ] {
            assert!(!is_quiet(text), "{text}");
        }
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
        fn what_the_patterns_would_change_is_not_quiet(
            parts in proptest::collection::vec(proptest::prop_oneof![
                proptest::sample::select(vec![
                    "sk-", "AKIA", "ASIA", "ghp_", "ghr_", "github_pat_", "glpat-", "xoxb-", "AIza", "npm_", "hf_", "pypi-",
                    "pcl_", "eyJ", ".", "gAAAA", "bearer", "BeaRer", " ", "-----BEGIN PRIVATE KEY-----", "token", "cookie",
                    "=", ":", "?code=", "://", "@", "%3D", "%",
                ]).prop_map(str::to_owned),
                "[A-Z0-9]{0,17}",
                "[ -~]{0,6}",
            ], 0..8),
        ) {
            let text = parts.concat();
            let changed = scrub_while(&text, &KnownSecrets::default(), || true) != text;
            proptest::prop_assert!(!(changed && is_quiet(&text)), "{}", text);
        }
    }
}
