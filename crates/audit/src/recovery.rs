//! Finding the end of a log, and what to do if it is frayed (AUD-61).
//!
//! Whoever wrote last may have died while writing. What the last commit frame covers was acknowledged and must
//! be there; what lies after it was not, and is a *tail*: it is kept in `quarantine/`, erased from the segment,
//! and the next record says so. Damage anywhere before is not a tail but corruption, and the log stays shut.
//!
//! One case needs care. A turn is written in one piece, but a machine that loses power may have put its last
//! block on the disk and not its first. Then a valid commit frame follows a hole, and nobody was told that the
//! turn was durable. It is a tail all the same, and it can be told from decay: the blocks were zeros before, so
//! what a torn write leaves out are whole sectors of zeros, and nothing can follow it in the segment.

use std::path::{Path, PathBuf};

use portcullis_core::{LogId, Sha256Digest, Timestamp};
use serde::Serialize;

use crate::cursor::{Cursor, Step};
use crate::error::{AtPath as _, AuditError, ProblemKind};
use crate::files;
use crate::frame::{self, HEADER_LEN};
use crate::layout::{Layout, Segment};
use crate::record::Links;

const SECTOR: u64 = 512;

/// Where a log ends.
#[derive(Debug)]
pub(crate) struct Tail {
    /// The number of the next record.
    pub(crate) next_seq: u64,
    /// Leaf hash of the last record.
    pub(crate) head: Sha256Digest,
    /// Time of the last record.
    pub(crate) last_time: Timestamp,
    /// The segment it ends in.
    pub(crate) segment: PathBuf,
    /// Where in it the next turn goes.
    pub(crate) offset: u64,
    /// How long the segment is.
    pub(crate) len: u64,
}

/// A tail that was cut off: the data of `audit.tail_repaired`.
#[derive(Debug, Serialize)]
pub(crate) struct Repair {
    bytes: u64,
    offset: u64,
    segment: String,
    sha256: Sha256Digest,
}

/// Reads the end of the log and cuts off a torn tail. `None`: the log has no segment yet.
///
/// A log that ends before the size one of its checkpoints `promised` has lost acknowledged records: nothing is cut.
pub(crate) fn recover(
    layout: &Layout,
    log: LogId,
    promised: &[(PathBuf, u64)],
) -> Result<Option<Tail>, AuditError> {
    let segments = layout.list_segments()?;
    let Some(last) = segments.last() else { return hold_to(promised, 0).map(|()| None) };
    let mut end = scan(log, last)?;
    if end.last_time.is_none()
        && let Some(before) = segments.len().checked_sub(2)
    {
        // The log died between beginning a segment and writing to it.
        let before = scan(log, &segments[before])?;
        if (before.next_seq, before.head) != (end.next_seq, end.head) {
            let (kind, segment) = (ProblemKind::PrevMismatch, last.path.clone());
            return Err(AuditError::Corrupt { kind, segment, offset: 0 });
        }
        end.last_time = before.last_time;
    }
    hold_to(promised, end.next_seq)?;
    cut(layout, &last.path, &end)?;
    Ok(Some(Tail {
        next_seq: end.next_seq,
        head: end.head,
        last_time: end.last_time.unwrap_or_default(),
        segment: last.path.clone(),
        offset: end.offset,
        len: end.len,
    }))
}

fn hold_to(promised: &[(PathBuf, u64)], size: u64) -> Result<(), AuditError> {
    match promised.iter().find(|(_, promised)| *promised > size) {
        Some((path, promised)) => Err(AuditError::Checkpoint {
            path: path.clone(),
            kind: ProblemKind::CheckpointAhead,
            detail: format!("it was made over {promised} records, the log has {size}"),
        }),
        None => Ok(()),
    }
}

struct End {
    next_seq: u64,
    head: Sha256Digest,
    last_time: Option<Timestamp>,
    offset: u64,
    len: u64,
    /// What lies after the end, up to its last byte that is not zero.
    tail: Vec<u8>,
}

/// Walks a segment from its header to its last commit, checking every link.
fn scan(log: LogId, segment: &Segment) -> Result<End, AuditError> {
    let mut cursor = Cursor::open(&segment.path)?;
    let header = cursor.header();
    if header.log != log || header.first_seq != segment.first_seq {
        return Err(cursor.corrupt(ProblemKind::BadFrame, 0));
    }
    let mut end = End {
        next_seq: header.first_seq,
        head: header.prev,
        last_time: None,
        offset: HEADER_LEN as u64,
        len: cursor.file_len()?,
        tail: Vec::new(),
    };
    // As far as the turn being read goes.
    let (mut seq, mut head, mut time) = (end.next_seq, end.head, None);
    loop {
        let at = cursor.offset();
        let problem = match cursor.step()? {
            Step::Record(body) => match serde_json::from_slice::<Links>(body) {
                Ok(links) if links.seq == seq && links.prev == head => {
                    (seq, head, time) = (seq + 1, frame::leaf(body), Some(links.time));
                    continue;
                }
                Ok(links) if links.seq != seq => ProblemKind::SeqGap,
                Ok(_) => ProblemKind::PrevMismatch,
                Err(_) => ProblemKind::NotCanonical,
            },
            Step::Commit(commit) => {
                let count = seq - end.next_seq;
                if count > 0
                    && commit.last_seq == seq - 1
                    && u64::from(commit.count) == count
                    && commit.leaf == head
                {
                    (end.next_seq, end.head, end.last_time, end.offset) = (seq, head, time, cursor.offset());
                    continue;
                }
                ProblemKind::BadFrame
            }
            Step::End => ProblemKind::BadFrame,
            Step::Bad(kind) => kind,
        };
        end.tail = judge_tail(&mut cursor, &end, at, problem)?;
        return Ok(end);
    }
}

