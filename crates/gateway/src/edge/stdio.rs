//! MCP over stdin and stdout: one message a line, and nothing else on stdout (PRO-30).

use std::sync::Arc;

use bytes::Bytes;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc;

use super::Edge;
use super::lines::Lines;
use crate::exposure::Mode;

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
        let mut client = Lines::new(self.principal().clone(), replies).showing(mode);
        let mut line = Vec::new();
        loop {
            line.clear();
            if lines.read_until(b'\n', &mut line).await? == 0 {
                break;
            }
            if line.len() > MAX_LINE {
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
