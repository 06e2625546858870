//! URI templates (RFC 6570, level 2), read in both directions (GOV-407).
//!
//! A template with which a resource is declared is also the test of which URIs it covers, and its variables are the
//! arguments that scopes are bound to. So a URI fits only in one way: the values read out of it, put back, must give
//! the same text. That refuses `%2e%2e` for `..`, which a server might read differently than we did.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value};

/// More variables than this are not of use to anybody.
const MOST_VARIABLES: usize = 8;

/// A template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UriTemplate {
    text: String,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Literal(String),
    Variable { name: String, operator: Operator },
}

/// How a variable is written into the URI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    /// `{x}`: everything but unreserved characters is encoded.
    Simple,
    /// `{+x}`: reserved characters stay.
    Reserved,
    /// `{#x}`: likewise, after a `#`.
    Fragment,
}

/// What a template wants of a URI next: this byte, or one or more that a value may be written with.
#[derive(Debug, Clone, Copy)]
enum Step {
    Is(u8),
    Some { reserved: bool },
}

impl Step {
    fn takes(self, byte: u8) -> bool {
        match self {
            Step::Is(own) => own == byte,
            Step::Some { reserved: true } => byte.is_ascii_graphic(),
            Step::Some { reserved: false } => byte.is_ascii_alphanumeric() || b"-._~%".contains(&byte),
        }
    }
}

/// The text is no template of level 2.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("is no URI template of RFC 6570 level 2: {0}")]
pub struct TemplateError(&'static str);

impl UriTemplate {
    /// Reads a template.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(open) = rest.find(['{', '}']) {
            if rest.as_bytes()[open] == b'}' {
                return Err(TemplateError("a brace is closed that was not opened"));
            }
            if open > 0 {
                parts.push(Part::Literal(rest[..open].to_owned()));
            } else if matches!(parts.last(), Some(Part::Variable { .. })) {
                return Err(TemplateError("two variables stand side by side"));
            }
            let close = rest.find('}').ok_or(TemplateError("a brace is not closed"))?;
            let inside = rest.get(open + 1..close).unwrap_or_default();
            let (operator, name) = match inside.as_bytes().first() {
                Some(b'+') => (Operator::Reserved, &inside[1..]),
                Some(b'#') => (Operator::Fragment, &inside[1..]),
                _ => (Operator::Simple, inside),
            };
            if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
                return Err(TemplateError("an expression is not one plain variable"));
            }
            let known = |part: &Part| matches!(part, Part::Variable { name: other, .. } if other == name);
            if parts.iter().any(known) {
                return Err(TemplateError("a variable occurs twice"));
            }
            parts.push(Part::Variable { name: name.to_owned(), operator });
            rest = &rest[close + 1..];
        }
        if !rest.is_empty() {
            parts.push(Part::Literal(rest.to_owned()));
        }
        let variables = parts.iter().filter(|part| matches!(part, Part::Variable { .. })).count();
        match variables {
            0 => Err(TemplateError("it has no variable")),
            1..=MOST_VARIABLES => Ok(Self { text: text.to_owned(), parts }),
            _ => Err(TemplateError("it has more than 8 variables")),
        }
    }

    /// The names of the variables, in order.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Variable { name, .. } => Some(name.as_str()),
            Part::Literal(_) => None,
        })
    }

    /// The template as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The values with which the template gives exactly `uri`. A variable ends where the literal behind it first
    /// occurs, so that there is one reading.
    pub fn values(&self, uri: &str) -> Option<Map<String, Value>> {
        let mut values = Map::new();
        let mut rest = uri;
        for (index, part) in self.parts.iter().enumerate() {
            match part {
                Part::Literal(literal) => rest = rest.strip_prefix(literal.as_str())?,
                Part::Variable { name, operator } => {
                    if *operator == Operator::Fragment {
                        rest = rest.strip_prefix('#')?;
                    }
                    let end = match self.parts.get(index + 1) {
                        Some(Part::Literal(next)) if index + 2 == self.parts.len() => {
                            rest.len().checked_sub(next.len()).filter(|at| rest.get(*at..) == Some(next))?
                        }
                        Some(Part::Literal(next)) => rest.find(next.as_str())?,
                        _ => rest.len(),
                    };
                    let value = decoded(&rest[..end])?;
                    values.insert(name.clone(), Value::String(value));
                    rest = &rest[end..];
                }
            }
        }
        (rest.is_empty() && self.expand(&values).as_deref() == Some(uri)).then_some(values)
    }

    /// Whether there may be a URI that fits both: which of them covers it, nobody could say.
    pub fn overlaps(&self, other: &UriTemplate) -> bool {
        let (ours, theirs) = (self.steps(), other.steps());
        // Where both stand after the same text, and whether a variable has taken anything there yet.
        let mut reached = vec![(0, false, 0, false)];
        let mut seen: BTreeSet<_> = reached.iter().copied().collect();
        while let Some((i, began, j, begun)) = reached.pop() {
            if i == ours.len() && j == theirs.len() {
                return true;
            }
            let mut next = Vec::new();
            if began {
                next.push((i + 1, false, j, begun));
            }
            if begun {
                next.push((i, began, j + 1, false));
            }
            match (ours.get(i), theirs.get(j)) {
                (Some(Step::Is(a)), Some(Step::Is(b))) if a == b => next.push((i + 1, false, j + 1, false)),
                (Some(Step::Is(byte)), Some(any)) if any.takes(*byte) => next.push((i + 1, false, j, true)),
                (Some(any), Some(Step::Is(byte))) if any.takes(*byte) => next.push((i, true, j + 1, false)),
                (Some(Step::Some { .. }), Some(Step::Some { .. })) => next.push((i, true, j, true)),
                _ => {}
            }
            reached.extend(next.into_iter().filter(|place| seen.insert(*place)));
        }
        false
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for part in &self.parts {
            match part {
                Part::Literal(literal) => steps.extend(literal.bytes().map(Step::Is)),
                Part::Variable { operator, .. } => {
                    if *operator == Operator::Fragment {
                        steps.push(Step::Is(b'#'));
                    }
                    steps.push(Step::Some { reserved: *operator != Operator::Simple });
                }
            }
        }
        steps
    }

    /// The URI with these values; `None` if one is missing or no text.
    pub fn expand(&self, values: &Map<String, Value>) -> Option<String> {
        let mut uri = String::new();
        for part in &self.parts {
            match part {
                Part::Literal(literal) => uri.push_str(literal),
                Part::Variable { name, operator } => {
                    let value = values.get(name)?.as_str().filter(|value| !value.is_empty())?;
                    if *operator == Operator::Fragment {
                        uri.push('#');
                    }
                    encode(&mut uri, value, *operator != Operator::Simple);
                }
            }
        }
        Some(uri)
    }
}

