//! Trust: earned call by call, lost at once, and never more than a way to be asked less often (GOV §11).
//!
//! The [`Ledger`] is a pure function of the log: it takes records in their order and nothing else, so that what runs and
//! what is recomputed from the first record are the same. Counting follows `execution.result`; states change only with
//! the four `trust.` events, which the control plane records first.

mod standing;

use std::collections::{BTreeMap, VecDeque};

use portcullis_audit::{EventName, Record};
use portcullis_core::{DeclarationVersion, ProposalId, RegistrationEpoch, ServerIdentity, ToolId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::accepted::AcceptedTool;
use crate::declaration::SideEffect;
use crate::registry::Trust;

pub use standing::Standing;

/// How many results may still be taken back because they turn out to break their declaration.
const RECENT: usize = 4096;

/// Everything that is known about trust, from the log alone.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    books: BTreeMap<ServerIdentity, Book>,
    recent: VecDeque<(ProposalId, ServerIdentity, String)>,
    /// The next record to be taken.
    next_seq: u64,
}

/// One life of one server under one declaration: another of either starts anew (GOV-1101).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Book {
    epoch: RegistrationEpoch,
    declaration: DeclarationVersion,
    server: Standing,
    tools: BTreeMap<String, Standing>,
}

/// Which events the ledger wants.
pub fn is_trust_event(name: EventName) -> bool {
    use EventName as E;
    matches!(
        name,
        E::ExecutionResult
            | E::ExecutionWithheld
            | E::TrustPromoted
            | E::TrustGranted
            | E::TrustRevoked
            | E::TrustViolation
            | E::DeclarationAccepted
            | E::ServerRemoved
    )
}

/// How far a tool of these classes can get on a server of this tier (GOV-1102).
pub fn ceiling(tier: u8, classes: &[SideEffect]) -> Trust {
    let only = |allowed: &[SideEffect]| classes.iter().all(|class| allowed.contains(class));
    match tier {
        0 => Trust::Untrusted,
        2 if only(&[SideEffect::Read]) => Trust::Trusted,
        3 if only(&[SideEffect::Read, SideEffect::Network, SideEffect::Write]) => Trust::Trusted,
        _ => Trust::Probationary,
    }
}

/// How far a server of this tier can get.
pub fn server_ceiling(tier: u8) -> Trust {
    match tier {
        0 => Trust::Untrusted,
        1 => Trust::Probationary,
        _ => Trust::Trusted,
    }
}

impl Ledger {
    /// The number of the record to take next.
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Takes the next record; one that was taken already changes nothing.
    pub fn take(&mut self, record: &Record) {
        if record.seq < self.next_seq {
            return;
        }
        self.next_seq = record.seq + 1;
        match record.event {
            EventName::ExecutionResult => self.count(record),
            EventName::ExecutionWithheld => self.uncount(record),
            EventName::DeclarationAccepted => self.accept(record),
            EventName::ServerRemoved => {
                if let Ok(server) = text(&record.data["server"]).parse::<ServerIdentity>() {
                    self.books.remove(&server);
                }
            }
            EventName::TrustPromoted | EventName::TrustGranted => self.change(record, |standing, record| {
                if let Ok(state) = serde_json::from_value(record.data["state"].clone()) {
                    standing.reach(state, record.time, record.seq);
                }
            }),
            EventName::TrustRevoked => self.change(record, |standing, record| {
                standing.reset(false, record.time, record.seq);
            }),
            EventName::TrustViolation => self.violate(record),
            _ => {}
        }
    }

    /// GOV-1103: a result that was released is a clean execution; what broke its schema comes back as withheld.
    fn count(&mut self, record: &Record) {
        let (Some(tool), Some(epoch), Some(session), Some(proposal)) =
            (&record.tool_id, record.epoch, record.session, record.proposal)
        else {
            return;
        };
        let Ok(fingerprint) = serde_json::from_value(record.data["fingerprint"].clone()) else { return };
        if record.data["outcome"] != "result" {
            return;
        }
        let Some(book) = self.book(tool, epoch) else { return };
        let key = tool.item().to_string();
        let standing = book.tools.entry(key.clone()).or_insert_with(|| Standing::new(record.time));
        let counted = standing.clean(fingerprint, session, record.time, record.seq);
        // The server's own record: the sum over its tools, on days and in sessions of its own.
        book.server.clean_of_tool(counted, session, record.time, record.seq);
        if counted {
            self.recent.push_back((proposal, tool.server().clone(), key));
            while self.recent.len() > RECENT {
                self.recent.pop_front();
            }
        }
    }

