//! The switches, and the file they come from.
//!
//! The file is read before every frame. Its content counts, not its time stamp, so that two changes within one clock
//! tick are both seen. A file that does not parse, or holds an unknown switch, leaves the last good one in force and
//! is reported once in the frame log: a misspelt switch would otherwise be a test that cannot fail.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;
use serde_json::{Map, Value};

/// Everything that can be switched; the default is an honest server.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Control {
    /// What it claims about its tools, by tool.
    pub(crate) annotations: BTreeMap<String, serde_json::Value>,
    /// Other descriptions, by tool.
    pub(crate) description: BTreeMap<String, String>,
    /// Other input schemas, by tool.
    pub(crate) schema: BTreeMap<String, Value>,
    /// Other output schemas, by tool.
    pub(crate) output_schema: BTreeMap<String, Value>,
    /// Other titles, by tool.
    pub(crate) title: BTreeMap<String, String>,
    /// Other tools altogether: whole definitions.
    pub(crate) catalogue: Option<Vec<Value>>,
    /// What the server says about itself.
    pub(crate) instructions: Option<String>,
    /// What tools answer with instead of their result, by tool.
    pub(crate) result: BTreeMap<String, Value>,
    /// JSON-RPC errors that tools answer with instead of their result, by tool.
    pub(crate) error: BTreeMap<String, Value>,
    /// Texts that are written as they are: `"@name@"` in a result becomes the text of that name, and the list of tools is
    /// the text `tools`.
    pub(crate) verbatim: BTreeMap<String, String>,
    /// Tools that are listed only to clients with this capability, by tool.
    pub(crate) needs: BTreeMap<String, String>,
    /// What resources say instead, by URI.
    pub(crate) texts: BTreeMap<String, String>,
    /// Tools that are not listed and not callable.
    pub(crate) drop: Vec<String>,
    /// A tool that was not there before.
    pub(crate) extra_tool: Option<String>,
    /// Another `serverInfo.version`.
    pub(crate) version: Option<String>,
    /// `tools/list` in so many pages.
    pub(crate) pages: Option<usize>,
    /// Every page names the same next page.
    pub(crate) cursor_loop: bool,
    /// The first cursor is the empty string, which is a valid cursor.
    pub(crate) empty_cursor: bool,
    /// Announce a changed list: `true` once, or so many times in a row. Once per content of this file.
    pub(crate) list_changed: Repeat,
    /// Say three times that these resources changed, to who subscribed; once per content of this file.
    pub(crate) updated: Vec<String>,

    /// Do not answer `initialize`.
    pub(crate) silent_initialize: bool,
    /// Do not answer `server/discover`.
    pub(crate) silent_discover: bool,
    /// Exit on `server/discover`, as one old server does.
    pub(crate) die_on_discover: bool,

    /// Which method the switches below apply to: `tools/call` unless told otherwise, `*` for every one.
    pub(crate) on: Option<String>,
    /// `echo` answers with a structured value that its schema forbids.
    pub(crate) bad_output: bool,
    /// Write a line that is not JSON before the answer.
    pub(crate) garbage: bool,
    /// Write a valid notification of this many bytes before the answer.
    pub(crate) huge_line: Option<usize>,
    /// Write the answer in small pieces.
    pub(crate) split_writes: bool,
    /// Exit before the answer.
    pub(crate) die_on_call: bool,
    /// Exit in the middle of the answer, which is then no whole line.
    pub(crate) die_mid_line: bool,
    /// Exit after the answer.
    pub(crate) die_after_call: bool,
    /// Take the request and say nothing.
    pub(crate) never_answer: bool,
    /// Send the answer twice.
    pub(crate) answer_twice: bool,
    /// Answer under an id that nobody asked with.
    pub(crate) unknown_id: bool,
    /// Answer this much later, cancelled or not.
    pub(crate) late_ms: Option<u64>,
    /// Answer with a JSON-RPC error of this code and a gateway's own `_meta`.
    pub(crate) forge_error: Option<i64>,
    /// Put a gateway's own `_meta` into an honest result.
    pub(crate) forge_meta: bool,
    /// Log a message of this level during a call.
    pub(crate) log: Option<String>,
    /// How often; once, if not said.
    pub(crate) log_times: Option<usize>,
    /// Ask the client this during a call: one method, or several in turn.
    pub(crate) server_request: OneOrMany,
    /// Try to get out during a call, and log what came of it.
    pub(crate) isolate: Attempts,

    /// Which method the HTTP switches below apply to: every one unless told otherwise.
    pub(crate) http_on: Option<String>,
    /// Answer 404 to one session, once per content of this file.
    pub(crate) expire_session: bool,
    /// Answer `tools/call` as an event stream.
    pub(crate) sse: bool,
    /// Answer with this HTTP status and nothing else.
    pub(crate) status: Option<u16>,
    /// Answer 307 to this address.
    pub(crate) redirect: Option<String>,
    /// Send the answer under another content type.
    pub(crate) content_type: Option<String>,
}

/// `true`, `false` or a number of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Repeat {
    Once(bool),
    Times(u32),
}

