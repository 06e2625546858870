//! Everything a test may turn and look at. Effective on the next request.

use std::sync::PoisonError;

use serde_json::{Value, json};

use crate::answer::{Answer, Outcome, Refusal};
use crate::deliver;
use crate::server::State;

pub async fn answer(state: &State, method: &str, path: &str, body: &[u8]) -> Outcome {
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    let document = || serde_json::from_slice::<Value>(body).map_err(|_| Refusal::bad("the body is not JSON"));
    match (method, segments.as_slice()) {
        ("PUT", ["profile"]) => {
            let profile = text(&document()?, "profile")?.parse().map_err(Refusal::bad)?;
            state.settings.lock().unwrap_or_else(PoisonError::into_inner).profile = profile;
        }
        ("PUT", ["schema-shape"]) => {
            let shape = text(&document()?, "shape")?.parse().map_err(Refusal::bad)?;
            state.settings.lock().unwrap_or_else(PoisonError::into_inner).shape = shape;
        }
        ("PUT", ["capabilities"]) => {
            let document = document()?;
            let stream = text(&document, "stream")?;
            let connection = document["connection_id"].as_str().unwrap_or("*");
            match &document["expand"] {
                Value::Null => {
                    state
                        .store
                        .execute(
                            "DELETE FROM stream_caps WHERE stream = ? AND connection_id = ?",
                            &[&stream, connection],
                        )
                        .await?
                }
                expand => {
                    state
                        .store
                        .execute(
                            "INSERT OR REPLACE INTO stream_caps VALUES(?, ?, ?)",
                            &[&stream, connection, &expand.to_string()],
                        )
                        .await?
                }
            };
        }
        ("PUT", ["clock"]) => {
            let document = document()?;
            let mut settings = state.settings.lock().unwrap_or_else(PoisonError::into_inner);
            settings.clock = match document["now"].as_str() {
                None => None,
                Some(text) => Some(
                    text.parse::<jiff::Timestamp>()
                        .map_err(|error| Refusal::bad(error.to_string()))?
                        .as_second(),
                ),
            };
        }
        ("POST", ["ingest"]) => {
            let count = ingest(state, body).await?;
            return Ok(Answer::ok(json!({"ingested": count})));
        }
        ("POST", ["grants", id, "revoke"]) => {
            state.store.execute("UPDATE grants SET revoked = 1 WHERE id = ?", &[id]).await?;
            let rows = state.store.rows("SELECT id FROM subscriptions WHERE grant_id = ?", &[id]).await?;
            for subscription in rows.into_iter().filter_map(|row| row.into_iter().next().flatten()) {
                deliver::queue(
                    state,
                    &subscription,
                    "pdpp.grant.revoked",
                    json!({"subscription_id": subscription, "grant_id": id}),
                )
                .await?;
            }
        }
        ("POST", ["tokens", label, "expire"]) => {
            state.store.execute("UPDATE tokens SET expired = 1 WHERE label = ?", &[label]).await?;
        }
        ("POST", ["deliver"]) => {
            return Ok(Answer::ok(json!({"delivered": deliver::flush(state, true).await})));
        }
        ("POST", ["fault"]) => {
            state.faults.arm(serde_json::from_slice(body).map_err(|error| Refusal::bad(error.to_string()))?);
        }
        ("DELETE", ["fault"]) => state.faults.clear(),
        ("GET", ["log"]) => return Ok(Answer::ok(log(state).await?)),
        ("DELETE", ["log"]) => {
            state.store.execute("DELETE FROM request_log", &[]).await?;
        }
        _ => return Err(Refusal::new(404, "not_found", format!("there is no {method} {path}"))),
    }
    Ok(Answer::ok(json!({"ok": true})))
}

async fn log(state: &State) -> Result<Value, Refusal> {
    let rows =
        state.store.rows("SELECT CAST(seq AS TEXT), entry_json FROM request_log ORDER BY seq", &[]).await?;
    let entries = rows.iter().filter_map(|row| {
        let mut entry: Value = serde_json::from_str(row[1].as_deref()?).ok()?;
        entry["seq"] = json!(row[0].as_deref()?.parse::<u64>().ok()?);
        Some(entry)
    });
    Ok(entries.collect::<Vec<_>>().into())
}

/// NDJSON of `{connection_id, stream, data}`; subscribers hear of it.
async fn ingest(state: &State, body: &[u8]) -> Result<usize, Refusal> {
    let text = String::from_utf8_lossy(body);
    let mut count = 0;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let row: Value = serde_json::from_str(line).map_err(|error| Refusal::bad(error.to_string()))?;
        let (connection, stream) = (self::text(&row, "connection_id")?, self::text(&row, "stream")?);
        let before = state
            .store
            .records(&connection, &stream)
            .await?
            .iter()
            .map(|record| record.version)
            .max()
            .unwrap_or(0);
        state.store.put(&connection, &stream, &row["data"], &state.time()).await?;
        count += 1;
        for row in state.store.rows("SELECT id, doc_json FROM subscriptions", &[]).await? {
            let [Some(id), Some(doc)] = row.as_slice() else { continue };
            let doc: Value = serde_json::from_str(doc).unwrap_or_default();
            let wanted = doc["scope"]["filters"]["streams"].as_array();
            if doc["status"] == "active" && wanted.is_none_or(|list| list.contains(&json!(stream))) {
                let data = json!({
                    "subscription_id": id, "stream": stream, "connection_id": connection, "change_count_hint": 1,
                    "changes_since": crate::records::bookmark(before),
                });
                deliver::queue(state, id, "pdpp.records.changed", data).await?;
            }
        }
    }
    Ok(count)
}

fn text(document: &Value, key: &str) -> Result<String, Refusal> {
    document[key]
        .as_str()
        .map(ToOwned::to_owned)
        .ok_or_else(|| Refusal::bad(format!("{key} is missing")).param(key))
}
