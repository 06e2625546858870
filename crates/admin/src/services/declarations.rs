//! What is declared of servers: read, compared, drafted, handed in, rejected.

use std::collections::BTreeSet;

use portcullis_core::ServerIdentity;
use portcullis_core::error::one_line;
use portcullis_gateway::control::{DeclarationText, Drafting};
use portcullis_governance::declaration::{Declaration, Source};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::servers::ServerService;
use crate::error::AdminError;
use crate::grant::Op;

/// A declaration.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct DeclarationRecord {
    /// Of which server.
    pub server_id: String,
    /// How it is called: `1:…` if it was accepted, `s1` if it was handed in.
    pub version: String,
    /// `submitted`, `accepted`, `rejected` or `superseded`.
    pub state: String,
    /// The digest of its text.
    pub digest: String,
    /// What is wrong with it.
    pub problems: Vec<String>,
    /// Its text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declaration: Option<String>,
}

/// In what two declarations differ.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct DeclarationDiff {
    /// Of which server.
    pub server_id: String,
    /// Tools that only the second declares.
    pub added: Vec<String>,
    /// Tools that only the first declares.
    pub removed: Vec<String>,
    /// Tools that both declare, otherwise.
    pub changed: Vec<String>,
    /// Other members that differ.
    pub other: Vec<String>,
}

/// A draft of a declaration.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct DraftedDeclaration {
    /// Of which server.
    pub server_id: String,
    /// Its text, to be read and edited.
    pub declaration: String,
    /// What is new in it, in words.
    pub added: Vec<String>,
    /// What was left out, and why.
    pub left_out: Vec<String>,
}

impl ServerService {
    /// One declaration.
    pub async fn declaration(
        &self,
        id: &ServerIdentity,
        version: &str,
    ) -> Result<DeclarationRecord, AdminError> {
        Ok(record(id, self.control.declaration(id, version).await?))
    }

    /// In what two differ, tool by tool.
    pub async fn compare(
        &self,
        id: &ServerIdentity,
        from: &str,
        to: &str,
    ) -> Result<DeclarationDiff, AdminError> {
        let one = read(&self.control.declaration(id, from).await?.text)?;
        let other = read(&self.control.declaration(id, to).await?.text)?;
        let names = |document: &Value| -> BTreeSet<String> {
            document["tools"].as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect()
        };
        let (before, after) = (names(&one), names(&other));
        let shown = |found: Vec<&String>| found.into_iter().map(|name| one_line(name)).collect();
        let members = |document: &Value| -> BTreeSet<String> {
            document.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect()
        };
        let all: BTreeSet<String> = members(&one).union(&members(&other)).cloned().collect();
        Ok(DeclarationDiff {
            server_id: id.to_string(),
            added: shown(after.difference(&before).collect()),
            removed: shown(before.difference(&after).collect()),
            changed: shown(
                before
                    .intersection(&after)
                    .filter(|name| one["tools"][*name] != other["tools"][*name])
                    .collect(),
            ),
            other: all
                .into_iter()
                .filter(|member| member != "tools" && one[member] != other[member])
                .collect(),
        })
    }

    /// A draft: scopes for what a server was denied, or the worst case of what it lists now.
    pub async fn draft(
        &self,
        op: &Op,
        id: &ServerIdentity,
        from_denials: bool,
    ) -> Result<DraftedDeclaration, AdminError> {
        if from_denials {
            let proposed = self.control.draft_from_denials(op.operator(), id).await?;
            return Ok(DraftedDeclaration {
                server_id: id.to_string(),
                declaration: proposed.document,
                added: proposed.added,
                left_out: proposed.left_out,
            });
        }
        let drafted = self.control.draft_again(op.operator(), id).await?;
        Ok(DraftedDeclaration {
            server_id: id.to_string(),
            declaration: drafted.document,
            added: drafted.tools.iter().map(|tool| one_line(&tool.name)).collect(),
            left_out: drafted
                .left_out
                .iter()
                .map(|(tool, why)| one_line(&format!("{tool}: {why}")))
                .collect(),
        })
    }

    /// Looks at a server that is not registered, and drafts the worst case of what it lists.
    pub async fn draft_new(&self, op: &Op, asked: Drafting) -> Result<Value, AdminError> {
        let drafted = self.control.draft(op.operator(), asked).await?;
        serde_json::to_value(&drafted).map_err(|error| AdminError::failure(error.to_string()))
    }

    /// Hands one in.
    pub async fn submit(
        &self,
        op: &Op,
        id: &ServerIdentity,
        text: &str,
    ) -> Result<DeclarationRecord, AdminError> {
        let submission = self.control.submit_declaration(op.operator(), id, text).await?;
        self.declaration(id, &submission.version()).await
    }

    /// Rejects one that was handed in.
    pub async fn reject(
        &self,
        op: &Op,
        id: &ServerIdentity,
        version: &str,
    ) -> Result<DeclarationRecord, AdminError> {
        let found = self.control.submission(id, version)?;
        self.control.settle_submission(op.operator(), found, "rejected").await?;
        self.declaration(id, version).await
    }
}

fn record(id: &ServerIdentity, found: DeclarationText) -> DeclarationRecord {
    DeclarationRecord {
        server_id: id.to_string(),
        version: found.version,
        state: found.state,
        digest: found.digest.to_string(),
        problems: found.problems,
        declaration: Some(found.text),
    }
}

/// As a tree: what was accepted is kept as JSON, what was handed in may be YAML, which JSON is too.
fn read(text: &str) -> Result<Value, AdminError> {
    Declaration::parse(&Source { name: "the declaration", text })
        .map(|declaration| declaration.document)
        .map_err(|_| AdminError::conflict("one of the two cannot be read as a declaration"))
}
