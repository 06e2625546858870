//! Where lines begin: one entry for sixty-four lines, so that a view finds its lines without reading the rest.

/// One entry for this many lines (CTX-40).
const STRIDE: u64 = 64;

/// How many lines a text has; a last one without its end counts.
pub(crate) fn count(text: &[u8]) -> u64 {
    let ends = memchr::memchr_iter(b'\n', text).count() as u64;
    ends + u64::from(text.last().is_some_and(|last| *last != b'\n'))
}

/// Where every sixty-fourth line of a text begins.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Index {
    lines: u64,
    starts: Vec<u32>,
}

impl Index {
    /// The index of a text of at most 4 GiB.
    pub(crate) fn of(text: &[u8]) -> Self {
        let mut starts = Vec::new();
        if !text.is_empty() {
            starts.push(0);
        }
        let mut lines = 0;
        for end in memchr::memchr_iter(b'\n', text) {
            lines += 1;
            if lines % STRIDE == 0 && end + 1 < text.len() {
                starts.push((end + 1) as u32);
            }
        }
        lines += u64::from(text.last().is_some_and(|last| *last != b'\n'));
        Self { lines, starts }
    }

    /// How many lines there are.
    pub(crate) fn lines(&self) -> u64 {
        self.lines
    }

    /// A place at or before the beginning of a line, and the number of the line that begins there.
    pub(crate) fn before(&self, line: u64) -> (u64, u64) {
        let entry = ((line / STRIDE) as usize).min(self.starts.len().saturating_sub(1));
        (self.starts.get(entry).copied().unwrap_or(0).into(), entry as u64 * STRIDE)
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.lines.to_be_bytes().to_vec();
        bytes.extend(self.starts.iter().flat_map(|start| start.to_be_bytes()));
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (lines, starts) = bytes.split_first_chunk::<8>()?;
        let starts = starts.chunks(4).map(|four| four.try_into().map(u32::from_be_bytes));
        Some(Self { lines: u64::from_be_bytes(*lines), starts: starts.collect::<Result<_, _>>().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_stands_for_sixty_four_lines() {
        // CTX-40
        let text = "ab\n".repeat(200);
        let index = Index::of(text.as_bytes());
        assert_eq!((index.lines(), count(text.as_bytes())), (200, 200));
        assert_eq!(index.starts, [0, 192, 384, 576]);
        assert_eq!(index.before(130), (384, 128));
        assert_eq!(index.before(5_000), (576, 192));
        assert_eq!(Index::from_bytes(&index.to_bytes()), Some(index));
        assert_eq!(Index::of(b"").lines(), 0);
        assert_eq!(Index::of(b"a\nb").lines(), 2);
        assert_eq!(Index::of("x\n".repeat(64).as_bytes()).starts, [0]);
        assert_eq!(Index::from_bytes(b"short"), None);
    }
}
