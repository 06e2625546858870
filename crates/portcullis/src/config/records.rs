//! `[records.NAME]`: what is set for a records server (REC-3).

use std::collections::BTreeMap;

use portcullis_gateway::records::{EventsMode, RecordsOptions};
use portcullis_governance::endpoint::HttpEndpoint;

use crate::failure::Failure;

pub(super) fn options(
    sections: &BTreeMap<String, RecordsOptions>,
) -> Result<BTreeMap<String, RecordsOptions>, Failure> {
    for (name, options) in sections {
        let bad = |key: &str, message: &str| {
            let field = format!("records.{name}.{key}");
            Err(Failure::field(&field, format!("{field} {message}")))
        };
        // https everywhere but on this machine, and no user information, as for every server.
        let is_url = |text: &str| HttpEndpoint::parse(text).is_ok();
        if let Some(prefix) = options.callback_allow.iter().find(|prefix| !is_url(prefix)) {
            return bad("callback_allow", &format!("has {prefix:?}, which is not an https URL"));
        }
        if options.events == EventsMode::Gateway && !is_url(&options.public_url) {
            return bad(
                "public_url",
                "must be the https URL under which the records server reaches this gateway",
            );
        }
        for (key, value, range) in [
            ("connect_timeout_ms", options.connect_timeout_ms, 1..=60_000),
            ("timeout_ms", options.timeout_ms, 1..=600_000),
            ("max_body_bytes", options.max_body_bytes as u64, 1_024..=(11 << 20)),
        ] {
            if !range.contains(&value) {
                return bad(key, &format!("must be {} to {}", range.start(), range.end()));
            }
        }
    }
    Ok(sections.clone())
}
