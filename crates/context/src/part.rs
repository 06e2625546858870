//! The parts of a result, read where they stand.
//!
//! A server may send anything. Reading a part never fails: what is none of the known kinds is [`Content::Unknown`]
//! and keeps its text.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// One part of a result.
#[derive(Debug, Clone)]
pub struct Part<'a> {
    /// The part as it was written.
    pub raw: &'a str,
    /// What it holds.
    pub content: Content<'a>,
    /// The annotations the server wrote on it, if there are any (CTX-9).
    pub annotations: Option<&'a RawValue>,
}

/// What a part holds.
#[derive(Debug, Clone)]
pub enum Content<'a> {
    /// Text for the model.
    Text(Cow<'a, str>),
    /// An image or a sound, in base64.
    Media {
        /// `image` or `audio`.
        kind: MediaKind,
        /// The base64 text.
        data: Cow<'a, str>,
        /// The type the server claims.
        media_type: Option<Cow<'a, str>>,
    },
    /// The text of a resource.
    ResourceText {
        /// Where it is from.
        uri: Cow<'a, str>,
        /// The text.
        text: Cow<'a, str>,
        /// The type the server claims.
        media_type: Option<Cow<'a, str>>,
    },
    /// The bytes of a resource, in base64.
    ResourceBlob {
        /// Where it is from.
        uri: Cow<'a, str>,
        /// The base64 text.
        blob: Cow<'a, str>,
        /// The type the server claims.
        media_type: Option<Cow<'a, str>>,
    },
    /// The name of a resource. Nobody here follows it.
    Link {
        /// Where it would be.
        uri: Cow<'a, str>,
        /// What it is called.
        name: Option<Cow<'a, str>>,
        /// The type the server claims.
        media_type: Option<Cow<'a, str>>,
    },
    /// Anything else.
    Unknown,
}

/// The kinds of media MCP has parts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediaKind {
    /// A picture.
    Image,
    /// A sound.
    Audio,
}

impl MediaKind {
    /// The word in `type`.
    pub const fn as_str(self) -> &'static str {
        match self {
            MediaKind::Image => "image",
            MediaKind::Audio => "audio",
        }
    }

    /// The type of a part that names none (CTX-8).
    pub const fn default_type(self) -> &'static str {
        match self {
            MediaKind::Image => "image/png",
            MediaKind::Audio => "audio/wav",
        }
    }
}

#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    blob: Option<&'a RawValue>,
    #[serde(borrow)]
    uri: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow, rename = "mimeType")]
    media_type: Option<&'a RawValue>,
    #[serde(borrow)]
    resource: Option<&'a RawValue>,
    #[serde(borrow)]
    annotations: Option<&'a RawValue>,
}

impl<'a> Part<'a> {
    /// Reads a content block.
    pub fn read(raw: &'a RawValue) -> Self {
        let Ok(fields) = serde_json::from_str::<Fields<'a>>(raw.get()) else { return Part::unknown(raw) };
        let kind = fields.kind.and_then(text_of);
        let content = match kind.as_deref() {
            Some("text") | None => fields.text.and_then(text_of).map(Content::Text),
            Some("image") => media(MediaKind::Image, &fields),
            Some("audio") => media(MediaKind::Audio, &fields),
            Some("resource") => fields.resource.and_then(resource),
            Some("resource_link") => fields.uri.and_then(text_of).map(|uri| Content::Link {
                uri,
                name: fields.name.and_then(text_of),
                media_type: fields.media_type.and_then(text_of),
            }),
            Some(_) => None,
        };
        // A type that is there but no word is not a missing one.
        let content = content.filter(|_| kind.is_some() || fields.kind.is_none());
        let annotations = fields.annotations.filter(|raw| is_full_object(raw.get()));
        Part { raw: raw.get(), content: content.unwrap_or(Content::Unknown), annotations }
    }

    /// Reads one of the `contents` of a resource, which carry no `type`.
    pub fn read_contents(raw: &'a RawValue) -> Self {
        let content = resource(raw).unwrap_or(Content::Unknown);
        Part { raw: raw.get(), content, annotations: None }
    }

    pub(crate) fn unknown(raw: &'a RawValue) -> Self {
        Part { raw: raw.get(), content: Content::Unknown, annotations: None }
    }

    /// The `type` the server wrote, if it is a word.
    pub(crate) fn kind(&self) -> Option<Cow<'a, str>> {
        serde_json::from_str::<Fields<'a>>(self.raw).ok()?.kind.and_then(text_of)
    }

    /// The text that counts towards what a model reads (CTX-2).
    pub fn text(&self) -> Option<&str> {
        match &self.content {
            Content::Text(text) | Content::ResourceText { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The base64 text of something that is not text.
    pub(crate) fn base64(&self) -> Option<&str> {
        match &self.content {
            Content::Media { data, .. } => Some(data),
            Content::ResourceBlob { blob, .. } => Some(blob),
            _ => None,
        }
    }
}

fn media<'a>(kind: MediaKind, fields: &Fields<'a>) -> Option<Content<'a>> {
    let data = fields.data.and_then(text_of)?;
    Some(Content::Media { kind, data, media_type: fields.media_type.and_then(text_of) })
}

fn resource<'a>(raw: &'a RawValue) -> Option<Content<'a>> {
    let fields = serde_json::from_str::<Fields<'a>>(raw.get()).ok()?;
    let uri = fields.uri.and_then(text_of).unwrap_or_default();
    let media_type = fields.media_type.and_then(text_of);
    match (fields.text.and_then(text_of), fields.blob.and_then(text_of)) {
        (Some(text), _) => Some(Content::ResourceText { uri, text, media_type }),
        (None, Some(blob)) => Some(Content::ResourceBlob { uri, blob, media_type }),
        (None, None) => None,
    }
}

fn is_full_object(json: &str) -> bool {
    json.strip_prefix('{').is_some_and(|rest| rest.trim_start() != "}")
}

/// The text of a JSON string, borrowed where it has no escapes; `None` if it is no string.
pub(crate) fn text_of(raw: &RawValue) -> Option<Cow<'_, str>> {
    let inside = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    if inside.contains('\\') {
        serde_json::from_str::<String>(raw.get()).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(inside))
    }
}
