//! The evidence of an export: every object is what its record says, and, with the keys that its recipient unsealed,
//! opens to as many bytes as the record says.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{ChaCha20Poly1305, Key, KeyInit as _, Nonce};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::Finding;
use crate::log::Log;
use crate::tree::hex;

/// What was found out about evidence.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Looked {
    /// Objects that are what a record names.
    pub(crate) intact: u64,
    /// Those that were opened as well.
    pub(crate) opened: u64,
    /// Those that the export says are not in it.
    pub(crate) absent: u64,
}

/// Checks `evidence/` of an export, if there is one. `keys` is what `evidence/keys.age` holds.
pub(crate) fn check(
    dir: &Path,
    log: &Log,
    records: &[Value],
    keys: Option<&str>,
    found: &mut Vec<Finding>,
) -> Result<Looked, String> {
    let folder = dir.join("evidence");
    let mut looked = Looked::default();
    if !folder.is_dir() {
        return Ok(looked);
    }
    let absent = fs::read_to_string(folder.join("absent")).map_err(|error| format!("absent: {error}"))?;
    let absent: Vec<&str> = absent.lines().filter_map(|line| line.split(' ').next()).collect();
    let keys: HashMap<String, Value> = keys
        .unwrap_or_default()
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .map(|line| (line["object"].as_str().unwrap_or_default().to_owned(), line))
        .collect();
    for record in records {
        let seq = record["seq"].as_u64().unwrap_or_default();
        for reference in record["evidence"].as_array().into_iter().flatten() {
            let name = reference["object"].as_str().unwrap_or_default();
            if absent.contains(&name) {
                looked.absent += 1;
                continue;
            }
            let Ok(object) = fs::read(folder.join("objects").join(name)) else {
                found.push(Finding::new(seq, "evidence_missing", format!("object {name} is not there")));
                continue;
            };
            // len 4, crc 4, flags 1, then nonce and ciphertext, over which the address is.
            if object.len() < 49 || hex(&Sha256::digest(&object[9..])) != name {
                found.push(Finding::new(seq, "evidence_digest", format!("object {name} is another")));
                continue;
            }
            looked.intact += 1;
            let Some(key) = keys.get(name) else { continue };
            match open(&object, &log.id, record, reference, key) {
                Some(bytes) if Some(bytes) == reference["bytes"].as_u64() => looked.opened += 1,
                _ => found.push(Finding::new(seq, "evidence_digest", format!("object {name} does not open"))),
            }
        }
    }
    Ok(looked)
}

/// How many bytes an object opens to. Its own key and the last third of its nonce are all that is needed.
fn open(object: &[u8], log: &str, record: &Value, reference: &Value, key: &Value) -> Option<u64> {
    let key: [u8; 32] = unhex(key["key"].as_str()?)?.try_into().ok()?;
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&object[25..33]);
    let mut bound = ulid(log)?.to_vec();
    bound.extend_from_slice(reference["role"].as_str()?.as_bytes());
    bound.push(0);
    if let Some(proposal) = record["proposal"].as_str() {
        bound.extend_from_slice(&ulid(proposal)?);
    }
    let cipher = ChaCha20Poly1305::new(&Key::from(key));
    let payload = Payload { msg: &object[33..], aad: &bound };
    let mut content = cipher.decrypt(&Nonce::from(nonce), payload).ok()?;
    if object[8] & 1 == 1 {
        content =
            zstd::bulk::decompress(&content, usize::try_from(reference["bytes"].as_u64()?).ok()?).ok()?;
    }
    Some(content.len() as u64)
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let pair = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(pair).collect()
}

/// The sixteen bytes of a ULID: Crockford's base32, the first letter only three bits.
fn ulid(text: &str) -> Option<[u8; 16]> {
    let mut value = 0u128;
    for letter in text.bytes() {
        let digit = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ".iter().position(|known| *known == letter)?;
        value = value << 5 | digit as u128;
    }
    (text.len() == 26).then(|| value.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ulid_is_sixteen_bytes() {
        assert_eq!(ulid("00000000000000000000000001").unwrap()[15], 1);
        assert_eq!(ulid("7ZZZZZZZZZZZZZZZZZZZZZZZZZ").unwrap(), [255; 16]);
        assert_eq!(ulid("short"), None);
    }
}
