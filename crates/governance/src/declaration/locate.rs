//! Where in the file each value stands, so that a rule about `/tools/0/scopes` can name its line.

use std::collections::HashMap;
use std::fmt;

use portcullis_core::canon::push_segment;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

/// RFC 6901 pointer to line and column, both from 1.
#[derive(Debug, Clone, Default)]
pub(super) struct Locations(HashMap<String, (u64, u64)>);

impl Locations {
    /// Indexes a document that is already known to be well-formed; empty if it is not.
    pub(super) fn of(text: &str, options: serde_saphyr::Options) -> Self {
        let mut found = HashMap::new();
        if let Ok(root) = serde_saphyr::from_str_with_options::<Tree>(text, options) {
            root.collect(&mut String::new(), &mut found);
        }
        Self(found)
    }

    /// The place of `pointer`, or of its nearest ancestor that has one.
    pub(super) fn find(&self, pointer: &str) -> Option<(u64, u64)> {
        let mut pointer = pointer;
        loop {
            if let Some(place) = self.0.get(pointer) {
                return Some(*place);
            }
            pointer = &pointer[..pointer.rfind('/')?];
        }
    }
}

/// A document reduced to its shape and its places.
enum Tree {
    Leaf,
    Branch(Vec<(String, (u64, u64), Tree)>),
}

impl Tree {
    fn collect(&self, pointer: &mut String, found: &mut HashMap<String, (u64, u64)>) {
        let Tree::Branch(children) = self else { return };
        for (segment, place, child) in children {
            let length = pointer.len();
            push_segment(pointer, segment);
            found.insert(pointer.clone(), *place);
            child.collect(pointer, found);
            pointer.truncate(length);
        }
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
        let mut children = Vec::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            let place = (key.defined.line(), key.defined.column());
            children.push((key.value, place, map.next_value()?));
        }
        Ok(Tree::Branch(children))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Tree, A::Error> {
        let mut children = Vec::new();
        while let Some(item) = seq.next_element::<Spanned<Tree>>()? {
            let place = (item.defined.line(), item.defined.column());
            children.push((children.len().to_string(), place, item.value));
        }
        Ok(Tree::Branch(children))
    }

    fn visit_str<E>(self, _: &str) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }
    fn visit_bool<E>(self, _: bool) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }
    fn visit_i64<E>(self, _: i64) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }
    fn visit_u64<E>(self, _: u64) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }
    fn visit_f64<E>(self, _: f64) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }
    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }
    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }
    fn visit_some<D: Deserializer<'de>>(self, d: D) -> Result<Tree, D::Error> {
        Tree::deserialize(d)
    }
}
