//! The whole gateway as its users meet it: real processes, real sockets, real files.

mod access;
mod admin;
mod agent;
mod approvals;
mod audit;
mod commands;
mod confined;
mod console;
mod context;
mod crash;
mod credentials;
mod denial;
mod doctor;
mod drift;
mod edge;
mod egress;
mod evil;
mod exposure;
#[cfg(target_os = "linux")]
mod full_disk;
mod gates;
mod gauntlet;
mod importing;
mod invariants;
mod issuer;
mod lacking;
mod matrix;
mod news;
mod onboarding;
mod policy;
mod readme;
mod records;
mod replay;
#[cfg(target_os = "linux")]
mod replicas;
mod restart;
mod revisions;
mod sandbox;
mod soak;
mod streams;
mod subscriptions;
mod support;
mod surface;
mod third_party;
mod trust;
