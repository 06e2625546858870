//! The hierarchy of what somebody sees (CAT-76): namespaces, clusters where a namespace is large, leaves.
//!
//! It is made of the visible items alone and each time anew, so nothing hidden shows in a count or in how a namespace is
//! divided.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::path::{Path, is_segment, leaf};
use crate::cards::budget::fits;
use crate::item::{Kind, SelectableItem};
use crate::namespace::is_verb;
use crate::search::analysis::{StopWords, all_terms, terms};
use crate::snapshot::CatalogSnapshot;
use crate::view::View;

/// A namespace with more than this is divided.
const MOST_LEAVES: usize = 40;
/// A cluster with fewer is none.
const LEAST_CLUSTER: usize = 3;
const REST: &str = "misc";
/// What a line about a node may cost.
const NODE_TOKENS: usize = 60;

/// One thing below a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Child {
    /// A node with things below it.
    Node(Node),
    /// An item.
    Leaf(usize),
}

/// A node: its path, how much is below it, and some names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) path: String,
    pub(crate) count: usize,
    pub(crate) names: Vec<String>,
}

impl Node {
    fn new(path: String, members: &[usize], snapshot: &CatalogSnapshot) -> Self {
        let names =
            members.iter().take(6).map(|index| name_of(&snapshot.items()[*index]).to_owned()).collect();
        Self { path, count: members.len(), names }
    }

    /// `/github/issue/ (14) create_issue, list_issues, …`, within its budget (CAT-78).
    pub(crate) fn line(&self) -> String {
        let line = |shown: usize| {
            let more = if shown < self.count { if shown > 0 { ", …" } else { "…" } } else { "" };
            format!("{} ({}) {}{more}", self.path, self.count, self.names[..shown].join(", "))
        };
        let mut shown = self.names.len();
        while shown > 0 && !fits(&line(shown), NODE_TOKENS) {
            shown -= 1;
        }
        line(shown)
    }
}

/// The children of a path, ascending; `None` if there is nothing there.
pub(crate) fn children(
    snapshot: &CatalogSnapshot,
    view: &View,
    kind: Kind,
    path: &Path<'_>,
) -> Option<Vec<Child>> {
    let visible = |index: &usize| snapshot.items()[*index].kind == kind;
    let Some(namespace) = path.namespace else {
        let mut namespaces: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for index in view.iter().filter(visible) {
            namespaces.entry(&snapshot.items()[index].namespace).or_default().push(index);
        }
        let nodes = namespaces
            .into_iter()
            .map(|(namespace, members)| Child::Node(Node::new(format!("/{namespace}/"), &members, snapshot)));
        return Some(nodes.collect());
    };
    let members: Vec<usize> =
        view.iter().filter(visible).filter(|index| snapshot.items()[*index].namespace == namespace).collect();
    if members.is_empty() {
        return None;
    }
    let clusters = (members.len() > MOST_LEAVES).then(|| clusters(snapshot, namespace, &members));
    let leaves = |members: &[usize]| members.iter().copied().map(Child::Leaf).collect();
    match (path.rest.as_slice(), clusters) {
        ([], None) => Some(leaves(&members)),
        ([], Some(clusters)) => {
            let nodes = clusters.iter().map(|(name, members)| {
                Child::Node(Node::new(format!("/{namespace}/{name}/"), members, snapshot))
            });
            Some(nodes.collect())
        }
        // A cluster wins over a leaf of the same name.
        ([segment], Some(clusters)) if clusters.contains_key(*segment) => Some(leaves(&clusters[*segment])),
        ([segment], _) => named(snapshot, view, &members, segment),
        ([cluster, segment], Some(clusters)) => named(snapshot, view, clusters.get(*cluster)?, segment),
        _ => None,
    }
}

/// The items of this leaf, with all of their families.
fn named(snapshot: &CatalogSnapshot, view: &View, members: &[usize], segment: &str) -> Option<Vec<Child>> {
    let mut found: HashSet<usize> = HashSet::new();
    for index in members.iter().copied().filter(|index| leaf(name_of(&snapshot.items()[*index])) == segment) {
        found.insert(index);
        if let Some(family) = snapshot.families().of(index) {
            let family = snapshot.families().members(family).iter().map(|member| *member as usize);
            found.extend(family.filter(|member| view.sees(*member)));
        }
    }
    let mut found: Vec<usize> = found.into_iter().collect();
    found.sort_unstable();
    (!found.is_empty()).then(|| found.into_iter().map(Child::Leaf).collect())
}

/// Items by the commonest thing their names are about; what has too few of its kind goes to the rest.
fn clusters(snapshot: &CatalogSnapshot, namespace: &str, members: &[usize]) -> BTreeMap<String, Vec<usize>> {
    let own: HashSet<String> = all_terms(namespace, StopWords::Keep).into_iter().collect();
    let mut subjects: Vec<Vec<String>> = Vec::with_capacity(members.len());
    let mut counts: HashMap<String, usize> = HashMap::new();
    // Of the forms of one word the shortest names it.
    let mut shown: HashMap<String, String> = HashMap::new();
    for index in members {
        let mut about: Vec<String> = Vec::new();
        terms(name_of(&snapshot.items()[*index]), StopWords::Keep, |word, stem| {
            if is_verb(word)
                || own.contains(stem)
                || !is_segment(word)
                || word.bytes().all(|b| b.is_ascii_digit())
            {
                return;
            }
            let name = shown.entry(stem.to_owned()).or_insert_with(|| word.to_owned());
            if (word.len(), word) < (name.len(), name) {
                word.clone_into(name);
            }
            if !about.iter().any(|known| known == stem) {
                about.push(stem.to_owned());
            }
        });
        about.iter().for_each(|stem| *counts.entry(stem.clone()).or_default() += 1);
        subjects.push(about);
    }
    let mut found: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, about) in members.iter().zip(subjects) {
        let subject = about.iter().max_by_key(|stem| (counts[*stem], std::cmp::Reverse((*stem).clone())));
        let name = subject.map_or(REST, |stem| shown[stem].as_str());
        found.entry(name.to_owned()).or_default().push(*index);
    }
    let small: Vec<String> = found
        .iter()
        .filter(|(_, members)| members.len() < LEAST_CLUSTER)
        .map(|(name, _)| name.clone())
        .collect();
    for name in small.into_iter().filter(|name| name != REST) {
        let members = found.remove(&name).unwrap_or_default();
        found.entry(REST.into()).or_default().extend(members);
    }
    found.values_mut().for_each(|members| members.sort_unstable());
    found
}

/// The name inside the id.
fn name_of(item: &SelectableItem) -> &str {
    item.base_id.rsplit(':').next().unwrap_or(&item.base_id)
}
