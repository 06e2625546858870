//! What servers offer, written down, and what changed since (CAT-110 to CAT-112).
//!
//! A file of capabilities has no time in it: two of one surface are the same bytes. A report says of each change who
//! is hurt by it: callers (`breaking`), nobody (`non-breaking`), or only readers (`documentation`), which is where
//! attacks come from.

pub mod capabilities;
mod classify;
mod schema_diff;
pub mod text;

pub use capabilities::{Capabilities, Offer, Server};
pub use classify::{Change, Class, Report, compare};
