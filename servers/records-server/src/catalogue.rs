//! What streams and fields there are, and what may be done with them.

use serde_json::{Value, json};

/// One stream.
#[derive(Debug)]
pub struct Stream {
    pub name: &'static str,
    pub key: &'static str,
    pub cursor: Option<&'static str>,
    /// Name and flags, in the order in which full tokens see them.
    pub fields: &'static [(&'static str, &'static str)],
    pub relations: &'static [Relation],
    pub views: &'static [(&'static str, &'static [&'static str])],
}

/// What a record can be expanded with.
#[derive(Debug)]
pub struct Relation {
    pub name: &'static str,
    pub stream: &'static str,
    pub many: bool,
    pub foreign_key: &'static str,
    pub default_limit: usize,
    pub max_limit: usize,
}

impl Relation {
    pub fn shown(&self) -> Value {
        let cardinality = if self.many { "has_many" } else { "has_one" };
        let mut shown = json!({
            "name": self.name, "stream": self.stream, "target_stream": self.stream, "cardinality": cardinality,
            "granted": true, "usable": true, "foreign_key": self.foreign_key,
        });
        if self.many {
            shown["max_limit"] = json!(self.max_limit);
            shown["default_limit"] = json!(self.default_limit);
        }
        shown
    }
}

impl Stream {
    pub fn flags(&self, field: &str) -> Option<&'static str> {
        self.fields.iter().find(|(name, _)| *name == field).map(|(_, flags)| *flags)
    }

    pub fn has(&self, field: &str, flag: &str) -> bool {
        self.flags(field).is_some_and(|flags| flags.split(',').any(|one| one == flag))
    }

    /// The alternatives of a flag such as `r=gte|lt`.
    pub fn choices(&self, field: &str, flag: &str) -> Vec<&'static str> {
        let found =
            self.flags(field).and_then(|flags| flags.split(',').find_map(|one| one.strip_prefix(flag)));
        found.map(|text| text.split('|').collect()).unwrap_or_default()
    }
}

pub fn stream(name: &str) -> Option<&'static Stream> {
    STREAMS.iter().find(|stream| stream.name == name)
}

const TIME: &str = "t=timestamp,role=event-time,eq,r=gte|gt|lte|lt,a=group_by_time|max|min";
const FLAG: &str = "t=boolean,eq,a=group_by";
const PLAIN: &str = "t=string,eq";

pub static STREAMS: [Stream; 4] = [
    Stream {
        name: "messages",
        key: "id",
        cursor: Some("received_at"),
        fields: &[
            ("id", PLAIN),
            ("thread_id", PLAIN),
            ("subject", "t=text,role=primary-title,eq,lex,sem"),
            ("from_name", "t=person,role=actor,eq,lex"),
            ("from_email", "t=string|null,eq,lex"),
            ("to", "t=array"),
            ("cc", "t=array"),
            ("bcc", "t=array"),
            ("reply_to", "t=array"),
            ("date", TIME),
            ("received_at", "t=string,role=event-time,eq,r=gte|gt|lte|lt,a=group_by_time|max|min"),
            ("message_id", "t=string|null,eq"),
            ("in_reply_to", "t=string|null,eq"),
            ("references", "t=array"),
            ("size_bytes", "t=integer|null,eq,r=gte|gt|lte|lt,a=max|min|sum"),
            ("labels", "t=array"),
            ("is_draft", FLAG),
            ("is_flagged", FLAG),
            ("is_seen", FLAG),
            ("is_answered", FLAG),
            ("has_attachments", FLAG),
            ("snippet", "t=text,role=secondary,eq,lex,sem"),
        ],
        relations: &[
            Relation {
                name: "message_bodies",
                stream: "message_bodies",
                many: false,
                foreign_key: "message_id",
                default_limit: 1,
                max_limit: 1,
            },
            Relation {
                name: "attachments",
                stream: "attachments",
                many: true,
                foreign_key: "message_id",
                default_limit: 10,
                max_limit: 50,
            },
        ],
        views: &[(
            "envelope",
            &["id", "thread_id", "subject", "from_name", "from_email", "to", "date", "received_at", "labels"],
        )],
    },
    Stream {
        name: "message_bodies",
        key: "id",
        cursor: None,
        fields: &[
            ("id", PLAIN),
            ("message_id", PLAIN),
            ("message_received_at", PLAIN),
            ("body_text", "t=text,lex"),
            ("body_html", PLAIN),
            ("body_html_bytes", PLAIN),
            ("body_source", PLAIN),
            ("body_text_bytes", PLAIN),
            ("charset", PLAIN),
            ("content_languages", PLAIN),
        ],
        relations: &[],
        views: &[],
    },
    Stream {
        name: "attachments",
        key: "id",
        cursor: None,
        fields: &[
            ("id", PLAIN),
            ("message_id", PLAIN),
            ("filename", PLAIN),
            ("content_type", PLAIN),
            ("size_bytes", PLAIN),
            ("is_inline", PLAIN),
            ("part_index", PLAIN),
            ("message_received_at", PLAIN),
            ("hydration_status", PLAIN),
            ("blob_ref", PLAIN),
            ("content_id", PLAIN),
            ("content_sha256", PLAIN),
            ("encoding", PLAIN),
            ("hydration_error", PLAIN),
        ],
        relations: &[],
        views: &[],
    },
    Stream {
        name: "labels",
        key: "name",
        cursor: None,
        fields: &[
            ("name", "t=string,role=primary-title,eq,lex"),
            ("canonical_name", "t=string,eq,lex"),
            ("is_system", "t=boolean,eq"),
            ("parent_name", "t=string|null,eq,lex"),
            ("message_count", "t=integer|null,eq"),
        ],
        relations: &[],
        views: &[],
    },
];
