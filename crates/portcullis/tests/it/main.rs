//! The whole gateway as its users meet it: real processes, real sockets, real files.

mod commands;
mod crash;
mod denial;
mod edge;
mod restart;
mod support;
mod third_party;
