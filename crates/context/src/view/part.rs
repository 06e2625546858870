//! Views of what is not text: its bytes, or the part as the server sent it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::{More, Slice, View, ViewError};
use crate::artifacts::Opened;
use crate::envelope::Source;

/// The largest part that is shown whole.
const MAX_PART: u64 = 4 << 20;

pub(super) fn bytes(
    artifact: &Opened<'_>,
    offset: u64,
    length: Option<u64>,
    max_bytes: usize,
) -> Result<View, ViewError> {
    let size = artifact.record().size_bytes;
    if offset > size {
        return Err(ViewError::field("offset", format!("there are only {size} bytes")));
    }
    let length = length.unwrap_or(max_bytes as u64).min(max_bytes as u64);
    let bytes = artifact.read(offset, offset.saturating_add(length))?;
    let next = offset + bytes.len() as u64;
    let more = (next < size).then(|| {
        let selector = json!({"type": "bytes", "offset": next, "length": length});
        More { selector, of: format!("{size} bytes") }
    });
    Ok(View::of(STANDARD.encode(bytes), more))
}

pub(super) fn part(artifact: &Opened<'_>) -> Result<View, ViewError> {
    let record = artifact.record();
    if record.size_bytes > MAX_PART {
        return Err(ViewError::content("the part is larger than 4 MiB", &["bytes"]));
    }
    let bytes = artifact.read(0, record.size_bytes)?;
    let media = |kind: &str| {
        json!({"type": kind, "data": STANDARD.encode(&bytes), "mimeType": record.media_type}).to_string()
    };
    let part = match &record.source {
        Source::Image => media("image"),
        Source::Audio => media("audio"),
        Source::Resource(uri) => {
            let mut resource = json!({"uri": uri, "mimeType": record.media_type});
            match std::str::from_utf8(&bytes) {
                Ok(text) if super::is_textual(&record.media_type) => resource["text"] = text.into(),
                _ => resource["blob"] = STANDARD.encode(&bytes).into(),
            }
            json!({"type": "resource", "resource": resource}).to_string()
        }
        Source::Text | Source::Link | Source::Structured | Source::Unknown => {
            let text = ["head", "lines", "grep", "json_pointer"].as_slice();
            return Err(ViewError::content("only images, audio and resources have a part to show", text));
        }
    };
    Ok(View { slice: Slice::Part(part), more: None })
}
