//! The admin tools against a real control plane with a real log.

mod authority;
mod contract;
mod house;
mod sequences;
