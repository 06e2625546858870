//! Server-sent events, as far as the protocol uses them: the `data` of each event, within a limit; and where to go on
//! after a stream that ended too early.

use bytes::{Buf as _, Bytes, BytesMut};

/// Cuts a stream of bytes into the data of its events.
#[derive(Debug, Default)]
pub(crate) struct EventStream {
    buffer: BytesMut,
    searched: usize,
    data: Option<Data>,
    begun: bool,
    id: Option<Bytes>,
    last: Option<Bytes>,
    retry: Option<u64>,
}

/// The data of an event that is not whole yet.
#[derive(Debug)]
enum Data {
    /// One line, which is what everybody sends: a slice of what was received.
    Line(Bytes),
    /// Several, joined; in one place, so that many short ones cost no more than they are long.
    Lines(BytesMut),
}

impl Data {
    fn add(self, line: &[u8]) -> Self {
        let mut joined = match self {
            Data::Line(first) => BytesMut::from(&first[..]),
            Data::Lines(joined) => joined,
        };
        joined.extend_from_slice(b"\n");
        joined.extend_from_slice(line);
        Data::Lines(joined)
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Data::Line(line) => line,
            Data::Lines(joined) => joined,
        }
    }

    fn whole(self) -> Bytes {
        match self {
            Data::Line(line) => line,
            Data::Lines(joined) => joined.freeze(),
        }
    }
}

impl EventStream {
    /// Takes what was received.
    pub(crate) fn push(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
        if !self.begun && self.buffer.len() >= 3 {
            self.begun = true;
            if self.buffer.starts_with(b"\xef\xbb\xbf") {
                self.buffer.advance(3);
                self.searched = 0;
            }
        }
    }

    /// How much is held without being a whole event.
    pub(crate) fn held(&self) -> usize {
        self.buffer.len() + self.data.as_ref().map_or(0, |data| data.bytes().len())
    }

    /// The id of the last whole event that had one: where to go on.
    pub(crate) fn last_id(&self) -> Option<&Bytes> {
        self.last.as_ref()
    }

    /// How long the server wants to be left alone before it is asked again, in milliseconds.
    pub(crate) fn retry(&self) -> Option<u64> {
        self.retry
    }

    /// Begins anew with a stream that goes on where this one ended.
    pub(crate) fn resumed(&self) -> Self {
        Self { last: self.last.clone(), retry: self.retry, ..Self::default() }
    }

    /// The beginning of what is held.
    pub(crate) fn head(&self) -> &[u8] {
        self.data.as_ref().map_or(&self.buffer, Data::bytes)
    }

    /// The data of the next whole event. Comments, names, ids and events without data are passed over.
    pub(crate) fn next_data(&mut self) -> Option<Bytes> {
        loop {
            let Some(at) = memchr::memchr(b'\n', &self.buffer[self.searched..]) else {
                self.searched = self.buffer.len();
                return None;
            };
            let mut line = self.buffer.split_to(self.searched + at + 1).freeze();
            // A mark of byte order stands before everything or is none.
            self.begun = true;
            self.searched = 0;
            line.truncate(line.len() - 1);
            if line.ends_with(b"\r") {
                line.truncate(line.len() - 1);
            }
            if line.is_empty() {
                if let Some(id) = self.id.take() {
                    self.last = Some(id);
                }
                match self.data.take().map(Data::whole) {
                    // An empty one only gives the stream an id to come back with.
                    Some(data) if !data.trim_ascii().is_empty() => return Some(data),
                    _ => continue,
                }
            }
            let (name, value) = field(&line);
            match name {
                b"data" => {}
                // What cannot go into a header cannot be asked for.
                b"id" if value.iter().all(u8::is_ascii_graphic) => {
                    self.id = Some(line.slice_ref(value));
                    continue;
                }
                b"retry" => {
                    self.retry = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                    continue;
                }
                _ => continue,
            }
            self.data = Some(match self.data.take() {
                None => Data::Line(line.slice_ref(value)),
                Some(earlier) => earlier.add(value),
            });
        }
    }
}

/// Name and value of a line.
fn field(line: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(b':', line) {
        None => (line, &[]),
        Some(at) => (&line[..at], line[at + 1..].strip_prefix(b" ").unwrap_or(&line[at + 1..])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\u{feff}: hello\nevent: message\r\nid: 1\r\ndata: {\"a\":1}\r\n\r\n\n\ndata:{\ndata: }\n\nid: 0/0\nretry: 5\ndata: \n\nretry: 5\n\ndatax: no\n\ndata: cut";

    #[test]
    fn events_are_the_same_however_the_stream_is_cut() {
        for size in [1, 2, 3, 5, 7, TEXT.len()] {
            let mut stream = EventStream::default();
            let mut events = Vec::new();
            for chunk in TEXT.as_bytes().chunks(size) {
                stream.push(chunk);
                while let Some(data) = stream.next_data() {
                    events.push(String::from_utf8(data.to_vec()).unwrap());
                }
            }
            assert_eq!(events, ["{\"a\":1}", "{\n}"], "pieces of {size}");
            assert_eq!(stream.held(), "data: cut".len());
            assert_eq!((stream.last_id().map(|id| &id[..]), stream.retry()), (Some(&b"0/0"[..]), Some(5)));
        }
    }

    #[test]
    fn many_short_lines_cost_no_more_than_they_are_long() {
        // T-PRO-6: SSE flood. A million lines in one event; joined one by one anew this would not end.
        let mut stream = EventStream::default();
        let lines = 1_000_000;
        stream.push("data: x\n".repeat(lines).as_bytes());
        assert_eq!(stream.next_data(), None);
        assert_eq!(stream.held(), 2 * lines - 1);
        stream.push(b"\n");
        assert_eq!(stream.next_data().unwrap().len(), 2 * lines - 1);
    }
}
