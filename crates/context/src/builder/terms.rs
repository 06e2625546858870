//! The words of a text as a set of numbers: enough to compare texts.

/// The distinct words of a text, hashed and sorted.
pub(super) fn terms(text: &str) -> Vec<u64> {
    let mut terms: Vec<u64> = Vec::new();
    let mut hash = OFFSET;
    let mut inside = false;
    for c in text.chars() {
        if c.is_ascii_alphanumeric() {
            // Most are: no tables needed.
            inside = true;
            hash = (hash ^ u64::from(c.to_ascii_lowercase() as u32)).wrapping_mul(PRIME);
        } else if c.is_alphanumeric() {
            inside = true;
            for lower in c.to_lowercase() {
                for byte in lower.encode_utf8(&mut [0; 4]).bytes() {
                    hash = (hash ^ u64::from(byte)).wrapping_mul(PRIME);
                }
            }
        } else if inside {
            terms.push(hash);
            (hash, inside) = (OFFSET, false);
        }
    }
    if inside {
        terms.push(hash);
    }
    terms.sort_unstable();
    terms.dedup();
    terms
}

/// FNV-1a: short words, no adversary that could gain anything, and the same on every machine.
const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

/// How much two sets have in common.
pub(super) fn jaccard(a: &[u64], b: &[u64]) -> f64 {
    in_common(a, b, 0.0).unwrap_or(0.0)
}

/// Whether two sets have at least that share in common. Most that do not are known after their first few words.
pub(super) fn are_alike(a: &[u64], b: &[u64], share: f64) -> bool {
    in_common(a, b, share).is_some_and(|common| common >= share)
}

/// How much two sets have in common; nothing if it is less than `least` for sure.
fn in_common(a: &[u64], b: &[u64], least: f64) -> Option<f64> {
    if a.is_empty() && b.is_empty() {
        return None;
    }
    // c / (a + b - c) >= least, for c; rounded down, so that only what is sure is given up.
    let needed = ((a.len() + b.len()) as f64 * least / (1.0 + least)) as usize;
    let (mut i, mut j, mut common) = (0, 0, 0_usize);
    while i < a.len() && j < b.len() {
        if common + (a.len() - i).min(b.len() - j) < needed {
            return None;
        }
        match a[i].cmp(&b[j]) {
            std::cmp::Ordering::Less => i += 1,
            std::cmp::Ordering::Greater => j += 1,
            std::cmp::Ordering::Equal => {
                common += 1;
                i += 1;
                j += 1;
            }
        }
    }
    Some(common as f64 / (a.len() + b.len() - common) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_compared_by_their_words() {
        assert_eq!(terms("Open the OPEN invoice, ünïcode!").len(), 4);
        let (a, b) = (terms("open invoices of March"), terms("March: open invoices"));
        assert_eq!(jaccard(&a, &b), 0.75);
        assert_eq!(jaccard(&[], &[]), 0.0);
    }

    #[test]
    fn who_gives_up_early_decides_as_who_counts_to_the_end() {
        // CTX-64
        for (a, b) in (0..64_u64).flat_map(|n| (0..64).map(move |m| (n, m))) {
            let set = |from: u64, step: u64| (0..20).map(|k| from % 8 + k * step).collect::<Vec<_>>();
            let (a, b) = (set(a, 1 + a / 32), set(b, 1 + b / 32));
            for share in [0.0, 0.5, 0.85, 1.0] {
                assert_eq!(are_alike(&a, &b, share), jaccard(&a, &b) >= share, "{a:?} {b:?} {share}");
            }
        }
        assert!(!are_alike(&[], &[], 0.85));
    }
}
