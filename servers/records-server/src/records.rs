//! `GET /v1/streams/{s}/records` and one record of it.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde_json::{Map, Value, json};

use crate::answer::{Answer, Outcome, Refusal};
use crate::catalogue::{Relation, Stream};
use crate::grant::Bearer;
use crate::query::{Filter, Query};
use crate::server::{Profile, State};
use crate::store::Record;

const KNOWN: [&str; 14] = [
    "limit",
    "cursor",
    "order",
    "sort",
    "count",
    "fields",
    "view",
    "filter",
    "expand",
    "expand_limit",
    "changes_since",
    "connection_id",
    "connector_id",
    "page",
];

pub async fn page(state: &State, bearer: &Bearer, stream: &str, query: &Query) -> Outcome {
    let stream = bearer.stream(stream)?;
    query.only(&KNOWN[..13], false)?;
    let connections = bearer.connections(query.get("connection_id"))?;
    let several = connections.len() > 1;
    if query.has("view") && query.has("fields") {
        return Err(Refusal::bad("view and fields are mutually exclusive"));
    }
    refuse_rich(state, bearer, query)?;
    let fields = projection(bearer, stream, query)?;
    let expand = expansion(state, bearer, stream, query, &connections).await?;
    let filters = checked_filters(stream, query)?;
    let descending = order(stream, query)?;
    let (limit, clamped) = query.limit(25, 100);
    let mut warnings = Vec::new();
    if let Some(asked) = clamped {
        let message = format!(
            "Requested limit={asked} exceeds the maximum page size of 100; returned 100 records per page."
        );
        warnings.push(json!({"code": "limit_clamped", "detail": {"max_limit": 100, "requested_limit": asked}, "message": message, "param": "limit"}));
    }
    if let Some(since) = query.get("changes_since") {
        if several {
            let message = "`changes_since` is not supported across multiple connections. Retry with `connection_id` to bind the cursor to a single connection.";
            let refusal = Refusal::new(400, "invalid_argument", message).param("changes_since");
            return Err(refusal
                .with("available_connections", bearer.available())
                .with("retry_with", json!("connection_id")));
        }
        return changes(state, stream, &connections[0], since, &fields, limit).await;
    }
    let after = query.get("cursor").map(read_cursor).transpose()?;
    let (mut data, mut has_more, mut total, mut next) = (Vec::new(), false, 0, None);
    for (connection, name) in &connections {
        let mut rows = matching(state, stream, connection, &filters).await?;
        total += rows.len();
        sort(&mut rows, descending);
        if let Some((value, key)) = &after {
            let at = |record: &Record| (record.cursor_value.clone().unwrap_or_default(), record.id.clone());
            let past = (value.clone(), key.clone());
            rows.retain(|record| if descending { at(record) < past } else { at(record) > past });
        }
        let more = rows.len() > limit;
        rows.truncate(limit);
        has_more |= more;
        if more
            && !several
            && let Some(last) = rows.last()
        {
            next = Some(page_cursor(last, descending));
        }
        for record in rows {
            let mut shown = shown(&record, name, &fields);
            expanded(state, &mut shown, &record, name, &expand).await?;
            data.push(shown);
        }
    }
    if several && has_more {
        let message = "has_more=true and next_cursor is not emitted under multi-connection fan-in. Retry with `connection_id` to page a single connection.";
        warnings.push(json!({"code": "partial_results", "message": message, "param": "connection_id"}));
    }
    let count = match query.get("count") {
        Some("exact" | "estimated") => json!({"kind": "exact", "value": total}),
        _ => json!({"kind": "none"}),
    };
    let mut body = json!({"data": data, "has_more": has_more, "object": "list"});
    if let Some(next) = &next {
        body["next_cursor"] = json!(next);
    }
    body["url"] = json!(format!("/v1/streams/{}/records", stream.name));
    body["meta"] = json!({"count": count, "warnings": warnings});
    body["__next"] = json!(next);
    Ok(Answer::ok(body))
}

