//! Answers whose beginning never changes (CAT-92 to CAT-94).
//!
//! Providers give a discount on what a model has read before, as long as it is the same bytes from the start. So a session
//! keeps a ledger of the cards it was shown, and every answer begins with all of it: batch after batch, each sorted by id
//! when it was new, never reordered.

use portcullis_core::Sha256Digest;
use serde_json::json;

use super::answer::joined;
use crate::cards::Form;
use crate::cards::render::finished;
use crate::search::Hit;
use crate::snapshot::CatalogSnapshot;
use crate::view::View;

/// How many cards are repeated at most.
const MOST_CARDS: usize = 100;
const MARKER: &str = "__cache_breakpoint__";

/// The cards one session was shown.
#[derive(Debug, Default)]
pub struct Ledger {
    shown: Vec<Entry>,
    epoch: u64,
}

#[derive(Debug)]
struct Entry {
    id: String,
    identity: String,
    definition: Sha256Digest,
    bytes: String,
}

impl Ledger {
    /// How often the ledger was begun anew.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// How many cards it has.
    pub fn len(&self) -> usize {
        self.shown.len()
    }

    /// Whether nothing was shown yet.
    pub fn is_empty(&self) -> bool {
        self.shown.is_empty()
    }

    /// Something was shown elsewhere: hydrated or executed.
    pub fn showed(&mut self, snapshot: &CatalogSnapshot, view: &View, form: Form, index: usize) {
        self.keep(snapshot, view);
        let item = &snapshot.items()[index];
        if !self.shown.iter().any(|entry| entry.id == item.id) && self.shown.len() < MOST_CARDS {
            self.shown.push(Entry::of(snapshot, form, index));
        }
    }

    /// The answer to a search: everything shown so far, a mark, what is new, and how this query ranks its hits.
    pub(crate) fn answer(
        &mut self,
        snapshot: &CatalogSnapshot,
        view: &View,
        form: Form,
        hits: &[Hit],
    ) -> String {
        self.keep(snapshot, view);
        let is_new = |hit: &&Hit| !self.shown.iter().any(|entry| entry.id == snapshot.items()[hit.index].id);
        let mut new: Vec<usize> = hits.iter().filter(is_new).map(|hit| hit.index).collect();
        // Items are sorted by id.
        new.sort_unstable();
        if self.shown.len() + new.len() > MOST_CARDS {
            self.restart();
            new = hits.iter().map(|hit| hit.index).collect();
            new.sort_unstable();
        }
        let fresh: Vec<Entry> = new.into_iter().map(|index| Entry::of(snapshot, form, index)).collect();
        let mut entries: Vec<String> = self.shown.iter().map(|entry| entry.bytes.clone()).collect();
        if !self.shown.is_empty() && !fresh.is_empty() {
            entries.push(match form {
                Form::Lines => MARKER.into(),
                Form::Json | Form::Compat => {
                    format!("{{\"id\":\"{MARKER}\",\"name\":\"cache_breakpoint\",\"kind\":\"internal\"}}")
                }
            });
        }
        entries.extend(fresh.iter().map(|entry| entry.bytes.clone()));
        let rank: Vec<&str> = hits.iter().map(|hit| snapshot.items()[hit.index].id.as_str()).collect();
        entries.push(match form {
            Form::Lines => format!("rank: {}", rank.join(", ")),
            Form::Json | Form::Compat => json!({"rank": rank}).to_string(),
        });
        self.shown.extend(fresh);
        joined(&entries, form)
    }

    /// If a card's item changed, was removed or is hidden, nothing of the ledger is shown any more (CAT-94).
    fn keep(&mut self, snapshot: &CatalogSnapshot, view: &View) {
        let stands = |entry: &Entry| {
            snapshot.index_of(&entry.id).is_some_and(|index| {
                let item = &snapshot.items()[index];
                view.sees(index)
                    && item.definition_digest == entry.definition
                    && item.identity == entry.identity
            })
        };
        if !self.shown.iter().all(stands) {
            // As one batch, of what still stands.
            self.shown.retain(stands);
            self.shown.sort_by(|a, b| a.id.cmp(&b.id));
            self.epoch += 1;
        }
    }

    fn restart(&mut self) {
        self.shown.clear();
        self.epoch += 1;
    }
}

impl Entry {
    fn of(snapshot: &CatalogSnapshot, form: Form, index: usize) -> Self {
        let item = &snapshot.items()[index];
        Self {
            id: item.id.clone(),
            identity: item.identity.clone(),
            definition: item.definition_digest,
            // Neither a score nor a count: both would say something about another query or another day.
            bytes: finished(snapshot.card(index, form), form, 0, None),
        }
    }
}
