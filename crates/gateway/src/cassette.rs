//! Cassettes: recorded results, to be given instead of calling (AUD-71, AUD-72).
//!
//! An entry is found by the tool's whole identity, server and declaration version included, and by the canonical
//! arguments: two servers with a tool of one name cannot be taken for each other, and a changed declaration is a miss.
//! Equal calls form a list; the n-th call gets the n-th entry.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use portcullis_core::{Sha256Digest, Timestamp};
use serde::{Deserialize, Serialize};

/// One recorded result, one line of a cassette.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The layout: 1.
    pub v: u8,
    /// The tool, with its server and the version of its declaration.
    pub tool_id: String,
    /// Digest of the canonical arguments.
    pub args_sha256: Sha256Digest,
    /// Which of the equal calls it was, from 0.
    pub n: u64,
    /// Whether the server answered with a JSON-RPC error instead of a result.
    pub is_error: bool,
    /// Digest of the response.
    pub response_sha256: Sha256Digest,
    /// Digest of the output schema the tool had, if it had one.
    pub schema_sha256: Option<Sha256Digest>,
    /// The raw response.
    pub response_b64: String,
    /// When it was recorded.
    pub time: Timestamp,
}

/// Why a file is not a cassette.
#[derive(Debug, thiserror::Error)]
pub enum CassetteError {
    /// It cannot be read.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// A line is not an entry, or its response is not the one it names.
    #[error("line {line}: {reason}")]
    Entry {
        /// Which line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
}

/// A cassette being played.
#[derive(Debug)]
pub struct Cassette {
    sha256: Sha256Digest,
    decks: Mutex<HashMap<(String, Sha256Digest), Deck>>,
}

#[derive(Debug, Default)]
struct Deck {
    entries: Vec<Recorded>,
    next: usize,
}

/// What a call gets instead of an answer.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// Which of the equal calls it was.
    pub n: u64,
    /// Whether it is a JSON-RPC error.
    pub is_error: bool,
    /// The raw response, exactly as it was received.
    pub response: Bytes,
    /// Its digest.
    pub sha256: Sha256Digest,
    /// The digest of the output schema the tool had, if it had one.
    pub schema_sha256: Option<Sha256Digest>,
}

impl Cassette {
    /// Reads a cassette; every response is held to its digest.
    pub fn load(path: &Path) -> Result<Self, CassetteError> {
        let mut decks: HashMap<_, Deck> = HashMap::new();
        let mut digest = Vec::new();
        for (index, line) in BufReader::new(std::fs::File::open(path)?).split(b'\n').enumerate() {
            let line = line?;
            if line.is_empty() {
                continue;
            }
            let wrong = |reason: String| CassetteError::Entry { line: index + 1, reason };
            let entry: Entry = serde_json::from_slice(&line).map_err(|error| wrong(error.to_string()))?;
            let response = BASE64.decode(&entry.response_b64).map_err(|_| wrong("is not base64".into()))?;
            let deck = decks.entry((entry.tool_id, entry.args_sha256)).or_default();
            if entry.v != 1 || Sha256Digest::of(&response) != entry.response_sha256 {
                return Err(wrong("the response is not the one the entry names".into()));
            }
            if entry.n != deck.entries.len() as u64 {
                return Err(wrong(format!(
                    "entry {} of its call stands where {} belongs",
                    entry.n,
                    deck.entries.len()
                )));
            }
            deck.entries.push(Recorded {
                n: entry.n,
                is_error: entry.is_error,
                response: response.into(),
                sha256: entry.response_sha256,
                schema_sha256: entry.schema_sha256,
            });
            digest.extend_from_slice(Sha256Digest::of(&line).as_bytes());
        }
        Ok(Self { sha256: Sha256Digest::of(&digest), decks: Mutex::new(decks) })
    }

    /// Names what is played, for the record.
    pub fn sha256(&self) -> Sha256Digest {
        self.sha256
    }

    /// The next entry for this call; `None` if there is none, or no more.
    pub fn next(&self, tool_id: &str, args: &str) -> Option<Recorded> {
        let mut decks = self.decks.lock().unwrap_or_else(PoisonError::into_inner);
        let deck = decks.get_mut(&(tool_id.to_owned(), args_sha256(args)))?;
        let found = deck.entries.get(deck.next)?.clone();
        deck.next += 1;
        Some(found)
    }
}

/// The digest of canonical arguments (AUD-71).
pub fn args_sha256(args: &str) -> Sha256Digest {
    Sha256Digest::of(args.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(tool: &str, n: u64, response: &str) -> Entry {
        Entry {
            v: 1,
            tool_id: tool.into(),
            args_sha256: args_sha256(r#"{"a":1}"#),
            n,
            is_error: false,
            response_sha256: Sha256Digest::of(response.as_bytes()),
            schema_sha256: None,
            response_b64: BASE64.encode(response),
            time: Timestamp::from_millis(0),
        }
    }

    fn load(lines: &[Entry]) -> Result<Cassette, CassetteError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cassette");
        let text: Vec<String> = lines.iter().map(|entry| serde_json::to_string(entry).unwrap()).collect();
        std::fs::write(&path, text.join("\n")).unwrap();
        Cassette::load(&path)
    }

    #[test]
    fn arguments_have_the_specified_digest() {
        // AUD-71
        let digest = "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862";
        assert_eq!(args_sha256(r#"{"a":1}"#).to_string(), digest);
    }

    #[test]
    fn equal_calls_are_answered_in_order_and_then_not_at_all_and_servers_do_not_mix() {
        // AUD-71, A-22
        let cassette = load(&[entry("a/x@1#1:00", 0, "first"), entry("a/x@1#1:00", 1, "second")]).unwrap();
        let next = |tool| cassette.next(tool, r#"{"a":1}"#).map(|found| found.response);
        assert_eq!(next("b/x@1#1:00"), None);
        assert_eq!(next("a/x@1#2:00"), None);
        assert_eq!(next("a/x@1#1:00").unwrap(), "first");
        assert_eq!(next("a/x@1#1:00").unwrap(), "second");
        assert_eq!(next("a/x@1#1:00"), None);
    }

    #[test]
    fn a_changed_response_and_a_gap_are_refused_with_their_line() {
        // AUD-72
        let mut changed = entry("a/x@1#1:00", 0, "first");
        changed.response_b64 = BASE64.encode("other");
        assert!(matches!(load(&[changed]), Err(CassetteError::Entry { line: 1, .. })));
        let gap = [entry("a/x@1#1:00", 0, "x"), entry("a/x@1#1:00", 2, "x")];
        assert!(matches!(load(&gap), Err(CassetteError::Entry { line: 2, .. })));
    }
}
