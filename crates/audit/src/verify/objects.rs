//! Whether the evidence that records name is there (AUD-50). Addresses are digests of sealed bytes, so this needs no key.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::Path;

use portcullis_core::Sha256Digest;

use super::Problem;
use crate::error::{AuditError, ProblemKind};
use crate::event_name::EventName;
use crate::evidence::{KeyName, RetentionClass};
use crate::layout::Layout;
use crate::record::Record;
use crate::{files, pack, seal};

#[derive(Default)]
pub(super) struct Objects {
    named: HashMap<Sha256Digest, (u64, KeyName)>,
    destroyed: HashSet<KeyName>,
}

impl Objects {
    pub(super) fn take(&mut self, record: &Record) {
        for reference in &record.evidence {
            self.named.entry(reference.object).or_insert((record.seq, reference.key));
        }
        if record.event == EventName::AuditKeyDestroyed
            && let Some(key) = record.data["key"].as_str().and_then(|key| key.parse().ok())
        {
            self.destroyed.insert(key);
        }
    }

    /// Judges by the packs of a log.
    pub(super) fn finish(mut self, layout: &Layout) -> Result<Vec<Problem>, AuditError> {
        for class in RetentionClass::ALL {
            pack::objects(&layout.packs(class), |address, _| {
                self.named.remove(&address);
                Ok(())
            })?;
        }
        Ok(self.missing("is in no pack as it was sealed"))
    }

    /// Judges by the objects of an export, which has those of the records in `range` alone.
    pub(super) fn finish_export(
        mut self,
        evidence: &Path,
        range: Range<u64>,
    ) -> Result<Vec<Problem>, AuditError> {
        self.named.retain(|_, (seq, _)| range.contains(seq));
        // What did not come along, by the word of whoever exported: destroyed, or on record only since.
        let absent = files::read(&evidence.join("absent"))?;
        for line in String::from_utf8_lossy(&absent).lines() {
            if let Some(object) =
                line.split(' ').next().and_then(|object| object.parse::<Sha256Digest>().ok())
            {
                self.named.remove(&object);
            }
        }
        let present = |object: &Sha256Digest| {
            let bytes = files::read(&evidence.join("objects").join(object.to_string()));
            bytes.is_ok_and(|bytes| seal::intact(&bytes) && seal::address(&bytes) == *object)
        };
        self.named.retain(|object, _| !present(object));
        Ok(self.missing("is not in the export as it was sealed"))
    }

    fn missing(self, how: &str) -> Vec<Problem> {
        let destroyed = self.destroyed;
        let mut missing: Vec<Problem> = (self.named.into_iter())
            .filter(|(_, (_, key))| !destroyed.contains(key))
            .map(|(object, (seq, key))| {
                let detail = format!("evidence object {object} of key {key} {how}");
                Problem { seq, kind: ProblemKind::EvidenceMissing, detail }
            })
            .collect();
        missing.sort_unstable_by_key(|problem| problem.seq);
        missing
    }
}
