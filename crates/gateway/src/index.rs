//! The index of the log (AUD-66): made, brought up to date and asked.
//!
//! It costs no call anything: whoever asks first adds what was recorded since the last question. Everything found is read
//! from the log itself. An index that is missing or not of this log is not used, and the log is read from end to end;
//! the next start, or `audit rebuild-index`, makes it anew.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use portcullis_audit::{AuditError, AuditLog, Located, Place, Record, located, read, read_at};
use portcullis_core::Timestamp;
use portcullis_store::{Entry, Index, Rebuilding, StoreError};
use serde::Deserialize;

pub use portcullis_store::Wanted;

const BATCH: usize = 4096;

/// Why an index could not be used or made.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The log cannot be read.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// The index cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It is not the index of this log as it is.
    #[error("the index does not fit the log: {0}")]
    Unfit(&'static str),
}

/// The newest `most` records of the log in `dir` that match, in order: by the index where there is one, else by reading
/// everything.
pub async fn search(dir: &Path, wanted: &Wanted, most: usize) -> Result<Vec<Record>, AuditError> {
    match by_index(dir, wanted, most).await {
        Ok(found) => Ok(found),
        Err(error) => {
            tracing::debug!("reading the whole log: {error}");
            by_reading(dir, wanted, most)
        }
    }
}

async fn by_index(dir: &Path, wanted: &Wanted, most: usize) -> Result<Vec<Record>, IndexError> {
    let path = index_in(dir).ok_or(IndexError::Unfit("there is none"))?;
    let index = Index::open(&path).await?;
    let found = async {
        catch_up(dir, &index).await?;
        Ok::<_, IndexError>(index.find(wanted, most).await?)
    };
    let found = found.await;
    index.close().await;
    let mut records = Vec::new();
    for (seq, segment, offset) in found? {
        let record = read_at(dir, Place { seq, segment, offset })?;
        let record = record.filter(|record| matches(wanted, record));
        records.push(record.ok_or(IndexError::Unfit("a record is not where it should be"))?);
    }
    Ok(records)
}

/// The same without an index.
pub fn by_reading(dir: &Path, wanted: &Wanted, most: usize) -> Result<Vec<Record>, AuditError> {
    let mut newest = std::collections::VecDeque::new();
    for record in read(dir)? {
        let record = record?;
        if matches(wanted, &record) {
            if newest.len() == most {
                newest.pop_front();
            }
            newest.push_back(record);
        }
    }
    newest.truncate(most);
    Ok(newest.into())
}

/// Whether a record is what was asked for.
pub fn matches(wanted: &Wanted, record: &Record) -> bool {
    let event = record.event.as_str();
    let same = |wanted: &Option<String>, found: Option<String>| {
        wanted.as_ref().is_none_or(|wanted| found.as_ref() == Some(wanted))
    };
    let is_event =
        |wanted: &String| event == wanted || (wanted.ends_with('.') && event.starts_with(wanted.as_str()));
    let is_tool =
        |wanted: &String| record.tool_id.as_ref().is_some_and(|id| id.as_str().contains(wanted.as_str()));
    wanted.event.as_ref().is_none_or(is_event)
        && wanted.tool.as_ref().is_none_or(is_tool)
        && same(&wanted.session, record.session.map(|id| id.to_string()))
        && same(&wanted.proposal, record.proposal.map(|id| id.to_string()))
        && same(&wanted.actor, Some(record.actor.to_string()))
        && same(&wanted.id, Some(record.id.to_string()))
        && same(&wanted.permit, record.data["permit_id"].as_str().map(ToOwned::to_owned))
        && wanted.since.is_none_or(|since| record.time >= since)
        && wanted.until.is_none_or(|until| record.time < until)
}

/// Adds what was recorded since the index was last asked.
async fn catch_up(dir: &Path, index: &Index) -> Result<(), IndexError> {
    let indexed = index.indexed().await?.ok_or(IndexError::Unfit("it does not say how far it goes"))?;
    let (seq, segment, offset) = indexed.last;
    let mut records = located(dir, Some(Place { seq, segment, offset }))?;
    let last = records.next().ok_or(IndexError::Unfit("it is ahead of the log"))??;
    if last.leaf().to_string() != indexed.head {
        return Err(IndexError::Unfit("its last record is another"));
    }
    let mut batch = Batch::default();
    for record in records {
        batch.push(record?)?;
        if batch.entries.len() == BATCH {
            index.add(&indexed.log, &batch.entries, &batch.head()).await?;
            batch.entries.clear();
        }
    }
    Ok(index.add(&indexed.log, &batch.entries, &batch.head()).await?)
}

