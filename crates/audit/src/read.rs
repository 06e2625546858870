//! Reading a log, live or not, without its lock.
//!
//! A reader gives out what commit frames cover and nothing else: whatever is being written right now has not
//! happened yet.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use portcullis_core::Sha256Digest;

use crate::cursor::{Cursor, Step};
use crate::error::{AuditError, ProblemKind};
use crate::frame;
use crate::layout::{Layout, Segment};
use crate::record::Record;

/// A turn being written while it is read looks damaged; it is looked at again this often before that is believed.
const SECOND_LOOKS: u32 = 5;

/// The committed records of the log in `dir`, which is a log's folder or one with exactly one log in it.
pub fn read(dir: &Path) -> Result<impl Iterator<Item = Result<Record, AuditError>> + use<>, AuditError> {
    read_from(dir, 0)
}

/// The committed records from number `seq` on.
pub fn read_from(
    dir: &Path,
    seq: u64,
) -> Result<impl Iterator<Item = Result<Record, AuditError>> + use<>, AuditError> {
    let records = raw_from(dir, seq)?;
    Ok(records.map(|raw| raw.and_then(|raw| raw.parse())))
}

/// A committed record as its bytes, and where they lie.
#[derive(Debug)]
pub(crate) struct RawRecord {
    /// Its number, by its place.
    pub(crate) seq: u64,
    /// The first record of its segment.
    pub(crate) first_seq: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) segment: Arc<Path>,
    /// Where its frame begins.
    pub(crate) offset: u64,
}

/// Where a committed record lies, for an index of the log (AUD-66).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Its number.
    pub seq: u64,
    /// The first record of the segment it is in.
    pub segment: u64,
    /// Where in that its frame begins.
    pub offset: u64,
}

/// A committed record, unparsed, and where it lies.
#[derive(Debug)]
pub struct Located {
    /// Where.
    pub place: Place,
    /// Its canonical bytes.
    pub bytes: Vec<u8>,
}

impl Located {
    /// Its leaf hash.
    pub fn leaf(&self) -> Sha256Digest {
        frame::leaf(&self.bytes)
    }
}

/// The committed records from the one at `from` on, that one included, or all; it is not looked for, so `from` must be
/// the place of a record that somebody found before.
pub fn located(
    dir: &Path,
    from: Option<Place>,
) -> Result<impl Iterator<Item = Result<Located, AuditError>> + use<>, AuditError> {
    let mut records = raw_from(dir, from.map_or(0, |place| place.segment))?;
    if let Some(place) = from {
        let begins = records.segments.front().is_some_and(|first| first.first_seq == place.segment);
        let segment = records.segments.pop_front().filter(|_| begins);
        let segment = segment.ok_or_else(|| AuditError::Layout {
            path: dir.into(),
            problem: format!("has no segment that begins with record {}", place.segment),
        })?;
        let mut cursor = Cursor::open(&segment.path)?;
        cursor.seek(place.offset.max(cursor.offset()));
        (records.cursor, records.next_seq, records.from) = (Some(cursor), place.seq, place.seq);
    }
    Ok(records.map(|raw| {
        let RawRecord { seq, bytes, first_seq, offset, .. } = raw?;
        Ok(Located { place: Place { seq, segment: first_seq, offset }, bytes })
    }))
}

/// The record at `place`; `None` if there is none, or another.
pub fn read_at(dir: &Path, place: Place) -> Result<Option<Record>, AuditError> {
    let found = located(dir, Some(place))?.next().transpose()?;
    Ok(found.and_then(|found| Record::parse(&found.bytes).ok()).filter(|record| record.seq == place.seq))
}

impl RawRecord {
    pub(crate) fn leaf(&self) -> Sha256Digest {
        frame::leaf(&self.bytes)
    }

    pub(crate) fn parse(&self) -> Result<Record, AuditError> {
        // Not a torn frame: its checksum is right.
        Record::parse(&self.bytes).map_err(|_| AuditError::Corrupt {
            kind: ProblemKind::NotCanonical,
            segment: self.segment.to_path_buf(),
            offset: self.offset,
        })
    }
}

