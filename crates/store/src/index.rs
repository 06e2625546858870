//! Where in the log a record is, by what one asks for (AUD-66).
//!
//! An index is another projection, and an even lesser one than the state: whoever asks checks what it finds against the
//! log, and a lost or damaged index costs time and nothing else. It is therefore written without waiting for the disk.
//!
//! Everything in it is a number, because numbers are sorted and compared several times faster than text: words that
//! repeat (events, actors, tools) have a table of their own, and of identifiers there is a [`mark`] of 64 bits.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use portcullis_core::{Sha256Digest, Timestamp};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{QueryBuilder, Row as _, Sqlite, SqliteConnection, SqlitePool};

use crate::error::StoreError;
use crate::store::make_private;

const TABLES: &str = "
CREATE TABLE position (log TEXT NOT NULL, size INTEGER NOT NULL, head TEXT NOT NULL) STRICT;
CREATE TABLE word (number INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE entry (
    seq INTEGER PRIMARY KEY, segment INTEGER NOT NULL, place INTEGER NOT NULL, id INTEGER NOT NULL,
    event INTEGER NOT NULL, time INTEGER NOT NULL, actor INTEGER NOT NULL, tool INTEGER, session INTEGER,
    proposal INTEGER, permit INTEGER
) STRICT;
";
/// Made when the rows are there: sorting once is much cheaper than keeping sorted.
const INDEXES: &str = "
CREATE INDEX entry_id ON entry (id);
CREATE INDEX entry_event ON entry (event);
CREATE INDEX entry_time ON entry (time);
CREATE INDEX entry_actor ON entry (actor);
CREATE INDEX entry_tool ON entry (tool) WHERE tool IS NOT NULL;
CREATE INDEX entry_session ON entry (session) WHERE session IS NOT NULL;
CREATE INDEX entry_proposal ON entry (proposal) WHERE proposal IS NOT NULL;
CREATE INDEX entry_permit ON entry (permit) WHERE permit IS NOT NULL;
";
/// Rows of one statement.
const AT_ONCE: usize = 1000;

/// The index of one log.
#[derive(Debug)]
pub struct Index {
    pool: SqlitePool,
}

/// What is indexed of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // The words of the log.
pub struct Entry {
    pub seq: u64,
    /// The first record of the segment it is in, and where in that its frame begins.
    pub segment: u64,
    pub place: u64,
    pub id: String,
    pub event: String,
    pub time: Timestamp,
    pub actor: String,
    pub tool: Option<String>,
    pub session: Option<String>,
    pub proposal: Option<String>,
    pub permit: Option<String>,
}

/// Where a record is: its number, the first record of its segment, and where in that its frame begins.
pub type Found = (u64, u64, u64);

/// How far an index goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Indexed {
    /// The log.
    pub log: String,
    /// How many records.
    pub size: u64,
    /// Leaf hash of the last of them.
    pub head: String,
    /// Where that one is.
    pub last: Found,
}

/// What is asked for; what is `None` does not matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// This event, or with a dot at the end all of a group.
    pub event: Option<String>,
    /// A tool whose id contains this.
    pub tool: Option<String>,
    /// This session.
    pub session: Option<String>,
    /// This proposal.
    pub proposal: Option<String>,
    /// This author.
    pub actor: Option<String>,
    /// At or after this time,
    pub since: Option<Timestamp>,
    /// and before this one.
    pub until: Option<Timestamp>,
    /// The record with this id.
    pub id: Option<String>,
    /// About this permit.
    pub permit: Option<String>,
}

