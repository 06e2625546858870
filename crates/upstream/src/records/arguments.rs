//! Checked arguments as one HTTP request (REC-30, REC-31). Whatever is refused here costs no request.

use serde_json::{Map, Value, json};
use url::Url;

use super::expand::Subject;
use super::http::Request;
use super::refusal::Refusal;
use super::{EventsMode, RecordsOptions};

/// Names of streams, records and connections are no longer.
const SEGMENT: usize = 256;

/// A call that may be made.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) request: Request,
    /// What the gate is to look at, if it is triggered.
    pub(super) gated: Option<Subject>,
    /// The record that is meant, where one is.
    pub(super) record: Option<RecordId>,
}

/// `[connection_id/]stream:record_id`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RecordId {
    pub(super) connection_id: Option<String>,
    pub(super) stream: String,
    pub(super) record_id: String,
}

impl RecordId {
    fn parse(text: &str) -> Result<Self, Refusal> {
        let bad = || Refusal::argument("invalid_id", "id", "an id is [connection_id/]stream:record_id");
        let (place, record_id) = text.split_once(':').ok_or_else(bad)?;
        let (connection_id, stream) = match place.split_once('/') {
            Some((connection, stream)) => (Some(connection), stream),
            None => (None, place),
        };
        for part in [Some(stream), Some(record_id), connection_id].into_iter().flatten() {
            if !is_segment(part) {
                return Err(bad());
            }
        }
        let connection_id = connection_id.map(ToOwned::to_owned);
        Ok(Self { connection_id, stream: stream.to_owned(), record_id: record_id.to_owned() })
    }

    /// The connection that an argument names besides; both may not differ.
    fn beside(mut self, argument: Option<&str>) -> Result<Self, Refusal> {
        if let (Some(own), Some(argument)) = (&self.connection_id, argument)
            && own != argument
        {
            let message = "the id names one connection and connection_id another";
            return Err(Refusal::argument("conflicting_connection_id", "connection_id", message));
        }
        if self.connection_id.is_none() {
            self.connection_id = argument.map(ToOwned::to_owned);
        }
        Ok(self)
    }

    /// Self-contained, where the connection is known.
    pub(super) fn text(&self) -> String {
        match &self.connection_id {
            Some(connection) => format!("{connection}/{}:{}", self.stream, self.record_id),
            None => format!("{}:{}", self.stream, self.record_id),
        }
    }
}

fn is_segment(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= SEGMENT
        && !matches!(text, "." | "..")
        && !text.chars().any(|c| c == '/' || c == '\\' || c.is_control())
}

/// The arguments of one call.
struct Given<'a>(&'a Map<String, Value>);

