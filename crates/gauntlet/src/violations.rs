//! What is wrong with a value, in an order that never changes and in words that quote nothing.
//!
//! A validator's own error texts repeat the offending value: a bearer token from the arguments, or an
//! instruction to the model that a server hid in a result it knew would be refused. So the texts here are ours,
//! made from the schema's keyword and the schema's own limits only (GNT-S10). And where the value comes from a
//! server even its keys are hostile: a pointer into a result stops at the last name the schema declares
//! (GNT-S11).

use jsonschema::ValidationError;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use portcullis_core::canon::push_segment;
use serde::Serialize;
use serde_json::Value;

use crate::SchemaRole;
use crate::survey::Survey;

/// GNT-S8: how many errors are told.
pub const MAX_ERRORS: usize = 10;
/// GNT-S9: the longest pointer told, in bytes.
pub const MAX_POINTER_BYTES: usize = 512;
/// How many errors are held before the list is cut to the first few again.
const HELD: usize = 512;

/// One thing wrong with a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// RFC 6901 pointer to the place in the value; empty at the root.
    pub pointer: String,
    /// The schema keyword that is not met.
    pub keyword: String,
    /// What is expected, in our words.
    pub message: String,
}

/// Everything wrong with a value, as far as it is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaViolations {
    /// The first few, ordered by place in the value, then by place in the schema (GNT-S8).
    pub errors: Vec<Violation>,
    /// Whether there are more, or a pointer was cut.
    pub truncated: bool,
    /// Whether validation was given up: the value is refused, but nothing is known about it (GNT-S6).
    pub budget_exceeded: bool,
}

impl SchemaViolations {
    /// The place of the first error.
    pub fn schema_path(&self) -> &str {
        self.errors.first().map_or("", |error| &error.pointer)
    }

    /// One error at the root.
    pub(crate) fn at_root(keyword: &str, message: &str) -> Self {
        let error =
            Violation { pointer: String::new(), keyword: keyword.to_owned(), message: message.to_owned() };
        Self { errors: vec![error], truncated: false, budget_exceeded: false }
    }

    pub(crate) fn collect<'i>(
        errors: impl Iterator<Item = ValidationError<'i>>,
        instance: &Value,
        role: SchemaRole,
        survey: &Survey,
    ) -> Self {
        let mut found = Vec::new();
        let mut truncated = false;
        let mut budget_exceeded = false;
        for error in errors {
            budget_exceeded |= matches!(
                error.kind(),
                ValidationErrorKind::BacktrackLimitExceeded { .. }
                    | ValidationErrorKind::RegexEngineFailure { .. }
            );
            let at = Place {
                instance: steps(error.instance_path().as_str(), Some(instance)),
                schema: steps(error.schema_path().as_str(), None),
                evaluation: steps(error.evaluation_path().as_str(), None),
            };
            let (keyword, messages) = match closed_and_empty(&error, instance) {
                Some(unexpected) => ("additionalProperties", unexpected_members(unexpected, role)),
                None => (error.kind().keyword(), texts(error.kind(), role)),
            };
            for message in messages {
                found.push((at.clone(), keyword.to_owned(), message));
            }
            if found.len() > HELD {
                truncated |= keep_first(&mut found);
            }
        }
        truncated |= keep_first(&mut found);
        let errors = found
            .into_iter()
            .map(|(at, keyword, message)| {
                let (pointer, cut) = pointer(&at.instance, role, survey);
                truncated |= cut;
                Violation { pointer, keyword, message }
            })
            .collect();
        Self { errors, truncated, budget_exceeded }
    }
}

fn keep_first(found: &mut Vec<(Place, String, String)>) -> bool {
    found.sort();
    found.dedup();
    let more = found.len() > MAX_ERRORS;
    found.truncate(MAX_ERRORS);
    more
}

/// Where an error stands. The derived order is the order of GNT-S8: field by field, step by step, a prefix
/// before what it is a prefix of, indices by number, keys by code point (which is how UTF-8 sorts).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    instance: Vec<Step>,
    schema: Vec<Step>,
    evaluation: Vec<Step>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Index(usize),
    Key(String),
}

/// The steps of an RFC 6901 pointer. With the document at hand, a number is an index exactly where the
/// document has an array; without it, wherever it looks like one.
fn steps(pointer: &str, document: Option<&Value>) -> Vec<Step> {
    let mut here = document;
    pointer
        .split('/')
        .skip(1)
        .map(|segment| {
            let name = segment.replace("~1", "/").replace("~0", "~");
            let step = match (name.parse::<usize>(), here) {
                (Ok(index), None | Some(Value::Array(_))) => Step::Index(index),
                _ => Step::Key(name),
            };
            here = here.and_then(|value| match &step {
                Step::Index(index) => value.get(index),
                Step::Key(key) => value.get(key),
            });
            step
        })
        .collect()
}

