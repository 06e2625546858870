//! Argument gates as operators configure them (SURF §11): before a call is made, a document that the server itself
//! offers through a tool that only reads is asked whether it supports the arguments.

use std::collections::BTreeMap;
use std::time::Duration;

use portcullis_gauntlet::gate::{Gate, Indecision, Matching, Verdict};
use serde::Deserialize;
use serde_json::{Map, Value};

/// One gate, as it is written down.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct GateOptions {
    pub id: String,
    /// `<server>/<tool>`.
    pub tools: Vec<String>,
    /// Pointers to arguments; any that is there and not empty triggers.
    pub args: Vec<String>,
    /// Names for parts of the arguments; a `?` behind the pointer says that it may be missing.
    pub subject: BTreeMap<String, String>,
    pub source: SourceOptions,
    pub rows: Vec<String>,
    pub key: Vec<String>,
    pub equals: String,
    pub require: String,
    #[serde(default, rename = "match")]
    pub matching: Option<MatchOptions>,
    #[serde(default)]
    pub quantifier: Quantifier,
    #[serde(default = "forward")]
    pub on_unknown_subject: Action,
    #[serde(default = "forward")]
    pub on_source_error: Action,
    #[serde(default = "two_seconds")]
    pub timeout_ms: u64,
    #[serde(default = "one_mebibyte")]
    pub max_body_bytes: usize,
    pub error: ErrorOptions,
    #[serde(default)]
    pub self_test: Vec<SelfTest>,
}

/// Where the document comes from: a tool of the same server.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct SourceOptions {
    pub kind: SourceKind,
    pub tool: String,
    #[serde(default)]
    pub args: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum SourceKind {
    Tool,
}

/// The values must be among the elements of what is required.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct MatchOptions {
    /// `<require>/*/<member>`.
    #[serde(rename = "in")]
    pub within: String,
    #[serde(default, rename = "where")]
    pub having: Map<String, Value>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Quantifier {
    #[default]
    Any,
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Action {
    Allow,
    Deny,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct ErrorOptions {
    pub code: String,
    pub param: String,
    pub message: String,
}

/// A case that must come out as it says; checked whenever the configuration is read.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct SelfTest {
    pub args: Value,
    pub response: String,
    pub expect: String,
}

fn forward() -> Action {
    Action::Allow
}

fn two_seconds() -> u64 {
    2_000
}

fn one_mebibyte() -> usize {
    1 << 20
}

/// A gate that is ready.
#[derive(Debug)]
pub struct ArgumentGate {
    options: GateOptions,
    gate: Gate,
    pub(crate) indecision: Indecision,
}

/// What triggered a gate.
#[derive(Debug)]
pub(crate) struct Triggered {
    values: Vec<String>,
    subject: BTreeMap<String, Value>,
}

impl ArgumentGate {
    /// Checks a gate and runs its cases. An error names the key.
    pub fn new(options: GateOptions) -> Result<Self, (String, String)> {
        let bad = |key: &str, message: String| Err((key.to_owned(), message));
        if options.tools.is_empty()
            || options.args.is_empty()
            || options.rows.is_empty()
            || options.key.is_empty()
        {
            return bad("tools", "tools, args, rows and key must name something".into());
        }
        if let Some(tool) = options.tools.iter().find(|tool| tool.split('/').count() != 2) {
            return bad("tools", format!("{tool:?} is not <server>/<tool>"));
        }
        let placeholders = options.source.args.values().chain([&options.equals]);
        for text in placeholders.filter(|text| text.starts_with('{')) {
            let name = text.trim_start_matches('{').trim_end_matches('}').trim_end_matches('?');
            if !options.subject.contains_key(name) {
                return bad("subject", format!("{text} is no part of the subject"));
            }
        }
        if !options.equals.starts_with('{') {
            return bad("equals", "must be a part of the subject, as in {stream}".into());
        }
        let matching = match &options.matching {
            None => None,
            Some(matching) => match matching.within.strip_prefix(&format!("{}/*/", options.require)) {
                Some(name) if !name.is_empty() && !name.contains('/') => Some(Matching {
                    name: name.to_owned(),
                    having: matching.having.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
                }),
                _ => return bad("match.in", format!("must be {}/*/MEMBER", options.require)),
            },
        };
        let gate = Gate {
            id: options.id.clone(),
            args: options.args.clone(),
            rows: options.rows.clone(),
            key: options.key.clone(),
            require: options.require.clone(),
            matching,
            all: options.quantifier == Quantifier::All,
        };
        let gate = Self { options, gate, indecision: Indecision::default() };
        for (index, case) in gate.options.self_test.iter().enumerate() {
            let document: Value = serde_json::from_str(&case.response).unwrap_or(Value::Null);
            let found = gate
                .triggered(&case.args)
                .map_or("not_triggered", |asked| gate.judge(&document, &asked).as_str());
            if found != case.expect {
                return bad(
                    "self_test",
                    format!("case {} comes out as {found}, not as {}", index + 1, case.expect),
                );
            }
        }
        Ok(gate)
    }

    /// Its name.
    pub fn id(&self) -> &str {
        &self.options.id
    }

    /// The tools it stands before.
    pub fn tools(&self) -> &[String] {
        &self.options.tools
    }

    /// The tool that offers the document, for a gated tool's server.
    pub fn source(&self, server: &str) -> String {
        format!("{server}/{}", self.options.source.tool)
    }

    /// How many cases it was tried with: those that allow and those that deny.
    pub fn cases(&self) -> (usize, usize) {
        let of = |word: &str| self.options.self_test.iter().filter(|case| case.expect == word).count();
        (of("allow"), of("deny"))
    }

    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_millis(self.options.timeout_ms)
    }

    pub(crate) fn most_bytes(&self) -> usize {
        self.options.max_body_bytes
    }

    /// What of the arguments is to be judged; nothing if they do not trigger it.
    pub(crate) fn triggered(&self, arguments: &Value) -> Option<Triggered> {
        let values = self.gate.triggered(arguments)?;
        let parts = self.options.subject.iter().filter_map(|(name, pointer)| {
            let value = arguments.pointer(pointer.trim_end_matches('?'))?;
            Some((name.clone(), value.clone()))
        });
        Some(Triggered { values, subject: parts.collect() })
    }

    /// The source's arguments: whole values, never spliced (SURF-94).
    pub(crate) fn source_arguments(&self, asked: &Triggered) -> Value {
        let filled = self.options.source.args.iter().filter_map(|(key, text)| {
            let value = match text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
                Some(name) => asked.subject.get(name.trim_end_matches('?'))?.clone(),
                None => Value::from(text.as_str()),
            };
            Some((key.clone(), value))
        });
        filled.collect::<Map<_, _>>().into()
    }

    pub(crate) fn judge(&self, document: &Value, asked: &Triggered) -> Verdict {
        match self.subject(asked) {
            Some(subject) => self.gate.judge(document, subject, &asked.values),
            None => Verdict::UnknownSubject,
        }
    }

    fn subject<'a>(&self, asked: &'a Triggered) -> Option<&'a str> {
        let name = self.options.equals.trim_start_matches('{').trim_end_matches('}').trim_end_matches('?');
        asked.subject.get(name)?.as_str()
    }

    /// Whether a verdict stops the call.
    pub(crate) fn refuses(&self, verdict: Verdict) -> bool {
        match verdict {
            Verdict::Allow => false,
            Verdict::Deny => true,
            Verdict::UnknownSubject => self.options.on_unknown_subject == Action::Deny,
            Verdict::SourceError => self.options.on_source_error == Action::Deny,
        }
    }

    /// What the caller is told: the operator's words, with short values in them.
    pub(crate) fn refusal(&self, asked: &Triggered) -> (&str, &str, String) {
        let short = |text: &str| text.chars().take(64).collect::<String>();
        let mut message = self.options.error.message.replace("{values}", &short(&asked.values.join(", ")));
        for (name, value) in &asked.subject {
            let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
            message = message.replace(&format!("{{{name}}}"), &short(&text));
        }
        (&self.options.error.code, &self.options.error.param, message)
    }
}

