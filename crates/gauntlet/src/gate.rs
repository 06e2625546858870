//! Argument gates (SURF §11): refusing arguments that the live capability document of a server does not support.
//!
//! A gate only narrows: it never edits arguments, and what it cannot decide it says so. Reading the document is
//! somebody else's business; here it is judged, without IO and without a clock.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;

/// What a gate looks for in a document.
#[derive(Debug, Clone)]
pub struct Gate {
    /// Its name in evidence and errors.
    pub id: String,
    /// Pointers to the arguments that trigger it: any that is there and not empty.
    pub args: Vec<String>,
    /// Where rows are, as pointers in which `*` stands for every element.
    pub rows: Vec<String>,
    /// Which member of a row names it; the first there counts.
    pub key: Vec<String>,
    /// What a row must have, and not empty.
    pub require: String,
    /// Which elements of what is required must be named by the arguments, if that is asked for.
    pub matching: Option<Matching>,
    /// Whether all rows of the subject must pass, or any.
    pub all: bool,
    /// Whether a row passes that does not say anything about what is required; one that says "none" never does.
    pub absent_passes: bool,
}

/// The arguments must be among the elements of what is required.
#[derive(Debug, Clone)]
pub struct Matching {
    /// The member of an element that names it.
    pub name: String,
    /// Members an element must have, with these values.
    pub having: Vec<(String, Value)>,
}

/// What a document says about arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It supports them.
    Allow,
    /// It does not.
    Deny,
    /// It says nothing about their subject.
    UnknownSubject,
    /// It could not be read.
    SourceError,
}

impl Verdict {
    /// The word in evidence and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Allow => "allow",
            Verdict::Deny => "deny",
            Verdict::UnknownSubject => "unknown_subject",
            Verdict::SourceError => "source_error",
        }
    }
}

impl Gate {
    /// The values that trigger it, if any: elements of lists, keys of objects (SURF-93).
    pub fn triggered(&self, arguments: &Value) -> Option<Vec<String>> {
        let mut values = Vec::new();
        for pointer in &self.args {
            match arguments.pointer(pointer) {
                Some(Value::Array(items)) => {
                    values.extend(
                        items
                            .iter()
                            .map(|item| item.as_str().map_or_else(|| item.to_string(), ToOwned::to_owned)),
                    );
                }
                Some(Value::Object(members)) => values.extend(members.keys().cloned()),
                Some(Value::String(text)) if !text.is_empty() => values.push(text.clone()),
                Some(value @ (Value::Number(_) | Value::Bool(_))) => values.push(value.to_string()),
                _ => {}
            }
        }
        values.sort();
        values.dedup();
        (!values.is_empty()).then_some(values)
    }

    /// What a document says about a subject and the values that triggered the gate.
    pub fn judge(&self, document: &Value, subject: &str, values: &[String]) -> Verdict {
        let mut verdicts = self
            .rows
            .iter()
            .flat_map(|pattern| elements(document, pattern))
            .filter(|row| self.names(row) == Some(subject))
            .map(|row| self.passes(row, values))
            .peekable();
        if verdicts.peek().is_none() {
            return Verdict::UnknownSubject;
        }
        let passes = if self.all { verdicts.all(|passes| passes) } else { verdicts.any(|passes| passes) };
        if passes { Verdict::Allow } else { Verdict::Deny }
    }

    /// How many rows a document has, and how many of them have what is required: for nobody in particular (SURF-96).
    pub fn surveyed(&self, document: &Value) -> (usize, usize) {
        let rows: Vec<&Value> = self.rows.iter().flat_map(|pattern| elements(document, pattern)).collect();
        let any = Gate { matching: None, ..self.clone() };
        (rows.len(), rows.iter().filter(|row| any.passes(row, &[])).count())
    }

