//! The same acts, asked for over MCP: the smallest server there can be, and no honest one.

use std::io::{self, BufRead as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::told;

static DEAF: AtomicBool = AtomicBool::new(false);

/// From now on neither the end of its input nor a request to end means anything to it.
#[allow(unsafe_code)]
pub(crate) fn be_deaf() -> io::Result<String> {
    DEAF.store(true, Ordering::Release);
    // SAFETY: a signal is ignored; no code of ours runs for it.
    unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
    Ok(String::new())
}

/// Answers until its input ends.
pub(crate) fn run() {
    answer_all();
    while DEAF.load(Ordering::Acquire) {
        std::thread::sleep(std::time::Duration::from_secs(600));
    }
}

fn answer_all() {
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        let Ok(request) = serde_json::from_str::<Value>(&line) else { continue };
        let Some(id) = request.get("id") else { continue };
        let answer = match answer(&request) {
            Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            Err(code) => json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "no"}}),
        };
        println!("{answer}");
        let _ = io::stdout().flush();
    }
}

fn answer(request: &Value) -> Result<Value, i64> {
    match request["method"].as_str().unwrap_or_default() {
        "initialize" => Ok(json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "evil", "version": "1.0.0"},
        })),
        "ping" => Ok(json!({})),
        "tools/list" => Ok(json!({"tools": [tool("act"), tool("other")]})),
        "tools/call" => {
            let act = request["params"]["arguments"]["do"].as_array().into_iter().flatten();
            let act: Vec<&str> = act.filter_map(Value::as_str).collect();
            let text = told(&act).to_string();
            Ok(json!({"content": [{"type": "text", "text": text}]}))
        }
        _ => Err(-32601),
    }
}

fn tool(name: &str) -> Value {
    let acts = json!({"type": "array", "items": {"type": "string"}});
    let schema = json!({"type": "object", "additionalProperties": false, "required": ["do"], "properties": {"do": acts}});
    json!({"name": name, "description": "Try something.", "inputSchema": schema})
}
