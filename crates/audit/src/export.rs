//! A log as a folder that anybody can check without us (AUD-30): the tree in the tlog-tiles layout, the records as
//! entry bundles and once more as lines of JSON, the checkpoint over them and the key it is checked with.

use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use portcullis_core::{LogId, Sha256Digest};
use serde::Serialize;

use crate::error::{AtPath as _, AuditError, ProblemKind};
use crate::files;
use crate::layout::Layout;
use crate::note::{NoteKey, SignedCheckpoint};
use crate::publisher;
use crate::read::raw_from;
use crate::tile::{self, WIDTH};

/// What was exported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Exported {
    /// The log.
    pub log: LogId,
    /// How many records the checkpoint is over.
    pub size: u64,
    /// The root over them.
    pub root: Sha256Digest,
    /// The first record in the export.
    pub from: u64,
    /// How many records are in it.
    pub records: u64,
}

/// Exports the records from `from` to `to` (all of them, if these are 0 and `None`) of the log in `dir` under its
/// newest checkpoint into `out`, which must not exist yet or be empty.
///
/// Entry bundles are whole, so a range may come with a few records before and after it in `tile/entries`;
/// `records.ndjson` has exactly the range.
pub fn export(
    dir: &Path,
    key: &NoteKey,
    from: u64,
    to: Option<u64>,
    out: &Path,
) -> Result<Exported, AuditError> {
    let (log, layout) = Layout::find(dir)?;
    let refuse = |problem: &str| AuditError::Layout { path: out.into(), problem: problem.into() };
    if out.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(refuse("is not empty; export into a new folder"));
    }
    let signed = publisher::newest(&layout.checkpoint(), std::slice::from_ref(key))?
        .ok_or_else(|| refuse("cannot be written: the log has no checkpoint yet"))?;
    let size = signed.checkpoint.size;
    let last = to.map_or(size, |to| to.saturating_add(1)).min(size);
    if from >= last {
        return Err(AuditError::Options {
            what: format!("there is no record {from} under the checkpoint of {size}"),
        });
    }
    files::create_dir_all(out)?;
    copy_tiles(&layout, size, out)?;
    write(&out.join("checkpoint"), signed.to_string().as_bytes())?;
    write(&out.join("vkey"), format!("{key}\n").as_bytes())?;
    let lines_path = out.join("records.ndjson");
    let mut lines = BufWriter::new(files::write_new(&lines_path, b"")?);
    let mut bundle = Bundle::default();
    let first_of_bundle = from - from % WIDTH as u64;
    let last_of_bundle = last.next_multiple_of(WIDTH as u64).min(size);
    let mut records = 0;
    for record in raw_from(dir, first_of_bundle)? {
        let record = record?;
        if record.seq >= last_of_bundle {
            break;
        }
        if (from..last).contains(&record.seq) {
            lines.write_all(&record.bytes).and_then(|()| lines.write_all(b"\n")).at(&lines_path)?;
            records += 1;
        }
        bundle.add(&record.bytes);
        if bundle.entries == WIDTH || record.seq + 1 == last_of_bundle {
            let name = tile::path("entries", record.seq / WIDTH as u64, bundle.entries);
            write(&out.join("tile").join(name), &std::mem::take(&mut bundle).bytes)?;
        }
    }
    let written = lines.into_inner().map_err(std::io::IntoInnerError::into_error).at(&lines_path)?;
    written.sync_all().at(&lines_path)?;
    Ok(Exported { log, size, root: signed.checkpoint.root, from, records })
}

pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), AuditError> {
    if let Some(folder) = path.parent() {
        files::create_dir_all(folder)?;
    }
    files::write_new(path, bytes).map(drop)
}

fn copy_tiles(layout: &Layout, size: u64, out: &Path) -> Result<(), AuditError> {
    let stored = layout.tlog().join("tile");
    let mut level = 0;
    while size >> (8 * level) > 0 {
        let here = size >> (8 * level);
        // The partial one first: a live log will replace it.
        for number in (0..here.div_ceil(WIDTH as u64)).rev() {
            let width = (here - number * WIDTH as u64).min(WIDTH as u64) as usize;
            let hashes = tile::read(&stored, level, number, width)?;
            let bytes: Vec<u8> = hashes.iter().flat_map(|hash| *hash.as_bytes()).collect();
            write(&out.join("tile").join(tile::path(&level.to_string(), number, width)), &bytes)?;
        }
        level += 1;
    }
    Ok(())
}

