//! How records lie in a segment (AUD-16).
//!
//! A segment is a 64-byte header and then frames. A frame says how long it is, what it is, and a checksum of
//! both and its body. Records come in turns; each turn ends with a commit frame, and only what a commit frame
//! covers was ever acknowledged to anybody. Segments are written over zeros, so a length of zero ends the data.

use portcullis_core::{LogId, Sha256Digest};

use crate::error::ProblemKind;

pub(crate) const HEADER_LEN: usize = 64;
pub(crate) const FRAME_HEAD: usize = 12;
pub(crate) const COMMIT_LEN: usize = FRAME_HEAD + COMMIT_BODY;
const COMMIT_BODY: usize = 44;
const MAGIC: &[u8; 8] = b"PCLSEG01";
const RECORD: u8 = 1;
/// The type byte of a commit frame.
pub(crate) const COMMIT: u8 = 2;
/// The tile format, which takes records as they are, caps an entry here.
const MAX_BODY: usize = 65_535;

/// The first bytes of a segment: which log, and where in it the segment begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) log: LogId,
    pub(crate) first_seq: u64,
    /// Leaf hash of the record before the first one.
    pub(crate) prev: Sha256Digest,
}

impl SegmentHeader {
    pub(crate) fn encode(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..24].copy_from_slice(&self.log.to_bytes());
        bytes[24..32].copy_from_slice(&self.first_seq.to_be_bytes());
        bytes[32..].copy_from_slice(self.prev.as_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEADER_LEN] = bytes.first_chunk()?;
        if &bytes[..8] != MAGIC {
            return None;
        }
        Some(Self {
            log: LogId::from_bytes(bytes[8..24].try_into().ok()?),
            first_seq: u64::from_be_bytes(bytes[24..32].try_into().ok()?),
            prev: Sha256Digest::from_bytes(bytes[32..].try_into().ok()?),
        })
    }
}

/// The end of a turn: everything up to `last_seq` is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) last_seq: u64,
    /// How many records the turn has.
    pub(crate) count: u32,
    /// Leaf hash of the last of them.
    pub(crate) leaf: Sha256Digest,
}

impl Commit {
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        let start = begin(out);
        out.extend_from_slice(&self.last_seq.to_be_bytes());
        out.extend_from_slice(&self.count.to_be_bytes());
        out.extend_from_slice(self.leaf.as_bytes());
        finish(out, start, COMMIT);
    }

    fn decode(body: &[u8]) -> Option<Self> {
        let body: &[u8; COMMIT_BODY] = body.try_into().ok()?;
        Some(Self {
            last_seq: u64::from_be_bytes(body[..8].try_into().ok()?),
            count: u32::from_be_bytes(body[8..12].try_into().ok()?),
            leaf: Sha256Digest::from_bytes(body[12..].try_into().ok()?),
        })
    }
}

/// Leaves room for a frame's head; the body follows.
pub(crate) fn begin(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; FRAME_HEAD]);
    start
}

/// Fills in the head of the record frame that began at `start`.
pub(crate) fn finish_record(out: &mut [u8], start: usize) {
    finish(out, start, RECORD);
}

fn finish(out: &mut [u8], start: usize, kind: u8) {
    let (head, body) = out[start..].split_at_mut(FRAME_HEAD);
    head[..4].copy_from_slice(&(body.len() as u32).to_be_bytes());
    head[4] = kind;
    let crc = checksum(&head[..5], body);
    head[8..].copy_from_slice(&crc.to_be_bytes());
}

fn checksum(length_and_kind: &[u8], body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(length_and_kind), body)
}

/// What stands at the beginning of some bytes of a segment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decoded<'a> {
    /// Zeros: nothing was written here.
    End,
    Record(&'a [u8]),
    Commit(Commit),
    /// Not enough bytes to say; this many are needed.
    Short(usize),
    Bad(ProblemKind),
}