pub async fn one(state: &State, bearer: &Bearer, stream: &str, id: &str, query: &Query) -> Outcome {
    let stream = bearer.stream(stream)?;
    query.only(&["fields", "expand", "expand_limit", "connection_id", "connector_id"], false)?;
    let connections = bearer.connections(query.get("connection_id"))?;
    refuse_rich(state, bearer, query)?;
    let fields = projection(bearer, stream, query)?;
    let expand = expansion(state, bearer, stream, query, &connections).await?;
    let (record, name) = find(state, bearer, stream, id, &connections).await?;
    let mut body = shown(&record, &name, &fields);
    expanded(state, &mut body, &record, &name, &expand).await?;
    body["connector_key"] = json!("gmail");
    body["record_json_bytes"] = json!(record.data.to_string().len());
    Ok(Answer::ok(body))
}

/// The one record of that id, or which connections have one.
pub async fn find(
    state: &State,
    bearer: &Bearer,
    stream: &Stream,
    id: &str,
    connections: &[(String, String)],
) -> Result<(Record, String), Refusal> {
    let mut found = Vec::new();
    for (connection, name) in connections {
        if let Some(record) = state.store.record(connection, stream.name, id).await? {
            found.push((record, name.clone()));
        }
    }
    match found.len() {
        0 => Err(Refusal::new(404, "not_found", "Record not found")),
        1 => Ok(found.remove(0)),
        _ => {
            let message = format!(
                "Record '{id}' is present under more than one connection. Retry with `connection_id`."
            );
            let refusal = Refusal::new(409, "ambiguous_connection", message);
            Err(refusal
                .with("available_connections", bearer.available())
                .with("retry_with", json!("connection_id")))
        }
    }
}

/// What client tokens may not do in the plain profile.
fn refuse_rich(state: &State, bearer: &Bearer, query: &Query) -> Result<(), Refusal> {
    if state.settings().0 == Profile::Rich || bearer.is_owner() {
        return Ok(());
    }
    refuse_filter(state, bearer, query)?;
    if query.has("expand") {
        return Err(
            Refusal::bad("expand[] is not supported for client-token reads in PDPP v0.1").param("expand")
        );
    }
    if query.has("expand_limit") {
        return Err(Refusal::bad("expand_limit[...] is not supported for client-token reads in PDPP v0.1")
            .param("expand_limit"));
    }
    if query.has("view") {
        return Err(Refusal::bad(
            "Client record reads must use explicit fields; views are resolved when the grant is issued",
        ));
    }
    Ok(())
}

pub fn refuse_filter(state: &State, bearer: &Bearer, query: &Query) -> Result<(), Refusal> {
    let plain = state.settings().0 == Profile::V01 && !bearer.is_owner();
    // Where both stand, expansion is what is refused first.
    if plain && query.has("filter") && !query.has("expand") {
        return Err(
            Refusal::bad("filter[...] is not supported for client-token reads in PDPP v0.1").param("filter")
        );
    }
    Ok(())
}

/// The fields that are shown.
fn projection(bearer: &Bearer, stream: &Stream, query: &Query) -> Result<Vec<String>, Refusal> {
    let asked = query.all("fields", true);
    if let Some(unknown) = asked.iter().find(|field| stream.flags(field).is_none()) {
        return Err(Refusal::new(400, "unknown_field", format!("Unknown field: {unknown}")));
    }
    let hidden: Vec<&str> =
        asked.iter().filter(|field| !bearer.sees(stream.name, field)).map(String::as_str).collect();
    if !hidden.is_empty() {
        return Err(Refusal::new(
            403,
            "field_not_granted",
            format!("Fields not in grant: {}", hidden.join(", ")),
        ));
    }
    if !asked.is_empty() {
        return Ok(asked);
    }
    if let Some(view) = query.get("view") {
        let found = stream.views.iter().find(|(name, _)| *name == view);
        let (_, fields) = found.ok_or_else(|| Refusal::bad(format!("Unknown view: {view}")))?;
        return Ok(fields.iter().map(|field| (*field).to_owned()).collect());
    }
    let seen = stream.fields.iter().map(|(name, _)| *name).filter(|name| bearer.sees(stream.name, name));
    Ok(seen.map(ToOwned::to_owned).collect())
}

