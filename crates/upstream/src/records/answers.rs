//! What a model gets of an answer: the structure of REC-40, and the lines of REC-41.

use serde_json::{Map, Value, json};

use super::Params;
use super::arguments::{Prepared, RecordId};
use super::refusal::Refusal;
use super::summary::{Lines, fields, plain};

/// How much of a text `fetch` returns.
const TEXT: usize = 16_384;

/// The result of a tool.
pub(super) fn made(
    params: &Params,
    prepared: &Prepared,
    body: Value,
    request_id: Option<String>,
) -> Result<Value, Refusal> {
    let (structured, text) = match params.name.as_str() {
        "schema" => schema(&params.arguments, body, request_id),
        "query_records" => query_records(&params.arguments, body, request_id),
        "aggregate" => aggregate(body, request_id),
        "search" => search(body, request_id),
        "fetch" => fetch(prepared.record.as_ref(), body),
        "read_record_field" => window(prepared.record.as_ref(), body, request_id),
        "discover_event_subscription_capabilities" => capabilities(body),
        _ => event_tool(body, request_id),
    };
    Ok(json!({"content": [{"type": "text", "text": text}], "structuredContent": structured}))
}

/// What a server without events is: no error.
pub(super) fn unsupported() -> Value {
    let structured = json!({"supported": false, "capability": null});
    json!({"content": [{"type": "text", "text": "change events are not supported"}], "structuredContent": structured})
}

fn text(value: &Value, key: &str) -> String {
    value.get(key).map(plain).unwrap_or_default()
}

fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn schema(arguments: &Value, body: Value, request_id: Option<String>) -> (Value, String) {
    // Some servers wrap it.
    let body = match body
        .get("data")
        .filter(|data| data.get("connectors").is_some() || data.get("streams").is_some())
    {
        Some(inside) => inside.clone(),
        None => body,
    };
    let first = format!(
        "schema: connectors={} streams={} detail={}",
        text(&body, "connector_count"),
        text(&body, "stream_count"),
        text(&body, "detail")
    );
    let mut lines = Lines::new(&first, 8_000);
    let nested: Vec<(&Value, Option<&Value>)> = list(&body, "connectors")
        .iter()
        .flat_map(|connector| list(connector, "streams").iter().map(move |stream| (stream, Some(connector))))
        .collect();
    let flat = list(&body, "streams").iter().map(|stream| (stream, None));
    for (stream, connector) in nested.into_iter().chain(flat).take(50) {
        let connections: Vec<String> = connector
            .map(|connector| list(connector, "granted_connections"))
            .unwrap_or_default()
            .iter()
            .map(|one| format!("{}({})", text(one, "connection_id"), text(one, "display_name")))
            .collect();
        let expand: Vec<String> =
            list(stream, "expand_capabilities").iter().map(|one| text(one, "name")).collect();
        let mut line = format!("stream {}", text(stream, "name"));
        if let Some(connector) = connector {
            line.push_str(&format!(
                " connector={} connections={}",
                text(connector, "connector_key"),
                connections.join("|")
            ));
        }
        if !expand.is_empty() {
            line.push_str(&format!(" expand={}", expand.join("|")));
        }
        if !lines.add(&line) {
            break;
        }
        if arguments.get("stream").is_some() {
            let flags = stream.get("field_capabilities").and_then(Value::as_object).into_iter().flatten();
            let flags: Vec<String> = flags
                .take(24)
                .map(|(field, flags)| match flags.as_str() {
                    Some(flags) => format!("{field}[{flags}]"),
                    None => field.clone(),
                })
                .collect();
            lines.add(&flags.join(" "));
        }
    }
    (json!({"data": body, "request_id": request_id}), lines.text())
}

fn query_records(arguments: &Value, body: Value, request_id: Option<String>) -> (Value, String) {
    let rows = list(&body, "data");
    let mut first = format!("{} record(s) from {}.", rows.len(), text(arguments, "stream"));
    for key in ["has_more", "next_cursor", "next_changes_since"] {
        if let Some(value) = body.get(key) {
            first.push_str(&format!(" {key}={}", plain(value)));
        }
    }
    if let Some(count) = body.pointer("/meta/count/value") {
        first.push_str(&format!(" count={count}"));
    }
    let warnings: Vec<String> = body
        .pointer("/meta/warnings")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|one| text(one, "code"))
        .collect();
    if !warnings.is_empty() {
        first.push_str(&format!(" warnings={}", warnings.join(",")));
    }
    let mut connections: Vec<String> = rows.iter().map(|row| text(row, "connection_id")).collect();
    connections.dedup();
    connections.truncate(8);
    let asked = arguments.get("limit").and_then(Value::as_u64).and_then(|limit| usize::try_from(limit).ok());
    // REC-33: more rows than asked for and no way on would look like a mistake of the reader's.
    if connections.len() > 1 && body["has_more"] == true {
        let limit = asked.map_or_else(|| "the default limit".to_owned(), |limit| format!("limit {limit}"));
        first.push_str(&format!(
            " {} rows for {limit}: several connections; page one with connection_id={}",
            rows.len(),
            connections.join("|")
        ));
    }
    let mut lines = Lines::new(&first, 1_792);
    let mut shown = 0;
    for row in rows.iter().take(5) {
        let line = format!("{} {}", handle(row), fields(row.get("data").unwrap_or(&Value::Null)));
        let short: String = line.chars().take(480).collect();
        if !lines.add(&short) {
            break;
        }
        shown += 1;
    }
    if shown < rows.len() {
        lines.add(&format!(
            "{} more row(s) in structured output; page with cursor or narrow with fields",
            rows.len() - shown
        ));
    }
    (json!({"data": body, "request_id": request_id}), lines.text())
}

