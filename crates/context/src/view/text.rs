//! Views of text: beginnings, ends, lines, matches.

use regex::Regex;
use serde_json::json;

use super::selector::Span;
use super::{More, View, ViewError, fitting, whole_text};
use crate::artifacts::Opened;

/// The longest character.
const CHAR: u64 = 4;

pub(super) fn head(artifact: &Opened<'_>, chars: u64, max_bytes: usize) -> Result<View, ViewError> {
    let size = artifact.record().size_bytes;
    let bytes = artifact.read(0, chars.saturating_mul(CHAR).min(max_bytes as u64 + CHAR))?;
    let text = beginning(&bytes, bytes.len() as u64 == size)?;
    let end = text
        .char_indices()
        .nth(usize::try_from(chars).unwrap_or(usize::MAX))
        .map_or(text.len(), |(at, _)| at);
    let shown = fitting(&text[..end], max_bytes);
    let rest = shown.len() as u64;
    let more = (rest < size).then(|| continued(artifact, shown, size)).transpose()?;
    Ok(View::of(shown.to_owned(), more))
}

/// The line in which a beginning ended; if there is only one, the bytes after it.
fn continued(artifact: &Opened<'_>, shown: &str, size: u64) -> Result<More, ViewError> {
    let (line, lines) = (shown.matches('\n').count() as u64, artifact.index()?.lines());
    Ok(if line + 1 < lines {
        More {
            selector: json!({"type": "lines", "start": line, "end": (line + 100).min(lines)}),
            of: format!("{lines} lines"),
        }
    } else {
        More { selector: json!({"type": "bytes", "offset": shown.len()}), of: format!("{size} bytes") }
    })
}

/// Text from the beginning; what is cut off inside a character at the end is left out.
fn beginning(bytes: &[u8], is_all: bool) -> Result<&str, ViewError> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(error) if error.error_len().is_none() && !is_all => {
            Ok(std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default())
        }
        Err(_) => Err(ViewError::not_text()),
    }
}

pub(super) fn tail(artifact: &Opened<'_>, chars: u64, max_bytes: usize) -> Result<View, ViewError> {
    let size = artifact.record().size_bytes;
    let begin = size.saturating_sub(chars.saturating_mul(CHAR).min(max_bytes as u64));
    let bytes = artifact.read(begin, size)?;
    // The first bytes may be the end of a character.
    let cut =
        if begin == 0 { 0 } else { bytes.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count() };
    let text = std::str::from_utf8(&bytes[cut..]).map_err(|_| ViewError::not_text())?;
    let wanted = usize::try_from(chars).unwrap_or(usize::MAX);
    let start = match wanted {
        0 => text.len(),
        _ => text.char_indices().rev().nth(wanted - 1).map_or(0, |(at, _)| at),
    };
    let shown = &text[start..];
    let before = size - shown.len() as u64;
    let more = (before > 0).then(|| {
        let more = json!({"type": "tail", "chars": chars.saturating_mul(2)});
        More { selector: more, of: format!("{size} bytes") }
    });
    Ok(View::of(shown.to_owned(), more))
}

pub(super) fn lines(artifact: &Opened<'_>, span: Span, max_bytes: usize) -> Result<View, ViewError> {
    let index = artifact.index()?;
    let total = index.lines();
    let (start, end) = span.within(total);
    if start == end {
        return Ok(View::whole(String::new()));
    }
    let (mut at, mut number) = index.before(start);
    let size = artifact.record().size_bytes;
    let mut shown: Vec<u8> = Vec::new();
    let mut shown_from = at;
    // In steps, because nobody knows how long the lines are.
    let step = (max_bytes as u64).max(4_096);
    'reading: while at < size && number < end {
        let bytes = artifact.read(at, at + step)?;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if number >= start {
                if shown.is_empty() {
                    shown_from = at;
                }
                shown.extend_from_slice(line);
                if shown.len() > max_bytes {
                    break 'reading;
                }
            }
            at += line.len() as u64;
            if line.ends_with(b"\n") || at == size {
                number += 1;
            }
            if number >= end {
                break;
            }
        }
    }
    let width = end - start;
    let of = format!("{total} lines");
    if shown.len() <= max_bytes {
        let text = String::from_utf8(shown).map_err(|_| ViewError::not_text())?;
        let next = json!({"type": "lines", "start": end, "end": (end + width).min(total)});
        return Ok(View::of(text, (end < total).then_some(More { selector: next, of })));
    }
    shown.truncate(max_bytes);
    match memchr::memrchr(b'\n', &shown) {
        Some(last) => {
            shown.truncate(last + 1);
            let next = start + shown.iter().filter(|byte| **byte == b'\n').count() as u64;
            let text = String::from_utf8(shown).map_err(|_| ViewError::not_text())?;
            let selector = json!({"type": "lines", "start": next, "end": end});
            Ok(View::of(text, Some(More { selector, of })))
        }
        None => {
            // One line that is longer than a view.
            let text = beginning(&shown, false)?;
            let offset = shown_from + text.len() as u64;
            let selector = json!({"type": "bytes", "offset": offset});
            Ok(View::of(text.to_owned(), Some(More { selector, of: format!("{size} bytes") })))
        }
    }
}

/// Matching lines as `n: text`, lines around them as `n- text`, with the numbers that `lines` takes.
pub(super) fn grep(
    artifact: &Opened<'_>,
    pattern: &Regex,
    (context, max, start): (u64, u64, u64),
    max_bytes: usize,
) -> Result<View, ViewError> {
    let text = whole_text(artifact)?;
    let lines: Vec<&str> = text.lines().collect();
    let total = lines.len() as u64;
    let mut out = String::new();
    let (mut found, mut written_to) = (0, 0_usize);
    for (at, line) in lines.iter().enumerate().skip(usize::try_from(start).unwrap_or(usize::MAX)) {
        if !pattern.is_match(line) {
            continue;
        }
        let more = || {
            let (pattern, of) = (pattern.as_str(), format!("{total} lines"));
            let selector =
                json!({"type": "grep", "pattern": pattern, "context": context, "max": max, "start": at});
            Some(More { selector, of })
        };
        if found == max {
            return Ok(View::of(out, more()));
        }
        let mut block = String::new();
        let from = at.saturating_sub(context as usize).max(written_to);
        let to = (at + context as usize + 1).min(lines.len());
        for (near, line) in lines[from..to].iter().enumerate() {
            let number = from + near;
            let mark = if number == at || (number > at && pattern.is_match(line)) { ':' } else { '-' };
            block.push_str(&format!("{number}{mark} {line}\n"));
        }
        if out.len() + block.len() > max_bytes {
            if !out.is_empty() {
                return Ok(View::of(out, more()));
            }
            block.truncate(block.floor_char_boundary(max_bytes));
            let selector = json!({"type": "lines", "start": at, "end": at + 1});
            return Ok(View::of(block, Some(More { selector, of: format!("{total} lines") })));
        }
        out.push_str(&block);
        written_to = to;
        found += 1;
    }
    Ok(View::whole(out))
}
