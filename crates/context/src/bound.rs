//! Results held to a size where tools are called directly (SURF §8): measured always, and made smaller only where an
//! operator wants it.
//!
//! Both parts of a result are read by models, the text and the structure, so both have a budget. A text can be replaced by
//! a summary of the structure, a structure can lose rows from its end; what is left out can be kept for `tool_view`.
//! Nothing is invented: no count, no cursor and no handle that is not in the data.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// How large the parts of a result are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Sizes {
    /// Bytes of all texts.
    pub content: usize,
    /// Bytes of the structured content.
    pub structured: usize,
}

impl Sizes {
    /// Of a result.
    pub fn of(result: &crate::CallToolResult<'_>) -> Self {
        let texts = result.parts.iter().filter_map(crate::part::Part::text);
        Self {
            content: texts.map(str::len).sum(),
            structured: result.structured.map_or(0, |raw| raw.get().len()),
        }
    }

    /// About how many tokens that is: no more than a third as many as bytes (SURF-70).
    pub fn tokens(self) -> usize {
        (self.content + self.structured).div_ceil(3)
    }
}

/// What happens to a text that is too long.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LongText {
    /// It is shown.
    #[default]
    Pass,
    /// A summary is shown, and it is kept.
    Summarise,
}

/// What happens to structured content that is too long.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LongStructure {
    /// It is shown.
    #[default]
    Pass,
    /// Rows at its end are left out.
    Truncate,
    /// Likewise, and all of it is kept.
    Spill,
}

/// How much of a result is wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Detail {
    /// All that fits.
    #[default]
    Full,
    /// A few rows.
    Compact,
}

/// Rows of a compact result.
pub const COMPACT_ROWS: usize = 5;
/// A text that says the same as the structure is worth a summary from here on.
pub const TWIN: usize = 1_024;
/// How long a value may be on a line.
const VALUE: usize = 256;
/// From here on what looks like base64 is only counted.
const BLOB: usize = 512;

/// What a summary may tell a model to call with: arguments that exist.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ways {
    /// Such as `cursor`.
    pub page: Option<String>,
    /// Such as `fields`.
    pub narrow: Option<String>,
}

impl Ways {
    /// Those among a tool's arguments.
    pub fn among<'a>(arguments: impl Iterator<Item = &'a str> + Clone) -> Self {
        let first = |names: &[&str]| {
            names
                .iter()
                .find(|name| arguments.clone().any(|own| own == **name))
                .map(|name| (*name).to_owned())
        };
        Self {
            page: first(&[
                "cursor",
                "page_token",
                "offset",
                "page",
                "after",
                "limit",
                "page_size",
                "per_page",
            ]),
            narrow: first(&["fields", "select", "columns", "view", "filter"]),
        }
    }
}

/// Where the rows of a value are: as said, else the first list of objects, the nearest first.
pub fn rows_at(value: &Value, said: Option<&str>) -> Option<String> {
    let is_rows = |value: &Value| {
        value.as_array().is_some_and(|items| items.iter().all(Value::is_object) && !items.is_empty())
    };
    if let Some(pointer) = said {
        return value.pointer(pointer).filter(|rows| rows.is_array()).map(|_| pointer.to_owned());
    }
    let mut level = vec![(String::new(), value)];
    let mut empty = None;
    while !level.is_empty() {
        if let Some((pointer, _)) = level.iter().find(|(_, value)| is_rows(value)) {
            return Some(pointer.clone());
        }
        empty = empty.or_else(|| {
            level.iter().find(|(_, value)| *value == &Value::Array(Vec::new())).map(|(at, _)| at.clone())
        });
        level = (level.into_iter())
            .flat_map(|(at, value)| match value {
                Value::Object(members) => members
                    .iter()
                    .map(|(key, inner)| {
                        (format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), inner)
                    })
                    .collect(),
                _ => Vec::new(),
            })
            .collect();
    }
    empty
}

/// Removes rows from the end until the value has no more than `bytes` bytes and `most` rows. How many rows there were and
/// are; `None` if there are no rows to remove, or removing all is not enough.
pub fn truncated(value: &Value, rows: &str, bytes: usize, most: usize) -> Option<(Value, usize, usize)> {
    let all = value.pointer(rows)?.as_array()?;
    let whole = value.to_string().len();
    let mut shown = all.len().min(most);
    let lengths: Vec<usize> = all.iter().map(|row| row.to_string().len() + 1).collect();
    let mut size = whole - lengths[shown..].iter().sum::<usize>();
    while size > bytes && shown > 0 {
        shown -= 1;
        size -= lengths[shown];
    }
    if shown == all.len() || size > bytes {
        return None;
    }
    let mut short = value.clone();
    short.pointer_mut(rows)?.as_array_mut()?.truncate(shown);
    // The last row to go has no comma.
    (short.to_string().len() <= bytes).then_some((short, all.len(), shown))
}

