//! JSON text with some strings replaced and everything else kept byte for byte, but for spaces between tokens.
//!
//! A parsed and written value would have other numbers (`1e2`) and perhaps another order; a published schema must
//! not (SURF-30).

use std::collections::BTreeMap;

/// What becomes of a value, by its pointer (RFC 6901).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Edit {
    /// Another string.
    Text(String),
    /// Another value, already JSON.
    Json(String),
    /// Left out, with its key.
    Gone,
}

/// The text without spaces between tokens, with edits made. The text must be JSON.
pub(super) fn rewritten(text: &str, edits: &BTreeMap<String, Edit>) -> String {
    let mut writer = Writer { text, at: 0, out: String::with_capacity(text.len()), edits };
    writer.value(&mut String::new());
    writer.out
}

/// Only without spaces.
pub(super) fn compact(text: &str) -> String {
    rewritten(text, &BTreeMap::new())
}

struct Writer<'a> {
    text: &'a str,
    at: usize,
    out: String,
    edits: &'a BTreeMap<String, Edit>,
}

impl<'a> Writer<'a> {
    fn value(&mut self, pointer: &mut String) {
        self.spaces();
        match self.edits.get(pointer.as_str()) {
            Some(Edit::Text(text)) => {
                let json = serde_json::Value::from(text.as_str()).to_string();
                self.instead(&json, pointer);
            }
            Some(Edit::Json(json)) => self.instead(&json.clone(), pointer),
            _ => self.plain(pointer),
        }
    }

    /// Writes something else in place of the value that stands here.
    fn instead(&mut self, json: &str, pointer: &mut String) {
        let length = self.out.len();
        self.plain(pointer);
        self.out.truncate(length);
        self.out.push_str(json);
    }

    fn plain(&mut self, pointer: &mut String) {
        match self.peek() {
            Some(b'{') => self.members(pointer),
            Some(b'[') => self.items(pointer),
            Some(b'"') => {
                let string = self.string();
                self.out.push_str(string);
            }
            _ => {
                let rest = &self.text[self.at..];
                let end = rest.find([',', ']', '}', ' ', '\n', '\r', '\t']).unwrap_or(rest.len());
                self.out.push_str(&rest[..end]);
                self.at += end;
            }
        }
    }

    fn members(&mut self, pointer: &mut String) {
        self.at += 1;
        self.out.push('{');
        let mut first = true;
        loop {
            self.spaces();
            match self.peek() {
                Some(b'"') => {}
                Some(b',') => {
                    self.at += 1;
                    continue;
                }
                _ => break,
            }
            let key = self.string();
            self.spaces();
            self.at += 1;
            let (length, before) = (pointer.len(), self.out.len());
            match key.contains('\\') {
                true => step(pointer, &serde_json::from_str::<String>(key).unwrap_or_default()),
                false => step(pointer, key.trim_matches('"')),
            }
            if !first {
                self.out.push(',');
            }
            self.out.push_str(key);
            self.out.push(':');
            let gone = self.edits.get(pointer.as_str()) == Some(&Edit::Gone);
            self.value(pointer);
            if gone {
                self.out.truncate(before);
            } else {
                first = false;
            }
            pointer.truncate(length);
        }
        self.at += 1;
        self.out.push('}');
    }

    fn items(&mut self, pointer: &mut String) {
        self.at += 1;
        self.out.push('[');
        let mut index = 0;
        loop {
            self.spaces();
            match self.peek() {
                Some(b']') | None => break,
                Some(b',') => {
                    self.at += 1;
                    self.out.push(',');
                    continue;
                }
                _ => {}
            }
            let length = pointer.len();
            step(pointer, &index.to_string());
            self.value(pointer);
            pointer.truncate(length);
            index += 1;
        }
        self.at += 1;
        self.out.push(']');
    }

    /// The string that stands here, with its quotes.
    fn string(&mut self) -> &'a str {
        let (start, bytes) = (self.at, self.text.as_bytes());
        self.at += 1;
        while let Some(byte) = bytes.get(self.at) {
            self.at += match byte {
                b'"' => break,
                b'\\' => 2,
                _ => 1,
            };
        }
        self.at += 1;
        &self.text[start..self.at.min(self.text.len())]
    }

    fn spaces(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }
}

/// Lets a pointer go one key further.
pub(super) fn step(pointer: &mut String, key: &str) {
    pointer.push('/');
    match key.contains(['~', '/']) {
        true => pointer.push_str(&key.replace('~', "~0").replace('/', "~1")),
        false => pointer.push_str(key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_edited_changes() {
        // SURF-30
        let text =
            r#" { "a" : 1e2, "b/c": [ 1.0 , "x\"}" , {"d":"old"} ], "z":{ }, "gone" : [1,2] , "n":null }"#;
        assert_eq!(compact(text), r#"{"a":1e2,"b/c":[1.0,"x\"}",{"d":"old"}],"z":{},"gone":[1,2],"n":null}"#);
        let edits = BTreeMap::from([
            ("/b~1c/2/d".to_owned(), Edit::Text("a \"new\" one".to_owned())),
            ("/gone".to_owned(), Edit::Gone),
            ("/z".to_owned(), Edit::Json("[true]".to_owned())),
        ]);
        assert_eq!(
            rewritten(text, &edits),
            r#"{"a":1e2,"b/c":[1.0,"x\"}",{"d":"a \"new\" one"}],"z":[true],"n":null}"#
        );
        assert_eq!(
            rewritten(r#"{"a":1,"b":2}"#, &BTreeMap::from([("/a".to_owned(), Edit::Gone)])),
            r#"{"b":2}"#
        );
    }
}
