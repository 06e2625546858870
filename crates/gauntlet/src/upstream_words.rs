//! What servers say when something goes wrong (GNT-Z13): scrubbed, cut, cleaned.

use bytes::Bytes;
use portcullis_core::jsonrpc::RpcError;
use portcullis_core::scrub::{WITHHELD, scrub};
use serde_json::Value;

use crate::Gauntlet;
use crate::sanitise::clean::{Clean, Raw};
use crate::sanitise::{Escape, Report};
use crate::tape::{Kind, Tape};

/// The longest upstream error text shown, in characters before escaping.
pub const MAX_ERROR_CHARACTERS: usize = 2_048;

/// A server's JSON-RPC error, safe to show.
#[derive(Debug)]
pub struct UpstreamWords {
    /// The code it gave.
    pub code: i64,
    /// Its message.
    pub message: Clean<String>,
    /// What else it gave, if all of it can be shown.
    pub data: Option<Clean<Value>>,
}

impl Gauntlet {
    /// An error text: secrets out, cut, then the three transforms. What cannot be made safe is withheld.
    pub fn clean_error(&self, raw: Raw<&str>) -> Clean<String> {
        Clean::new(self.error_text(raw.into_inner()))
    }

    fn error_text(&self, text: &str) -> String {
        let (redacted, _) = self.redacted(text);
        let scrubbed = scrub(&redacted);
        // Cut before cleaning: a cut through clean text could leave half a reference (GNT-O2).
        let cut =
            scrubbed.char_indices().nth(MAX_ERROR_CHARACTERS).map_or(&*scrubbed, |(at, _)| &scrubbed[..at]);
        let clean = self.sanitiser.text(cut, Escape::Html, usize::MAX, &mut Report::default());
        // Removing a marker may have put two halves of a secret together.
        clean.map_or_else(|_| WITHHELD.to_owned(), |clean| scrub(&self.redacted(&clean).0).into_owned())
    }

    /// A JSON-RPC error object as received; `None` if it is none.
    pub fn clean_rpc_error(&self, raw: Raw<Bytes>) -> Option<UpstreamWords> {
        let error: RpcError = serde_json::from_slice(&raw.into_inner()).ok()?;
        let message = self.clean_error(Raw::new(&error.message));
        let data = error.data.as_deref().and_then(|data| self.error_data(data.get())).map(Clean::new);
        Some(UpstreamWords { code: error.code, message, data })
    }

    /// The data of an error, each text in it treated as an error text; `None` if a name in it cannot be shown, or
    /// it is too much.
    fn error_data(&self, json: &str) -> Option<Value> {
        if json.len() > portcullis_core::scrub::MAX_BYTES {
            return None;
        }
        let tape = Tape::read(json, &mut 0).ok()?;
        let mut names = tape.root().everything().filter(|view| view.kind() == Kind::Name);
        if !names.all(|name| self.sanitiser.is_clean(&name.text())) {
            return None;
        }
        let mut value = tape.root().value();
        let mut pending = vec![&mut value];
        while let Some(value) = pending.pop() {
            match value {
                Value::String(text) => *text = self.error_text(text),
                Value::Array(items) => pending.extend(items),
                Value::Object(members) => {
                    for (name, member) in members {
                        if portcullis_core::scrub::is_secret_key(name) {
                            *member = portcullis_core::scrub::MASK.into();
                        }
                        pending.push(member);
                    }
                }
                _ => {}
            }
        }
        Some(value)
    }
}