/// Relations to expand, with the limit of each.
async fn expansion(
    state: &State,
    bearer: &Bearer,
    stream: &'static Stream,
    query: &Query,
    connections: &[(String, String)],
) -> Result<Vec<(&'static Relation, usize)>, Refusal> {
    let invalid = |message: String| Refusal::new(400, "invalid_expand", message);
    if query.get("expand_limit").is_some() {
        return Err(invalid("expand_limit must use expand_limit[relation]=N".into()));
    }
    let (asked, limits) = (query.all("expand", false), query.keyed("expand_limit"));
    if let Some((relation, _)) = limits.iter().find(|(relation, _)| !asked.contains(relation)) {
        let _ = relation;
        return Err(invalid("expand_limit requires a matching expand relation".into()));
    }
    let mut chosen = Vec::new();
    for name in &asked {
        let mut offered = false;
        for (connection, _) in connections {
            let capabilities = crate::schema::expandable(state, bearer, stream, connection).await?;
            offered |= capabilities
                .as_array()
                .is_some_and(|list| list.iter().any(|one| one["name"] == name.as_str()));
        }
        let relation = stream.relations.iter().find(|relation| relation.name == name);
        let Some(relation) = relation.filter(|_| offered) else {
            return Err(invalid(format!("Unsupported expand relation '{name}' on '{}'", stream.name)));
        };
        let limit = match limits.iter().find(|(limited, _)| limited == name) {
            None => relation.default_limit,
            Some(_) if !relation.many => {
                return Err(invalid(format!(
                    "expand_limit is only valid for has_many relations; '{name}' is has_one"
                )));
            }
            Some((_, text)) => match text.parse::<usize>() {
                Ok(limit) if limit > relation.max_limit => {
                    return Err(invalid(format!(
                        "expand_limit[{name}] exceeds max_limit {}",
                        relation.max_limit
                    )));
                }
                Ok(limit) if limit > 0 => limit,
                _ => return Err(invalid(format!("expand_limit[{name}] must be a positive integer"))),
            },
        };
        chosen.push((relation, limit));
    }
    Ok(chosen)
}

/// Filters that the stream's fields allow.
pub fn checked_filters(stream: &Stream, query: &Query) -> Result<Vec<Filter>, Refusal> {
    let filters = query.filters()?;
    for (field, op, _) in &filters {
        let Some(_) = stream.flags(field) else {
            return Err(Refusal::new(400, "unknown_field", format!("Unknown field: {field}")));
        };
        match op {
            None if !stream.has(field, "eq") => {
                let message = format!(
                    "Exact filters are supported only on top-level scalar fields; '{field}' is not scalar"
                );
                return Err(Refusal::bad(message));
            }
            None => {}
            Some(op) => {
                let ranges = stream.choices(field, "r=");
                if ranges.is_empty() {
                    return Err(Refusal::bad(format!("Range filters are not supported on '{field}'")));
                }
                if !ranges.contains(&op.as_str()) {
                    return Err(Refusal::bad(format!("Unsupported range operator '{op}' on '{field}'")));
                }
            }
        }
    }
    Ok(filters)
}

/// Records of a connection that pass all filters.
pub async fn matching(
    state: &State,
    stream: &Stream,
    connection: &str,
    filters: &[Filter],
) -> Result<Vec<Record>, Refusal> {
    let mut rows = state.store.records(connection, stream.name).await?;
    rows.retain(|record| {
        filters.iter().all(|(field, op, value)| passes(&record.data[field], op.as_deref(), value))
    });
    Ok(rows)
}

fn passes(found: &Value, op: Option<&str>, wanted: &str) -> bool {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let order = match found {
        Value::Number(number) => match (number.as_f64(), wanted.parse::<f64>()) {
            (Some(found), Ok(wanted)) => found.partial_cmp(&wanted),
            _ => None,
        },
        Value::String(text) => Some(text.as_str().cmp(wanted)),
        Value::Bool(flag) => (flag.to_string() == wanted).then_some(Equal),
        _ => None,
    };
    match (op, order) {
        (_, None) => false,
        (None, Some(order)) => order == Equal,
        (Some("gte"), Some(order)) => order != Less,
        (Some("gt"), Some(order)) => order == Greater,
        (Some("lte"), Some(order)) => order != Greater,
        (Some(_), Some(order)) => order == Less,
    }
}

fn order(stream: &Stream, query: &Query) -> Result<bool, Refusal> {
    if let Some(sort) = query.get("sort") {
        let field = sort.trim_start_matches('-');
        if Some(field) != stream.cursor {
            let message = format!(
                "Sort field '{field}' is not advertised as sortable; check /v1/schema for the canonical sort vocabulary."
            );
            return Err(Refusal::new(400, "invalid_sort", message).param("sort"));
        }
        return Ok(sort.starts_with('-'));
    }
    Ok(query.get("order") != Some("asc"))
}