impl Default for Repeat {
    fn default() -> Self {
        Self::Once(false)
    }
}

impl Repeat {
    pub(crate) fn times(self) -> u32 {
        match self {
            Self::Once(once) => u32::from(once),
            Self::Times(times) => times,
        }
    }
}

/// One string or a list of them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl Default for OneOrMany {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl OneOrMany {
    pub(crate) fn as_slice(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

/// Ways out of a sandbox to try.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Attempts {
    /// Files to read.
    pub(crate) read: Vec<PathBuf>,
    /// Files to create.
    pub(crate) write: Vec<PathBuf>,
    /// `host:port` pairs to connect to.
    pub(crate) connect: Vec<String>,
    /// Words to say to `host:port`, by whom they are said to.
    pub(crate) say: BTreeMap<String, String>,
    /// Programs to run, without arguments.
    pub(crate) exec: Vec<PathBuf>,
}

impl Control {
    /// A message as it is sent.
    pub(crate) fn written(&self, message: &Value) -> String {
        let replaced = |text: String, (name, verbatim): (&String, &String)| {
            text.replace(&format!("\"@{name}@\""), verbatim)
        };
        self.verbatim.iter().fold(message.to_string(), replaced)
    }

    /// Whether the answer switches apply to this method.
    pub(crate) fn misbehaves_on(&self, method: &str) -> bool {
        let on = self.on.as_deref().unwrap_or("tools/call");
        on == "*" || on == method
    }

    /// Whether the HTTP switches apply to this method.
    pub(crate) fn http_misbehaves_on(&self, method: &str) -> bool {
        let on = self.http_on.as_deref().unwrap_or("*");
        on == "*" || on == method
    }
}

/// A content of the control file, numbered: what happens "once" happens once per generation.
#[derive(Debug, Clone, Default)]
pub(crate) struct Generation {
    pub(crate) number: u64,
    pub(crate) control: Arc<Control>,
}

/// The file, and its last good content.
pub(crate) struct ControlFile {
    path: Option<PathBuf>,
    last: Mutex<(Option<Vec<u8>>, Generation)>,
}

impl ControlFile {
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        Self { path, last: Mutex::new((None, Generation::default())) }
    }

    /// The switches as they are now; the error says, once, why a new content was not taken.
    pub(crate) fn read(&self) -> (Generation, Option<String>) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let text = self.path.as_ref().and_then(|path| fs::read(path).ok());
        if text == last.0 {
            return (last.1.clone(), None);
        }
        let parsed = match text.as_deref().map(<[u8]>::trim_ascii) {
            // An absent or empty file is an honest server.
            None | Some(b"") => Ok(Control::default()),
            Some(text) => serde_json::from_slice::<Map<String, Value>>(text)
                .and_then(|map| serde_json::from_value(Value::Object(map))),
        };
        last.0 = text;
        match parsed {
            Ok(control) => {
                last.1 = Generation { number: last.1.number + 1, control: Arc::new(control) };
                (last.1.clone(), None)
            }
            Err(error) => (last.1.clone(), Some(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_content_is_seen_and_a_misspelt_switch_keeps_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.json");
        let file = ControlFile::new(Some(path.clone()));
        assert_eq!(*file.read().0.control, Control::default());
        fs::write(&path, r#"{"late_ms": 5, "list_changed": true, "server_request": "roots/list"}"#).unwrap();
        let (first, _) = file.read();
        assert_eq!(first.control.late_ms, Some(5));
        assert_eq!(first.control.server_request.as_slice(), ["roots/list"]);
        assert_eq!(file.read().0.number, first.number);
        fs::write(&path, r#"{"late": 5}"#).unwrap();
        let (kept, error) = file.read();
        assert_eq!(kept.control.late_ms, Some(5));
        assert!(error.unwrap().contains("late"));
        assert!(file.read().1.is_none(), "told once");
        fs::write(&path, r#"{"late_ms": 6, "list_changed": 5}"#).unwrap();
        let (second, _) = file.read();
        assert_eq!((second.control.late_ms, second.control.list_changed.times()), (Some(6), 5));
        assert!(second.number > first.number);
    }

    #[test]
    fn what_is_verbatim_is_written_as_it_is() {
        let control: Control = serde_json::from_str(r#"{"verbatim":{"echo":"{ \"n\": 1e2 }"}}"#).unwrap();
        let message = serde_json::json!({ "result": "@echo@", "other": "@x@" });
        let written = control.written(&message);
        assert!(written.contains(r#""result":{ "n": 1e2 }"#) && written.contains("\"@x@\""), "{written}");
    }

    #[test]
    fn the_answer_switches_are_about_calls_unless_told_otherwise() {
        let control = Control::default();
        assert!(control.misbehaves_on("tools/call") && !control.misbehaves_on("tools/list"));
        assert!(control.http_misbehaves_on("tools/list"));
        let all: Control = serde_json::from_str(r#"{"on":"*"}"#).unwrap();
        assert!(all.misbehaves_on("initialize"));
    }
}
