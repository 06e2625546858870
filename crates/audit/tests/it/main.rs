//! Scenarios with real files and, where it matters, real processes.

mod checkpoints;
mod child;
mod commit;
mod evidence;
mod exports;
#[cfg(feature = "failpoints")]
mod failpoints;
mod full_disk;
mod home;
mod opening;
mod outsider;
mod retention;
mod rotation;
mod tail;
mod tampering;
mod witnesses;