/// A value in a few lines (SURF-73): how many rows, how to go on, then row after row, as many as fit.
pub fn summary(value: &Value, rows: Option<&str>, ways: &Ways, bytes: usize) -> String {
    let Some(rows) = rows_at(value, rows) else { return outline(value, bytes) };
    let all = value.pointer(&rows).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut first = format!("{} row(s).", all.len());
    for (key, said) in around(value, &rows) {
        first.push_str(&format!(" {key}={said}"));
    }
    let mut text = cut(&first, bytes);
    // The last line must fit as well.
    let last = |left: usize| match (left, &ways.page, &ways.narrow) {
        (0, ..) => String::new(),
        (_, Some(page), Some(narrow)) => {
            format!("\n{left} more row(s); page with {page} or narrow with {narrow}")
        }
        (_, Some(one), None) => format!("\n{left} more row(s); page with {one}"),
        (_, None, Some(one)) => format!("\n{left} more row(s); narrow with {one}"),
        (_, None, None) => format!("\n{left} more row(s)"),
    };
    let reserve = last(all.len()).len();
    let mut shown = 0;
    for row in all {
        let line = line(row);
        if text.len() + 1 + line.len() + reserve > bytes {
            break;
        }
        text.push('\n');
        text.push_str(&line);
        shown += 1;
    }
    let rest = last(all.len() - shown);
    if text.len() + rest.len() <= bytes {
        text.push_str(&rest);
    }
    text
}

/// What is said beside the rows about how to go on: in the objects that hold them, the nearest first.
fn around(value: &Value, rows: &str) -> Vec<(&'static str, String)> {
    const KEYS: [(&str, &str); 12] = [
        ("has_more", "has_more"),
        ("hasMore", "has_more"),
        ("next_cursor", "next_cursor"),
        ("nextCursor", "next_cursor"),
        ("cursor", "cursor"),
        ("next_page_token", "next_page_token"),
        ("nextPageToken", "next_page_token"),
        ("next_changes_since", "next_changes_since"),
        ("total", "total"),
        ("total_count", "total"),
        ("count", "total"),
        ("result_count", "total"),
    ];
    let mut found: Vec<(&'static str, String)> = Vec::new();
    let mut place = rows;
    while let Some((parent, _)) = place.rsplit_once('/') {
        place = parent;
        let Some(Value::Object(members)) = value.pointer(parent) else { continue };
        for (key, name) in KEYS {
            let said =
                members.get(key).filter(|said| !said.is_null() && !said.is_array() && !said.is_object());
            if let Some(said) = said.filter(|_| !found.iter().any(|(known, _)| *known == name)) {
                // A cursor that is cut is none.
                found.push((name, said.as_str().map_or_else(|| said.to_string(), ToOwned::to_owned)));
            }
        }
        let meta = members.get("meta");
        let total = meta
            .and_then(|meta| meta.pointer("/count/value").or(meta.get("count")))
            .filter(|one| one.is_number());
        if let Some(total) = total.filter(|_| !found.iter().any(|(known, _)| *known == "total")) {
            found.push(("total", total.to_string()));
        }
        let warnings = meta.and_then(|meta| meta["warnings"].as_array()).into_iter().flatten();
        let codes: Vec<&str> = warnings.filter_map(|one| one["code"].as_str()).collect();
        if !codes.is_empty() {
            found.push(("warnings", codes.join(",")));
        }
    }
    found
}

/// Something without rows: short values, then the names of the others with their sizes.
fn outline(value: &Value, bytes: usize) -> String {
    let Value::Object(members) = value else { return cut(&plain(value), bytes) };
    let is_short = |value: &Value| !value.is_object() && !value.is_array();
    let mut text = String::new();
    let scalars = members
        .iter()
        .filter(|(_, value)| is_short(value))
        .map(|(key, value)| format!("{key}={}", plain(value)));
    let others = members
        .iter()
        .filter(|(_, value)| !is_short(value))
        .map(|(key, value)| format!("{key} ({} bytes)", value.to_string().len()));
    for line in scalars.chain(others) {
        let price = line.len() + usize::from(!text.is_empty());
        if text.len() + price > bytes {
            break;
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&line);
    }
    text
}

/// A row on one line, what names it first.
fn line(row: &Value) -> String {
    let Value::Object(members) = row else { return plain(row) };
    let names = |key: &str| {
        matches!(key, "id" | "handle" | "key" | "uri" | "url")
            || key.ends_with("_id")
            || key.ends_with("_key")
            || key.ends_with("Id")
    };
    let first = members.iter().filter(|(key, _)| names(key));
    let rest = members.iter().filter(|(key, _)| !names(key));
    first.chain(rest).map(|(key, value)| format!("{key}={}", plain(value))).collect::<Vec<_>>().join(" | ")
}

/// A value as a reader wants it: no quotes, no line breaks, nothing endless.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => {
            let length = text.chars().count();
            let dense = length > BLOB
                && text.bytes().all(|byte| {
                    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'-' | b'_')
                });
            if dense {
                return format!("({} bytes)", text.len());
            }
            let one_line = |text: &str| text.replace(['\n', '\r'], " ");
            if length > VALUE {
                let shown: String = text.chars().take(VALUE).collect();
                return format!("{}…(+{})", one_line(&shown), length - VALUE);
            }
            one_line(text)
        }
        Value::Array(items) => format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(", ")),
        Value::Object(members) => {
            let members: Vec<String> =
                members.iter().map(|(key, value)| format!("{key}={}", plain(value))).collect();
            format!("{{{}}}", members.join(" | "))
        }
        other => other.to_string(),
    }
}

