//! A small, real resource server for personal records, the far end of the records adapter.
//!
//! Records live in SQLite and are searched with FTS5; tokens carry grants that limit streams, fields and connections;
//! changes are delivered as signed webhooks. It runs alone (`cargo run -p records-server -- --seed demo`), and as the
//! upstream of tests: everything it was asked is in a log, and it fails on demand.
//!
//! | module | the idea |
//! |---|---|
//! | [`store`] | the tables |
//! | [`seed`] | the demonstration data |
//! | [`catalogue`] | what streams and fields there are, and what may be done with them |
//! | [`grant`] | who asks, and what of it all they may see |
//! | [`answer`] | a body or an error, in the words of the contract |
//! | [`query`] | query strings, strictly |
//! | [`schema`], [`records`], [`aggregate`], [`search`], [`window`] | one endpoint each |
//! | [`events`], [`deliver`] | subscriptions, and telling them |
//! | [`faults`], [`admin`] | failing on demand, and everything a test may turn |
//! | [`http`] | bytes in, bytes out |

#![allow(missing_docs)]

pub mod admin;
pub mod aggregate;
pub mod answer;
pub mod catalogue;
pub mod deliver;
pub mod events;
pub mod faults;
pub mod grant;
pub mod http;
pub mod query;
pub mod records;
pub mod schema;
pub mod search;
pub mod seed;
pub mod server;
pub mod store;
pub mod window;

pub use server::{Options, Profile, Server, Shape};
