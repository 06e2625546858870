//! Checking a log from its first byte to its last commit (AUD-50): frames, checksums, canonical form, numbers,
//! hashes, time, and the tree's promises. It reads only, takes no lock, and goes on after a finding, so that one
//! report names them all.

mod exported;
mod objects;
mod promises;
mod seen;

use std::path::{Path, PathBuf};
use std::time::Duration;

use portcullis_core::canon::{Limits, parse, to_jcs};
use portcullis_core::{LogId, Sha256Digest, Timestamp};
use serde::Serialize;
use serde_json::Value;

use crate::canonical;
use crate::cursor::{Cursor, Step};
use crate::error::{AuditError, ProblemKind};
use crate::event_name::EventName;
use crate::export::Export;
use crate::frame::{self, Commit};
use crate::layout::{Layout, Segment};
use crate::note::{NoteKey, SignedCheckpoint};
use crate::record::Record;

use objects::Objects;
use promises::Promises;
use seen::{Reader, Seen};

const MAX_PROBLEMS: usize = 1000;
/// How often a turn that looks damaged is looked at again before that is believed.
const SECOND_LOOKS: u32 = 5;

/// What verification found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The log.
    pub log: LogId,
    /// How many records are committed.
    pub size: u64,
    /// Leaf hash of the last of them.
    pub head: Sha256Digest,
    /// The root of the tree over all of them; `null` if some could not be read.
    pub root: Option<Sha256Digest>,
    /// How many records were looked at.
    pub checked: u64,
    /// Whether nothing was found.
    pub ok: bool,
    /// What was found, at most the first thousand.
    pub problems: Vec<Problem>,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The number of the record, or the one that should be there.
    pub seq: u64,
    /// What is wrong.
    pub kind: ProblemKind,
    /// The same for people.
    pub detail: String,
}

/// What to check, and against what.
#[derive(Debug, Clone, Default)]
pub struct Checks {
    /// Findings before this record are not reported.
    pub from: u64,
    /// Nor those after this one.
    pub to: Option<u64>,
    /// Checkpoints that were kept elsewhere, with the names to report them by.
    pub checkpoints: Vec<(String, SignedCheckpoint)>,
    /// Whether every evidence object that a record names must be there, unchanged, unless its key was destroyed.
    pub evidence: bool,
    /// The key that must have signed every checkpoint; without it, those that the log itself names.
    pub vkey: Option<NoteKey>,
}

impl Checks {
    fn covers(&self, seq: u64) -> bool {
        seq >= self.from && self.to.is_none_or(|to| seq <= to)
    }
}

/// Verifies the log in `dir`, which is a log's folder or one with exactly one log in it.
///
/// That the end of a log was not cut off, or all of it written anew by somebody who has its key, only a checkpoint
/// kept elsewhere can tell: see [`verify_with`].
pub fn verify(dir: &Path) -> Result<Report, AuditError> {
    verify_with(dir, &Checks::default())
}

/// [`verify`] against promises that were kept elsewhere.
pub fn verify_with(dir: &Path, checks: &Checks) -> Result<Report, AuditError> {
    if Export::is_at(dir) {
        return exported::verify(dir, checks);
    }
    let (log, layout) = Layout::find(dir)?;
    let mut check = Check {
        promises: Promises::read(&layout.tlog(), checks)?,
        checks: checks.clone(),
        objects: checks.evidence.then(Objects::default),
        reader: Reader::default(),
        log,
        next_seq: 0,
        head: Some(Sha256Digest::ZERO),
        time: Timestamp::default(),
        checked: 0,
        size: 0,
        sealed: Sha256Digest::ZERO,
        problems: Vec::new(),
    };
    let segments = layout.list_segments()?;
    for (index, segment) in segments.iter().enumerate() {
        check.segment(segment, index + 1 == segments.len())?;
    }
    if check.next_seq == 0 && check.problems.is_empty() {
        check.report(0, ProblemKind::MissingGenesis, "the log has no record".into());
    }
    if let Some(objects) = check.objects.take() {
        for problem in objects.finish(&layout)? {
            check.report(problem.seq, problem.kind, problem.detail);
        }
    }
    let (size, head, root) = (check.size, check.sealed, check.promises.root());
    let mut problems = check.problems;
    let promised = check.promises.finish(size);
    problems.extend(promised.into_iter().take(MAX_PROBLEMS - problems.len()));
    Ok(Report { log, size, head, root, checked: check.checked, ok: problems.is_empty(), problems })
}

