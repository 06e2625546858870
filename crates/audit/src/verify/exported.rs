//! Checking an export: the same records, out of bundles instead of segments.

use std::ops::Range;
use std::path::Path;

use portcullis_core::{Sha256Digest, Timestamp};

use super::objects::Objects;
use super::promises::Promises;
use super::seen::Reader;
use super::{Check, Checks, MAX_PROBLEMS, Problem, Report};
use crate::error::{AuditError, ProblemKind};
use crate::export::Export;
use crate::tile::Tiles;
use crate::tree::{self, Nodes as _};
use crate::{disclosure, frame};

/// Verifies the export in `dir`. One of all records is held to its checkpoint as a log is; of one that has only some,
/// each record must be where the tree says.
pub(super) fn verify(dir: &Path, checks: &Checks) -> Result<Report, AuditError> {
    let export = Export::open(dir)?;
    let whole = export.first == 0;
    let evidence = dir.join(disclosure::FOLDER);
    if checks.evidence && !evidence.is_dir() {
        let problem = "was exported without its evidence; export it with --with-evidence".into();
        return Err(AuditError::Layout { path: dir.into(), problem });
    }
    let mut range = None::<Range<u64>>;
    let mut check = Check {
        promises: Promises::read(dir, checks)?,
        checks: checks.clone(),
        objects: checks.evidence.then(Objects::default),
        reader: Reader::default(),
        log: export.log,
        next_seq: export.first,
        head: whole.then_some(Sha256Digest::ZERO),
        time: Timestamp::default(),
        checked: 0,
        size: 0,
        sealed: Sha256Digest::ZERO,
        problems: Vec::new(),
    };
    if !whole {
        check.promises.lose_track();
    }
    let (size, root) = (export.checkpoint.checkpoint.size, export.checkpoint.checkpoint.root);
    let mut tiles = Tiles::new(dir, size);
    let mut lines = export.lines()?.peekable();
    export.records(|record| {
        let (seq, leaf) = (check.next_seq, frame::leaf(record));
        if !whole {
            let proof =
                tiles.at(0, seq).and_then(|stored| Ok((stored, tree::inclusion(&mut tiles, seq, size)?)));
            let shown = proof.is_ok_and(|(stored, path)| {
                stored == leaf && tree::verify_inclusion(&leaf, seq, size, &path, &root)
            });
            if !shown {
                check.report(seq, ProblemKind::TileMismatch, "is not where the tree has another".into());
            }
        }
        check.record(record);
        // The lines are a copy for people's own tools; it must not tell another story.
        if lines.peek().is_some_and(|line| line.as_ref().is_ok_and(|line| line == record)) {
            lines.next();
            range = Some(range.as_ref().map_or(seq, |range| range.start)..seq + 1);
        }
        Ok(())
    })?;
    if lines.next().is_some() {
        let detail = "records.ndjson is not what the bundles have".to_owned();
        check.report(check.next_seq, ProblemKind::NotCanonical, detail);
    }
    check.size = check.next_seq;
    let head = check.head.unwrap_or(Sha256Digest::ZERO);
    let (checked, computed) = (check.checked, check.promises.root());
    let mut problems: Vec<Problem> = check.problems;
    if let Some(objects) = check.objects {
        problems.extend(objects.finish_export(&evidence, range.unwrap_or_default())?);
        problems.truncate(MAX_PROBLEMS);
    }
    let seen = if whole { check.size } else { size };
    problems.extend(check.promises.finish(seen).into_iter().take(MAX_PROBLEMS - problems.len()));
    let root = if whole { computed } else { Some(root) };
    Ok(Report { log: export.log, size: seen, head, root, checked, ok: problems.is_empty(), problems })
}
