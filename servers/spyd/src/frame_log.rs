//! The evidence: one JSON line per frame received, and per event of the process.
//!
//! The file is opened for appending and each line is a single write, so that several spies may share a file and a
//! reader never sees half a line. Numbers are given under the same lock that writes, hence rise through the file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

pub(crate) struct FrameLog {
    state: Mutex<State>,
}

struct State {
    file: File,
    last: u64,
}

impl FrameLog {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { state: Mutex::new(State { file, last: 0 }) })
    }

    /// Notes a frame exactly as it came. `more` holds what the transport knows besides.
    pub(crate) fn frame(&self, transport: &str, raw: &str, more: &[(&str, Value)]) {
        let method = serde_json::from_str::<Value>(raw).ok().and_then(|frame| frame.get("method").cloned());
        let mut line = Map::new();
        line.insert("transport".to_owned(), transport.into());
        line.insert("method".to_owned(), method.unwrap_or(Value::Null));
        line.insert("raw".to_owned(), raw.into());
        self.append(line, more);
    }

    /// Notes something that is not a frame: `start`, `stop`, `cancelled`, ...
    pub(crate) fn event(&self, event: &str, more: &[(&str, Value)]) {
        let mut line = Map::new();
        line.insert("event".to_owned(), event.into());
        self.append(line, more);
    }

    fn append(&self, mut line: Map<String, Value>, more: &[(&str, Value)]) {
        for (key, value) in more {
            line.insert((*key).to_owned(), value.clone());
        }
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        line.insert("pid".to_owned(), std::process::id().into());
        line.insert("time_ns".to_owned(), json!(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.last += 1;
        line.insert("n".to_owned(), state.last.into());
        let text = format!("{}\n", Value::Object(line));
        // A frame that cannot be witnessed must not be acted on: a test would take silence for absence.
        if state.file.write(text.as_bytes()).ok() != Some(text.len()) {
            let _ = writeln!(io::stderr(), "spyd: the frame log cannot be written");
            std::process::exit(3);
        }
    }
}
