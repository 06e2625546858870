//! Taking secrets out of what servers send (CTX-42).
//!
//! A model needs no credential to talk about a result. What looks like one is replaced by `[REDACTED:<kind>]` in texts,
//! in every string and every name of structured content, in addresses and labels, before anything is shown or kept.
//! The evidence in the audit log stays as it was received.

mod json;
mod kinds;
mod stream;

use std::borrow::Cow;
use std::collections::BTreeSet;

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use portcullis_core::Secret;
use portcullis_core::digest::to_hex;
use regex::RegexBuilder;

use self::kinds::{ASSIGNMENT, Find, Kind};
pub use self::stream::Redacting;

/// A known credential is looked for if it is at least this long.
const MIN_CREDENTIAL: usize = 8;
/// The largest compiled pattern of an operator.
const MAX_PROGRAM: usize = 1 << 20;

/// What an operator adds to what is looked for, or leaves out.
#[derive(Debug, Clone)]
pub struct RedactionRules {
    /// Whether values behind `password=` and the like are taken out by how they look.
    pub assignment: bool,
    /// More kinds: a name and an expression.
    pub patterns: Vec<(String, String)>,
}

impl Default for RedactionRules {
    fn default() -> Self {
        Self { assignment: true, patterns: Vec::new() }
    }
}

/// A rule that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// The name is not one.
    #[error("redaction.patterns: kind {0:?} must be 1 to 32 of [a-z0-9_]")]
    Kind(String),
    /// The expression is not one.
    #[error(
        "redaction.patterns: the regex of {0} is not a regular expression, is too large, or matches the empty text"
    )]
    Pattern(String),
}

/// Finds secrets and replaces them. Shared by all calls; nothing in it changes.
pub struct Redactor {
    kinds: Vec<Kind>,
    hints: AhoCorasick,
    /// For each hint, the kind it is a hint of.
    hinted: Vec<usize>,
    credentials: Option<AhoCorasick>,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor({} kinds)", self.kinds.len())
    }
}

impl Default for Redactor {
    fn default() -> Self {
        Self::new(&RedactionRules::default(), &[]).expect("the published kinds are right")
    }
}

impl Redactor {
    /// Looks for the published kinds, an operator's, and the exact values of known credentials.
    pub fn new(rules: &RedactionRules, credentials: &[Secret<String>]) -> Result<Self, RuleError> {
        let mut kinds = kinds::published();
        if !rules.assignment {
            kinds.retain(|kind| kind.name != ASSIGNMENT);
        }
        for (name, pattern) in &rules.patterns {
            kinds.push(own_kind(name, pattern)?);
        }
        let (mut hints, mut hinted) = (Vec::new(), Vec::new());
        for (at, kind) in kinds.iter().enumerate() {
            for hint in kind.hints {
                hints.push(*hint);
                hinted.push(at);
            }
        }
        let hints =
            AhoCorasick::builder().ascii_case_insensitive(true).build(hints).expect("few and short hints");
        Ok(Self { kinds, hints, hinted, credentials: spellings(credentials) })
    }

    /// A text without secrets, and how many there were.
    ///
    /// ```
    /// # use portcullis_context::redact::Redactor;
    /// let (text, count) = Redactor::default().redact("key AKIAIOSFODNN7EXAMPLE, https://u:p@h/");
    /// assert_eq!(text, "key [REDACTED:aws_access_key], https://[REDACTED:url_credentials]@h/");
    /// assert_eq!(count, 2);
    /// ```
    pub fn redact<'t>(&self, text: &'t str) -> (Cow<'t, str>, u64) {
        let mut count = 0;
        let mut text = Cow::Borrowed(text);
        if let Some(credentials) = &self.credentials {
            let places = credentials.find_iter(text.as_ref()).map(|found| found.range()).collect();
            replace(&mut text, "credential", places, &mut count);
        }
        for kind in self.suspected(&text) {
            let kind = &self.kinds[kind];
            let places = kind.find.all(&text);
            replace(&mut text, &kind.name, places, &mut count);
        }
        (text, count)
    }

    /// The kinds of which there may be one, in order.
    fn suspected(&self, text: &str) -> BTreeSet<usize> {
        let unhinted = self.kinds.iter().enumerate().filter(|(_, kind)| kind.hints.is_empty());
        let mut suspected: BTreeSet<usize> = unhinted.map(|(at, _)| at).collect();
        let all = self.kinds.len();
        for found in self.hints.find_overlapping_iter(text) {
            suspected.insert(self.hinted[found.pattern().as_usize()]);
            if suspected.len() == all {
                break;
            }
        }
        suspected
    }

    /// Whether there is certainly no secret in a text: one search, nothing built.
    fn is_unsuspicious(&self, text: &str) -> bool {
        self.kinds.iter().all(|kind| !kind.hints.is_empty())
            && !self.hints.is_match(text)
            && !self.credentials.as_ref().is_some_and(|credentials| credentials.is_match(text))
    }
}

