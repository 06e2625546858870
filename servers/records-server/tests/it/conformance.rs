//! The captures of the reference implementation, replayed against this server (REC-97, T-REC-26).

use records_server::{Options, Profile, Server};
use serde_json::{Value, json};

use crate::client::{Reply, ask};

async fn server(profile: Profile) -> Server {
    Server::serve(Options { profile, deterministic: true, ..Options::default() }).await.unwrap()
}

fn captures(name: &str) -> Vec<Value> {
    let path = format!("{}/tests/captures/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Replays one capture; the path without what only full tokens know.
async fn replay(server: &Server, capture: &Value) -> Reply {
    let request = &capture["request"];
    let path = request["path"].as_str().unwrap().replace("&connector_id=gmail", "");
    let token = match request["token"].as_str() {
        Some("client" | "owner") => Some(server.tokens.client.as_str()),
        Some("labels_only") => Some(server.tokens.narrow.as_str()),
        other => other,
    };
    ask(&server.rs, request["method"].as_str().unwrap(), &path, token, &request["body"]).await
}

fn same_error(name: &str, found: &Value, wanted: &Value) {
    for key in ["code", "type", "param"] {
        assert_eq!(found["error"][key], wanted["error"][key], "{name} {key}: {found}");
    }
}

/// Records without what differs from run to run and from one server to the other.
fn plain(body: &Value) -> Value {
    let mut body = body.clone();
    if let Some(object) = body.as_object_mut() {
        for key in ["links", "meta", "connector_key", "record_json_bytes"] {
            object.shift_remove(key);
        }
    }
    body
}

fn warnings(body: &Value) -> Vec<&str> {
    let list = body["meta"]["warnings"].as_array();
    list.into_iter().flatten().filter_map(|warning| warning["code"].as_str()).collect()
}

#[tokio::test]
async fn pages_records_windows_and_sums_are_those_of_the_captures() {
    // REC-15, REC-90, REC-92, REC-97, T-REC-26
    for (bundle, profile) in [
        ("rs-records", Profile::V01),
        ("rs-records-rich", Profile::Rich),
        ("rs-record", Profile::V01),
        ("rs-field-window", Profile::V01),
        ("rs-aggregate", Profile::V01),
        ("rs-aggregate-rich", Profile::Rich),
    ] {
        let server = server(profile).await;
        for capture in captures(bundle) {
            let (name, wanted) = (capture["name"].as_str().unwrap(), &capture["body"]);
            let reply = replay(&server, &capture).await;
            assert_eq!(
                u64::from(reply.status),
                capture["status"].as_u64().unwrap(),
                "{name}: {}",
                reply.text
            );
            if reply.status >= 400 {
                same_error(name, &reply.body, wanted);
                continue;
            }
            assert_eq!(plain(&reply.body), plain(wanted), "{name}");
            assert_eq!(warnings(&reply.body), warnings(wanted), "{name}");
            assert_eq!(reply.body["meta"]["count"], wanted["meta"]["count"], "{name}");
        }
    }
}

/// Keys and kinds, without values.
fn structure(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<_> = map.iter().map(|(key, value)| (key.clone(), structure(value))).collect();
            keys.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(keys.into_iter().collect())
        }
        Value::Array(list) => list.first().map(|first| json!([structure(first)])).unwrap_or(json!([])),
        Value::String(_) => json!("text"),
        Value::Number(_) => json!("number"),
        Value::Bool(_) => json!("flag"),
        Value::Null => Value::Null,
    }
}

#[tokio::test]
async fn schemas_have_the_structure_of_the_captures() {
    // REC-90, REC-92, REC-97, T-REC-26
    for (bundle, profile) in [("rs-schema", Profile::V01), ("rs-schema-rich", Profile::Rich)] {
        let server = server(profile).await;
        for capture in captures(bundle) {
            let name = capture["name"].as_str().unwrap();
            let reply = replay(&server, &capture).await;
            assert_eq!(
                u64::from(reply.status),
                capture["status"].as_u64().unwrap(),
                "{name}: {}",
                reply.text
            );
            if reply.status >= 400 {
                same_error(name, &reply.body, &capture["body"]);
                continue;
            }
            let wanted = &capture["body"]["connectors"];
            let found = &reply.body["connectors"];
            // Which fields there are is the data's; what is said of a field is the server's.
            if name.contains("full") {
                let row = |connectors: &Value| connectors[0]["streams"][0].clone();
                let keys = |row: &Value| {
                    let mut keys: Vec<String> = row.as_object().unwrap().keys().cloned().collect();
                    keys.sort();
                    keys
                };
                assert_eq!(keys(&row(found)), keys(&row(wanted)), "{name}");
                let said = |connectors: &Value| structure(&row(connectors)["field_capabilities"]["bcc"]);
                assert_eq!(said(found), said(wanted), "{name}");
                continue;
            }
            assert_eq!(structure(found), structure(wanted), "{name}");
            let rows = |list: &Value| list[0]["streams"].clone();
            if profile == Profile::Rich {
                assert_eq!(rows(found), rows(wanted), "{name}");
            }
        }
    }
}

