//! What operators set besides servers and policies: documents by kind and id, each with a counter, so that who changes one
//! can say which one it looked at (ADM-56). The log has them, the store follows, and a start reads them back.
//!
//! A kind of documents is a type ([`Document`]); everything else is the same for all of them: compare, make durable, take
//! in, and tell the data plane ([`Orders`](crate::orders::Orders)) where it acts on them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use portcullis_audit::{Event, EventName};
use portcullis_core::ErrorCode;
use portcullis_governance::operator::OperatorProof;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Control, ControlError};
use crate::webhooks::Webhook;

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

/// A kind of documents.
pub trait Document: Serialize + DeserializeOwned + Send {
    /// What records call the kind.
    const KIND: &'static str;

    /// Which one of its kind it is.
    fn id(&self) -> String;
}

/// A document, and how often it was set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Versioned<D> {
    /// As it was set last.
    #[serde(flatten)]
    pub document: D,
    /// How often it was set.
    pub version: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct KeptDocuments {
    all: Mutex<BTreeMap<(String, String), Kept>>,
    /// Whether there are webhooks: asked about every record that becomes durable.
    webhooks: Arc<AtomicBool>,
}

impl KeptDocuments {
    pub(super) fn restore(&self, kind: &str, kept: Kept) {
        let mut all = self.lock();
        all.insert((kind.to_owned(), kept.id.clone()), kept);
        self.count_webhooks(&all);
    }

    fn remove(&self, key: &(String, String)) {
        let mut all = self.lock();
        all.remove(key);
        self.count_webhooks(&all);
    }

    fn count_webhooks(&self, all: &BTreeMap<(String, String), Kept>) {
        let any = all.keys().any(|(kind, _)| kind == Webhook::KIND);
        self.webhooks.store(any, Ordering::Release);
    }

    /// Whether there are webhooks, now and later.
    pub(crate) fn has_webhooks(&self) -> Arc<AtomicBool> {
        self.webhooks.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<(String, String), Kept>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every document of a kind, by id.
    pub(super) fn of_kind(&self, kind: &str) -> Vec<Kept> {
        let all = self.lock();
        all.iter().filter(|((of, _), _)| of == kind).map(|(_, kept)| kept.clone()).collect()
    }

    /// Every document of a type. One that cannot be read is of another version of this program, and is left alone.
    pub(crate) fn documents<D: Document>(&self) -> Vec<Versioned<D>> {
        let all = self.lock();
        let of_kind = all.iter().filter(|((kind, _), _)| kind == D::KIND);
        of_kind.filter_map(|(_, kept)| read(kept)).collect()
    }
}

fn read<D: Document>(kept: &Kept) -> Option<Versioned<D>> {
    let document = serde_json::from_value(kept.document.clone()).ok()?;
    Some(Versioned { document, version: kept.version })
}

impl Control {
    /// Every document of a type, by id.
    pub fn documents<D: Document>(&self) -> Vec<Versioned<D>> {
        self.kept.documents()
    }

    /// One document of a type.
    pub fn document<D: Document>(&self, id: &str) -> Option<Versioned<D>> {
        read(&self.kept_one(D::KIND, id)?)
    }

    /// Sets a document, if it is still the expected version (0 expects none) and `allowed` agrees, which looks at what
    /// there is while nobody else changes anything. `events` go on record with it.
    pub async fn set<D: Document>(
        &self,
        operator: &OperatorProof,
        document: &D,
        expected: Option<u64>,
        events: Vec<Event>,
        allowed: impl FnOnce(&Control) -> Result<(), ControlError> + Send,
    ) -> Result<u64, ControlError> {
        let mut state = self.state.lock().await;
        allowed(self)?;
        let written = serde_json::to_value(document)
            .map_err(|error| ControlError::new(ErrorCode::Internal, error.to_string()))?;
        let kept = self.next_of(D::KIND, &document.id(), written, expected)?;
        let mut all = vec![set_event(operator, D::KIND, &kept)];
        all.extend(events);
        self.commit(operator, all).await?;
        let version = kept.version;
        self.kept.restore(D::KIND, kept);
        self.follow_orders(&mut state);
        Ok(version)
    }

    /// Takes a document away, if `allowed` agrees.
    pub async fn unset<D: Document>(
        &self,
        operator: &OperatorProof,
        id: &str,
        allowed: impl FnOnce(&Control) -> Result<(), ControlError> + Send,
    ) -> Result<(), ControlError> {
        let mut state = self.state.lock().await;
        allowed(self)?;
        self.forget_locked(operator, D::KIND, id).await?;
        self.follow_orders(&mut state);
        Ok(())
    }

    /// Every document of a kind, by id.
    pub fn kept(&self, kind: &str) -> Vec<Kept> {
        self.kept.of_kind(kind)
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
        self.forget_locked(operator, kind, id).await
    }

    async fn forget_locked(
        &self,
        operator: &OperatorProof,
        kind: &str,
        id: &str,
    ) -> Result<Kept, ControlError> {
        let key = (kind.to_owned(), id.to_owned());
        let kept = self.kept.lock().get(&key).cloned();
        let kept = kept.ok_or_else(|| {
            let shown = portcullis_core::name::printable(id);
            ControlError::new(ErrorCode::NotFound, format!("there is no {} {shown}", kind.replace('_', " ")))
        })?;
        let data = json!({"document": null, "id": id, "kind": kind, "version": kept.version + 1});
        let event = Event::new(EventName::AdminStateChanged, &operator.actor()).data(data);
        self.commit(operator, vec![event]).await?;
        self.kept.remove(&key);
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