pub(crate) fn decode(bytes: &[u8]) -> Decoded<'_> {
    let Some(head) = bytes.first_chunk::<FRAME_HEAD>() else {
        // Fewer bytes than a head are left in the segment: no frame begins here.
        return if bytes.iter().all(|&b| b == 0) { Decoded::End } else { Decoded::Short(FRAME_HEAD) };
    };
    let len = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
    if len == 0 {
        return if head.iter().all(|&b| b == 0) { Decoded::End } else { Decoded::Bad(ProblemKind::BadFrame) };
    }
    let plausible = match head[4] {
        RECORD => len <= MAX_BODY,
        COMMIT => len == COMMIT_BODY,
        _ => false,
    };
    if !plausible || head[5..8] != [0; 3] {
        return Decoded::Bad(ProblemKind::BadFrame);
    }
    let Some(body) = bytes.get(FRAME_HEAD..FRAME_HEAD + len) else {
        return Decoded::Short(FRAME_HEAD + len);
    };
    if checksum(&head[..5], body).to_be_bytes() != head[8..12] {
        return Decoded::Bad(ProblemKind::BadCrc);
    }
    match head[4] {
        RECORD => Decoded::Record(body),
        _ => Commit::decode(body).map_or(Decoded::Bad(ProblemKind::BadFrame), Decoded::Commit),
    }
}

/// The leaf hash of a record (AUD-11, AUD-30): every byte of it counts.
pub(crate) fn leaf(record: &[u8]) -> Sha256Digest {
    Sha256Digest::of_parts(&[&[0], record])
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_core::Timestamp;
    use proptest::prelude::*;

    fn frame_of(body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let start = begin(&mut out);
        out.extend_from_slice(body);
        finish_record(&mut out, start);
        out
    }

    #[test]
    fn a_segment_header_has_the_specified_layout() {
        // AUD-16
        let header = SegmentHeader {
            log: LogId::new(Timestamp::from_millis(1)),
            first_seq: 0x0102,
            prev: Sha256Digest::of(b"x"),
        };
        let bytes = header.encode();
        assert_eq!((&bytes[..8], &bytes[24..32]), (&b"PCLSEG01"[..], &[0, 0, 0, 0, 0, 0, 1, 2][..]));
        assert_eq!(SegmentHeader::decode(&bytes), Some(header));
        assert_eq!(SegmentHeader::decode(&bytes[..63]), None);
        assert_eq!(SegmentHeader::decode(&[0; 64]), None);
    }

    #[test]
    fn a_frame_has_the_specified_layout() {
        // AUD-16: len, type, three zeros, crc32c over len, type and body.
        let bytes = frame_of(b"{}");
        assert_eq!(bytes[..8], [0, 0, 0, 2, 1, 0, 0, 0]);
        assert_eq!(bytes[8..12], crc32c::crc32c(b"\0\0\0\x02\x01{}").to_be_bytes());
        assert_eq!(&bytes[12..], b"{}");
    }

    proptest! {
        #[test]
        fn a_frame_reads_back_and_every_flipped_bit_is_noticed(
            body in prop::collection::vec(any::<u8>(), 1..300),
            at in any::<prop::sample::Index>(),
            bit in 0..8u32,
        ) {
            let mut bytes = frame_of(&body);
            prop_assert_eq!(decode(&bytes), Decoded::Record(&body));
            bytes.extend_from_slice(&[0; 400]);
            let at = at.index(FRAME_HEAD + body.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(!matches!(decode(&bytes), Decoded::Record(_) | Decoded::End));
        }

        #[test]
        fn a_commit_reads_back(last_seq: u64, count: u32, leaf: [u8; 32]) {
            let commit = Commit { last_seq, count, leaf: Sha256Digest::from_bytes(leaf) };
            let mut bytes = Vec::new();
            commit.write(&mut bytes);
            prop_assert_eq!(bytes.len(), COMMIT_LEN);
            prop_assert_eq!(decode(&bytes), Decoded::Commit(commit));
        }

        #[test]
        fn no_bytes_panic_the_decoder(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = decode(&bytes);
            let _ = SegmentHeader::decode(&bytes);
        }
    }
}
