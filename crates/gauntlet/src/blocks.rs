//! Content blocks: which of their strings are text, and which are something else (GNT-P8 to P11).

use std::borrow::Cow;

use crate::gauntlet::TextJson;
use crate::leaves::{Cleaner, Edits, Fault};
use crate::tape::{Kind, View};

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

/// Cleans the blocks of `content`. Says what is odd about which.
pub(crate) fn clean(
    cleaner: &mut Cleaner<'_>,
    edits: &mut Edits<'_>,
    blocks: &[View<'_, '_>],
    text_json: TextJson,
) -> Result<Vec<(usize, BlockMark)>, Fault> {
    let mut marks = Vec::new();
    let mut index = 0;
    while index < blocks.len() {
        // Texts that stand next to each other are read as one (GNT-Z7).
        let run: Vec<TextBlock<'_, '_>> =
            blocks[index..].iter().map_while(|block| TextBlock::read(*block)).collect();
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
struct TextBlock<'t, 's> {
    block: View<'t, 's>,
    text: Cow<'s, str>,
}

impl<'t, 's> TextBlock<'t, 's> {
    fn read(block: View<'t, 's>) -> Option<Self> {
        let is_text = block.word_of("type")? == "text";
        Some(Self { text: block.word_of("text").filter(|_| is_text)?, block })
    }
}

fn clean_run(
    cleaner: &mut Cleaner<'_>,
    edits: &mut Edits<'_>,
    run: &[TextBlock<'_, '_>],
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
        for (name, value) in block.block.members() {
            if name.text() != "text" {
                clean_member(cleaner, edits, name, value)?;
            } else if *text != block.text {
                edits.put_string(value.place(), text)?;
            }
        }
    }
    Ok(())
}

/// Each text for itself; one that is JSON leaf by leaf, if so configured (GNT-P8).
fn one_by_one<'t>(
    cleaner: &mut Cleaner<'_>,
    run: &'t [TextBlock<'_, '_>],
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
                Some(json) => json,
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
    block: View<'_, '_>,
) -> Result<Option<BlockMark>, Fault> {
    if block.kind() != Kind::Object {
        return Err(Fault::Shape("a content block is not an object"));
    }
    let kind = block.word_of("type");
    let inner = match kind.as_deref() {
        Some("resource") => block.get("resource").filter(|inner| inner.kind() == Kind::Object),
        _ => None,
    };
    let (data, addressed) = match kind.as_deref() {
        Some("image" | "audio") => ("data", None),
        Some("resource") => ("blob", inner),
        Some("resource_link") => ("", Some(block)),
        _ => {
            clean_members(cleaner, edits, block, |_| false)?;
            return Ok(Some(BlockMark::Unknown));
        }
    };
    // An address is never rewritten: one that would have to be takes its block with it (GNT-P10).
    if addressed.is_some_and(|holder| !has_safe_uri(cleaner, holder)) {
        cleaner.report.replaced_blocks += 1;
        edits.put_json(block.place(), REMOVED)?;
        return Ok(None);
    }
    let media = is_media(inner.unwrap_or(block), data);
    let is_kept = |name: &str| (name == data && media) || (name == "uri" && addressed.is_some());
    match inner {
        None => clean_members(cleaner, edits, block, is_kept)?,
        Some(inner) => {
            for (name, value) in block.members() {
                if name.text() == "resource" {
                    clean_members(cleaner, edits, inner, is_kept)?;
                } else {
                    clean_member(cleaner, edits, name, value)?;
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
    contents: View<'_, '_>,
) -> Result<(), Fault> {
    for content in list(contents, "contents are not an array")? {
        if content.kind() != Kind::Object {
            return Err(Fault::Shape("contents that are not an object"));
        }
        if !has_safe_uri(cleaner, content) {
            cleaner.report.replaced_blocks += 1;
            edits.put_json(content.place(), REMOVED_CONTENTS)?;
            continue;
        }
        let media = is_media(content, "blob");
        clean_members(cleaner, edits, content, |name| name == "uri" || (name == "blob" && media))?;
    }
    Ok(())
}

/// The messages of a prompt: each has one block.
pub(crate) fn clean_messages(
    cleaner: &mut Cleaner<'_>,
    edits: &mut Edits<'_>,
    messages: View<'_, '_>,
    text_json: TextJson,
) -> Result<(), Fault> {
    for message in list(messages, "messages are not an array")? {
        if message.kind() != Kind::Object {
            return Err(Fault::Shape("a message is not an object"));
        }
        for (name, value) in message.members() {
            if name.text() == "content" && value.kind() == Kind::Object {
                clean(cleaner, edits, &[value], text_json)?;
            } else {
                clean_member(cleaner, edits, name, value)?;
            }
        }
    }
    Ok(())
}

/// The items of what should be an array, and of not too many.
pub(crate) fn list<'t, 's>(array: View<'t, 's>, complaint: &'static str) -> Result<Vec<View<'t, 's>>, Fault> {
    if array.kind() != Kind::Array {
        return Err(Fault::Shape(complaint));
    }
    let items: Vec<_> = array.items().take(MAX_BLOCKS + 1).collect();
    if items.len() > MAX_BLOCKS { Err(Fault::TooManyBlocks) } else { Ok(items) }
}

fn clean_members(
    cleaner: &mut Cleaner<'_>,
    edits: &mut Edits<'_>,
    object: View<'_, '_>,
    is_kept: impl Fn(&str) -> bool,
) -> Result<(), Fault> {
    for (name, value) in object.members().filter(|(name, _)| !is_kept(&name.text())) {
        clean_member(cleaner, edits, name, value)?;
    }
    Ok(())
}

/// One member: its name is checked, every string of its value cleaned.
pub(crate) fn clean_member(
    cleaner: &mut Cleaner<'_>,
    edits: &mut Edits<'_>,
    name: View<'_, '_>,
    value: View<'_, '_>,
) -> Result<(), Fault> {
    cleaner.name(name)?;
    cleaner.value(edits, value)
}

fn has_safe_uri(cleaner: &Cleaner<'_>, holder: View<'_, '_>) -> bool {
    let is_safe = |uri: Cow<'_, str>| uri.len() <= MAX_URI_BYTES && cleaner.sanitiser.is_clean(&uri);
    holder.get("uri").is_none_or(|uri| uri.word().is_some_and(is_safe))
}

/// Whether what should be bytes is: base64, with a media type where one is given (GNT-P9).
fn is_media(holder: View<'_, '_>, data: &str) -> bool {
    let data_is_base64 = match holder.get(data) {
        // An escaped slash is legal JSON, and still base64.
        Some(bytes) => bytes.word().is_some_and(|text| is_base64(text.as_bytes())),
        // Only images and sounds must have data.
        None => data != "data",
    };
    let is_named = |kind: View<'_, '_>| kind.word().is_some_and(|word| is_media_type(&word));
    data_is_base64 && holder.get("mimeType").is_none_or(is_named)
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
