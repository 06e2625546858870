//! From a definition to an item (CAT-2, CAT-4).
//!
//! Only a name is needed; whatever else is missing, odd or wrong becomes a finding, and one bad definition never touches
//! another (CAT-42).

use portcullis_core::canon::to_jcs;
use portcullis_core::{Sha256Digest, ToolName};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::facets::Facets;
use crate::finding::{Finding, FindingKind};
use crate::id::{IdParts, is_version, slug};
use crate::item::{Effect, Effects, Hints, Kind, SelectableItem, Standing};
use crate::namespace::{self, Inferred};
use crate::plain_line::plain_line;
use crate::schema_check::{self, OnExceeded, SchemaLimits};
use crate::shape_hash;
use crate::signature::Signature;

/// The server a definition is from.
#[derive(Debug, Clone, Default)]
pub struct ServerCtx {
    /// Its registered identity.
    pub server: String,
    /// The operator's namespace for it; without one, names tell (CAT-11).
    pub namespace: Option<String>,
    /// When its declaration was accepted, counted; who was first keeps ids (CAT-26).
    pub acceptance: u64,
    /// How large schemas may be.
    pub limits: SchemaLimits,
}

/// A definition as it was accepted, with what the declaration says about it.
#[derive(Debug, Clone)]
pub struct ToolDef<'a> {
    /// Tool, resource (or template) or prompt.
    pub kind: Kind,
    /// The definition as the server sent it.
    pub definition: &'a RawValue,
    /// Declared classes of side effects.
    pub effects: Effects,
    /// The operator's tags.
    pub tags: Vec<String>,
    /// The governed identity.
    pub identity: String,
    /// The name in `tools/list`, if somebody else gives those.
    pub wire_name: Option<String>,
    /// Title and description as models may see them, if somebody made them safe; digests are over the definition.
    pub labels: Option<Labels>,
}

/// Texts for models.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels {
    /// In place of `title`.
    pub title: Option<String>,
    /// In place of `description`.
    pub description: Option<String>,
}

impl<'a> ToolDef<'a> {
    /// A tool of which nothing is known but its definition.
    pub fn tool(definition: &'a RawValue) -> Self {
        Self {
            kind: Kind::Tool,
            definition,
            effects: Effects::default(),
            tags: Vec::new(),
            identity: String::new(),
            wire_name: None,
            labels: None,
        }
    }
}

/// An item with what is only needed while the catalogue is built.
#[derive(Debug)]
pub(crate) struct Ingested {
    pub(crate) item: SelectableItem,
    pub(crate) parts: IdParts,
    pub(crate) facets: Facets,
    pub(crate) acceptance: u64,
    pub(crate) index: usize,
}

/// The item of a definition alone, or the finding that keeps it from being one.
///
/// ```
/// use portcullis_catalog::{ServerCtx, ToolDef, tool_to_selectable};
/// let definition = serde_json::value::to_raw_value(&serde_json::json!({
///     "name": "search_database", "description": "Search the database.",
///     "inputSchema": {"type": "object", "properties": {"query": {}, "limit": {}}},
/// })).unwrap();
/// let item = tool_to_selectable(&ToolDef::tool(&definition), &ServerCtx::default()).unwrap();
/// assert_eq!(item.id, "mcp:search_database#547048ac");
/// assert_eq!(item.base_id(), "mcp:search_database");
/// assert!(item.output_schema.is_none());
/// ```
pub fn tool_to_selectable(definition: &ToolDef<'_>, server: &ServerCtx) -> Result<SelectableItem, Finding> {
    let mut findings = Vec::new();
    let ingested = ingest(definition, server, 0, &mut findings);
    let fatal =
        findings.into_iter().find(|finding| match ingested.as_ref().map(|found| found.item.standing) {
            None | Some(Standing::Undeclarable) => {
                matches!(finding.kind, FindingKind::NameMissing | FindingKind::NameUndeclarable)
            }
            Some(Standing::Quarantined(kind)) => finding.kind == kind,
            Some(Standing::Callable) => false,
        });
    match (ingested, fatal) {
        (Some(ingested), None) => Ok(ingested.item),
        (_, Some(finding)) => Err(finding),
        (None, None) => unreachable!("without an item there is a finding"),
    }
}

