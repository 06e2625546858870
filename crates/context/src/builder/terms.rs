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
    if a.is_empty() && b.is_empty() {
        return 0.0;
    }
    let (mut i, mut j, mut common) = (0, 0, 0_usize);
    while i < a.len() && j < b.len() {
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
    common as f64 / (a.len() + b.len() - common) as f64
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
}
