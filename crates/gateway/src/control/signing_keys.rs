//! Keys that deliveries of records servers are signed with, where they go past the gateway (REC-70). They are held sealed; an
//! operator has one written to a file, once, for the program that verifies the deliveries.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use portcullis_audit::{Event, EventName};
use portcullis_core::error::one_line;
use portcullis_core::{ErrorCode, Secret, ServerIdentity};
use portcullis_governance::operator::OperatorProof;
use serde_json::json;

use super::registration::need_reason;
use super::{Control, ControlError};

impl Control {
    /// Writes the key of a subscription that delivers elsewhere into a new file below the gateway's home. It is on record
    /// first, and held no longer afterwards.
    pub async fn export_signing_key(
        &self,
        operator: &OperatorProof,
        server: &ServerIdentity,
        subscription: &str,
        reason: &str,
    ) -> Result<PathBuf, ControlError> {
        need_reason(reason)?;
        let hooks = &self.settings.records_hooks;
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if !subscription.bytes().all(is_name) || !hooks.holds(server.as_str(), subscription) {
            let shown = portcullis_core::name::printable(subscription);
            let message = format!(
                "no signing key of subscription {shown} is held for '{server}'; a key is handed over once, and another comes with `rotate_secret`"
            );
            return Err(ControlError::new(ErrorCode::NotFound, message));
        }
        let file = self.home().join("records").join(server.as_str()).join(format!("{subscription}.secret"));
        let data = json!({
            "file": file.file_name().map(|name| name.to_string_lossy()), "reason": one_line(reason), "server": server,
            "subscription_id": subscription,
        });
        self.commit(operator, vec![Event::new(EventName::RecordsKeyExported, &operator.actor()).data(data)])
            .await?;
        hooks.hand_over(server.as_str(), subscription, |key| write_new(&file, key)).map_err(|error| {
            let message = format!("{} cannot be written, so the key stays here: {error}", file.display());
            ControlError::new(ErrorCode::Conflict, message)
        })?;
        Ok(file)
    }
}

/// A key that is still in the way was not fetched yet, and is not overwritten.
fn write_new(path: &Path, key: &Secret<String>) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(key.expose().as_bytes())?;
    file.sync_all()
}
