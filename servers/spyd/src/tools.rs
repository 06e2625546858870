//! What the tools do. Arguments are not checked: whatever reached the spy is what a test wants to see come through.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::catalogue;
use crate::control::{Attempts, Control};
use crate::frame::Failure;
use crate::frame_log::FrameLog;
use crate::outbox::Outbox;

/// Where a call reports its progress, if the client asked for it.
pub(crate) struct Progress<'a> {
    pub(crate) token: Option<Value>,
    pub(crate) outbox: &'a Outbox,
}

impl Progress<'_> {
    fn report(&self, progress: f64) {
        if let Some(token) = &self.token {
            self.outbox.send(&json!({
                "jsonrpc": "2.0",
                "method": "notifications/progress",
                "params": { "progressToken": token, "progress": progress, "total": 1.0, "message": "still spying" }
            }));
        }
    }
}

/// Runs one call; the members of its result.
pub(crate) async fn call(
    control: &Control,
    name: &str,
    arguments: &Map<String, Value>,
    progress: Progress<'_>,
) -> Result<Value, Failure> {
    if !catalogue::tools(control).iter().any(|tool| tool["name"] == name) {
        return Err(Failure::new(-32602, format!("no such tool: {name}")));
    }
    if let Some(error) = control.error.get(name) {
        return Err(Failure {
            code: error["code"].as_i64().unwrap_or(-32603),
            message: error["message"].as_str().unwrap_or_default().to_owned(),
            data: error.get("data").cloned(),
        });
    }
    if let Some(result) = control.result.get(name) {
        return Ok(result.clone());
    }
    let string = |key: &str| arguments.get(key).and_then(Value::as_str).unwrap_or_default();
    let number = |key: &str| arguments.get(key).and_then(Value::as_i64).unwrap_or_default();
    Ok(match name {
        "echo" => {
            let structured = if control.bad_output { json!(7) } else { string("text").into() };
            let mut result = text(string("text"));
            result["structuredContent"] = json!({ "text": structured });
            result
        }
        "add" => text(&number("a").wrapping_add(number("b")).to_string()),
        "write_thing" => {
            text(&format!("pretended to write {} bytes to {}", string("text").len(), string("path")))
        }
        "slow" => {
            let half = Duration::from_millis(u64::try_from(number("ms")).unwrap_or_default() / 2);
            tokio::time::sleep(half).await;
            progress.report(0.5);
            tokio::time::sleep(half).await;
            text("done")
        }
        "big" => {
            text(&"x".repeat(usize::try_from(number("bytes")).unwrap_or_default().min(32 * 1024 * 1024)))
        }
        "fail" => json!({ "content": [{ "type": "text", "text": string("message") }], "isError": true }),
        "rpc_error" => return Err(Failure::new(number("code"), string("message"))),
        "env" => {
            let mut names: Vec<String> =
                std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()).collect();
            names.sort_unstable();
            text(&json!(names).to_string())
        }
        "pid" => text(&std::process::id().to_string()),
        extra => text(&format!("{extra} was called")),
    })
}

fn text(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }], "isError": false })
}

/// Tries each way out and logs what came of it as `escape` events.
pub(crate) fn attempt(attempts: &Attempts, log: &FrameLog) {
    let note = |what: String, outcome: std::io::Result<()>| {
        let outcome = outcome.map_or_else(|error| error.to_string(), |()| "ok".to_owned());
        log.event("escape", &[("what", what.into()), ("outcome", outcome.into())]);
    };
    for path in &attempts.read {
        note(format!("read {}", path.display()), std::fs::read(path).map(drop));
    }
    for path in &attempts.write {
        note(format!("write {}", path.display()), std::fs::write(path, "spyd was here"));
    }
    for target in &attempts.connect {
        let connected = target.to_socket_addrs().and_then(|mut addresses| {
            let address = addresses.next().ok_or(std::io::ErrorKind::AddrNotAvailable)?;
            TcpStream::connect_timeout(&address, Duration::from_secs(2)).map(drop)
        });
        note(format!("connect {target}"), connected);
    }
    for (target, words) in &attempts.say {
        let said = say(target, words);
        let outcome = said.unwrap_or_else(|error| error.to_string());
        let what = format!("say {target}");
        log.event("escape", &[("what", what.into()), ("outcome", outcome.into())]);
    }
    for program in &attempts.exec {
        let ran = std::process::Command::new(program)
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .status();
        note(format!("exec {}", program.display()), ran.map(drop));
    }
}

/// Says something to somebody; the first line of the answer, or nothing.
fn say(target: &str, words: &str) -> std::io::Result<String> {
    let address = target.to_socket_addrs()?.next().ok_or(std::io::ErrorKind::AddrNotAvailable)?;
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(words.as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}
