//! Agents' own configuration files: where they are, and how this gateway is written into them.
//!
//! Only what is needed changes. A file that cannot be read as what it should be is left alone, with the lines to put in by
//! hand; nothing is ever guessed.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::in_place;
use crate::commands::import::jsonc;

/// An agent whose configuration we can write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Client {
    /// Claude Desktop
    ClaudeDesktop,
    /// Claude Code, in this project (.mcp.json)
    ClaudeCode,
    /// Cursor
    Cursor,
    /// VS Code, in this project (.vscode/mcp.json)
    Vscode,
    /// Codex
    Codex,
}

/// How the client reaches the gateway.
#[derive(Debug, Clone)]
pub(crate) struct Reach {
    /// Where agents connect over HTTP.
    pub(crate) url: String,
    /// This program.
    pub(crate) program: PathBuf,
    /// The gateway's home folder.
    pub(crate) home: PathBuf,
}

/// A file with the gateway in it.
#[derive(Debug, PartialEq)]
pub(crate) struct Edited {
    pub(crate) text: String,
    /// Servers that the client still reaches without us.
    pub(crate) others: Vec<String>,
}

impl Client {
    /// All of them.
    pub(crate) const ALL: [Client; 5] =
        [Client::ClaudeDesktop, Client::ClaudeCode, Client::Cursor, Client::Vscode, Client::Codex];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Client::ClaudeDesktop => "claude-desktop",
            Client::ClaudeCode => "claude-code",
            Client::Cursor => "cursor",
            Client::Vscode => "vscode",
            Client::Codex => "codex",
        }
    }

    /// Where its file is, seen from a user's home folder and the current one.
    pub(crate) fn file(self, user: &Path, here: &Path) -> PathBuf {
        match self {
            Client::ClaudeDesktop if cfg!(target_os = "macos") => {
                user.join("Library/Application Support/Claude/claude_desktop_config.json")
            }
            Client::ClaudeDesktop => user.join(".config/Claude/claude_desktop_config.json"),
            Client::ClaudeCode => here.join(".mcp.json"),
            Client::Cursor => user.join(".cursor/mcp.json"),
            Client::Vscode => here.join(".vscode/mcp.json"),
            Client::Codex => user.join(".codex/config.toml"),
        }
    }

    /// The member that holds servers.
    fn servers(self) -> &'static str {
        match self {
            Client::Vscode => "servers",
            Client::Codex => "mcp_servers",
            _ => "mcpServers",
        }
    }

    /// What is written for the gateway.
    pub(crate) fn entry(self, reach: &Reach) -> Value {
        let (program, home) = (reach.program.to_string_lossy(), reach.home.to_string_lossy());
        match self {
            // These start their servers themselves; what they start attaches to the running gateway.
            Client::ClaudeDesktop | Client::Codex => {
                json!({"command": program, "args": ["--home", home, "serve", "--stdio"]})
            }
            Client::Cursor => json!({"url": reach.url}),
            Client::ClaudeCode | Client::Vscode => json!({"type": "http", "url": reach.url}),
        }
    }

    /// The file with the gateway in it, under `name`, and without servers that are reached through it now.
    pub(crate) fn edit(
        self,
        text: &str,
        name: &str,
        reach: &Reach,
        governed: &[String],
    ) -> Result<Edited, String> {
        match self {
            Client::Codex if governed.is_empty() => self.edit_toml(text, name, reach),
            Client::Codex => {
                Err("entries of TOML files are not taken out, for their comments' sake; do it by hand".into())
            }
            _ => self.edit_json(text, name, reach, governed),
        }
    }

    fn edit_json(self, text: &str, name: &str, reach: &Reach, governed: &[String]) -> Result<Edited, String> {
        let by_hand = || {
            let entry = json!({self.servers(): {name: self.entry(reach)}});
            format!("put this in by hand: {entry}")
        };
        let text = if text.trim().is_empty() { "{}\n" } else { text };
        let mut document: Value = serde_json::from_str(&jsonc::plain(text))
            .map_err(|error| format!("it is not JSON (line {}); {}", error.line(), by_hand()))?;
        let Some(root) = document.as_object_mut() else {
            return Err(format!("it is no object; {}", by_hand()));
        };
        let servers = root.entry(self.servers()).or_insert_with(|| Value::Object(Map::new()));
        let Some(servers) = servers.as_object_mut() else {
            return Err(format!("its {} is no object; {}", self.servers(), by_hand()));
        };
        servers.retain(|server, _| !governed.contains(server));
        servers.insert(name.to_owned(), self.entry(reach));
        let others = servers.keys().filter(|other| *other != name).cloned().collect();
        let entry = serde_json::to_string_pretty(&self.entry(reach)).map_err(|error| error.to_string())?;
        let changed = in_place::change(text, self.servers(), name, &entry, governed);
        // Read back: what is written is what was meant, or nothing is.
        let is_it = |text: &String| {
            serde_json::from_str::<Value>(&jsonc::plain(text)).is_ok_and(|read| read == document)
        };
        let text = changed
            .filter(is_it)
            .ok_or_else(|| format!("it cannot be changed where it stands; {}", by_hand()))?;
        Ok(Edited { text, others })
    }

    /// A table is added at the end, and everything before stays as it is, comments included.
    fn edit_toml(self, text: &str, name: &str, reach: &Reach) -> Result<Edited, String> {
        let document: toml::Table =
            text.parse().map_err(|error: toml::de::Error| format!("it is not TOML: {}", error.message()))?;
        let servers = document.get(self.servers()).and_then(toml::Value::as_table);
        if servers.is_some_and(|servers| servers.contains_key(name)) {
            return Err(format!("it has [{}.{name}] already; remove that, or give --name", self.servers()));
        }
        let others = servers.map(|servers| servers.keys().cloned().collect()).unwrap_or_default();
        let entry = self.entry(reach);
        let mut out = text.to_owned();
        if !out.is_empty() && !out.ends_with('\n') {
            out.push('\n');
        }
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&format!(
            "[{}.{name}]\ncommand = {}\nargs = {}\n",
            self.servers(),
            entry["command"],
            entry["args"]
        ));
        let is_still_toml = out.parse::<toml::Table>().is_ok();
        if is_still_toml {
            Ok(Edited { text: out, others })
        } else {
            Err("its servers cannot be added to".into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach() -> Reach {
        Reach {
            url: "http://127.0.0.1:7411/mcp".into(),
            program: "/opt/portcullis".into(),
            home: "/home/ann/.portcullis".into(),
        }
    }

    #[test]
    fn what_was_there_stays_there() {
        let text = r#"{"theme": "dark", "mcpServers": {"files": {"command": "npx", "args": ["-y", "x"]}}}"#;
        let edited = Client::ClaudeDesktop.edit(text, "portcullis", &reach(), &[]).unwrap();
        let document: Value = serde_json::from_str(&edited.text).unwrap();
        assert_eq!(document["theme"], "dark");
        assert_eq!(document["mcpServers"]["files"]["command"], "npx");
        assert_eq!(document["mcpServers"]["portcullis"]["args"][3], "--stdio");
        assert_eq!(edited.others, ["files"]);
        let fresh: Value =
            serde_json::from_str(&Client::Vscode.edit("", "portcullis", &reach(), &[]).unwrap().text)
                .unwrap();
        assert_eq!(
            fresh,
            json!({"servers": {"portcullis": {"type": "http", "url": "http://127.0.0.1:7411/mcp"}}})
        );
    }

    #[test]
    fn what_is_governed_now_goes_and_the_rest_stays() {
        // GOV-1401, --rewrite
        let text = r#"{"mcpServers": {"files": {"command": "npx"}, "other": {"command": "x"}}}"#;
        let edited = Client::Cursor.edit(text, "portcullis", &reach(), &["files".into()]).unwrap();
        let document: Value = serde_json::from_str(&edited.text).unwrap();
        assert_eq!(document["mcpServers"].as_object().unwrap().len(), 2);
        assert_eq!(
            (&document["mcpServers"]["files"], edited.others),
            (&Value::Null, vec!["other".to_owned()])
        );
    }

    #[test]
    fn comments_and_secrets_stay_where_they_are() {
        let text =
            "{ // mine\n  \"mcpServers\": {\n    \"a\": {\"env\": {\"TOKEN\": \"x\"}}, // keep\n  },\n}\n";
        let edited = Client::Cursor.edit(text, "portcullis", &reach(), &[]).unwrap();
        let entry = "\n    \"portcullis\": {\n      \"url\": \"http://127.0.0.1:7411/mcp\"\n    },";
        assert_eq!(edited.text.replacen(entry, "", 1), text, "nothing else is another");
        assert_eq!(edited.others, ["a"]);
    }

    #[test]
    fn what_cannot_be_read_is_left_alone() {
        for text in ["/* a comment that does not end\n{}", "[]", r#"{"mcpServers": []}"#, "{} {}"] {
            let refused = Client::Cursor.edit(text, "portcullis", &reach(), &[]).unwrap_err();
            assert!(refused.contains("by hand"), "{refused}");
        }
        assert!(Client::Codex.edit("a = ", "portcullis", &reach(), &[]).is_err());
    }

    #[test]
    fn toml_keeps_its_comments() {
        let text = "# mine\nmodel = \"x\"\n[mcp_servers.files]\ncommand = \"npx\"";
        let edited = Client::Codex.edit(text, "portcullis", &reach(), &[]).unwrap();
        assert!(edited.text.starts_with(text));
        assert_eq!(edited.others, ["files"]);
        let table: toml::Table = edited.text.parse().unwrap();
        assert_eq!(table["mcp_servers"]["portcullis"]["command"].as_str(), Some("/opt/portcullis"));
        assert!(
            Client::Codex.edit(&edited.text, "portcullis", &reach(), &[]).unwrap_err().contains("already")
        );
    }
}
