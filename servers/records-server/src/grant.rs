//! Who asks, and what of it all they may see.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::answer::Refusal;
use crate::store::{Store, hashed};

/// A token that is good.
#[derive(Debug, Clone)]
pub struct Bearer {
    pub label: String,
    pub kind: String,
    pub grant_id: String,
    pub client_id: String,
    /// Id and name of each connection that it reaches, in order.
    pub connections: Vec<(String, String)>,
    /// The streams, and the fields of each where not all.
    streams: BTreeMap<String, Option<Vec<String>>>,
}

/// The label of a token, for the log; `None` if nobody knows it.
pub async fn label(store: &Store, token: Option<&str>) -> Option<String> {
    let rows = store.rows("SELECT label FROM tokens WHERE sha256 = ?", &[&hashed(token?)]).await.ok()?;
    rows.into_iter().next()?.into_iter().next()?
}

impl Bearer {
    pub async fn find(store: &Store, token: Option<&str>) -> Result<Self, Refusal> {
        let Some(token) = token else {
            return Err(Refusal::new(401, "authentication_error", "Missing Bearer token"));
        };
        let closed = |code| Refusal::new(401, code, "Token introspection failed closed");
        let sql = "SELECT label, grant_id, kind, CAST(expired AS TEXT) FROM tokens WHERE sha256 = ?";
        let rows = store.rows(sql, &[&hashed(token)]).await?;
        let Some([Some(label), grant, Some(kind), expired]) = rows.first().map(Vec::as_slice) else {
            return Err(closed("context.active_false"));
        };
        if expired.as_deref() != Some("0") {
            return Err(closed("context.active_false"));
        }
        let all = store.rows("SELECT id, display_name FROM connections ORDER BY id", &[]).await?;
        let all: Vec<(String, String)> = all
            .into_iter()
            .map(|mut row| (row[0].take().unwrap_or_default(), row[1].take().unwrap_or_default()))
            .collect();
        let mut bearer = Self {
            label: label.clone(),
            kind: kind.clone(),
            grant_id: grant.clone().unwrap_or_default(),
            client_id: String::new(),
            connections: all,
            streams: crate::catalogue::STREAMS.iter().map(|stream| (stream.name.to_owned(), None)).collect(),
        };
        if kind == "owner" {
            return Ok(bearer);
        }
        let sql = "SELECT client_id, CAST(revoked AS TEXT), scope_json FROM grants WHERE id = ?";
        let rows = store.rows(sql, &[&bearer.grant_id]).await?;
        let Some([Some(client), revoked, Some(scope)]) = rows.first().map(Vec::as_slice) else {
            return Err(Refusal::new(403, "grant_invalid", "Grant is not valid"));
        };
        if revoked.as_deref() != Some("0") {
            return Err(Refusal::new(403, "grant_revoked", "Grant has been revoked"));
        }
        let scope: Value = serde_json::from_str(scope).unwrap_or_default();
        bearer.client_id.clone_from(client);
        bearer
            .connections
            .retain(|(id, _)| scope["connections"].as_array().is_some_and(|list| list.contains(&json!(id))));
        bearer.streams = (scope["streams"].as_object().into_iter().flatten())
            .map(|(name, fields)| (name.clone(), serde_json::from_value(fields.clone()).ok()))
            .collect();
        Ok(bearer)
    }

    pub fn is_owner(&self) -> bool {
        self.kind == "owner"
    }

    pub fn shown(&self) -> Value {
        if self.is_owner() {
            return json!({"scope": "owner", "token_kind": "owner"});
        }
        json!({"scope": "grant", "token_kind": self.kind, "grant_id": self.grant_id, "client_id": self.client_id})
    }

    pub fn reaches(&self, stream: &str) -> bool {
        self.streams.contains_key(stream)
    }

    /// Whether a field may be read; the key always, inside.
    pub fn sees(&self, stream: &str, field: &str) -> bool {
        match self.streams.get(stream) {
            Some(Some(fields)) => fields.iter().any(|name| name == field),
            Some(None) => true,
            None => false,
        }
    }

    /// A stream that the grant covers.
    pub fn stream(&self, name: &str) -> Result<&'static crate::catalogue::Stream, Refusal> {
        let found = crate::catalogue::stream(name).filter(|_| self.reaches(name));
        found.ok_or_else(|| {
            Refusal::new(401, "context.stream_not_allowed", "Token introspection failed closed")
        })
    }

    /// The connections meant by `connection_id`: that one, or all.
    pub fn connections(&self, wanted: Option<&str>) -> Result<Vec<(String, String)>, Refusal> {
        let Some(wanted) = wanted else { return Ok(self.connections.clone()) };
        let found = self.connections.iter().filter(|(id, _)| id == wanted).cloned().collect::<Vec<_>>();
        if found.is_empty() {
            return Err(Refusal::new(401, "context.instance_mismatch", "Token introspection failed closed"));
        }
        Ok(found)
    }

    /// The choices an error offers.
    pub fn available(&self) -> Value {
        let list =
            self.connections.iter().map(|(id, name)| json!({"connection_id": id, "display_name": name}));
        list.collect::<Vec<_>>().into()
    }
}
