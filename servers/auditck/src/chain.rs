//! Records as documents, each naming the one before.

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::Finding;
use crate::log::Log;
use crate::tree::hex;

/// Reads and checks every record; gives back those that could be read.
pub(crate) fn check(log: &Log, found: &mut Vec<Finding>) -> Vec<Value> {
    let (mut prev, mut time, mut documents) = ("0".repeat(64), String::new(), Vec::new());
    for (seq, bytes) in log.records.iter().enumerate() {
        let seq = seq as u64;
        let leaf = hex(&Sha256::new().chain_update([0]).chain_update(bytes).finalize());
        let Ok(record) = serde_json::from_slice::<Value>(bytes) else {
            found.push(Finding::new(seq, "not_canonical", "is not JSON"));
            prev = leaf;
            continue;
        };
        // The members of a record are plain enough that compact output with sorted keys is the canonical form; numbers
        // that are not integers are written differently by everybody and are left alone.
        let has_fraction = bytes.windows(2).any(|pair| pair[0] == b'.' && pair[1].is_ascii_digit());
        if !has_fraction && record.to_string().as_bytes() != bytes.as_slice() {
            found.push(Finding::new(seq, "not_canonical", "is not the compact, sorted form of itself"));
        }
        if record["seq"].as_u64() != Some(seq) {
            found.push(Finding::new(seq, "seq_gap", format!("number {} stands here", record["seq"])));
        }
        if record["prev"] != prev.as_str() {
            found.push(Finding::new(seq, "prev_mismatch", "does not follow the record before it"));
        }
        if record["log"] != log.id.as_str() {
            found.push(Finding::new(seq, "bad_frame", "belongs to another log"));
        }
        if seq == 0 && record["event"] != "system.initialized" {
            found.push(Finding::new(0, "missing_genesis", "the log begins with something else"));
        }
        let now = record["time"].as_str().unwrap_or_default();
        if now < time.as_str() {
            found.push(Finding::new(seq, "time_regressed", "is older than the record before"));
        }
        (prev, time) = (leaf, now.to_owned());
        documents.push(record);
    }
    documents
}
