//! Evidence in exports (AUD-44): for one recipient, and nothing but what is exported.
//!
//! An export has each object exactly as it was sealed, in `evidence/objects/<address>`, so that its address still is
//! what the record says and the record is under the checkpoint: whoever opens it knows that these were the bytes. What is
//! sealed anew, for the recipient, is what opens them. A data key is not given away, it would open a whole day:
//! XChaCha20-Poly1305 derives from key and nonce a key for each object alone (HChaCha20), and those are in
//! `evidence/keys.age`, a line per object. `evidence/absent` names the objects that did not come along, and why.

use std::collections::HashMap;
use std::path::Path;

use portcullis_core::digest::to_hex;
use portcullis_core::{ProposalId, Sha256Digest};
use serde::Serialize;

use crate::age::{self, Recipient};
use crate::error::AuditError;
use crate::evidence::{EvidenceRef, RetentionClass};
use crate::export::{Exported, write};
use crate::log::AuditLog;
use crate::read::read_from;
use crate::{pack, seal};

/// The folder of an export that has the evidence.
pub(crate) const FOLDER: &str = "evidence";

/// What evidence came along with an export.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Disclosed {
    /// The objects in it.
    pub objects: u64,
    /// Those that its records name but that are not in it: their key was destroyed.
    pub destroyed: u64,
}

/// One line of `evidence/keys.age`.
#[derive(Serialize)]
struct ObjectKey<'a> {
    bytes: u64,
    key: String,
    object: Sha256Digest,
    proposal: Option<ProposalId>,
    role: &'a str,
    seq: u64,
}

/// A reference in the exported range.
struct Named {
    seq: u64,
    proposal: Option<ProposalId>,
    reference: EvidenceRef,
}

impl AuditLog {
    /// The objects that the records from `from` on and before `before` name and that can still be opened.
    pub fn evidence_of(&self, from: u64, before: u64) -> Result<Vec<Sha256Digest>, AuditError> {
        let kept = |named: &Named| self.ring().named(named.reference.key).is_some();
        Ok(self.named(from, before)?.into_iter().filter(kept).map(|named| named.reference.object).collect())
    }

    /// Adds to an export in `out` the evidence of its records before number `before`, for `recipient` to open.
    pub fn disclose(
        &self,
        exported: &Exported,
        before: u64,
        recipient: &Recipient,
        out: &Path,
    ) -> Result<Disclosed, AuditError> {
        let refuse = |problem: &str| AuditError::Layout { path: out.into(), problem: problem.into() };
        let folder = out.join(FOLDER);
        let mut wanted: HashMap<Sha256Digest, Named> = HashMap::new();
        let (mut disclosed, mut absent) = (Disclosed::default(), String::new());
        for named in self.named(exported.from, exported.from + exported.records)? {
            let object = named.reference.object;
            if named.seq >= before {
                absent.push_str(&format!("{object} later\n"));
            } else if self.ring().named(named.reference.key).is_none() {
                disclosed.destroyed += 1;
                absent.push_str(&format!("{object} destroyed\n"));
            } else {
                wanted.insert(object, named);
            }
        }
        let mut keys = String::new();
        for class in RetentionClass::ALL {
            pack::objects(&self.layout().packs(class), |address, object| {
                let Some(named) = wanted.remove(&address) else { return Ok(()) };
                write(&folder.join("objects").join(address.to_string()), object)?;
                let line =
                    self.object_key(&named, object).ok_or_else(|| refuse("lost a data key meanwhile"))?;
                keys.push_str(&line);
                keys.push('\n');
                disclosed.objects += 1;
                Ok(())
            })?;
        }
        if let Some(missing) = wanted.values().next() {
            let (object, problem) = (missing.reference.object, crate::error::EvidenceProblem::Missing);
            return Err(AuditError::Evidence { object, problem });
        }
        let sealed = age::seal(recipient, keys.as_bytes());
        zeroize::Zeroize::zeroize(&mut keys);
        write(
            &folder.join("keys.age"),
            &sealed.ok_or_else(|| refuse("cannot be sealed for that recipient"))?,
        )?;
        write(&folder.join("absent"), absent.as_bytes())?;
        Ok(disclosed)
    }

    fn object_key(&self, named: &Named, object: &[u8]) -> Option<String> {
        let key = self.ring().key_of_object(named.reference.key, seal::nonce(object)?)?;
        let line = ObjectKey {
            bytes: named.reference.bytes,
            key: to_hex(key.expose()),
            object: named.reference.object,
            proposal: named.proposal,
            role: named.reference.role.as_str(),
            seq: named.seq,
        };
        serde_json::to_string(&line).ok()
    }

    fn named(&self, from: u64, before: u64) -> Result<Vec<Named>, AuditError> {
        let mut found = Vec::new();
        for record in read_from(self.dir(), from)? {
            let record = record?;
            if record.seq >= before {
                break;
            }
            let (seq, proposal) = (record.seq, record.proposal);
            found.extend(record.evidence.into_iter().map(|reference| Named { seq, proposal, reference }));
        }
        Ok(found)
    }
}
