//! What is kept of results, for operators (CTX-21: agents cannot list it).

use portcullis_audit::{Event, EventName};
use portcullis_context::{Handle, Record, Selector, view_artifact};
use portcullis_core::ErrorCode;
use portcullis_governance::operator::OperatorProof;
use serde_json::{Value, json};

use super::{Control, ControlError};

impl Control {
    /// What is on record of every artifact that is alive, the oldest first.
    pub fn artifacts(&self) -> Vec<Value> {
        self.shaping.artifacts().records().iter().map(described).collect()
    }

    /// The handle of a record, by its id or by the handle itself, of who has that.
    fn handle_of(&self, named: &str) -> Option<Handle> {
        named.parse().ok().or_else(|| {
            let records = self.shaping.artifacts().records();
            records.iter().map(|record| record.handle).find(|handle| handle.record_id() == named)
        })
    }

    /// Part of an artifact, for who looks at what the gateway keeps.
    pub fn look_at_artifact(
        &self,
        named: &str,
        selector: &Value,
    ) -> Result<(Value, Option<String>), ControlError> {
        let absent = || ControlError::new(ErrorCode::NotFound, "there is no such artifact");
        let handle = self.handle_of(named).ok_or_else(absent)?;
        let selector =
            Selector::read(selector).map_err(|error| ControlError::field("selector", error.to_string()))?;
        let opened = self.shaping.artifacts().open_for_operator(handle).map_err(|_| absent())?;
        let view = view_artifact(&opened, &selector, self.shaping.view_max_bytes());
        let view = view.map_err(|error| ControlError::field("selector", error.to_string()))?;
        let (portcullis_context::view::Slice::Text(slice) | portcullis_context::view::Slice::Part(slice)) =
            view.slice;
        Ok((json!(slice), view.more.map(|more| more.to_string())))
    }

    /// Forgets artifacts, once that is on record with their digests.
    pub async fn erase_artifacts(
        &self,
        operator: &OperatorProof,
        ids: &[String],
        reason: &str,
    ) -> Result<usize, ControlError> {
        let mut records = self.shaping.artifacts().records();
        records.retain(|record| ids.contains(&record.handle.record_id()));
        if records.is_empty() {
            return Ok(0);
        }
        let digests: Vec<_> = records.iter().map(|record| record.content_hash).collect();
        let data = json!({"digests": digests, "reason": portcullis_core::error::one_line(reason)});
        self.commit(operator, vec![Event::new(EventName::ArtifactErased, &operator.actor()).data(data)])
            .await?;
        Ok(records.iter().filter(|record| self.shaping.artifacts().remove(record.handle)).count())
    }

    /// Part of an artifact, on record before it is shown.
    pub async fn view_artifact(
        &self,
        operator: &OperatorProof,
        named: &str,
        selector: &Value,
    ) -> Result<Value, ControlError> {
        let selector =
            Selector::read(selector).map_err(|error| ControlError::field("selector", error.to_string()))?;
        let absent = || {
            let message = "there is no such artifact; `portcullis artifact list` names those there are";
            ControlError::new(ErrorCode::NotFound, message)
        };
        let handle = self.handle_of(named).ok_or_else(absent)?;
        let (record, view) = {
            let opened = self.shaping.artifacts().open_for_operator(handle).map_err(|_| absent())?;
            let view = view_artifact(&opened, &selector, self.shaping.view_max_bytes());
            let view = view.map_err(|error| ControlError::new(ErrorCode::ViewFailed, error.to_string()))?;
            (opened.record().clone(), view)
        };
        let event = Event::new(EventName::ArtifactViewed, &operator.actor()).data(json!({
            "bytes": view.bytes(), "call_id": record.origin.call_id, "handle": handle, "outcome": "shown",
            "selector": selector.kind(), "tool": record.origin.tool_identity,
        }));
        self.commit(operator, vec![event]).await?;
        let (portcullis_context::view::Slice::Text(slice) | portcullis_context::view::Slice::Part(slice)) =
            view.slice;
        Ok(
            json!({"record": described(&record), "slice": slice, "more": view.more.map(|more| more.to_string())}),
        )
    }
}

/// A record as operators see it: handles are their agents' (CTX-21).
fn described(record: &Record) -> Value {
    let mut described = json!(record);
    if let Some(members) = described.as_object_mut() {
        members.remove("handle");
        members.insert("id".into(), record.handle.record_id().into());
    }
    described
}
