//! `GET /v1/schema`.

use serde_json::{Value, json};

use crate::answer::{Answer, Outcome, Refusal};
use crate::catalogue::{STREAMS, Stream};
use crate::grant::Bearer;
use crate::query::Query;
use crate::server::{Profile, Shape, State};

pub async fn answer(state: &State, bearer: &Bearer, query: &Query) -> Outcome {
    query.only(&["view", "detail", "stream", "connection_id", "connector_id"], false)?;
    let wanted = query.get("stream");
    let connections = bearer.connections(query.get("connection_id"))?;
    let full =
        query.get("detail") == Some("full") || (query.get("view").is_none() && query.get("detail").is_none());
    if query.get("detail") == Some("full") {
        let Some(stream) = wanted else {
            let message = "schema detail \"full\" requires `stream`; call /v1/schema?view=compact first.";
            return Err(Refusal::bad(message).param("detail"));
        };
        if connections.len() > 1 && bearer.reaches(stream) {
            let list = connections.iter().map(|(id, name)| {
                json!({"connection_id": id, "connector_key": "gmail", "stream": stream, "display_name": name})
            });
            let message = format!(
                "schema detail \"full\" for stream \"{stream}\" matches {} sources; retry with connection_id.",
                connections.len()
            );
            let refusal = Refusal::new(409, "ambiguous_schema_detail", message).param("connection_id");
            return Err(refusal
                .with("available_connections", list.collect::<Vec<_>>().into())
                .with("retry_with", json!("connection_id")));
        }
    }
    let mut streams = Vec::new();
    for stream in STREAMS
        .iter()
        .filter(|stream| bearer.reaches(stream.name) && wanted.is_none_or(|name| name == stream.name))
    {
        streams.extend(rows(state, bearer, stream, &connections, full).await?);
    }
    Ok(Answer::ok(shaped(state.settings().1, bearer, streams, &connections, full)))
}

/// One row for a stream, or one per connection where they differ.
async fn rows(
    state: &State,
    bearer: &Bearer,
    stream: &Stream,
    connections: &[(String, String)],
    full: bool,
) -> Result<Vec<Value>, Refusal> {
    let mut expand: Vec<Value> = Vec::new();
    for (connection, _) in connections {
        expand.push(expandable(state, bearer, stream, connection).await?);
    }
    let differ = expand.iter().any(|one| *one != expand[0]);
    let shown = if differ { expand } else { expand.into_iter().take(1).collect() };
    Ok(shown.into_iter().map(|expand| row(state, bearer, stream, connections, expand, full)).collect())
}

/// What records of a stream can be expanded with, in a connection.
pub async fn expandable(
    state: &State,
    bearer: &Bearer,
    stream: &Stream,
    connection: &str,
) -> Result<Value, Refusal> {
    let sql = "SELECT expand_json FROM stream_caps WHERE stream = ? AND connection_id IN (?, '*') ORDER BY connection_id DESC";
    let set = state.store.rows(sql, &[stream.name, connection]).await?;
    if let Some(text) = set.first().and_then(|row| row[0].as_deref()) {
        return Ok(serde_json::from_str(text).unwrap_or_default());
    }
    if state.settings().0 == Profile::V01 && !bearer.is_owner() {
        return Ok(json!([]));
    }
    Ok(stream.relations.iter().map(crate::catalogue::Relation::shown).collect::<Vec<_>>().into())
}

fn row(
    state: &State,
    bearer: &Bearer,
    stream: &Stream,
    connections: &[(String, String)],
    expand: Value,
    full: bool,
) -> Value {
    let rich = state.settings().0 == Profile::Rich || bearer.is_owner();
    let seen: Vec<&(&str, &str)> =
        stream.fields.iter().filter(|(name, _)| bearer.sees(stream.name, name)).collect();
    let key = if rich { json!([stream.key]) } else { json!([]) };
    if full {
        let fields: serde_json::Map<String, Value> =
            seen.iter().map(|(name, _)| ((*name).to_owned(), in_full(stream, name, rich))).collect();
        let granted: Vec<Value> =
            connections.iter().map(|(id, name)| json!({"connection_id": id, "display_name": name})).collect();
        let ids: Vec<&String> = bearer.connections.iter().map(|(id, _)| id).collect();
        return json!({
            "expand_capabilities": expand, "field_capabilities": fields,
            "freshness": {"status": "stale", "captured_at": "2026-01-01T00:00:00.000Z"}, "name": stream.name,
            "object": "stream_metadata", "primary_key": key, "query": {}, "relationships": [], "schema": {}, "views": [],
            "instance_ids": ids, "granted_connections": granted,
        });
    }
    let flags = |name: &str, flags: &str| (name.to_owned(), json!(if rich { flags } else { "declared" }));
    let fields: serde_json::Map<String, Value> = seen.iter().map(|(name, text)| flags(name, text)).collect();
    let mut row = json!({"name": stream.name, "primary_key": key});
    if let Some(cursor) = stream.cursor.filter(|_| rich) {
        row["cursor_field"] = json!(cursor);
    }
    row["field_capabilities"] = fields.into();
    row["expand_capabilities"] = expand;
    row
}

fn in_full(stream: &Stream, field: &str, rich: bool) -> Value {
    let usable = |declared: bool| json!({"declared": declared && rich, "usable": declared && rich});
    let metrics = stream.choices(field, "a=");
    let metric = |name: &str| usable(metrics.contains(&name));
    json!({
        "aggregation": {
            "count_distinct": metric("count_distinct"), "group_by": metric("group_by"), "group_by_time": metric("group_by_time"),
            "max": metric("max"), "min": metric("min"), "sum": metric("sum"),
        },
        "granted": true, "lexical_search": usable(stream.has(field, "lex")), "schema": {},
        "semantic_search": usable(stream.has(field, "sem")),
    })
}

fn shaped(
    shape: Shape,
    bearer: &Bearer,
    streams: Vec<Value>,
    connections: &[(String, String)],
    full: bool,
) -> Value {
    let count = streams.len();
    let granted: Vec<Value> =
        connections.iter().map(|(id, name)| json!({"connection_id": id, "display_name": name})).collect();
    let nested = |streams: Vec<Value>| match streams.is_empty() {
        true => json!([]),
        false => json!([{
            "object": "connector", "source": {"id": "gmail", "kind": "connector"}, "stream_count": count, "streams": streams,
            "connector_key": "gmail", "connector_id": "gmail", "granted_connections": granted,
        }]),
    };
    let flat = matches!(shape, Shape::Flat | Shape::Wrapped);
    let mut inside = json!({"bearer": bearer.shown()});
    match flat {
        true => inside["streams"] = streams.into(),
        false => inside["connectors"] = nested(streams),
    }
    inside["object"] = json!("schema");
    inside["detail"] = json!(if full { "full" } else { "compact" });
    inside["connector_count"] = json!(usize::from(count > 0));
    inside["stream_count"] = json!(count);
    match shape {
        Shape::Nested | Shape::Flat => inside,
        Shape::Wrapped | Shape::WrappedNested => {
            json!({"object": "schema", "bearer": bearer.shown(), "data": inside})
        }
    }
}