struct Check {
    checks: Checks,
    promises: Promises,
    objects: Option<Objects>,
    reader: Reader,
    log: LogId,
    /// What the next record must continue.
    next_seq: u64,
    /// `None` after a record that could not be read.
    head: Option<Sha256Digest>,
    time: Timestamp,
    checked: u64,
    /// As far as commit frames reach.
    size: u64,
    sealed: Sha256Digest,
    problems: Vec<Problem>,
}

impl Check {
    fn segment(&mut self, segment: &Segment, last: bool) -> Result<(), AuditError> {
        let mut cursor = match Cursor::open(&segment.path) {
            Ok(cursor) => cursor,
            Err(AuditError::Corrupt { kind, segment, .. }) => {
                self.report(self.next_seq, kind, format!("{} has no segment header", file_name(&segment)));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let header = cursor.header();
        let name = file_name(&segment.path);
        if header.log != self.log || header.first_seq != segment.first_seq {
            self.report(
                segment.first_seq,
                ProblemKind::BadFrame,
                format!("the header of {name} is another segment's"),
            );
        }
        if header.first_seq != self.next_seq {
            let (kind, expected) = (ProblemKind::SeqGap, self.next_seq);
            self.report(
                expected,
                kind,
                format!("{name} begins with {}, {expected} is next", header.first_seq),
            );
            self.next_seq = header.first_seq;
            self.head = Some(header.prev);
            self.promises.lose_track();
        } else if self.head.is_some_and(|head| head != header.prev) {
            let detail =
                format!("the header of {name} does not follow record {}", self.next_seq.wrapping_sub(1));
            self.report(self.next_seq, ProblemKind::PrevMismatch, detail);
        }
        self.frames(&mut cursor, last)
    }

    fn frames(&mut self, cursor: &mut Cursor, last: bool) -> Result<(), AuditError> {
        // Whether since the last commit frame something could not be read, so that the next cannot be checked.
        let mut unread = false;
        let mut turn = Turn::default();
        let mut looks = 0;
        loop {
            let at = cursor.offset();
            let problem = match cursor.step()? {
                Step::Record(body) => {
                    turn.push(body);
                    continue;
                }
                Step::Commit(commit) => {
                    self.turn(&turn, Some(commit), unread, cursor.path());
                    turn.clear();
                    (unread, looks) = (false, 0);
                    continue;
                }
                Step::End => None,
                Step::Bad(kind) => Some(kind),
            };
            // What comes before a later commit frame was acknowledged; what does not is a tail (AUD-61).
            let empty = problem.is_none() && cursor.used_end(at)? == at;
            let Some((commit, end)) = (if empty { None } else { cursor.find_commit(at)? }) else {
                if !last && (problem.is_some() || !turn.is_empty()) {
                    let detail = format!(
                        "{} ends in an unfinished turn but is not the last",
                        file_name(cursor.path())
                    );
                    self.report(self.next_seq, ProblemKind::BadFrame, detail);
                }
                return Ok(());
            };
            if last && looks < SECOND_LOOKS {
                // A live log may be writing this very turn.
                looks += 1;
                std::thread::sleep(Duration::from_millis(2));
                cursor.seek(at);
                continue;
            }
            self.turn(&turn, None, true, cursor.path());
            turn.clear();
            let detail = format!("{} at byte {at}", file_name(cursor.path()));
            self.report(self.next_seq, problem.unwrap_or(ProblemKind::BadFrame), detail);
            self.promises.lose_track();
            match after_bad_frame(cursor, at, end)? {
                Some((next, was_record)) => {
                    cursor.seek(next);
                    // What the missing record was, and so what the next one must name, is unknown.
                    self.next_seq += u64::from(was_record);
                    self.head = if was_record { None } else { self.head };
                }
                None => {
                    cursor.seek(end);
                    (self.next_seq, self.head) = (commit.last_seq.wrapping_add(1), Some(commit.leaf));
                    (self.size, self.sealed) = (self.next_seq, commit.leaf);
                }
            }
            (unread, looks) = (true, 0);
        }
    }

    fn turn(&mut self, turn: &Turn, commit: Option<Commit>, unread: bool, path: &Path) {
        for record in turn.records() {
            self.record(record);
        }
        let Some(commit) = commit else { return };
        let whole = commit.last_seq.checked_add(1) == Some(self.next_seq)
            && self.head.is_none_or(|head| head == commit.leaf);
        let counted = unread || commit.count as usize == turn.len();
        if !(whole && counted) {
            let detail = format!("a commit frame of {} does not seal its records", file_name(path));
            self.report(commit.last_seq, ProblemKind::BadFrame, detail);
        }
        (self.size, self.sealed) = (self.next_seq, self.head.unwrap_or(commit.leaf));
    }

    fn record(&mut self, bytes: &[u8]) {
        let expected = self.next_seq;
        self.checked += u64::from(self.checks.covers(expected));
        let leaf = frame::leaf(bytes);
        self.promises.push(leaf);
        let Some(record) = self.seen(bytes) else {
            self.next_seq += 1;
            self.head = Some(leaf);
            return;
        };
        if record.log != self.log {
            self.report(expected, ProblemKind::BadFrame, format!("belongs to log {}", record.log));
        }
        if record.seq != expected {
            self.report(
                expected,
                ProblemKind::SeqGap,
                format!("record {} stands where {expected} belongs", record.seq),
            );
        }
        if expected == 0 && (record.event != EventName::SystemInitialized || record.seq != 0) {
            let detail = format!("the log begins with {} as number {}", record.event, record.seq);
            self.report(0, ProblemKind::MissingGenesis, detail);
        }
        if self.head.is_some_and(|head| head != record.prev) {
            let before = record.seq.wrapping_sub(1);
            let detail =
                format!("does not follow record {before} as it stands: one of the two was changed or moved");
            self.report(record.seq, ProblemKind::PrevMismatch, detail);
        }
        if record.time < self.time {
            let detail = format!("is of {}, the record before of {}", record.time, self.time);
            self.report(record.seq, ProblemKind::TimeRegressed, detail);
        }
        // Each record is judged by its own predecessor, so that one gap is one finding.
        self.next_seq = record.seq.wrapping_add(1);
        self.head = Some(leaf);
        self.time = self.time.max(record.time);
    }

    /// What a record says that others are held to; nothing if it is none, which is then reported. The long way is for what
    /// is not surely in order, and for what more must be known of.
    fn seen(&mut self, bytes: &[u8]) -> Option<Seen> {
        let says_more = |event| matches!(event, EventName::SystemInitialized | EventName::AuditSignerRotated);
        if self.objects.is_none()
            && let Some(seen) = self.reader.read(bytes).filter(|seen| !says_more(seen.event))
        {
            return Some(seen);
        }
        let record = match Record::parse(bytes) {
            Ok(record) => record,
            Err(error) => {
                let (kind, detail) = explain(bytes, &error);
                self.report(self.next_seq, kind, detail);
                return None;
            }
        };
        if !is_canonical(bytes) {
            let detail = "is not the canonical form of itself".into();
            self.report(self.next_seq, ProblemKind::NotCanonical, detail);
        }
        if let Some(objects) = &mut self.objects {
            objects.take(&record);
        }
        match record.event {
            EventName::SystemInitialized => self.promises.learn(record.data["vkey"].as_str()),
            EventName::AuditSignerRotated => self.promises.learn(record.data["new"].as_str()),
            _ => {}
        }
        let Record { event, log, prev, seq, time, .. } = record;
        Some(Seen { event, log, prev, seq, time })
    }

    fn report(&mut self, seq: u64, kind: ProblemKind, detail: String) {
        if self.checks.covers(seq) && self.problems.len() < MAX_PROBLEMS {
            self.problems.push(Problem { seq, kind, detail });
        }
    }
}

/// The records of one turn, side by side.
#[derive(Default)]
struct Turn {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Turn {
    fn push(&mut self, record: &[u8]) {
        self.bytes.extend_from_slice(record);
        self.ends.push(self.bytes.len());
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    fn records(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start..*end])
    }
}

/// If the frame at `at` says how long it is and a good frame follows it before `end`: where that one begins,
/// and whether the bad one was a record.
fn after_bad_frame(cursor: &mut Cursor, at: u64, end: u64) -> Result<Option<(u64, bool)>, AuditError> {
    let bytes = cursor.bytes(at, at + 5)?;
    let Some((len, [kind])) = bytes.split_first_chunk::<4>() else { return Ok(None) };
    let next = at + frame::FRAME_HEAD as u64 + u64::from(u32::from_be_bytes(*len));
    if *len == [0; 4] || next >= end {
        return Ok(None);
    }
    let was_record = *kind != frame::COMMIT;
    cursor.seek(next);
    Ok(matches!(cursor.step()?, Step::Record(_) | Step::Commit(_)).then_some((next, was_record)))
}

/// Whether a record, which is JSON, is the canonical form of itself.
///
/// Nearly every record can be told by looking at it once. Where a serialiser's text could differ from a forger's (an
/// escape, a negative zero) and where the look is not enough, it is read and written again.
fn is_canonical(bytes: &[u8]) -> bool {
    if canonical::is_surely_canonical(bytes) {
        return true;
    }
    let limits = Limits { bytes: bytes.len(), depth: 127, nodes: bytes.len() };
    parse(bytes, limits)
        .ok()
        .and_then(|value| to_jcs(&value).ok())
        .is_some_and(|canonical| canonical == bytes)
}

fn explain(bytes: &[u8], error: &serde_json::Error) -> (ProblemKind, String) {
    let event = serde_json::from_slice::<Value>(bytes)
        .ok()
        .and_then(|value| Some(value.get("event")?.as_str()?.to_owned()));
    match event {
        Some(event) if event.parse::<EventName>().is_err() => (
            ProblemKind::UnknownEvent,
            format!("is a {}, which is no event", portcullis_core::error::one_line(&event)),
        ),
        _ => (ProblemKind::NotCanonical, format!("is not a record: {error}")),
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(PathBuf::new, PathBuf::from).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_canonical_spelling_passes() {
        // AUD-10
        for good in [r#"{"a":1,"b":[true,null,-5,0.5],"c":"é\n"}"#, r#"{"a":[0,10]}"#] {
            assert!(is_canonical(good.as_bytes()), "{good}");
        }
        for bad in [
            r#"{"a":-0}"#,
            r#"{"a":[-0]}"#,
            r#"{"a":[1,-0]}"#,
            r#"{"a":"\u0041"}"#,
            r#"{"a":"\/"}"#,
            r#"{"b":1,"a":2}"#,
            r#"{"a":1,"a":1}"#,
            r#"{"a":1.0}"#,
            r#"{"a":1e2}"#,
            r#"{"a": 1}"#,
            r#"{"a":1} "#,
        ] {
            assert!(!is_canonical(bad.as_bytes()), "{bad}");
        }
    }
}
