//! Taking secrets out of text that people or models will read (admin §8).
//!
//! Every error text, reason, comment and log string passes here before it goes into an envelope, a log or an event.
//! What looks like a secret is masked; when in doubt, it is. If anything goes wrong the whole text is withheld: a
//! scrubber that gives up and passes the text on is worse than none (ADM-62).
//!
//! All patterns run on an engine whose time is linear in the text, and the text is bounded, so that the time is too.
//! Nearly all text holds no secret, and that is seen in a few passes over its bytes, before any pattern is tried
//! ([`suspicion`]).

mod suspicion;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;
use std::time::Duration;

use regex::{Captures, Regex};

use crate::Secret;
use crate::clock::thread_time;
use suspicion::{Suspicion, is_encoded};

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
    let text = known.mask(text);
    if !Suspicion::of(&text).is_any() && !is_encoded(&text) {
        return text;
    }
    // Made at the first use, which is not the text's fault.
    LazyLock::force(&SHAPES);
    let began = thread_time();
    let there_is_time = || thread_time().saturating_sub(began) < LONGEST;
    match text {
        Cow::Borrowed(text) => scrub_while(text, known, there_is_time),
        Cow::Owned(text) => Cow::Owned(scrub_while(&text, known, there_is_time).into_owned()),
    }
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
    let mut suspicion = Suspicion::of(&text);
    for shape in SHAPES.iter() {
        if !(shape.may_be)(&suspicion) {
            continue;
        }
        if let Cow::Owned(found) =
            shape.pattern.replace_all(&text, |found: &Captures<'_>| (shape.mask)(found))
        {
            // What is left is another text.
            suspicion = Suspicion::of(&found);
            text = Cow::Owned(found);
        }
        if !there_is_time() {
            return None;
        }
    }
    Some(text)
}

/// One shape of secrets, and what is left of a match.
struct Shape {
    /// Whether a text is suspected of it.
    may_be: fn(&Suspicion) -> bool,
    pattern: Regex,
    mask: fn(&Captures<'_>) -> String,
}

static SHAPES: LazyLock<Vec<Shape>> = LazyLock::new(|| {
    let shape = |may_be, pattern: &str, mask| Shape {
        may_be,
        pattern: Regex::new(pattern).expect("a fixed pattern"),
        mask,
    };
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
            |found| found.pem,
            r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)",
            |_| MASK.into(),
        ),
        shape(
            |found| found.header,
            &format!(
                r#"(?i){edge}(?P<key>{headers})(?P<sep>(?:\\*["'])?\s*[:=]\s*)(?:\\+"[^"\r\n]*|"[^"\r\n]*"?|'[^'\r\n]*'?|[^\r\n]+)"#
            ),
            key_rest,
        ),
        shape(
            |found| found.bearer,
            &format!(r"(?i){edge}(?P<key>bearer)(?P<sep>\s+)[A-Za-z0-9._~+/=:-]+"),
            key_rest,
        ),
        shape(
            |found| found.key,
            &format!(r#"(?i){edge}(?P<key>{keys})(?P<sep>(?:\\*["'])?\s*[:=]\s*){value}"#),
            key_rest,
        ),
        shape(|found| found.code, r#"(?i)(?P<edge>[?&])(?P<key>code)(?P<sep>=)[^\s&"'#]+"#, key_rest),
        shape(
            |found| found.userinfo,
            r#"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)[^\s"']*@"#,
            |found| format!("{}{MASK}@", &found["scheme"]),
        ),
        shape(
            |found| found.token,
            &format!("{edge}(?:{})", TOKENS.join("|")),
            |found| format!("{}{MASK}", &found["edge"]),
        ),
    ]
});

/// Decodes `%xx` once; `None` if there is nothing to decode or the result is no text.
fn percent_decoded(text: &str) -> Option<String> {
    if !is_encoded(text) {
        return None;
    }
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
