//! One id, one item (CAT-26, CAT-31).
//!
//! Who was accepted first keeps the id, whatever the order of connecting; a server that comes later can never capture
//! an id that exists.

use std::collections::{BTreeMap, HashMap};

use crate::finding::{Finding, FindingKind};
use crate::ingest::Ingested;
use crate::item::{Kind, Standing};
use crate::namespace::is_namespace;

/// Removes duplicates and gives every item an id of its own; the order is that of acceptance.
pub(crate) fn settle(items: Vec<Ingested>, findings: &mut Vec<Finding>) -> Vec<Ingested> {
    let mut items = without_duplicates(items, findings);
    items.sort_by(|a, b| order(a).cmp(&order(b)));
    let mut owners: HashMap<String, String> = HashMap::with_capacity(items.len());
    for ingested in &mut items {
        if let Some(owner) = owners.get(&ingested.item.id) {
            let owner = owner.clone();
            let taken = ingested.item.id.clone();
            rename(ingested, &owners);
            let detail = format!(
                "{taken} belongs to server '{owner}'; this one, of server '{}', is {}",
                ingested.item.server, ingested.item.id
            );
            findings.push(about(ingested, FindingKind::IdCollision, detail));
        }
        owners.insert(ingested.item.id.clone(), ingested.item.server.clone());
    }
    items
}

fn order(ingested: &Ingested) -> (u64, &str, &str, usize) {
    (ingested.acceptance, &ingested.item.server, &ingested.item.upstream_name, ingested.index)
}

fn rename(ingested: &mut Ingested, owners: &HashMap<String, String>) {
    if ingested.item.kind != Kind::Tool {
        // The suffixed form is a key and no id of the grammar.
        let first = ingested.item.id.clone();
        let free = (2usize..).map(|n| format!("{first}~{n}")).find(|id| !owners.contains_key(id));
        ingested.item.id = free.expect("there is always another number");
        return;
    }
    let server = ingested.item.server.clone();
    let named = |n: usize| if n == 1 { server.clone() } else { format!("{server}-{n}") };
    for namespace in (1usize..).map(named) {
        // Identities are namespaces; a library's caller may name servers as it likes.
        let namespace =
            if is_namespace(&namespace) { namespace } else { crate::infer_namespace(&(namespace + ".")) };
        ingested.parts.namespace = namespace;
        if !owners.contains_key(&ingested.parts.to_string()) {
            let parts = ingested.parts.clone();
            ingested.item.rename(&parts);
            return;
        }
    }
}

/// Within one server: the same definition twice is one item, two definitions of one name are none that can be called.
fn without_duplicates(items: Vec<Ingested>, findings: &mut Vec<Finding>) -> Vec<Ingested> {
    let mut by_name: BTreeMap<(String, Kind, String), Vec<Ingested>> = BTreeMap::new();
    for ingested in items {
        let key = (ingested.item.server.clone(), ingested.item.kind, ingested.item.upstream_name.clone());
        by_name.entry(key).or_default().push(ingested);
    }
    let mut kept = Vec::new();
    for mut group in by_name.into_values() {
        group.sort_by_key(|ingested| ingested.index);
        let mut rest = group.into_iter();
        let Some(mut first) = rest.next() else { continue };
        for other in rest {
            if other.item.definition_digest == first.item.definition_digest {
                let detail = "listed more than once, each time the same";
                findings.push(about(&other, FindingKind::DuplicateIdentical, detail.into()));
            } else {
                let detail = "listed more than once, each time otherwise; none of them can be called";
                findings.push(about(&other, FindingKind::DuplicateDefinition, detail.into()));
                first.item.standing = Standing::Quarantined(FindingKind::DuplicateDefinition);
            }
        }
        kept.push(first);
    }
    kept
}

fn about(ingested: &Ingested, kind: FindingKind, detail: String) -> Finding {
    let item = &ingested.item;
    Finding {
        server: item.server.clone(),
        index: ingested.index,
        name: item.name.clone(),
        tool_id: Some(item.id.clone()),
        kind,
        detail,
    }
}
