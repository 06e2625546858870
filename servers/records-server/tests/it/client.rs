//! A client with nothing between it and the bytes.

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// What a server answered.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Value,
    pub(crate) text: String,
}

/// One request on a connection of its own.
pub(crate) async fn ask(base: &str, method: &str, path: &str, token: Option<&str>, body: &Value) -> Reply {
    let address = base.strip_prefix("http://").unwrap();
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let bearer = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
    // Captured paths hold characters that no HTTP library would send as they are.
    let path = path.replace(' ', "%20");
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\n{bearer}content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let status = text.split(' ').nth(1).unwrap().parse().unwrap();
    let body = text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
    Reply { status, body: serde_json::from_str(&body).unwrap_or(Value::Null), text: body }
}
