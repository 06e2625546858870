//! Argument gates as operators configure them (SURF §11): before a call is made, a document that the server itself
//! offers through a tool that only reads is asked whether it supports the arguments.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use portcullis_gauntlet::gate::{Gate, Indecision, Matching, Verdict};
use portcullis_gauntlet::gate_meter::Meter;
use regex::Regex;
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
    /// Names for parts of the arguments; a `?` behind the pointer says that it may be missing. Or `from`, a pointer,
    /// and `regex`, whose named groups are the parts of the text there.
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
    #[serde(default = "refuse")]
    pub on_absent: Action,
    #[serde(default = "forward")]
    pub on_unknown_subject: Action,
    #[serde(default = "forward")]
    pub on_source_error: Action,
    #[serde(default = "two_seconds")]
    pub timeout_ms: u64,
    #[serde(default = "one_mebibyte")]
    pub max_body_bytes: usize,
    /// How long a document is good for the same principal and question; 0 asks every time.
    #[serde(default)]
    pub cache_ttl_ms: u64,
    /// Whether arguments that no row supports are left out of what is published (SURF-96).
    #[serde(default)]
    pub prune: bool,
    /// How often that is looked at.
    #[serde(default = "a_minute")]
    pub prune_seconds: u64,
    pub error: ErrorOptions,
    #[serde(default)]
    pub self_test: Vec<SelfTest>,
}

/// Where the document comes from: the same server, or what was accepted of it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct SourceOptions {
    pub kind: SourceKind,
    /// The tool that offers the document.
    #[serde(default)]
    pub tool: Option<String>,
    /// Its arguments; `{name}` stands for a part of the subject.
    #[serde(default)]
    pub args: BTreeMap<String, Value>,
    /// The resource that is the document, with parts of the subject in braces.
    #[serde(default)]
    pub uri: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum SourceKind {
    /// A tool of the same server that only reads.
    Tool,
    /// A resource of the same server.
    Resource,
    /// The gated tool's definition as it was accepted: nothing is fetched.
    Catalog,
    /// Only adapters that are built in may ask like this.
    Http,
}

/// The values must be among the elements of what is required.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct MatchOptions {
    /// Which values: `items:/pointer` for elements of a list, `keys:/pointer` for names of members; all that triggered
    /// if none are named.
    #[serde(default)]
    pub values: Vec<String>,
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

fn refuse() -> Action {
    Action::Deny
}

fn a_minute() -> u64 {
    60
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
    /// Where the subject is a part of a text.
    within: Option<(String, Regex)>,
    pub(crate) indecision: Indecision,
    pub(crate) meter: Meter,
    /// Documents that are still good, by who asked what.
    kept: Mutex<HashMap<String, (Instant, Value)>>,
}

/// No gate keeps more documents than this.
const MOST_KEPT: usize = 256;

