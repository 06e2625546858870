//! Reading a segment frame by frame, without holding more of it than a turn, and finding the way again after
//! damage.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use crate::error::{AtPath as _, AuditError, ProblemKind};
use crate::files;
use crate::frame::{self, COMMIT_LEN, Commit, Decoded, FRAME_HEAD, HEADER_LEN, SegmentHeader};

const CHUNK: usize = 256 * 1024;
static ZEROS: [u8; CHUNK] = [0; CHUNK];

/// What the cursor stepped over.
#[derive(Debug)]
pub(crate) enum Step<'a> {
    Record(&'a [u8]),
    Commit(Commit),
    /// Nothing was written from here on.
    End,
    /// No frame; the cursor has not moved.
    Bad(ProblemKind),
}

/// A position in a segment file.
pub(crate) struct Cursor {
    path: Arc<Path>,
    file: File,
    header: SegmentHeader,
    /// The first `filled` are the bytes of the file from `base` on.
    buf: Box<[u8]>,
    filled: usize,
    base: u64,
    offset: u64,
}

impl Cursor {
    /// Opens a segment and reads its header.
    pub(crate) fn open(path: &Path) -> Result<Self, AuditError> {
        let file = files::open_read(path)?;
        let mut head = [0; HEADER_LEN];
        let read = read_at(&file, &mut head, 0).at(path)?;
        let header = SegmentHeader::decode(&head[..read]).ok_or_else(|| AuditError::Corrupt {
            kind: ProblemKind::BadFrame,
            segment: path.into(),
            offset: 0,
        })?;
        let start = HEADER_LEN as u64;
        let buf = vec![0; CHUNK].into();
        Ok(Self { path: path.into(), file, header, buf, filled: 0, base: start, offset: start })
    }

    pub(crate) fn header(&self) -> SegmentHeader {
        self.header
    }

    /// Where the next frame begins.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Goes to `offset`, forgetting what was read: a live segment may have changed meanwhile.
    pub(crate) fn seek(&mut self, offset: u64) {
        self.filled = 0;
        self.base = offset;
        self.offset = offset;
    }

    /// Reads the next frame.
    pub(crate) fn step(&mut self) -> Result<Step<'_>, AuditError> {
        let mut need = FRAME_HEAD;
        loop {
            let complete = self.fill(need)?;
            let at = (self.offset - self.base) as usize;
            match frame::decode(&self.buf[at..self.filled]) {
                Decoded::Short(more) if complete => need = more,
                // The file ends inside a frame.
                Decoded::Short(_) => return Ok(Step::Bad(ProblemKind::BadFrame)),
                Decoded::Bad(kind) => return Ok(Step::Bad(kind)),
                Decoded::End => return Ok(Step::End),
                Decoded::Commit(commit) => {
                    self.offset += COMMIT_LEN as u64;
                    return Ok(Step::Commit(commit));
                }
                Decoded::Record(body) => {
                    // Named by its place, so that the borrow of `self` for the return value begins here.
                    let (start, end) = (at + FRAME_HEAD, at + FRAME_HEAD + body.len());
                    self.offset += (end - at) as u64;
                    return Ok(Step::Record(&self.buf[start..end]));
                }
            }
        }
    }

    /// The next commit frame at or after `from`, and where it ends. Looks at every byte: after damage there is
    /// no telling where frames begin. Records are JSON text and have no zero bytes, so none can be mistaken
    /// for a commit frame.
    pub(crate) fn find_commit(&mut self, from: u64) -> Result<Option<(Commit, u64)>, AuditError> {
        self.seek(from);
        while self.fill(COMMIT_LEN)? {
            let window = &self.buf[(self.offset - self.base) as usize..self.filled];
            let last = window.len() - COMMIT_LEN;
            for at in 0..=last {
                // The cheap test first: four bytes of length and the type.
                if window[at..at + 5] == [0, 0, 0, 44, 2]
                    && let Decoded::Commit(commit) = frame::decode(&window[at..])
                {
                    let end = self.offset + (at + COMMIT_LEN) as u64;
                    return Ok(Some((commit, end)));
                }
            }
            self.offset += last as u64 + 1;
        }
        Ok(None)
    }

    /// The bytes of the file from `from` to `to`, or to its end if that comes first.
    pub(crate) fn bytes(&self, from: u64, to: u64) -> Result<Vec<u8>, AuditError> {
        let mut bytes = vec![0; (to - from) as usize];
        let read = read_at(&self.file, &mut bytes, from).at(&self.path)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// The end of the last chunk from `from` on that has anything but zeros, less its trailing zeros. Reads the
    /// rest of the file, so it compares whole chunks.
    pub(crate) fn used_end(&self, from: u64) -> Result<u64, AuditError> {
        let (mut chunk, mut offset, mut used) = (ZEROS.to_vec(), from, from);
        loop {
            let read = read_at(&self.file, &mut chunk, offset).at(&self.path)?;
            if chunk[..read] != ZEROS[..read] {
                let last = chunk[..read].iter().rposition(|&byte| byte != 0).unwrap_or(0);
                used = offset + last as u64 + 1;
            }
            offset += read as u64;
            if read < CHUNK {
                return Ok(used);
            }
        }
    }

    /// How long the file is.
    pub(crate) fn file_len(&self) -> Result<u64, AuditError> {
        Ok(self.file.metadata().at(&self.path)?.len())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The same, to keep.
    pub(crate) fn shared_path(&self) -> Arc<Path> {
        self.path.clone()
    }

    pub(crate) fn corrupt(&self, kind: ProblemKind, offset: u64) -> AuditError {
        AuditError::Corrupt { kind, segment: self.path.to_path_buf(), offset }
    }

    /// Makes at least `need` bytes from the offset on available; false if the file ends before.
    fn fill(&mut self, need: usize) -> Result<bool, AuditError> {
        let at = (self.offset - self.base) as usize;
        if self.filled >= at + need {
            return Ok(true);
        }
        debug_assert!(need <= CHUNK, "a frame is at most 64 KiB");
        let have = self.filled.saturating_sub(at);
        self.buf.copy_within(self.filled - have..self.filled, 0);
        self.base = self.offset;
        let read = read_at(&self.file, &mut self.buf[have..], self.base + have as u64).at(&self.path)?;
        self.filled = have + read;
        Ok(self.filled >= need)
    }
}

/// Reads until `buf` is full or the file ends.
fn read_at(file: &File, buf: &mut [u8], offset: u64) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buf.len() {
        match file.read_at(&mut buf[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