/// The committed records from number `seq` on, unparsed.
pub(crate) fn raw_from(dir: &Path, seq: u64) -> Result<RawRecords, AuditError> {
    let (_, layout) = Layout::find(dir)?;
    let mut segments: VecDeque<Segment> = layout.list_segments()?.into();
    // The last segment that begins at or before the wanted record, and those after it.
    while segments.get(1).is_some_and(|next| next.first_seq <= seq) {
        segments.pop_front();
    }
    Ok(RawRecords {
        layout,
        segments,
        cursor: None,
        turn: VecDeque::new(),
        next_seq: 0,
        from: seq,
        done: false,
    })
}

/// The committed records, unparsed.
pub(crate) struct RawRecords {
    layout: Layout,
    segments: VecDeque<Segment>,
    cursor: Option<Cursor>,
    /// Records of a committed turn, not yet given out, with their places.
    turn: VecDeque<(u64, Vec<u8>)>,
    next_seq: u64,
    from: u64,
    done: bool,
}

impl Iterator for RawRecords {
    type Item = Result<RawRecord, AuditError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((offset, bytes)) = self.turn.pop_front() {
                let seq = self.next_seq;
                self.next_seq += 1;
                if seq >= self.from {
                    let (segment, first_seq) = match &self.cursor {
                        Some(cursor) => (cursor.shared_path(), cursor.header().first_seq),
                        None => (Arc::from(Path::new("")), 0),
                    };
                    return Some(Ok(RawRecord { seq, first_seq, bytes, segment, offset }));
                }
                continue;
            }
            if self.done {
                return None;
            }
            match self.next_turn() {
                Ok(true) => {}
                Ok(false) => self.done = true,
                Err(error) => {
                    self.done = true;
                    return Some(Err(error));
                }
            }
        }
    }
}

impl RawRecords {
    /// Reads the next turn; false at the end of the log.
    fn next_turn(&mut self) -> Result<bool, AuditError> {
        loop {
            let cursor = match &mut self.cursor {
                Some(cursor) => cursor,
                None => match self.segments.pop_front() {
                    Some(segment) => {
                        let cursor = self.cursor.insert(Cursor::open(&segment.path)?);
                        self.next_seq = cursor.header().first_seq;
                        cursor
                    }
                    None => return Ok(false),
                },
            };
            if read_turn(cursor, &mut self.turn)? {
                return Ok(true);
            }
            // The segment ended. A live log may have gone on to another since the folder was listed.
            if self.segments.is_empty() {
                let current = cursor.header().first_seq;
                let listed = self.layout.list_segments()?;
                self.segments = listed
                    .into_iter()
                    .filter(|s| s.first_seq > current && s.first_seq >= self.next_seq)
                    .collect();
                if self.segments.is_empty() {
                    return Ok(false);
                }
                // It may also have got a last turn between our look at its end and the listing.
                if read_turn(cursor, &mut self.turn)? {
                    return Ok(true);
                }
            }
            self.cursor = None;
        }
    }
}

/// Reads one turn up to its commit frame; false, with the cursor where it was, if there is no whole one.
fn read_turn(cursor: &mut Cursor, turn: &mut VecDeque<(u64, Vec<u8>)>) -> Result<bool, AuditError> {
    let start = cursor.offset();
    let mut looks = 0;
    loop {
        turn.clear();
        let problem = loop {
            let at = cursor.offset();
            match cursor.step()? {
                Step::Record(body) => turn.push_back((at, body.to_vec())),
                Step::Commit(_) => return Ok(true),
                Step::End if at == start => {
                    cursor.seek(start);
                    return Ok(false);
                }
                Step::End => break (at, ProblemKind::BadFrame),
                Step::Bad(kind) => break (at, kind),
            }
        };
        // A tail, a turn being written, or damage: only damage has a commit frame behind it that stays.
        turn.clear();
        let committed = cursor.find_commit(problem.0)?.is_some();
        cursor.seek(start);
        if !committed {
            return Ok(false);
        }
        looks += 1;
        if looks > SECOND_LOOKS {
            return Err(cursor.corrupt(problem.1, problem.0));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
