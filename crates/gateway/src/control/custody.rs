//! Looking after the log itself: taking records again after a failure, another key for its checkpoints, its index.

use portcullis_audit::{Event, EventName};
use portcullis_core::ErrorCode;
use portcullis_governance::operator::OperatorProof;
use serde_json::{Value, json};

use super::evidence::blocking;
use super::{Control, ControlError};
use crate::index;

impl Control {
    /// Takes records again after a failure, once its cause is removed (AUD-3, AUD-63).
    pub async fn unblock(&self, operator: &OperatorProof, reason: &str) -> Result<Value, ControlError> {
        let (log, actor, reason) = (self.log.clone(), operator.actor(), reason.to_owned());
        if log.blocked().is_none() {
            return Ok(json!({"unblocked": false}));
        }
        let receipt = blocking(move || log.unblock(&actor, &reason)).await?;
        // What failed may be in the log all the same: the other replicas must have it, or know that nothing came of it.
        if let Some(replicas) = &self.replicas {
            replicas.catch_up_with_own_log().await?;
        }
        Ok(json!({"unblocked": true, "seq": receipt.seq}))
    }

    /// Signs checkpoints with another key from now on; the next one is signed with both (AUD-33).
    pub async fn rotate_signer(&self, operator: &OperatorProof, reason: &str) -> Result<Value, ControlError> {
        let (log, actor, reason) = (self.log.clone(), operator.actor(), reason.to_owned());
        let old = log.vkey().to_string();
        let new = blocking(move || log.rotate_signer(&actor, &reason)).await?;
        Ok(json!({"new": new.to_string(), "old": old}))
    }

    /// Makes the index of the log anew (AUD-66).
    pub async fn rebuild_index(&self, operator: &OperatorProof) -> Result<Value, ControlError> {
        let log = self.log.clone();
        let records = index::rebuild(log.dir(), &log.index_path(), &log.id().to_string())
            .await
            .map_err(|error| ControlError::new(ErrorCode::ControlUnavailable, error.to_string()))?;
        let data = json!({"reason": "asked for", "records": records});
        let event = Event::new(EventName::AuditIndexRebuilt, &operator.actor()).data(data);
        self.commit(operator, vec![event]).await?;
        Ok(json!({"records": records}))
    }
}
