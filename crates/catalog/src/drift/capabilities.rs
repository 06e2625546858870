//! A file of capabilities (CAT-110).

use portcullis_core::Sha256Digest;
use portcullis_core::canon::to_jcs;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::CatalogError;
use crate::item::{Effect, Kind, SelectableItem};

const FORMAT: &str = "portcullis-capabilities/1";

/// What servers offer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capabilities {
    format: String,
    /// Sorted by name.
    pub servers: Vec<Server>,
}

/// What one server offers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Its registered identity.
    pub name: String,
    /// Its registered version.
    pub version: String,
    /// The revision of the protocol it speaks.
    pub protocol: String,
    /// The accepted declaration, or nothing for what a server says now.
    pub declaration_version: Option<String>,
    /// Sorted by id.
    pub tools: Vec<Offer>,
    /// Sorted by id.
    pub resources: Vec<Offer>,
    /// Sorted by id.
    pub prompts: Vec<Offer>,
}

/// One thing a server offers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Offer {
    /// The id in the catalogue.
    pub id: String,
    /// The upstream name, or the URI.
    pub name: String,
    /// The server's title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The server's description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Value>,
    /// What it gives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// What the server claims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Value>,
    /// What was declared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<String>,
    /// Of the whole definition.
    #[serde(rename = "definition_digest")]
    pub definition_digest: Sha256Digest,
}

impl Offer {
    /// An item with the definition it was made of.
    pub fn of(item: &SelectableItem, definition: &Value) -> Self {
        let text = |key: &str| definition.get(key).and_then(Value::as_str).map(ToOwned::to_owned);
        let input = match item.kind {
            Kind::Tool | Kind::Internal => {
                definition.get("inputSchema").filter(|schema| !schema.is_null()).cloned()
            }
            _ => serde_json::from_str(item.args_schema.get()).ok(),
        };
        Self {
            id: item.id.clone(),
            name: item.upstream_name.clone(),
            title: text("title"),
            description: text("description"),
            input_schema: input,
            output_schema: definition.get("outputSchema").filter(|schema| !schema.is_null()).cloned(),
            annotations: definition.get("annotations").filter(|found| found.is_object()).cloned(),
            effects: item.effects.iter().map(|effect: Effect| effect.as_str().to_owned()).collect(),
            definition_digest: item.definition_digest,
        }
    }
}

impl Capabilities {
    /// Of these servers, in one order.
    pub fn new(mut servers: Vec<Server>) -> Self {
        servers.sort_by(|a, b| a.name.cmp(&b.name));
        for server in &mut servers {
            for offers in [&mut server.tools, &mut server.resources, &mut server.prompts] {
                offers.sort_by(|a, b| a.id.cmp(&b.id));
            }
        }
        Self { format: FORMAT.into(), servers }
    }

    /// The file: RFC 8785.
    pub fn to_bytes(&self) -> Vec<u8> {
        // What a server sends may have no canonical form; then it has one all the same, of sorted keys.
        to_jcs(self).unwrap_or_else(|_| serde_json::to_vec(self).expect("plain data"))
    }

    /// Of the file.
    pub fn digest(&self) -> Sha256Digest {
        Sha256Digest::of(&self.to_bytes())
    }

    /// Reads a file.
    pub fn parse(text: &str) -> Result<Self, CatalogError> {
        let fail = |line, detail: String| CatalogError::SnapshotFormat { line, detail };
        let read: Self = serde_json::from_str(text).map_err(|error| fail(error.line(), error.to_string()))?;
        if read.format != FORMAT {
            return Err(fail(1, format!("the format is not {FORMAT}")));
        }
        Ok(Self::new(read.servers))
    }
}
