//! Content blocks: which of their strings are text, and which are something else (GNT-P8 to P11).

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::gauntlet::TextJson;
use crate::leaves::{Cleaner, Edits, Fault, MAX_KEY_BYTES, text_of};
use crate::payload::Members;

/// How many blocks a result may have.
pub(crate) const MAX_BLOCKS: usize = 256;
/// The longest address, in bytes.
const MAX_URI_BYTES: usize = 2_048;
/// What stands where a block with an unsafe address stood.
const REMOVED: &str = r#"{"type":"text","text":"[removed: unsafe uri]"}"#;

const REMOVED_CONTENTS: &str = r#"{"uri":"removed:unsafe","text":"[removed: unsafe uri]"}"#;

/// What those who shape results should know about a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockMark {
    /// Its type is not one the protocol has.
    Unknown,
    /// Its data is not base64, or its media type none.
    InvalidMedia,
}

/// Cleans the blocks of `content`, which are slices of the edited text. Says what is odd about which.
pub(crate) fn clean(
    cleaner: &mut Cleaner<'_>,
    edits: &mut Edits<'_>,
    blocks: &[&RawValue],
    text_json: TextJson,
) -> Result<Vec<(usize, BlockMark)>, Fault> {
    let mut marks = Vec::new();
    let mut index = 0;
    while index < blocks.len() {
        // Texts that stand next to each other are read as one (GNT-Z7).
        let run: Vec<TextBlock<'_>> =
            blocks[index..].iter().map_while(|block| TextBlock::read(block)).collect();
        if run.is_empty() {
            if let Some(mark) = clean_other(cleaner, edits, blocks[index])? {
                marks.push((index, mark));
            }
            index += 1;
        } else {
            index += run.len();
            clean_run(cleaner, edits, &run, text_json)?;
        }
    }
    Ok(marks)
}

/// A text block, and what its text says.
struct TextBlock<'s> {
    members: Members<'s>,
    text: Cow<'s, str>,
}

impl<'s> TextBlock<'s> {
    fn read(block: &'s RawValue) -> Option<Self> {
        let members = Members::read(block.get())?;
        let text = members.get("text").filter(|raw| raw.get().starts_with('"'))?;
        let text = text_of(text.get()).ok()?;
        (members.word("type")? == "text").then_some(Self { text, members })
    }
}

fn clean_run(
    cleaner: &mut Cleaner<'_>,
    edits: &mut Edits<'_>,
    run: &[TextBlock<'_>],
    text_json: TextJson,
) -> Result<(), Fault> {
    let room = edits.room(run.iter().map(|block| block.text.len()).sum());
    let before = cleaner.report;
    let mut written = one_by_one(cleaner, run, room, text_json)?;
    if run.len() > 1 && cleaner.sanitiser.has_marker(&written.concat()) {
        cleaner.report = before;
        let texts: Vec<&str> = run.iter().map(|block| block.text.as_ref()).collect();
        written = cleaner.sanitiser.neighbours(&texts, cleaner.escape, room, &mut cleaner.report)?;
    }
    for (block, text) in run.iter().zip(&written) {
        for (name, raw) in block.members.iter() {
            if name != "text" {
                clean_member(cleaner, edits, name, raw)?;
            } else if *text != block.text {
                edits.put_string(edits.place_of(raw), text)?;
            }
        }
    }
    Ok(())
}

/// Each text for itself; one that is JSON leaf by leaf, if so configured (GNT-P8).
fn one_by_one<'t>(
    cleaner: &mut Cleaner<'_>,
    run: &'t [TextBlock<'_>],
    mut room: usize,
    text_json: TextJson,
) -> Result<Vec<Cow<'t, str>>, Fault> {
    run.iter()
        .map(|block| {
            let json = match text_json {
                TextJson::Leaf => cleaner.embedded(&block.text, room)?,
                TextJson::String => None,
            };
            let written = match json {
                Some(json) => Cow::Owned(json),
                None => cleaner.sanitiser.text(&block.text, cleaner.escape, room, &mut cleaner.report)?,
            };
            room = room.saturating_sub(written.len());
            Ok(written)
        })
        .collect()
}

/// A block that is no text. Says what is odd about it.
fn clean_other(
    cleaner: &mut Cleaner<'_>,
    edits: &mut Edits<'_>,
    block: &RawValue,
) -> Result<Option<BlockMark>, Fault> {
    let members = Members::read(block.get()).ok_or(Fault::Shape("a content block is not an object"))?;
    let kind = members.word("type");
    let inner = match kind.as_deref() {
        Some("resource") => members.get("resource").and_then(|raw| Members::read(raw.get())),
        _ => None,
    };
    let (data, addressed) = match kind.as_deref() {
        Some("image" | "audio") => ("data", None),
        Some("resource") => ("blob", inner.as_ref()),
        Some("resource_link") => ("", Some(&members)),
        _ => {
            clean_members(cleaner, edits, &members, |_| false)?;
            return Ok(Some(BlockMark::Unknown));
        }
    };
    // An address is never rewritten: one that would have to be takes its block with it (GNT-P10).
    if addressed.is_some_and(|holder| !has_safe_uri(cleaner, holder)) {
        cleaner.report.replaced_blocks += 1;
        edits.put_json(edits.place_of(block), REMOVED)?;
        return Ok(None);
    }
    let holder = inner.as_ref().unwrap_or(&members);
    let media = is_media(holder, data);
    let is_kept = |name: &str| (name == data && media) || (name == "uri" && addressed.is_some());
    match &inner {
        None => clean_members(cleaner, edits, &members, is_kept)?,
        Some(inner) => {
            for (name, raw) in members.iter() {
                match name {
                    "resource" => clean_members(cleaner, edits, inner, is_kept)?,
                    name => clean_member(cleaner, edits, name, raw)?,
                }
            }
        }
    }
    Ok((!media).then_some(BlockMark::InvalidMedia))
}

