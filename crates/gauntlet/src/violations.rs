//! What is wrong with a value, in an order that never changes and in words that quote nothing.
//!
//! A validator's own error texts repeat the offending value: a bearer token from the arguments, or an
//! instruction to the model that a server hid in a result it knew would be refused. So the texts here are ours,
//! made from the schema's keyword and the schema's own limits only (GNT-S10). And where the value comes from a
//! server even its keys are hostile: a pointer into a result stops at the last name the schema declares
//! (GNT-S11).

use portcullis_core::canon::push_segment;
use serde::Serialize;

use crate::SchemaRole;
use crate::survey::Survey;
use crate::validator::{Complaint, Exhausted, Name, Step};

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

    /// Validation was given up.
    pub(crate) fn given_up() -> Self {
        let violations = Self::at_root("budget", "validation takes too long");
        Self { budget_exceeded: true, ..violations }
    }

    /// What `explain` complains about, ordered and cut.
    pub(crate) fn collect(
        explain: impl FnOnce(&mut dyn FnMut(Complaint)) -> Result<(), Exhausted>,
        role: SchemaRole,
        survey: &Survey,
    ) -> Self {
        let mut found = Vec::new();
        let mut truncated = false;
        let explained = explain(&mut |mut complaint| {
            complaint.message = told(&complaint, role);
            // Whose name it was has been decided; errors that read the same are one.
            complaint.name = None;
            found.push(complaint);
            if found.len() > HELD {
                truncated |= keep_first(&mut found);
            }
        });
        if explained.is_err() {
            return Self::given_up();
        }
        truncated |= keep_first(&mut found);
        let errors = found
            .into_iter()
            .map(|Complaint { instance, keyword, message, .. }| {
                let (pointer, cut) = pointer(&instance, role, survey);
                truncated |= cut;
                Violation { pointer, keyword: keyword.to_owned(), message }
            })
            .collect();
        Self { errors, truncated, budget_exceeded: false }
    }
}

fn keep_first(found: &mut Vec<Complaint>) -> bool {
    found.sort();
    found.dedup();
    let more = found.len() > MAX_ERRORS;
    found.truncate(MAX_ERRORS);
    more
}

/// A caller is told its unknown members by name; a server's are not repeated.
fn told(complaint: &Complaint, role: SchemaRole) -> String {
    match &complaint.name {
        Some(Name::Given(_)) if role == SchemaRole::Output => complaint.message.clone(),
        Some(Name::Declared(name) | Name::Given(name)) => with_name(&complaint.message, name),
        None => complaint.message.clone(),
    }
}

/// The pointer as it may be told, and whether it had to be cut for its length.
fn pointer(steps: &[Step], role: SchemaRole, survey: &Survey) -> (String, bool) {
    let mut pointer = String::new();
    for step in steps {
        let end = pointer.len();
        match step {
            Step::Index(index) => push_segment(&mut pointer, &index.to_string()),
            Step::Key(key) if role == SchemaRole::Input || survey.declared.contains(key) => {
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

/// `text "name"` if the name cannot be mistaken for anything else, `text` otherwise.
fn with_name(text: &str, name: &str) -> String {
    let plain = (1..=64).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'));
    if plain { format!("{text} \"{name}\"") } else { text.to_owned() }
}
