//! Items that say what another says already (CTX-64).
//!
//! Equal sets of words are found by their hash, nearly equal ones by MinHash: of 120 permutations, 20 bands of 6 rows,
//! so that texts with 85 % of their words in common almost surely share a band. What shares one is compared exactly. The
//! cost is nearly linear in the number of items.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::score::Scored;
use super::terms::jaccard;
use super::{Fate, Reason, Stage};
use crate::item::Kind;

const BANDS: usize = 20;
const ROWS: usize = 6;
const ALIKE: f64 = 0.85;
/// Short texts are alike without saying the same.
const MIN_TERMS: usize = 8;
/// How many are compared with one item.
const MAX_COMPARED: usize = 32;

pub(super) fn dedup(stage: &mut Stage<'_>, scored: &Scored) {
    let seeds = seeds();
    let mut exact: HashMap<u64, usize, Plain> = HashMap::default();
    let mut bands = Bands::default();
    // The best first, so that of two that are alike the better one stays.
    for at in scored.order.iter().copied() {
        let terms = &scored.terms[at];
        if terms.len() < MIN_TERMS {
            continue;
        }
        let whole = terms.iter().fold(0, |hash: u64, term| mixed(hash ^ term));
        let may_go = !matches!(stage.items[at].kind, Kind::UserTurn | Kind::Policy);
        // Equal ones are known without their signatures, which cost most.
        let same = exact.get(&whole).copied().filter(|_| may_go);
        if same.is_some_and(|other| jaccard(terms, &scored.terms[other]) >= ALIKE) {
            stage.fates[at] = Fate::Dropped(Reason::Duplicate);
            continue;
        }
        let signature = signature(terms, &seeds);
        let is_repeated = may_go && {
            let mut compared = Vec::new();
            compared.extend(same);
            bands.alike(&signature, &mut compared);
            compared.into_iter().any(|other| jaccard(terms, &scored.terms[other]) >= ALIKE)
        };
        if is_repeated {
            stage.fates[at] = Fate::Dropped(Reason::Duplicate);
            continue;
        }
        exact.entry(whole).or_insert(at);
        bands.add(at, &signature);
    }
}

/// Items by the bands of their signatures: for each band the item that was added last, and from each item the one that
/// was added to the same band before it.
#[derive(Default)]
struct Bands {
    last: HashMap<u64, u32, Plain>,
    items: Vec<(usize, [u32; BANDS])>,
}

const NONE: u32 = u32::MAX;

impl Bands {
    fn add(&mut self, at: usize, signature: &[u64; BANDS]) {
        let own = self.items.len() as u32;
        let before = signature.map(|key| self.last.insert(key, own).unwrap_or(NONE));
        self.items.push((at, before));
    }

    /// Those that share a band, until there are enough to compare.
    fn alike(&self, signature: &[u64; BANDS], compared: &mut Vec<usize>) {
        for (band, key) in signature.iter().enumerate() {
            let mut next = self.last.get(key).copied().unwrap_or(NONE);
            while next != NONE {
                if compared.len() >= MAX_COMPARED {
                    return;
                }
                let (at, before) = &self.items[next as usize];
                if !compared.contains(at) {
                    compared.push(*at);
                }
                next = before[band];
            }
        }
    }
}

/// Keys are hashes already.
type Plain = BuildHasherDefault<AsItIs>;

#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = mixed(self.0 ^ u64::from(*byte));
        }
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

/// One number for each band: six smallest hashes in one.
fn signature(terms: &[u64], seeds: &[[u64; ROWS]; BANDS]) -> [u64; BANDS] {
    let mut signature = [0; BANDS];
    for (band, rows) in signature.iter_mut().zip(seeds) {
        let mut least = [u64::MAX; ROWS];
        for term in terms {
            for (least, seed) in least.iter_mut().zip(rows) {
                *least =
                    (*least).min((term ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) ^ seed);
            }
        }
        // The seeds differ from band to band, so that keys of different bands do not meet.
        *band = least.into_iter().fold(rows[0], |key, row| mixed(key ^ row));
    }
    signature
}

/// The same on every machine.
fn seeds() -> [[u64; ROWS]; BANDS] {
    let mut seed = 0x5eed_0001_u64;
    [(); BANDS].map(|()| {
        [(); ROWS].map(|()| {
            seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mixed(seed)
        })
    })
}

/// SplitMix64's last step.
fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
