//! The whole gateway as its users meet it: real processes, real sockets, real files.

mod access;
mod agent;
mod approvals;
mod audit;
mod commands;
mod confined;
mod context;
mod crash;
mod denial;
mod drift;
mod edge;
mod gauntlet;
mod invariants;
mod issuer;
mod news;
mod onboarding;
mod policy;
mod replay;
mod restart;
mod revisions;
mod sandbox;
mod soak;
mod streams;
mod support;
mod third_party;
mod trust;
