//! A result on its way to the client: what need not change does not (PRO-10).
//!
//! The members of an object are taken apart as raw slices, in their order, and put together again with the few
//! that the gateway owns replaced or added. Nothing inside a member is parsed.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use portcullis_gauntlet::{ResultKind, SafeResult};

use portcullis_context::bound::MARK;

use crate::edge::Era;

/// The members of a JSON object as raw slices, in the order they were written.
#[derive(Debug)]
pub struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(key) = map.next_key::<Key<'de>>()? {
                    members.push((key.0, map.next_value()?));
                }
                Ok(Members(members))
            }
        }
        d.deserialize_map(Reader)
    }
}

/// A key, borrowed where it has no escapes.
struct Key<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Key<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(text.to_owned())))
            }
        }
        d.deserialize_str(Reader)
    }
}

impl<'a> Members<'a> {
    /// Each member, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().map(|(key, value)| (key.as_ref(), *value))
    }
}

/// One member, if it is there.
pub fn member<'a>(members: &Members<'a>, name: &str) -> Option<&'a RawValue> {
    members.0.iter().find(|(key, _)| key == name).map(|(_, value)| *value)
}

/// Writes an object with some members changed: a value stands where the old one stood, or at the end; `None` leaves
/// the member out.
pub fn write_members(out: &mut Vec<u8>, members: &Members<'_>, changes: &[(&str, Option<&RawValue>)]) {
    out.push(b'{');
    let mut first = true;
    let mut put = |out: &mut Vec<u8>, key: &str, value: &str| {
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        serde_json::to_writer(&mut *out, key).expect("a key is text");
        out.push(b':');
        out.extend_from_slice(value.as_bytes());
    };
    for (key, value) in &members.0 {
        match changes.iter().find(|(name, _)| key == name) {
            Some((_, None)) => {}
            Some((_, Some(changed))) => put(out, key, changed.get()),
            None => put(out, key, value.get()),
        }
    }
    for (name, value) in changes.iter().filter(|(name, _)| member(members, name).is_none()) {
        if let Some(value) = value {
            put(out, name, value.get());
        }
    }
    out.push(b'}');
}

/// How a result is to be shown.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// To a client of which era.
    pub era: Era,
    /// What was asked for.
    pub kind: ResultKind,
    /// The call it came from.
    pub mark: &'a Value,
    /// Whether what the server put into `_meta` is kept (CTX-1).
    pub keeps_meta: bool,
    /// What a server's URI becomes; `None` if it stays as it is.
    pub uris: Option<&'a dyn Fn(&str) -> String>,
}

/// A result for a client, marked with the call it came from.
///
/// Upstream `_meta` keys under `io.portcullis/` are dropped, so that a server cannot forge ours (GOV-1601).
pub fn for_client(result: &SafeResult, view: View<'_>) -> Vec<u8> {
    shaped(result.json(), view, result.has_other_structured())
}

/// A result in short, likewise. What it says of itself is ours.
pub fn in_short(result: &str, view: View<'_>) -> Vec<u8> {
    let marked = serde_json::from_str::<Value>(result)
        .ok()
        .and_then(|mut result| result["_meta"].as_object_mut()?.shift_remove(MARK));
    let Some(said) = marked else { return shaped(result.as_bytes(), view, false) };
    let written = shaped(result.as_bytes(), View { mark: view.mark, ..view }, false);
    let Ok(mut written) = serde_json::from_slice::<Value>(&written) else { return written };
    written["_meta"][MARK] = said;
    written.to_string().into_bytes()
}

