//! Finding items by what somebody wants done (CAT-60 to CAT-70).

pub(crate) mod analysis;
pub(crate) mod exact;
pub(crate) mod families;
pub(crate) mod index;
pub(crate) mod query;
pub mod synonyms;
mod typos;
mod why;

pub use query::{Hit, QueryError, SearchOptions};
pub use synonyms::Synonyms;
pub use why::{How, Matched};