/// A record's self-contained id.
fn handle(row: &Value) -> String {
    format!("{}/{}:{}", text(row, "connection_id"), text(row, "stream"), text(row, "id"))
}

fn aggregate(body: Value, request_id: Option<String>) -> (Value, String) {
    let field = body
        .get("field")
        .and_then(Value::as_str)
        .map_or_else(|| text(&body, "stream"), |field| format!("{}.{field}", text(&body, "stream")));
    let head = format!("{}({field})", text(&body, "metric"));
    let lines = match body.get("groups").and_then(Value::as_array) {
        None => Lines::new(&format!("{head} = {}", text(&body, "value")), 1_024),
        Some(groups) => {
            let by = body.get("granularity").or(body.get("group_by")).filter(|by| !by.is_null());
            let by = by.or(body.get("group_by")).map(plain).unwrap_or_default();
            let mut first = format!("{head} by {by}: {} group(s)", groups.len());
            if let Some(other) = body.get("other_count") {
                first.push_str(&format!(" other_count={other}"));
            }
            let mut lines = Lines::new(&first, 1_024);
            for group in groups.iter().take(10) {
                lines.add(&format!("{} = {}", text(group, "key"), text(group, "count")));
            }
            lines
        }
    };
    (json!({"data": body, "request_id": request_id}), lines.text())
}

fn unmarked(text: &str) -> String {
    text.replace("<mark>", "").replace("</mark>", "")
}

fn search(mut body: Value, request_id: Option<String>) -> (Value, String) {
    let hits = body.as_object_mut().and_then(|body| body.remove("data")).unwrap_or_default();
    let hits = hits.as_array().cloned().unwrap_or_default();
    let results: Vec<Value> = hits.iter().map(result).collect();
    body["result_count"] = json!(results.len());
    let mut first = format!("{} hit(s).", results.len());
    for key in ["has_more", "next_cursor"] {
        if let Some(value) = body.get(key) {
            first.push_str(&format!(" {key}={}", plain(value)));
        }
    }
    if let Some(hit) = results.first() {
        first.push_str(&format!(" first_fetch_id={}", text(hit, "id")));
    }
    if body.pointer("/meta/recall/complete") == Some(&Value::Bool(false)) {
        first.push_str(" recall=partial");
    }
    let mut lines = Lines::new(&first, 1_792);
    for hit in results.iter().take(3) {
        let snippet: String = text(hit, "snippet").chars().take(96).collect();
        lines.add(&format!("{} {} {snippet}", text(hit, "id"), text(hit, "title")));
    }
    (json!({"data": body, "results": results, "request_id": request_id}), lines.text())
}

fn result(hit: &Value) -> Value {
    let (stream, key, connection) = (text(hit, "stream"), text(hit, "record_key"), hit.get("connection_id"));
    let id = match connection.and_then(Value::as_str) {
        Some(connection) => format!("{connection}/{stream}:{key}"),
        None => format!("{stream}:{key}"),
    };
    let snippet = hit.pointer("/snippet/text").and_then(Value::as_str).unwrap_or_default();
    let snippet: String = unmarked(snippet).chars().take(320).collect();
    let excerpts: Vec<Value> = list(hit, "evidence_excerpts")
        .iter()
        .take(3)
        .map(|one| {
            let preview: String = unmarked(&text(one, "preview_text")).chars().take(320).collect();
            json!({"field_path": one["field_path"], "text": preview, "truncated": one["truncated"]})
        })
        .collect();
    json!({
        "id": id, "title": format!("{} / {stream} / {key}", text(hit, "display_name")), "url": hit["record_url"].as_str().unwrap_or_default(),
        "stream": stream, "record_key": key, "connection_id": connection, "display_name": hit["display_name"],
        "connector_key": hit["connector_id"], "snippet": snippet, "excerpts": excerpts,
    })
}

