//! The notes server as a process: both eras, and its declaration against what it lists.

mod declaration;
mod eras;
mod peer;
