//! JSON as editors write it: with comments and with commas behind the last member. Both become blanks, so that what is said
//! about places holds for the file as it is.

/// The text as plain JSON, of the same length. A comment that does not end is left as it is, and so not understood.
pub(in crate::commands) fn plain(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    let mut at = 0;
    // The last comma that nothing but blanks and comments have followed.
    let mut comma = None;
    while at < bytes.len() {
        match (bytes[at], bytes.get(at + 1)) {
            (b'"', _) => {
                comma = None;
                at = end_of_string(&bytes, at);
            }
            (b'/', Some(b'/')) => {
                let end = bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |n| at + n);
                blank(&mut bytes[at..end]);
                at = end;
            }
            (b'/', Some(b'*')) => {
                let Some(length) = bytes[at + 2..].windows(2).position(|two| two == b"*/") else { break };
                let end = at + 2 + length + 2;
                blank(&mut bytes[at..end]);
                at = end;
            }
            (b',', _) => {
                comma = Some(at);
                at += 1;
            }
            (b'}' | b']', _) => {
                if let Some(comma) = comma.take() {
                    bytes[comma] = b' ';
                }
                at += 1;
            }
            (byte, _) => {
                if !byte.is_ascii_whitespace() {
                    comma = None;
                }
                at += 1;
            }
        }
    }
    // Only whole characters became blanks, one for each of their bytes.
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn blank(bytes: &mut [u8]) {
    for byte in bytes.iter_mut().filter(|byte| **byte != b'\n') {
        *byte = b' ';
    }
}

#[cfg(test)]
mod tests {
    use super::plain;
    use serde_json::{Value, json};

    #[test]
    fn comments_and_last_commas_go_and_texts_stay() {
        // T-IMP-1
        let text = "{ // é first\n \"a\": \"// no, \\\" /* text */,}\", /* over\n lines */ \"b\": [1, 2, /* x */ ], }";
        let document: Value = serde_json::from_str(&plain(text)).unwrap();
        assert_eq!(document, json!({"a": "// no, \" /* text */,}", "b": [1, 2]}));
        assert_eq!(plain(text).len(), text.len());
    }

    #[test]
    fn what_is_wrong_stays_wrong_where_it_is() {
        for text in ["{,}x", "{\"a\": 1,, }", "/* open {\"a\": 1}", "{\"a\"", "[1 2]"] {
            assert!(serde_json::from_str::<Value>(&plain(text)).is_err(), "{text}");
        }
        let error = serde_json::from_str::<Value>(&plain("// one\n// two\n{\"a\": nope}")).unwrap_err();
        assert_eq!(error.line(), 3);
    }
}