/// The item, if there is a name to call it by.
pub(crate) fn ingest(
    definition: &ToolDef<'_>,
    server: &ServerCtx,
    index: usize,
    findings: &mut Vec<Finding>,
) -> Option<Ingested> {
    let first = findings.len();
    let mut found = |kind, name: &str, detail: String| {
        let (name, server) = (plain_line(name).0.into_owned(), server.server.clone());
        findings.push(Finding { server, index, name, tool_id: None, kind, detail });
    };
    let value: Value = serde_json::from_str(definition.definition.get()).unwrap_or(Value::Null);
    let Some(own) = own_name(definition.kind, &value) else {
        found(FindingKind::NameMissing, "", "the definition has no name".into());
        return None;
    };
    let upstream_name = own.upstream_name;
    let raw: Members<'_> = serde_json::from_str(definition.definition.get()).unwrap_or_default();
    let (args, written) = arguments(definition.kind, &value, upstream_name, &raw);
    let (namespace, name) = address(&own, definition.kind, server);
    let version = version(&value).and_then(|version| {
        if is_version(&version) {
            return Some(version);
        }
        found(FindingKind::VersionUnusable, upstream_name, "the version does not fit an id".into());
        None
    });
    if name.1 || namespace.lossy {
        found(FindingKind::NameLossy, upstream_name, "the name does not fit an id as it is".into());
    }
    let hash = (version.is_none() || name.1 || namespace.lossy).then(|| match definition.kind {
        Kind::Resource => shape_hash::of_resource(upstream_name),
        Kind::Prompt => shape_hash::of_prompt(upstream_name, &property_names(&args)),
        Kind::Tool | Kind::Internal => shape_hash::of_tool(upstream_name, &args),
    });
    let parts = IdParts {
        kind: definition.kind,
        namespace: namespace.namespace,
        name: name.0,
        version: version.clone(),
        hash,
    };

    let mut standing = Standing::Callable;
    let schemas = [(Some(&args), written.get().len()), sized(&value, &raw, "outputSchema")];
    for (schema, bytes) in schemas.into_iter().filter_map(|(schema, bytes)| Some((schema?, bytes))) {
        if let Some((kind, detail)) = schema_check::check(schema, bytes, &server.limits) {
            found(kind, upstream_name, detail);
            if !(kind.is_size() && server.limits.on_exceeded == OnExceeded::Flag) {
                standing = Standing::Quarantined(kind);
            }
        }
    }
    let digest = match to_jcs(&value) {
        Ok(canonical) => Sha256Digest::of(&canonical),
        Err(_) => {
            found(FindingKind::NotWellFormed, upstream_name, "the definition has no canonical form".into());
            standing = Standing::Quarantined(FindingKind::NotWellFormed);
            Sha256Digest::of(definition.definition.get().as_bytes())
        }
    };
    if definition.kind == Kind::Tool && upstream_name.parse::<ToolName>().is_err() {
        let detail = "no declaration can carry this name; it cannot be called";
        found(FindingKind::NameUndeclarable, upstream_name, detail.into());
        standing = Standing::Undeclarable;
    }

    let text = |key: &str| match (&definition.labels, key) {
        (Some(labels), "title") => labels.title.as_deref(),
        (Some(labels), _) => labels.description.as_deref(),
        (None, key) => value.get(key).and_then(Value::as_str),
    };
    let (shown_name, hidden_name) = plain_line(own.shown);
    let title = text("title").map(|title| plain_line(title).0.into_owned()).filter(|title| !title.is_empty());
    let (described, hidden) = plain_line(text("description").unwrap_or_default());
    if hidden_name || hidden {
        found(FindingKind::HiddenText, upstream_name, "characters that cannot be seen were removed".into());
    }
    let description = if described.is_empty() {
        found(FindingKind::DescriptionMissing, upstream_name, "there is no description".into());
        title.clone().unwrap_or_else(|| humanised(&shown_name))
    } else {
        described.into_owned()
    };
    let hints = hints(&value, &raw);
    let changes = [Effect::Write, Effect::Execute, Effect::Other].iter().any(|e| definition.effects.has(*e));
    if hints.read_only == Some(true) && changes {
        let detail = "readOnlyHint is true, the declaration says otherwise";
        found(FindingKind::AnnotationContradiction, upstream_name, detail.into());
    }
    if hints.destructive == Some(true) && definition.effects.only_reads() {
        let detail = "destructiveHint is true, the declaration says that it only reads";
        found(FindingKind::AnnotationContradiction, upstream_name, detail.into());
    }
    let cost_hint = match cost(&value) {
        Some(cost) if cost.is_finite() && cost >= 0.0 => cost,
        Some(_) => {
            found(FindingKind::CostUnusable, upstream_name, "costHint is no cost".into());
            0.0
        }
        None => 0.0,
    };
    // Hints only raise caution: a claim to be harmless is no tag where the declaration says otherwise (CAT-3).
    let tags =
        tags(&definition.tags, hints.read_only == Some(true) && !changes, hints.destructive == Some(true));

    let item = SelectableItem {
        id: parts.to_string(),
        base_id: parts.base_id(),
        kind: definition.kind,
        standing,
        server: server.server.clone(),
        upstream_name: upstream_name.to_owned(),
        name: shown_name.into_owned(),
        title,
        description,
        namespace: parts.namespace.clone(),
        tags,
        signature: Signature::of(&args),
        args_schema: written,
        output_schema: member(&raw, "outputSchema"),
        version,
        effects: definition.effects,
        side_effects: !hints.read_only.unwrap_or(false),
        hints,
        cost_hint,
        identity: definition.identity.clone(),
        definition_digest: digest,
        wire_name: definition.wire_name.clone().unwrap_or_default(),
        is_template: definition.kind == Kind::Resource && value.get("uriTemplate").is_some(),
    };
    findings[first..].iter_mut().for_each(|finding| finding.tool_id = Some(item.id.clone()));
    let facets = Facets::of(&args);
    Some(Ingested { item, parts, facets, acceptance: server.acceptance, index })
}

