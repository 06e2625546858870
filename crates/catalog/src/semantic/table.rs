//! A table of static embeddings: one vector per piece of a word, whatever stands around it.
//!
//! The text of a query or an item is the mean of the vectors of its words. The file holds, little-endian: the eight bytes
//! `PCLEMB01`; how many pieces, how long vectors are, how many bytes all pieces have together (`u32` each); the length of each
//! piece (`u8`); the pieces, UTF-8; how much each vector weighs (`u16`); the vectors (`i8`), each scaled so that its largest
//! number is 127. `cargo xtask embeddings` writes one.

use portcullis_core::Sha256Digest;

use super::pieces::Pieces;
use super::{SemanticError, SemanticScorer};
use crate::search::analysis::{StopWords, terms};

const MAGIC: &[u8; 8] = b"PCLEMB01";
const MAX_PIECES: usize = 1 << 20;
const MAX_DIM: usize = 4096;
/// How a vector whose largest number is one weighs.
const WEIGHT_OF_ONE: f32 = 512.0;
/// More words than this say nothing new.
const MAX_WORDS: usize = 256;

/// Static embeddings in memory.
pub struct StaticTable {
    digest: Sha256Digest,
    dim: usize,
    pieces: Pieces,
    weights: Box<[u16]>,
    vectors: Box<[i8]>,
}

impl std::fmt::Debug for StaticTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StaticTable({} pieces, {} dimensions, {})", self.weights.len(), self.dim, self.digest)
    }
}

impl StaticTable {
    /// Reads the bytes of a file, which must have this digest if one is given.
    pub fn parse(bytes: &[u8], expected: Option<Sha256Digest>) -> Result<Self, SemanticError> {
        let digest = Sha256Digest::of(bytes);
        if let Some(expected) = expected.filter(|expected| *expected != digest) {
            return Err(SemanticError::Digest { found: digest.to_string(), expected: expected.to_string() });
        }
        let mut rest = bytes;
        let mut take = |count: usize| {
            let (taken, left) =
                rest.split_at_checked(count).ok_or(SemanticError::Format("the file ends too early"))?;
            rest = left;
            Ok::<_, SemanticError>(taken)
        };
        if take(MAGIC.len())? != MAGIC {
            return Err(SemanticError::Format("it does not begin with PCLEMB01"));
        }
        let mut number = || {
            let four = take(4)?;
            Ok::<_, SemanticError>(u32::from_le_bytes([four[0], four[1], four[2], four[3]]) as usize)
        };
        let (count, dim, piece_bytes) = (number()?, number()?, number()?);
        if !(1..=MAX_PIECES).contains(&count) || !(1..=MAX_DIM).contains(&dim) || piece_bytes > count * 255 {
            return Err(SemanticError::Format("its sizes are out of range"));
        }
        let lengths = take(count)?;
        let text = std::str::from_utf8(take(piece_bytes)?)
            .map_err(|_| SemanticError::Format("its pieces are not UTF-8"))?;
        let pieces = Pieces::new(text, lengths)
            .ok_or(SemanticError::Format("its pieces do not add up, or one is there twice"))?;
        let weights =
            take(2 * count)?.chunks_exact(2).map(|two| u16::from_le_bytes([two[0], two[1]])).collect();
        let vectors = take(count * dim)?.iter().map(|byte| i8::from_le_bytes([*byte])).collect();
        if !rest.is_empty() {
            return Err(SemanticError::Format("there is something behind its end"));
        }
        Ok(Self { digest, dim, pieces, weights, vectors })
    }

    /// The bytes of a file: pieces in the order in which they are joined, each with its vector, all equally long.
    ///
    /// ```
    /// use portcullis_catalog::{SemanticScorer as _, StaticTable};
    ///
    /// let joined = [("\u{2581}", [0.0, 0.0]), ("o", [0.0, 0.0]), ("k", [0.0, 0.0]), ("\u{2581}o", [0.0, 0.0]), ("\u{2581}ok", [3.0, 4.0])];
    /// let file = StaticTable::encode(joined.iter().map(|(piece, vector)| (*piece, &vector[..]))).unwrap();
    /// let table = StaticTable::parse(&file, None).unwrap();
    /// assert_eq!(&*table.embed("OK").unwrap(), [76, 101]);
    /// ```
    pub fn encode<'p>(pieces: impl Iterator<Item = (&'p str, &'p [f32])>) -> Result<Vec<u8>, SemanticError> {
        let (mut lengths, mut text) = (Vec::new(), Vec::new());
        let (mut weights, mut vectors) = (Vec::new(), Vec::new());
        let mut dim = None;
        for (piece, vector) in pieces {
            let length =
                u8::try_from(piece.len()).map_err(|_| SemanticError::Format("a piece is too long"))?;
            if *dim.get_or_insert(vector.len()) != vector.len()
                || !vector.iter().all(|value| value.is_finite())
            {
                return Err(SemanticError::Format("a vector is not like the others"));
            }
            lengths.push(length);
            text.extend_from_slice(piece.as_bytes());
            let largest = vector.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
            let weight = (largest * WEIGHT_OF_ONE).round().min(f32::from(u16::MAX)) as u16;
            weights.extend(weight.to_le_bytes());
            let scale = if largest > 0.0 { 127.0 / largest } else { 0.0 };
            vectors.extend(vector.iter().map(|value| ((value * scale).round() as i8).to_le_bytes()[0]));
        }
        let mut file = MAGIC.to_vec();
        for number in [lengths.len(), dim.unwrap_or_default(), text.len()] {
            let number = u32::try_from(number).map_err(|_| SemanticError::Format("it is too large"))?;
            file.extend(number.to_le_bytes());
        }
        for part in [lengths, text, weights, vectors] {
            file.extend(part);
        }
        Self::parse(&file, None)?;
        Ok(file)
    }

    /// The digest of the file.
    pub fn digest(&self) -> Sha256Digest {
        self.digest
    }

    /// How many pieces there are.
    pub fn pieces(&self) -> usize {
        self.weights.len()
    }

    fn vector(&self, piece: u32) -> &[i8] {
        &self.vectors[piece as usize * self.dim..(piece as usize + 1) * self.dim]
    }
}

