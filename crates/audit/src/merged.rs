//! The records of several logs or exports in the order they happened, as far as their clocks agree.

use std::path::{Path, PathBuf};

use crate::error::AuditError;
use crate::export::Export;
use crate::read::read;
use crate::record::Record;

type Records = Box<dyn Iterator<Item = Result<Record, AuditError>>>;

/// The records of all of `dirs`, each in its own order, together by time.
pub(crate) fn merged(
    dirs: &[PathBuf],
) -> Result<impl Iterator<Item = Result<Record, AuditError>>, AuditError> {
    let mut sources = Vec::with_capacity(dirs.len());
    for dir in dirs {
        sources.push(records(dir)?.peekable());
    }
    Ok(std::iter::from_fn(move || {
        let earliest = (sources.iter_mut().enumerate())
            .filter_map(|(index, source)| {
                let time = match source.peek()? {
                    Ok(record) => Some(record.time),
                    // An error comes out at once.
                    Err(_) => None,
                };
                Some((time, index))
            })
            .min()?;
        sources[earliest.1].next()
    }))
}

fn records(dir: &Path) -> Result<Records, AuditError> {
    if !Export::is_at(dir) {
        return Ok(Box::new(read(dir)?));
    }
    let mut records = Vec::new();
    Export::open(dir)?.records(|bytes| {
        records.push(Record::parse(bytes).map_err(|_| AuditError::Layout {
            path: dir.into(),
            problem: "has something in its bundles that is no record".into(),
        }));
        Ok(())
    })?;
    Ok(Box::new(records.into_iter()))
}
