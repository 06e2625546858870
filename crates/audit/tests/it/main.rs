//! Scenarios with real files and, where it matters, real processes.

mod checkpoints;
mod child;
mod commit;
mod evidence;
mod exports;
#[cfg(feature = "failpoints")]
mod failpoints;
mod home;
mod opening;
mod retention;
mod tail;
mod tampering;
