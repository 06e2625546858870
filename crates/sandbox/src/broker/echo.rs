//! Values that come back: in answers, in what a program writes to stderr, in what it asks (SBX-54).
//!
//! A value is looked for as it is and in the forms in which programs print things: base64 at any offset in either
//! alphabet, hexadecimal, percent-encoded, escaped as JSON. A value that is taken apart or enciphered is not found; that
//! limit is stated, not hidden.

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

use super::Secret;

/// Shorter values would be found everywhere.
const SHORTEST: usize = 8;

/// Looks for values.
pub struct Echoes {
    automaton: AhoCorasick,
    /// What is put in the place of each pattern.
    marks: Vec<String>,
}

impl std::fmt::Debug for Echoes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Echoes").finish_non_exhaustive()
    }
}

impl Echoes {
    /// For these values, each with its class; none if there is nothing that can be looked for.
    pub fn of<'a>(values: impl IntoIterator<Item = (&'a str, &'a Secret)>) -> Option<Self> {
        let (mut patterns, mut marks) = (Vec::new(), Vec::new());
        for (class, secret) in values {
            let value = secret.expose();
            if value.len() < SHORTEST {
                continue;
            }
            for form in forms(value) {
                if form.len() >= SHORTEST && !patterns.contains(&form) {
                    patterns.push(form);
                    marks.push(format!("[credential:{class}]"));
                }
            }
        }
        if patterns.is_empty() {
            return None;
        }
        let automaton =
            AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&patterns).ok()?;
        Some(Self { automaton, marks })
    }

    /// Whether a value is in here.
    pub fn heard_in(&self, bytes: &[u8]) -> bool {
        self.automaton.is_match(bytes)
    }

    /// The same bytes with marks in the place of values; none if there is no value in them.
    pub fn taken_out_of(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.heard_in(bytes).then(|| self.automaton.replace_all_bytes(bytes, &self.marks))
    }
}

/// The forms in which a value is looked for.
pub(crate) fn forms(value: &[u8]) -> Vec<Vec<u8>> {
    let mut forms = vec![value.to_vec(), hex(value, "0123456789abcdef"), hex(value, "0123456789ABCDEF")];
    for before in 0..3 {
        forms.push(inside_base64(&STANDARD_NO_PAD, value, before));
        forms.push(inside_base64(&URL_SAFE_NO_PAD, value, before));
    }
    forms.push(percent(value, "0123456789ABCDEF"));
    forms.push(percent(value, "0123456789abcdef"));
    if let Ok(text) = std::str::from_utf8(value) {
        let quoted = serde_json::to_string(text).unwrap_or_default();
        let escaped = quoted.trim_start_matches('"').strip_suffix('"').unwrap_or_default().to_owned();
        forms.push(escaped.replace('/', "\\/").into_bytes());
        forms.push(escaped.into_bytes());
    }
    forms
}

/// The characters that are the value's alone when `before` bytes (modulo three) stand in front of it.
fn inside_base64(engine: &impl Engine, value: &[u8], before: usize) -> Vec<u8> {
    let mut padded = vec![0; before];
    padded.extend_from_slice(value);
    let encoded = engine.encode(&padded);
    // A character whose bits are partly of what stands before or behind may be any.
    let from = (before * 8).div_ceil(6);
    let to = padded.len() * 8 / 6;
    encoded.as_bytes().get(from..to).unwrap_or_default().to_vec()
}

fn hex(value: &[u8], digits: &str) -> Vec<u8> {
    let digits = digits.as_bytes();
    value.iter().flat_map(|byte| [digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]]).collect()
}

fn percent(value: &[u8], digits: &str) -> Vec<u8> {
    let digits = digits.as_bytes();
    let mut out = Vec::with_capacity(value.len());
    for byte in value {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) {
            out.push(*byte);
        } else {
            out.extend([b'%', digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]]);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: &str = "s3cr/t+va\"lue=ü";

    fn echoes() -> Echoes {
        let secret = Secret::take(VALUE.as_bytes().to_vec()).unwrap();
        Echoes::of([("issues.read", &secret)]).unwrap()
    }

    #[test]
    fn a_value_is_found_in_every_form_that_is_looked_for() {
        // SBX-54
        let echoes = echoes();
        let json = serde_json::json!({"text": format!("token {VALUE}!")}).to_string();
        let mut said = vec![VALUE.to_owned(), json.clone(), json.replace('/', "\\/")];
        for prefix in ["", "a", "ab", "Bearer "] {
            let whole = format!("{prefix}{VALUE} and more");
            said.push(STANDARD_NO_PAD.encode(&whole));
            said.push(URL_SAFE_NO_PAD.encode(&whole));
        }
        said.push(VALUE.bytes().map(|byte| format!("{byte:02x}")).collect());
        said.push(VALUE.bytes().map(|byte| format!("{byte:02X}")).collect());
        said.push("https://x/?t=s3cr%2Ft%2Bva%22lue%3D%C3%BC&y".into());
        for text in said {
            let told = echoes.taken_out_of(text.as_bytes()).unwrap_or_else(|| panic!("not found in {text}"));
            let told = String::from_utf8_lossy(&told).into_owned();
            assert!(told.contains("[credential:issues.read]") && !told.contains("s3cr"), "{told}");
        }
    }

    #[test]
    fn what_is_no_value_stays_as_it_is() {
        let echoes = echoes();
        assert!(!echoes.heard_in(b"s3cr and t+va and lue"));
        // SBX-54: taken apart it is missed, and that is said.
        assert!(!echoes.heard_in(br#"["s3cr/t","+va\"lue=x"]"#));
        let short = Secret::take(b"1234567".to_vec()).unwrap();
        assert!(Echoes::of([("pin", &short)]).is_none());
    }
}
