//! Checkpoints: signed notes of three lines.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, VerifyingKey};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::Finding;
use crate::log::Log;
use crate::tree;

pub(crate) fn check(
    log: &Log,
    records: &[Value],
    pinned: Option<&str>,
    kept: &[String],
    found: &mut Vec<Finding>,
) {
    let named = records.iter().filter_map(|record| match record["event"].as_str()? {
        "system.initialized" => record["data"]["vkey"].as_str(),
        "audit.signer_rotated" => record["data"]["new"].as_str(),
        _ => None,
    });
    let keys: Vec<&str> = match pinned {
        Some(key) => vec![key],
        None => named.collect(),
    };
    let leaves = tree::leaves(log);
    let own = fs::read_to_string(log.tree.join("checkpoint")).ok();
    let notes = own.iter().map(|note| (note, "root_mismatch"));
    for (note, mismatch) in notes.chain(kept.iter().map(|note| (note, "inconsistent_checkpoint"))) {
        let Some((text, signatures)) = note.split_once("\n\n") else {
            found.push(Finding::new(0, "checkpoint_signature", "is not a signed note"));
            continue;
        };
        let text = format!("{text}\n");
        let mut lines = text.lines().skip(1);
        let size: usize = lines.next().and_then(|size| size.parse().ok()).unwrap_or(usize::MAX);
        let root = lines.next().unwrap_or_default();
        if !keys.iter().any(|key| signatures.lines().any(|line| signed(key, &text, line))) {
            found.push(Finding::new(size as u64, "checkpoint_signature", "no known key signed it"));
        }
        match leaves.get(..size) {
            None => found.push(Finding::new(
                leaves.len() as u64,
                "checkpoint_ahead",
                format!("it is over {size}"),
            )),
            Some(first) if STANDARD.encode(tree::root(first)) != root => {
                found.push(Finding::new(size as u64, mismatch, "the root is another"));
            }
            Some(_) => {}
        }
    }
}

fn signed(vkey: &str, text: &str, line: &str) -> bool {
    let check = || {
        let (name, rest) = vkey.trim().split_once('+')?;
        let key = STANDARD.decode(rest.split_once('+')?.1).ok()?;
        let (signer, signature) = line.strip_prefix("— ")?.split_once(' ')?;
        let signature = STANDARD.decode(signature).ok()?;
        let id = Sha256::new().chain_update(name).chain_update("\n").chain_update(&key).finalize();
        if signer != name || key.first() != Some(&1) || signature.get(..4)? != &id[..4] {
            return None;
        }
        let public = VerifyingKey::from_bytes(key.get(1..)?.try_into().ok()?).ok()?;
        public.verify_strict(text.as_bytes(), &Signature::from_slice(signature.get(4..)?).ok()?).ok()
    };
    check().is_some()
}
