//! Servers as clients' configurations name them.

use std::collections::BTreeMap;

use serde_json::Value;

use super::jsonc;

/// One server of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) how: How,
}

/// How the client reaches it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum How {
    Stdio { command: String, args: Vec<String>, env: BTreeMap<String, String> },
    Http { url: String, headers: BTreeMap<String, String> },
    Sse { url: String, headers: BTreeMap<String, String> },
}

/// An entry that is none, by its name; the others are not less for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NotUnderstood {
    pub(super) name: String,
    pub(super) reason: String,
}

/// Reads `mcpServers`, VS Code's `servers`, or Codex's `mcp_servers`. JSON may have comments, as editors allow.
pub(super) fn read(text: &str, is_toml: bool) -> Result<Vec<Result<Entry, NotUnderstood>>, String> {
    let document: Value = match is_toml {
        true => {
            let table: toml::Table = text
                .parse()
                .map_err(|error: toml::de::Error| format!("it is not TOML: {}", error.message()))?;
            serde_json::to_value(table).map_err(|error| error.to_string())?
        }
        false => serde_json::from_str(&jsonc::plain(text))
            .map_err(|error| format!("it is not JSON: line {}, column {}", error.line(), error.column()))?,
    };
    let members = ["mcpServers", "servers", "mcp_servers"];
    let servers = members.iter().find_map(|member| document.get(member));
    let servers = servers.ok_or_else(|| format!("it has none of {}", members.join(", ")))?;
    let servers = servers.as_object().ok_or("its servers are no object")?;
    let read = |(name, entry): (&String, &Value)| {
        understand(name, entry).map_err(|reason| NotUnderstood { name: name.clone(), reason })
    };
    Ok(servers.iter().map(read).collect())
}

fn understand(name: &str, entry: &Value) -> Result<Entry, String> {
    let wrong = |what: &str| what.to_owned();
    let text = |member: &str| entry.get(member).and_then(Value::as_str).map(ToOwned::to_owned);
    let texts = |member: &str| -> Option<BTreeMap<String, String>> {
        let members = entry.get(member).and_then(Value::as_object).cloned().unwrap_or_default();
        let members = members.into_iter().map(|(name, value)| match value {
            Value::String(value) => Some((name, value)),
            Value::Number(value) => Some((name, value.to_string())),
            Value::Bool(value) => Some((name, value.to_string())),
            _ => None,
        });
        members.collect()
    };
    let how = match (text("command"), text("url").or_else(|| text("serverUrl"))) {
        (Some(command), None) => {
            let args = entry.get("args").and_then(Value::as_array).cloned().unwrap_or_default();
            let args = args.iter().map(|arg| arg.as_str().map(ToOwned::to_owned));
            How::Stdio {
                command,
                args: args.collect::<Option<_>>().ok_or_else(|| wrong("an argument is no text"))?,
                env: texts("env").ok_or_else(|| wrong("a variable is no text"))?,
            }
        }
        (None, Some(url)) => {
            // Codex calls them otherwise.
            let headers = texts("headers").zip(texts("http_headers"));
            let (mut headers, more) = headers.ok_or_else(|| wrong("a header is no text"))?;
            headers.extend(more);
            match text("type").as_deref() {
                Some("sse") => How::Sse { url, headers },
                _ => How::Http { url, headers },
            }
        }
        _ => return Err(wrong("it has neither a command nor a URL, or both")),
    };
    Ok(Entry { name: name.to_owned(), how })
}

impl Entry {
    /// Whether this is the gateway itself, as `connect` writes it.
    pub(super) fn is_this_gateway(&self, listen: &str) -> bool {
        match &self.how {
            How::Stdio { command, args, .. } => {
                std::path::Path::new(command).file_name().is_some_and(|name| name == "portcullis")
                    && args.iter().any(|arg| arg == "serve")
            }
            How::Http { url, .. } | How::Sse { url, .. } => {
                url.strip_prefix("http://").is_some_and(|rest| rest.starts_with(listen))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The entries of a file in which all are understood.
    fn all(text: &str, is_toml: bool) -> Vec<Entry> {
        read(text, is_toml).unwrap().into_iter().collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn all_three_shapes_are_read() {
        // GOV-1401, T-IMP-1
        let stdio = Entry {
            name: "files".into(),
            how: How::Stdio {
                command: "npx".into(),
                args: vec!["-y".into(), "x".into()],
                env: BTreeMap::from([("A".into(), "1".into())]),
            },
        };
        let claude = r#"{"mcpServers": {"files": {"command": "npx", "args": ["-y", "x"], "env": {"A": 1}}}, "theme": "dark"}"#;
        assert_eq!(all(claude, false), std::slice::from_ref(&stdio));
        let vscode = r#"{"inputs": [], "servers": {"web": {"type": "http", "url": "https://a.example/mcp"}, "old": {"type": "sse", "url": "https://b.example/sse"}}}"#;
        let web = Entry {
            name: "web".into(),
            how: How::Http { url: "https://a.example/mcp".into(), headers: BTreeMap::new() },
        };
        let old = Entry {
            name: "old".into(),
            how: How::Sse { url: "https://b.example/sse".into(), headers: BTreeMap::new() },
        };
        let mut read_back = all(vscode, false);
        read_back.sort_by(|a, b| b.name.cmp(&a.name));
        assert_eq!(read_back, [web, old]);
        let codex = "[mcp_servers.files]\ncommand = \"npx\"\nargs = [\"-y\", \"x\"]\nenv = { A = \"1\" }\n";
        assert_eq!(all(codex, true), [stdio]);
    }

    #[test]
    fn what_is_not_understood_is_said() {
        for (text, says) in
            [("{nope}", "line 1"), ("{}", "mcpServers"), (r#"{"mcpServers": []}"#, "no object")]
        {
            let refused = read(text, false).unwrap_err();
            assert!(refused.contains(says), "{text}: {refused}");
        }
    }

    #[test]
    fn an_entry_that_is_not_understood_leaves_the_others_alone() {
        // T-IMP-1
        for (entry, says) in [
            ("{}", "neither"),
            (r#"{"command": "a", "url": "b"}"#, "both"),
            (r#"{"command": "a", "args": [1]}"#, "no text"),
        ] {
            let text = format!(r#"{{"mcpServers": {{"a": {{"command": "x"}}, /* odd */ "b": {entry}, }}}}"#);
            let mut found = read(&text, false).unwrap();
            found.sort_by_key(Result::is_err);
            assert_eq!(found[0].as_ref().unwrap().name, "a");
            let odd = found[1].as_ref().unwrap_err();
            assert_eq!(odd.name, "b");
            assert!(odd.reason.contains(says), "{entry}: {}", odd.reason);
        }
    }

    #[test]
    fn the_gateway_itself_is_known() {
        let entries = r#"{"mcpServers": {
            "a": {"command": "/opt/portcullis", "args": ["--home", "/x", "serve", "--stdio"]},
            "b": {"url": "http://127.0.0.1:7411/mcp"}}}"#;
        assert!(all(entries, false).iter().all(|entry| entry.is_this_gateway("127.0.0.1:7411")));
    }
}