#[tokio::test]
async fn searches_answer_in_the_structure_of_the_captures() {
    // REC-90, REC-97, T-REC-26
    let (plain, rich) = (server(Profile::V01).await, server(Profile::Rich).await);
    let mut cursor = String::new();
    for mut capture in captures("rs-search") {
        let name = capture["name"].as_str().unwrap().to_owned();
        if name == "search-lexical-page2" {
            // Its cursor is one of another server's.
            let path = capture["request"]["path"].as_str().unwrap();
            let (before, _) = path.split_once("cursor=").unwrap();
            let path = format!("{before}cursor={cursor}");
            capture["request"]["path"] = json!(path);
        }
        let server = if name.starts_with("owner") { &rich } else { &plain };
        let reply = replay(server, &capture).await;
        assert_eq!(u64::from(reply.status), capture["status"].as_u64().unwrap(), "{name}: {}", reply.text);
        if reply.status >= 400 {
            same_error(&name, &reply.body, &capture["body"]);
            continue;
        }
        if let Some(next) = reply.body["next_cursor"].as_str() {
            next.clone_into(&mut cursor);
        }
        // What it does for its index is its own.
        let mut wanted = capture["body"].clone();
        if let Some(meta) = wanted["meta"].as_object_mut() {
            meta.shift_remove("index_maintenance");
        }
        // Of a search that found nothing there, only what is said about it can be compared.
        if wanted["data"].as_array().is_some_and(Vec::is_empty) {
            assert_eq!(structure(&reply.body["meta"]), structure(&wanted["meta"]), "{name}");
        } else {
            assert_eq!(structure(&reply.body), structure(&wanted), "{name}");
        }
        assert_eq!(warnings(&reply.body), warnings(&capture["body"]), "{name}");
    }
    let token = Some(plain.tokens.client.as_str());
    let first = ask(&plain.rs, "GET", "/v1/search?q=invoice&limit=2", token, &Value::Null).await.body;
    let next = format!("/v1/search?q=invoice&limit=2&cursor={}", first["next_cursor"].as_str().unwrap());
    let second = ask(&plain.rs, "GET", &next, token, &Value::Null).await.body;
    assert_eq!(second["data"].as_array().unwrap().len(), 2);
    assert_ne!(first["data"][0], second["data"][0]);
}

/// Everything in `found` is in `wanted` too, and says the same.
fn says_the_same(found: &Value, wanted: &Value, place: &str) {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            for (key, value) in found {
                // Its own address, and the stand-in for a model, are its own.
                if !["authorization_servers", "resource", "resource_name", "pdpp_core_query_base", "model"]
                    .contains(&key.as_str())
                {
                    let wanted = wanted.get(key).unwrap_or_else(|| panic!("{place}/{key} is not known"));
                    says_the_same(value, wanted, &format!("{place}/{key}"));
                }
            }
        }
        _ => assert_eq!(found, wanted, "{place}"),
    }
}

#[tokio::test]
async fn what_the_metadata_says_it_says_as_the_capture_does() {
    // REC-90, REC-97, T-REC-26
    let server = server(Profile::V01).await;
    let path = format!("{}/tests/captures/rs-protected-resource.json", env!("CARGO_MANIFEST_DIR"));
    let wanted: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let found = ask(&server.rs, "GET", "/.well-known/oauth-protected-resource", None, &Value::Null).await;
    assert_eq!(found.status, 200);
    says_the_same(&found.body, &wanted, "");
    assert_eq!(found.body["resource"], server.rs);
}

#[tokio::test]
async fn tokens_are_held_to_their_grants() {
    // REC-90, REC-97, T-REC-26
    let server = server(Profile::V01).await;
    for capture in captures("rs-auth") {
        let name = capture["name"].as_str().unwrap();
        if name.starts_with("after-revoke") {
            continue;
        }
        let reply = replay(&server, &capture).await;
        assert_eq!(u64::from(reply.status), capture["status"].as_u64().unwrap(), "{name}: {}", reply.text);
        match name {
            "unknown-route" => assert_eq!(reply.body, capture["body"]),
            _ => same_error(name, &reply.body, &capture["body"]),
        }
    }
    ask(&server.admin, "POST", "/grants/grt_0000000000000001/revoke", None, &json!({})).await;
    let reply = ask(
        &server.rs,
        "GET",
        "/v1/streams/messages/records?limit=1",
        Some(&server.tokens.client),
        &Value::Null,
    )
    .await;
    assert_eq!((reply.status, reply.body["error"]["code"].as_str()), (403, Some("grant_revoked")));
}

