//! Secrets in JSON: every string, every name, and values whose name says what they are.

use std::collections::HashSet;
use std::ops::Range;

use memchr::memchr2;

use super::Redactor;
use super::kinds::{is_random, is_secret_name};

impl Redactor {
    /// A valid JSON text without secrets, and how many there were; `None` if there were none. Everything else stays
    /// byte for byte.
    pub fn redact_json(&self, json: &str) -> Option<(String, u64)> {
        self.redact_json_but(json, &[])
    }

    /// The same, with some members of the outermost object left as they are.
    pub fn redact_json_but(&self, json: &str, kept: &[&str]) -> Option<(String, u64)> {
        // A letter written as an escape could hide a hint.
        if self.is_unsuspicious(json) && !json.contains("\\u00") {
            return None;
        }
        let mut edits = Vec::new();
        let mut count = 0;
        // For each open bracket the redacted names of its object, which must not become equal; none for an array.
        let mut open: Vec<Option<HashSet<String>>> = Vec::new();
        let (mut at, mut expects_name, mut name) = (0, false, String::new());
        let mut is_kept = false;
        let bytes = json.as_bytes();
        while at < bytes.len() {
            match bytes[at] {
                b'"' => {
                    let place = at..string_end(bytes, at);
                    at = place.end;
                    let Some(text) = text_of(&json[place.clone()]) else { continue };
                    if expects_name && open.len() == 1 {
                        is_kept = kept.contains(&&*text);
                    }
                    if is_kept {
                        expects_name = false;
                        continue;
                    }
                    if expects_name {
                        let (clean, found) = self.redact(&text);
                        if found > 0 {
                            count += found;
                            let names = open.last_mut().and_then(Option::as_mut);
                            edits.push((place, distinct(clean.into_owned(), names)));
                        }
                        name = text.into_owned();
                        expects_name = false;
                        continue;
                    }
                    let (clean, found) = self.redact_value(&name, &text);
                    name.clear();
                    if found > 0 {
                        count += found;
                        edits.push((place, clean));
                    }
                }
                bracket @ (b'{' | b'[') => {
                    expects_name = bracket == b'{';
                    open.push(expects_name.then(HashSet::new));
                    // What is in an array under a secret name is as secret as the array.
                    if expects_name {
                        name.clear();
                    }
                    at += 1;
                }
                b'}' | b']' => {
                    open.pop();
                    name.clear();
                    at += 1;
                }
                b',' => {
                    expects_name = matches!(open.last(), Some(Some(_)));
                    at += 1;
                }
                _ => at += 1,
            }
        }
        (count > 0).then(|| (edited(json, edits), count))
    }

    /// The value of a member. A name that says secret stands for the words an assignment would have.
    fn redact_value(&self, name: &str, text: &str) -> (String, u64) {
        let (clean, found) = self.redact(text);
        let is_done = text.starts_with("[REDACTED:");
        if found > 0 || is_done || !is_secret_name(name) || text.chars().any(char::is_whitespace) {
            return (clean.into_owned(), found);
        }
        let is_aws = name.to_ascii_lowercase().contains("secret")
            && text.len() == 40
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/+=".contains(&byte));
        let kind = match (is_aws, self.has_assignment() && text.len() >= 8 && is_random(text)) {
            (true, _) => "aws_secret",
            (false, true) => super::ASSIGNMENT,
            (false, false) => return (text.to_owned(), 0),
        };
        (format!("[REDACTED:{kind}]"), 1)
    }

    fn has_assignment(&self) -> bool {
        self.kinds.iter().any(|kind| kind.name == super::ASSIGNMENT)
    }
}

/// Two names of one object that were secrets of one kind must stay two names.
fn distinct(name: String, names: Option<&mut HashSet<String>>) -> String {
    let Some(names) = names else { return name };
    let mut own = name.clone();
    let mut number = 2;
    while !names.insert(own.clone()) {
        own = format!("{name}#{number}");
        number += 1;
    }
    own
}

fn edited(json: &str, edits: Vec<(Range<usize>, String)>) -> String {
    let mut out = String::with_capacity(json.len());
    let mut done = 0;
    for (place, text) in edits {
        out.push_str(&json[done..place.start]);
        out.push_str(&serde_json::to_string(&text).expect("text is JSON"));
        done = place.end;
    }
    out.push_str(&json[done..]);
    out
}

fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while let Some(offset) = bytes.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        if bytes[at + offset] == b'"' {
            return at + offset + 1;
        }
        at += offset + 2;
    }
    bytes.len()
}

/// What a JSON string says; `None` if it is none.
fn text_of(json: &str) -> Option<std::borrow::Cow<'_, str>> {
    let inside = json.strip_prefix('"')?.strip_suffix('"')?;
    if inside.contains('\\') {
        serde_json::from_str::<String>(json).ok().map(std::borrow::Cow::Owned)
    } else {
        Some(std::borrow::Cow::Borrowed(inside))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn strings_names_and_named_values_are_redacted_and_the_rest_stays() {
        // CTX-42, T-CTX-3
        let redactor = Redactor::default();
        let text = r#"{ "AKIAIOSFODNN7EXAMPLE": 1,"AKIAIOSFODNN7EXAMPL2":[1.50,{"db_password":"hunter2!x9","n":"a\nb"}],
            "tok\u0065n":"abcdEFGH1234","list":{"uri":"https://u:p@h/"},"total_tokens":"12345678" }"#;
        let (redacted, count) = redactor.redact_json(text).unwrap();
        assert_eq!(count, 5);
        assert_eq!(redactor.redact_json(&redacted), None, "what is redacted stays as it is");
        assert_eq!(
            serde_json::from_str::<Value>(&redacted).unwrap(),
            json!({
                "[REDACTED:aws_access_key]": 1,
                "[REDACTED:aws_access_key]#2": [1.5, {"db_password": "[REDACTED:assignment]", "n": "a\nb"}],
                "token": "[REDACTED:assignment]",
                "list": {"uri": "https://[REDACTED:url_credentials]@h/"},
                "total_tokens": "12345678",
            })
        );
        assert!(redacted.contains(r#"[1.50,{"#) && redacted.contains(r#""a\nb""#), "{redacted}");
        assert!(redactor.redact_json(r#"{"a":["b",{"c":"d"}]}"#).is_none());
        let state = r#"{"requestState":"AKIAIOSFODNN7EXAMPLE","x":{"requestState":"AKIAIOSFODNN7EXAMPLE"}}"#;
        let (state, count) = redactor.redact_json_but(state, &["requestState"]).unwrap();
        assert_eq!(
            state,
            r#"{"requestState":"AKIAIOSFODNN7EXAMPLE","x":{"requestState":"[REDACTED:aws_access_key]"}}"#
        );
        assert_eq!(count, 1);
        let hidden = r#"["\u0041KIAIOSFODNN7EXAMPLE"]"#;
        assert_eq!(redactor.redact_json(hidden).unwrap().0, r#"["[REDACTED:aws_access_key]"]"#);
        let secret = format!(r#"{{"client_secret":"{}"}}"#, "aB3dE6gH9j".repeat(4));
        assert_eq!(redactor.redact_json(&secret).unwrap().0, r#"{"client_secret":"[REDACTED:aws_secret]"}"#);
    }
}
