//! The records of a log's segments, or of an export's bundles.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Finding;

/// What was read.
pub(crate) struct Log {
    pub(crate) id: String,
    /// The folder that has `tile/` and `checkpoint`.
    pub(crate) tree: PathBuf,
    pub(crate) records: Vec<Vec<u8>>,
    pub(crate) damage: Vec<Finding>,
}

pub(crate) fn read(dir: &Path) -> Result<Log, String> {
    if dir.join("tile/entries").is_dir() && dir.join("checkpoint").is_file() {
        return export(dir);
    }
    if dir.join("segments").is_dir() {
        return segments(dir);
    }
    // A folder with one log in it.
    let inside: Vec<PathBuf> = fs::read_dir(dir)
        .map_err(|error| format!("{}: {error}", dir.display()))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join("segments").is_dir())
        .collect();
    match inside.as_slice() {
        [one] => segments(one),
        _ => Err(format!("{}: not a log, not an export, and not a folder with one log", dir.display())),
    }
}

fn bytes(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn segments(dir: &Path) -> Result<Log, String> {
    let id = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut log = Log { id, tree: dir.join("tlog"), records: Vec::new(), damage: Vec::new() };
    let mut files: Vec<PathBuf> = fs::read_dir(dir.join("segments"))
        .map_err(|error| format!("{}: {error}", dir.display()))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "seg"))
        .collect();
    files.sort();
    for file in files {
        let content = bytes(&file)?;
        let at = log.records.len() as u64;
        if content.len() < 64 || &content[..8] != b"PCLSEG01" || number(&content[24..32]) != at {
            log.damage.push(Finding::new(
                at,
                "bad_frame",
                format!("{} is not the next segment", file.display()),
            ));
            return Ok(log);
        }
        frames(&content, &mut log);
    }
    Ok(log)
}

/// Frames up to the last commit; what comes after it was never acknowledged.
fn frames(content: &[u8], log: &mut Log) {
    let (mut at, mut turn) = (64, Vec::new());
    while at + 12 <= content.len() {
        let (len, kind) = (number(&content[at..at + 4]) as usize, content[at + 4]);
        if len == 0 {
            return;
        }
        let end = at + 12 + len;
        let seq = (log.records.len() + turn.len()) as u64;
        let intact = content.get(at + 12..end).is_some_and(|body| {
            let summed = crc32c::crc32c_append(crc32c::crc32c(&content[at..at + 5]), body);
            u64::from(summed) == number(&content[at + 8..at + 12])
        });
        if !intact {
            // Only damage has a commit after it; a torn end has not.
            if content[at..].windows(5).any(|window| window == [0, 0, 0, 44, 2]) {
                log.damage.push(Finding::new(seq, "bad_crc", format!("at byte {at}")));
            }
            return;
        }
        let body = &content[at + 12..end];
        match kind {
            1 => turn.push(body.to_vec()),
            2 if body.len() == 44 => {
                let (last, count) = (number(&body[..8]), number(&body[8..12]) as usize);
                let counted = count == turn.len() && count > 0;
                log.records.append(&mut turn);
                if last.checked_add(1) != Some(log.records.len() as u64) || !counted {
                    log.damage.push(Finding::new(last, "bad_frame", "a commit that seals other records"));
                }
            }
            _ => log.damage.push(Finding::new(seq, "bad_frame", format!("a frame of kind {kind}"))),
        }
        at = end;
    }
}

fn export(dir: &Path) -> Result<Log, String> {
    let checkpoint = String::from_utf8_lossy(&bytes(&dir.join("checkpoint"))?).into_owned();
    let mut lines = checkpoint.lines();
    let id = lines.next().and_then(|origin| origin.rsplit('/').next()).unwrap_or_default().to_owned();
    let size: u64 = lines.next().and_then(|size| size.parse().ok()).ok_or("the checkpoint has no size")?;
    let mut log = Log { id, tree: dir.into(), records: Vec::new(), damage: Vec::new() };
    for bundle in 0..size.div_ceil(256) {
        let width = (size - bundle * 256).min(256);
        let content = bytes(&dir.join("tile").join(crate::tree::name("entries", bundle, width)))?;
        let mut rest = content.as_slice();
        while rest.len() >= 2 {
            let len = number(&rest[..2]) as usize;
            let Some(record) = rest.get(2..2 + len) else {
                log.damage.push(Finding::new(log.records.len() as u64, "bad_frame", "a bundle that is cut"));
                return Ok(log);
            };
            log.records.push(record.to_vec());
            rest = &rest[2 + len..];
        }
    }
    Ok(log)
}
