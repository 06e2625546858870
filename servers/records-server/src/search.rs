//! `GET /v1/search`: FTS5 for words; hashed features for nearness, which is a stand-in and says so in the metadata.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::answer::{Answer, Outcome, Refusal};
use crate::grant::Bearer;
use crate::query::Query;
use crate::records::{checked_filters, matching, refuse_filter};
use crate::server::State;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Lexical,
    Semantic,
    Hybrid,
}

/// One hit.
struct Hit {
    stream: String,
    connection: String,
    id: String,
    field: String,
    text: String,
    score: f64,
}

pub async fn answer(state: &State, bearer: &Bearer, way: Way, query: &Query) -> Outcome {
    query.only(&["q", "streams", "limit", "cursor", "filter", "connection_id", "connector_id"], true)?;
    refuse_filter(state, bearer, query)?;
    let Some(q) = query.get("q").filter(|q| !q.trim().is_empty()) else {
        return Err(Refusal::bad("q is required").param("q"));
    };
    let wanted = query.all("streams", true);
    if let Some(other) = wanted.iter().find(|stream| !bearer.reaches(stream)) {
        return Err(Refusal::new(403, "grant_stream_not_allowed", format!("Stream '{other}' not in grant")));
    }
    let connections = bearer.connections(query.get("connection_id"))?;
    if query.has("filter") && wanted.len() != 1 {
        return Err(Refusal::bad("filter[...] requires exactly one streams[] value").param("streams"));
    }
    let mut hits = match way {
        Way::Lexical => lexical(state, q).await?,
        Way::Semantic => semantic(state, bearer, q, &connections).await?,
        Way::Hybrid => hybrid(lexical(state, q).await?, semantic(state, bearer, q, &connections).await?),
    };
    hits.retain(|hit| {
        bearer.sees(&hit.stream, &hit.field)
            && (wanted.is_empty() || wanted.contains(&hit.stream))
            && connections.iter().any(|(id, _)| *id == hit.connection)
    });
    if query.has("filter") {
        let stream = bearer.stream(&wanted[0])?;
        let filters = checked_filters(stream, query)?;
        let mut allowed = Vec::new();
        for (connection, _) in &connections {
            let rows = matching(state, stream, connection, &filters).await?;
            allowed.extend(rows.into_iter().map(|record| (record.connection_id, record.id)));
        }
        hits.retain(|hit| {
            allowed.iter().any(|(connection, id)| *connection == hit.connection && *id == hit.id)
        });
    }
    let grouped = group(hits);
    let offset = match query.get("cursor") {
        None => 0,
        Some(_) if way == Way::Hybrid => {
            return Err(Refusal::new(400, "invalid_cursor", "hybrid search does not page").param("cursor"));
        }
        Some(text) => read_cursor(text)?,
    };
    let (limit, clamped) = query.limit(25, 100);
    let total = grouped.len();
    let page: Vec<Value> =
        grouped.iter().skip(offset).take(limit).map(|hits| shown(hits, way, &connections)).collect();
    let has_more = way != Way::Hybrid && offset + page.len() < total;
    let mut warnings = Vec::new();
    if let Some(asked) = clamped {
        let message = format!(
            "Requested limit={asked} exceeds the maximum page size of 100; returned at most 100 hits per page. Page forward with the returned cursor."
        );
        warnings.push(json!({"code": "limit_clamped", "detail": {"max_limit": 100, "requested_limit": asked}, "message": message, "param": "limit"}));
    }
    let path = match way {
        Way::Lexical => "/v1/search",
        Way::Semantic => "/v1/search/semantic",
        Way::Hybrid => "/v1/search/hybrid",
    };
    let mut body = json!({"has_more": has_more, "object": "list", "url": path});
    let next = has_more.then(|| URL_SAFE_NO_PAD.encode(json!({"off": offset + page.len()}).to_string()));
    if let Some(next) = &next {
        body["next_cursor"] = json!(next);
    }
    body["meta"] = json!({
        "warnings": warnings, "count": page.len(), "count_accuracy": "exact",
        "recall": {
            "complete": true, "ranked_candidate_count": total, "ranking_scope": "grant",
            "sources_searched_count": connections.len(), "truncated": false,
        },
    });
    body["data"] = page.into();
    body["__next"] = json!(next);
    Ok(Answer::ok(body))
}

/// Words, ranked by FTS5.
async fn lexical(state: &State, q: &str) -> Result<Vec<Hit>, Refusal> {
    // Every word as a string of its own, so that no character of it is an operator.
    let words = q.split_whitespace().map(|word| format!("\"{}\"", word.replace('"', "\"\"")));
    let expression = words.collect::<Vec<_>>().join(" ");
    let sql = "SELECT stream, connection_id, id, field, snippet(record_fts, 4, '<mark>', '</mark>', '…', 24), CAST(bm25(record_fts) AS TEXT) \
        FROM record_fts WHERE record_fts MATCH ? ORDER BY bm25(record_fts), rowid LIMIT 5000";
    let rows = state.store.rows(sql, &[&expression]).await?;
    Ok(rows.into_iter().map(hit).collect())
}