/// Makes the index of a log anew; how many records it has.
pub async fn rebuild(dir: &Path, path: &Path, log: &str) -> Result<u64, IndexError> {
    let rebuilding = Rebuilding::begin(path).await?;
    let (mut batch, mut count) = (Batch::default(), 0);
    for record in located(dir, None)? {
        batch.push(record?)?;
        count += 1;
        if batch.entries.len() == BATCH {
            rebuilding.add(log, &batch.entries, &batch.head()).await?;
            batch.entries.clear();
        }
    }
    rebuilding.add(log, &batch.entries, &batch.head()).await?;
    rebuilding.finish().await?;
    Ok(count)
}

/// What is wrong with the index of an open log; `None` if nothing is.
pub(crate) async fn fault(log: &AuditLog) -> Option<&'static str> {
    let path = log.index_path();
    if !path.exists() {
        return Some("missing");
    }
    let Ok(index) = Index::open(&path).await else { return Some("unreadable") };
    let fault = if !index.is_whole().await {
        Some("damaged")
    } else {
        match index.indexed().await {
            Ok(Some(indexed)) if indexed.log == log.id().to_string() => {
                catch_up(log.dir(), &index).await.err().map(|_| "inconsistent")
            }
            _ => Some("inconsistent"),
        }
    };
    index.close().await;
    fault
}

/// The index of the one log in `dir`, if it exists.
fn index_in(dir: &Path) -> Option<PathBuf> {
    let own = dir.join("index.db");
    if own.is_file() {
        return Some(own);
    }
    let mut found = std::fs::read_dir(dir).ok()?.flatten().map(|entry| entry.path().join("index.db"));
    found.find(|path| path.is_file())
}

/// Entries on their way into the index.
#[derive(Default)]
struct Batch {
    entries: Vec<Entry>,
    last: Option<Located>,
    time: Option<(String, Timestamp)>,
}

impl Batch {
    /// Leaf hash of the last one.
    fn head(&self) -> String {
        self.last.as_ref().map(|last| last.leaf().to_string()).unwrap_or_default()
    }

    fn push(&mut self, record: Located) -> Result<(), IndexError> {
        #[derive(Deserialize)]
        struct Line<'a> {
            #[serde(borrow)]
            actor: Actor<'a>,
            #[serde(borrow)]
            data: Data<'a>,
            event: &'a str,
            id: &'a str,
            proposal: Option<&'a str>,
            session: Option<&'a str>,
            time: &'a str,
            #[serde(borrow)]
            tool_id: Option<Cow<'a, str>>,
        }
        #[derive(Deserialize)]
        struct Actor<'a> {
            #[serde(borrow)]
            id: Cow<'a, str>,
            kind: &'a str,
        }
        #[derive(Deserialize)]
        struct Data<'a> {
            #[serde(borrow, default)]
            permit_id: Option<Cow<'a, str>>,
        }
        let line: Line<'_> = serde_json::from_slice(&record.bytes)
            .map_err(|_| IndexError::Unfit("a record cannot be read"))?;
        // The records of a turn have one time.
        let time = match &self.time {
            Some((text, time)) if text == line.time => *time,
            _ => {
                let time = line.time.parse().map_err(|_| IndexError::Unfit("a record cannot be read"))?;
                self.time.insert((line.time.to_owned(), time)).1
            }
        };
        let own = |text: Option<&str>| text.map(ToOwned::to_owned);
        let Place { seq, segment, offset } = record.place;
        self.entries.push(Entry {
            seq,
            segment,
            place: offset,
            id: line.id.to_owned(),
            event: line.event.to_owned(),
            time,
            actor: format!("{}:{}", line.actor.kind, line.actor.id),
            tool: own(line.tool_id.as_deref()),
            session: own(line.session),
            proposal: own(line.proposal),
            permit: own(line.data.permit_id.as_deref()),
        });
        self.last = Some(record);
        Ok(())
    }
}