    fn names<'r>(&self, row: &'r Value) -> Option<&'r str> {
        self.key.iter().find_map(|key| row.get(key))?.as_str()
    }

    fn passes(&self, row: &Value, values: &[String]) -> bool {
        let required = row.pointer(&self.require);
        let there = match required {
            Some(Value::Array(items)) => !items.is_empty(),
            Some(Value::Object(members)) => !members.is_empty(),
            Some(Value::String(text)) => !text.is_empty(),
            None => self.absent_passes,
            Some(Value::Null) => false,
            Some(_) => true,
        };
        let Some(matching) = self.matching.as_ref().filter(|_| there && required.is_some()) else {
            return there;
        };
        let items = required.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        values.iter().all(|value| {
            items.iter().any(|item| {
                item.get(&matching.name).and_then(Value::as_str) == Some(value)
                    && matching.having.iter().all(|(key, wanted)| item.get(key) == Some(wanted))
            })
        })
    }
}

/// Everything a pattern leads to.
fn elements<'d>(document: &'d Value, pattern: &str) -> Vec<&'d Value> {
    let mut found = vec![document];
    for step in pattern.split('/').skip(1) {
        let name = step.replace("~1", "/").replace("~0", "~");
        found = (found.into_iter())
            .flat_map(|value| -> Vec<&'d Value> {
                match (step, value) {
                    ("*", Value::Array(items)) => items.iter().collect(),
                    ("*", Value::Object(members)) => members.values().collect(),
                    (_, Value::Object(members)) => members.get(&name).into_iter().collect(),
                    _ => Vec::new(),
                }
            })
            .collect();
    }
    found
}

/// How often a gate could not decide: one that never does must be seen (SURF-95).
#[derive(Debug, Default)]
pub struct Indecision {
    allowed: AtomicU64,
    denied: AtomicU64,
    unknown_subject: AtomicU64,
    source_error: AtomicU64,
}

/// After so many evaluations without a decision somebody is told, and again after every so many more.
const FIRST: u64 = 20;
const AGAIN: u64 = 1_000;

impl Indecision {
    /// Counts a verdict; whether somebody must be told now that the gate never decides.
    pub fn count(&self, verdict: Verdict) -> bool {
        let counter = match verdict {
            Verdict::Allow => &self.allowed,
            Verdict::Deny => &self.denied,
            Verdict::UnknownSubject => &self.unknown_subject,
            Verdict::SourceError => &self.source_error,
        };
        counter.fetch_add(1, Ordering::AcqRel);
        let (unknown, failed) = self.undecided();
        let evaluated = unknown + failed;
        !self.has_decided() && (evaluated == FIRST || (evaluated > FIRST && evaluated.is_multiple_of(AGAIN)))
    }

    /// How often nothing was known of the subject, and how often the document could not be read.
    pub fn undecided(&self) -> (u64, u64) {
        (self.unknown_subject.load(Ordering::Acquire), self.source_error.load(Ordering::Acquire))
    }

    /// Whether it was asked often enough and has never decided.
    pub fn never_decides(&self) -> bool {
        let (unknown, failed) = self.undecided();
        !self.has_decided() && unknown + failed >= FIRST
    }