/// The pointer as it may be told, and whether it had to be cut for its length.
fn pointer(steps: &[Step], role: SchemaRole, survey: &Survey) -> (String, bool) {
    let mut pointer = String::new();
    for step in steps {
        let end = pointer.len();
        match step {
            Step::Index(index) => push_segment(&mut pointer, &index.to_string()),
            Step::Key(key) if role == SchemaRole::Input || survey.declared.contains(key.as_str()) => {
                push_segment(&mut pointer, key);
            }
            Step::Key(_) => return (pointer, false),
        }
        if pointer.len() > MAX_POINTER_BYTES {
            pointer.truncate(end);
            return (pointer, true);
        }
    }
    (pointer, false)
}

/// The members of an object that may have none. The validator reports `additionalProperties: false` without
/// any `properties` as a value under a `false` schema, which would tell a caller nothing.
fn closed_and_empty<'v>(
    error: &ValidationError<'_>,
    instance: &'v Value,
) -> Option<impl Iterator<Item = &'v str>> {
    let closed = matches!(error.kind(), ValidationErrorKind::FalseSchema)
        && error.schema_path().as_str().ends_with("/additionalProperties");
    let members = instance.pointer(error.instance_path().as_str())?.as_object()?;
    closed.then(|| members.keys().map(String::as_str))
}

/// What is expected, one text per thing wrong.
fn texts(kind: &ValidationErrorKind, role: SchemaRole) -> Vec<String> {
    use ValidationErrorKind as Kind;
    match kind {
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            unexpected_members(unexpected.iter().map(String::as_str), role)
        }
        kind => vec![text(kind)],
    }
}

/// A caller is told its unknown members one by one; a server's are not repeated.
fn unexpected_members<'v>(names: impl Iterator<Item = &'v str>, role: SchemaRole) -> Vec<String> {
    let text = "property not allowed";
    match role {
        SchemaRole::Input => names.map(|name| with_name(text, name)).collect(),
        SchemaRole::Output => vec![text.to_owned()],
    }
}

fn text(kind: &ValidationErrorKind) -> String {
    use ValidationErrorKind as Kind;
    match kind {
        Kind::Type { kind } => format!("expected {}", type_names(kind)),
        Kind::Required { property } => {
            with_name("missing required property", property.as_str().unwrap_or_default())
        }
        Kind::AdditionalItems { .. } | Kind::UnevaluatedItems { .. } => "item not allowed".into(),
        Kind::Enum { .. } | Kind::Constant { .. } | Kind::FalseSchema | Kind::Not { .. } => {
            "value not allowed".into()
        }
        Kind::Minimum { limit } => format!("must be >= {limit}"),
        Kind::ExclusiveMinimum { limit } => format!("must be > {limit}"),
        Kind::Maximum { limit } => format!("must be <= {limit}"),
        Kind::ExclusiveMaximum { limit } => format!("must be < {limit}"),
        Kind::MultipleOf { multiple_of } => format!("must be a multiple of {multiple_of}"),
        Kind::MinLength { limit } => format!("must have at least {limit} characters"),
        Kind::MaxLength { limit } => format!("must have at most {limit} characters"),
        Kind::MinItems { limit } => format!("must have at least {limit} items"),
        Kind::MaxItems { limit } => format!("must have at most {limit} items"),
        Kind::MinProperties { limit } => format!("must have at least {limit} properties"),
        Kind::MaxProperties { limit } => format!("must have at most {limit} properties"),
        Kind::Pattern { .. } => "does not match the required pattern".into(),
        Kind::BacktrackLimitExceeded { .. } | Kind::RegexEngineFailure { .. } => {
            "the required pattern could not be evaluated".into()
        }
        Kind::PropertyNames { .. } => "property name not allowed".into(),
        Kind::UniqueItems => "items must differ from each other".into(),
        Kind::Contains => "does not contain the required item".into(),
        Kind::AnyOf { .. } | Kind::OneOfNotValid { .. } => "matches none of the allowed forms".into(),
        Kind::OneOfMultipleValid { .. } => "matches more than one of the exclusive forms".into(),
        _ => "not valid".into(),
    }
}

/// `text "name"` if the name cannot be mistaken for anything else, `text` otherwise.
fn with_name(text: &str, name: &str) -> String {
    let plain = (1..=64).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'));
    if plain { format!("{text} \"{name}\"") } else { text.to_owned() }
}

fn type_names(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(one) => one.to_string(),
        TypeKind::Multiple(set) => {
            let names: Vec<_> = set.iter().map(|one| one.to_string()).collect();
            names.join(" or ")
        }
    }
}
