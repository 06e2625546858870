//! The store against real files.

mod following;
mod log;
mod rebuilding;
mod rows;
