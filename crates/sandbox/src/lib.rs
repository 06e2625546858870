//! Starting programs that nobody trusts.
//!
//! A server is somebody else's program with somebody else's dependencies. It runs with what its [`Profile`] names
//! and nothing else: a view of the file system made for it, no network but its own loopback, no capability, few
//! system calls, bounded resources; and when we die, all of it dies.
//!
//! The [`Launcher`] starts this very executable again in a hidden mode, because only a process with one thread may
//! change namespaces and fork. That process goes through the stages below, tests itself, reports, and becomes the
//! program only when told to.
//!
//! | module | the idea |
//! |---|---|
//! | [`profile`] | what a program may have |
//! | [`launch`] | the gateway's side: start, look at the report, let go |
//! | [`stage`] | the other side: namespaces, init, and the last steps before the program |
//! | `view` | the file system as the program sees it |
//! | `rules` | landlock: which files may be read, written, executed |
//! | `calls` | seccomp: which system calls are answered |
//! | `privileges` | capabilities, limits, signals |
//! | `trial` | the self-test, in the final process, before every start |
//! | `own_user` | a user id that nobody else has, where we may give one |
//! | `cgroup`, `watchdog` | memory, processes and time, counted by the kernel where the machine lets us |
//! | `doors` | the ways out: listeners inside, handed to the gateway |
//! | [`egress`] | what passes through them: the gateway's side |
//! | `notify`, [`bait`] | attempts that are refused and noticed: calls, addresses, files nobody has a reason to open |
//! | `looking` | every file that is asked for, where an operator wants that noticed too |
//! | `sentry` | what was noticed, and whether that is the end of it |
//! | [`broker`] | credentials on their last hop: values, placeholders, values that come back |
//! | [`doctor`] | what this machine can do, and what to change |
//!
//! # Invariants
//! - A program is executed only after every layer is in place and its test has passed (SBX-40). There is no mode in
//!   which a missing layer is skipped.
//! - Paths are resolved once, without symbolic links, and used as descriptors from then on.
//! - Nothing leaves the namespace but through a gate, toward a declared host, while a call that may do so is under way.
//! - Nothing of our environment, descriptors or files reaches the program.
//!
//! # Not here
//! Which scopes a server has and which calls are permitted (that is `governance`), and how it is talked to (that is
//! `upstream`), and who may have which credential (`governance` again).

pub mod bait;
pub mod broker;
mod calls;
mod cgroup;
pub mod doctor;
mod doors;
pub mod egress;
pub mod launch;
mod looking;
mod notify;
mod own_user;
mod privileges;
pub mod profile;
mod rules;
mod sentry;
pub mod stage;
mod trial;
mod view;
mod watchdog;

pub use cgroup::Cgroup;
pub use egress::{Doors, Gate, Loan, Observed, Pass};
pub use launch::{Caged, Conditions, Confined, Detect, Handshake, LaunchError, Launcher, Layers, Variables};
pub use own_user::{FACILITY as OWN_USER, UID_BASE, uid_of};
pub use profile::{Access, EgressScope, FsScope, Limits, Processors, Profile, SecretScope, Tls, Via};
