//! Writing changes into rows, and the position with them, in one transaction.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sqlx::{Sqlite, Transaction};

use crate::change::{Applied, Change, Decision};
use crate::error::StoreError;

/// Applies the records of `batch` after `position`.
pub(crate) async fn apply(
    transaction: &mut Transaction<'_, Sqlite>,
    batch: &[Applied<'_>],
) -> Result<(), StoreError> {
    let position = position(transaction).await?;
    let mut last = None;
    // How often each approval was used since anything else happened to approvals. A busy approval is written
    // once per batch, not once per call.
    let mut uses = BTreeMap::new();
    for applied in batch {
        if let Some((log, seq)) = &position {
            if *log != applied.log.to_string() {
                return Err(StoreError::OtherLog { follows: log.clone(), offered: applied.log });
            }
            if applied.seq <= *seq {
                continue;
            }
        }
        match Change::of(applied)? {
            Some(Change::Used { id }) => *uses.entry(id).or_insert(0u64) += 1,
            Some(change) => {
                if matches!(
                    change,
                    Change::Requested { .. } | Change::Decided { .. } | Change::ApprovalState { .. }
                ) {
                    write_uses(transaction, std::mem::take(&mut uses)).await?;
                }
                write(transaction, change, applied.seq).await?;
            }
            None => {}
        }
        last = Some(applied);
    }
    write_uses(transaction, uses).await?;
    if let Some(last) = last {
        sqlx::query("INSERT INTO position (id, log, seq) VALUES (1, ?, ?) ON CONFLICT DO UPDATE SET log = excluded.log, seq = excluded.seq")
            .bind(last.log.to_string())
            .bind(number(last.seq))
            .execute(&mut **transaction)
            .await?;
    }
    Ok(())
}

/// The last applied record: its log, as it was written, and its number.
pub(crate) async fn position(
    transaction: &mut Transaction<'_, Sqlite>,
) -> Result<Option<(String, u64)>, StoreError> {
    let row: Option<(String, i64)> =
        sqlx::query_as("SELECT log, seq FROM position").fetch_optional(&mut **transaction).await?;
    Ok(row.map(|(log, seq)| (log, seq as u64)))
}

async fn write(
    transaction: &mut Transaction<'_, Sqlite>,
    change: Change<'_>,
    seq: u64,
) -> Result<(), StoreError> {
    let query = match change {
        Change::Server { identity, epoch, state, halt, record } => {
            write_surface(transaction, identity, None, seq).await?;
            sqlx::query(
            "INSERT INTO server (identity, epoch, state, halt, fault, record, seq) VALUES (?, ?, ?, ?, NULL, ?, ?)
             ON CONFLICT DO UPDATE SET epoch = excluded.epoch, state = excluded.state, halt = excluded.halt,
                fault = NULL, record = excluded.record, seq = excluded.seq",
        )
        .bind(identity.to_owned())
        .bind(epoch.to_owned())
        .bind(state.to_owned())
        .bind(halt.map(str::to_owned))
        .bind(record.to_string())
        .bind(number(seq))
        }
        Change::ServerState { identity, state, halt, fault, probe } => {
            if probe.is_some() || state == "removed" {
                write_surface(transaction, identity, probe, seq).await?;
            }
            sqlx::query("UPDATE server SET state = ?, halt = ?, fault = ?, seq = ? WHERE identity = ?")
                .bind(state)
                .bind(halt.map(str::to_owned))
                .bind(fault.map(str::to_owned))
                .bind(number(seq))
                .bind(identity.to_owned())
        }
        Change::Accepted { server, version, epoch, document, probe } => {
            write_surface(transaction, server, None, seq).await?;
            sqlx::query(
                "UPDATE declaration SET state = 'superseded' WHERE server = ? AND state = 'accepted'",
            )
            .bind(server.to_owned())
            .execute(&mut **transaction)
            .await?;
            sqlx::query(
                "INSERT OR REPLACE INTO declaration (server, version, epoch, state, document, probe, seq)
                 VALUES (?, ?, ?, 'accepted', ?, ?, ?)",
            )
            .bind(server.to_owned())
            .bind(version.to_owned())
            .bind(epoch.to_owned())
            .bind(document.to_vec())
            .bind(probe.to_vec())
            .bind(number(seq))
        }
        Change::Surface { server, probe } => return write_surface(transaction, server, probe, seq).await,
        Change::Stopped { session, checkpoint } => {
            // The first one stays until it is resolved.
            sqlx::query("INSERT OR IGNORE INTO checkpoint (session, checkpoint, seq) VALUES (?, ?, ?)")
                .bind(session.to_owned())
                .bind(checkpoint.to_string())
                .bind(number(seq))
        }
        Change::GoesOn { session } => {
            sqlx::query("DELETE FROM checkpoint WHERE session = ?").bind(session.to_owned())
        }
        Change::DeclarationState { server, version, state } => {
            sqlx::query("UPDATE declaration SET state = ? WHERE server = ? AND version = ?")
                .bind(state)
                .bind(server.to_owned())
                .bind(version.to_owned())
        }
        Change::Requested { id, approval, presented } => {
            let mut approval = approval.clone();
            approval["state"] = json!("pending");
            sqlx::query(
                "INSERT OR REPLACE INTO approval (approval_id, state, approval, presented, seq)
                 VALUES (?, 'pending', ?, ?, ?)",
            )
            .bind(id.to_owned())
            .bind(approval.to_string())
            .bind(presented.to_vec())
            .bind(number(seq))
        }
        Change::Decided { id, decision } => {
            return rewrite(transaction, id, |approval| decide(approval, &decision)).await;
        }
        Change::ApprovalState { id, state } => {
            return rewrite(transaction, id, |approval| approval["state"] = json!(state)).await;
        }
        Change::Used { id } => return write_uses(transaction, BTreeMap::from([(id, 1)])).await,
        Change::Policy { version, document, record } => {
            let activation =
                json!({"actor": record["actor"], "time": record["time"], "data": record["data"]});
            sqlx::query(
                "INSERT OR REPLACE INTO policy_activation (seq, version, document, activation) VALUES (?, ?, ?, ?)",
            )
            .bind(number(seq))
            .bind(version.to_owned())
            .bind(document.to_vec())
            .bind(activation.to_string())
        }
        Change::Key { agent, key } => {
            sqlx::query("INSERT OR REPLACE INTO agent_key (agent, key, seq) VALUES (?, ?, ?)")
                .bind(agent.to_owned())
                .bind(key.to_string())
                .bind(number(seq))
        }
        Change::Operator { name, operator } => {
            sqlx::query("INSERT OR REPLACE INTO operator (name, operator, seq) VALUES (?, ?, ?)")
                .bind(name.to_owned())
                .bind(operator.to_string())
                .bind(number(seq))
        }
        Change::Kept { kind, id, version, document: Some(document) } => sqlx::query(
            "INSERT OR REPLACE INTO admin_state (kind, id, version, document, seq) VALUES (?, ?, ?, ?, ?)",
        )
        .bind(kind.to_owned())
        .bind(id.to_owned())
        .bind(number(version))
        .bind(document.to_string())
        .bind(number(seq)),
        Change::Kept { kind, id, document: None, .. } => {
            sqlx::query("DELETE FROM admin_state WHERE kind = ? AND id = ?")
                .bind(kind.to_owned())
                .bind(id.to_owned())
        }
        Change::NoOperator { name } => {
            sqlx::query("DELETE FROM operator WHERE name = ?").bind(name.to_owned())
        }
        Change::NoKey { agent } => {
            sqlx::query("DELETE FROM agent_key WHERE agent = ?").bind(agent.to_owned())
        }
    };
    query.execute(&mut **transaction).await?;
    Ok(())
}

/// What a server lists instead of what was accepted; `None`: nothing else.
async fn write_surface(
    transaction: &mut Transaction<'_, Sqlite>,
    server: &str,
    probe: Option<&[u8]>,
    seq: u64,
) -> Result<(), StoreError> {
    let query = match probe {
        Some(probe) => sqlx::query("INSERT OR REPLACE INTO surface (server, probe, seq) VALUES (?, ?, ?)")
            .bind(server.to_owned())
            .bind(probe.to_vec())
            .bind(number(seq)),
        None => sqlx::query("DELETE FROM surface WHERE server = ?").bind(server.to_owned()),
    };
    query.execute(&mut **transaction).await?;
    Ok(())
}

fn decide(approval: &mut Value, decision: &Decision<'_>) {
    let data = decision.data;
    let entry = json!({
        "at": decision.at,
        "by": data["by"],
        "method": data["method"],
        "reason": data["reason"].as_str().unwrap_or_default(),
        "separation": data["separation"],
    });
    match &mut approval["decisions"] {
        Value::Array(decisions) => decisions.push(entry),
        other => *other = json!([entry]),
    }
    approval["state"] = json!(decision.state);
    for (member, from) in [("scope", "scope"), ("expires_at", "expires_at"), ("uses_left", "uses")] {
        if !data[from].is_null() {
            approval[member] = data[from].clone();
        }
    }
}

async fn write_uses(
    transaction: &mut Transaction<'_, Sqlite>,
    uses: BTreeMap<&str, u64>,
) -> Result<(), StoreError> {
    for (id, count) in uses {
        let spend = |approval: &mut Value| {
            let left = approval["uses_left"].as_u64().unwrap_or(0).saturating_sub(count);
            approval["uses_left"] = json!(left);
            // One that was revoked meanwhile stays revoked.
            if left == 0 && approval["state"] == "approved" {
                approval["state"] = json!("consumed");
            }
        };
        rewrite(transaction, id, spend).await?;
    }
    Ok(())
}

/// Changes an approval's document, and its state column with it. An approval nobody asked for is ignored.
async fn rewrite(
    transaction: &mut Transaction<'_, Sqlite>,
    id: &str,
    change: impl FnOnce(&mut Value),
) -> Result<(), StoreError> {
    let row: Option<(String,)> = sqlx::query_as("SELECT approval FROM approval WHERE approval_id = ?")
        .bind(id.to_owned())
        .fetch_optional(&mut **transaction)
        .await?;
    let Some((text,)) = row else { return Ok(()) };
    let mut approval: Value =
        serde_json::from_str(&text).map_err(|_| StoreError::Damaged { what: "approval" })?;
    change(&mut approval);
    sqlx::query("UPDATE approval SET approval = ?, state = ? WHERE approval_id = ?")
        .bind(approval.to_string())
        .bind(approval["state"].as_str().unwrap_or_default().to_owned())
        .bind(id.to_owned())
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

/// SQLite's integers are signed; a log of more than 2^63 records is not.
fn number(seq: u64) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}