/// Decides whether what follows the last commit is a tail or damage; `problem` was met at byte `at`.
fn judge_tail(cursor: &mut Cursor, end: &End, at: u64, problem: ProblemKind) -> Result<Vec<u8>, AuditError> {
    let tail = cursor.bytes(end.offset, cursor.used_end(end.offset)?)?;
    if tail.is_empty() {
        return Ok(tail);
    }
    if let Some((commit, commit_end)) = cursor.find_commit(end.offset)? {
        let next_turn = commit.last_seq.checked_add(1) == end.next_seq.checked_add(u64::from(commit.count));
        let nothing_follows = cursor.find_commit(commit_end)?.is_none();
        if !(next_turn && nothing_follows && has_hole(&cursor.bytes(end.offset, commit_end)?, end.offset)) {
            return Err(cursor.corrupt(problem, at));
        }
    }
    Ok(tail)
}

/// Whether some sector of these bytes, which begin at `offset` of the file, was never written.
fn has_hole(bytes: &[u8], offset: u64) -> bool {
    let first = ((SECTOR - offset % SECTOR) % SECTOR) as usize;
    let (partial, whole) = bytes.split_at(first.min(bytes.len()));
    // A frame can begin with two zero bytes, so a hole at the edge must be wider than that to be one.
    let unwritten = |piece: &[u8]| piece.len() > 2 && piece.iter().all(|&byte| byte == 0);
    unwritten(partial) || whole.chunks(SECTOR as usize).any(unwritten)
}

/// Keeps the tail in quarantine and erases it from the segment. The file in quarantine is `pending` until the
/// record about it is durable: a crash in between must not lose the record.
fn cut(layout: &Layout, segment: &Path, end: &End) -> Result<(), AuditError> {
    if end.tail.is_empty() {
        return Ok(());
    }
    let name = segment.file_stem().and_then(|name| name.to_str()).unwrap_or("segment");
    let kept = layout.quarantine().join(format!("{name}-{}.pending", end.offset));
    files::replace(&kept, &end.tail)?;
    let file = files::open_rw(segment)?;
    std::os::unix::fs::FileExt::write_all_at(&file, &vec![0; end.tail.len()], end.offset).at(segment)?;
    file.sync_all().at(segment)
}

/// The repairs that no record tells of yet, with the files to [`settle`] when one does.
pub(crate) fn pending_repairs(layout: &Layout) -> Result<Vec<(PathBuf, Repair)>, AuditError> {
    let dir = layout.quarantine();
    let mut pending = Vec::new();
    for entry in std::fs::read_dir(&dir).at(&dir)? {
        let path = entry.at(&dir)?.path();
        let name =
            path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".pending"));
        let Some((segment, offset)) = name.and_then(|name| name.split_once('-')) else { continue };
        let Ok(offset) = offset.parse() else { continue };
        let bytes = std::fs::read(&path).at(&path)?;
        let repair = Repair {
            bytes: bytes.len() as u64,
            offset,
            segment: format!("{segment}.seg"),
            sha256: Sha256Digest::of(&bytes),
        };
        pending.push((path, repair));
    }
    pending.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    Ok(pending)
}

/// The repair is on record: its file becomes an ordinary one.
pub(crate) fn settle(pending: &Path) -> Result<(), AuditError> {
    let mut number = 0;
    let mut settled = pending.with_extension("tail");
    // The same place can fray twice.
    while settled.exists() {
        number += 1;
        settled = pending.with_extension(format!("{number}.tail"));
    }
    files::rename(pending, &settled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_is_a_sector_of_zeros_and_nothing_less() {
        let mut bytes = vec![1u8; 2000];
        assert!(!has_hole(&bytes, 100));
        bytes[412..924].fill(0);
        assert!(has_hole(&bytes, 100), "the second sector of the file begins at byte 412 of these");
        assert!(!has_hole(&bytes, 101), "not aligned: no disk leaves that out");
        let mut bytes = vec![1u8; 2000];
        bytes[..12].fill(0);
        assert!(has_hole(&bytes, 500));
        assert!(!has_hole(&bytes, 400));
    }
}
