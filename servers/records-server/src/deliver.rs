//! Telling subscribers: signed, at least once, later each time.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::answer::Refusal;
use crate::server::State;

/// Seconds until the next attempt, by attempts made.
pub const RETRIES: [i64; 6] = [30, 120, 600, 3_600, 21_600, 86_400];

/// Queues an event for a subscription; returns its id.
pub async fn queue(state: &State, subscription: &str, kind: &str, data: Value) -> Result<String, Refusal> {
    let id = state.id("evt_", 24);
    let body = json!({
        "data": data, "id": id, "pdppversion": "1", "source": format!("/v1/event-subscriptions/{subscription}"),
        "specversion": "1.0", "time": state.time(), "type": kind,
    });
    let sql = "INSERT INTO event_queue(id, subscription_id, body, due) VALUES(?, ?, ?, CAST(? AS INTEGER))";
    state.store.execute(sql, &[&id, subscription, &body.to_string(), &state.now().to_string()]).await?;
    Ok(id)
}

/// Looks every moment for what is due.
pub async fn run(state: Arc<State>) {
    loop {
        flush(&state, false).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Sends what is due, or everything now; how many were taken.
pub async fn flush(state: &State, all: bool) -> usize {
    let due = if all { i64::MAX } else { state.now() };
    let sql = "SELECT q.id, q.body, s.secret, s.doc_json, CAST(q.attempts AS TEXT), s.id FROM event_queue q JOIN subscriptions s ON s.id = q.subscription_id \
        WHERE q.due <= CAST(? AS INTEGER) ORDER BY q.rowid";
    let Ok(rows) = state.store.rows(sql, &[&due.to_string()]).await else { return 0 };
    let mut taken = 0;
    for row in rows {
        let [Some(id), Some(body), Some(secret), Some(doc), attempts, Some(subscription)] = row.as_slice()
        else {
            continue;
        };
        let doc: Value = serde_json::from_str(doc).unwrap_or_default();
        let attempts: usize = attempts.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0);
        let answer = send(state, doc["callback_url"].as_str().unwrap_or_default(), id, body, secret).await;
        taken += usize::from(answer.is_some());
        settle(state, subscription, id, body, attempts, answer).await;
    }
    taken
}

async fn settle(
    state: &State,
    subscription: &str,
    id: &str,
    body: &str,
    attempts: usize,
    answer: Option<String>,
) {
    let event: Value = serde_json::from_str(body).unwrap_or_default();
    let status = |status: &'static str, reason: Option<&'static str>| async move {
        let sql = "UPDATE subscriptions SET doc_json = json_set(doc_json, '$.status', ?, '$.disabled_reason', ?) WHERE id = ?";
        let _ = state.store.execute(sql, &[status, reason.unwrap_or_default(), subscription]).await;
    };
    match answer {
        Some(text) => {
            let _ = state.store.execute("DELETE FROM event_queue WHERE id = ?", &[id]).await;
            if event["type"] == "pdpp.subscription.verify" {
                let echoed: Value = serde_json::from_str(&text).unwrap_or_default();
                if echoed["challenge"] == event["data"]["challenge"] {
                    status("active", None).await;
                }
            }
        }
        None if attempts + 1 >= RETRIES.len() => {
            let _ = state.store.execute("DELETE FROM event_queue WHERE id = ?", &[id]).await;
            status("disabled_failure", Some("delivery_failed")).await;
        }
        None => {
            let due = state.now() + RETRIES[attempts];
            let sql = "UPDATE event_queue SET attempts = attempts + 1, due = CAST(? AS INTEGER) WHERE id = ?";
            let _ = state.store.execute(sql, &[&due.to_string(), id]).await;
        }
    }
}

/// `v1,<base64>` over id, time and body.
pub fn signature(secret: &str, id: &str, timestamp: i64, body: &str) -> String {
    let key = STANDARD.decode(secret.trim_start_matches("whsec_")).unwrap_or_default();
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("any length is a key");
    mac.update(format!("{id}.{timestamp}.{body}").as_bytes());
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

/// One delivery; the body of a 2xx answer.
async fn send(state: &State, url: &str, id: &str, body: &str, secret: &str) -> Option<String> {
    let url = url::Url::parse(url).ok()?;
    if url.scheme() != "http" {
        // This server has no TLS of its own; such a delivery fails and is tried again.
        return None;
    }
    let address = (url.host_str()?.trim_matches(['[', ']']).to_owned(), url.port_or_known_default()?);
    let now = state.now();
    let request = format!(
        "POST {} HTTP/1.1\r\nhost: {}:{}\r\ncontent-type: application/cloudevents+json; charset=utf-8\r\nwebhook-id: {id}\r\n\
         webhook-timestamp: {now}\r\nwebhook-signature: {}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        url.path(),
        address.0,
        address.1,
        signature(secret, id, now, body),
        body.len()
    );
    let exchange = async {
        let mut stream = tokio::net::TcpStream::connect(address).await.ok()?;
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        let status: u16 = answer.split(' ').nth(1)?.parse().ok()?;
        let text = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
        (200..300).contains(&status).then_some(text)
    };
    tokio::time::timeout(Duration::from_secs(10), exchange).await.ok().flatten()
}