fn hit(row: Vec<Option<String>>) -> Hit {
    let mut row = row.into_iter().map(Option::unwrap_or_default);
    let mut next = || row.next().unwrap_or_default();
    Hit {
        stream: next(),
        connection: next(),
        id: next(),
        field: next(),
        text: next(),
        score: next().parse().unwrap_or(0.0),
    }
}

/// Nearness of hashed features.
async fn semantic(
    state: &State,
    bearer: &Bearer,
    q: &str,
    connections: &[(String, String)],
) -> Result<Vec<Hit>, Refusal> {
    let wanted = features(q);
    let mut hits = Vec::new();
    for stream in crate::catalogue::STREAMS.iter().filter(|stream| bearer.reaches(stream.name)) {
        for (connection, _) in connections {
            for record in state.store.records(connection, stream.name).await? {
                for (field, _) in stream.fields.iter().filter(|(field, _)| stream.has(field, "sem")) {
                    let Some(text) = record.data[*field].as_str() else { continue };
                    let score = 1.0 - features(text).iter().zip(&wanted).map(|(a, b)| a * b).sum::<f64>();
                    if score < 0.95 {
                        let (stream, field) = (stream.name.to_owned(), (*field).to_owned());
                        let (connection, id) = (connection.clone(), record.id.clone());
                        hits.push(Hit { stream, connection, id, field, text: text.to_owned(), score });
                    }
                }
            }
        }
    }
    hits.sort_by(|a, b| a.score.total_cmp(&b.score));
    Ok(hits)
}

fn features(text: &str) -> Vec<f64> {
    let mut vector = vec![0.0; 64];
    for word in text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        let digest = Sha256::digest(word.to_lowercase().as_bytes());
        vector[usize::from(digest[0] % 64)] += if digest[1] % 2 == 0 { 1.0 } else { -1.0 };
    }
    let length = vector.iter().map(|x: &f64| x * x).sum::<f64>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|x| *x /= length);
    }
    vector
}

/// By rank in both.
fn hybrid(words: Vec<Hit>, near: Vec<Hit>) -> Vec<Hit> {
    let mut all = Vec::new();
    for list in [words, near] {
        for (rank, mut hit) in list.into_iter().enumerate() {
            hit.score = 60.0 + f64::from(u32::try_from(rank).unwrap_or(u32::MAX));
            all.push(hit);
        }
    }
    all.sort_by(|a, b| a.score.total_cmp(&b.score));
    all
}

/// Hits of one record together, in the order of the best.
fn group(hits: Vec<Hit>) -> Vec<Vec<Hit>> {
    let mut groups: Vec<Vec<Hit>> = Vec::new();
    for hit in hits {
        let same = |group: &&mut Vec<Hit>| {
            group[0].stream == hit.stream && group[0].connection == hit.connection && group[0].id == hit.id
        };
        match groups.iter_mut().find(same) {
            Some(group) => {
                if !group.iter().any(|other| other.field == hit.field) {
                    group.push(hit);
                }
            }
            None => groups.push(vec![hit]),
        }
    }
    groups
}

fn shown(hits: &[Hit], way: Way, connections: &[(String, String)]) -> Value {
    let best = &hits[0];
    let name = connections.iter().find(|(id, _)| *id == best.connection).map(|(_, name)| name);
    let fields: Vec<&String> = hits.iter().map(|hit| &hit.field).collect();
    let (kind, provenance) = match way {
        Way::Lexical => ("bm25", "lexical_match"),
        Way::Semantic => ("semantic_distance", "semantic_match"),
        Way::Hybrid => ("rank_fusion", "hybrid_match"),
    };
    let url = format!("/v1/streams/{}/records/{}", best.stream, best.id);
    let excerpts = hits.iter().map(|hit| {
        json!({
            "field_path": hit.field, "object": "evidence_excerpt", "preview_text": hit.text, "provenance": provenance,
            "read": {
                "field": hit.field, "method": "GET", "object": "field_window_read", "record_id": hit.id,
                "route": format!("{url}/field-window"), "stream": hit.stream, "connection_id": hit.connection,
            },
            "truncated": hit.text.ends_with('…'),
        })
    });
    json!({
        "connector_id": "gmail", "emitted_at": "2026-01-01T00:00:00.000Z", "matched_fields": fields, "object": "search_result",
        "record_key": best.id, "record_url": url, "stream": best.stream, "connection_id": best.connection,
        "connector_instance_id": best.connection, "display_name": name,
        "snippet": {"field": best.field, "text": best.text}, "evidence_excerpts": excerpts.collect::<Vec<_>>(),
        "score": {"kind": kind, "order": "lower_is_better", "value": best.score},
    })
}

fn read_cursor(text: &str) -> Result<usize, Refusal> {
    let malformed = || Refusal::new(400, "invalid_cursor", "Malformed cursor");
    let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).map_err(|_| malformed())?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|_| malformed())?;
    value["off"].as_u64().and_then(|off| usize::try_from(off).ok()).ok_or_else(malformed)
}
