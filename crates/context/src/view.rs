//! Looking at part of an artifact.

/// Whether artifacts of this type are text.
pub(crate) fn is_textual(media_type: &str) -> bool {
    media_type.starts_with("text/")
        || matches!(
            media_type,
            "application/json" | "application/xml" | "application/yaml" | "application/x-ndjson"
        )
        || media_type.ends_with("+json")
        || media_type.ends_with("+xml")
}

/// The selectors that apply to any of these artifacts.
pub(crate) fn applicable<'a>(artifacts: impl Iterator<Item = (&'a str, &'a [u8])>) -> Vec<&'static str> {
    let mut views: Vec<&'static str> = Vec::new();
    let mut add = |names: &[&'static str]| {
        for name in names {
            if !views.contains(name) {
                views.push(name);
            }
        }
    };
    for (media_type, bytes) in artifacts {
        if !is_textual(media_type) || std::str::from_utf8(bytes).is_err() {
            add(&["bytes", "part"]);
        } else if media_type == "application/json" {
            let is_array = bytes.trim_ascii_start().starts_with(b"[");
            add(if is_array {
                &["json_pointer", "rows", "grep"]
            } else {
                &["json_keys", "json_pointer", "grep"]
            });
        } else if matches!(media_type, "text/csv" | "text/tab-separated-values") {
            add(&["rows", "head", "lines", "grep"]);
        } else {
            add(&["head", "lines", "grep"]);
        }
    }
    views
}
