//! What changed, and whom it hurts (CAT-111).

use std::collections::BTreeMap;

use portcullis_core::Sha256Digest;
use portcullis_core::canon::push_segment;
use serde::Serialize;
use serde_json::{Value, json};

use super::capabilities::{Capabilities, Offer, Server};
use super::schema_diff::{Direction, schemas};
use super::text;

/// Whom a change hurts; the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Callers.
    Breaking,
    /// Nobody.
    NonBreaking,
    /// Readers: a description is an attack channel.
    Documentation,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// Whom it hurts.
    pub class: Class,
    /// Whose.
    pub server: String,
    /// `tool:name`, `resource:uri`, `prompt:name`, or nothing if it is about the server.
    pub item: String,
    /// Where in the definition.
    pub pointer: String,
    /// By which rule.
    pub rule: &'static str,
    /// What was there.
    pub before: Value,
    /// What is there.
    pub after: Value,
    /// What is suspicious about a text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub text_findings: Vec<String>,
}

/// Everything that changed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    format: &'static str,
    /// Digest of the one file.
    pub from: Sha256Digest,
    /// Digest of the other.
    pub to: Sha256Digest,
    /// How many of each class.
    pub summary: Summary,
    /// Sorted by server, item and pointer.
    pub changes: Vec<Change>,
}

/// How many of each class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Hurting callers.
    pub breaking: usize,
    /// Hurting nobody.
    pub non_breaking: usize,
    /// Hurting readers.
    pub documentation: usize,
}

impl Report {
    /// Whether there is a change of this class or a worse one.
    pub fn has(&self, class: Class) -> bool {
        self.changes.iter().any(|change| change.class <= class)
    }
}

/// What is different between two files. Items are matched by server and upstream name.
pub fn compare(from: &Capabilities, to: &Capabilities) -> Report {
    let mut changes = Changes { server: String::new(), item: String::new(), found: Vec::new() };
    let by_name = |file: &Capabilities| -> BTreeMap<String, Server> {
        file.servers.iter().map(|server| (server.name.clone(), server.clone())).collect()
    };
    let (old, new) = (by_name(from), by_name(to));
    let nobody = |name: &str| Server {
        name: name.to_owned(),
        version: String::new(),
        protocol: String::new(),
        declaration_version: None,
        tools: Vec::new(),
        resources: Vec::new(),
        prompts: Vec::new(),
    };
    for name in old.keys().chain(new.keys().filter(|name| !old.contains_key(*name))) {
        changes.server.clone_from(name);
        let (before, after) = (old.get(name), new.get(name));
        if let (Some(before), Some(after)) = (before, after) {
            changes.item.clear();
            changes.server_facts(before, after);
        }
        let (before, after) =
            (before.cloned().unwrap_or_else(|| nobody(name)), after.cloned().unwrap_or_else(|| nobody(name)));
        changes.offers("tool", &before.tools, &after.tools);
        changes.offers("resource", &before.resources, &after.resources);
        changes.offers("prompt", &before.prompts, &after.prompts);
    }
    let mut found = changes.found;
    found.sort_by(|a, b| {
        (&a.server, &a.item, &a.pointer, a.rule).cmp(&(&b.server, &b.item, &b.pointer, b.rule))
    });
    let count = |class| found.iter().filter(|change| change.class == class).count();
    let summary = Summary {
        breaking: count(Class::Breaking),
        non_breaking: count(Class::NonBreaking),
        documentation: count(Class::Documentation),
    };
    Report { format: "portcullis-drift/1", from: from.digest(), to: to.digest(), summary, changes: found }
}

pub(super) struct Changes {
    server: String,
    item: String,
    pub(super) found: Vec<Change>,
}

impl Changes {
    pub(super) fn add(
        &mut self,
        class: Class,
        pointer: &str,
        rule: &'static str,
        before: &Value,
        after: &Value,
    ) {
        let text_findings = match (class, before.as_str(), after.as_str()) {
            (Class::Documentation, before, Some(after)) => text::findings(before.unwrap_or_default(), after),
            _ => Vec::new(),
        };
        self.found.push(Change {
            class,
            server: self.server.clone(),
            item: self.item.clone(),
            pointer: pointer.to_owned(),
            rule,
            before: before.clone(),
            after: after.clone(),
            text_findings,
        });
    }

