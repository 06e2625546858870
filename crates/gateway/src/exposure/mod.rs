//! How much of the catalogue a client sees at once (CTX-70).
//!
//! | mode | what is listed | how a tool is called |
//! |---|---|---|
//! | passthrough | every definition, whole | by its name |
//! | transparent | every name with a card's description, and no schema | by its name or with `tool_execute`; `tool_hydrate` has the schema |
//! | gateway | a few tools to search and to call with | `tool_browse`, then `tool_execute` |
//!
//! All modes share one lifecycle: what differs is what is listed, by which name a tool is found, and that refusals are
//! results a model can read.

pub(crate) mod definitions;
mod embeddings;
pub(crate) mod meta_call;
pub(crate) mod refusal;
pub(crate) mod shape;
mod shelf;

use std::collections::BTreeMap;

use portcullis_catalog::{BrowseOptions, Form, SchemaLimits};
use portcullis_gauntlet::Glob;
use serde::{Deserialize, Serialize};

pub use embeddings::Embeddings;
pub(crate) use meta_call::Manner;
pub(crate) use shelf::Shelf;

/// What a client is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Everything, whole.
    Passthrough,
    /// Every name, no schema.
    Transparent,
    /// A way to search, and to call what was found.
    Gateway,
}

impl Mode {
    /// The mode of that name.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "passthrough" => Mode::Passthrough,
            "transparent" => Mode::Transparent,
            "gateway" => Mode::Gateway,
            _ => return None,
        })
    }

    /// The word in configuration, on the command line and in URLs.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Passthrough => "passthrough",
            Mode::Transparent => "transparent",
            Mode::Gateway => "gateway",
        }
    }
}

/// With up to this many tools a list is cheap enough to be given whole, unless somebody says otherwise.
const FEW_TOOLS: usize = 100;
/// Clients that search long lists of tools themselves, and our own, which knows the names.
const SEARCH_THEMSELVES: [&str; 2] = ["claude-code", "portcullis-call"];

/// How the catalogue is shown.
#[derive(Debug, Clone, Default)]
pub struct ExposureOptions {
    /// For everybody whom nothing more special is said about; if nothing is, it depends on the client and on how many tools
    /// there are.
    pub mode: Option<Mode>,
    /// By what clients call themselves. That is no proof of anything, and decides about looks only.
    pub clients: BTreeMap<String, Mode>,
    /// The operator's namespaces of servers (CAT-11).
    pub namespaces: BTreeMap<String, String>,
    /// Which tools of a server are shown; by server.
    pub filters: BTreeMap<String, Filter>,
    /// How large schemas may be.
    pub limits: SchemaLimits,
    /// How browsing answers.
    pub browse: Browsing,
    /// Words that stand for one another, besides the built-in ones.
    pub synonyms: Option<std::sync::Arc<portcullis_catalog::Synonyms>>,
    /// What finds by meaning, if an operator installed it.
    pub embeddings: Option<Embeddings>,
}

/// Which of a server's tools are shown: hides, never declares.
#[derive(Debug, Clone)]
pub struct Filter {
    /// Names that are shown.
    pub include: Vec<Glob>,
    /// Names that are not, even so.
    pub exclude: Vec<Glob>,
}

impl Filter {
    fn shows(&self, name: &str) -> bool {
        self.include.iter().any(|glob| glob.matches(name))
            && !self.exclude.iter().any(|glob| glob.matches(name))
    }
}

/// How browsing answers.
#[derive(Debug, Clone, Copy)]
pub struct Browsing {
    /// The form of cards.
    pub form: Form,
    /// How many cards a search shows.
    pub top_k: usize,
    /// Whether cards tell how well they fit.
    pub scores: bool,
    /// Whether answers begin with everything shown before (CAT-92).
    pub cache_stable: bool,
    /// How many near copies of one tool are shown.
    pub family_max: usize,
}

impl Default for Browsing {
    fn default() -> Self {
        Self { form: Form::Lines, top_k: 10, scores: false, cache_stable: false, family_max: 1 }
    }
}

impl Browsing {
    pub(crate) fn options(self, kind: portcullis_catalog::Kind) -> BrowseOptions {
        BrowseOptions {
            form: self.form,
            top_k: self.top_k,
            scores: self.scores,
            family_max: self.family_max,
            kind,
        }
    }
}

impl ExposureOptions {
    /// What a client sees that did not choose itself: what the operator said of it, what the operator said of all, or
    /// whatever costs it least.
    pub(crate) fn choose(&self, client: &str, tools: usize) -> Mode {
        if let Some(mode) = self.clients.get(client) {
            return *mode;
        }
        let searches_itself = SEARCH_THEMSELVES.contains(&client);
        match self.mode {
            // Ours calls tools by the names an operator types.
            _ if client == "portcullis-call" => Mode::Passthrough,
            Some(mode) => mode,
            None if searches_itself || tools <= FEW_TOOLS => Mode::Passthrough,
            None => Mode::Gateway,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_chosen_by_what_is_said_most_specially() {
        // CTX-70
        let mut options = ExposureOptions::default();
        assert_eq!(options.choose("cursor", 12), Mode::Passthrough);
        assert_eq!(options.choose("cursor", 300), Mode::Gateway);
        assert_eq!(options.choose("claude-code", 300), Mode::Passthrough);
        options.mode = Some(Mode::Transparent);
        assert_eq!(options.choose("cursor", 300), Mode::Transparent);
        assert_eq!(options.choose("portcullis-call", 300), Mode::Passthrough);
        options.clients.insert("cursor".into(), Mode::Gateway);
        assert_eq!(options.choose("cursor", 1), Mode::Gateway);
    }
}
