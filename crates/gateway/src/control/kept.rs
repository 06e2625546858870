//! What operators set besides servers and policies: documents by kind and id, each with a counter, so that who changes one
//! can say which one it looked at (ADM-56). The log has them, the store follows, and a start reads them back.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use portcullis_audit::{Event, EventName};
use portcullis_core::ErrorCode;
use portcullis_governance::operator::OperatorProof;
use serde_json::{Value, json};

use super::{Control, ControlError};

/// One document.
#[derive(Debug, Clone, PartialEq)]
pub struct Kept {
    /// Which one of its kind.
    pub id: String,
    /// How often it was set.
    pub version: u64,
    /// As it was set last.
    pub document: Value,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct KeptDocuments(Mutex<BTreeMap<(String, String), Kept>>);

impl KeptDocuments {
    pub(super) fn restore(&self, kind: &str, kept: Kept) {
        self.lock().insert((kind.to_owned(), kept.id.clone()), kept);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<(String, String), Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Control {
    /// Every document of a kind, by id.
    pub fn kept(&self, kind: &str) -> Vec<Kept> {
        let all = self.kept.lock();
        all.iter().filter(|((of, _), _)| of == kind).map(|(_, kept)| kept.clone()).collect()
    }

    /// One document.
    pub fn kept_one(&self, kind: &str, id: &str) -> Option<Kept> {
        self.kept.lock().get(&(kind.to_owned(), id.to_owned())).cloned()
    }

    /// Sets a document, if it is still the expected version; 0 expects none.
    pub async fn keep(
        &self,
        operator: &OperatorProof,
        kind: &str,
        id: &str,
        document: Value,
        expected: Option<u64>,
    ) -> Result<Kept, ControlError> {
        let _one_at_a_time = self.state.lock().await;
        let kept = self.next_of(kind, id, document, expected)?;
        self.commit(operator, vec![set_event(operator, kind, &kept)]).await?;
        self.kept.restore(kind, kept.clone());
        Ok(kept)
    }

    /// Takes a document away.
    pub async fn forget(&self, operator: &OperatorProof, kind: &str, id: &str) -> Result<Kept, ControlError> {
        let _one_at_a_time = self.state.lock().await;
        let key = (kind.to_owned(), id.to_owned());
        let kept = self.kept.lock().get(&key).cloned();
        let kept = kept.ok_or_else(|| {
            let shown = portcullis_core::name::printable(id);
            ControlError::new(ErrorCode::NotFound, format!("there is no {} {shown}", kind.replace('_', " ")))
        })?;
        let data = json!({"document": null, "id": id, "kind": kind, "version": kept.version + 1});
        let event = Event::new(EventName::AdminStateChanged, &operator.actor()).data(data);
        self.commit(operator, vec![event]).await?;
        self.kept.lock().remove(&key);
        Ok(kept)
    }

    fn next_of(
        &self,
        kind: &str,
        id: &str,
        document: Value,
        expected: Option<u64>,
    ) -> Result<Kept, ControlError> {
        let current = self.kept_one(kind, id).map_or(0, |kept| kept.version);
        if let Some(expected) = expected.filter(|expected| *expected != current) {
            let message = format!("version {current} is the current one, not {expected}");
            return Err(ControlError::new(ErrorCode::Conflict, message));
        }
        Ok(Kept { id: id.to_owned(), version: current + 1, document })
    }
}

fn set_event(operator: &OperatorProof, kind: &str, kept: &Kept) -> Event {
    let data = json!({"document": kept.document, "id": kept.id, "kind": kind, "version": kept.version});
    Event::new(EventName::AdminStateChanged, &operator.actor()).data(data)
}