#[tokio::test]
async fn subscriptions_live_as_in_the_captures_and_signatures_verify() {
    let server = server(Profile::V01).await;
    let mut id = String::new();
    for capture in captures("rs-events") {
        let name = capture["name"].as_str().unwrap();
        let mut capture = capture.clone();
        let path = capture["request"]["path"].as_str().unwrap().replace("sub_000000000000000000000001", &id);
        capture["request"]["path"] = json!(path);
        let reply = replay(&server, &capture).await;
        assert_eq!(u64::from(reply.status), capture["status"].as_u64().unwrap(), "{name}: {}", reply.text);
        if name == "evsub-create" {
            id = reply.body["subscription_id"].as_str().unwrap().to_owned();
            assert_eq!(reply.body["secret"], capture["body"]["secret"]);
        }
        if reply.status >= 400 {
            same_error(name, &reply.body, &capture["body"]);
        }
        if name == "evsub-patch-rotate" {
            assert_eq!(reply.body["secret"], capture["body"]["secret"]);
        }
    }
    for delivery in captures("rs-event-deliveries") {
        let header = |name: &str| delivery["headers"][name].as_str().unwrap();
        let key = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
        let time = header("webhook-timestamp").parse().unwrap();
        let made = records_server::deliver::signature(
            key,
            header("webhook-id"),
            time,
            delivery["raw_body"].as_str().unwrap(),
        );
        assert_eq!(made, header("webhook-signature"));
    }
}

#[tokio::test]
async fn two_runs_answer_the_same_bytes() {
    // REC-95, REC-96
    let (one, two) = (server(Profile::Rich).await, server(Profile::Rich).await);
    for path in [
        "/v1/schema?view=compact",
        "/v1/streams/messages/records?limit=3&connection_id=cin_gmail_work",
        "/v1/streams/messages/aggregate?metric=sum&field=size_bytes",
        "/v1/search?q=invoice&limit=3",
        "/v1/search/semantic?q=overdue%20invoice&limit=3",
        "/v1/search/hybrid?q=overdue%20invoice&limit=3",
    ] {
        let token = Some(one.tokens.client.as_str());
        let (a, b) = (
            ask(&one.rs, "GET", path, token, &Value::Null).await,
            ask(&two.rs, "GET", path, token, &Value::Null).await,
        );
        assert_eq!((a.status, &a.text), (200, &b.text), "{path}");
    }
    let page = ask(
        &one.rs,
        "GET",
        "/v1/streams/messages/records?limit=3&connection_id=cin_gmail_work",
        Some(&one.tokens.client),
        &Value::Null,
    )
    .await
    .body;
    let ids: Vec<&str> =
        page["data"].as_array().unwrap().iter().map(|record| record["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["m23", "m17", "m11"]);
}

#[tokio::test]
async fn what_it_was_asked_is_on_its_log_without_secrets_and_it_fails_on_demand() {
    // REC-93, REC-94
    let server = server(Profile::V01).await;
    let token = Some(server.tokens.client.as_str());
    ask(
        &server.admin,
        "POST",
        "/fault",
        None,
        &json!({"path_prefix": "/v1/schema", "kind": "status", "status": 503, "count": 1}),
    )
    .await;
    assert_eq!(ask(&server.rs, "GET", "/v1/schema?view=compact", token, &Value::Null).await.status, 503);
    assert_eq!(ask(&server.rs, "GET", "/v1/schema?view=compact", token, &Value::Null).await.status, 200);
    let log = ask(&server.admin, "GET", "/log", None, &Value::Null).await;
    assert_eq!(log.body[0]["fault"], "status");
    assert_eq!(log.body[1]["query"], json!([["view", "compact"]]));
    assert_eq!(log.body[1]["token_label"], "client");
    assert!(!log.text.contains(&server.tokens.client));
    ask(&server.admin, "PUT", "/schema-shape", None, &json!({"shape": "wrapped"})).await;
    let wrapped = ask(&server.rs, "GET", "/v1/schema?view=compact", token, &Value::Null).await.body;
    assert!(wrapped["data"]["streams"].is_array(), "{wrapped}");
}
