//! The server from outside: as a library behind sockets, and as the program that people start.

mod client;
mod command;
mod conformance;
