//! What is kept of results, for operators (CTX-21: agents cannot list it).

use portcullis_audit::{Event, EventName};
use portcullis_context::{Handle, Record, Selector, view_artifact};
use portcullis_core::ErrorCode;
use portcullis_governance::operator::OperatorProof;
use serde_json::{Value, json};

use super::{Control, ControlError};

impl Control {
    /// Every artifact that is alive, the oldest first.
    pub fn artifacts(&self) -> Vec<Record> {
        self.shaping.artifacts().records()
    }

    /// Part of an artifact, for who looks at what the gateway keeps.
    pub fn look_at_artifact(
        &self,
        handle: &str,
        selector: &Value,
    ) -> Result<(Value, Option<String>), ControlError> {
        let absent = || ControlError::new(ErrorCode::NotFound, "there is no such artifact");
        let handle: Handle = handle.parse().map_err(|_| absent())?;
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
        handles: Vec<String>,
        reason: &str,
    ) -> Result<usize, ControlError> {
        let handles: Vec<Handle> = handles.iter().filter_map(|handle| handle.parse().ok()).collect();
        if handles.is_empty() {
            return Ok(0);
        }
        let digests: Vec<Value> = (self.artifacts().iter())
            .filter(|record| handles.contains(&record.handle))
            .map(|record| json!(record)["content_hash"].clone())
            .collect();
        let data = json!({"digests": digests, "reason": portcullis_core::error::one_line(reason)});
        self.commit(operator, vec![Event::new(EventName::ArtifactErased, &operator.actor()).data(data)])
            .await?;
        Ok(handles.into_iter().filter(|handle| self.shaping.artifacts().remove(*handle)).count())
    }

    /// Part of an artifact, on record before it is shown.
    pub async fn view_artifact(
        &self,
        operator: &OperatorProof,
        handle: &str,
        selector: &Value,
    ) -> Result<Value, ControlError> {
        let handle: Handle =
            handle.parse().map_err(|error| ControlError::field("handle", format!("{error}")))?;
        let selector =
            Selector::read(selector).map_err(|error| ControlError::field("selector", error.to_string()))?;
        let (record, view) = {
            let opened = self.shaping.artifacts().open_for_operator(handle).map_err(|_| {
                let message = "there is no such artifact; `portcullis artifact list` names those there are";
                ControlError::new(ErrorCode::NotFound, message)
            })?;
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
        Ok(json!({"record": record, "slice": slice, "more": view.more.map(|more| more.to_string())}))
    }
}
