//! Views of JSON. A value is shown as it was written, never parsed and written again.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::selector::Span;
use super::{More, View, ViewError, fitting, whole_text};
use crate::artifacts::Opened;
use crate::outline::outline;

fn not_json() -> ViewError {
    ViewError::content("the content is not JSON", &["head", "lines", "grep"])
}

pub(super) fn keys(artifact: &Opened<'_>, keys: &[String], max_bytes: usize) -> Result<View, ViewError> {
    let text = whole_text(artifact)?;
    let object = serde_json::from_str::<&RawValue>(&text).map_err(|_| not_json())?;
    if !object.get().starts_with('{') {
        return Err(ViewError::content("the content is not a JSON object", &["json_pointer", "rows"]));
    }
    let mut shown: BTreeMap<String, Value> = BTreeMap::new();
    for (name, raw) in members(object.get()) {
        if keys.iter().any(|key| *key == name) {
            // Nested too deeply to be written prettily: then it has to be asked for by pointer.
            let mut value: Value = serde_json::from_str(raw.get())
                .map_err(|_| ViewError::content("nested too deeply", &["json_pointer"]))?;
            value.sort_all_objects();
            shown.insert(name.into_owned(), value);
        }
    }
    let mut missing: Vec<&str> =
        keys.iter().map(String::as_str).filter(|key| !shown.contains_key(*key)).collect();
    missing.sort_unstable();
    missing.dedup();
    if shown.is_empty() && !keys.is_empty() {
        let there = members(object.get()).into_iter().map(|(name, _)| name.into_owned());
        let there: Vec<String> = there.take(20).collect();
        return Err(ViewError::field(
            "keys",
            format!("none of them is there; there are {}", there.join(", ")),
        ));
    }
    let pretty = serde_json::to_string_pretty(&shown).expect("a value is JSON");
    if pretty.len() <= max_bytes {
        return Ok(View::whole(pretty));
    }
    let first = keys.first().map_or("", String::as_str);
    let selector = json!({"type": "json_pointer", "pointer": format!("/{}", escaped(first))});
    let more = More { selector, of: format!("{} bytes", pretty.len()) };
    Ok(View::of(fitting(&pretty, max_bytes).to_owned(), Some(more)))
}

pub(super) fn pointer(
    artifact: &Opened<'_>,
    pointer: &str,
    span: Span,
    max_bytes: usize,
) -> Result<View, ViewError> {
    let text = whole_text(artifact)?;
    let root = serde_json::from_str::<&RawValue>(&text).map_err(|_| not_json())?;
    let target = follow(root, pointer)?;
    let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(target.get()) else {
        let text = target.get();
        if text.len() <= max_bytes {
            return Ok(View::whole(text.to_owned()));
        }
        // An object is looked at member by member; its outline says which there are.
        let of = format!("{} bytes: {}", text.len(), outline(text).unwrap_or_else(|| "a string".into()));
        let inside = members(text).first().map(|(name, _)| format!("{pointer}/{}", escaped(name)));
        let selector = json!({"type": "json_pointer", "pointer": inside.as_deref().unwrap_or(pointer)});
        return Ok(View::of(fitting(text, max_bytes).to_owned(), Some(More { selector, of })));
    };
    let total = items.len() as u64;
    let (start, end) = span.within(total);
    if (start, end) == (0, total) && target.get().len() <= max_bytes {
        return Ok(View::whole(target.get().to_owned()));
    }
    let mut out = String::from("[");
    let mut next = start;
    for item in &items[start as usize..end as usize] {
        if out.len() + item.get().len() + 2 > max_bytes {
            break;
        }
        if next > start {
            out.push(',');
        }
        out.push_str(item.get());
        next += 1;
    }
    out.push(']');
    let of = format!("{total} elements");
    if next == start && start < end {
        let inside = format!("{pointer}/{start}");
        let selector = json!({"type": "json_pointer", "pointer": inside});
        let text = fitting(items[start as usize].get(), max_bytes).to_owned();
        return Ok(View::of(text, Some(More { selector, of })));
    }
    let width = (end - start).max(1);
    let selector =
        json!({"type": "json_pointer", "pointer": pointer, "start": next, "end": (next + width).min(total)});
    Ok(View::of(out, (next < total).then_some(More { selector, of })))
}

/// The value a pointer names (RFC 6901).
pub(super) fn follow<'a>(root: &'a RawValue, pointer: &str) -> Result<&'a RawValue, ViewError> {
    let missing = |at: &str| {
        let at = portcullis_core::name::printable(at);
        ViewError::field("pointer", format!("there is nothing at {at}"))
    };
    let mut here = root;
    let mut walked = String::new();
    for segment in pointer.split('/').skip(1) {
        walked.push('/');
        walked.push_str(segment);
        let name = segment.replace("~1", "/").replace("~0", "~");
        here = if here.get().starts_with('{') {
            let found = members(here.get()).into_iter().find(|(member, _)| *member == name);
            found.map(|(_, value)| value).ok_or_else(|| missing(&walked))?
        } else {
            let items = serde_json::from_str::<Vec<&RawValue>>(here.get()).map_err(|_| missing(&walked))?;
            let at = name.parse::<usize>().ok().filter(|at| at.to_string() == name);
            at.and_then(|at| items.get(at).copied()).ok_or_else(|| missing(&walked))?
        };
    }
    Ok(here)
}

fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// The members of an object, in order; none if it is not one.
pub(super) fn members(json: &str) -> Vec<(Cow<'_, str>, &RawValue)> {
    struct Reader;
    impl<'de> Visitor<'de> for Reader {
        type Value = Vec<(Cow<'de, str>, &'de RawValue)>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::new();
            while let Some(key) = map.next_key::<&RawValue>()? {
                let name = crate::part::text_of(key).unwrap_or_default();
                members.push((name, map.next_value()?));
            }
            Ok(members)
        }
    }
    serde_json::Deserializer::from_str(json).deserialize_map(Reader).unwrap_or_default()
}
