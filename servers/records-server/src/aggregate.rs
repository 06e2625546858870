//! `GET /v1/streams/{s}/aggregate`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::answer::{Answer, Outcome, Refusal};
use crate::catalogue::Stream;
use crate::grant::Bearer;
use crate::query::Query;
use crate::records::{checked_filters, matching, refuse_filter};
use crate::server::State;
use crate::store::Record;

const KNOWN: [&str; 10] = [
    "metric",
    "field",
    "group_by",
    "group_by_time",
    "granularity",
    "time_zone",
    "limit",
    "filter",
    "connection_id",
    "connector_id",
];
const METRICS: [&str; 5] = ["count", "sum", "min", "max", "count_distinct"];

pub async fn answer(state: &State, bearer: &Bearer, stream: &str, query: &Query) -> Outcome {
    let stream = bearer.stream(stream)?;
    query.only(&KNOWN, false)?;
    refuse_filter(state, bearer, query)?;
    let connections = bearer.connections(query.get("connection_id"))?;
    let several = connections.len() > 1;
    let metric = query.get("metric").filter(|metric| METRICS.contains(metric));
    let Some(metric) = metric else {
        return Err(Refusal::bad("metric must be one of count, sum, min, max, count_distinct"));
    };
    let (field, by, by_time) = (query.get("field"), query.get("group_by"), query.get("group_by_time"));
    check(bearer, stream, query, metric, several)?;
    let filters = checked_filters(stream, query)?;
    let mut rows = Vec::new();
    for (connection, _) in &connections {
        rows.extend(matching(state, stream, connection, &filters).await?);
    }
    let mut body = json!({
        "approximate": false, "field": field, "filtered_record_count": rows.len(), "granularity": query.get("granularity"),
        "group_by": by, "group_by_time": by_time, "metric": metric, "object": "aggregation", "stream": stream.name,
        "time_zone": by_time.map(|_| query.get("time_zone").unwrap_or("UTC")),
    });
    if by.is_none() && by_time.is_none() {
        body["value"] = value(metric, field.unwrap_or_default(), &rows);
        return Ok(Answer::ok(body));
    }
    let mut groups: BTreeMap<String, (Value, usize)> = BTreeMap::new();
    for row in &rows {
        let key = match by {
            Some(field) => row.data[field].clone(),
            None => json!(bucket(
                row.data[by_time.unwrap_or_default()].as_str().unwrap_or_default(),
                query.get("granularity").unwrap_or_default()
            )),
        };
        groups.entry(key.to_string()).or_insert((key, 0)).1 += 1;
    }
    let (limit, _) = query.limit(10, 100);
    let mut groups: Vec<(Value, usize)> = groups.into_values().collect();
    if by.is_some() {
        groups.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.to_string().cmp(&b.0.to_string())));
    }
    let other: usize = groups.iter().skip(limit).map(|(_, count)| count).sum();
    let shown: Vec<Value> =
        groups.iter().take(limit).map(|(key, count)| json!({"count": count, "key": key})).collect();
    body["groups"] = shown.into();
    body["limit"] = json!(limit);
    if !several && groups.len() > limit {
        body["other_count"] = json!(other);
    }
    Ok(Answer::ok(body))
}

fn check(
    bearer: &Bearer,
    stream: &Stream,
    query: &Query,
    metric: &str,
    several: bool,
) -> Result<(), Refusal> {
    let (field, by, by_time) = (query.get("field"), query.get("group_by"), query.get("group_by_time"));
    let bad = |message: String| Err(Refusal::bad(message));
    if metric != "count" && field.is_none() {
        return bad(format!("field is required for {metric}"));
    }
    if by.is_some() && by_time.is_some() {
        return bad("group_by and group_by_time cannot be combined; choose one grouping dimension".into());
    }
    if by_time.is_some() && query.get("granularity").is_none() {
        return bad("granularity is required when group_by_time is present".into());
    }
    if query.has("limit") && by.is_none() && by_time.is_none() {
        return bad("limit is only supported with group_by or group_by_time".into());
    }
    if metric == "count_distinct" && several {
        return bad(
            "count_distinct across multiple connections is not supported; scope with connection_id".into()
        );
    }
    let declared = |field: &str, what: &str| {
        if !bearer.sees(stream.name, field) {
            return Err(Refusal::new(403, "field_not_granted", format!("Fields not in grant: {field}")));
        }
        match stream.choices(field, "a=").contains(&what) {
            true => Ok(()),
            false => Err(Refusal::bad(format!("Aggregation {what} is not declared for '{field}'"))),
        }
    };
    if let Some(field) = field.filter(|_| metric != "count") {
        declared(field, metric)?;
    }
    if let Some(field) = by {
        declared(field, "group_by")?;
    }
    if let Some(field) = by_time {
        declared(field, "group_by_time")?;
    }
    Ok(())
}

fn value(metric: &str, field: &str, rows: &[Record]) -> Value {
    let values = || rows.iter().map(|row| &row.data[field]).filter(|value| !value.is_null());
    match metric {
        "count" => json!(rows.len()),
        "sum" => json!(values().filter_map(Value::as_i64).sum::<i64>()),
        "count_distinct" => {
            let mut all: Vec<String> = values().map(ToString::to_string).collect();
            all.sort();
            all.dedup();
            json!(all.len())
        }
        _ => {
            let key =
                |value: &&Value| (value.as_i64().unwrap_or(0), value.as_str().unwrap_or_default().to_owned());
            let found = if metric == "max" { values().max_by_key(key) } else { values().min_by_key(key) };
            found.cloned().unwrap_or(Value::Null)
        }
    }
}

/// The beginning of the calendar unit that a time falls into, as a date or a time.
fn bucket(time: &str, granularity: &str) -> String {
    let part = |end: usize| time.get(..end).unwrap_or(time).to_owned();
    match granularity {
        "year" => format!("{}-01-01", part(4)),
        "quarter" => {
            let month: u32 = time.get(5..7).and_then(|text| text.parse().ok()).unwrap_or(1);
            format!("{}-{:02}-01", part(4), (month - 1) / 3 * 3 + 1)
        }
        "month" => format!("{}-01", part(7)),
        "week" => match part(10).parse::<jiff::civil::Date>() {
            Ok(date) => {
                let back = i64::from(date.weekday().to_monday_zero_offset());
                date.checked_sub(jiff::Span::new().days(back)).unwrap_or(date).to_string()
            }
            Err(_) => part(10),
        },
        "day" => part(10),
        "hour" => format!("{}:00:00Z", part(13)),
        _ => format!("{}:00Z", part(16)),
    }
}