/// All gates of a gateway.
#[derive(Debug, Default)]
pub struct Gates(Vec<ArgumentGate>);

impl Gates {
    /// Gates that are ready.
    pub fn new(gates: Vec<ArgumentGate>) -> Self {
        Self(gates)
    }

    /// Each.
    pub fn iter(&self) -> impl Iterator<Item = &ArgumentGate> {
        self.0.iter()
    }

    /// Those that stand before a tool, by `<server>/<tool>`.
    pub(crate) fn before<'g>(&'g self, tool: &'g str) -> impl Iterator<Item = &'g ArgumentGate> {
        self.0.iter().filter(move |gate| gate.options.tools.iter().any(|gated| gated == tool))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn options(more: Value) -> GateOptions {
        let mut options = json!({
            "id": "expand", "tools": ["pdpp/query_records"], "args": ["/expand"], "subject": {"stream": "/stream", "connection_id": "/connection_id?"},
            "source": {"kind": "tool", "tool": "schema", "args": {"stream": "{stream}", "connection_id": "{connection_id?}", "detail": "compact"}},
            "rows": ["/connectors/*/streams/*"], "key": ["name"], "equals": "{stream}", "require": "/expand_capabilities",
            "error": {"code": "invalid_expand", "param": "expand", "message": "'{stream}' has nothing to expand ({values})"},
        });
        for (key, value) in more.as_object().unwrap() {
            options[key] = value.clone();
        }
        serde_json::from_value(options).unwrap()
    }

    #[test]
    fn placeholders_are_whole_values() {
        // SURF-94, T-SURF-29
        let gate = ArgumentGate::new(options(json!({}))).unwrap();
        let hostile = "a&connection_id=b{stream}";
        let asked = gate.triggered(&json!({"stream": hostile, "expand": ["x"]})).unwrap();
        assert_eq!(gate.source_arguments(&asked), json!({"stream": hostile, "detail": "compact"}));
        assert!(gate.triggered(&json!({"stream": "s", "expand": []})).is_none());
        let (code, param, message) = gate.refusal(&asked);
        assert_eq!((code, param), ("invalid_expand", "expand"));
        assert!(message.starts_with("'a&connection_id=b") && message.ends_with("(x)"), "{message}");
    }

    #[test]
    fn a_gate_that_cannot_work_is_refused_when_it_is_read() {
        // SURF-97, SURF-98, T-SURF-28
        let case = |expect: &str| json!([{"args": {"stream": "s", "expand": ["a"]}, "response": r#"{"connectors":[{"streams":[{"name":"s","expand_capabilities":[]}]}]}"#, "expect": expect}]);
        assert!(ArgumentGate::new(options(json!({"self_test": case("deny")}))).is_ok());
        for (more, key) in [
            (json!({"self_test": case("allow")}), "self_test"),
            (json!({"rows": ["/streams/*"], "self_test": case("deny")}), "self_test"),
            (json!({"equals": "{other}"}), "subject"),
            (json!({"equals": "s"}), "equals"),
            (json!({"tools": ["query_records"]}), "tools"),
            (json!({"match": {"in": "/elsewhere/*/name"}}), "match.in"),
        ] {
            assert_eq!(ArgumentGate::new(options(more.clone())).unwrap_err().0, key, "{more}");
        }
    }
}