impl portcullis_gauntlet::Redact for Redactor {
    fn text<'t>(&self, text: &'t str) -> (Cow<'t, str>, u64) {
        self.redact(text)
    }

    fn json(&self, json: &str, kept: &[&str]) -> Option<(String, u64)> {
        self.redact_json_but(json, kept)
    }
}

fn replace(text: &mut Cow<'_, str>, kind: &str, places: Vec<std::ops::Range<usize>>, count: &mut u64) {
    if places.is_empty() {
        return;
    }
    *count += places.len() as u64;
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    for place in places {
        out.push_str(&text[done..place.start]);
        out.push_str("[REDACTED:");
        out.push_str(kind);
        out.push(']');
        done = place.end;
    }
    out.push_str(&text[done..]);
    *text = Cow::Owned(out);
}

fn own_kind(name: &str, pattern: &str) -> Result<Kind, RuleError> {
    let is_word = |name: &str| {
        (1..=32).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    if !is_word(name) {
        return Err(RuleError::Kind(name.to_owned()));
    }
    let built = RegexBuilder::new(pattern).size_limit(MAX_PROGRAM).build().ok();
    let built =
        built.filter(|pattern| !pattern.is_match("")).ok_or_else(|| RuleError::Pattern(name.to_owned()))?;
    Ok(Kind { name: Cow::Owned(name.to_owned()), hints: &[], find: Find::Shape(built, |_| true) })
}

/// Every way a credential may be written: as it is, in base64, for an address, in hexadecimal.
fn spellings(credentials: &[Secret<String>]) -> Option<AhoCorasick> {
    let mut spellings: Vec<String> = Vec::new();
    for credential in credentials {
        let value = credential.expose();
        if value.len() < MIN_CREDENTIAL {
            continue;
        }
        let hex = to_hex(value.as_bytes());
        let percent = value.bytes().fold(String::new(), |mut out, byte| {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                out.push(char::from(byte));
            } else {
                out.push_str(&format!("%{byte:02X}"));
            }
            out
        });
        spellings.extend([
            STANDARD_NO_PAD.encode(value),
            URL_SAFE_NO_PAD.encode(value),
            hex.to_uppercase(),
            hex,
            percent.to_lowercase(),
            percent,
            value.clone(),
        ]);
    }
    spellings.sort();
    spellings.dedup();
    if spellings.is_empty() {
        return None;
    }
    let built = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&spellings);
    Some(built.expect("credentials are few"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(text: &str) -> String {
        Redactor::default().redact(text).0.into_owned()
    }

    #[test]
    fn every_published_kind_is_found() {
        // CTX-42. Put together here, so that no scanner takes this file for a leak.
        let of = |prefix: &str, length: usize| {
            format!("{prefix}{}", "aB3dE6gH9j".repeat(10).get(..length).unwrap())
        };
        let cases = [
            ("aws_access_key", "AKIAIOSFODNN7EXAMPLE".to_owned()),
            ("github_token", of("ghp_", 36)),
            ("github_token", of("github_pat_", 40)),
            ("gitlab_token", of("glpat-", 20)),
            ("slack_token", of("xoxb-", 24)),
            ("stripe_key", of("sk_live_", 24)),
            ("google_api_key", of("AIza", 35)),
            ("anthropic_key", of("sk-ant-api03-", 40)),
            ("openai_key", of("sk-proj-", 40)),
            ("sendgrid_key", format!("SG.{}.{}", of("", 22), of("", 43))),
            ("npm_token", of("npm_", 36)),
            ("jwt", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl".to_owned()),
            (
                "private_key",
                "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----".to_owned(),
            ),
        ];
        for (kind, secret) in cases {
            assert_eq!(
                redacted(&format!("see {secret} there")),
                format!("see [REDACTED:{kind}] there"),
                "{kind}"
            );
        }
        let forty = of("", 40);
        assert_eq!(
            redacted(&format!("aws_secret_access_key = {forty}")),
            "aws_secret_access_key = [REDACTED:aws_secret]"
        );
        assert_eq!(redacted("Authorization: Bearer abc.DEF-123"), "Authorization: Bearer [REDACTED:bearer]");
        assert_eq!(redacted("Authorization: Basic dXNlcjpwYXNz"), "Authorization: Basic [REDACTED:bearer]");
        assert_eq!(redacted("postgres://bob:pw@db/x"), "postgres://[REDACTED:url_credentials]@db/x");
        assert_eq!(redacted(r#"{"password": "hunter2!x9"}"#), r#"{"password": "[REDACTED:assignment]"}"#);
        assert_eq!(redacted("DB_PASSWORD=correct-horse-battery"), "DB_PASSWORD=[REDACTED:assignment]");
    }

    #[test]
    fn ordinary_text_stays() {
        for text in [
            "Basic authentication is used; tokens: 1200, total_tokens: 12345678",
            "password: changeme? no, see https://example.com/reset?user=bob",
            "the secret: be kind. api_key: short",
            "password=aaaaaaaaaaaa",
            "sk-short AKIA123 eyJhbGci.x",
            "mailto:bob@example.com 12:30@noon",
        ] {
            assert_eq!(redacted(text), text);
        }
        let off =
            Redactor::new(&RedactionRules { assignment: false, ..RedactionRules::default() }, &[]).unwrap();
        assert_eq!(off.redact("password=correct-horse").1, 0);
        assert_eq!(off.redact("AKIAIOSFODNN7EXAMPLE").1, 1);
    }

    #[test]
    fn a_known_credential_is_found_however_it_is_written() {
        // CTX-42
        let secret = "p@ss/w0rd+x";
        let redactor = Redactor::new(
            &RedactionRules::default(),
            &[Secret::new(secret.to_owned()), Secret::new("short".into())],
        )
        .unwrap();
        let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
        for written in
            [secret, "cEBzcy93MHJkK3g", "p%40ss%2Fw0rd%2Bx", "p%40ss%2fw0rd%2bx", &hex, &hex.to_uppercase()]
        {
            let text = format!("a{written}b");
            let (text, count) = redactor.redact(&text);
            assert_eq!((&*text, count), ("a[REDACTED:credential]b", 1), "{written}");
        }
        assert_eq!(redactor.redact("a short one").1, 0);
    }

    #[test]
    fn operators_add_kinds_of_their_own() {
        let rules = |kind: &str, pattern: &str| RedactionRules {
            patterns: vec![(kind.into(), pattern.into())],
            ..RedactionRules::default()
        };
        let redactor = Redactor::new(&rules("badge", "B-[0-9]{4}"), &[]).unwrap();
        assert_eq!(redactor.redact("B-1234").0, "[REDACTED:badge]");
        assert!(matches!(Redactor::new(&rules("Badge!", "x"), &[]), Err(RuleError::Kind(_))));
        for pattern in ["(", "x*", r"(\w{900}){900}"] {
            assert!(
                matches!(Redactor::new(&rules("badge", pattern), &[]), Err(RuleError::Pattern(_))),
                "{pattern}"
            );
        }
    }

    #[test]
    fn a_private_key_without_end_goes_for_sixteen_kibibytes() {
        let text = format!("-----BEGIN PRIVATE KEY-----\n{}", "x".repeat(20_000));
        let (redacted, count) = Redactor::default().redact(&text);
        assert_eq!(count, 1);
        assert_eq!(redacted.len(), "[REDACTED:private_key]".len() + 20_001 - 16 * 1024);
    }
}
