//! Frames as lines. Reading logs and dispatches in order; one task writes, so that lines never mix.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::frame::Frame;
use crate::outbox::{Outbox, Outgoing};
use crate::spy::Spy;

/// How many pieces a split write has at most.
const PIECES: usize = 64;

const GRACE: std::time::Duration = std::time::Duration::from_millis(250);

/// Serves until stdin ends.
pub(crate) async fn serve(spy: Arc<Spy>) -> io::Result<()> {
    let (outbox, outgoing) = Outbox::new();
    tokio::spawn(write(outgoing));
    let connection = spy.connection(None, false);
    let mut input = BufReader::new(tokio::io::stdin());
    let mut line = Vec::new();
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line).await? == 0 {
            // What was asked before the end is answered if that takes no time.
            let _ = tokio::time::timeout(GRACE, spy.idle()).await;
            let _ = tokio::time::timeout(GRACE, outbox.flushed()).await;
            return Ok(());
        }
        let text = String::from_utf8_lossy(&line);
        let raw = text.strip_suffix('\n').unwrap_or(&text);
        spy.log.frame("stdio", raw, &[]);
        if raw.trim().is_empty() {
            continue;
        }
        let frame = Frame::parse(raw);
        if frame.method() == "notifications/initialized" {
            spy.listen(&connection, outbox.clone());
        }
        let control = spy.switches().control;
        spy.act(&connection, frame, control, outbox.clone());
    }
}

async fn write(mut outgoing: UnboundedReceiver<Outgoing>) -> io::Result<()> {
    let mut output = tokio::io::stdout();
    while let Some(piece) = outgoing.recv().await {
        match piece {
            Outgoing::Flushed(done) => {
                let _ = done.send(());
            }
            Outgoing::Text { mut text, split } => {
                text.push('\n');
                let size = if split { text.len().div_ceil(PIECES).max(7) } else { text.len() };
                for part in text.as_bytes().chunks(size) {
                    output.write_all(part).await?;
                    output.flush().await?;
                    if split {
                        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                    }
                }
            }
        }
    }
    Ok(())
}
