//! What a JSON document looks like, in at most two hundred characters: `[1240]{id:int,name:str,…}`.

use std::fmt::Write as _;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The longest outline.
pub const OUTLINE_CHARS: usize = 200;
const DEPTH: usize = 3;

/// The outline of an array or object; nothing for other values, whose shape nobody needs to be told.
///
/// ```
/// # use portcullis_context::outline::outline;
/// assert_eq!(outline(r#"[{"id":1,"name":"a"},{"id":2}]"#).unwrap(), "[2]{id:int,name:str}");
/// ```
pub fn outline(json: &str) -> Option<String> {
    let json = json.trim_start();
    if !json.starts_with(['{', '[']) {
        return None;
    }
    let mut out = String::new();
    write(&mut out, json, DEPTH);
    if out.chars().count() <= OUTLINE_CHARS {
        return Some(out);
    }
    let cut: String = out.chars().take(OUTLINE_CHARS - 1).collect();
    Some(cut + "…")
}

fn write(out: &mut String, json: &str, depth: usize) {
    if out.len() > OUTLINE_CHARS * 4 {
        return;
    }
    match json.as_bytes().first() {
        Some(b'{') if depth == 0 => out.push_str("{…}"),
        Some(b'{') => {
            out.push('{');
            for (at, (key, value)) in members(json).iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                let key: String = key.chars().filter(|c| !c.is_control()).take(40).collect();
                let _ = write!(out, "{key}");
                if !value.get().starts_with(['{', '[']) {
                    out.push(':');
                }
                write(out, value.get(), depth - 1);
                if out.len() > OUTLINE_CHARS * 4 {
                    break;
                }
            }
            out.push('}');
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(json).unwrap_or_default();
            let _ = write!(out, "[{}]", items.len());
            if let Some(first) = items.first() {
                write(out, first.get(), depth.saturating_sub(1));
            }
        }
        Some(b'"') => out.push_str("str"),
        Some(b't' | b'f') => out.push_str("bool"),
        Some(b'n') | None => out.push_str("null"),
        Some(_) if json.contains(['.', 'e', 'E']) => out.push_str("num"),
        Some(_) => out.push_str("int"),
    }
}

fn members(json: &str) -> Vec<(String, &RawValue)> {
    struct Reader;
    impl<'de> Visitor<'de> for Reader {
        type Value = Vec<(String, &'de RawValue)>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::new();
            while let Some(key) = map.next_key::<String>()? {
                // More names than fit need not be kept.
                if members.len() < OUTLINE_CHARS {
                    members.push((key, map.next_value()?));
                } else {
                    map.next_value::<serde::de::IgnoredAny>()?;
                }
            }
            Ok(members)
        }
    }
    serde_json::Deserializer::from_str(json).deserialize_map(Reader).unwrap_or_default()
}