    fn uncount(&mut self, record: &Record) {
        let Some(proposal) = record.proposal else { return };
        let Some(at) = self.recent.iter().position(|(counted, ..)| *counted == proposal) else { return };
        let Some((_, server, tool)) = self.recent.remove(at) else { return };
        if let Some(book) = self.books.get_mut(&server) {
            book.server.take_back();
            if let Some(standing) = book.tools.get_mut(&tool) {
                standing.take_back();
            }
        }
    }

    /// New records for a new declaration or a new life.
    fn accept(&mut self, record: &Record) {
        let data = &record.data;
        let (Ok(server), Ok(declaration), Some(epoch)) = (
            text(&data["server"]).parse::<ServerIdentity>(),
            text(&data["version"]).parse::<DeclarationVersion>(),
            record.epoch,
        ) else {
            return;
        };
        let tools = data["tools"].as_object().into_iter().flatten().map(|(name, _)| name.clone());
        let book = Book {
            epoch,
            declaration,
            server: Standing::new(record.time),
            tools: tools.map(|name| (name, Standing::new(record.time))).collect(),
        };
        self.books.insert(server, book);
    }

    fn change(&mut self, record: &Record, change: impl Fn(&mut Standing, &Record)) {
        let Ok(server) = text(&record.data["server"]).parse::<ServerIdentity>() else { return };
        let Some(book) = self.books.get_mut(&server).filter(|book| Some(book.epoch) == record.epoch) else {
            return;
        };
        match record.data["tool"].as_str() {
            Some(tool) => {
                let standing =
                    book.tools.entry(tool.to_owned()).or_insert_with(|| Standing::new(record.time));
                change(standing, record);
            }
            None => change(&mut book.server, record),
        }
    }

    /// GOV-1105: the tools that are named, or with contamination everything of the server.
    fn violate(&mut self, record: &Record) {
        let data = &record.data;
        let Ok(server) = text(&data["server"]).parse::<ServerIdentity>() else { return };
        let Some(book) = self.books.get_mut(&server).filter(|book| Some(book.epoch) == record.epoch) else {
            return;
        };
        let halve = data["score"] == "halve";
        if data["contamination"] == "server" {
            book.server.violated(halve, record.time, record.seq);
            for standing in book.tools.values_mut() {
                standing.violated(halve, record.time, record.seq);
            }
            return;
        }
        for tool in data["tools"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let standing = book.tools.entry(tool.to_owned()).or_insert_with(|| Standing::new(record.time));
            standing.violated(halve, record.time, record.seq);
        }
    }

    fn book(&mut self, tool: &ToolId, epoch: RegistrationEpoch) -> Option<&mut Book> {
        let book = self.books.get_mut(tool.server())?;
        (book.epoch == epoch && book.declaration == tool.declaration()).then_some(book)
    }

    /// The standing of a server in this life.
    pub fn server(&self, server: &ServerIdentity, epoch: RegistrationEpoch) -> Option<&Standing> {
        self.books.get(server).filter(|book| book.epoch == epoch).map(|book| &book.server)
    }

    /// The standing of one of its tools, resources or prompts.
    pub fn tool(&self, tool: &AcceptedTool) -> Option<&Standing> {
        let book = self.books.get(tool.id().server())?;
        let same = book.epoch == tool.epoch() && book.declaration == tool.id().declaration();
        same.then(|| book.tools.get(&tool.id().item().to_string()))?
    }

    /// How many records there are, of tools and servers.
    pub fn len(&self) -> usize {
        self.books.values().map(|book| 1 + book.tools.len()).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.books.is_empty()
    }

    /// Where two ledgers differ, by what they are about. Positions are not compared: one may have read further.
    pub fn differences(&self, other: &Ledger) -> Vec<String> {
        let names = self.books.keys().chain(other.books.keys());
        let mut found: Vec<String> = names
            .filter(|server| self.books.get(*server) != other.books.get(*server))
            .map(ToString::to_string)
            .collect();
        found.sort();
        found.dedup();
        found
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
#[path = "trust_tests.rs"]
mod tests;
