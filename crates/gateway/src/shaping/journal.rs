//! Sessions as files, for whoever builds prompts of them (CTX-52); off unless an operator wants them.
//!
//! One line when a call is made and one when it is answered, in the form that the loader of `portcullis-context` reads. What is
//! written is what the model was shown, not what the server sent, and arguments are written without secrets. This is a
//! convenience and no evidence: a full disk loses lines here and stops nothing.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};

use bytes::Bytes;
use portcullis_core::{EventId, SessionId, Timestamp};
use portcullis_gauntlet::Gauntlet;
use serde_json::{Map, Value, json};

/// Where sessions are written, by a thread of its own so that no call waits for it.
#[derive(Debug)]
pub(crate) struct Journal {
    entries: Sender<Entry>,
}

/// One call with what came of it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) session: SessionId,
    pub(crate) at: Timestamp,
    /// What was called, by the name the agent knows.
    pub(crate) name: String,
    /// As they were sent, without secrets.
    pub(crate) arguments: String,
    pub(crate) came: Came,
}

/// What the model was shown.
#[derive(Debug)]
pub(crate) enum Came {
    /// A result, rendered.
    Result(Bytes),
    /// An error of the protocol.
    Error(String),
}

impl Journal {
    /// Starts writing below `home`.
    pub(crate) fn open(home: &Path) -> std::io::Result<Self> {
        let folder = folder(home);
        if !folder.is_dir() {
            fs::DirBuilder::new().mode(0o700).create(&folder)?;
        }
        let (entries, receiver) = channel();
        std::thread::Builder::new().name("session-log".into()).spawn(move || write(&folder, &receiver))?;
        Ok(Self { entries })
    }

    /// Writes a call down, some time soon.
    pub(crate) fn note(&self, entry: Entry) {
        // The thread ends with the process; nobody waits for the last line.
        let _ = self.entries.send(entry);
    }
}

/// Where the sessions of a home folder are.
pub fn folder(home: &Path) -> PathBuf {
    home.join("sessions")
}

/// Arguments as they may be written.
pub(crate) fn without_secrets(arguments: Option<&str>, gauntlet: &Gauntlet) -> String {
    let arguments = arguments.unwrap_or("{}");
    gauntlet.redacted_arguments(arguments).unwrap_or_else(|| arguments.to_owned())
}

fn write(folder: &Path, entries: &Receiver<Entry>) {
    for entry in entries {
        let file = folder.join(format!("{}.jsonl", entry.session));
        let [call, result] = lines(&entry);
        let opened = fs::OpenOptions::new().append(true).create(true).mode(0o600).open(&file);
        if let Err(error) =
            opened.and_then(|mut file| file.write_all(format!("{call}\n{result}\n").as_bytes()))
        {
            tracing::warn!(%error, file = %file.display(), "a session log misses a call");
        }
    }
}

/// The two lines of a call.
fn lines(entry: &Entry) -> [Value; 2] {
    let id = EventId::new(entry.at).to_string();
    let arguments: Value = serde_json::from_str(&entry.arguments).unwrap_or(Value::Null);
    let call = json!({
        "id": id, "type": "tool_call", "text": format!("{}({})", entry.name, entry.arguments), "timestamp": entry.at.to_string(),
        "tool_name": entry.name, "args": arguments,
    });
    let mut result = json!({
        "id": format!("result:{id}"), "type": "tool_result", "parent_id": id, "timestamp": entry.at.to_string(),
        "tool_name": entry.name,
    });
    match &entry.came {
        Came::Result(shown) => {
            let shown: Map<String, Value> = serde_json::from_slice(shown).unwrap_or_default();
            result["content"] = ["content", "contents", "messages", "completion"]
                .iter()
                .find_map(|key| shown.get(*key).cloned())
                .unwrap_or_else(|| Value::Object(shown.clone()));
            if shown.get("isError") == Some(&Value::Bool(true)) {
                result["is_error"] = true.into();
            }
        }
        Came::Error(message) => {
            result["text"] = message.as_str().into();
            result["is_error"] = true.into();
        }
    }
    [call, result]
}

#[cfg(test)]
mod tests {
    use portcullis_context::session_log::{Strictness, load};

    use super::*;

    fn entry(came: Came) -> Entry {
        let at = Timestamp::from_millis(1_700_000_000_000);
        Entry {
            session: SessionId::new(at),
            at,
            name: "spy__echo".into(),
            arguments: r#"{"text":"x"}"#.into(),
            came,
        }
    }

    #[test]
    fn what_is_written_can_be_loaded_as_a_session() {
        // CTX-52
        let shown = Bytes::from_static(br#"{"content":[{"type":"text","text":"hello"}],"isError":true}"#);
        let texts: Vec<String> = [Came::Result(shown), Came::Error("refused".into())]
            .into_iter()
            .flat_map(|came| lines(&entry(came)).map(|line| line.to_string()))
            .collect();
        let loaded = load(texts.join("\n").as_bytes(), Strictness::Strict).unwrap();
        assert_eq!(loaded.items.len(), 4);
        assert_eq!(loaded.items[0].text, r#"spy__echo({"text":"x"})"#);
        assert_eq!((loaded.items[1].text.as_str(), loaded.items[3].text.as_str()), ("hello", "refused"));
        assert_eq!(loaded.items[1].parent_id.as_deref(), Some(loaded.items[0].id.as_str()));
    }
}