/// As much of a text as fits, whole characters only.
fn cut(text: &str, bytes: usize) -> String {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

/// What a client is told about a result that is not all there (SURF-72).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mark {
    /// How much was wanted.
    pub detail: Detail,
    /// How many rows there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows_total: Option<usize>,
    /// How many are shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows_shown: Option<usize>,
    /// Bytes of what was left out or made shorter, as it was.
    pub bytes_total: usize,
    /// Where all of it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handle: Option<String>,
}

/// Whether two texts are the same JSON.
pub fn is_twin(text: &str, structured: &Value) -> bool {
    text.len() > TWIN && serde_json::from_str::<Value>(text).is_ok_and(|value| value == *structured)
}

/// A result whose only part is a text, with the structure and the mark that belong to it.
pub fn written(text: &[&str], structured: Option<&Value>, mark: Option<&Mark>, is_error: bool) -> String {
    let mut result = Map::new();
    let parts = text.iter().map(|text| serde_json::json!({"type": "text", "text": text})).collect();
    result.insert("content".into(), Value::Array(parts));
    if let Some(structured) = structured {
        result.insert("structuredContent".into(), structured.clone());
    }
    if is_error {
        result.insert("isError".into(), Value::Bool(true));
    }
    if let Some(mark) = mark {
        result.insert("_meta".into(), serde_json::json!({ MARK: mark }));
    }
    Value::Object(result).to_string()
}

