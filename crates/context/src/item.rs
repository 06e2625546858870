//! What a conversation is made of, as the context builder knows it (CTX-50, CTX-60).

use serde::Serialize;
use serde_json::{Map, Value};

use crate::artifacts::Sensitivity;

/// What an item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// What the user said.
    UserTurn,
    /// What the agent said.
    AgentMsg,
    /// A call.
    ToolCall,
    /// What a call brought.
    ToolResult,
    /// Part of a document.
    DocSnippet,
    /// A document that was found.
    RetrievedDoc,
    /// Something remembered.
    MemoryFact,
    /// What the agent is about to do.
    PlanState,
    /// A rule it has to keep.
    Policy,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 9] = [
        Kind::UserTurn,
        Kind::AgentMsg,
        Kind::ToolCall,
        Kind::ToolResult,
        Kind::DocSnippet,
        Kind::RetrievedDoc,
        Kind::MemoryFact,
        Kind::PlanState,
        Kind::Policy,
    ];

    /// The word in a session file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::UserTurn => "user_turn",
            Kind::AgentMsg => "agent_msg",
            Kind::ToolCall => "tool_call",
            Kind::ToolResult => "tool_result",
            Kind::DocSnippet => "doc_snippet",
            Kind::RetrievedDoc => "retrieved_doc",
            Kind::MemoryFact => "memory_fact",
            Kind::PlanState => "plan_state",
            Kind::Policy => "policy",
        }
    }

    /// The kind of a word; never guessed, because an unknown event must not speak with the user's voice.
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }

    /// The label of its block in a prompt.
    pub const fn label(self) -> &'static str {
        match self {
            Kind::UserTurn => "USER",
            Kind::AgentMsg => "AGENT",
            Kind::ToolCall => "TOOL CALL",
            Kind::ToolResult => "TOOL RESULT",
            Kind::DocSnippet | Kind::RetrievedDoc => "DOC",
            Kind::MemoryFact => "FACT",
            Kind::PlanState => "PLAN",
            Kind::Policy => "POLICY",
        }
    }

    /// How much it counts in a score.
    pub(crate) const fn weight(self) -> f64 {
        match self {
            Kind::Policy => 1.0,
            Kind::PlanState => 0.9,
            Kind::UserTurn => 0.85,
            Kind::AgentMsg => 0.7,
            Kind::ToolCall => 0.6,
            Kind::ToolResult => 0.55,
            Kind::MemoryFact => 0.5,
            Kind::RetrievedDoc => 0.45,
            Kind::DocSnippet => 0.4,
        }
    }
}

/// One item of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct ContextItem {
    /// Its id, which no other has.
    pub id: String,
    /// What it is.
    pub kind: Kind,
    /// What it says.
    pub text: String,
    /// Its place in the log; given when it is ingested.
    pub seq: usize,
    /// How many tokens it is said to have; counted if nobody said.
    pub token_estimate: Option<u64>,
    /// How sensitive it is.
    pub sensitivity: Sensitivity,
    /// What else is known of it; `tags` are compared with a query's.
    pub metadata: Map<String, Value>,
    /// What it belongs to: a result to its call.
    pub parent_id: Option<String>,
    /// Where the rest of it is.
    pub artifact_ref: Option<String>,
}

impl ContextItem {
    /// A plain item.
    pub fn new(id: impl Into<String>, kind: Kind, text: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            kind,
            text: text.into(),
            seq: 0,
            token_estimate: None,
            sensitivity: Sensitivity::default(),
            metadata: Map::new(),
            parent_id: None,
            artifact_ref: None,
        }
    }

    /// The same, belonging to another.
    #[must_use]
    pub fn child_of(mut self, parent: impl Into<String>) -> Self {
        self.parent_id = Some(parent.into());
        self
    }
}
