//! Words that were meant (CAT-64): the nearest known ones, by how many slips of the hand are between.

/// A known word, with what makes it quick to pass over.
#[derive(Debug, Clone)]
struct Known {
    word: Box<str>,
    letters: u32,
    chars: u8,
    /// How common it is, for choosing among equals.
    frequency: u32,
}

/// All known words.
#[derive(Debug, Default)]
pub(crate) struct Spelling {
    known: Vec<Known>,
}

impl Spelling {
    /// Of words and how often each is used. Words are distinct.
    pub(crate) fn new(words: impl Iterator<Item = (Box<str>, u32)>) -> Self {
        let known = words.filter_map(|(word, frequency)| {
            let chars = u8::try_from(word.chars().count()).ok()?;
            Some(Known { letters: letters(&word), chars, word, frequency })
        });
        let mut known: Vec<Known> = known.collect();
        known.sort_by(|a, b| (a.chars, &a.word).cmp(&(b.chars, &b.word)));
        Self { known }
    }

    /// The words that may have been meant, the likeliest first, eight at most.
    pub(crate) fn meant(&self, word: &str) -> Vec<&str> {
        let chars: Vec<char> = word.chars().collect();
        let allowed = match chars.len() {
            0..=3 => return Vec::new(),
            4..=7 => 1,
            8..=64 => 2,
            _ => return Vec::new(),
        };
        let mask = letters(word);
        let first = self.known.partition_point(|known| usize::from(known.chars) + allowed < chars.len());
        let mut found: Vec<(usize, u32, &str)> = Vec::new();
        for known in &self.known[first..] {
            if usize::from(known.chars) > chars.len() + allowed {
                break;
            }
            // Every slip changes at most two letters of the set.
            if (known.letters ^ mask).count_ones() as usize > 2 * allowed {
                continue;
            }
            if let Some(distance) = distance(&chars, &known.word, allowed) {
                found.push((distance, u32::MAX - known.frequency, &known.word));
            }
        }
        found.sort_unstable();
        found.truncate(8);
        found.into_iter().map(|(_, _, word)| word).collect()
    }
}

/// Which letters a word has, roughly.
fn letters(word: &str) -> u32 {
    word.chars().fold(0, |set, c| set | 1 << (c as u32 % 32))
}

/// Insertions, deletions, substitutions and swaps of neighbours, if there are no more than `allowed`.
fn distance(a: &[char], b: &str, allowed: usize) -> Option<usize> {
    let b: Vec<char> = b.chars().collect();
    let mut before: Vec<usize> = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let cost = usize::from(a[i - 1] != b[j - 1]);
            row[j] = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + cost);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        if row.iter().all(|value| *value > allowed) {
            return None;
        }
        before = std::mem::replace(&mut last, row);
    }
    Some(last[b.len()]).filter(|distance| *distance <= allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_words_take_one_slip_and_long_ones_two() {
        // CAT-64
        let words = ["issue", "issues", "repository", "invoice", "list", "lint"];
        let spelling = Spelling::new(words.iter().map(|word| ((*word).into(), 1)));
        assert_eq!(spelling.meant("isue"), ["issue"]);
        assert_eq!(spelling.meant("isseu"), ["issue"]);
        assert_eq!(spelling.meant("repostiroy"), ["repository"]);
        assert_eq!(spelling.meant("inovice"), ["invoice"]);
        assert_eq!(spelling.meant("lisst"), ["list"]);
        assert!(spelling.meant("lst").is_empty(), "three letters are too few");
        assert!(spelling.meant("ivnoyce").is_empty(), "two slips in seven letters");
    }

    #[test]
    fn among_equals_the_commoner_word_was_meant() {
        let spelling = Spelling::new([("cart".into(), 1), ("card".into(), 9)].into_iter());
        assert_eq!(spelling.meant("carx"), ["card", "cart"]);
    }
}