impl<'a> Given<'a> {
    fn text(&self, key: &str) -> Option<&'a str> {
        self.0.get(key).and_then(Value::as_str)
    }

    fn connection(&self) -> Result<Option<&'a str>, Refusal> {
        match self.text("connection_id") {
            Some(text) if !is_segment(text) => {
                Err(Refusal::argument("invalid_connection", "connection_id", "not a connection's id"))
            }
            connection => Ok(connection),
        }
    }

    fn stream(&self) -> Result<&'a str, Refusal> {
        let stream = self.text("stream").unwrap_or_default();
        if is_segment(stream) {
            Ok(stream)
        } else {
            Err(Refusal::argument("invalid_stream", "stream", "not a stream's name"))
        }
    }

    /// A scalar, as it stands in a query.
    fn plain(&self, key: &str, query: &mut Vec<(String, String)>) {
        if let Some(text) = self.0.get(key).and_then(scalar) {
            query.push((key.to_owned(), text));
        }
    }

    fn list(&self, key: &str, query: &mut Vec<(String, String)>) {
        for item in self.0.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(scalar) {
            query.push((key.to_owned(), item));
        }
    }

    /// `filter[f]=v` and `filter[f][op]=v`; never a bare `filter=`.
    fn filter(&self, query: &mut Vec<(String, String)>) -> Result<(), Refusal> {
        let bad = |message: &str| Refusal::argument("invalid_filter", "filter", message);
        let Some(filter) = self.0.get("filter") else { return Ok(()) };
        let fields = filter.as_object().filter(|fields| !fields.is_empty());
        let fields = fields.ok_or_else(|| bad("a filter names at least one field"))?;
        for (field, value) in fields {
            if field.is_empty() || field.contains(['[', ']']) {
                return Err(bad("a field's name has no brackets"));
            }
            match value {
                Value::Object(ranges) if ranges.is_empty() => {
                    return Err(bad("a range has at least one bound"));
                }
                Value::Object(ranges) => {
                    for (op, bound) in ranges {
                        if !matches!(op.as_str(), "gte" | "gt" | "lte" | "lt") {
                            return Err(bad("a range has gte, gt, lte and lt"));
                        }
                        let bound = scalar(bound)
                            .ok_or_else(|| bad("a bound is a string, a number or a truth value"))?;
                        query.push((format!("filter[{field}][{op}]"), bound));
                    }
                }
                value => {
                    let value =
                        scalar(value).ok_or_else(|| bad("a value is a string, a number or a truth value"))?;
                    query.push((format!("filter[{field}]"), value));
                }
            }
        }
        Ok(())
    }

    fn expansion(&self, query: &mut Vec<(String, String)>) -> Result<bool, Refusal> {
        self.list("expand", query);
        if let Some(limits) = self.0.get("expand_limit").and_then(Value::as_object) {
            if limits.is_empty() {
                return Err(Refusal::argument("invalid_expand", "expand_limit", "names no relation"));
            }
            for (relation, limit) in limits {
                let limit = scalar(limit).unwrap_or_default();
                query.push((format!("expand_limit[{relation}]"), limit));
            }
        }
        Ok(query.iter().any(|(key, _)| key.starts_with("expand")))
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    }
}

impl Prepared {
    pub(super) fn new(tool: &str, arguments: &Value, options: &RecordsOptions) -> Result<Self, Refusal> {
        let nothing = Map::new();
        let given = Given(arguments.as_object().unwrap_or(&nothing));
        match tool {
            "schema" => schema(&given),
            "query_records" => query_records(&given),
            "aggregate" => aggregate(&given),
            "search" => search(&given),
            "fetch" => fetch(&given),
            "read_record_field" => read_record_field(&given),
            _ => events(tool, &given, options),
        }
    }

    fn of(request: Request) -> Self {
        Self { request, gated: None, record: None }
    }
}

fn schema(given: &Given<'_>) -> Result<Prepared, Refusal> {
    let mut request = Request::get(&["v1", "schema"]);
    match given.text("detail") {
        Some("full") => request.query.push(("detail".into(), "full".into())),
        _ => request.query.push(("view".into(), "compact".into())),
    }
    if given.text("stream").is_some() {
        request.query.push(("stream".into(), given.stream()?.to_owned()));
    }
    given.connection()?;
    given.plain("connection_id", &mut request.query);
    Ok(Prepared::of(request))
}

fn query_records(given: &Given<'_>) -> Result<Prepared, Refusal> {
    let (stream, connection) = (given.stream()?, given.connection()?);
    let mut request = Request::get(&["v1", "streams", stream, "records"]);
    for key in ["limit", "cursor", "sort", "order", "count"] {
        given.plain(key, &mut request.query);
    }
    given.filter(&mut request.query)?;
    given.list("fields", &mut request.query);
    given.plain("view", &mut request.query);
    let expands = given.expansion(&mut request.query)?;
    given.plain("changes_since", &mut request.query);
    given.plain("connection_id", &mut request.query);
    let subject = Subject { stream: stream.to_owned(), connection_id: connection.map(ToOwned::to_owned) };
    Ok(Prepared { gated: expands.then_some(subject), ..Prepared::of(request) })
}

fn aggregate(given: &Given<'_>) -> Result<Prepared, Refusal> {
    let stream = given.stream()?;
    given.connection()?;
    let mut request = Request::get(&["v1", "streams", stream, "aggregate"]);
    for key in ["metric", "field", "group_by", "group_by_time", "granularity", "time_zone", "limit"] {
        given.plain(key, &mut request.query);
    }
    given.filter(&mut request.query)?;
    given.plain("connection_id", &mut request.query);
    Ok(Prepared::of(request))
}

