//! `/v1/event-subscriptions`, and what the metadata says of them.

use serde_json::{Value, json};

use crate::answer::{Answer, Outcome, Refusal};
use crate::deliver;
use crate::grant::Bearer;
use crate::server::State;

pub async fn answer(
    state: &State,
    bearer: &Bearer,
    method: &str,
    rest: &[&str],
    body: &[u8],
) -> Option<Outcome> {
    let body: Value = match body {
        [] => json!({}),
        body => match serde_json::from_slice(body) {
            Ok(body) => body,
            Err(_) => return Some(Err(Refusal::bad("the body is not JSON"))),
        },
    };
    Some(match (method, rest) {
        ("POST", []) => create(state, bearer, &body).await,
        ("GET", []) => list(state, bearer).await,
        ("GET", [id]) => get(state, bearer, id).await.map(|(doc, _)| Answer::ok(doc)),
        ("PATCH", [id]) => change(state, bearer, id, &body).await,
        ("DELETE", [id]) => delete(state, bearer, id).await,
        ("POST", [id, "test-event"]) => test(state, bearer, id).await,
        _ => return None,
    })
}

async fn create(state: &State, bearer: &Bearer, body: &Value) -> Outcome {
    let url = body["callback_url"].as_str().unwrap_or_default();
    let parsed = url::Url::parse(url).ok().filter(|_| url.len() <= 2_048);
    let local = |url: &url::Url| matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
    if !parsed.is_some_and(|url| url.scheme() == "https" || (url.scheme() == "http" && local(&url))) {
        return Err(Refusal::bad(
            "callback_url must use https:// (http://localhost permitted for development)",
        ));
    }
    let streams: Vec<String> = serde_json::from_value(body["filters"]["streams"].clone()).unwrap_or_default();
    let outside: Vec<&str> =
        streams.iter().filter(|name| !bearer.reaches(name)).map(String::as_str).collect();
    if !outside.is_empty() {
        return Err(Refusal::bad(format!("filter streams not in grant: {}", outside.join(", "))));
    }
    let (id, secret, now) = (state.id("sub_", 24), state.secret(), state.time());
    let instances: Vec<&String> = bearer.connections.iter().map(|(id, _)| id).collect();
    let scope_streams: Vec<Value> = (crate::catalogue::STREAMS.iter())
        .filter(|stream| bearer.reaches(stream.name))
        .map(|stream| json!({"name": stream.name, "instance_ids": instances}))
        .collect();
    let doc = json!({
        "authority_kind": "client_grant", "callback_url": url, "client_id": bearer.client_id, "created_at": now,
        "disabled_reason": null, "grant_id": bearer.grant_id,
        "scope": {
            "source": {"id": "gmail", "kind": "connector", "connector_id": "gmail"}, "streams": scope_streams,
            "filters": if streams.is_empty() { Value::Null } else { json!({"streams": streams}) },
        },
        "status": "pending_verification", "subscription_id": id, "updated_at": now,
    });
    let sql = "INSERT INTO subscriptions(id, grant_id, doc_json, secret) VALUES(?, ?, ?, ?)";
    state.store.execute(sql, &[&id, &bearer.grant_id, &doc.to_string(), &secret]).await?;
    let challenge = state.id("", 32);
    deliver::queue(
        state,
        &id,
        "pdpp.subscription.verify",
        json!({"subscription_id": id, "challenge": challenge}),
    )
    .await?;
    let body = json!({
        "callback_url": url, "created_at": now, "secret": secret, "status": "pending_verification", "subscription_id": id,
    });
    Ok(Answer { status: 201, body })
}

async fn list(state: &State, bearer: &Bearer) -> Outcome {
    let rows = state
        .store
        .rows("SELECT doc_json FROM subscriptions WHERE grant_id = ? ORDER BY rowid", &[&bearer.grant_id])
        .await?;
    let docs: Vec<Value> =
        rows.iter().filter_map(|row| serde_json::from_str(row[0].as_deref()?).ok()).collect();
    Ok(Answer::ok(json!({"data": docs})))
}

