//! Redacting a text that comes in pieces, with secrets found that lie across their borders (CTX-42).

use super::Redactor;

/// More than the longest bounded kind, a private key of sixteen kibibytes: so much of what came last is held back.
const OVERLAP: usize = 20 * 1024;
/// What is looked at in one go.
const WINDOW: usize = 96 * 1024;
/// A secret without end is cut here, so that memory stays bounded whatever is sent.
const LONGEST: usize = 512 * 1024;

/// A text on its way through the redactor.
#[derive(Debug)]
pub struct Redacting<'r> {
    redactor: &'r Redactor,
    held: String,
    count: u64,
}

impl<'r> Redacting<'r> {
    /// Begins a text.
    pub fn new(redactor: &'r Redactor) -> Self {
        Self { redactor, held: String::new(), count: 0 }
    }

    /// Takes the next piece and gives what is sure to be clean to `out`.
    pub fn push<E>(&mut self, mut piece: &str, out: &mut impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        while !piece.is_empty() {
            let room = (WINDOW.saturating_sub(self.held.len())).max(OVERLAP);
            let (now, later) = piece.split_at(piece.floor_char_boundary(room.max(4)));
            self.held.push_str(now);
            piece = later;
            if self.held.len() >= WINDOW {
                self.release(out)?;
            }
        }
        Ok(())
    }

    /// Gives the rest, and says how many secrets there were.
    pub fn finish<E>(mut self, out: &mut impl FnMut(&str) -> Result<(), E>) -> Result<u64, E> {
        let (clean, count) = self.redactor.redact(&self.held);
        out(&clean)?;
        self.count += count;
        Ok(self.count)
    }

    /// Everything but the last part, cut where no secret can be.
    fn release<E>(&mut self, out: &mut impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        let wanted = self.held.floor_char_boundary(self.held.len() - OVERLAP);
        let mut cut = wanted;
        // A secret across the cut goes whole with what comes later; so does one that may yet grow.
        let end = self.held.len();
        for place in self.redactor.places(&self.held) {
            if place.start < cut && (place.end > cut || place.end == end) {
                cut = place.start;
            }
        }
        if cut == 0 {
            if self.held.len() < LONGEST {
                return Ok(());
            }
            cut = wanted;
        }
        // What precedes a value decides whether it is one (`password=`), so the cut is put between words.
        let between = self.held[..cut].rfind(char::is_whitespace).map_or(0, |at| at + 1);
        if between > 0 && cut - between < OVERLAP {
            cut = self.held.floor_char_boundary(between);
        }
        let (clean, count) = self.redactor.redact(&self.held[..cut]);
        out(&clean)?;
        self.count += count;
        self.held.drain(..cut);
        Ok(())
    }
}

impl Redactor {
    /// Where secrets are, of all kinds; places may overlap.
    fn places(&self, text: &str) -> Vec<std::ops::Range<usize>> {
        let mut places: Vec<_> = match &self.credentials {
            Some(credentials) => credentials.find_iter(text).map(|found| found.range()).collect(),
            None => Vec::new(),
        };
        for kind in self.suspected(text) {
            places.extend(self.kinds[kind].find.all(text));
        }
        // From the end: a cut that moves forward must be held against everything before it.
        places.sort_by_key(|place| std::cmp::Reverse(place.start));
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn streamed(text: &str, piece: usize) -> (String, u64, usize) {
        let redactor = Redactor::default();
        let mut out = String::new();
        let mut put = |clean: &str| {
            out.push_str(clean);
            Ok::<(), Infallible>(())
        };
        let mut redacting = Redacting::new(&redactor);
        let (mut rest, mut most) = (text, 0);
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.floor_char_boundary(piece.max(4)).max(1));
            redacting.push(now, &mut put).unwrap();
            most = most.max(redacting.held.capacity());
            rest = later;
        }
        let count = redacting.finish(&mut put).unwrap();
        (out, count, most)
    }

    #[test]
    fn a_secret_across_a_border_is_found_wherever_the_border_is() {
        // CTX-42, T-CTX-3
        let pem =
            format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----", "MIIEabc/\n".repeat(300));
        let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl";
        let filler = "just words, and more of them. ";
        for before in
            [0, WINDOW - 10, WINDOW - OVERLAP - 10, WINDOW - OVERLAP - 700, 2 * WINDOW - OVERLAP - 5]
        {
            for secret in ["AKIAIOSFODNN7EXAMPLE", jwt, &pem, "password=correct-horse-battery"] {
                let begin: String = filler.chars().cycle().take(before).collect();
                let text = format!("{begin} {secret} {}", filler.repeat(9_000));
                let whole = Redactor::default().redact(&text);
                assert_eq!(whole.1, 1);
                for piece in [7_001, 65_536, 1 << 20] {
                    let (clean, count, _) = streamed(&text, piece);
                    assert_eq!(count, 1, "{before} {piece} {secret}");
                    assert_eq!(clean, *whole.0);
                }
            }
        }
    }

    #[test]
    fn memory_is_bounded_whatever_comes() {
        // CTX-40
        let endless = format!("eyJ{}", "abcdEFGH".repeat(400_000));
        let dotted = format!("eyJhbGciOiJI.eyJzdWIiOiIx.{}", "abcdEFGH".repeat(400_000));
        for text in [endless, dotted, "x".repeat(3 << 20), "-----BEGIN PRIVATE KEY-----".repeat(100_000)] {
            let (_, _, most) = streamed(&text, 65_536);
            assert!(most <= 1 << 20, "{most}");
        }
    }
}
