//! What changed, field by field: what was accepted in red, what the server says now in green.

use serde_json::Value;

use super::text;
use crate::output::{Output, visible};

/// The longest piece of a value that is shown.
const LONGEST: usize = 400;

/// Empty if nothing changed.
pub(crate) fn render(output: &Output, fields: &Value) -> String {
    let mut lines = Vec::new();
    let mut last = String::new();
    for change in fields.as_array().into_iter().flatten() {
        let item = visible(&text(&change["item"]));
        if item != last {
            lines.push(format!("  {}", output.bold(&item)));
            last = item;
        }
        let place = match change["pointer"].as_str() {
            None | Some("") => "the whole definition".to_owned(),
            Some(pointer) => visible(pointer),
        };
        lines.push(format!("    {place}"));
        if !change["before"].is_null() {
            lines.push(output.bad(&format!("    - {}", shown(&change["before"]))));
        }
        if !change["after"].is_null() {
            lines.push(output.good(&format!("    + {}", shown(&change["after"]))));
        }
    }
    lines.join("\n")
}

/// The server wrote it: invisible characters are made visible, and there is an end to it.
fn shown(value: &Value) -> String {
    let whole = visible(&text(value));
    match whole.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}… ({} characters)", &whole[..at], whole.chars().count()),
        None => whole,
    }
}
