//! State as a projection of the audit log (AUD-6, AUD-67).
//!
//! What the gateway must know quickly (which servers there are, what they declared, what waits for approval,
//! which policy is in force) lies here in SQLite. None of it is the truth: the log is. A change is an event
//! first, durable in the log, and then applied here together with its number, in one transaction. A crash in
//! between leaves the store behind, never ahead, and the next start applies what is missing; a store that is
//! lost is rebuilt by applying everything.
//!
//! | module | what it holds |
//! |---|---|
//! | `change` | what an event changes, decided without a database |
//! | `project` | writing changes, and the position, in one transaction |
//! | `index` | [`Index`]: where in the log a record is, by what one asks for |
//! | `shared` | [`Shared`]: what several replicas agree on, in Postgres |
//! | `store`, `rows` | [`Store`]: opening, emptying, asking, and what it answers |
//!
//! What this crate does not do: it does not read the log, and it decides nothing. The same records in the same
//! order give the same rows, whatever the time is and however they were split into batches.
//!
//! # Invariants
//! - The position is never ahead of the rows, nor the rows of the position.
//! - Applying a record twice is applying it once.
//! - A store follows one log; records of another are refused until it is emptied.

mod change;
mod error;
mod index;
mod project;
mod rows;
mod shared;
mod store;

pub use change::{Applied, is_state_event};
pub use error::StoreError;
pub use index::{Entry, Found, Index, Indexed, Rebuilding, Wanted};
pub use rows::{
    AdminStateRow, AgentKeyRow, ApprovalRow, CheckpointRow, DeclarationRow, OperatorRow, PolicyRow,
    ServerRow, SurfaceRow,
};
pub use shared::{Cause, Presence, Shared, SharedChange, SharedError};
pub use store::Store;
