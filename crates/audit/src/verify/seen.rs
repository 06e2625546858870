//! A record as verification reads it: every member is held to what it must be, and nothing is kept but what is compared.
//!
//! Reading a log again costs mostly this, so that a record is gone over once. Its canonical form has its members in one
//! order, so they are found by their place; `data` is stepped over; and members that repeat from record to record, such
//! as who did it and with which tool, are read once. What does not pass here is read the long way, which says what is
//! wrong with it.

use std::collections::HashSet;

use portcullis_core::{
    Actor, LogId, PolicyVersion, ProposalId, RegistrationEpoch, SessionId, Sha256Digest, Timestamp, ToolId,
};
use serde::de::DeserializeOwned;

use crate::canonical::Scan;
use crate::event_name::EventName;
use crate::evidence::{KeyName, Role};
use crate::record::Reference;

/// How many texts of one kind are remembered.
const REMEMBERED: usize = 4_096;

/// What chains a record to its neighbours.
pub(super) struct Seen {
    pub(super) event: EventName,
    pub(super) log: LogId,
    pub(super) prev: Sha256Digest,
    pub(super) seq: u64,
    pub(super) time: Timestamp,
}

/// Texts that were found to be what they must be.
#[derive(Default)]
pub(super) struct Reader {
    actors: Known,
    epochs: Known,
    keys: Known,
    policies: Known,
    proposals: Known,
    roles: Known,
    sessions: Known,
    texts: Known,
    tools: Known,
    events: Last<EventName>,
    logs: Last<LogId>,
    times: Last<Timestamp>,
}

impl Reader {
    /// The members of [`Record`](crate::record::Record), one after the other. `None`: it is not surely a record, and the
    /// canonical form of itself.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Option<Seen> {
        let record = &mut Scan::over_plain(bytes)?;
        record.literal(b"{\"actor\":")?;
        self.actors.has::<Actor>(record.value()?)?;
        record.literal(b",\"canon\":")?;
        self.texts.has::<Option<String>>(record.value()?)?;
        record.literal(b",\"data\":")?;
        record.value()?;
        record.literal(b",\"epoch\":")?;
        self.epochs.has::<Option<RegistrationEpoch>>(record.value()?)?;
        record.literal(b",\"event\":")?;
        let event = self.events.value(record.value()?)?;
        record.literal(b",\"evidence\":")?;
        self.evidence(record)?;
        record.literal(b",\"id\":")?;
        is_id(record.value()?).then_some(())?;
        record.literal(b",\"log\":")?;
        let log = self.logs.value(record.value()?)?;
        record.literal(b",\"policy\":")?;
        self.policies.has::<Option<PolicyVersion>>(record.value()?)?;
        record.literal(b",\"prev\":")?;
        let prev = digest(record)?;
        record.literal(b",\"proposal\":")?;
        self.proposals.has::<Option<ProposalId>>(record.value()?)?;
        record.literal(b",\"refs\":")?;
        let refs = record.value()?;
        if refs != b"[]" {
            parsed::<Vec<Reference>>(refs)?;
        }
        record.literal(b",\"seq\":")?;
        let seq = record.unsigned()?;
        record.literal(b",\"session\":")?;
        self.sessions.has::<Option<SessionId>>(record.value()?)?;
        record.literal(b",\"step\":")?;
        record.literal(b"null").or_else(|| record.unsigned().map(drop))?;
        record.literal(b",\"time\":")?;
        let time = self.times.value(record.value()?)?;
        record.literal(b",\"tool_id\":")?;
        self.tools.has::<Option<ToolId>>(record.value()?)?;
        record.literal(b",\"trust\":")?;
        self.texts.has::<Option<String>>(record.value()?)?;
        record.literal(b",\"v\":1}")?;
        record.is_at_end().then_some(Seen { event, log, prev, seq, time })
    }

    /// A list of [`EvidenceRef`](crate::evidence::EvidenceRef)s.
    fn evidence(&mut self, record: &mut Scan<'_>) -> Option<()> {
        record.expect(b'[')?;
        if record.skip_if(b']') {
            return Some(());
        }
        loop {
            record.literal(b"{\"bytes\":")?;
            record.unsigned()?;
            record.literal(b",\"key\":")?;
            self.keys.has::<KeyName>(record.value()?)?;
            record.literal(b",\"object\":")?;
            digest(record)?;
            record.literal(b",\"role\":")?;
            self.roles.has::<Role>(record.value()?)?;
            record.expect(b'}')?;
            if !record.skip_if(b',') {
                return record.expect(b']');
            }
        }
    }
}

/// Texts of one kind, which each were read once. A few are likely to come again at once: those of one call, or of the calls
/// that are under way together.
#[derive(Default)]
struct Known {
    recent: [Vec<u8>; 4],
    next: usize,
    all: HashSet<Box<[u8]>>,
}

