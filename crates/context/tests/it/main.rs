//! The library as a builder of agents uses it.

mod envelope;
mod no_inflation;
