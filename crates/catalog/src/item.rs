//! What an agent can choose (CAT-2).

use serde::Serialize;
use serde_json::value::RawValue;

use portcullis_core::Sha256Digest;

use crate::finding::FindingKind;
use crate::id::IdParts;
use crate::signature::Signature;

/// What kind of thing an item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Something that can be called.
    Tool,
    /// Something that can be read, or a template of such.
    Resource,
    /// Something that can be rendered.
    Prompt,
    /// A node on the way to items.
    Internal,
}

impl Kind {
    /// The word on cards.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Tool => "tool",
            Kind::Resource => "resource",
            Kind::Prompt => "prompt",
            Kind::Internal => "internal",
        }
    }
}

/// One class of side effects of an accepted declaration, in the order cards name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Reads.
    Read,
    /// Changes something.
    Write,
    /// Runs something.
    Execute,
    /// Talks to others.
    Network,
    /// Sees secrets.
    SecretAccess,
    /// Whatever else.
    Other,
}

impl Effect {
    /// All of them, in order.
    pub const ALL: [Effect; 6] =
        [Effect::Read, Effect::Write, Effect::Execute, Effect::Network, Effect::SecretAccess, Effect::Other];

    /// The word in declarations and on cards.
    pub fn as_str(self) -> &'static str {
        match self {
            Effect::Read => "read",
            Effect::Write => "write",
            Effect::Execute => "execute",
            Effect::Network => "network",
            Effect::SecretAccess => "secret_access",
            Effect::Other => "other",
        }
    }

    /// The effect of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|effect| effect.as_str() == name)
    }
}

/// The declared effects of one item; none means pure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Effects(u8);

impl Effects {
    /// Whether it has this one.
    pub fn has(self, effect: Effect) -> bool {
        self.0 & (1 << effect as u8) != 0
    }

    /// In the order of cards.
    pub fn iter(self) -> impl Iterator<Item = Effect> {
        Effect::ALL.into_iter().filter(move |effect| self.has(*effect))
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether nothing is done but reading.
    pub fn only_reads(self) -> bool {
        self.0 == 1 << Effect::Read as u8
    }
}

impl FromIterator<Effect> for Effects {
    fn from_iter<I: IntoIterator<Item = Effect>>(effects: I) -> Self {
        Self(effects.into_iter().fold(0, |set, effect| set | 1 << effect as u8))
    }
}

/// What a server claims about its tool; nobody has verified it (CAT-3).
#[derive(Debug, Clone, Default)]
pub struct Hints {
    /// The annotations, verbatim.
    pub raw: Option<Box<RawValue>>,
    /// `readOnlyHint`.
    pub read_only: Option<bool>,
    /// `destructiveHint`.
    pub destructive: Option<bool>,
}

/// Whether an item can be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It can.
    Callable,
    /// Registered, hidden from search, refused when called (CAT-42).
    Quarantined(FindingKind),
    /// Shown to the operator only: no declaration can carry the name (CAT-12).
    Undeclarable,
}

/// How careful one should be (CAT-80).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Safety {
    /// The hint or the declaration says so.
    Destructive,
    /// The declaration says so; no hint can.
    ReadOnly,
    /// Nobody has said.
    Unknown,
}

impl Safety {
    /// The word on cards.
    pub fn as_str(self) -> &'static str {
        match self {
            Safety::Destructive => "destructive",
            Safety::ReadOnly => "read_only",
            Safety::Unknown => "",
        }
    }
}

/// One thing an agent can choose.
#[derive(Debug, Clone)]
pub struct SelectableItem {
    /// The canonical id.
    pub id: String,
    /// The id without version and hash.
    pub base_id: String,
    /// What it is.
    pub kind: Kind,
    /// Whether it can be called.
    pub standing: Standing,
    /// The registered server.
    pub server: String,
    /// The name or URI exactly as declared; what the server is asked with.
    pub upstream_name: String,
    /// The same on one line.
    pub name: String,
    /// The server's title for it.
    pub title: Option<String>,
    /// One line.
    pub description: String,
    /// Presentation; grants nothing.
    pub namespace: String,
    /// Sorted; always has `mcp`.
    pub tags: Vec<String>,
    /// `inputSchema`; `{}` if there is none.
    pub args_schema: Box<RawValue>,
    /// `outputSchema`, verbatim.
    pub output_schema: Option<Box<RawValue>>,
    /// `_meta.version`.
    pub version: Option<String>,
    /// Declared classes.
    pub effects: Effects,
    /// Claims of the server.
    pub hints: Hints,
    /// Informational: `!readOnlyHint`.
    pub side_effects: bool,
    /// From `costHint`; finite, not negative.
    pub cost_hint: f64,
    /// The governed identity.
    pub identity: String,
    /// Over the canonical form of the whole definition.
    pub definition_digest: Sha256Digest,
    /// Its arguments in short (CAT-81).
    pub signature: Signature,
    /// The name in `tools/list` (CAT-24).
    pub wire_name: String,
    /// A template's variables are its arguments (CAT-31).
    pub is_template: bool,
}

impl SelectableItem {
    /// The seed's short form (CAT-23).
    pub fn base_id(&self) -> &str {
        &self.base_id
    }

    /// Hints only ever raise caution (CAT-3, CAT-80).
    pub fn safety(&self) -> Safety {
        if self.hints.destructive == Some(true) || self.tags.iter().any(|tag| tag == "destructive") {
            Safety::Destructive
        } else if self.effects.only_reads() {
            Safety::ReadOnly
        } else {
            Safety::Unknown
        }
    }

    /// Whether search and browsing may show it.
    pub fn is_listed(&self) -> bool {
        self.standing == Standing::Callable
    }

    pub(crate) fn rename(&mut self, parts: &IdParts) {
        self.id = parts.to_string();
        self.base_id = parts.base_id();
        self.namespace.clone_from(&parts.namespace);
    }
}
