//! Letting a model choose, and reading what it chose (CAT-100, CAT-101).
//!
//! For hosts that put the choice into a model's own interface. Repairs are for reading an answer, never for starting a
//! call: a prefix must not run anything.

use serde::Serialize;
use serde_json::{Value, json};

use crate::CatalogError;

/// The schema that makes a model choose one of `ids`, in the form a provider takes: `json_schema`, `openai` or `anthropic`.
pub fn selection_schema(
    ids: &[&str],
    provider: &str,
    property: &str,
    name: &str,
) -> Result<Value, CatalogError> {
    let mut distinct: Vec<&str> = Vec::new();
    for id in ids {
        if !distinct.contains(id) {
            distinct.push(id);
        }
    }
    if distinct.is_empty() {
        return Err(CatalogError::NoCandidates);
    }
    let base = json!({
        "type": "object",
        "properties": {property: {"type": "string", "enum": distinct}},
        "required": [property],
        "additionalProperties": false,
    });
    match provider {
        "json_schema" => Ok(base),
        "openai" => {
            Ok(json!({"type": "json_schema", "json_schema": {"name": name, "strict": true, "schema": base}}))
        }
        "anthropic" => {
            let description = "Choose the tool that fits the request best.";
            Ok(json!({"name": name, "description": description, "input_schema": base}))
        }
        other => Err(CatalogError::UnknownProvider { input: portcullis_core::name::printable(other) }),
    }
}

/// What came of reading a model's choice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Selection {
    /// Whether there is a choice.
    pub status: Status,
    /// The candidate.
    pub selected_id: Option<String>,
    /// What the model said.
    pub raw_id: String,
    /// What had to be done to it.
    pub repair: Option<Repair>,
    /// Why there is none.
    pub reason: Option<Reason>,
}

/// Whether there is a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Exactly a candidate.
    Accepted,
    /// A candidate, after a repair.
    Repaired,
    /// None.
    Rejected,
}

/// What had to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Repair {
    /// Blanks and quotes around it.
    Strip,
    /// Capitals.
    CaseFold,
    /// The rest of it.
    Prefix,
}

/// Why there is no choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Nothing was said.
    EmptySelection,
    /// Something else was said.
    NotACandidate,
    /// Two candidates differ in capitals only.
    AmbiguousCaseFold,
    /// Two candidates begin so.
    AmbiguousPrefix,
}

/// Reads a model's choice among `ids`.
///
/// ```
/// use portcullis_catalog::selection::{Status, validate_selection};
/// let ids = ["github:create_issue#34afee88", "github:list_repos#da62b2ed"];
/// let found = validate_selection(" GitHub:create_issue ", &ids, true).unwrap();
/// assert_eq!(found.status, Status::Repaired);
/// assert_eq!(found.selected_id.as_deref(), Some(ids[0]));
/// ```
pub fn validate_selection(raw: &str, ids: &[&str], repair: bool) -> Result<Selection, CatalogError> {
    if ids.is_empty() {
        return Err(CatalogError::NoCandidates);
    }
    let found = |status, selected: Option<&str>, repair, reason| Selection {
        status,
        selected_id: selected.map(ToOwned::to_owned),
        raw_id: raw.to_owned(),
        repair,
        reason,
    };
    let rejected = |reason| found(Status::Rejected, None, None, Some(reason));
    if let Some(exact) = ids.iter().find(|id| **id == raw) {
        return Ok(found(Status::Accepted, Some(exact), None, None));
    }
    let stripped = raw.trim().trim_matches(['"', '\'', '`']).trim();
    if stripped.is_empty() {
        return Ok(rejected(Reason::EmptySelection));
    }
    if !repair {
        return Ok(rejected(Reason::NotACandidate));
    }
    if let Some(exact) = ids.iter().find(|id| **id == stripped) {
        return Ok(found(Status::Repaired, Some(exact), Some(Repair::Strip), None));
    }
    let folded = stripped.to_lowercase();
    let mut distinct: Vec<&str> = ids.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    let one_of = |fits: &dyn Fn(&str) -> bool| {
        let mut fitting = distinct.iter().copied().filter(|id| fits(id));
        (fitting.next(), fitting.next().is_some())
    };
    match one_of(&|id| id.to_lowercase() == folded) {
        (Some(_), true) => return Ok(rejected(Reason::AmbiguousCaseFold)),
        (Some(id), false) => return Ok(found(Status::Repaired, Some(id), Some(Repair::CaseFold), None)),
        (None, _) => {}
    }
    Ok(match one_of(&|id| id.to_lowercase().starts_with(&folded)) {
        (Some(_), true) => rejected(Reason::AmbiguousPrefix),
        (Some(id), false) => found(Status::Repaired, Some(id), Some(Repair::Prefix), None),
        (None, _) => rejected(Reason::NotACandidate),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_provider_has_its_form() {
        // CAT-100
        let base = selection_schema(&["a:b", "a:c", "a:b"], "json_schema", "tool_id", "pick").unwrap();
        let expected = json!({"type": "object", "properties": {"tool_id": {"type": "string", "enum": ["a:b", "a:c"]}}, "required": ["tool_id"], "additionalProperties": false});
        assert_eq!(base, expected);
        let openai = selection_schema(&["a:b"], "openai", "tool_id", "pick").unwrap();
        assert_eq!(
            (&openai["json_schema"]["name"], &openai["json_schema"]["strict"]),
            (&json!("pick"), &json!(true))
        );
        assert!(
            selection_schema(&["a:b"], "anthropic", "tool_id", "pick").unwrap()["input_schema"].is_object()
        );
        assert_eq!(selection_schema(&[], "openai", "t", "n"), Err(CatalogError::NoCandidates));
        assert!(matches!(selection_schema(&["a"], "x", "t", "n"), Err(CatalogError::UnknownProvider { .. })));
    }

    #[test]
    fn a_choice_is_repaired_in_order_and_never_guessed() {
        // CAT-101
        let ids = ["a:One#11111111", "a:one#22222222", "b:two#33333333", "B:two#33333333"];
        let read = |raw: &str| validate_selection(raw, &ids, true).unwrap();
        assert_eq!(read("b:two#33333333").status, Status::Accepted);
        assert_eq!(read(" \"b:two#33333333\"\n").repair, Some(Repair::Strip));
        assert_eq!(read("A:ONE#11111111").repair, Some(Repair::CaseFold));
        assert_eq!(read("b:TWO#33333333").reason, Some(Reason::AmbiguousCaseFold));
        assert_eq!(read("a:one#1").repair, Some(Repair::Prefix));
        assert_eq!(read("a:one").reason, Some(Reason::AmbiguousPrefix));
        assert_eq!(read("c").reason, Some(Reason::NotACandidate));
        assert_eq!(read("  ").reason, Some(Reason::EmptySelection));
        let strict = validate_selection("a:one#1", &ids, false).unwrap();
        assert_eq!((strict.status, strict.selected_id), (Status::Rejected, None));
        assert_eq!(validate_selection("x", &[], true), Err(CatalogError::NoCandidates));
    }
}
