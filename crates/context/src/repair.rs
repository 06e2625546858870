//! Arguments that were nearly right (CTX-90): what a model wrote as a string although the schema wants something else.
//!
//! Nothing is renamed, dropped or guessed: a text becomes the value that it spells, and only where the schema takes no
//! text. It happens before a call is proposed, so whoever approves it, and the log, see what is really asked for.

use portcullis_core::canon::{Limits, parse};
use serde::Serialize;
use serde_json::Value;

/// One change, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Repair {
    /// Where, as a JSON pointer.
    pub pointer: String,
    /// What was done there.
    pub rule: &'static str,
}

/// Deeper than this nothing is repaired.
const DEPTH: usize = 16;

/// The repaired arguments and what was changed; `None` if there is nothing to repair, or nothing that could be: what is
/// not strict JSON stays as it is, for those to refuse who refuse such things.
///
/// ```
/// let schema = serde_json::json!({"properties": {"limit": {"type": "integer"}}});
/// let (arguments, repairs) = portcullis_context::repair(r#"{"limit": "10"}"#, &schema).unwrap();
/// assert_eq!(arguments, r#"{"limit":10}"#);
/// assert_eq!((repairs[0].pointer.as_str(), repairs[0].rule), ("/limit", "integer"));
/// ```
pub fn repair(arguments: &str, schema: &Value) -> Option<(String, Vec<Repair>)> {
    let mut value = strict(arguments)?;
    let mut repairs = Vec::new();
    if let Value::String(text) = &value {
        let inner = strict(text.trim_start_matches('\u{feff}').trim())?;
        if !inner.is_object() {
            return None;
        }
        value = inner;
        repairs.push(Repair { pointer: String::new(), rule: "object" });
    }
    mend(&mut value, schema, &mut String::new(), DEPTH, &mut repairs);
    (!repairs.is_empty()).then(|| (value.to_string(), repairs))
}

fn strict(text: &str) -> Option<Value> {
    parse(text.as_bytes(), Limits::arguments(text.len())).ok()
}

fn mend(value: &mut Value, schema: &Value, pointer: &mut String, depth: usize, repairs: &mut Vec<Repair>) {
    let Some(depth) = depth.checked_sub(1) else { return };
    let mut within = |pointer: &mut String, key: &str, value: &mut Value, schema: &Value| {
        let len = pointer.len();
        pointer.push('/');
        pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
        mend(value, schema, pointer, depth, repairs);
        pointer.truncate(len);
    };
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                if let Some(schema) = schema["properties"].get(key) {
                    within(pointer, key, member, schema);
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                within(pointer, &index.to_string(), item, &schema["items"]);
            }
        }
        Value::String(text) => {
            if let Some((meant, rule)) = spelt(text, &schema["type"]) {
                *value = meant;
                repairs.push(Repair { pointer: pointer.clone(), rule });
            }
        }
        _ => {}
    }
}

/// The value that a text spells, if the schema wants one of its type and no text.
fn spelt(text: &str, wanted: &Value) -> Option<(Value, &'static str)> {
    let wants = |word: &str| match wanted {
        Value::String(one) => one == word,
        Value::Array(several) => several.iter().any(|one| one == word),
        _ => false,
    };
    if wants("string") {
        return None;
    }
    let value = strict(text)?;
    let rule = match &value {
        Value::Number(number) if (number.is_i64() || number.is_u64()) && wants("integer") => "integer",
        Value::Number(_) if wants("number") => "number",
        Value::Bool(_) if wants("boolean") => "boolean",
        Value::Null if wants("null") => "null",
        _ => return None,
    };
    Some((value, rule))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> Value {
        json!({"type": "object", "properties": {
            "count": {"type": "integer"}, "share": {"type": "number"}, "on": {"type": "boolean"},
            "none": {"type": ["null", "integer"]}, "name": {"type": "string"}, "either": {"type": ["string", "integer"]},
            "free": {}, "a/b": {"type": "object", "properties": {"n": {"type": "array", "items": {"type": "integer"}}}},
        }})
    }

    #[test]
    fn a_text_becomes_what_it_spells_where_no_text_is_wanted() {
        // CTX-90
        let arguments =
            json!({"count": "3", "share": "0.5", "on": "true", "none": "null", "a/b": {"n": ["1", 2]}});
        let (repaired, repairs) = repair(&arguments.to_string(), &schema()).unwrap();
        let repaired: Value = serde_json::from_str(&repaired).unwrap();
        assert_eq!(
            repaired,
            json!({"count": 3, "share": 0.5, "on": true, "none": null, "a/b": {"n": [1, 2]}})
        );
        let mut told: Vec<_> = repairs.iter().map(|repair| (repair.pointer.as_str(), repair.rule)).collect();
        told.sort_unstable();
        let expected = [
            ("/a~1b/n/0", "integer"),
            ("/count", "integer"),
            ("/none", "null"),
            ("/on", "boolean"),
            ("/share", "number"),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn arguments_that_are_a_text_are_read() {
        // CTX-90: with a byte order mark and blanks around them.
        let whole = Value::from("\u{feff} {\"count\": \"7\"}\n").to_string();
        let (repaired, repairs) = repair(&whole, &schema()).unwrap();
        assert_eq!((repaired.as_str(), repairs.len()), (r#"{"count":7}"#, 2));
        assert_eq!(repairs[0], Repair { pointer: String::new(), rule: "object" });
        for not in [r#""[1]""#, r#""7""#, r#""{\"a\":1,\"a\":2}""#] {
            assert_eq!(repair(not, &schema()), None, "{not}");
        }
    }

    #[test]
    fn nothing_else_is_changed() {
        // CTX-90: no rounding, no renaming, no dropping, and no change where a text is welcome.
        let same = [
            r#"{"count": "3.5"}"#,
            r#"{"count": "x"}"#,
            r#"{"count": ""}"#,
            r#"{"on": "yes"}"#,
            r#"{"on": "1"}"#,
            r#"{"share": "NaN"}"#,
            r#"{"share": "1e999"}"#,
            r#"{"name": "3"}"#,
            r#"{"either": "3"}"#,
            r#"{"free": "3"}"#,
            r#"{"other": "3"}"#,
            r#"{"count": 3}"#,
            r#"{"count": "3", "count": "4"}"#,
            "[]",
            "{",
        ];
        for arguments in same {
            assert_eq!(repair(arguments, &schema()), None, "{arguments}");
        }
    }
}
