//! A few lines of an answer: counts and handles first, then as much data as fits (REC-41, SURF-73).
//!
//! No character of ours needs escaping afterwards, and data is charged at its escaped length, so what is released fits
//! too.

use serde_json::Value;

/// How long a value may be on a line.
const VALUE: usize = 256;

/// A text of bounded size, line by line.
#[derive(Debug)]
pub(super) struct Lines {
    text: String,
    spent: usize,
    most: usize,
}

impl Lines {
    /// The first line is always there, cut if it must be.
    pub(super) fn new(first: &str, most: usize) -> Self {
        let mut lines = Self { text: String::new(), spent: 0, most };
        let first = cut(&first.replace('\n', " "), most / 2);
        lines.spent = cost(&first);
        lines.text = first;
        lines
    }

    /// Adds a line if it fits.
    pub(super) fn add(&mut self, line: &str) -> bool {
        let line = line.replace('\n', " ");
        let price = cost(&line) + 1;
        let fits = self.spent + price <= self.most;
        if fits {
            self.spent += price;
            self.text.push('\n');
            self.text.push_str(&line);
        }
        fits
    }

    /// Adds as much of a text as fits.
    pub(super) fn add_text(&mut self, text: &str) {
        let room = self.most.saturating_sub(self.spent + 1);
        let mut kept = String::new();
        let mut price = 0;
        for c in text.chars() {
            price += char_cost(c);
            if price > room {
                break;
            }
            kept.push(c);
        }
        self.spent += cost(&kept) + 1;
        self.text.push('\n');
        self.text.push_str(&kept);
    }

    pub(super) fn text(self) -> String {
        self.text
    }
}

/// Bytes as they will be once the gauntlet has escaped them.
fn cost(text: &str) -> usize {
    text.chars().map(char_cost).sum()
}

fn char_cost(c: char) -> usize {
    match c {
        '<' | '>' => 4,
        '&' => 5,
        '"' | '\'' => 6,
        c => c.len_utf8(),
    }
}

fn cut(text: &str, most: usize) -> String {
    let mut kept = String::new();
    for c in text.chars() {
        if cost(&kept) + char_cost(c) > most {
            break;
        }
        kept.push(c);
    }
    kept
}

/// A record's fields on one line.
pub(super) fn fields(data: &Value) -> String {
    let members = data.as_object().into_iter().flatten();
    members.map(|(key, value)| format!("{key}={}", plain(value))).collect::<Vec<_>>().join(" | ")
}

pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => {
            let length = text.chars().count();
            let dense = length > 512
                && text.bytes().all(|byte| {
                    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'-' | b'_')
                });
            if dense {
                return format!("({} bytes)", text.len());
            }
            if length > VALUE {
                let shown: String = text.chars().take(VALUE).collect();
                return format!("{shown}…(+{})", length - VALUE);
            }
            text.clone()
        }
        Value::Array(items) => format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(", ")),
        Value::Object(_) => format!("{{{}}}", fields(value)),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_text_stays_within_its_bytes_even_after_escaping() {
        // SURF-73, T-SURF-20
        let mut lines = Lines::new("3 record(s).", 60);
        assert!(lines.add("a=1 | b=2"));
        assert!(!lines.add(&"<".repeat(12)));
        lines.add_text("ééé<<<<<<<<<<<<<<<<");
        let text = lines.text();
        assert!(cost(&text) <= 60, "{text}");
        assert!(text.starts_with("3 record(s).\na=1 | b=2\nééé<"));
    }

    #[test]
    fn long_values_are_cut_and_blobs_are_counted() {
        assert_eq!(plain(&json!("x".repeat(600))), "(600 bytes)");
        assert!(plain(&json!("x y ".repeat(100))).ends_with("…(+144)"));
        assert_eq!(fields(&json!({"a": [1, "b"], "c": {"d": true}})), "a=[1, b] | c={d=true}");
    }
}
