//! A spy behind HTTP, and just enough of an HTTP client to see exactly what it sends.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::peer::Station;

pub(crate) struct HttpPeer {
    child: Child,
    address: String,
}

pub(crate) struct Reply {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    body: BufReader<TcpStream>,
}

impl HttpPeer {
    pub(crate) fn start(station: &Station, arguments: &[&str]) -> Self {
        let mut command = station.command();
        command.args(["--http", "0", "--end-with-stdin"]).args(arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the spy starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("stdout is piped")).read_line(&mut line).expect("a line");
        let address = line
            .trim()
            .strip_prefix("listening on http://")
            .and_then(|rest| rest.strip_suffix("/mcp"))
            .expect("the address")
            .to_owned();
        Self { child, address }
    }

    /// One request on a connection of its own.
    pub(crate) fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let mut stream = TcpStream::connect(&self.address).expect("the spy listens");
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: {}\r\n",
            self.address,
            body.len()
        );
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        stream.write_all(format!("{head}\r\n{body}").as_bytes()).expect("the spy reads");
        Reply::read(stream)
    }

    /// A POST to `/mcp` with the headers every client sends, and these.
    pub(crate) fn post(&self, headers: &[(&str, &str)], message: &Value) -> Reply {
        let common =
            [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
        self.send("POST", "/mcp", &[&common, headers].concat(), &message.to_string())
    }

    /// A modern request with the headers it needs.
    pub(crate) fn post_modern(&self, message: &Value) -> Reply {
        let mut headers =
            vec![("mcp-protocol-version", "2026-07-28"), ("mcp-method", message["method"].as_str().unwrap())];
        headers.extend(message["params"]["name"].as_str().map(|name| ("mcp-name", name)));
        self.post(&headers, message)
    }
}

impl Drop for HttpPeer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Reply {
    fn read(stream: TcpStream) -> Self {
        let mut body = BufReader::new(stream);
        let mut lines = std::iter::from_fn(|| {
            let mut line = String::new();
            body.read_line(&mut line).expect("a head");
            Some(line.trim_end().to_owned()).filter(|line| !line.is_empty())
        });
        let status = lines.next().expect("a status line");
        let status = status.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        let headers = lines
            .filter_map(|line| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned())))
            .collect();
        Self { status, headers, body }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(mut self) -> String {
        let mut text = String::new();
        self.body.read_to_string(&mut text).expect("a body");
        text
    }

    pub(crate) fn json(self) -> Value {
        serde_json::from_str(&self.text()).expect("a JSON body")
    }

    /// The data of the next event of a stream. Each event comes as a chunk, whose size lines are skipped.
    pub(crate) fn event(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.body.read_line(&mut line).expect("a line") == 0 {
                return None;
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return Some(data.trim_end().to_owned());
            }
        }
    }

    pub(crate) fn message(&mut self) -> Value {
        serde_json::from_str(&self.event().expect("an event")).expect("an event is JSON")
    }
}
