//! Credentials on their last hop: values that nobody can print, placeholders that stand for them inside, and the search
//! for values that come back.
//!
//! Who may have one, and when, is decided where permits are known (`governance::broker`). What is here only holds and
//! moves the bytes.

mod echo;
mod files;
mod placeholder;
mod secret;
mod stand_ins;

pub use echo::Echoes;
pub(crate) use echo::forms;
pub(crate) use files::{FOLDER, names};
pub use files::{SecretFiles, Written};
pub use placeholder::{BadFormat, Format};
pub use secret::Secret;
pub(crate) use stand_ins::{OWN_BUNDLE, StandIn, StandIns, WHOLE_BUNDLE};
