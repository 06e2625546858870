//! Items that say what another says already (CTX-64).
//!
//! Equal sets of words are found by their hash, nearly equal ones by MinHash: of 120 permutations, 20 bands of 6 rows,
//! so that texts with 85 % of their words in common almost surely share a band. What shares one is compared exactly. The
//! cost is nearly linear in the number of items.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::score::Scored;
use super::terms::are_alike;
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
        if same.is_some_and(|other| are_alike(terms, &scored.terms[other], ALIKE)) {
            stage.fates[at] = Fate::Dropped(Reason::Duplicate);
            continue;
        }
        let (signature, outline) = (signature(terms, &seeds), Outline::of(terms));
        let mut compared = Vec::new();
        if may_go {
            compared.extend(same);
            bands.alike(&signature, &outline, &mut compared);
        }
        if compared.into_iter().any(|other| are_alike(terms, &scored.terms[other], ALIKE)) {
            stage.fates[at] = Fate::Dropped(Reason::Duplicate);
            continue;
        }
        exact.entry(whole).or_insert(at);
        bands.add(at, outline, &signature);
    }
}

/// Items by the bands of their signatures: for each band the item that was added last, and from each item the one that
/// was added to the same band before it.
#[derive(Default)]
struct Bands {
    last: HashMap<u64, u32, Plain>,
    items: Vec<Banded>,
}

struct Banded {
    at: usize,
    outline: Outline,
    before: [u32; BANDS],
}

const NONE: u32 = u32::MAX;

impl Bands {
    fn add(&mut self, at: usize, outline: Outline, signature: &[u64; BANDS]) {
        let own = self.items.len() as u32;
        let before = signature.map(|key| self.last.insert(key, own).unwrap_or(NONE));
        self.items.push(Banded { at, outline, before });
    }

    /// Those that share a band and may be alike, of as many as are compared at most.
    fn alike(&self, signature: &[u64; BANDS], outline: &Outline, compared: &mut Vec<usize>) {
        let (mut seen, mut looked_at) = ([NONE; MAX_COMPARED], compared.len());
        for (band, key) in signature.iter().enumerate() {
            let mut next = self.last.get(key).copied().unwrap_or(NONE);
            while next != NONE {
                let item = &self.items[next as usize];
                if !seen[..looked_at].contains(&next) {
                    let Some(place) = seen.get_mut(looked_at) else { return };
                    *place = next;
                    looked_at += 1;
                    if outline.may_be_like(&item.outline) {
                        compared.push(item.at);
                    }
                }
                next = item.before[band];
            }
        }
    }
}

/// A set of words in so few bits that most sets can be told apart without looking at their words.
struct Outline {
    words: u32,
    /// Each word is one of the bits, so that sets differ in at least as many words as their outlines do in bits.
    bits: u128,
}

impl Outline {
    fn of(terms: &[u64]) -> Self {
        // The upper bits of a product are the mixed ones.
        let bits = terms.iter().fold(0, |bits, term| bits | 1 << (term.wrapping_mul(STEP) >> 57));
        Self { words: terms.len() as u32, bits }
    }

    /// False only if the sets are not alike.
    fn may_be_like(&self, other: &Self) -> bool {
        let differing = f64::from((self.bits ^ other.bits).count_ones());
        // For sets of the same share, from |a| + |b| words: what is in one of them only.
        differing <= f64::from(self.words + other.words) * (1.0 - ALIKE) / (1.0 + ALIKE) + 1e-6
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
                *least = (*least).min((term ^ seed).wrapping_mul(STEP).rotate_left(29) ^ seed);
            }
        }
        // The seeds differ from band to band, so that keys of different bands do not meet.
        *band = least.into_iter().fold(rows[0], |key, row| mixed(key ^ row));
    }
    signature
}

/// 2^64 divided by the golden ratio: multiples of it are far apart.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The same on every machine.
fn seeds() -> [[u64; ROWS]; BANDS] {
    let mut seed = 0x5eed_0001_u64;
    [(); BANDS].map(|()| {
        [(); ROWS].map(|()| {
            seed = seed.wrapping_add(STEP);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outline_never_tells_apart_what_is_alike() {
        // CTX-64: candidates are verified exactly; what is not even looked at must not be alike
        let word = |n: u64| mixed(n + 1);
        for (words, missing, added) in
            (8..60_u64).flat_map(|w| (0..6).flat_map(move |m| (0..6).map(move |a| (w, m, a))))
        {
            let set = |range: std::ops::Range<u64>| {
                let mut set: Vec<u64> = range.map(word).collect();
                set.sort_unstable();
                set
            };
            let (a, b) = (set(0..words), set(missing..words + added));
            if are_alike(&a, &b, ALIKE) {
                assert!(Outline::of(&a).may_be_like(&Outline::of(&b)), "{words} {missing} {added}");
            }
        }
        let (a, b) = ((0..40).map(word).collect::<Vec<_>>(), (40..80).map(word).collect::<Vec<_>>());
        assert!(!Outline::of(&a).may_be_like(&Outline::of(&b)));
    }
}