/// The contents of a resource that was read: addresses and data kept, texts cleaned. One with an unsafe address is
/// replaced, as a block would be.
pub(crate) fn clean_contents(
    cleaner: &mut Cleaner<'_>,
    edits: &mut Edits<'_>,
    raw: &RawValue,
) -> Result<(), Fault> {
    for content in list(raw, "contents are not an array")? {
        let members = Members::read(content.get()).ok_or(Fault::Shape("contents that are not an object"))?;
        if !has_safe_uri(cleaner, &members) {
            cleaner.report.replaced_blocks += 1;
            edits.put_json(edits.place_of(content), REMOVED_CONTENTS)?;
            continue;
        }
        let media = is_media(&members, "blob");
        clean_members(cleaner, edits, &members, |name| name == "uri" || (name == "blob" && media))?;
    }
    Ok(())
}

/// The messages of a prompt: each has one block.
pub(crate) fn clean_messages(
    cleaner: &mut Cleaner<'_>,
    edits: &mut Edits<'_>,
    raw: &RawValue,
    text_json: TextJson,
) -> Result<(), Fault> {
    for message in list(raw, "messages are not an array")? {
        let members = Members::read(message.get()).ok_or(Fault::Shape("a message is not an object"))?;
        if members.repeat() {
            return Err(Fault::Shape("a member of a message occurs twice"));
        }
        for (name, raw) in members.iter() {
            match name {
                "content" if raw.get().starts_with('{') => drop(clean(cleaner, edits, &[raw], text_json)?),
                name => clean_member(cleaner, edits, name, raw)?,
            }
        }
    }
    Ok(())
}

fn list<'a>(raw: &'a RawValue, complaint: &'static str) -> Result<Vec<&'a RawValue>, Fault> {
    let items: Vec<&RawValue> = serde_json::from_str(raw.get()).map_err(|_| Fault::Shape(complaint))?;
    if items.len() > MAX_BLOCKS { Err(Fault::TooManyBlocks) } else { Ok(items) }
}

fn clean_members(
    cleaner: &mut Cleaner<'_>,
    edits: &mut Edits<'_>,
    members: &Members<'_>,
    is_kept: impl Fn(&str) -> bool,
) -> Result<(), Fault> {
    if members.repeat() {
        return Err(Fault::Shape("a member of a content block occurs twice"));
    }
    for (name, raw) in members.iter().filter(|(name, _)| !is_kept(name)) {
        clean_member(cleaner, edits, name, raw)?;
    }
    Ok(())
}

/// One member: its name is checked, every string of its value cleaned.
pub(crate) fn clean_member(
    cleaner: &mut Cleaner<'_>,
    edits: &mut Edits<'_>,
    name: &str,
    raw: &RawValue,
) -> Result<(), Fault> {
    if name.len() > MAX_KEY_BYTES {
        return Err(Fault::KeyTooLong);
    }
    if !cleaner.sanitiser.is_clean(name) {
        return Err(Fault::Key);
    }
    cleaner.value(edits, edits.place_of(raw))
}

fn has_safe_uri(cleaner: &Cleaner<'_>, holder: &Members<'_>) -> bool {
    match holder.get("uri") {
        None => true,
        Some(_) => holder
            .word("uri")
            .is_some_and(|uri| uri.len() <= MAX_URI_BYTES && cleaner.sanitiser.is_clean(&uri)),
    }
}

/// Whether what should be bytes is: base64, with a media type where one is given (GNT-P9).
fn is_media(holder: &Members<'_>, data: &str) -> bool {
    let data_is_base64 = match holder.get(data) {
        // An escaped slash is legal JSON, and still base64.
        Some(_) => holder.word(data).is_some_and(|text| is_base64(text.as_bytes())),
        // Only images and sounds must have data.
        None => data != "data",
    };
    let media_type =
        holder.get("mimeType").is_none() || holder.word("mimeType").is_some_and(|word| is_media_type(&word));
    data_is_base64 && media_type
}

fn is_base64(text: &[u8]) -> bool {
    let digits = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    text.len().is_multiple_of(4)
        && digits.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'))
}

/// `type/subtype`, with parameters or without; printable ASCII.
fn is_media_type(word: &str) -> bool {
    let token = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&b))
    };
    let (kind, parameters) = word.split_once(';').unwrap_or((word, ""));
    word.len() <= 255
        && kind.trim().split_once('/').is_some_and(|(main, sub)| token(main) && token(sub))
        && parameters.bytes().all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'<' | b'>' | b'&'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_are_recognised() {
        // GNT-P9
        for good in ["", "AAAA", "AA==", "AAA=", "a+/9"] {
            assert!(is_base64(good.as_bytes()), "{good}");
        }
        for bad in ["A", "AAA", "=AAA", "AA=A", "A===", "AA A", "A\nAA", "<AA>"] {
            assert!(!is_base64(bad.as_bytes()), "{bad}");
        }
        assert!(is_media_type("text/plain; charset=utf-8") && is_media_type("image/svg+xml"));
        assert!(!is_media_type("text") && !is_media_type("a/b<") && !is_media_type("a/b;x=<|im_end|>"));
    }
}
