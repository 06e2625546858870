//! `log.toml`: what a log says of itself, beside the log. Its origin and key are also in its first record.

use std::path::Path;

use serde_json::{Value, json};

use crate::error::{AtPath as _, AuditError};
use crate::files;
use crate::note::NoteKey;

/// Who keeps the log, and what its checkpoints are checked with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Description {
    pub(crate) origin: String,
    /// `None` in logs of before there were checkpoints.
    pub(crate) key: Option<NoteKey>,
}

impl Description {
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, AuditError> {
        if !path.exists() {
            return Ok(None);
        }
        let text = String::from_utf8(files::read(path)?)
            .map_err(|_| std::io::Error::new(std::io::ErrorKind::InvalidData, "is not text"))
            .at(path)?;
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_prefix('='))?;
            // A JSON string is a TOML basic string; nothing else is ever written here.
            serde_json::from_str::<Value>(line.trim()).ok()?.as_str().map(ToOwned::to_owned)
        };
        let wrong = |problem: &str| AuditError::Layout { path: path.into(), problem: problem.into() };
        let origin = value("origin").ok_or_else(|| wrong("does not say the log's origin"))?;
        let key = value("vkey").map(|key| key.parse().map_err(|_| wrong("has a vkey that is none")));
        Ok(Some(Self { origin, key: key.transpose()? }))
    }

    pub(crate) fn write(&self, path: &Path) -> Result<(), AuditError> {
        let mut text = format!("origin = {}\n", json!(self.origin));
        if let Some(key) = &self.key {
            text += &format!("vkey = {}\n", json!(key.to_string()));
        }
        files::replace(path, text.as_bytes())
    }
}
