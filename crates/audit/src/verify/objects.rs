//! Whether the evidence that records name is there (AUD-50). Addresses are digests of sealed bytes, so this needs no key.

use std::collections::{HashMap, HashSet};

use portcullis_core::Sha256Digest;

use super::Problem;
use crate::error::{AuditError, ProblemKind};
use crate::event_name::EventName;
use crate::evidence::{KeyName, RetentionClass};
use crate::layout::Layout;
use crate::pack;
use crate::record::Record;

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

    pub(super) fn finish(mut self, layout: &Layout) -> Result<Vec<Problem>, AuditError> {
        for class in RetentionClass::ALL {
            pack::addresses(&layout.packs(class), |address| {
                self.named.remove(&address);
            })?;
        }
        let destroyed = self.destroyed;
        let mut missing: Vec<Problem> = (self.named.into_iter())
            .filter(|(_, (_, key))| !destroyed.contains(key))
            .map(|(object, (seq, key))| {
                let detail = format!("evidence object {object} of key {key} is in no pack as it was sealed");
                Problem { seq, kind: ProblemKind::EvidenceMissing, detail }
            })
            .collect();
        missing.sort_unstable_by_key(|problem| problem.seq);
        Ok(missing)
    }
}