/// What a gate asks for its document.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Question {
    /// A tool, by `<server>/<tool>`.
    Tool(String, Value),
    /// A resource, by its URI.
    Resource(String),
    /// Nobody.
    Accepted,
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
        let within = within(&options.subject).map_err(|message| ("subject".to_owned(), message))?;
        let known = |name: &str| match &within {
            Some((_, regex)) => regex.capture_names().flatten().any(|group| group == name),
            None => options.subject.contains_key(name),
        };
        let uri_parts = options.source.uri.as_deref().map(placeholders).unwrap_or_default();
        let args = options.source.args.values().filter_map(Value::as_str);
        let whole = args.chain([options.equals.as_str()]).filter(|text| text.starts_with('{'));
        for text in whole.map(ToOwned::to_owned).chain(uri_parts) {
            let name = text.trim_start_matches('{').trim_end_matches('}').trim_end_matches('?');
            if !known(name) {
                return bad("subject", format!("{text} is no part of the subject"));
            }
        }
        if !options.equals.starts_with('{') {
            return bad("equals", "must be a part of the subject, as in {stream}".into());
        }
        let source = &options.source;
        match source.kind {
            SourceKind::Tool if source.tool.is_none() => {
                return bad("source.tool", "must name a tool".into());
            }
            SourceKind::Resource if source.uri.is_none() => {
                return bad("source.uri", "must be the URI of a resource".into());
            }
            SourceKind::Http => {
                let message =
                    "http is for adapters that are built in; use a tool or a resource of the server";
                return bad("source.kind", message.into());
            }
            _ => {}
        }
        let matching = match &options.matching {
            None => None,
            Some(matching) => {
                let is_place = |text: &String| text.starts_with("items:/") || text.starts_with("keys:/");
                if let Some(text) = matching.values.iter().find(|text| !is_place(text)) {
                    return bad("match.values", format!("{text:?} is neither items:/… nor keys:/…"));
                }
                match matching.within.strip_prefix(&format!("{}/*/", options.require)) {
                    Some(name) if !name.is_empty() && !name.contains('/') => Some(Matching {
                        name: name.to_owned(),
                        having: (matching.having.iter())
                            .map(|(key, value)| (key.clone(), value.clone()))
                            .collect(),
                    }),
                    _ => return bad("match.in", format!("must be {}/*/MEMBER", options.require)),
                }
            }
        };
        if options.prune_seconds == 0 {
            return bad("prune_seconds", "must be 1 at least".into());
        }
        let gate = Gate {
            id: options.id.clone(),
            args: options.args.clone(),
            rows: options.rows.clone(),
            key: options.key.clone(),
            require: options.require.clone(),
            matching,
            all: options.quantifier == Quantifier::All,
            absent_passes: options.on_absent == Action::Allow,
        };
        let gate = Self {
            options,
            gate,
            within,
            indecision: Indecision::default(),
            meter: Meter::default(),
            kept: Mutex::default(),
        };
        gate.try_cases()?;
        Ok(gate)
    }

    fn try_cases(&self) -> Result<(), (String, String)> {
        for (index, case) in self.options.self_test.iter().enumerate() {
            let document: Value = serde_json::from_str(&case.response).unwrap_or(Value::Null);
            let found = self
                .triggered(&case.args)
                .map_or("not_triggered", |asked| self.judge(&document, &asked).as_str());
            if found != case.expect {
                let message = format!("case {} comes out as {found}, not as {}", index + 1, case.expect);
                return Err(("self_test".to_owned(), message));
            }
        }
        Ok(())
    }

    /// Its name.
    pub fn id(&self) -> &str {
        &self.options.id
    }

    /// The tools it stands before.
    pub fn tools(&self) -> &[String] {
        &self.options.tools
    }

    /// The pointers to the arguments it is about.
    pub fn args(&self) -> &[String] {
        &self.options.args
    }

    /// The tool that offers the document, for a gated tool's server, if it is one that does.
    pub fn source_tool(&self, server: &str) -> Option<String> {
        let source = &self.options.source;
        source
            .tool
            .as_ref()
            .filter(|_| source.kind == SourceKind::Tool)
            .map(|tool| format!("{server}/{tool}"))
    }

    /// Where the document comes from, in words.
    pub fn source(&self, server: &str) -> String {
        let source = &self.options.source;
        match (source.kind, &source.tool, &source.uri) {
            (SourceKind::Tool, Some(tool), _) => format!("{server}/{tool}"),
            (SourceKind::Resource, _, Some(uri)) => uri.clone(),
            _ => "the accepted definition".into(),
        }
    }

    /// Whether arguments that nobody can use are left out, and how often that is looked at.
    pub(crate) fn prunes(&self) -> Option<Duration> {
        self.options.prune.then(|| Duration::from_secs(self.options.prune_seconds))
    }

    /// How many rows a document has, and how many of them support the arguments at all.
    pub fn surveyed(&self, document: &Value) -> (usize, usize) {
        self.gate.surveyed(document)
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

    /// Whether arguments trigger it.
    pub fn is_triggered(&self, arguments: &Value) -> bool {
        self.gate.triggered(arguments).is_some()
    }

    /// What of the arguments is to be judged; nothing if they do not trigger it.
    pub(crate) fn triggered(&self, arguments: &Value) -> Option<Triggered> {
        let mut values = self.gate.triggered(arguments)?;
        if let Some(matching) = self.options.matching.as_ref().filter(|matching| !matching.values.is_empty())
        {
            values = matching.values.iter().flat_map(|place| values_at(arguments, place)).collect();
            values.sort();
            values.dedup();
        }
        let subject = match &self.within {
            Some((pointer, regex)) => {
                let text = arguments.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
                let groups = regex.captures(text);
                let part = |name: &str| Some(Value::from(groups.as_ref()?.name(name)?.as_str()));
                regex
                    .capture_names()
                    .flatten()
                    .filter_map(|name| Some((name.to_owned(), part(name)?)))
                    .collect()
            }
            None => (self.options.subject.iter())
                .filter_map(|(name, pointer)| {
                    Some((name.clone(), arguments.pointer(pointer.trim_end_matches('?'))?.clone()))
                })
                .collect(),
        };
        Some(Triggered { values, subject })
    }

    /// What is asked: whole values, never spliced (SURF-94). Without a subject, about everything there is.
    pub(crate) fn question(&self, server: &str, asked: Option<&Triggered>) -> Question {
        let part = |name: &str| asked.and_then(|asked| asked.subject.get(name.trim_end_matches('?')));
        let source = &self.options.source;
        match (source.kind, &source.tool, &source.uri) {
            (SourceKind::Tool, Some(tool), _) => {
                let filled = source.args.iter().filter_map(|(key, said)| {
                    let named = said.as_str().and_then(|text| text.strip_prefix('{')?.strip_suffix('}'));
                    let value = match named {
                        Some(name) => part(name)?.clone(),
                        None => said.clone(),
                    };
                    Some((key.clone(), value))
                });
                Question::Tool(format!("{server}/{tool}"), filled.collect::<Map<_, _>>().into())
            }
            (SourceKind::Resource, _, Some(uri)) => {
                let mut filled = uri.clone();
                for placeholder in placeholders(uri) {
                    let name = placeholder.trim_start_matches('{').trim_end_matches('}');
                    let text = part(name)
                        .map(|value| value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned));
                    filled = filled.replace(&placeholder, &percent_encoded(&text.unwrap_or_default()));
                }
                Question::Resource(filled)
            }
            _ => Question::Accepted,
        }
    }

    /// A document that is still good for who asks this, where the operator lets one be kept.
    pub(crate) fn kept(&self, who: &str) -> Option<Value> {
        let fresh = Duration::from_millis(self.options.cache_ttl_ms);
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(who).filter(|(at, _)| at.elapsed() < fresh).map(|(_, document)| document.clone())
    }

    /// Keeps a document, if the operator lets it be kept at all.
    pub(crate) fn keep(&self, who: String, document: &Value) {
        if self.options.cache_ttl_ms == 0 {
            return;
        }
        let fresh = Duration::from_millis(self.options.cache_ttl_ms);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|_, (at, _)| at.elapsed() < fresh);
        if kept.len() < MOST_KEPT {
            kept.insert(who, (Instant::now(), document.clone()));
        }
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

