//! What is odd about a definition: told to the operator, never a reason to refuse another one (CAT-42).

use serde::Serialize;

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// A schema is not a schema.
    NotWellFormed,
    /// A schema refers to something outside itself.
    RemoteRef,
    /// A schema has too many bytes.
    SizeExceeded,
    /// A schema is nested too deeply.
    DepthExceeded,
    /// A schema has too many properties.
    PropertiesExceeded,
    /// One server defines one name in two ways.
    DuplicateDefinition,
    /// There is no name.
    NameMissing,
    /// No declaration can carry the name.
    NameUndeclarable,
    /// There is no description.
    DescriptionMissing,
    /// The name does not fit an id as it is.
    NameLossy,
    /// The version does not fit an id.
    VersionUnusable,
    /// Two items would have one id.
    IdCollision,
    /// One server lists the same definition twice.
    DuplicateIdentical,
    /// A hint says other than the declaration.
    AnnotationContradiction,
    /// A card has more tokens than cards may have.
    CardOverCap,
    /// A name or description had characters that cannot be seen.
    HiddenText,
    /// A cost that is none.
    CostUnusable,
    /// A listing names a page again.
    CursorLoop,
    /// A listing is longer than is read.
    ListTruncated,
    /// Embeddings could not be used; search goes by words alone.
    SemanticUnavailable,
}

impl FindingKind {
    /// The word in reports.
    pub fn as_str(self) -> &'static str {
        use FindingKind::*;
        match self {
            NotWellFormed => "not_well_formed",
            RemoteRef => "remote_ref",
            SizeExceeded => "size_exceeded",
            DepthExceeded => "depth_exceeded",
            PropertiesExceeded => "properties_exceeded",
            DuplicateDefinition => "duplicate_definition",
            NameMissing => "name_missing",
            NameUndeclarable => "name_undeclarable",
            DescriptionMissing => "description_missing",
            NameLossy => "name_lossy",
            VersionUnusable => "version_unusable",
            IdCollision => "id_collision",
            DuplicateIdentical => "duplicate_identical",
            AnnotationContradiction => "annotation_contradiction",
            CardOverCap => "card_over_cap",
            HiddenText => "hidden_text",
            CostUnusable => "cost_unusable",
            CursorLoop => "cursor_loop",
            ListTruncated => "list_truncated",
            SemanticUnavailable => "semantic_unavailable",
        }
    }

    /// Whether it is about the size of a schema, which an operator may let pass.
    pub fn is_size(self) -> bool {
        matches!(
            self,
            FindingKind::SizeExceeded | FindingKind::DepthExceeded | FindingKind::PropertiesExceeded
        )
    }
}

/// One thing found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// Whose definition.
    pub server: String,
    /// Which of its list, from 0.
    pub index: usize,
    /// Its name, on one line.
    pub name: String,
    /// Its id, if it got one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_id: Option<String>,
    /// What was found.
    pub kind: FindingKind,
    /// In our words.
    pub detail: String,
}
