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