/// The subject as parts of a text, if it is written like that.
fn within(subject: &BTreeMap<String, String>) -> Result<Option<(String, Regex)>, String> {
    let (Some(from), Some(pattern)) = (subject.get("from"), subject.get("regex")) else { return Ok(None) };
    if subject.len() > 2 {
        return Err("has from and regex, so its parts are the named groups alone".into());
    }
    let regex = Regex::new(pattern).map_err(|error| error.to_string())?;
    Ok(Some((from.clone(), regex)))
}

/// Every `{name}` of a text, with its braces.
fn placeholders(text: &str) -> Vec<String> {
    let parts = text.split('{').skip(1).filter_map(|part| part.split_once('}'));
    parts.map(|(name, _)| format!("{{{name}}}")).collect()
}

/// The values at `items:/pointer` or `keys:/pointer`.
fn values_at(arguments: &Value, place: &str) -> Vec<String> {
    let (kind, pointer) = place.split_once(':').unwrap_or_default();
    match (kind, arguments.pointer(pointer)) {
        ("items", Some(Value::Array(items))) => items
            .iter()
            .map(|item| item.as_str().map_or_else(|| item.to_string(), ToOwned::to_owned))
            .collect(),
        ("keys", Some(Value::Object(members))) => members.keys().cloned().collect(),
        _ => Vec::new(),
    }
}

