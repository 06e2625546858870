//! Secrets that wait for an operator, under ids that admin tools gave out (ADM-4, ADM-24).

use portcullis_core::ErrorCode;
use portcullis_gateway::control::CaptureKind;
use serde_json::json;

use super::door::Door;
use super::{Answer, Request};
use crate::failure::Failure;

pub(super) async fn perform(door: &Door<'_>, request: &Request) -> Answer {
    Ok(match request {
        Request::CaptureKind { id } => match door.capture_kind(id)? {
            CaptureKind::Fetch => json!({"kind": "fetch"}),
            CaptureKind::Give => json!({"kind": "give"}),
        },
        Request::CaptureFetch { id } => json!({"key": door.fetch(&json!(id))?}),
        Request::CaptureGive { id, value } => json!(door.give(&json!(id), value).await?),
        other => {
            return Err(Failure::new(ErrorCode::Internal, format!("{other:?} is no capture")));
        }
    })
}