fn shaped(result: &[u8], view: View<'_>, other_structured: bool) -> Vec<u8> {
    let Ok(members) = serde_json::from_slice::<Members<'_>>(result) else { return result.to_vec() };
    let raw = |text: String| RawValue::from_string(text).expect("rendered JSON");
    let own = member(&members, "_meta").filter(|_| view.keeps_meta);
    let meta = with_our_mark(own, ("io.portcullis/call", view.mark));
    let (complete, private, stale) = (raw("\"complete\"".into()), raw("\"private\"".into()), raw("0".into()));
    let modern = view.era == Era::Modern;
    // Only the modern era has result types; what is not complete never gets here (gauntlet).
    let mut changes: Vec<(&str, Option<&RawValue>)> =
        vec![("_meta", Some(&meta)), ("resultType", modern.then_some(&*complete))];
    if view.kind == ResultKind::Resource {
        // The modern era wants to know how long it keeps (PRO §4); what a server says of that does not count (SURF-86).
        changes.push(("ttlMs", modern.then_some(&*stale)));
        changes.push(("cacheScope", modern.then_some(&*private)));
    }
    let mapped = view.uris.and_then(|map| with_our_uris(&members, view.kind, map));
    if let Some((name, value)) = &mapped {
        changes.push((name, Some(value)));
    }
    // GNT-P3: clients of the older revisions know structured content that is an object only.
    let wrapped = member(&members, "structuredContent")
        .filter(|_| other_structured && !modern)
        .map(|value| raw(format!("{{\"value\":{}}}", value.get())));
    if let Some(wrapped) = &wrapped {
        changes.push(("structuredContent", Some(wrapped)));
    }
    let mut out = Vec::with_capacity(result.len() + 256);
    write_members(&mut out, &members, &changes);
    out
}

/// A server's `_meta` as it wrote it, without what looks like ours, and ours.
pub fn with_our_mark(own: Option<&RawValue>, (key, mark): (&str, &Value)) -> Box<RawValue> {
    let none = || serde_json::from_str("{}").expect("an empty object");
    let own: Members<'_> = own.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_else(none);
    let mark = RawValue::from_string(mark.to_string()).expect("a value is JSON");
    let forged = own.iter().map(|(name, _)| name);
    let forged = forged.filter(|name| name.starts_with("io.portcullis/") && *name != key);
    let changes: Vec<(&str, Option<&RawValue>)> =
        forged.map(|name| (name, None)).chain([(key, Some(&*mark))]).collect();
    let mut out = Vec::new();
    write_members(&mut out, &own, &changes);
    let text = String::from_utf8(out).expect("written from text");
    RawValue::from_string(text).expect("an object is JSON")
}

/// The member in which resources can occur, with their URIs mapped so that they can be read (PRO-12). `None` if there
/// is nothing to map.
fn with_our_uris(
    members: &Members<'_>,
    kind: ResultKind,
    map: &dyn Fn(&str) -> String,
) -> Option<(&'static str, Box<RawValue>)> {
    let name = match kind {
        ResultKind::Tool => "content",
        ResultKind::Resource => "contents",
        ResultKind::Prompt => "messages",
        ResultKind::Completion => return None,
    };
    let list = member(members, name)?;
    // Most results mention none: a search is cheaper than taking them apart.
    if kind != ResultKind::Resource && !list.get().contains("resource") {
        return None;
    }
    let items: Vec<&RawValue> = serde_json::from_str(list.get()).ok()?;
    let items: Vec<String> = (items.into_iter())
        .map(|item| match kind {
            ResultKind::Resource => with_our_uri(item, map),
            ResultKind::Prompt => inside(item, "content", |content| block(content, map)),
            _ => block(item, map),
        })
        .collect();
    RawValue::from_string(format!("[{}]", items.join(","))).ok().map(|list| (name, list))
}

/// A content block: a link to a resource, or one that holds a resource, or none of our concern.
fn block(text: &RawValue, map: &dyn Fn(&str) -> String) -> String {
    let Ok(members) = serde_json::from_str::<Members<'_>>(text.get()) else { return text.get().to_owned() };
    match member(&members, "type").map(RawValue::get) {
        Some("\"resource_link\"") => with_our_uri(text, map),
        Some("\"resource\"") => inside(text, "resource", |resource| with_our_uri(resource, map)),
        _ => text.get().to_owned(),
    }
}

fn with_our_uri(text: &RawValue, map: &dyn Fn(&str) -> String) -> String {
    inside(text, "uri", |uri| match serde_json::from_str::<String>(uri.get()) {
        Ok(uri) => Value::String(map(&uri)).to_string(),
        Err(_) => uri.get().to_owned(),
    })
}