    fn has_decided(&self) -> bool {
        self.allowed.load(Ordering::Acquire) + self.denied.load(Ordering::Acquire) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn gate() -> Gate {
        Gate {
            id: "expand".into(),
            args: vec!["/expand".into(), "/expand_limit".into()],
            rows: [
                "/streams/*",
                "/connectors/*/streams/*",
                "/data/streams/*",
                "/data/connectors/*/streams/*",
            ]
            .map(Into::into)
            .into(),
            key: ["name", "stream", "stream_name"].map(Into::into).into(),
            require: "/expand_capabilities".into(),
            matching: None,
            all: false,
            absent_passes: false,
        }
    }

    #[test]
    fn a_document_can_be_asked_whether_anybody_has_what_is_required() {
        // SURF-96
        let document = json!({"streams": [{"name": "a", "expand_capabilities": []}, {"name": "b"}]});
        assert_eq!(gate().surveyed(&document), (2, 0));
        assert_eq!(Gate { absent_passes: true, ..gate() }.surveyed(&document), (2, 1));
        assert_eq!(gate().surveyed(&json!({"data": {"streams": [{"expand_capabilities": ["x"]}]}})), (1, 1));
        assert_eq!(gate().surveyed(&json!({"elsewhere": []})), (0, 0));
    }

    #[test]
    fn only_arguments_that_say_something_trigger() {
        // SURF-93, T-SURF-25
        let gate = gate();
        for nothing in
            [json!({}), json!({"expand": []}), json!({"expand_limit": {}}), json!({"expand": null, "x": 1})]
        {
            assert_eq!(gate.triggered(&nothing), None, "{nothing}");
        }
        assert_eq!(
            gate.triggered(&json!({"expand": ["b", "a"], "expand_limit": {"b": 3}})).unwrap(),
            ["a", "b"]
        );
        assert_eq!(gate.triggered(&json!({"expand_limit": {"c": 3}})).unwrap(), ["c"]);
    }

    #[test]
    fn the_truth_table_holds_whatever_shape_the_document_has() {
        // T-SURF-23, T-SURF-24
        let one = |caps: Value| vec![json!({"name": "s", "expand_capabilities": caps})];
        let usable = json!([{"name": "a", "usable": true}]);
        let unusable = json!([{"name": "a", "usable": false}]);
        let other = json!([{"name": "b", "usable": true}]);
        let two = vec![
            json!({"name": "s", "expand_capabilities": []}),
            json!({"name": "s", "expand_capabilities": usable}),
        ];
        let (all, strict) = (
            Gate { all: true, ..gate() },
            Gate {
                matching: Some(Matching {
                    name: "name".into(),
                    having: vec![("usable".into(), json!(true))],
                }),
                ..gate()
            },
        );
        use Verdict::{Allow, Deny, UnknownSubject};
        for (rows, wanted, of_all, of_strict) in [
            (one(usable.clone()), Allow, Allow, Allow),
            (one(json!([])), Deny, Deny, Deny),
            (vec![json!({"stream": "s"})], Deny, Deny, Deny),
            (two, Allow, Deny, Allow),
            (one(other), Allow, Allow, Deny),
            (one(unusable), Allow, Allow, Deny),
            (
                vec![json!({"name": "t", "expand_capabilities": usable})],
                UnknownSubject,
                UnknownSubject,
                UnknownSubject,
            ),
            (vec![], UnknownSubject, UnknownSubject, UnknownSubject),
        ] {
            let (flat, nested) = (json!({"streams": rows}), json!({"connectors": [{"streams": rows}]}));
            for document in [flat.clone(), nested.clone(), json!({"data": flat}), json!({"data": nested})] {
                let values = ["a".to_owned()];
                assert_eq!(gate().judge(&document, "s", &values), wanted, "{document}");
                assert_eq!(all.judge(&document, "s", &values), of_all, "{document}");
                assert_eq!(strict.judge(&document, "s", &values), of_strict, "{document}");
            }
        }
    }

    #[test]
    fn a_gate_that_never_decides_is_told_of_once_and_again_later() {
        // SURF-95, T-SURF-28
        let indecision = Indecision::default();
        let told = (1..=1_000).filter(|_| indecision.count(Verdict::SourceError)).count();
        assert_eq!(told, 2);
        assert_eq!(indecision.undecided(), (0, 1_000));
        assert!(indecision.never_decides());
        indecision.count(Verdict::Allow);
        assert!(!indecision.never_decides());
        let indecision = Indecision::default();
        assert!((0..19).all(|_| !indecision.count(Verdict::UnknownSubject)));
        assert!(!indecision.count(Verdict::Deny));
        assert!((0..2_000).all(|_| !indecision.count(Verdict::UnknownSubject)));
    }

    #[test]
    fn subjects_are_plain_strings_however_they_look() {
        // SURF-94, T-SURF-29
        for subject in ["a&connection_id=b", "x']..[?(@", "../schema", "{stream}", "a/b~c"] {
            let document = json!({"streams": [{"name": subject, "expand_capabilities": ["x"]}]});
            assert_eq!(gate().judge(&document, subject, &["x".into()]), Verdict::Allow);
            assert_eq!(gate().judge(&document, "s", &["x".into()]), Verdict::UnknownSubject);
        }
    }
}
