//! What servers write, made up: lines of a child process and events of a stream, nearly right and cut anywhere.

use std::pin::Pin;
use std::task::{Context, Poll};

use portcullis_governance::boundary::{CancellationSignal, Outcome};
use proptest::prelude::*;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::watch;

use crate::desk::Desk;
use crate::event::Events;
use crate::link::Exchange;
use crate::sse::EventStream;
use crate::stdio;

const ID: u64 = 7;

fn cases() -> u32 {
    std::env::var("PORTCULLIS_FUZZ_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(192)
}

/// Pieces that framing turns on, and anything else.
fn written() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::sample::select(vec![
        "\n",
        "\r\n",
        "\r",
        "\n\n",
        ":",
        "data",
        "data:",
        "data: ",
        "id: ",
        "event: message\n",
        "retry: 5\n",
        "\u{feff}",
        "{",
        "}",
        "\"",
        "null",
        "[]",
        "\"id\":7",
        "\"jsonrpc\":\"2.0\"",
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"a\":1}}\n",
        "{\"jsonrpc\":\"2.0\",\"id\":8,\"result\":{}}\n",
        "{\"jsonrpc\":\"2.0\",\"id\":\"7\",\"error\":{\"code\":1,\"message\":\"\"}}\n",
        "{\"jsonrpc\":\"2.0\",\"method\":\"ping\",\"id\":1}\n",
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":7}}\n",
        "{\"jsonrpc\":\"2.0\",\"method\":\"sampling/createMessage\",\"id\":[]}\n",
    ]);
    let word = words.prop_map(|word: &str| word.as_bytes().to_vec());
    let piece = prop_oneof![4 => word, 1 => prop::collection::vec(any::<u8>(), 0..8)];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

fn cuts() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(1_usize..40, 1..20)
}

/// The same bytes in pieces of these lengths, over and over.
fn pieces<'a>(bytes: &'a [u8], cuts: &'a [usize]) -> impl Iterator<Item = &'a [u8]> {
    let mut rest = bytes;
    cuts.iter().cycle().map_while(move |cut| {
        let (piece, after) = rest.split_at_checked(*cut).unwrap_or((rest, &[]));
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}

fn events(bytes: &[u8], cuts: &[usize]) -> (Vec<Vec<u8>>, usize) {
    let mut stream = EventStream::default();
    let mut events = Vec::new();
    for piece in pieces(bytes, cuts) {
        stream.push(piece);
        while let Some(data) = stream.next_data() {
            events.push(data.to_vec());
        }
    }
    (events, stream.held())
}

/// Output that comes in pieces.
struct Output(Vec<Vec<u8>>);

impl AsyncRead for Output {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if let Some(piece) = self.0.pop() {
            let (now, later) = piece.split_at(piece.len().min(buffer.remaining()));
            buffer.put_slice(now);
            if !later.is_empty() {
                self.0.push(later.to_vec());
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// What comes of a call of a child that writes this.
fn answer(bytes: &[u8], cuts: &[usize]) -> String {
    let mut output: Vec<Vec<u8>> = pieces(bytes, cuts).map(<[u8]>::to_vec).collect();
    output.reverse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let (desk, _frames) = Desk::new(Events::new());
        let frame = bytes::Bytes::from_static(b"{}\n");
        let exchange = Exchange {
            id: ID,
            call: None,
            bytes: &frame,
            method: "tools/call",
            name: None,
            mirrored: &[],
            timeout: std::time::Duration::from_secs(60),
            max_response_bytes: 1 << 20,
            attendant: None,
            headers: &[],
        };
        let (_canceller, never) = CancellationSignal::pair();
        let reading = async {
            stdio::read(Output(output), desk.clone(), watch::Sender::new(false)).await;
            // As whoever keeps the child does once it has ended.
            desk.pending.close("the server ended");
        };
        let (outcome, ()) = tokio::join!(desk.exchange(exchange, never), reading);
        match outcome {
            Outcome::Result(raw) => format!("result {}", String::from_utf8_lossy(&raw)),
            Outcome::RpcError(raw) => format!("error {}", String::from_utf8_lossy(&raw)),
            other => format!("{other:?}"),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn events_are_the_same_however_they_are_cut(bytes in written(), cuts in cuts()) {
        // T-PRO-6
        let (found, held) = events(&bytes, &cuts);
        let whole = [bytes.len().max(1)];
        prop_assert_eq!((&found, held), (&events(&bytes, &whole).0, events(&bytes, &whole).1));
        prop_assert!(held <= bytes.len());
        prop_assert!(found.iter().map(Vec::len).sum::<usize>() <= bytes.len());
    }

    #[test]
    fn a_call_has_one_answer_however_lines_are_cut(bytes in written(), cuts in cuts()) {
        // T-PRO-6
        let whole = [bytes.len().max(1)];
        let found = answer(&bytes, &cuts);
        prop_assert_eq!(&found, &answer(&bytes, &whole));
        // Nothing but an answer to this very call is one.
        let answers = found.starts_with("result") || found.starts_with("error");
        prop_assert!(!answers || bytes.windows(6).any(|part| part == b"\"id\":7"), "{}", found);
    }
}
