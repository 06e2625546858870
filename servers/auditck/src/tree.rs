//! The Merkle tree, by its definition.

use std::fs;

use sha2::{Digest as _, Sha256};

use crate::Finding;
use crate::log::Log;

type Hash = [u8; 32];

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// MTH of RFC 6962.
pub(crate) fn root(leaves: &[Hash]) -> Hash {
    match leaves {
        [] => Sha256::digest(b"").into(),
        [one] => *one,
        _ => {
            let mut split = 1;
            while split * 2 < leaves.len() {
                split *= 2;
            }
            let (left, right) = leaves.split_at(split);
            Sha256::new()
                .chain_update([1])
                .chain_update(root(left))
                .chain_update(root(right))
                .finalize()
                .into()
        }
    }
}

pub(crate) fn leaves(log: &Log) -> Vec<Hash> {
    let leaf = |record: &Vec<u8>| Sha256::new().chain_update([0]).chain_update(record).finalize().into();
    log.records.iter().map(leaf).collect()
}

/// `x001/x234/067`, with `.p/W` if it is not full.
pub(crate) fn name(level: &str, number: u64, width: u64) -> String {
    let width_of_number = number.to_string().len().div_ceil(3) * 3;
    let digits = format!("{number:0>width_of_number$}");
    let groups: Vec<&str> = (0..digits.len()).step_by(3).map(|at| &digits[at..at + 3]).collect();
    let (last, before) = groups.split_last().expect("there is always one group");
    let path: String = before.iter().map(|group| format!("x{group}/")).collect();
    let partial = if width == 256 { String::new() } else { format!(".p/{width}") };
    format!("{level}/{path}{last}{partial}")
}

/// Compares the stored tiles with the records, as far as the checkpoint goes; the root over all records.
pub(crate) fn check(log: &Log, found: &mut Vec<Finding>) -> String {
    let leaves = leaves(log);
    let covered = fs::read_to_string(log.tree.join("checkpoint"))
        .ok()
        .and_then(|text| text.lines().nth(1)?.parse::<usize>().ok())
        .unwrap_or(0);
    if covered <= leaves.len() {
        let mut level_hashes = leaves[..covered].to_vec();
        let mut level = 0;
        while !level_hashes.is_empty() {
            for (number, tile) in level_hashes.chunks(256).enumerate() {
                let name = name(&level.to_string(), number as u64, tile.len() as u64);
                let stored = fs::read(log.tree.join("tile").join(&name)).unwrap_or_default();
                if stored != tile.concat() {
                    let seq = (number as u64) << (8 * (level + 1));
                    found.push(Finding::new(seq, "tile_mismatch", format!("tile {name}")));
                }
            }
            level_hashes = level_hashes.chunks_exact(256).map(root).collect();
            level += 1;
        }
    }
    hex(&root(&leaves))
}