    fn server_facts(&mut self, before: &Server, after: &Server) {
        for (pointer, old, new) in
            [("/version", &before.version, &after.version), ("/protocol", &before.protocol, &after.protocol)]
        {
            if old != new {
                let lower = numbers(new) < numbers(old);
                let (class, rule) = if lower {
                    (Class::Breaking, "version-lower")
                } else {
                    (Class::NonBreaking, "version-changed")
                };
                self.add(class, pointer, rule, &json!(old), &json!(new));
            }
        }
    }

    fn offers(&mut self, kind: &str, before: &[Offer], after: &[Offer]) {
        for old in before {
            self.item = format!("{kind}:{}", old.name);
            match after.iter().find(|new| new.name == old.name) {
                None => self.add(Class::Breaking, "", "item-removed", &json!(old.id), &Value::Null),
                Some(new) => self.offer(old, new),
            }
        }
        for new in after.iter().filter(|new| !before.iter().any(|old| old.name == new.name)) {
            self.item = format!("{kind}:{}", new.name);
            self.add(Class::NonBreaking, "", "item-added", &Value::Null, &json!(new.id));
        }
    }

    fn offer(&mut self, old: &Offer, new: &Offer) {
        let first = self.found.len();
        for (pointer, before, after) in
            [("/title", &old.title, &new.title), ("/description", &old.description, &new.description)]
        {
            if before != after {
                self.add(Class::Documentation, pointer, "text", &json!(before), &json!(after));
            }
        }
        if old.effects != new.effects {
            self.add(Class::NonBreaking, "/effects", "effects", &json!(old.effects), &json!(new.effects));
        }
        self.annotations(old.annotations.as_ref(), new.annotations.as_ref());
        let empty = json!({});
        let input = |offer: &Offer| offer.input_schema.clone().unwrap_or_else(|| empty.clone());
        schemas(self, "/inputSchema", Direction::Input, &input(old), &input(new));
        match (&old.output_schema, &new.output_schema) {
            (None, None) => {}
            (Some(before), None) => {
                self.add(Class::Breaking, "/outputSchema", "output-schema-removed", before, &Value::Null);
            }
            (None, Some(after)) => {
                self.add(Class::NonBreaking, "/outputSchema", "output-schema-added", &Value::Null, after);
            }
            (Some(before), Some(after)) => schemas(self, "/outputSchema", Direction::Output, before, after),
        }
        // `_meta` and whatever else there is shows in the digest alone.
        if self.found.len() == first && old.definition_digest != new.definition_digest {
            let (before, after) = (json!(old.definition_digest), json!(new.definition_digest));
            self.add(Class::NonBreaking, "/_meta", "other", &before, &after);
        }
    }

    fn annotations(&mut self, old: Option<&Value>, new: Option<&Value>) {
        let empty = serde_json::Map::new();
        let members = |value: Option<&'_ Value>| {
            value.and_then(Value::as_object).cloned().unwrap_or_else(|| empty.clone())
        };
        let (old, new) = (members(old), members(new));
        for key in old.keys().chain(new.keys().filter(|key| !old.contains_key(*key))) {
            let (before, after) =
                (old.get(key).unwrap_or(&Value::Null), new.get(key).unwrap_or(&Value::Null));
            if before == after {
                continue;
            }
            let (was, is) = (before == &Value::Bool(true), after == &Value::Bool(true));
            let worse = match key.as_str() {
                "readOnlyHint" | "idempotentHint" => was && !is,
                "destructiveHint" => is,
                _ => false,
            };
            let class = if worse { Class::Breaking } else { Class::NonBreaking };
            let class = if key == "title" { Class::Documentation } else { class };
            let mut pointer = "/annotations".to_owned();
            push_segment(&mut pointer, key);
            self.add(class, &pointer, "annotation", before, after);
        }
    }
}

/// A version as numbers, so that 1.10 is higher than 1.9; what is no number counts as none.
fn numbers(version: &str) -> Vec<u64> {
    version.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

#[cfg(test)]
#[path = "classify_tests.rs"]
mod tests;