fn search(given: &Given<'_>) -> Result<Prepared, Refusal> {
    given.connection()?;
    let mut request = match given.text("mode") {
        Some(mode @ ("semantic" | "hybrid")) => Request::get(&["v1", "search", mode]),
        _ => Request::get(&["v1", "search"]),
    };
    given.plain("q", &mut request.query);
    given.list("streams", &mut request.query);
    for key in ["limit", "cursor"] {
        given.plain(key, &mut request.query);
    }
    given.filter(&mut request.query)?;
    given.plain("connection_id", &mut request.query);
    Ok(Prepared::of(request))
}

fn fetch(given: &Given<'_>) -> Result<Prepared, Refusal> {
    let id = RecordId::parse(given.text("id").unwrap_or_default())?.beside(given.connection()?)?;
    let mut request = Request::get(&["v1", "streams", &id.stream, "records", &id.record_id]);
    given.list("fields", &mut request.query);
    let expands = given.expansion(&mut request.query)?;
    if let Some(connection) = &id.connection_id {
        request.query.push(("connection_id".into(), connection.clone()));
    }
    let subject = Subject { stream: id.stream.clone(), connection_id: id.connection_id.clone() };
    Ok(Prepared { gated: expands.then_some(subject), record: Some(id), request })
}

fn read_record_field(given: &Given<'_>) -> Result<Prepared, Refusal> {
    let bad = |param: &str, message: &str| Refusal::argument("invalid_field_window_selector", param, message);
    let id = match (given.text("id"), given.text("stream"), given.text("record_id")) {
        (Some(id), None, None) => RecordId::parse(id)?.beside(given.connection()?)?,
        (None, Some(_), Some(record)) => {
            let connection = given
                .connection()?
                .ok_or_else(|| bad("connection_id", "give id, or connection_id, stream and record_id"))?;
            if !is_segment(record) {
                return Err(Refusal::argument("invalid_id", "record_id", "not a record's id"));
            }
            RecordId {
                connection_id: Some(connection.to_owned()),
                stream: given.stream()?.to_owned(),
                record_id: record.to_owned(),
            }
        }
        _ => return Err(bad("id", "give id, or connection_id, stream and record_id")),
    };
    let has = |key: &str| given.0.contains_key(key);
    if [has("cursor"), has("offset_chars"), has("q")].iter().filter(|there| **there).count() > 1 {
        return Err(bad("cursor", "give at most one of cursor, offset_chars and q"));
    }
    if (has("before_chars") || has("after_chars")) && !has("q") {
        return Err(bad("q", "before_chars and after_chars go with q"));
    }
    let mut request = Request::get(&["v1", "streams", &id.stream, "records", &id.record_id, "field-window"]);
    request.query.push(("field".into(), given.text("field_path").unwrap_or_default().to_owned()));
    if let Some(cursor) = given.text("cursor") {
        if cursor.is_empty() || !cursor.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(bad("cursor", "a cursor is a number"));
        }
        request.query.push(("offset_chars".into(), cursor.to_owned()));
    }
    for key in ["offset_chars", "limit_chars", "q", "before_chars", "after_chars"] {
        given.plain(key, &mut request.query);
    }
    if let Some(connection) = &id.connection_id {
        request.query.push(("connection_id".into(), connection.clone()));
    }
    Ok(Prepared { record: Some(id), ..Prepared::of(request) })
}

