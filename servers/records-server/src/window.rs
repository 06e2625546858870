//! `GET …/field-window`: part of one long text.

use serde_json::{Value, json};

use crate::answer::{Answer, Outcome, Refusal};
use crate::grant::Bearer;
use crate::query::Query;
use crate::records::find;
use crate::server::State;

pub async fn answer(state: &State, bearer: &Bearer, stream: &str, id: &str, query: &Query) -> Outcome {
    let stream = bearer.stream(stream)?;
    let known = [
        "field",
        "offset_chars",
        "limit_chars",
        "q",
        "before_chars",
        "after_chars",
        "connection_id",
        "connector_id",
    ];
    query.only(&known, false)?;
    let connections = bearer.connections(query.get("connection_id"))?;
    let field = query.get("field").ok_or_else(|| Refusal::bad("field is required").param("field"))?;
    if stream.flags(field).is_none() || !bearer.sees(stream.name, field) {
        let message = format!("field '{field}' is not within the granted projection for this stream");
        return Err(Refusal::new(403, "field_not_granted", message));
    }
    let (record, _) = find(state, bearer, stream, id, &connections).await?;
    let text = match &record.data[field] {
        Value::String(text) => text,
        Value::Null => {
            return Err(Refusal::new(
                404,
                "field_not_found",
                format!("field '{field}' is not in this record"),
            ));
        }
        other => {
            let kind = match other {
                Value::Number(_) => "number",
                Value::Bool(_) => "boolean",
                Value::Array(_) => "array",
                _ => "object",
            };
            let message = format!(
                "field '{field}' is {kind}, not a readable text field; non-text and binary fields are metadata-only"
            );
            return Err(Refusal::new(422, "field_not_text", message));
        }
    };
    let number = |key: &str| query.get(key).and_then(|text| text.parse::<usize>().ok());
    let chars: Vec<char> = text.chars().collect();
    let total = chars.len();
    let (start, limit, matched) = match query.get("q") {
        Some(q) => {
            let Some(at) = position(&chars, q) else {
                return Err(Refusal::new(
                    404,
                    "query_not_found",
                    format!("q was not found in field '{field}'"),
                ));
            };
            let length = q.chars().count();
            let (before, after) =
                (number("before_chars").unwrap_or(200), number("after_chars").unwrap_or(200));
            let start = at.saturating_sub(before);
            (start, (at + length + after - start).min(16_384), Some((at, at + length)))
        }
        None => (
            number("offset_chars").unwrap_or(0).min(total),
            number("limit_chars").unwrap_or(4_096).clamp(1, 16_384),
            None,
        ),
    };
    let end = (start + limit).min(total);
    let has_more = end < total;
    let asked = number("limit_chars").filter(|asked| *asked > 16_384);
    let clamped = asked.map(|asked| json!({"code": "limit_clamped", "message": format!("Requested limit_chars={asked} exceeds the maximum of 16384."), "param": "limit_chars"}));
    Ok(Answer::ok(json!({
        "field": {"path": field, "type": "string"}, "object": "field_window", "meta": {"warnings": clamped.into_iter().collect::<Vec<_>>()}, "record_id": id, "stream": stream.name,
        "url": format!("/v1/streams/{}/records/{id}/field-window", stream.name),
        "window": {
            "complete": start == 0 && !has_more, "end_chars": end, "has_more": has_more, "limit_chars": limit,
            "match_end_chars": matched.map(|(_, end)| end), "match_start_chars": matched.map(|(start, _)| start),
            "next_offset_chars": has_more.then_some(end),
            "previous_offset_chars": (start > 0).then(|| start.saturating_sub(if start == total { total } else { limit })),
            "start_chars": start, "text": chars[start..end].iter().collect::<String>(), "total_chars": total,
        },
    })))
}

fn position(chars: &[char], q: &str) -> Option<usize> {
    let q: Vec<char> = q.chars().flat_map(char::to_lowercase).collect();
    let low: Vec<char> = chars.iter().map(|c| c.to_lowercase().next().unwrap_or(*c)).collect();
    if q.is_empty() { None } else { low.windows(q.len()).position(|window| window == q) }
}