/// A value as one segment of a URI.
fn percent_encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    // Dots alone would lead elsewhere.
    if !out.is_empty() && out.bytes().all(|byte| byte == b'.') { out.replace('.', "%2E") } else { out }
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
        let question = gate.question("pdpp", Some(&asked));
        assert_eq!(
            question,
            Question::Tool("pdpp/schema".into(), json!({"stream": hostile, "detail": "compact"}))
        );
        // Without a subject, everything is asked for.
        let everything = gate.question("pdpp", None);
        assert_eq!(everything, Question::Tool("pdpp/schema".into(), json!({"detail": "compact"})));
        assert!(gate.triggered(&json!({"stream": "s", "expand": []})).is_none());
        let (code, param, message) = gate.refusal(&asked);
        assert_eq!((code, param), ("invalid_expand", "expand"));
        assert!(message.starts_with("'a&connection_id=b") && message.ends_with("(x)"), "{message}");
    }

    #[test]
    fn a_subject_can_be_part_of_a_text_and_a_source_a_resource() {
        // SURF-90, SURF-94, T-SURF-29
        let gate = ArgumentGate::new(options(json!({
            "subject": {"from": "/id", "regex": "^(?:(?P<connection_id>[^/:]+)/)?(?P<stream>[^/:]+):"},
            "source": {"kind": "resource", "uri": "schema://streams/{stream}/of/{connection_id?}"},
        })))
        .unwrap();
        let asked = gate.triggered(&json!({"id": "c 1/../x:9", "expand": ["x"]}));
        // What does not match has no subject, and nothing is known of it.
        assert_eq!(gate.judge(&json!({}), &asked.unwrap()), Verdict::UnknownSubject);
        for (id, uri) in [
            ("c&1/s?:9", "schema://streams/s%3F/of/c%261"),
            ("{stream}:9", "schema://streams/%7Bstream%7D/of/"),
            ("..:9", "schema://streams/%2E%2E/of/"),
        ] {
            let asked = gate.triggered(&json!({"id": id, "expand": ["x"]})).unwrap();
            assert_eq!(gate.question("pdpp", Some(&asked)), Question::Resource(uri.into()));
        }
    }

    #[test]
    fn only_the_values_that_are_named_must_match() {
        // SURF-92, T-SURF-23
        let gate = ArgumentGate::new(options(json!({
            "args": ["/expand", "/expand_limit"], "rows": ["/streams/*"],
            "match": {"values": ["items:/expand"], "in": "/expand_capabilities/*/name"},
        })))
        .unwrap();
        let document = json!({"streams": [{"name": "s", "expand_capabilities": [{"name": "a"}]}]});
        let judged = |arguments: Value| gate.judge(&document, &gate.triggered(&arguments).unwrap());
        assert_eq!(judged(json!({"stream": "s", "expand": ["a"], "expand_limit": {"b": 1}})), Verdict::Allow);
        assert_eq!(judged(json!({"stream": "s", "expand": ["b"], "expand_limit": {"a": 1}})), Verdict::Deny);
        // What a row does not mention can be let through.
        let lenient =
            ArgumentGate::new(options(json!({"rows": ["/streams/*"], "on_absent": "allow"}))).unwrap();
        let asked = lenient.triggered(&json!({"stream": "s", "expand": ["a"]})).unwrap();
        assert_eq!(lenient.judge(&json!({"streams": [{"name": "s"}]}), &asked), Verdict::Allow);
        assert_eq!(
            lenient.judge(&json!({"streams": [{"name": "s", "expand_capabilities": []}]}), &asked),
            Verdict::Deny
        );
    }

    #[test]
    fn a_document_is_kept_only_if_the_operator_says_so() {
        // SURF-93
        let live = ArgumentGate::new(options(json!({}))).unwrap();
        live.keep("a".into(), &json!(1));
        assert_eq!(live.kept("a"), None);
        let keeps = ArgumentGate::new(options(json!({"cache_ttl_ms": 600_000}))).unwrap();
        keeps.keep("a".into(), &json!(1));
        assert_eq!((keeps.kept("a"), keeps.kept("b")), (Some(json!(1)), None));
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
            (json!({"match": {"in": "/expand_capabilities/*/name", "values": ["/expand"]}}), "match.values"),
            (json!({"source": {"kind": "tool"}}), "source.tool"),
            (json!({"source": {"kind": "resource"}}), "source.uri"),
            (json!({"source": {"kind": "resource", "uri": "a://{nothing}"}}), "subject"),
            (json!({"source": {"kind": "http"}}), "source.kind"),
            (json!({"subject": {"from": "/id", "regex": "("}}), "subject"),
            (json!({"prune_seconds": 0}), "prune_seconds"),
        ] {
            assert_eq!(ArgumentGate::new(options(more.clone())).unwrap_err().0, key, "{more}");
        }
    }
}