impl Known {
    fn has<T: DeserializeOwned>(&mut self, text: &[u8]) -> Option<()> {
        if self.recent.iter().any(|recent| recent == text) {
            return Some(());
        }
        if !self.all.contains(text) {
            parsed::<T>(text)?;
            if self.all.len() == REMEMBERED {
                self.all.clear();
            }
            self.all.insert(text.into());
        }
        let oldest = &mut self.recent[self.next % 4];
        oldest.clear();
        oldest.extend_from_slice(text);
        self.next += 1;
        Some(())
    }
}

/// A text that is likely to come again at once, and what it means.
struct Last<T>(Vec<u8>, Option<T>);

impl<T> Default for Last<T> {
    fn default() -> Self {
        Self(Vec::new(), None)
    }
}

impl<T: DeserializeOwned + Copy> Last<T> {
    fn value(&mut self, text: &[u8]) -> Option<T> {
        if self.0 != text {
            self.1 = Some(parsed(text)?);
            self.0.clear();
            self.0.extend_from_slice(text);
        }
        self.1
    }
}

/// Whether this is an [`EventId`](portcullis_core::EventId): no two records have one, so that nothing is gained by remembering them.
fn is_id(text: &[u8]) -> bool {
    const LETTERS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    const IS_LETTER: [bool; 256] = {
        let mut is_letter = [false; 256];
        let mut at = 0;
        while at < LETTERS.len() {
            is_letter[LETTERS[at] as usize] = true;
            at += 1;
        }
        is_letter
    };
    // Of the 130 bits that 26 letters have, 128 are used.
    let [b'"', id @ .., b'"'] = text else { return false };
    id.len() == 26 && id[0] <= b'7' && id.iter().fold(true, |all, &byte| all & IS_LETTER[usize::from(byte)])
}

fn parsed<T: DeserializeOwned>(text: &[u8]) -> Option<T> {
    serde_json::from_slice(text).ok()
}

fn digest(record: &mut Scan<'_>) -> Option<Sha256Digest> {
    std::str::from_utf8(record.string()?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;
    use portcullis_core::EventId;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn honest() -> Value {
        json!({
            "actor": {"id": "a", "kind": "agent"}, "canon": "canon-v1", "data": {"x": [1, {"y": null}]},
            "epoch": null, "event": "system.started", "evidence": [{"bytes": 7, "key": "std-20261116-1", "object": "a".repeat(64), "role": "request"}], "id": "01JD4Z8Q4T3M5R7N9P1S2V6W8X",
            "log": "01JD4Z8Q4T3M5R7N9P1S2V6W8X", "policy": null, "prev": "0".repeat(64), "proposal": null,
            "refs": ["01JD4Z8Q4T3M5R7N9P1S2V6W8X/7"], "seq": 3, "session": null, "step": null,
            "time": "2026-11-16T09:00:00.123Z", "tool_id": null, "trust": null, "v": 1,
        })
    }

    proptest! {
        #[test]
        fn an_id_is_what_the_long_way_takes_for_one(text in "\"?[0-8][0-9A-HJKMNP-TV-Zilou]{24,26}\"?") {
            prop_assert_eq!(is_id(text.as_bytes()), parsed::<EventId>(text.as_bytes()).is_some(), "{}", text);
        }
    }

    #[test]
    fn what_passes_here_is_what_passes_the_long_way() {
        // AUD-10, AUD-50
        let mut reader = Reader::default();
        let seen = reader.read(honest().to_string().as_bytes()).unwrap();
        let record = Record::parse(honest().to_string().as_bytes()).unwrap();
        assert_eq!(
            (seen.seq, seen.log, seen.prev, seen.time),
            (record.seq, record.log, record.prev, record.time)
        );
        let names: Vec<String> = honest().as_object().unwrap().keys().cloned().collect();
        for name in &names {
            let mut without = honest();
            without.as_object_mut().unwrap().remove(name);
            assert!(reader.read(without.to_string().as_bytes()).is_none(), "without {name}");
            for other in [json!(true), json!("x"), json!({"id": 1}), json!(-1), json!([7])] {
                let mut changed = honest();
                changed[name] = other.clone();
                let text = changed.to_string();
                let (short, long) =
                    (reader.read(text.as_bytes()).is_some(), Record::parse(text.as_bytes()).is_ok());
                assert_eq!(short, long, "{name}: {other}");
            }
        }
        // What is canonical in another order, or has a second spelling, is not this way's business.
        let text = honest().to_string();
        for (from, to) in [
            ("\"a\"", "\"\\u0061\""),
            (":3,", ":03,"),
            (":3,", ":3 ,"),
            (",\"v\":1}", ",\"v\":1}}"),
            (":null", ":nil "),
        ] {
            let other = text.replacen(from, to, 1);
            assert_ne!(other, text);
            assert!(reader.read(other.as_bytes()).is_none(), "{other}");
        }
        let mut more = honest();
        more["colour"] = json!("red");
        assert!(reader.read(more.to_string().as_bytes()).is_none());
    }
}
