//! The demonstration data: two mailboxes with the same record ids, and three tokens.

use serde_json::{Value, json};

use crate::store::{Store, hashed};

/// Tokens, by label.
#[derive(Debug, Clone)]
pub struct Tokens {
    pub client: String,
    pub narrow: String,
    pub owner: String,
}

/// Tokens, their grants and the two mailboxes; with mail in them, if they are to be filled and nothing is in them yet.
pub async fn prepare(store: &Store, tokens: &Tokens, filled: bool) -> Result<(), sqlx::Error> {
    store.execute("DELETE FROM tokens", &[]).await?;
    for (label, token, grant, kind) in [
        ("client", &tokens.client, "grt_0000000000000001", "client"),
        ("narrow", &tokens.narrow, "grt_0000000000000002", "client"),
        ("owner", &tokens.owner, "", "owner"),
    ] {
        store
            .execute(
                "INSERT INTO tokens(sha256, label, grant_id, kind) VALUES(?, ?, ?, ?)",
                &[&hashed(token), label, grant, kind],
            )
            .await?;
    }
    let both = ["cin_gmail_personal", "cin_gmail_work"];
    let all = json!({"connections": both, "streams": {"messages": null, "message_bodies": null, "attachments": null, "labels": null}});
    let few = json!({"connections": ["cin_gmail_personal"], "streams": {"labels": null, "messages": ["id", "thread_id", "subject", "received_at"]}});
    for (id, client, scope) in [
        ("grt_0000000000000001", "cli_0000000000000001", all),
        ("grt_0000000000000002", "cli_0000000000000002", few),
    ] {
        // A grant that was revoked stays so.
        store
            .execute(
                "INSERT OR IGNORE INTO grants(id, client_id, scope_json) VALUES(?, ?, ?)",
                &[id, client, &scope.to_string()],
            )
            .await?;
    }
    for stream in &crate::catalogue::STREAMS {
        store.execute("INSERT OR IGNORE INTO streams VALUES(?)", &[stream.name]).await?;
    }
    let is_empty = store.rows("SELECT id FROM records LIMIT 1", &[]).await?.is_empty();
    for (id, name, prefix, count) in
        [("cin_gmail_personal", "Personal mail", "p", 40), ("cin_gmail_work", "Work mail", "w", 30)]
    {
        store.execute("INSERT OR IGNORE INTO connections VALUES(?, ?, 'gmail')", &[id, name]).await?;
        let mail = if filled && is_empty { mailbox(prefix, count) } else { Vec::new() };
        for (stream, record) in mail {
            store.put(id, stream, &record, EMITTED).await?;
        }
    }
    Ok(())
}

const EMITTED: &str = "2026-01-01T00:00:00.000Z";

fn mailbox(prefix: &str, count: usize) -> Vec<(&'static str, Value)> {
    let mut records = Vec::new();
    for i in 0..count {
        let time = format!("2026-0{}-{:02}T09:{:02}:00.000Z", 1 + i % 6, 1 + i % 27, i % 60);
        let subject = if i % 4 == 0 { "Invoice" } else { "Status" };
        records.push((
            "messages",
            json!({
                "id": format!("m{i}"), "thread_id": format!("t{}", i / 3), "subject": format!("{subject} {prefix}{i}"),
                "from_name": format!("Person {}", i % 5), "from_email": format!("p{}@example.com", i % 5),
                "to": ["me@example.com"], "received_at": time, "date": time, "size_bytes": 1000 + 10 * i, "labels": ["INBOX"],
                "is_draft": false, "is_flagged": i % 7 == 0, "is_seen": i % 2 == 0, "is_answered": false,
                "has_attachments": i % 5 == 0, "snippet": format!("snippet text about overdue invoice {prefix}{i}"),
            }),
        ));
        records.push((
            "message_bodies",
            json!({
                "id": format!("b{i}"), "message_id": format!("m{i}"), "message_received_at": time,
                "body_text": format!("{}{i}", "Dear reader, please pay the overdue invoice. ".repeat(60)),
                "body_source": "text/plain", "body_text_bytes": 2000,
            }),
        ));
        for k in (0..3).filter(|_| i % 5 == 0) {
            records.push((
                "attachments",
                json!({
                    "id": format!("a{i}_{k}"), "message_id": format!("m{i}"), "filename": format!("invoice-{i}-{k}.pdf"),
                    "content_type": "application/pdf", "size_bytes": 5000, "is_inline": false, "part_index": k.to_string(),
                    "message_received_at": time, "hydration_status": "deferred",
                }),
            ));
        }
    }
    records.push((
        "labels",
        json!({"name": "INBOX", "canonical_name": "inbox", "is_system": true, "message_count": count}),
    ));
    records.push(("labels", json!({"name": "Work", "canonical_name": "work", "is_system": false, "parent_name": null, "message_count": 3})));
    records
}
