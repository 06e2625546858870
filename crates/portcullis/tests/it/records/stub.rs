//! A server that answers as a test says, and remembers what it was sent.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A server made for one answer: what it was sent, request by request.
pub(super) struct Stub {
    pub(super) address: String,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Stub {
    /// Answers every request with what `answer` makes of its head and body.
    pub(super) fn answering(answer: impl Fn(&str) -> String + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let noted = seen.clone();
        // Ends with the test's process; nothing else holds the port.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let Some(request) = read_request(&stream) else { continue };
                let reply = answer(&request);
                noted.lock().unwrap().push(request);
                let _ = (&stream).write_all(reply.as_bytes());
            }
        });
        Self { address, seen }
    }

    pub(super) fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

fn read_request(mut stream: &TcpStream) -> Option<String> {
    stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length: ").map(str::to_owned)
            });
            if body.len() >= length.map_or(0, |length| length.trim().parse::<usize>().unwrap_or(0)) {
                return Some(text);
            }
        }
        match stream.read(&mut buffer).ok()? {
            0 => return None,
            read => bytes.extend_from_slice(&buffer[..read]),
        }
    }
}

pub(super) fn http_reply(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}
