//! Two rankings made one (CAT-69): each place is worth less than the one before it, and an item is worth its places in both.

/// How far down a ranking counts.
pub(crate) const DEPTH: usize = 200;
const CONSTANT: u32 = 60;
/// In tenths.
const LEXICAL: u32 = 10;
const SEMANTIC: u32 = 6;

/// Items by what both rankings together say, each with what it is worth; of equals the one with the lower place first.
pub(crate) fn fuse(lexical: &[usize], semantic: &[usize]) -> Vec<(usize, u32)> {
    let mut worth: Vec<(usize, u32)> = Vec::with_capacity(lexical.len() + semantic.len());
    for (weight, ranking) in [(LEXICAL, lexical), (SEMANTIC, semantic)] {
        let places = ranking.iter().take(DEPTH).zip(1u32..);
        worth.extend(places.map(|(item, place)| (*item, points(weight, place))));
    }
    worth.sort_unstable();
    worth.dedup_by(|second, first| {
        let same = second.0 == first.0;
        if same {
            first.1 += second.1;
        }
        same
    });
    worth.sort_by_key(|(item, worth)| (std::cmp::Reverse(*worth), *item));
    worth
}

/// What a place is worth.
fn points(weight: u32, place: u32) -> u32 {
    (weight << 20) / (CONSTANT + place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_both_rank_high_comes_first_and_words_count_more() {
        // CAT-69
        let items = |fused: Vec<(usize, u32)>| fused.into_iter().map(|(item, _)| item).collect::<Vec<_>>();
        assert_eq!(items(fuse(&[1, 2], &[3])), [1, 2, 3]);
        assert_eq!(items(fuse(&[1, 2], &[2])), [2, 1], "both together outweigh the first place of one");
        assert_eq!(items(fuse(&[], &[7, 5])), [7, 5]);
        assert_eq!(items(fuse(&[7, 5], &[])), [7, 5]);
    }

    #[test]
    fn what_is_far_down_counts_for_nothing() {
        // CAT-69
        let many: Vec<usize> = (0..DEPTH + 50).collect();
        assert_eq!(fuse(&many, &[]).len(), DEPTH);
    }
}
