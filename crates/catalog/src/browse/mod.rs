//! Looking around: by words or by path, answered in cards (CAT-70 to CAT-94).

pub mod answer;
pub mod ledger;
pub(crate) mod path;
pub(crate) mod tree;

pub use answer::{Answer, BrowseError, BrowseOptions, Request};
pub use ledger::Ledger;
