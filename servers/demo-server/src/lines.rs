//! Lines of bounded length. A line that is too long is read to its end and reported, so that one oversized message
//! costs one error and not the connection, and never more memory than the bound.

use std::io::{self, BufRead};

/// The longest accepted line. A full note, every byte of it escaped as `\u00xx`, is 384 KiB.
pub(crate) const MAX_LINE: usize = 1024 * 1024;

/// What the next line turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    /// The bytes of the line, without its newline.
    Whole(&'a [u8]),
    /// The line was longer than the bound; its bytes are gone.
    TooLong,
}

pub(crate) struct Lines<R> {
    reader: R,
    buffer: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self { reader, buffer: Vec::new() }
    }

    /// The next line, or `None` at the end of the input. Blank lines are skipped.
    pub(crate) fn next_line(&mut self) -> io::Result<Option<Line<'_>>> {
        loop {
            self.buffer.clear();
            let (mut seen, mut too_long) = (false, false);
            loop {
                let chunk = match self.reader.fill_buf() {
                    Ok(chunk) => chunk,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => return Err(error),
                };
                if chunk.is_empty() {
                    break;
                }
                seen = true;
                let newline = chunk.iter().position(|&byte| byte == b'\n');
                let taken = newline.unwrap_or(chunk.len());
                too_long |= self.buffer.len() + taken > MAX_LINE;
                if !too_long {
                    self.buffer.extend_from_slice(&chunk[..taken]);
                }
                self.reader.consume(taken + usize::from(newline.is_some()));
                if newline.is_some() {
                    break;
                }
            }
            if too_long {
                return Ok(Some(Line::TooLong));
            }
            if !seen {
                return Ok(None);
            }
            if !self.buffer.trim_ascii().is_empty() {
                break;
            }
        }
        Ok(Some(Line::Whole(self.buffer.trim_ascii())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_over_the_bound_is_skipped_whole_and_the_next_one_is_read() {
        let input = [vec![b'x'; MAX_LINE + 1], b"\n\n{}\r\n".to_vec()].concat();
        let mut lines = Lines::new(&input[..]);
        assert_eq!(lines.next_line().unwrap(), Some(Line::TooLong));
        assert_eq!(lines.next_line().unwrap(), Some(Line::Whole(b"{}")));
        assert_eq!(lines.next_line().unwrap(), None);
    }

    #[test]
    fn a_last_line_without_a_newline_counts() {
        let mut lines = Lines::new(&b"a\nb"[..]);
        assert_eq!(lines.next_line().unwrap(), Some(Line::Whole(b"a")));
        assert_eq!(lines.next_line().unwrap(), Some(Line::Whole(b"b")));
        assert_eq!(lines.next_line().unwrap(), None);
    }
}
