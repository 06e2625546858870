//! What agents can find.
//!
//! Hundreds of tools in a list cost a model thousands of tokens before it has done anything, and it chooses worse the
//! more there are. So a gateway shows a few lines instead: *cards*, found by searching or browsing. This crate makes
//! them, from the definitions that were accepted, and knows nothing of servers, sessions or policies.
//!
//! | module | the idea |
//! |---|---|
//! | [`namespace`], [`id`] | where an item belongs, and how agents address it |
//! | [`ingest`] | from a definition to an item; what is odd becomes a [`finding`] |
//! | [`item`] | what an agent can choose |
//! | [`signature`] | a tool's arguments in one short line |
//! | [`snapshot`] | everything at one moment, immutable, the same on every replica |
//! | [`view`] | who sees what |
//! | [`search`] | finding items by what somebody wants done |
//! | [`semantic`] | finding them by what is meant, where an operator installs a table for it |
//! | [`cards`] | what a model sees of an item, within a budget of tokens |
//! | [`browse`] | looking around by words or by path; answers whose beginning never changes |
//! | [`drift`] | what servers offer, written down, and what changed since |
//! | [`selection`] | letting a model choose, and reading what it chose |
//!
//! # Invariants
//! - Equal definitions give equal bytes: ids, order, digests, whatever the order of servers, pages or keys.
//! - One bad definition affects no other; nothing a server sends makes anything here fail or panic.
//! - What a view hides leaves no trace: not in answers, not in counts, not in which error there is.
//! - Text of servers comes last on its line, and is one line.
//!
//! # Not here
//! Whether an item may be called: an id addresses and authorises nothing. Files, sockets, clocks.

pub mod browse;
pub mod cards;
mod collisions;
pub mod drift;
pub mod error;
mod facets;
pub mod finding;
#[cfg(test)]
mod fixture;
pub mod id;
pub mod ingest;
pub mod item;
pub mod namespace;
mod plain_line;
pub mod schema_check;
pub mod search;
pub mod selection;
pub mod semantic;
mod shape_hash;
pub mod signature;
pub mod snapshot;
pub mod view;
mod wire_name;

pub use browse::{Answer, BrowseError, BrowseOptions, Ledger, Request};
pub use cards::{ChoiceCard, Form, make_choice_cards};
pub use error::CatalogError;
pub use finding::{Finding, FindingKind};
pub use id::{IdParts, format_id, parse_id};
pub use ingest::{Labels, ServerCtx, ToolDef, tool_to_selectable};
pub use item::{Effect, Effects, Kind, SelectableItem, Standing};
pub use namespace::infer_namespace;
pub use schema_check::{OnExceeded, SchemaLimits};
pub use search::{Hit, How, Matched, QueryError, SearchOptions, Synonyms};
pub use semantic::{SemanticError, SemanticScorer, StaticTable};
pub use snapshot::{BuildOptions, CatalogSnapshot, Counts, NotOne, Source};
pub use view::View;