/// The member of `_meta` that holds a [`Mark`].
pub const MARK: &str = "io.portcullis/result";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ways() -> Ways {
        Ways::among(["stream", "limit", "cursor", "fields"].into_iter())
    }

    #[test]
    fn a_summary_counts_first_names_first_and_says_how_to_go_on() {
        // SURF-73
        let rows: Vec<Value> = (0..40)
            .map(|n| json!({"subject": format!("S{n}"), "id": format!("m{n}"), "to": ["a", {"b": 1}]}))
            .collect();
        let value = json!({"data": {"data": rows, "has_more": true, "next_cursor": "abc", "meta": {"count": {"value": 70}, "warnings": [{"code": "partial_results"}]}}, "request_id": "r"});
        let text = summary(&value, None, &ways(), 400);
        assert!(text.len() <= 400, "{}", text.len());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "40 row(s). has_more=true next_cursor=abc total=70 warnings=partial_results");
        assert_eq!(lines[1], "id=m0 | subject=S0 | to=[a, {b=1}]");
        let shown = lines.len() - 2;
        assert_eq!(
            *lines.last().unwrap(),
            format!("{} more row(s); page with cursor or narrow with fields", 40 - shown)
        );
        // Only arguments that exist are named.
        assert!(summary(&value, None, &Ways::default(), 400).ends_with("more row(s)"));
        assert!(!text.contains(['"', '\'', '<', '>', '&']));
    }

    #[test]
    fn nothing_is_invented_and_no_character_is_cut() {
        // SURF-73, T-SURF-20
        assert_eq!(
            summary(&json!({"rows": [], "has_more": false}), None, &ways(), 200),
            "0 row(s). has_more=false"
        );
        assert_eq!(
            summary(&json!({"a": 1, "b": {"c": 2}}), None, &ways(), 200),
            "a=1\nb ({} bytes)".replace("{}", "7")
        );
        let token = "x".repeat(90);
        let value = json!({"items": [{"id": 1}], "next_page_token": token});
        assert!(
            summary(&value, None, &ways(), 400)
                .starts_with(&format!("1 row(s). next_page_token={token}\nid=1"))
        );
        let value = json!({"rows": [{"t": "é".repeat(400)}]});
        for bytes in 0..700 {
            let text = summary(&value, None, &ways(), bytes);
            assert!(text.len() <= bytes);
        }
        assert!(summary(&value, None, &ways(), 900).contains("…(+144)"));
        let blob = json!({"rows": [{"blob": "QUJD".repeat(200)}]});
        assert!(summary(&blob, None, &ways(), 900).contains("blob=(800 bytes)"));
    }

    #[test]
    fn rows_are_the_nearest_list_of_objects_or_where_they_are_said_to_be() {
        let value = json!({"meta": {"deep": [{"x": 1}]}, "tags": ["a"], "items": [{"id": 1}, {"id": 2}], "other": [{"y": 1}]});
        assert_eq!(rows_at(&value, None).as_deref(), Some("/items"));
        assert_eq!(rows_at(&value, Some("/meta/deep")).as_deref(), Some("/meta/deep"));
        assert_eq!(rows_at(&value, Some("/nowhere")), None);
        assert_eq!(rows_at(&json!({"a/b": [{"id": 1}]}), None).as_deref(), Some("/a~1b"));
        assert_eq!(rows_at(&json!([{"id": 1}]), None).as_deref(), Some(""));
    }

    #[test]
    fn rows_are_removed_from_the_end_until_it_fits() {
        // SURF-72
        let rows: Vec<Value> = (0..10).map(|n| json!({"id": n})).collect();
        let value = json!({"items": rows, "total": 10});
        let (short, total, shown) = truncated(&value, "/items", 60, 100).unwrap();
        assert!(short.to_string().len() <= 60 && total == 10 && shown > 0, "{short}");
        assert_eq!(short["items"].as_array().unwrap().len(), shown);
        assert_eq!(
            truncated(&value, "/items", 10_000, 5).map(|(_, total, shown)| (total, shown)),
            Some((10, 5))
        );
        assert_eq!(truncated(&value, "/items", 10_000, 100), None);
        assert_eq!(truncated(&value, "/items", 5, 100), None);
    }

    #[test]
    fn no_value_and_no_budget_break_a_summary() {
        // T-SURF-33
        let mut seed = 3_u64;
        let mut next = move |most: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(seed >> 33).unwrap_or(0) % most
        };
        fn made(next: &mut dyn FnMut(usize) -> usize, depth: usize) -> Value {
            match next(if depth == 0 { 5 } else { 8 }) {
                0 => Value::Null,
                1 => json!(next(2) == 0),
                2 => json!(next(1_000)),
                3 => json!("é😀\n\"<>&".repeat(next(60))),
                4 => json!("QUJD".repeat(next(300))),
                5 | 6 => (0..next(5)).map(|_| made(next, depth - 1)).collect(),
                _ => {
                    let keys = ["id", "has_more", "next_cursor", "data", "meta", "a/b", "total"];
                    (0..next(5))
                        .map(|_| (keys[next(keys.len())].to_owned(), made(next, depth - 1)))
                        .collect::<Map<_, _>>()
                        .into()
                }
            }
        }
        let cases = std::env::var("PORTCULLIS_FUZZ_CASES").ok().and_then(|cases| cases.parse().ok());
        for _ in 0..cases.unwrap_or(100_000) {
            let value = made(&mut next, 4);
            let bytes = next(600);
            assert!(summary(&value, None, &ways(), bytes).len() <= bytes);
            if let Some(rows) = rows_at(&value, None)
                && let Some((short, total, shown)) = truncated(&value, &rows, bytes, next(9))
            {
                assert!(short.to_string().len() <= bytes && shown < total);
            }
        }
    }
}
