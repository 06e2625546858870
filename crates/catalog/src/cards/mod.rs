//! Cards: what a model sees of an item before it chooses (CAT-80 to CAT-85).

pub mod budget;
pub mod choice;
pub(crate) mod render;

pub use budget::tokens;
pub use choice::{ChoiceCard, make_choice_cards};
pub use render::Form;
