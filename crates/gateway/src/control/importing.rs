//! Servers that clients of this user reach today, as their configurations name them: found, and drafted behind the gate. What
//! a configuration gives them as secrets is shown to nobody and taken from nowhere here; moving that is for the command.

use std::path::{Path, PathBuf};

use portcullis_core::{ErrorCode, ServerIdentity};
use portcullis_governance::operator::OperatorProof;
use serde_json::Value;

use super::draft::Drafting;
use super::drafts::KeptDraft;
use super::registration::Target;
use super::{Control, ControlError};

/// Whose configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportSource {
    /// `.mcp.json` of the home folder.
    McpJson,
    /// Claude Desktop.
    ClaudeDesktop,
    /// VS Code.
    Vscode,
}

impl ImportSource {
    /// All of them.
    pub const ALL: [ImportSource; 3] =
        [ImportSource::McpJson, ImportSource::ClaudeDesktop, ImportSource::Vscode];

    /// The word in arguments.
    pub fn as_str(self) -> &'static str {
        match self {
            ImportSource::McpJson => "mcp_json",
            ImportSource::ClaudeDesktop => "claude_desktop",
            ImportSource::Vscode => "vscode",
        }
    }

    fn file(self, user: &Path) -> PathBuf {
        match self {
            ImportSource::McpJson => user.join(".mcp.json"),
            ImportSource::ClaudeDesktop => user.join(".config/Claude/claude_desktop_config.json"),
            ImportSource::Vscode => user.join(".config/Code/User/mcp.json"),
        }
    }
}

/// A server that a client reaches.
#[derive(Debug, Clone)]
pub struct FoundServer {
    /// In whose configuration.
    pub source: ImportSource,
    /// As the client calls it.
    pub name: String,
    /// How it is reached.
    pub target: Option<Target>,
    /// Names of variables and headers it is given, without their values.
    pub given: Vec<String>,
    /// Whether it is behind the gate already.
    pub registered: bool,
    /// Why it cannot be imported by a tool.
    pub problem: Option<String>,
}

/// What became of one.
#[derive(Debug, Clone)]
pub struct Imported {
    /// As the client calls it.
    pub name: String,
    /// `drafted`, `registered` or `skipped`.
    pub status: &'static str,
    /// Why.
    pub reason: String,
}

impl Control {
    /// Servers in clients' configurations, of one source or of all.
    pub fn scan_imports(&self, only: Option<ImportSource>) -> Vec<FoundServer> {
        let Some(user) = std::env::home_dir() else { return Vec::new() };
        let sources = ImportSource::ALL.into_iter().filter(|source| only.is_none_or(|only| only == *source));
        sources.flat_map(|source| self.found_in(source, &source.file(&user))).collect()
    }

    fn found_in(&self, source: ImportSource, file: &Path) -> Vec<FoundServer> {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let document: Value = serde_json::from_str(&text).unwrap_or_default();
        let servers = ["mcpServers", "servers"].iter().find_map(|member| document[*member].as_object());
        let world = self.world();
        let found = |(name, entry): (&String, &Value)| {
            let names = |member: &str| -> Vec<String> {
                entry[member].as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect()
            };
            let given = [names("env"), names("headers")].concat();
            let target = target_of(entry);
            let identity: Option<ServerIdentity> = name.parse().ok();
            let registered = identity.as_ref().is_some_and(|id| world.registry().server(id).is_some());
            let problem = match (&target, &identity) {
                (None, _) => Some("it has neither an absolute command nor a URL".to_owned()),
                (_, None) => Some("its name is none for a server; `portcullis import` finds one".to_owned()),
                _ if !given.is_empty() => Some(
                    "it is given variables or headers; `portcullis import` moves secrets into the vault"
                        .to_owned(),
                ),
                _ => None,
            };
            FoundServer { source, name: name.clone(), target, given, registered, problem }
        };
        servers.into_iter().flatten().map(found).collect()
    }

    /// Drafts servers of a client's configuration, and registers them if `accept` says so.
    pub async fn import(
        &self,
        operator: &OperatorProof,
        source: ImportSource,
        names: &[String],
        accept: bool,
        reason: &str,
    ) -> Result<Vec<Imported>, ControlError> {
        let all = self.scan_imports(Some(source));
        let mut done = Vec::new();
        for name in names {
            let skipped = |reason: String| Imported { name: name.clone(), status: "skipped", reason };
            let Some(found) = all.iter().find(|found| found.name == *name) else {
                done.push(skipped("the configuration names no such server".into()));
                continue;
            };
            let imported = match (&found.problem, &found.target) {
                _ if found.registered => skipped("it is registered already".into()),
                (Some(problem), _) => skipped(problem.clone()),
                (None, None) => skipped("nothing says how it is reached".into()),
                (None, Some(target)) => {
                    match self.import_one(operator, name, target.clone(), accept, reason).await {
                        Ok(imported) => imported,
                        Err(error) if error.is_blocked() => return Err(error),
                        Err(error) => skipped(error.message),
                    }
                }
            };
            done.push(imported);
        }
        Ok(done)
    }

    async fn import_one(
        &self,
        operator: &OperatorProof,
        name: &str,
        target: Target,
        accept: bool,
        reason: &str,
    ) -> Result<Imported, ControlError> {
        let identity: ServerIdentity = name
            .parse()
            .map_err(|_| ControlError::new(ErrorCode::Validation, "its name is none for a server"))?;
        let folders = match &target {
            Target::Stdio { args, .. } => {
                let named = args.iter().map(PathBuf::from);
                named.filter(|path| path.is_absolute() && path.is_dir()).collect()
            }
            _ => Vec::new(),
        };
        let attest = match &target {
            Target::Stdio { .. } => None,
            _ => Some("a server that a client of this user reached before".to_owned()),
        };
        let drafting = Drafting {
            name: name.to_owned(),
            target: target.clone(),
            folders,
            programs: Vec::new(),
            hosts: Vec::new(),
            secrets: Vec::new(),
            attest: attest.clone(),
        };
        let drafted = self.draft(operator, drafting).await?;
        let tools = drafted.draft.tools.len();
        KeptDraft { target, attest, drafted, secrets: Vec::new() }.keep(self.home(), &identity)?;
        let name = name.to_owned();
        if !accept {
            let reason = format!("{tools} tools; declarations_accept registers it");
            return Ok(Imported { name, status: "drafted", reason });
        }
        self.accept_draft(operator, &identity, reason, None, (Vec::new(), false)).await?;
        Ok(Imported { name, status: "registered", reason: format!("{tools} tools") })
    }
}

fn target_of(entry: &Value) -> Option<Target> {
    let text = |member: &str| entry[member].as_str().map(str::to_owned);
    match (text("command"), text("url")) {
        (Some(command), None) if Path::new(&command).is_absolute() => {
            let args = entry["args"].as_array().into_iter().flatten();
            let args: Option<Vec<String>> = args.map(|arg| arg.as_str().map(str::to_owned)).collect();
            Some(Target::Stdio {
                command,
                args: args?,
                env: Default::default(),
                artifacts: Vec::new(),
                process_model: None,
            })
        }
        (None, Some(url)) if entry["type"] == "sse" => Some(Target::Sse { url, tls_spki: None }),
        (None, Some(url)) => Some(Target::Http { url, tls_spki: None }),
        _ => None,
    }
}
