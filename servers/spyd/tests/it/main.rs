//! The spy as a process, over both transports: honest by default, dishonest as told, and always writing it down.

mod declaration;
mod http;
mod http_peer;
mod misbehaviour;
mod peer;
mod stdio;
