//! A preallocated file that is being filled from the front (AUD-17, AUD-62).
//!
//! Its zeros are on the disk already, so filling is overwriting. It goes past the page cache where the file system
//! allows that: what is written is synced at once and hardly ever read by this process, so a copy in the cache
//! would only cost (a durable commit takes about half the CPU time this way). Such a write is a number of whole
//! blocks from aligned memory. The last block is therefore kept, and written again with what comes next; the
//! bytes that were already on the disk do not change by that, so a write that is torn cannot damage them.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use crate::error::{AtPath as _, AuditError};
use crate::files;

/// What direct writes are made of: no disk in use has larger sectors.
pub(crate) const BLOCK: usize = 4096;
/// A buffer that grew beyond this for one turn is given back.
const USUAL_BUFFER: usize = 1 << 20;

/// A file, how far it is filled, and what is to be added next.
#[derive(Debug)]
pub(crate) struct Filling {
    path: PathBuf,
    file: File,
    /// Device and inode: what the path must lead to.
    place: (u64, u64),
    len: u64,
    /// Where what was written ends.
    end: u64,
    /// From the beginning of the block that holds `end`: what is there, then what was added.
    buffer: Aligned,
}

impl Filling {
    /// Goes on at `end` with the file at `path`, which has `len` bytes.
    pub(crate) fn open(path: &Path, len: u64, end: u64) -> Result<Self, AuditError> {
        let mut buffer = Aligned::default();
        let begun = (end % BLOCK as u64) as usize;
        if begun > 0 {
            let mut block = vec![0; begun];
            files::open_read(path)?.read_exact_at(&mut block, end - begun as u64).at(path)?;
            buffer.extend(&block);
        }
        let file = files::open_direct(path)?;
        let metadata = file.metadata().at(path)?;
        Ok(Self { path: path.into(), file, place: (metadata.dev(), metadata.ino()), len, end, buffer })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where what was written ends.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// How much can still be added.
    pub(crate) fn room(&self) -> u64 {
        self.len.saturating_sub(self.end + self.added() as u64)
    }

    /// How many bytes were added since the last write.
    pub(crate) fn added(&self) -> usize {
        self.buffer.filled - self.begun()
    }

    /// Adds bytes for the next write.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.buffer.extend(bytes);
    }

    /// Writes what was added, with one call. It is durable after [`sync`](Filling::sync).
    pub(crate) fn write(&mut self) -> io::Result<()> {
        let (block, added) = (self.end - self.begun() as u64, self.added() as u64);
        let whole = self.buffer.padded();
        let written = self.file.write_at(whole, block)?;
        if written < whole.len() {
            // A full disk says so only at the next write. What arrived is a torn tail.
            let cut = format!("only {written} of {} bytes were written; is the disk full?", whole.len());
            return Err(io::Error::new(ErrorKind::WriteZero, cut));
        }
        self.end += added;
        self.buffer.keep_from((self.end / BLOCK as u64 * BLOCK as u64 - block) as usize);
        Ok(())
    }

    /// [`write`](Filling::write) as a full disk would do it: only `bytes` of what was added arrive.
    pub(crate) fn write_short(&mut self, bytes: usize) -> io::Result<()> {
        let added = self.added();
        self.buffer.filled = self.buffer.filled.min(self.begun() + bytes);
        self.write()?;
        let cut = format!("only {bytes} of {added} bytes were written; is the disk full?");
        Err(io::Error::new(ErrorKind::WriteZero, cut))
    }

    /// Waits until everything written is on the disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// What is written to a file that was deleted, moved or replaced is nowhere; what others could change proves
    /// nothing.
    pub(crate) fn check_place(&self) -> Result<(), AuditError> {
        let metadata = std::fs::symlink_metadata(&self.path).at(&self.path)?;
        if (metadata.dev(), metadata.ino()) != self.place {
            let problem = "was replaced by another file while it was being written; put it back".into();
            return Err(AuditError::Permissions { path: self.path.clone(), problem });
        }
        files::check_file(&self.path)
    }

    /// The bytes of the first block in the buffer that are on the disk already.
    fn begun(&self) -> usize {
        (self.end % BLOCK as u64) as usize
    }
}

/// Bytes that begin at a multiple of a block's size in memory. `Vec` does not promise that; a `Vec` a block longer
/// than needed has such a place in it.
#[derive(Debug, Default)]
struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    filled: usize,
}

impl Aligned {
    fn extend(&mut self, more: &[u8]) {
        let needed = (self.filled + more.len()).next_multiple_of(BLOCK);
        if self.bytes.len() < needed + BLOCK {
            self.reallocate(needed.next_power_of_two());
        }
        let at = self.start + self.filled;
        self.bytes[at..at + more.len()].copy_from_slice(more);
        self.filled += more.len();
    }

    /// All of it, with zeros up to the end of the last block.
    fn padded(&mut self) -> &[u8] {
        let whole = self.filled.next_multiple_of(BLOCK);
        let content = &mut self.bytes[self.start..self.start + whole];
        content[self.filled..].fill(0);
        content
    }

    /// Forgets everything before `from`.
    fn keep_from(&mut self, from: usize) {
        self.bytes.copy_within(self.start + from..self.start + self.filled, self.start);
        self.filled -= from;
        if self.bytes.len() > USUAL_BUFFER {
            self.reallocate(BLOCK);
        }
    }

    fn reallocate(&mut self, capacity: usize) {
        let mut bytes = vec![0; capacity + BLOCK];
        // Should no place be found, the write is refused by the kernel and nothing is lost but the log's service.
        let start = bytes.as_ptr().align_offset(BLOCK).min(BLOCK);
        bytes[start..start + self.filled].copy_from_slice(&self.bytes[self.start..self.start + self.filled]);
        (self.bytes, self.start) = (bytes, start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn zeros(len: usize) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![0; len]).unwrap();
        (dir, path)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn what_is_added_is_in_the_file_one_behind_the_other(
            pieces in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..9000), any::<[bool; 2]>()), 1..12),
        ) {
            let len = (pieces.iter().map(|(piece, _)| piece.len()).sum::<usize>() + 1).next_multiple_of(BLOCK);
            let (_dir, path) = zeros(len);
            let mut file = Filling::open(&path, len as u64, 0).unwrap();
            let mut expected = Vec::new();
            for (piece, [write, reopen]) in pieces {
                file.add(&piece);
                expected.extend_from_slice(&piece);
                if write || reopen {
                    file.write().unwrap();
                    file.sync().unwrap();
                    prop_assert_eq!(file.end(), expected.len() as u64);
                }
                if reopen {
                    file = Filling::open(&path, len as u64, expected.len() as u64).unwrap();
                }
                prop_assert_eq!(file.room(), (len - expected.len()) as u64);
            }
            file.write().unwrap();
            expected.resize(len, 0);
            prop_assert_eq!(std::fs::read(&path).unwrap(), expected);
        }
    }

    #[test]
    fn a_short_write_leaves_a_torn_tail_and_says_so() {
        // AUD-62
        let (_dir, path) = zeros(2 * BLOCK);
        let mut file = Filling::open(&path, 2 * BLOCK as u64, 0).unwrap();
        file.add(b"whole");
        file.write().unwrap();
        file.add(b"and torn");
        assert_eq!(file.write_short(3).unwrap_err().kind(), ErrorKind::WriteZero);
        assert!(std::fs::read(&path).unwrap().starts_with(b"wholeand\0\0"));
    }
}