fn events(tool: &str, given: &Given<'_>, options: &RecordsOptions) -> Result<Prepared, Refusal> {
    if tool == "discover_event_subscription_capabilities" {
        return Ok(Prepared::of(Request::get(&[".well-known", "oauth-protected-resource"])));
    }
    if options.events == EventsMode::Off {
        return Err(Refusal::argument("events_off", "subscription_id", "change events are turned off here"));
    }
    let base = ["v1", "event-subscriptions"];
    let subscription = || {
        let id = given.text("subscription_id").unwrap_or_default();
        if is_segment(id) {
            Ok(id)
        } else {
            Err(Refusal::argument("invalid_id", "subscription_id", "not a subscription's id"))
        }
    };
    let request = match tool {
        "create_event_subscription" => {
            let callback = match (options.events, given.text("callback_url")) {
                // Filled in once there is an address to deliver to.
                (EventsMode::Gateway, None) => "",
                (EventsMode::Gateway, Some(_)) => {
                    let message = "events are received by the gateway here; leave callback_url out";
                    return Err(Refusal::argument("callback_not_allowed", "callback_url", message));
                }
                (_, callback) => allowed_callback(callback, options)?,
            };
            let mut body = json!({"callback_url": callback});
            if let Some(streams) = given
                .0
                .get("streams")
                .filter(|streams| streams.as_array().is_some_and(|list| !list.is_empty()))
            {
                body["filters"] = json!({"streams": streams});
            }
            Request { method: "POST", body: Some(body), ..Request::get(&base) }
        }
        "list_event_subscriptions" => Request::get(&base),
        "get_event_subscription" => Request::get(&[base[0], base[1], subscription()?]),
        "delete_event_subscription" => {
            Request { method: "DELETE", ..Request::get(&[base[0], base[1], subscription()?]) }
        }
        "update_event_subscription" => {
            let mut body = Map::new();
            for key in ["enabled", "rotate_secret"] {
                body.extend(given.0.get(key).map(|value| (key.to_owned(), value.clone())));
            }
            let request = Request::get(&[base[0], base[1], subscription()?]);
            Request { method: "PATCH", body: Some(body.into()), ..request }
        }
        "send_test_event" => {
            let request = Request::get(&[base[0], base[1], subscription()?, "test-event"]);
            Request { method: "POST", body: Some(json!({})), ..request }
        }
        _ => return Err(Refusal::internal("there is no such tool")),
    };
    Ok(Prepared::of(request))
}

