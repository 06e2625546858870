//! Building a prompt out of a conversation, within a budget of tokens (CTX-60 to 67).
//!
//! Eight stages: candidates by kind, sensitivity, long results in short, score, duplicates, selection of groups, rendering,
//! and a count of the final text. The budget is that of the rendered prompt, labels and separators included. Given equal
//! input, the bytes are equal.

mod dedup;
mod render;
mod score;
mod select;
mod terms;

use portcullis_core::tokens::Encoding;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use crate::artifacts::Sensitivity;
use crate::item::{ContextItem, Kind};
use crate::result::CallToolResult;
use crate::{envelope, summary};

/// Above this many characters a tool's result is said in short.
pub const THRESHOLD: usize = 2_000;

/// What the prompt is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Finding a tool.
    Route,
    /// Calling it.
    Call,
    /// Understanding what it brought.
    Interpret,
    /// Answering the user.
    Answer,
}

impl Phase {
    /// The phase of a word.
    pub fn named(word: &str) -> Option<Self> {
        match word {
            "route" => Some(Phase::Route),
            "call" => Some(Phase::Call),
            "interpret" => Some(Phase::Interpret),
            "answer" => Some(Phase::Answer),
            _ => None,
        }
    }

    /// Its budget, unless another is given.
    pub const fn budget(self) -> usize {
        match self {
            Phase::Route => 2_000,
            Phase::Call => 3_000,
            Phase::Interpret => 4_000,
            Phase::Answer => 6_000,
        }
    }

    /// Whether a kind of item belongs to it.
    pub const fn has(self, kind: Kind) -> bool {
        match self {
            Phase::Route => matches!(kind, Kind::UserTurn | Kind::PlanState | Kind::Policy),
            Phase::Call => matches!(
                kind,
                Kind::UserTurn | Kind::PlanState | Kind::Policy | Kind::AgentMsg | Kind::ToolCall
            ),
            Phase::Interpret | Phase::Answer => true,
        }
    }
}

/// What is wanted of a prompt.
#[derive(Debug, Clone)]
pub struct Build<'a> {
    /// What it is for.
    pub phase: Phase,
    /// What it is about.
    pub query: &'a str,
    /// What it is about, in tags; they count instead of the query if there are any.
    pub query_tags: &'a [String],
    /// What stands before everything.
    pub header: &'a str,
    /// What stands behind everything.
    pub footer: &'a str,
    /// How many tokens it may have; the phase's own if not said.
    pub budget: Option<usize>,
    /// Whose tokens.
    pub encoder: Encoding,
    /// Whether sensitive items leave a line instead of nothing.
    pub redact_sensitive: bool,
    /// How many items of a kind at most.
    pub max_per_kind: BTreeMap<Kind, usize>,
    /// Above how many characters a tool's result is said in short.
    pub threshold: usize,
}

impl<'a> Build<'a> {
    /// A prompt for a phase, about something.
    pub fn new(phase: Phase, query: &'a str) -> Self {
        Self {
            phase,
            query,
            query_tags: &[],
            header: "",
            footer: "",
            budget: None,
            encoder: Encoding::default(),
            redact_sensitive: false,
            max_per_kind: BTreeMap::new(),
            threshold: THRESHOLD,
        }
    }
}

/// A prompt.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Built {
    /// The text.
    pub prompt: String,
    /// Its tokens.
    pub tokens: usize,
    /// The items in it, in order.
    pub included: Vec<String>,
    /// The items that are not, and why.
    pub dropped: Vec<Dropped>,
}

/// An item that is not in the prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Dropped {
    /// Which.
    pub id: String,
    /// Why.
    pub reason: Reason,
}

/// Why an item is not in a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Reason {
    /// Its kind is not for this phase.
    Kind,
    /// It is too sensitive.
    Sensitivity,
    /// Another says the same.
    Duplicate,
    /// There is no room.
    Budget,
    /// There are enough of its kind.
    Limit,
}

/// Why there is no prompt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// Rules, the latest turn of the user, header and footer alone are too much.
    #[error("BUDGET_TOO_SMALL: what must be in the prompt has {needed} tokens, the budget is {budget}")]
    BudgetTooSmall {
        /// What it would take.
        needed: usize,
        /// What there is.
        budget: usize,
    },
}

/// An id that is there already.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is an item {0:?} already")]
pub struct DuplicateId(pub String);

/// A conversation of which prompts are built.
#[derive(Debug, Clone, Default)]
pub struct ContextBuilder {
    items: Vec<ContextItem>,
    places: HashMap<String, usize>,
}

