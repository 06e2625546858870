//! The library as a builder of agents uses it.

mod artifacts;
mod builder;
mod envelope;
mod no_inflation;
mod shelf;
mod views;
