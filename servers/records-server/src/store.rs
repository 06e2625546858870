//! The tables. One connection, one user at a time: this is a small server.

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{Connection as _, Row as _};
use std::str::FromStr as _;
use tokio::sync::Mutex;

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS tokens(sha256 TEXT PRIMARY KEY, label TEXT NOT NULL, grant_id TEXT, kind TEXT NOT NULL, expired INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS grants(id TEXT PRIMARY KEY, client_id TEXT NOT NULL, revoked INTEGER NOT NULL DEFAULT 0, scope_json TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS connections(id TEXT PRIMARY KEY, display_name TEXT NOT NULL, connector_key TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS streams(name TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS stream_caps(stream TEXT NOT NULL, connection_id TEXT NOT NULL, expand_json TEXT NOT NULL, PRIMARY KEY(stream, connection_id));
CREATE TABLE IF NOT EXISTS records(connection_id TEXT NOT NULL, stream TEXT NOT NULL, id TEXT NOT NULL, cursor_value TEXT, emitted_at TEXT NOT NULL, version INTEGER NOT NULL, data_json TEXT NOT NULL, PRIMARY KEY(connection_id, stream, id));
CREATE VIRTUAL TABLE IF NOT EXISTS record_fts USING fts5(connection_id UNINDEXED, stream UNINDEXED, id UNINDEXED, field UNINDEXED, text);
CREATE TABLE IF NOT EXISTS subscriptions(id TEXT PRIMARY KEY, grant_id TEXT NOT NULL, doc_json TEXT NOT NULL, secret TEXT NOT NULL, old_secret TEXT);
CREATE TABLE IF NOT EXISTS event_queue(id TEXT PRIMARY KEY, subscription_id TEXT NOT NULL, body TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 0, due INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS request_log(seq INTEGER PRIMARY KEY AUTOINCREMENT, entry_json TEXT NOT NULL);
";

/// One record.
#[derive(Debug, Clone)]
pub struct Record {
    pub connection_id: String,
    pub stream: String,
    pub id: String,
    pub cursor_value: Option<String>,
    pub emitted_at: String,
    pub version: i64,
    pub data: Value,
}

#[derive(Debug)]
pub struct Store(Mutex<SqliteConnection>);

pub fn hashed(token: &str) -> String {
    Sha256::digest(token.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Store {
    pub async fn open(db: &str) -> Result<Self, sqlx::Error> {
        let url = if db == ":memory:" { "sqlite::memory:".to_owned() } else { format!("sqlite://{db}") };
        let options = SqliteConnectOptions::from_str(&url)?.create_if_missing(true);
        let mut connection = SqliteConnection::connect_with(&options).await?;
        sqlx::raw_sql(TABLES).execute(&mut connection).await?;
        Ok(Self(Mutex::new(connection)))
    }

    pub async fn execute(&self, sql: &'static str, values: &[&str]) -> Result<u64, sqlx::Error> {
        let mut query = sqlx::query(sql);
        for value in values {
            query = query.bind((*value).to_owned());
        }
        Ok(query.execute(&mut *self.0.lock().await).await?.rows_affected())
    }

    /// Rows of text columns.
    pub async fn rows(
        &self,
        sql: &'static str,
        values: &[&str],
    ) -> Result<Vec<Vec<Option<String>>>, sqlx::Error> {
        let mut query = sqlx::query(sql);
        for value in values {
            query = query.bind((*value).to_owned());
        }
        let rows = query.fetch_all(&mut *self.0.lock().await).await?;
        let texts = rows.iter().map(|row| {
            (0..row.len()).map(|at| row.try_get::<Option<String>, _>(at).ok().flatten()).collect()
        });
        Ok(texts.collect())
    }

    /// The records of a stream in one connection, in no order that counts.
    pub async fn records(&self, connection: &str, stream: &str) -> Result<Vec<Record>, sqlx::Error> {
        let sql = "SELECT id, cursor_value, emitted_at, CAST(version AS TEXT), data_json FROM records WHERE connection_id = ? AND stream = ? ORDER BY rowid";
        let rows = self.rows(sql, &[connection, stream]).await?;
        Ok(rows.into_iter().map(|row| record(connection, stream, row)).collect())
    }

    pub async fn record(
        &self,
        connection: &str,
        stream: &str,
        id: &str,
    ) -> Result<Option<Record>, sqlx::Error> {
        let sql = "SELECT id, cursor_value, emitted_at, CAST(version AS TEXT), data_json FROM records WHERE connection_id = ? AND stream = ? AND id = ?";
        let rows = self.rows(sql, &[connection, stream, id]).await?;
        Ok(rows.into_iter().next().map(|row| record(connection, stream, row)))
    }

    /// Writes a record and its searchable fields; its version is one above the stream's last.
    pub async fn put(
        &self,
        connection: &str,
        stream: &str,
        data: &Value,
        emitted_at: &str,
    ) -> Result<i64, sqlx::Error> {
        let known = crate::catalogue::stream(stream);
        let text = |key: &str| data.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let id = text(known.map_or("id", |stream| stream.key));
        let cursor = known.and_then(|stream| stream.cursor).map(text);
        let sql = "SELECT CAST(COALESCE(MAX(version), 0) AS TEXT) FROM records WHERE connection_id = ? AND stream = ?";
        let last = self.rows(sql, &[connection, stream]).await?;
        let version = last[0][0].as_deref().unwrap_or("0").parse::<i64>().unwrap_or(0) + 1;
        let mut guard = self.0.lock().await;
        let mut transaction = guard.begin().await?;
        sqlx::query("INSERT OR REPLACE INTO records VALUES(?, ?, ?, ?, ?, ?, ?)")
            .bind(connection)
            .bind(stream)
            .bind(&id)
            .bind(&cursor)
            .bind(emitted_at)
            .bind(version)
            .bind(data.to_string())
            .execute(&mut *transaction)
            .await?;
        sqlx::query("DELETE FROM record_fts WHERE connection_id = ? AND stream = ? AND id = ?")
            .bind(connection)
            .bind(stream)
            .bind(&id)
            .execute(&mut *transaction)
            .await?;
        for (field, _) in known
            .iter()
            .flat_map(|stream| stream.fields)
            .filter(|(field, _)| known.is_some_and(|stream| stream.has(field, "lex")))
        {
            if let Some(text) = data.get(*field).and_then(Value::as_str) {
                sqlx::query("INSERT INTO record_fts VALUES(?, ?, ?, ?, ?)")
                    .bind(connection)
                    .bind(stream)
                    .bind(&id)
                    .bind(*field)
                    .bind(text)
                    .execute(&mut *transaction)
                    .await?;
            }
        }
        transaction.commit().await?;
        Ok(version)
    }
}

fn record(connection: &str, stream: &str, row: Vec<Option<String>>) -> Record {
    let mut row = row.into_iter();
    let mut next = || row.next().flatten();
    Record {
        connection_id: connection.to_owned(),
        stream: stream.to_owned(),
        id: next().unwrap_or_default(),
        cursor_value: next(),
        emitted_at: next().unwrap_or_default(),
        version: next().and_then(|text| text.parse().ok()).unwrap_or(0),
        data: next().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default(),
    }
}