impl Index {
    /// Opens the index in `path`, which must exist.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        Self::connect(path, SqliteJournalMode::Truncate).await
    }

    async fn connect(path: &Path, journal: SqliteJournalMode) -> Result<Self, StoreError> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(false)
            .journal_mode(journal)
            .synchronous(SqliteSynchronous::Off)
            .busy_timeout(Duration::from_secs(5));
        Ok(Self { pool: SqlitePoolOptions::new().max_connections(1).connect_with(options).await? })
    }

    /// How far it goes; `None` if it says nothing that makes sense.
    pub async fn indexed(&self) -> Result<Option<Indexed>, StoreError> {
        let query = "SELECT p.log, p.size, p.head, r.seq, r.segment, r.place FROM position p \
                     JOIN entry r ON r.seq = p.size - 1 WHERE p.size = (SELECT max(seq) + 1 FROM entry)";
        let row = sqlx::query(query).fetch_optional(&self.pool).await?;
        Ok(row.map(|row| Indexed {
            log: row.get(0),
            size: row.get::<i64, _>(1) as u64,
            head: row.get(2),
            last: (row.get::<i64, _>(3) as u64, row.get::<i64, _>(4) as u64, row.get::<i64, _>(5) as u64),
        }))
    }

    /// Whether the file is whole: every row in every index, and nothing else.
    pub async fn is_whole(&self) -> bool {
        let checked =
            sqlx::query_scalar::<_, String>("PRAGMA integrity_check(1)").fetch_one(&self.pool).await;
        checked.is_ok_and(|said| said == "ok")
    }

    /// Adds entries that follow those there are; `head` is the leaf hash of the last. Does nothing if somebody else added
    /// them meanwhile.
    pub async fn add(&self, log: &str, entries: &[Entry], head: &str) -> Result<(), StoreError> {
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return Ok(()) };
        let mut transaction = self.pool.begin_with("BEGIN IMMEDIATE").await?;
        let size: Option<i64> =
            sqlx::query_scalar("SELECT size FROM position").fetch_optional(&mut *transaction).await?;
        if size.unwrap_or(0) as u64 != first.seq {
            return Ok(());
        }
        let words = words(&mut transaction, entries).await?;
        for chunk in entries.chunks(AT_ONCE) {
            let mut insert: QueryBuilder<Sqlite> = QueryBuilder::new(
                "INSERT INTO entry (seq, segment, place, id, event, time, actor, tool, session, proposal, permit) ",
            );
            insert.push_values(chunk, |mut row, entry| {
                let word = |text: &str| words.get(text).copied();
                row.push_bind(entry.seq as i64)
                    .push_bind(entry.segment as i64)
                    .push_bind(entry.place as i64)
                    .push_bind(mark(&entry.id))
                    .push_bind(word(&entry.event))
                    .push_bind(entry.time.as_millis() as i64)
                    .push_bind(word(&entry.actor))
                    .push_bind(entry.tool.as_deref().and_then(word))
                    .push_bind(entry.session.as_deref().map(mark))
                    .push_bind(entry.proposal.as_deref().map(mark))
                    .push_bind(entry.permit.as_deref().map(mark));
            });
            insert.build().execute(&mut *transaction).await?;
        }
        sqlx::query("DELETE FROM position").execute(&mut *transaction).await?;
        sqlx::query("INSERT INTO position (log, size, head) VALUES (?1, ?2, ?3)")
            .bind(log)
            .bind(last.seq as i64 + 1)
            .bind(head)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Where the newest `most` records are that match, in order.
    pub async fn find(&self, wanted: &Wanted, most: usize) -> Result<Vec<Found>, StoreError> {
        let mut query: QueryBuilder<Sqlite> =
            QueryBuilder::new("SELECT seq, segment, place FROM entry WHERE 1 = 1");
        let marked = [
            ("session", &wanted.session),
            ("proposal", &wanted.proposal),
            ("id", &wanted.id),
            ("permit", &wanted.permit),
        ];
        for (column, value) in marked {
            if let Some(value) = value {
                query.push(format!(" AND {column} = ")).push_bind(mark(value));
            }
        }
        if let Some(actor) = &wanted.actor {
            query.push(" AND actor = (SELECT number FROM word WHERE text = ").push_bind(actor).push(")");
        }
        match &wanted.event {
            Some(group) if group.ends_with('.') => {
                // The dot's successor is the slash: everything that begins with the group lies between.
                let end = format!("{}/", group.trim_end_matches('.'));
                query.push(" AND event IN (SELECT number FROM word WHERE text >= ").push_bind(group);
                query.push(" AND text < ").push_bind(end).push(")");
            }
            Some(event) => {
                query.push(" AND event = (SELECT number FROM word WHERE text = ").push_bind(event).push(")");
            }
            None => {}
        }
        if let Some(tool) = &wanted.tool {
            query.push(" AND tool IN (SELECT number FROM word WHERE instr(text, ");
            query.push_bind(tool).push(") > 0)");
        }
        for (operator, value) in [(">=", wanted.since), ("<", wanted.until)] {
            if let Some(value) = value {
                query.push(format!(" AND time {operator} ")).push_bind(value.as_millis() as i64);
            }
        }
        query.push(" ORDER BY seq DESC LIMIT ").push_bind(i64::try_from(most).unwrap_or(i64::MAX));
        let rows = query.build().fetch_all(&self.pool).await?;
        let place = |row: &sqlx::sqlite::SqliteRow| {
            (row.get::<i64, _>(0) as u64, row.get::<i64, _>(1) as u64, row.get::<i64, _>(2) as u64)
        };
        Ok(rows.iter().rev().map(place).collect())
    }

    /// Lets go of the file.
    pub async fn close(self) {
        self.pool.close().await;
    }
}