/// An object with one member changed, if it has it.
fn inside(text: &RawValue, name: &str, change: impl FnOnce(&RawValue) -> String) -> String {
    let Ok(members) = serde_json::from_str::<Members<'_>>(text.get()) else { return text.get().to_owned() };
    let Some(changed) = member(&members, name).and_then(|raw| RawValue::from_string(change(raw)).ok()) else {
        return text.get().to_owned();
    };
    let mut out = Vec::with_capacity(text.get().len() + 64);
    write_members(&mut out, &members, &[(name, Some(&changed))]);
    String::from_utf8(out).unwrap_or_else(|_| text.get().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shaped(text: &str, era: Era) -> String {
        shaped_as(text, era, ResultKind::Tool, None)
    }

    fn shaped_as(text: &str, era: Era, kind: ResultKind, uris: Option<&dyn Fn(&str) -> String>) -> String {
        let view = View { era, kind, mark: &json!({"proposal_id": "P"}), keeps_meta: true, uris };
        let other = text.contains("\"structuredContent\":[");
        String::from_utf8(super::shaped(text.as_bytes(), view, other)).unwrap()
    }

    #[test]
    fn structured_content_that_is_no_object_is_wrapped_for_older_clients() {
        // GNT-P3, SG-31
        let list = r#"{"content":[],"structuredContent":[1,2.50]}"#;
        assert!(shaped(list, Era::Legacy).contains(r#""structuredContent":{"value":[1,2.50]}"#));
        assert!(shaped(list, Era::Modern).contains(r#""structuredContent":[1,2.50]"#));
    }

    #[test]
    fn only_links_and_embedded_resources_are_mapped() {
        // PRO-12, SURF-86
        let ours = |uri: &str| format!("p:{uri}");
        let text = r#"{"content":[{"type":"text","text":"see file:///a, a resource"},{"type":"resource_link","uri":"file:///a","name":"a"},{"type":"resource","resource":{"uri":"file:///b","text":"file:///b"}}]}"#;
        let out = shaped_as(text, Era::Legacy, ResultKind::Tool, Some(&ours));
        let want = r#"{"content":[{"type":"text","text":"see file:///a, a resource"},{"type":"resource_link","uri":"p:file:///a","name":"a"},{"type":"resource","resource":{"uri":"p:file:///b","text":"file:///b"}}]"#;
        assert!(out.starts_with(want), "{out}");
        let text = r#"{"contents":[{"uri":"file:///a","text":"x"}],"ttlMs":5,"cacheScope":"public"}"#;
        let modern = shaped_as(text, Era::Modern, ResultKind::Resource, Some(&ours));
        let want = r#"{"contents":[{"uri":"p:file:///a","text":"x"}],"ttlMs":0,"cacheScope":"private","#;
        assert!(modern.starts_with(want), "{modern}");
        let legacy = shaped_as(text, Era::Legacy, ResultKind::Resource, None);
        assert!(!legacy.contains("ttlMs") && !legacy.contains("cacheScope"), "{legacy}");
        let text = r#"{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"a:b","blob":""}}}]}"#;
        assert!(shaped_as(text, Era::Legacy, ResultKind::Prompt, Some(&ours)).contains(r#""uri":"p:a:b""#));
    }

    #[test]
    fn everything_but_our_members_stays_byte_for_byte() {
        // PRO-10: unknown fields, key order, spacing inside members, big integers, escapes.
        let result = r#"{"z":1e2,"content":[ {"type":"text","text":"\u00e9 <b>"} ],"x":12345678901234567890,"a":{"k" : 1}}"#;
        let out = shaped(result, Era::Legacy);
        assert!(out.starts_with(r#"{"z":1e2,"content":[ {"type":"text","text":"\u00e9 <b>"} ],"x":12345678901234567890,"a":{"k" : 1},"#), "{out}");
        assert!(out.ends_with(r#""_meta":{"io.portcullis/call":{"proposal_id":"P"}}}"#), "{out}");
        assert!(shaped("{}", Era::Modern).contains(r#""resultType":"complete""#));
        assert!(!shaped(r#"{"resultType":"complete"}"#, Era::Legacy).contains("resultType"));
    }

    #[test]
    fn a_server_cannot_forge_our_marks() {
        // T-FOR-1
        let out = shaped(
            r#"{"_meta":{"io.portcullis/call":{"forged":1},"io.portcullis/x":1,"own":2},"content":[]}"#,
            Era::Legacy,
        );
        let value: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(value["_meta"], json!({"io.portcullis/call": {"proposal_id": "P"}, "own": 2}));
        // PRO-10: what is its own stays as it wrote it.
        let out =
            shaped(r#"{"content":[],"_meta":{"b":12345678901234567890123, "a":"\u00e9"}}"#, Era::Legacy);
        assert!(
            out.contains(r#""_meta":{"b":12345678901234567890123,"a":"\u00e9","io.portcullis/call":"#),
            "{out}"
        );
    }
}
