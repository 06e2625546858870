//! A result on its way to the client: what need not change does not (PRO-10).
//!
//! The members of an object are taken apart as raw slices, in their order, and put together again with the few
//! that the gateway owns replaced or added. Nothing inside a member is parsed.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

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

/// A tool result for a client of `era`, marked with the call it came from.
///
/// Upstream `_meta` keys under `io.portcullis/` are dropped, so that a server cannot forge ours (GOV-1601).
pub fn for_client(result: &[u8], era: Era, mark: &Value) -> Vec<u8> {
    let Ok(members) = serde_json::from_slice::<Members<'_>>(result) else { return result.to_vec() };
    let mut meta = member(&members, "_meta")
        .and_then(|raw| serde_json::from_str::<Map<String, Value>>(raw.get()).ok())
        .unwrap_or_default();
    meta.retain(|key, _| !key.starts_with("io.portcullis/"));
    meta.insert("io.portcullis/call".into(), mark.clone());
    let raw = |text: String| RawValue::from_string(text).expect("rendered JSON");
    let meta = raw(Value::Object(meta).to_string());
    let complete = raw("\"complete\"".into());
    let mut out = Vec::with_capacity(result.len() + 256);
    // Only the modern era has result types; what is not complete never gets here (gauntlet).
    let result_type = (era == Era::Modern).then_some(&*complete);
    write_members(&mut out, &members, &[("_meta", Some(&meta)), ("resultType", result_type)]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shaped(text: &str, era: Era) -> String {
        String::from_utf8(for_client(text.as_bytes(), era, &json!({"proposal_id": "P"}))).unwrap()
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
    }
}