impl fmt::Display for UriTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn encode(out: &mut String, value: &str, keep_reserved: bool) {
    for byte in value.bytes() {
        let unreserved = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        if unreserved || (keep_reserved && b":/?#[]@!$&'()*+,;=".contains(&byte)) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
}

fn decoded(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
            let value = digit(bytes.next())? * 16 + digit(bytes.next())?;
            out.push(u8::try_from(value).ok()?);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn values(template: &str, uri: &str) -> Option<Value> {
        UriTemplate::parse(template).unwrap().values(uri).map(Value::Object)
    }

    #[test]
    fn a_uri_fits_in_one_way_or_not_at_all() {
        // GOV-407
        assert_eq!(values("file://{+path}", "file:///srv/a%20b.md"), Some(json!({"path": "/srv/a b.md"})));
        assert_eq!(values("db://{table}/{id}", "db://users/7"), Some(json!({"table": "users", "id": "7"})));
        assert_eq!(values("x://{a}.json", "x://b.json.json"), Some(json!({"a": "b.json"})));
        assert_eq!(values("x://d{#part}", "x://d#one/two"), Some(json!({"part": "one/two"})));
        for (template, uri) in [
            // Written in another way than we would write it: a server may read it otherwise.
            ("file://{+path}", "file:///srv/%2e%2e/etc"),
            ("file://{+path}", "file:///srv/%2Fetc"),
            ("db://{table}", "db://a/b"),
            ("db://{table}", "db://"),
            ("db://{table}", "dbx://t"),
            ("db://{table}", "db://%zz"),
            ("db://{table}", "db://%ff"),
            ("db://{table}", "db://a b"),
        ] {
            assert_eq!(values(template, uri), None, "{template} {uri}");
        }
    }

    #[test]
    fn templates_that_one_uri_could_fit_overlap() {
        // GOV-407, T-DEC-3
        let overlap = |a: &str, b: &str| {
            let (a, b) = (UriTemplate::parse(a).unwrap(), UriTemplate::parse(b).unwrap());
            assert_eq!(a.overlaps(&b), b.overlaps(&a), "{a} {b}");
            a.overlaps(&b)
        };
        for (a, b) in [
            ("x://{id}", "x://{name}"),
            ("x://{+path}", "x://docs/{id}"),
            ("x://a{id}", "x://{id}b"),
            ("x://{a}/{b}", "x://{+all}"),
            ("x://{+a}#y", "x://z{#b}"),
        ] {
            assert!(overlap(a, b), "{a} {b}");
        }
        for (a, b) in [
            ("x://a/{id}", "x://b/{id}"),
            ("x://{id}", "x://{id}/more"),
            ("x://{a}/{b}", "x://{a}"),
            ("x://text/{id}", "x://blob/{+id}"),
            ("x://{id}", "x://a/b{id}"),
        ] {
            assert!(!overlap(a, b), "{a} {b}");
        }
    }

    #[test]
    fn what_is_beyond_level_two_is_refused() {
        for text in ["{?q}", "{a,b}", "{a}{b}", "{a", "a}", "{}", "plain", "{a}/{a}", "{a*}"] {
            assert!(UriTemplate::parse(text).is_err(), "{text}");
        }
    }
}
