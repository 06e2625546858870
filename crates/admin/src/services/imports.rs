//! Servers in clients' configurations.

use std::sync::Arc;

use portcullis_core::error::one_line;
use portcullis_core::scrub::scrub;
use portcullis_gateway::Control;
use portcullis_gateway::control::{ImportSource, Target};
use schemars::JsonSchema;
use serde::Serialize;

use crate::error::AdminError;
use crate::grant::Op;

/// A server that a client reaches.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct FoundRecord {
    /// In whose configuration.
    pub source: String,
    /// As the client calls it.
    pub name: String,
    /// How it is reached, without secrets.
    pub reached: String,
    /// Names of what it is given, whose values are masked.
    pub given: Vec<String>,
    /// Whether it is behind the gate already.
    pub registered: bool,
    /// Why a tool cannot import it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// What became of servers that were to be imported.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ImportRecord {
    /// Those that are drafted now, or registered.
    pub drafted: Vec<String>,
    /// Those that are not, and why.
    pub problems: Vec<String>,
}

/// Imports.
#[derive(Debug, Clone)]
pub struct ImportService {
    control: Arc<Control>,
}

impl ImportService {
    pub(crate) fn new(control: Arc<Control>) -> Self {
        Self { control }
    }

    /// What there is to import.
    pub fn scan(&self, source: Option<ImportSource>) -> Vec<FoundRecord> {
        let found = self.control.scan_imports(source).into_iter();
        let rows = found.map(|found| FoundRecord {
            source: found.source.as_str().to_owned(),
            reached: match &found.target {
                Some(Target::Stdio { command, args, .. }) => one_line(&scrub(
                    &std::iter::once(command).chain(args).cloned().collect::<Vec<_>>().join(" "),
                )),
                Some(Target::Http { url, .. } | Target::Sse { url, .. } | Target::Records { url, .. }) => {
                    one_line(&scrub(url))
                }
                None => String::new(),
            },
            name: one_line(&found.name),
            given: found.given.iter().map(|name| format!("{}=***", one_line(name))).collect(),
            registered: found.registered,
            problem: found.problem,
        });
        rows.collect()
    }

    /// Drafts some of it, and registers it if `accept` says so.
    pub async fn run(
        &self,
        op: &Op,
        source: ImportSource,
        names: &[String],
        (vendor, accept): (bool, bool),
    ) -> Result<ImportRecord, AdminError> {
        if vendor {
            let text = "packages are fetched by `portcullis import --vendor`, which shows what it fetches";
            return Err(AdminError::argument("vendor", text));
        }
        let done = self.control.import(op.operator(), source, names, accept, op.reason()).await?;
        let (skipped, drafted): (Vec<_>, Vec<_>) = done.into_iter().partition(|one| one.status == "skipped");
        let line = |one: &portcullis_gateway::control::Imported| {
            one_line(&scrub(&format!("{}: {}", one.name, one.reason)))
        };
        Ok(ImportRecord {
            drafted: drafted.iter().map(|one| one_line(&one.name)).collect(),
            problems: skipped.iter().map(line).collect(),
        })
    }
}
