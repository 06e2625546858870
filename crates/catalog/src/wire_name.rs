//! Names that model interfaces take (CAT-24): `[A-Za-z0-9_-]{1,64}`, unique in a snapshot.

use std::collections::HashSet;

use portcullis_core::Sha256Digest;

use crate::item::{Kind, SelectableItem};

/// Gives every tool and prompt without a wire name one. Whoever has one keeps it.
pub(crate) fn assign(items: &mut [SelectableItem]) {
    let mut taken: HashSet<String> =
        items.iter().map(|item| item.wire_name.clone()).filter(|name| !name.is_empty()).collect();
    let mut wanted: Vec<String> = Vec::with_capacity(items.len());
    let mut counts: std::collections::HashMap<String, usize> = std::collections::HashMap::new();
    for item in items.iter() {
        let name = plain(item);
        *counts.entry(name.clone()).or_default() += 1;
        wanted.push(name);
    }
    for (item, wanted) in items.iter_mut().zip(wanted) {
        if !item.wire_name.is_empty() || item.kind == Kind::Resource {
            continue;
        }
        let is_free = wanted.len() <= 64 && counts[&wanted] == 1 && !taken.contains(&wanted);
        let digest = Sha256Digest::of(item.id.as_bytes()).to_string();
        // Six digits can be made to collide by who names the tools; more are taken until the name is free.
        let shortened = |digits: usize| {
            let kept = wanted.len().min(63 - digits);
            format!("{}_{}", &wanted[..kept], &digest[..digits])
        };
        let free =
            || (6..=62).map(shortened).find(|name| !taken.contains(name)).unwrap_or_else(|| digest.clone());
        let name = if is_free { wanted.clone() } else { free() };
        taken.insert(name.clone());
        item.wire_name = name;
    }
}

fn plain(item: &SelectableItem) -> String {
    let name = item.base_id.rsplit(':').next().unwrap_or_default();
    let full = format!("{}__{name}", item.namespace);
    full.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' }).collect()
}