async fn get(state: &State, bearer: &Bearer, id: &str) -> Result<(Value, String), Refusal> {
    let sql = "SELECT doc_json, secret FROM subscriptions WHERE id = ? AND grant_id = ?";
    let rows = state.store.rows(sql, &[id, &bearer.grant_id]).await?;
    let Some([Some(doc), Some(secret)]) = rows.first().map(Vec::as_slice) else {
        return Err(Refusal::new(404, "not_found", "subscription not found"));
    };
    Ok((serde_json::from_str(doc).unwrap_or_default(), secret.clone()))
}

async fn change(state: &State, bearer: &Bearer, id: &str, body: &Value) -> Outcome {
    let (mut doc, old) = get(state, bearer, id).await?;
    let state_of = match body["enabled"].as_bool() {
        Some(true) => Some((json!("active"), Value::Null)),
        Some(false) => Some((json!("disabled"), json!("client_disabled"))),
        None => None,
    };
    if let Some((status, reason)) = state_of {
        doc["status"] = status;
        doc["disabled_reason"] = reason;
    }
    doc["updated_at"] = json!(state.time());
    let mut answer = json!({"subscription": doc});
    let mut secret = old.clone();
    if body["rotate_secret"] == true {
        secret = state.secret();
        answer["secret"] = json!(secret);
    }
    let sql = "UPDATE subscriptions SET doc_json = ?, secret = ?, old_secret = ? WHERE id = ?";
    state.store.execute(sql, &[&doc.to_string(), &secret, &old, id]).await?;
    Ok(Answer::ok(answer))
}

async fn delete(state: &State, bearer: &Bearer, id: &str) -> Outcome {
    get(state, bearer, id).await?;
    state.store.execute("DELETE FROM subscriptions WHERE id = ?", &[id]).await?;
    state.store.execute("DELETE FROM event_queue WHERE subscription_id = ?", &[id]).await?;
    Ok(Answer { status: 204, body: Value::Null })
}

async fn test(state: &State, bearer: &Bearer, id: &str) -> Outcome {
    get(state, bearer, id).await?;
    let event = deliver::queue(state, id, "pdpp.subscription.test", json!({"subscription_id": id})).await?;
    Ok(Answer { status: 202, body: json!({"event_id": event}) })
}

/// The metadata at the root.
pub fn protected_resource(base: &str) -> Value {
    json!({
        "authorization_servers": [base], "bearer_methods_supported": ["header"], "resource": base,
        "resource_name": "Portcullis records server", "pdpp_core_query_base": format!("{base}/v1"),
        "pdpp_token_kinds_supported": ["owner", "client"],
        "capabilities": {
            "lexical_retrieval": {"supported": true, "endpoint": "/v1/search", "max_limit": 100, "default_limit": 25, "score": {"kind": "bm25", "order": "lower_is_better"}},
            "semantic_retrieval": {"supported": true, "endpoint": "/v1/search/semantic", "dimensions": 64, "distance_metric": "cosine", "model": "feature-hashing-stand-in"},
            "hybrid_retrieval": {"supported": true, "endpoint": "/v1/search/hybrid", "cursor_supported": false},
            "client_event_subscriptions": {
                "endpoint": "/v1/event-subscriptions",
                "event_types": ["pdpp.subscription.verify", "pdpp.subscription.test", "pdpp.records.changed", "pdpp.grant.revoked"],
                "delivery": {"at_least_once": true, "max_attempts": 6, "response_window_seconds": 10, "retry_schedule_seconds": deliver::RETRIES},
                "signing": {"algorithm": "HMAC-SHA256", "signature_header": "webhook-signature", "secret_prefix": "whsec_", "signed_payload": "{webhook-id}.{webhook-timestamp}.{body}"},
                "envelope": {"content_type": "application/cloudevents+json; charset=utf-8", "no_record_bodies": true},
                "callback_url": {"https_required": true, "localhost_exception": true},
            },
        },
    })
}