fn fetch(id: Option<&RecordId>, body: Value) -> (Value, String) {
    let data = body.get("data").cloned().unwrap_or_default();
    let found = ["text", "content", "body", "body_text", "summary"]
        .iter()
        .find_map(|field| data.get(*field).and_then(Value::as_str).map(|text| (*field, text.to_owned())));
    let (field, whole) = found.map_or((None, data.to_string()), |(field, text)| (Some(field), text));
    let length = whole.chars().count();
    let shown: String = whole.chars().take(TEXT).collect();
    let title =
        ["title", "subject", "name"].iter().find_map(|field| data.get(*field).and_then(Value::as_str));
    let title = title.map_or_else(
        || {
            format!(
                "{} / {} / {}",
                text(&body, "display_name"),
                text(&body, "stream"),
                text(&body, "emitted_at")
            )
        },
        ToOwned::to_owned,
    );
    let full_id = RecordId {
        connection_id: body.get("connection_id").and_then(Value::as_str).map(ToOwned::to_owned),
        stream: text(&body, "stream"),
        record_id: id.map_or_else(|| text(&body, "id"), |id| id.record_id.clone()),
    };
    let mut metadata = json!({
        "stream": full_id.stream, "record_id": full_id.record_id, "connection_id": body["connection_id"],
        "connector_key": body["connector_key"], "display_name": body["display_name"], "emitted_at": body["emitted_at"],
    });
    if let Some(expanded) = body.get("expanded") {
        metadata["expanded"] = expanded.clone();
    }
    let mut lines = Lines::new(&format!("{} {title}", full_id.text()), 2_048);
    lines.add_text(&shown.chars().take(1_024).collect::<String>());
    if length > TEXT {
        metadata["text_chars"] = json!(length);
        if let Some(field) = field {
            let mut args = Map::new();
            args.insert("id".into(), json!(full_id.text()));
            args.insert("field_path".into(), json!(field));
            args.insert("offset_chars".into(), json!(TEXT));
            lines.add(&format!(
                "continue: read_record_field id={} field_path={field} offset_chars={TEXT}",
                full_id.text()
            ));
            metadata["next"] = json!({"tool": "read_record_field", "args": args});
        }
    }
    let url = body.pointer("/links/self").and_then(Value::as_str).unwrap_or_default();
    let structured =
        json!({"id": full_id.text(), "title": title, "text": shown, "url": url, "metadata": metadata});
    (structured, lines.text())
}

fn window(id: Option<&RecordId>, body: Value, request_id: Option<String>) -> (Value, String) {
    let mut window = body.get("window").cloned().unwrap_or_default();
    let field = body.get("field").cloned().unwrap_or_default();
    for (from, to) in [("next_offset_chars", "next_cursor"), ("previous_offset_chars", "previous_cursor")] {
        let cursor = window.get(from).and_then(Value::as_u64).map(|offset| offset.to_string());
        window[to] = json!(cursor);
    }
    let record = id.map_or(Value::Null, |id| {
        json!({"id": id.text(), "connection_id": id.connection_id, "stream": id.stream, "record_id": id.record_id})
    });
    let mut first = format!(
        "{} {} {}..{} of {}",
        text(&record, "id"),
        text(&field, "path"),
        text(&window, "start_chars"),
        text(&window, "end_chars"),
        text(&window, "total_chars")
    );
    if let Some(next) = window["next_cursor"].as_str() {
        first.push_str(&format!(" next: offset_chars={next}"));
    }
    let mut lines = Lines::new(&first, 66 << 10);
    lines.add_text(window["text"].as_str().unwrap_or_default());
    (json!({"record": record, "field": field, "window": window, "request_id": request_id}), lines.text())
}

fn capabilities(body: Value) -> (Value, String) {
    let capability =
        body.pointer("/capabilities/client_event_subscriptions").filter(|one| one.is_object()).cloned();
    let supported = capability.is_some();
    let first = if supported { "change events are supported" } else { "change events are not supported" };
    (json!({"supported": supported, "capability": capability, "data": body}), first.to_owned())
}

fn event_tool(body: Value, request_id: Option<String>) -> (Value, String) {
    let body = if body.is_null() { json!({"deleted": true}) } else { body };
    let one = body.get("subscription").unwrap_or(&body);
    let first = match (
        one.get("subscription_id"),
        body.get("data").and_then(Value::as_array),
        body.get("event_id"),
    ) {
        (Some(id), ..) => format!("{} {}", plain(id), text(one, "status")),
        (_, Some(list), _) => {
            let states: Vec<String> = list
                .iter()
                .map(|one| format!("{} {}", text(one, "subscription_id"), text(one, "status")))
                .collect();
            format!("{} subscription(s) {}", list.len(), states.join("; "))
        }
        (_, _, Some(event)) => format!("queued {}", plain(event)),
        _ => "deleted".into(),
    };
    (json!({"data": body, "request_id": request_id}), Lines::new(&first, 1_024).text())
}