/// Of an identifier, what is indexed: half of a digest's half. That two share one is not to be expected, and would be seen
/// when the record is read.
fn mark(id: &str) -> i64 {
    let digest = Sha256Digest::of(id.as_bytes());
    digest.as_bytes().first_chunk().map_or(0, |first| i64::from_be_bytes(*first))
}

/// The numbers of the words of `entries`; what is new gets one.
async fn words<'e>(
    transaction: &mut SqliteConnection,
    entries: &'e [Entry],
) -> Result<HashMap<&'e str, i64>, StoreError> {
    let texts =
        entries.iter().flat_map(|entry| [Some(&*entry.event), Some(&*entry.actor), entry.tool.as_deref()]);
    let mut words: HashMap<&str, i64> = texts.flatten().map(|text| (text, 0)).collect();
    for (text, number) in &mut words {
        let known = sqlx::query_scalar("SELECT number FROM word WHERE text = ?1").bind(*text);
        *number = match known.fetch_optional(&mut *transaction).await? {
            Some(known) => known,
            None => {
                let new =
                    sqlx::query_scalar("INSERT INTO word (text) VALUES (?1) RETURNING number").bind(*text);
                new.fetch_one(&mut *transaction).await?
            }
        };
    }
    Ok(words)
}

/// An index that is being made anew, beside the one it will replace.
#[derive(Debug)]
pub struct Rebuilding {
    index: Index,
    new: PathBuf,
    path: PathBuf,
}

impl Rebuilding {
    /// Begins an empty one for `path`.
    pub async fn begin(path: &Path) -> Result<Self, StoreError> {
        let new = path.with_added_extension("new");
        let _ = std::fs::remove_file(&new);
        make_private(&new)?;
        let index = Index::connect(&new, SqliteJournalMode::Off).await?;
        sqlx::raw_sql(TABLES).execute(&index.pool).await?;
        Ok(Self { index, new, path: path.into() })
    }

    /// See [`Index::add`].
    pub async fn add(&self, log: &str, entries: &[Entry], head: &str) -> Result<(), StoreError> {
        self.index.add(log, entries, head).await
    }

    /// Puts it in the place of the old one.
    pub async fn finish(self) -> Result<(), StoreError> {
        sqlx::raw_sql(INDEXES).execute(&self.index.pool).await?;
        self.index.close().await;
        let failed = |source| StoreError::Io { path: self.path.clone(), source };
        let mut journal = self.path.clone().into_os_string();
        journal.push("-journal");
        let _ = std::fs::remove_file(journal);
        std::fs::rename(&self.new, &self.path).map_err(failed)
    }
}
