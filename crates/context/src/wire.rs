//! An envelope as a model reads it (CTX-7).

use serde::Serialize;

use crate::envelope::{ArtifactRef, Provenance, ResultEnvelope, Status};

/// How much of an envelope is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// What a model can use.
    #[default]
    Lean,
    /// Every field.
    Full,
}

/// Facts are repeated in the lean form up to this many characters, so that an envelope stays short whatever the
/// text; the full form has them all.
const LEAN_FACT_CHARS: usize = 400;

impl ResultEnvelope {
    /// The envelope as compact JSON.
    pub fn to_json(&self, format: Format) -> String {
        let written = match format {
            Format::Full => serde_json::to_string(self),
            Format::Lean => serde_json::to_string(&Lean::of(self)),
        };
        written.expect("an envelope is plain data")
    }
}

/// Key for key the full form without what is empty, what only programs need, and what is said already.
#[derive(Serialize)]
struct Lean<'a> {
    status: Status,
    summary: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    facts: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    artifacts: Vec<ArtifactRef>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    views: &'a [&'static str],
    #[serde(skip_serializing_if = "Option::is_none")]
    shape: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    provenance: Option<LeanProvenance<'a>>,
}

#[derive(Serialize)]
struct LeanProvenance<'a> {
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    content_annotations: &'a [serde_json::Value],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    arg_repairs: &'a [serde_json::Value],
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cache_hit: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    redactions: Option<u64>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    invalid_parts: &'a [usize],
}

impl<'a> Lean<'a> {
    fn of(envelope: &'a ResultEnvelope) -> Self {
        let mut room = LEAN_FACT_CHARS;
        let facts = (envelope.facts.iter())
            .map(String::as_str)
            .filter(|fact| !envelope.summary.contains(fact))
            .take_while(|fact| {
                let chars = fact.chars().count();
                let fits = chars <= room;
                room = room.saturating_sub(chars);
                fits
            })
            .collect();
        let artifacts = envelope.artifacts.iter().cloned();
        Self {
            status: envelope.status,
            summary: &envelope.summary,
            facts,
            artifacts: artifacts.map(|one| ArtifactRef { content_hash: None, ..one }).collect(),
            views: &envelope.views,
            shape: envelope.shape.as_deref(),
            provenance: LeanProvenance::of(&envelope.provenance),
        }
    }
}

impl<'a> LeanProvenance<'a> {
    fn of(provenance: &'a Provenance) -> Option<Self> {
        let Provenance { content_annotations, arg_repairs, cache_hit, redactions, invalid_parts, .. } =
            provenance;
        let lean = Self {
            content_annotations,
            arg_repairs,
            cache_hit: *cache_hit,
            redactions: (*redactions > 0).then_some(*redactions),
            invalid_parts,
        };
        let says_nothing = content_annotations.is_empty()
            && arg_repairs.is_empty()
            && !cache_hit
            && *redactions == 0
            && invalid_parts.is_empty();
        (!says_nothing).then_some(lean)
    }
}