impl SemanticScorer for StaticTable {
    fn fingerprint(&self) -> [u8; 32] {
        *self.digest.as_bytes()
    }

    fn dim(&self) -> usize {
        self.dim
    }

    fn embed(&self, text: &str) -> Result<Box<[i8]>, SemanticError> {
        let mut sum = vec![0i64; self.dim];
        let mut words = 0;
        terms(text, StopWords::Drop, |word, _| {
            words += 1;
            if words <= MAX_WORDS {
                for piece in self.pieces.of(word) {
                    let weight = i64::from(self.weights[piece as usize]);
                    for (total, value) in sum.iter_mut().zip(self.vector(piece)) {
                        *total += weight * i64::from(*value);
                    }
                }
            }
        });
        Ok(normalised(&sum))
    }
}

/// The same direction at length 127, or nothing but zeros. Dividing by the number of words would not change it.
pub(super) fn normalised(sum: &[i64]) -> Box<[i8]> {
    let length = sum.iter().map(|value| u128::from(value.unsigned_abs()).pow(2)).sum::<u128>().isqrt() as i64;
    let scale = |value: &i64| if length == 0 { 0 } else { (value * 127 / length) as i8 };
    sum.iter().map(scale).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fixture::embeddings;

    #[test]
    fn words_that_mean_alike_point_alike() {
        // CAT-69
        let table = StaticTable::parse(&embeddings(), None).unwrap();
        let dot = |a: &str, b: &str| {
            let (a, b) = (table.embed(a).unwrap(), table.embed(b).unwrap());
            a.iter().zip(&b).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum::<i32>()
        };
        assert!(dot("owes money", "invoice") > dot("owes money", "weather"));
        assert_eq!(table.embed("the of and").unwrap(), vec![0; table.dim()].into(), "nothing was said");
        assert_eq!(table.embed("Invoice").unwrap(), table.embed("invoice").unwrap());
    }

    #[test]
    fn another_file_than_the_one_that_was_meant_is_refused() {
        // CAT-69
        let bytes = embeddings();
        let digest = Sha256Digest::of(&bytes);
        assert!(StaticTable::parse(&bytes, Some(digest)).is_ok());
        let error = StaticTable::parse(&bytes, Some(Sha256Digest::of(b"other"))).unwrap_err();
        assert!(matches!(error, SemanticError::Digest { .. }), "{error}");
    }

    #[test]
    fn every_cut_and_every_extra_byte_is_noticed() {
        // CAT-69
        let bytes = embeddings();
        for end in 0..bytes.len() {
            assert!(StaticTable::parse(&bytes[..end], None).is_err(), "cut at {end}");
        }
        let more = [&bytes[..], b"x"].concat();
        assert!(matches!(StaticTable::parse(&more, None), Err(SemanticError::Format(_))));
    }

    proptest! {
        // CAT-69: whatever a file says, reading it neither panics nor takes what it does not have.
        #[test]
        fn no_file_makes_it_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..300), real in any::<bool>(), at in 0usize..300, value: u8) {
            if real {
                bytes = embeddings();
                let at = at % bytes.len();
                bytes[at] = value;
            }
            if let Ok(table) = StaticTable::parse(&bytes, None) {
                let _ = table.embed("who owes us money");
            }
        }

        // CAT-69: a vector fits its numbers, and its length is that of every other.
        #[test]
        fn a_vector_is_as_long_as_any_other(sum in prop::collection::vec(-1_000_000_000i64..1_000_000_000, 1..300)) {
            let vector = normalised(&sum);
            let length = vector.iter().map(|value| i64::from(*value).pow(2)).sum::<i64>();
            prop_assert!(length <= 127 * 127);
            if sum.iter().any(|value| *value != 0) && sum.len() == 1 {
                prop_assert_eq!(length, 127 * 127);
            }
        }
    }
}
