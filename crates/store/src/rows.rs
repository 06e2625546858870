//! What the store answers with, and how it is read from the tables.

use serde_json::Value;
use sqlx::sqlite::SqliteRow;
use sqlx::{FromRow, Row as _};

/// A registered server.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerRow {
    /// Its name.
    pub identity: String,
    /// Its life: a server removed and registered again has another.
    pub epoch: String,
    /// `active`, `halted` or `removed`.
    pub state: String,
    /// Why it is halted.
    pub halt: Option<String>,
    /// The failure mode that halted it, if one did.
    pub fault: Option<String>,
    /// The registration record as it was registered or last changed.
    pub record: Value,
    /// The record of the log that made it what it is.
    pub seq: u64,
}

/// A declaration that was accepted once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclarationRow {
    /// The server's name.
    pub server: String,
    /// `<counter>:<sha256>`.
    pub version: String,
    /// The server's life.
    pub epoch: String,
    /// `accepted`, `superseded` or `withdrawn`.
    pub state: String,
    /// The canonical document.
    pub document: Vec<u8>,
    /// What the server said when it was accepted.
    pub probe: Vec<u8>,
    /// The record that accepted it.
    pub seq: u64,
}

/// An approval, pending or decided.
#[derive(Debug, Clone, PartialEq)]
pub struct ApprovalRow {
    /// Its id.
    pub approval_id: String,
    /// Its state, as in the document.
    pub state: String,
    /// The approval as it is now: as requested, with decisions, scope, uses and expiry brought up to date.
    pub approval: Value,
    /// Exactly what operators are shown.
    pub presented: Vec<u8>,
    /// The record that requested it.
    pub seq: u64,
}

/// A policy that was put in force.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyRow {
    /// `<counter>:<sha256>`.
    pub version: String,
    /// The canonical bundle.
    pub document: Vec<u8>,
    /// Who activated it, when, and what the event says besides: `actor`, `time`, `data`.
    pub activation: Value,
    /// The record that activated it.
    pub seq: u64,
}

/// An agent's key, as it was recorded: its hash, never the key.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentKeyRow {
    /// Whose it is.
    pub agent: String,
    /// What was recorded of it.
    pub key: Value,
    /// The record that stored it.
    pub seq: u64,
}

/// An operator who proves with a passphrase who it is.
#[derive(Debug, Clone, PartialEq)]
pub struct OperatorRow {
    /// The operator's name.
    pub name: String,
    /// What was recorded.
    pub operator: Value,
    /// The record that did.
    pub seq: u64,
}

/// Something operators set: a document of some kind.
#[derive(Debug, Clone, PartialEq)]
pub struct AdminStateRow {
    /// What kind of thing it is.
    pub kind: String,
    /// Which one.
    pub id: String,
    /// How often it was set.
    pub version: u64,
    /// As it was set last.
    pub document: Value,
    /// The record that set it.
    pub seq: u64,
}

/// What stops a session.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckpointRow {
    /// Which session.
    pub session: String,
    /// Why, since when, and what lets it go on.
    pub checkpoint: Value,
    /// The record that opened it.
    pub seq: u64,
}

/// What a server is, where that is not what was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SurfaceRow {
    /// The server's name.
    pub server: String,
    /// What it listed.
    pub probe: Vec<u8>,
    /// The record that says so.
    pub seq: u64,
}

impl FromRow<'_, SqliteRow> for CheckpointRow {
    fn from_row(row: &SqliteRow) -> sqlx::Result<Self> {
        Ok(Self { session: row.try_get("session")?, checkpoint: json(row, "checkpoint")?, seq: seq(row)? })
    }
}

impl FromRow<'_, SqliteRow> for SurfaceRow {
    fn from_row(row: &SqliteRow) -> sqlx::Result<Self> {
        Ok(Self { server: row.try_get("server")?, probe: row.try_get("probe")?, seq: seq(row)? })
    }
}

impl FromRow<'_, SqliteRow> for AdminStateRow {
    fn from_row(row: &SqliteRow) -> sqlx::Result<Self> {
        let version: i64 = row.try_get("version")?;
        Ok(Self {
            kind: row.try_get("kind")?,
            id: row.try_get("id")?,
            version: version.unsigned_abs(),
            document: json(row, "document")?,
            seq: seq(row)?,
        })
    }
}

impl FromRow<'_, SqliteRow> for OperatorRow {
    fn from_row(row: &SqliteRow) -> sqlx::Result<Self> {
        Ok(Self { name: row.try_get("name")?, operator: json(row, "operator")?, seq: seq(row)? })
    }
}

impl FromRow<'_, SqliteRow> for ServerRow {
    fn from_row(row: &SqliteRow) -> sqlx::Result<Self> {
        Ok(Self {
            identity: row.try_get("identity")?,
            epoch: row.try_get("epoch")?,
            state: row.try_get("state")?,
            halt: row.try_get("halt")?,
            fault: row.try_get("fault")?,
            record: json(row, "record")?,
            seq: seq(row)?,
        })
    }
}

impl FromRow<'_, SqliteRow> for DeclarationRow {
    fn from_row(row: &SqliteRow) -> sqlx::Result<Self> {
        Ok(Self {
            server: row.try_get("server")?,
            version: row.try_get("version")?,
            epoch: row.try_get("epoch")?,
            state: row.try_get("state")?,
            document: row.try_get("document")?,
            probe: row.try_get("probe")?,
            seq: seq(row)?,
        })
    }
}

impl FromRow<'_, SqliteRow> for ApprovalRow {
    fn from_row(row: &SqliteRow) -> sqlx::Result<Self> {
        Ok(Self {
            approval_id: row.try_get("approval_id")?,
            state: row.try_get("state")?,
            approval: json(row, "approval")?,
            presented: row.try_get("presented")?,
            seq: seq(row)?,
        })
    }
}

impl FromRow<'_, SqliteRow> for PolicyRow {
    fn from_row(row: &SqliteRow) -> sqlx::Result<Self> {
        Ok(Self {
            version: row.try_get("version")?,
            document: row.try_get("document")?,
            activation: json(row, "activation")?,
            seq: seq(row)?,
        })
    }
}

impl FromRow<'_, SqliteRow> for AgentKeyRow {
    fn from_row(row: &SqliteRow) -> sqlx::Result<Self> {
        Ok(Self { agent: row.try_get("agent")?, key: json(row, "key")?, seq: seq(row)? })
    }
}

fn seq(row: &SqliteRow) -> sqlx::Result<u64> {
    // Written from a u64 that fits.
    Ok(row.try_get::<i64, _>("seq")? as u64)
}

fn json(row: &SqliteRow, column: &str) -> sqlx::Result<Value> {
    let text: String = row.try_get(column)?;
    serde_json::from_str(&text)
        .map_err(|error| sqlx::Error::ColumnDecode { index: column.to_owned(), source: Box::new(error) })
}