impl ContextBuilder {
    /// An empty conversation.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an item.
    pub fn ingest(&mut self, mut item: ContextItem) -> Result<(), DuplicateId> {
        if self.places.contains_key(&item.id) {
            return Err(DuplicateId(item.id));
        }
        item.seq = self.items.len();
        self.places.insert(item.id.clone(), item.seq);
        self.items.push(item);
        Ok(())
    }

    /// Adds the result of a call; long ones in short. Gives the item's id: `result:<call>`, a second one
    /// `result:<call>:2`.
    pub fn ingest_tool_result(
        &mut self,
        call_id: &str,
        raw: &str,
        tool: &str,
        media_type: &str,
        threshold: usize,
    ) -> String {
        let mut id = format!("result:{call_id}");
        let mut number = 2;
        while self.places.contains_key(&id) {
            id = format!("result:{call_id}:{number}");
            number += 1;
        }
        let mut item =
            ContextItem::new(id.clone(), Kind::ToolResult, in_short(raw, tool, threshold).into_owned());
        item.parent_id = self.places.contains_key(call_id).then(|| call_id.to_owned());
        item.metadata.insert("tool_name".into(), tool.into());
        item.metadata.insert("media_type".into(), media_type.into());
        if item.text != raw {
            item.metadata.insert("original_chars".into(), raw.chars().count().into());
        }
        self.ingest(item).expect("the id is free");
        id
    }

    /// What has been ingested.
    pub fn items(&self) -> &[ContextItem] {
        &self.items
    }

    /// Builds a prompt.
    pub fn build(&self, build: &Build<'_>) -> Result<Built, BuildError> {
        let mut fates: Vec<Fate> = self.items.iter().map(|_| Fate::Candidate).collect();
        let mut texts: Vec<Cow<'_, str>> = Vec::with_capacity(self.items.len());
        for (at, item) in self.items.iter().enumerate() {
            texts.push(item.text.as_str().into());
            if !build.phase.has(item.kind) {
                fates[at] = Fate::Dropped(Reason::Kind);
            } else if item.sensitivity >= Sensitivity::Confidential {
                if build.redact_sensitive {
                    texts[at] = format!("[REDACTED: {}]", item.sensitivity.as_str()).into();
                } else {
                    fates[at] = Fate::Dropped(Reason::Sensitivity);
                }
            } else if item.kind == Kind::ToolResult {
                let tool =
                    item.metadata.get("tool_name").and_then(serde_json::Value::as_str).unwrap_or("tool");
                if let Cow::Owned(short) = in_short(&item.text, tool, build.threshold) {
                    texts[at] = short.into();
                }
            }
        }
        let mut stage = Stage { items: &self.items, places: &self.places, texts, fates, build };
        let scored = score::score(&stage);
        dedup::dedup(&mut stage, &scored);
        select::limit(&mut stage, &scored);
        select::select(stage, &scored)
    }
}

/// What became of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Candidate,
    Dropped(Reason),
}

/// A build on its way through the stages.
pub(crate) struct Stage<'s> {
    items: &'s [ContextItem],
    places: &'s HashMap<String, usize>,
    texts: Vec<Cow<'s, str>>,
    fates: Vec<Fate>,
    build: &'s Build<'s>,
}

impl Stage<'_> {
    fn is_candidate(&self, at: usize) -> bool {
        self.fates[at] == Fate::Candidate
    }

    fn parent(&self, at: usize) -> Option<usize> {
        self.places.get(self.items[at].parent_id.as_deref()?).copied()
    }
}

/// The firewall for a text: its beginning and what it says line by line; itself, if it is short already.
fn in_short<'t>(text: &'t str, tool: &str, threshold: usize) -> Cow<'t, str> {
    if text.len() <= threshold || text.chars().nth(threshold).is_none() {
        return text.into();
    }
    let result = serde_json::json!({"content": [{"type": "text", "text": text}]}).to_string();
    let result = CallToolResult::read(&result);
    let (envelope, ..) = envelope::result_to_envelope(&result, tool);
    let mut short = envelope.summary.clone();
    let facts = envelope.facts.iter().filter(|fact| !envelope.summary.contains(fact.as_str()));
    let facts: Vec<&str> = facts.map(String::as_str).collect();
    if !facts.is_empty() {
        short.push('\n');
        short.push_str(summary::head(&facts.join("\n"), 400));
    }
    short.push_str(&format!("\n(… {} characters in all)", text.chars().count()));
    if short.len() < text.len() { short.into() } else { text.into() }
}