/// Records as the tile format bundles them: each with its length before it, two bytes big-endian.
#[derive(Default)]
pub(crate) struct Bundle {
    pub(crate) bytes: Vec<u8>,
    pub(crate) entries: usize,
}

impl Bundle {
    pub(crate) fn add(&mut self, record: &[u8]) {
        // Records are at most 16 KiB (AUD-10).
        self.bytes.extend_from_slice(&(record.len() as u16).to_be_bytes());
        self.bytes.extend_from_slice(record);
        self.entries += 1;
    }

    /// Takes a bundle apart; `None` if it is none.
    pub(crate) fn split(mut bytes: &[u8]) -> Option<Vec<&[u8]>> {
        let mut records = Vec::new();
        while !bytes.is_empty() {
            let (len, rest) = bytes.split_first_chunk::<2>()?;
            let (record, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
            records.push(record);
            bytes = rest;
        }
        Some(records)
    }
}

/// An exported log.
pub(crate) struct Export {
    pub(crate) dir: PathBuf,
    pub(crate) log: LogId,
    pub(crate) checkpoint: SignedCheckpoint,
    /// The first record of its first bundle, and where its bundles are.
    pub(crate) first: u64,
    bundles: Vec<PathBuf>,
}

impl Export {
    /// Whether `dir` looks like one.
    pub(crate) fn is_at(dir: &Path) -> bool {
        dir.join("checkpoint").is_file() && dir.join("tile/entries").is_dir()
    }

    pub(crate) fn open(dir: &Path) -> Result<Self, AuditError> {
        let wrong = |problem: &str| AuditError::Layout { path: dir.into(), problem: problem.into() };
        let checkpoint = publisher::newest(&dir.join("checkpoint"), &[])?
            .ok_or_else(|| wrong("is an export without a checkpoint"))?;
        let origin = &checkpoint.checkpoint.origin;
        let log = (origin.rsplit('/').next().and_then(|id| id.parse().ok()))
            .ok_or_else(|| wrong("has a checkpoint of something else than an audit log"))?;
        let (entries, size) = (dir.join("tile"), checkpoint.checkpoint.size);
        let mut bundles = Vec::new();
        let mut first = None;
        for number in 0..size.div_ceil(WIDTH as u64) {
            let width = (size - number * WIDTH as u64).min(WIDTH as u64) as usize;
            let path = entries.join(tile::path("entries", number, width));
            if path.is_file() {
                first.get_or_insert(number * WIDTH as u64);
                bundles.push(path);
            } else if first.is_some() {
                break;
            }
        }
        let first = first.ok_or_else(|| wrong("is an export without records"))?;
        Ok(Self { dir: dir.into(), log, checkpoint, first, bundles })
    }

    /// Every record in the bundles, in order.
    pub(crate) fn records(
        &self,
        mut each: impl FnMut(&[u8]) -> Result<(), AuditError>,
    ) -> Result<(), AuditError> {
        for path in &self.bundles {
            let bytes = files::read(path)?;
            let records = Bundle::split(&bytes).ok_or_else(|| AuditError::Corrupt {
                kind: ProblemKind::BadFrame,
                segment: path.clone(),
                offset: 0,
            })?;
            records.into_iter().try_for_each(&mut each)?;
        }
        Ok(())
    }

    /// The lines of `records.ndjson`.
    pub(crate) fn lines(&self) -> Result<impl Iterator<Item = std::io::Result<Vec<u8>>>, AuditError> {
        let path = self.dir.join("records.ndjson");
        let file = File::open(&path).at(&path)?;
        Ok(BufReader::new(file).split(b'\n'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_has_lengths_of_two_bytes_and_comes_apart_again() {
        // AUD-30
        let mut bundle = Bundle::default();
        bundle.add(b"ab");
        bundle.add(b"");
        assert_eq!(bundle.bytes, [0, 2, b'a', b'b', 0, 0]);
        assert_eq!(Bundle::split(&bundle.bytes).unwrap(), [&b"ab"[..], b""]);
        assert_eq!(Bundle::split(&bundle.bytes[..3]), None);
    }
}
