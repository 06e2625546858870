//! MCP over stdin and stdout: one message a line, and nothing else on stdout (PRO-30).

use std::sync::Arc;

use bytes::Bytes;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc;

use super::Edge;
use super::lines::Lines;
use crate::exposure::Mode;
use crate::surface::Listener;

/// Longest line taken from a client.
const MAX_LINE: usize = 4 << 20;

impl Edge {
    /// Serves one client until its input ends; calls under way are finished first.
    pub async fn serve_stdio(
        self: Arc<Self>,
        input: impl AsyncRead + Unpin,
        output: impl AsyncWrite + Unpin + Send + 'static,
    ) -> std::io::Result<()> {
        self.serve_stdio_in(None, input, output).await
    }

    /// Likewise, in a mode that whoever opened the connection chose.
    pub async fn serve_stdio_in(
        self: Arc<Self>,
        mode: Option<Mode>,
        input: impl AsyncRead + Unpin,
        output: impl AsyncWrite + Unpin + Send + 'static,
    ) -> std::io::Result<()> {
        let (replies, outbox) = mpsc::unbounded_channel();
        let writer = tokio::spawn(write_lines(output, outbox));
        let mut lines = BufReader::with_capacity(64 << 10, input);
        let mut client = Lines::new(self.principal().clone(), Listener::Stdio, replies).showing(mode);
        let mut line = Vec::new();
        while let Some(whole) = next_line(&mut lines, &mut line, MAX_LINE).await? {
            if !whole {
                client.refuse(-32600, "the message is longer than 4 MiB");
                continue;
            }
            let message = Bytes::copy_from_slice(line.trim_ascii());
            if !message.is_empty() {
                client.take(&self, message);
            }
        }
        client.end().await;
        writer.await.map_err(std::io::Error::other)?
    }
}

/// Reads one line; what is longer than the limit is read past and not kept, so that nobody fills our memory with one. `None`
/// at the end of the input, else whether it is whole.
async fn next_line(
    input: &mut (impl AsyncBufRead + Unpin),
    line: &mut Vec<u8>,
    limit: usize,
) -> std::io::Result<Option<bool>> {
    line.clear();
    let (mut read, mut whole) = (0, true);
    loop {
        let chunk = input.fill_buf().await?;
        if chunk.is_empty() {
            return Ok((read > 0).then_some(whole));
        }
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(chunk.len(), |end| end + 1);
        whole &= line.len() + taken <= limit;
        if whole {
            line.extend_from_slice(&chunk[..taken]);
        } else {
            line.clear();
        }
        read += taken;
        input.consume(taken);
        if end.is_some() {
            return Ok(Some(whole));
        }
    }
}

async fn write_lines(
    mut output: impl AsyncWrite + Unpin,
    mut outbox: mpsc::UnboundedReceiver<Vec<u8>>,
) -> std::io::Result<()> {
    let mut batch = Vec::new();
    while outbox.recv_many(&mut batch, 64).await > 0 {
        let mut text = Vec::with_capacity(batch.iter().map(|reply: &Vec<u8>| reply.len() + 1).sum());
        for reply in batch.drain(..) {
            text.extend_from_slice(&reply);
            text.push(b'\n');
        }
        output.write_all(&text).await?;
        output.flush().await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_that_is_too_long_is_read_past_and_not_kept() {
        // PRO-31, T-PRO-6
        let text = format!("short\n{}\nafter\nunfinished", "x".repeat(50));
        // A small buffer, so that lines come in pieces.
        let mut input = BufReader::with_capacity(8, text.as_bytes());
        let mut line = Vec::new();
        let mut seen = Vec::new();
        while let Some(whole) = next_line(&mut input, &mut line, 20).await.unwrap() {
            assert!(line.capacity() <= 64, "what is not kept takes no room");
            seen.push((whole, String::from_utf8(line.clone()).unwrap()));
        }
        let line = |text: &str| (true, text.to_owned());
        assert_eq!(seen, [line("short\n"), (false, String::new()), line("after\n"), line("unfinished")]);
    }
}
