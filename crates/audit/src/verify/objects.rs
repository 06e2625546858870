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
    named: HashMap<Sha256Digest, Named>,
    destroyed: HashSet<KeyName>,
}

/// The first record that names an object, and what it says of it.
struct Named {
    seq: u64,
    key: KeyName,
    bytes: u64,
}

impl Objects {
    pub(super) fn take(&mut self, record: &Record) {
        for reference in &record.evidence {
            let named = Named { seq: record.seq, key: reference.key, bytes: reference.bytes };
            self.named.entry(reference.object).or_insert(named);
        }
        if record.event == EventName::AuditKeyDestroyed
            && let Some(key) = record.data["key"].as_str().and_then(|key| key.parse().ok())
        {
            self.destroyed.insert(key);
        }
    }

    /// Judges by the packs of a log.
    pub(super) fn finish(mut self, layout: &Layout) -> Result<Vec<Problem>, AuditError> {
        let mut damaged = Vec::new();
        for class in RetentionClass::ALL {
            pack::objects(&layout.packs(class), |address, object| {
                if seal::intact(object) {
                    self.named.remove(&address);
                } else {
                    damaged.push((class, object.len(), object[seal::OBJECT_HEAD]));
                }
                Ok(())
            })?;
        }
        // What an object was cannot be told from what is left of it, but whether it can have been this one.
        let was_changed = |_: &Sha256Digest, named: &Named| {
            damaged.iter().any(|(class, len, flags)| {
                *class == named.key.class() && seal::may_hold(*len, *flags, named.bytes)
            })
        };
        Ok(self.missing("packs", was_changed))
    }

    /// Judges by the objects of an export, which has those of the records in `range` alone.
    pub(super) fn finish_export(
        mut self,
        evidence: &Path,
        range: Range<u64>,
    ) -> Result<Vec<Problem>, AuditError> {
        self.named.retain(|_, named| range.contains(&named.seq));
        // What did not come along, by the word of whoever exported: destroyed, or on record only since.
        let absent = files::read(&evidence.join("absent"))?;
        for line in String::from_utf8_lossy(&absent).lines() {
            if let Some(object) =
                line.split(' ').next().and_then(|object| object.parse::<Sha256Digest>().ok())
            {
                self.named.remove(&object);
            }
        }
        let place = |object: &Sha256Digest| evidence.join("objects").join(object.to_string());
        let present = |object: &Sha256Digest| {
            let bytes = files::read(&place(object));
            bytes.is_ok_and(|bytes| seal::intact(&bytes) && seal::address(&bytes) == *object)
        };
        self.named.retain(|object, _| !present(object));
        Ok(self.missing("export", |object, _| place(object).exists()))
    }

    /// What is left is not there as it was sealed: `was_changed` says which of it is there in another form.
    fn missing(self, place: &str, was_changed: impl Fn(&Sha256Digest, &Named) -> bool) -> Vec<Problem> {
        let destroyed = self.destroyed;
        let mut missing: Vec<Problem> = (self.named.into_iter())
            .filter(|(_, named)| !destroyed.contains(&named.key))
            .map(|(object, named)| {
                let (kind, what) = if was_changed(&object, &named) {
                    (ProblemKind::EvidenceDigest, "was changed")
                } else {
                    (ProblemKind::EvidenceMissing, "is missing")
                };
                let detail = format!("evidence object {object} of key {} {what} in the {place}", named.key);
                Problem { seq: named.seq, kind, detail }
            })
            .collect();
        missing.sort_unstable_by_key(|problem| problem.seq);
        missing
    }
}
