//! Reports that operators had made: files of the home folder for seven days, and a record of each.

use std::fs;
use std::time::{Duration, SystemTime};

use portcullis_audit::{Event, EventName};
use portcullis_core::{ErrorCode, Sha256Digest};
use portcullis_governance::operator::OperatorProof;
use serde_json::json;

use super::{Control, ControlError};

/// How long one is kept.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

impl Control {
    /// Keeps a report, once it is on record that it was made.
    pub async fn keep_report(
        &self,
        operator: &OperatorProof,
        id: &str,
        (kind, format): (&str, &str),
        content: &[u8],
    ) -> Result<(), ControlError> {
        let failed = |error: std::io::Error| {
            ControlError::new(ErrorCode::Internal, format!("the report cannot be kept: {error}"))
        };
        let folder = self.home().join("exports");
        let path = folder.join(id);
        let data = json!({
            "bytes": content.len(), "export": id, "format": format, "out": path.display().to_string(), "report": kind,
            "sha256": Sha256Digest::of(content),
        });
        let event = Event::new(EventName::AuditExported, &operator.actor()).data(data);
        self.commit(operator, vec![event]).await?;
        fs::create_dir_all(&folder).map_err(failed)?;
        fs::write(&path, content).map_err(failed)
    }

    /// What a report says, as long as it is kept.
    pub fn report(&self, id: &str) -> Result<Vec<u8>, ControlError> {
        let gone = || ControlError::new(ErrorCode::NotFound, "there is no such report, or its time is over");
        let plain = id.starts_with("exp_") && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let path = Some(self.home().join("exports").join(id)).filter(|_| plain).ok_or_else(gone)?;
        let age = fs::metadata(&path).and_then(|found| found.modified());
        let age = age.ok().and_then(|made| SystemTime::now().duration_since(made).ok());
        if age.is_none_or(|age| age > KEPT) {
            let _ = fs::remove_file(&path);
            return Err(gone());
        }
        fs::read(&path).map_err(|_| gone())
    }
}