fn sort(rows: &mut [Record], descending: bool) {
    rows.sort_by(|a, b| {
        let order = (&a.cursor_value, &a.id).cmp(&(&b.cursor_value, &b.id));
        if descending { order.reverse() } else { order }
    });
}

/// A record with the fields that are shown.
pub fn shown(record: &Record, name: &str, fields: &[String]) -> Value {
    let mut data = Map::new();
    for (field, value) in record.data.as_object().into_iter().flatten() {
        if fields.contains(field) {
            data.insert(field.clone(), value.clone());
        }
    }
    json!({
        "data": data, "emitted_at": record.emitted_at, "id": record.id, "object": "record", "stream": record.stream,
        "connection_id": record.connection_id, "connector_instance_id": record.connection_id, "display_name": name,
    })
}

async fn expanded(
    state: &State,
    shown_record: &mut Value,
    record: &Record,
    name: &str,
    expand: &[(&'static Relation, usize)],
) -> Result<(), Refusal> {
    for (relation, limit) in expand {
        let rows = state.store.records(&record.connection_id, relation.stream).await?;
        let all: Vec<String> = crate::catalogue::stream(relation.stream)
            .map(|stream| stream.fields.iter().map(|(field, _)| (*field).to_owned()).collect())
            .unwrap_or_default();
        let own: Vec<Value> = (rows.iter())
            .filter(|row| row.data[relation.foreign_key] == record.id.as_str())
            .map(|row| shown(row, name, &all))
            .collect();
        shown_record["expanded"][relation.name] = if relation.many {
            let has_more = own.len() > *limit;
            json!({"data": own.into_iter().take(*limit).collect::<Vec<_>>(), "has_more": has_more, "object": "list"})
        } else {
            own.into_iter().next().unwrap_or(Value::Null)
        };
    }
    Ok(())
}

async fn changes(
    state: &State,
    stream: &Stream,
    (connection, name): &(String, String),
    since: &str,
    fields: &[String],
    limit: usize,
) -> Outcome {
    let after = if since == "beginning" { 0 } else { read_bookmark(since)? };
    let mut rows = state.store.records(connection, stream.name).await?;
    rows.sort_by_key(|record| record.version);
    let newest = rows.last().map_or(after, |record| record.version);
    rows.retain(|record| record.version > after);
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    let reached = if has_more { rows.last().map_or(newest, |record| record.version) } else { newest };
    let data: Vec<Value> = rows.iter().map(|record| shown(record, name, fields)).collect();
    Ok(Answer::ok(json!({
        "data": data, "has_more": has_more, "object": "list", "next_changes_since": bookmark(reached),
        "url": format!("/v1/streams/{}/records", stream.name), "__next": null,
    })))
}

pub fn bookmark(version: i64) -> String {
    STANDARD_NO_PAD.encode(json!({"kind": "changes_since", "version": version}).to_string())
}

fn read_bookmark(text: &str) -> Result<i64, Refusal> {
    let malformed = || {
        Refusal::new(
            400,
            "invalid_cursor",
            "Malformed changes_since cursor; pass `beginning` to bootstrap or the `next_changes_since` value returned by a prior response",
        )
    };
    let value = opened(text).ok_or_else(malformed)?;
    value["version"].as_i64().filter(|_| value["kind"] == "changes_since").ok_or_else(malformed)
}

fn page_cursor(last: &Record, descending: bool) -> String {
    let order = if descending { "DESC" } else { "ASC" };
    let cursor = json!({
        "cursor_value": last.cursor_value, "kind": "page", "order": order, "primary_key": [last.id], "session": "records",
    });
    STANDARD.encode(cursor.to_string())
}

fn read_cursor(text: &str) -> Result<(String, String), Refusal> {
    let malformed = || Refusal::new(400, "invalid_cursor", "Malformed cursor");
    let value = opened(text).filter(|value| value["kind"] == "page").ok_or_else(malformed)?;
    let key = value["primary_key"][0].as_str().ok_or_else(malformed)?.to_owned();
    Ok((value["cursor_value"].as_str().unwrap_or_default().to_owned(), key))
}

fn opened(text: &str) -> Option<Value> {
    let plain = text.trim_end_matches('=');
    let bytes = STANDARD_NO_PAD.decode(plain).or_else(|_| URL_SAFE_NO_PAD.decode(plain)).ok()?;
    serde_json::from_slice(&bytes).ok()
}