type Members<'a> = std::collections::HashMap<std::borrow::Cow<'a, str>, &'a RawValue>;

/// A member as it was written; `null` is as good as none.
fn member(raw: &Members<'_>, key: &str) -> Option<Box<RawValue>> {
    raw.get(key).filter(|text| text.get() != "null").map(|text| (*text).to_owned())
}

fn sized<'v>(value: &'v Value, raw: &Members<'_>, key: &str) -> (Option<&'v Value>, usize) {
    let schema = value.get(key).filter(|schema| !schema.is_null());
    (schema, raw.get(key).map_or(0, |text| text.get().len()))
}

struct OwnName<'v> {
    upstream_name: &'v str,
    shown: &'v str,
}

/// What the server is asked with, and what is shown of it.
fn own_name(kind: Kind, value: &Value) -> Option<OwnName<'_>> {
    let text = |key: &str| value.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    match kind {
        Kind::Resource => {
            let uri = text("uri").or_else(|| text("uriTemplate"))?;
            let segment = uri.trim_end_matches('/').rsplit('/').next().filter(|segment| !segment.is_empty());
            Some(OwnName { upstream_name: uri, shown: text("name").or(segment).unwrap_or(uri) })
        }
        _ => text("name").map(|name| OwnName { upstream_name: name, shown: name }),
    }
}

/// Namespace and name of the id (CAT-11, CAT-12). A resource's name is a file's as often as not, so the dots in it mean
/// nothing, and resources stand under their server.
fn address(own: &OwnName<'_>, kind: Kind, server: &ServerCtx) -> (Inferred, (String, bool)) {
    let given = |namespace: &str| Inferred { namespace: namespace.to_owned(), lossy: false, separator: None };
    let namespace = match (&server.namespace, kind) {
        (Some(namespace), _) => given(namespace),
        (None, Kind::Resource) if namespace::is_namespace(&server.server) => given(&server.server),
        (None, Kind::Resource) => given(namespace::FALLBACK),
        (None, _) => namespace::infer(own.upstream_name),
    };
    if kind == Kind::Resource {
        let name = slug(own.shown);
        return (namespace, name);
    }
    let configured = server.namespace.as_deref().and_then(|namespace| {
        let rest = own.upstream_name.strip_prefix(namespace)?;
        rest.strip_prefix(['.', '/'])
    });
    let inferred = namespace.separator.map(|index| &own.upstream_name[index + 1..]);
    let rest = configured.or(inferred).filter(|rest| !rest.is_empty()).unwrap_or(own.upstream_name);
    let name = slug(rest);
    (namespace, name)
}