/// A receiver is a way out for data: only where the operator said (REC-74).
fn allowed_callback<'c>(callback: Option<&'c str>, options: &RecordsOptions) -> Result<&'c str, Refusal> {
    let refused = |code, message: &str| Err(Refusal::argument(code, "callback_url", message));
    let Some(text) = callback else {
        return refused("callback_required", "name a receiver that the operator allows");
    };
    let not_allowed = "not below a receiver that the operator allows (`callback_allow`)";
    let Ok(url) = Url::parse(text) else { return refused("callback_not_allowed", "not a URL") };
    let loopback = matches!(url.host(), Some(url::Host::Ipv4(ip)) if ip.is_loopback())
        || matches!(url.host(), Some(url::Host::Ipv6(ip)) if ip.is_loopback())
        || url.host_str() == Some("localhost");
    let plain = text.len() <= 2_048
        && (url.scheme() == "https" || (url.scheme() == "http" && loopback))
        && url.username().is_empty()
        && url.password().is_none()
        && !text.contains(['\\', '@'])
        && !text.split(['/', '?']).any(|part| matches!(part, ".." | "."))
        && !text.to_ascii_lowercase().contains("%2e");
    if !plain {
        return refused("callback_not_allowed", not_allowed);
    }
    let below = |allowed: &String| {
        Url::parse(allowed).is_ok_and(|allowed| {
            let (wanted, found): (Vec<_>, Vec<_>) = (
                allowed.path_segments().into_iter().flatten().filter(|part| !part.is_empty()).collect(),
                url.path_segments().into_iter().flatten().collect(),
            );
            allowed.scheme() == url.scheme()
                && allowed.host() == url.host()
                && allowed.port_or_known_default() == url.port_or_known_default()
                && found.len() >= wanted.len()
                && wanted.iter().zip(&found).all(|(a, b)| a == b)
        })
    };
    if options.callback_allow.iter().any(below) {
        Ok(text)
    } else {
        refused("callback_not_allowed", not_allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(tool: &str, arguments: Value) -> &'static str {
        Prepared::new(tool, &arguments, &RecordsOptions::default()).unwrap_err().code
    }

    fn target(tool: &str, arguments: Value) -> String {
        Prepared::new(tool, &arguments, &RecordsOptions::default()).unwrap().request.target()
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_its_own_code() {
        // REC-30, T-REC-4
        for stream in ["", ".", "..", "../x", "a/b", "a\\b", "a\nb"] {
            assert_eq!(code("query_records", json!({"stream": stream})), "invalid_stream", "{stream:?}");
        }
        assert_eq!(
            code("query_records", json!({"stream": "s", "connection_id": "a/b"})),
            "invalid_connection"
        );
        for id in ["nocolon", "a/b/c:d", ":x", "s:", "..:x"] {
            assert_eq!(code("fetch", json!({"id": id})), "invalid_id", "{id}");
        }
        assert_eq!(code("fetch", json!({"id": "a/s:x", "connection_id": "b"})), "conflicting_connection_id");
        for filter in [
            json!({}),
            json!({"f": {}}),
            json!({"a[b": 1}),
            json!({"a": {"foo": 1}}),
            json!({"a": [1]}),
            json!({"a": null}),
        ] {
            assert_eq!(
                code("query_records", json!({"stream": "s", "filter": filter})),
                "invalid_filter",
                "{filter}"
            );
        }
        assert_eq!(code("query_records", json!({"stream": "s", "expand_limit": {}})), "invalid_expand");
        for selector in [
            json!({"id": "s:x", "field_path": "f", "q": "a", "cursor": "1"}),
            json!({"id": "s:x", "field_path": "f", "before_chars": 1}),
            json!({"id": "s:x", "field_path": "f", "cursor": "1a"}),
            json!({"stream": "s", "record_id": "x", "field_path": "f"}),
            json!({"field_path": "f"}),
        ] {
            assert_eq!(
                code("read_record_field", selector.clone()),
                "invalid_field_window_selector",
                "{selector}"
            );
        }
    }

    #[test]
    fn filters_become_query_pairs_and_names_stay_names() {
        // REC-31, REC-66, T-REC-5
        let arguments =
            json!({"stream": "%2e%2e", "filter": {"a": true, "b": {"gte": 1.5, "lt": "x"}}, "expand": []});
        assert_eq!(
            target("query_records", arguments.clone()),
            "/v1/streams/%252e%252e/records?filter%5Ba%5D=true&filter%5Bb%5D%5Bgte%5D=1.5&filter%5Bb%5D%5Blt%5D=x"
        );
        let prepared = Prepared::new("query_records", &arguments, &RecordsOptions::default()).unwrap();
        assert!(prepared.gated.is_none());
        assert_eq!(
            target("fetch", json!({"id": "cin/s:a:b", "fields": ["x", "y"]})),
            "/v1/streams/s/records/a%3Ab?fields=x&fields=y&connection_id=cin"
        );
        assert_eq!(target("search", json!({"q": "a b", "mode": "hybrid"})), "/v1/search/hybrid?q=a%20b");
        assert_eq!(target("schema", json!({})), "/v1/schema?view=compact");
    }

    #[test]
    fn deliveries_go_only_where_the_operator_said() {
        // REC-74, T-REC-23
        let options = RecordsOptions {
            callback_allow: vec!["https://hooks.example.com/in".into()],
            ..RecordsOptions::default()
        };
        let asked =
            |url: &str| Prepared::new("create_event_subscription", &json!({"callback_url": url}), &options);
        assert!(asked("https://hooks.example.com/in/x").is_ok());
        for url in [
            "https://hooks.example.com.evil/in/x",
            "https://hooks.example.com/inside",
            "https://hooks.example.com/in/../x",
            "https://hooks.example.com/in/%2e%2e/x",
            "https://user@hooks.example.com/in/x",
            "https://hooks.example.com:8443/in/x",
            "http://hooks.example.com/in/x",
            "not a url",
        ] {
            assert_eq!(asked(url).unwrap_err().code, "callback_not_allowed", "{url}");
        }
        assert_eq!(code("create_event_subscription", json!({})), "callback_required");
        assert_eq!(
            code("create_event_subscription", json!({"callback_url": "https://x.example/"})),
            "callback_not_allowed"
        );
    }
}