/// The schema of the arguments, and how it is written.
fn arguments(kind: Kind, value: &Value, uri: &str, raw: &Members<'_>) -> (Value, Box<RawValue>) {
    let made = |schema: Value| {
        let written = serde_json::value::to_raw_value(&schema).expect("a value is JSON");
        (schema, written)
    };
    match kind {
        Kind::Tool | Kind::Internal => match member(raw, "inputSchema") {
            Some(written) => (value["inputSchema"].clone(), written),
            None => made(json!({})),
        },
        Kind::Prompt => {
            let listed = value.get("arguments").and_then(Value::as_array).into_iter().flatten();
            let listed: Vec<(&str, &Value)> =
                listed.filter_map(|argument| Some((argument.get("name")?.as_str()?, argument))).collect();
            let is_required = |argument: &Value| argument.get("required") == Some(&Value::Bool(true));
            made(strings(listed.iter().map(|(name, argument)| {
                (*name, argument.get("description").and_then(Value::as_str), is_required(argument))
            })))
        }
        Kind::Resource if value.get("uriTemplate").is_some() => {
            made(strings(template_variables(uri).map(|name| (name, None, true))))
        }
        Kind::Resource => made(json!({})),
    }
}

/// An object of strings (CAT-32).
fn strings<'a>(arguments: impl Iterator<Item = (&'a str, Option<&'a str>, bool)>) -> Value {
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for (name, description, is_required) in arguments {
        let mut schema = json!({"type": "string"});
        if let Some(description) = description {
            schema["description"] = description.into();
        }
        if properties.insert(name.to_owned(), schema).is_none() && is_required {
            required.push(name.to_owned());
        }
    }
    required.sort_unstable();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// The names between the braces of a URI template (RFC 6570), without operators and modifiers.
fn template_variables(template: &str) -> impl Iterator<Item = &str> {
    let expressions =
        template.split('{').skip(1).filter_map(|rest| rest.split_once('}').map(|(inside, _)| inside));
    expressions.flat_map(|inside| {
        let names = inside.trim_start_matches(['+', '#', '.', '/', ';', '?', '&']);
        names
            .split(',')
            .map(|name| name.split([':', '*']).next().unwrap_or(name))
            .filter(|name| !name.is_empty())
    })
}

fn property_names(schema: &Value) -> Vec<&str> {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flat_map(|map| map.keys().map(String::as_str)).collect()
}

fn version(value: &Value) -> Option<String> {
    match value.get("_meta")?.get("version")? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => Some(String::new()),
    }
}

fn hints(value: &Value, raw: &Members<'_>) -> Hints {
    let annotations = value.get("annotations").filter(|found| found.is_object());
    let flag = |key: &str| annotations.and_then(|found| found.get(key)).and_then(Value::as_bool);
    Hints {
        raw: annotations.and_then(|_| member(raw, "annotations")),
        read_only: flag("readOnlyHint"),
        destructive: flag("destructiveHint"),
    }
}

fn cost(value: &Value) -> Option<f64> {
    let annotated = value.get("annotations").and_then(|annotations| annotations.get("costHint"));
    let cost = annotated.or_else(|| value.get("_meta").and_then(|meta| meta.get("costHint")))?;
    Some(cost.as_f64().unwrap_or(f64::NAN))
}

fn tags(given: &[String], read_only: bool, destructive: bool) -> Vec<String> {
    let mut tags: Vec<String> = given.iter().map(|tag| plain_line(tag).0.into_owned()).collect();
    tags.push("mcp".into());
    tags.extend(read_only.then(|| "read-only".into()));
    tags.extend(destructive.then(|| "destructive".into()));
    tags.retain(|tag| !tag.is_empty());
    tags.sort_unstable();
    tags.dedup();
    tags
}

/// `create_issue` read as words.
fn humanised(name: &str) -> String {
    name.replace(['_', '-', '.', '/'], " ").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
#[path = "ingest_tests.rs"]
mod tests;
