//! What a schema costs, found out before anything is compiled.
//!
//! A schema is code written by somebody else: eight lines of `d_i: allOf[d_{i+1}, d_{i+1}]` keep a validator
//! busy for the rest of the day. So the document is walked once, schema position by schema position, counting
//! what GNT-S4 caps; references are resolved here, by us, inside the document only (GNT-S3); and then the
//! *in-place cost* is computed: how many subschemas are visited at one single location of an instance when
//! every reference is unrolled. A cycle that never steps into the instance has no cost: it never ends.
//!
//! Subschemas may not carry an `$id` of their own. It would give `#/...` below it another meaning, and a cost
//! computed with one meaning while validation uses the other is worth nothing.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use jsonschema::Draft;
use portcullis_core::canon::push_segment;
use serde_json::{Map, Value};

use crate::GauntletError;
use crate::schema::dialect_named;

const MAX_BYTES: usize = 64 * 1024;
const MAX_DEPTH: usize = 32;
const MAX_SUBSCHEMAS: usize = 2_048;
const MAX_REFERENCES: usize = 512;
const MAX_ENUM_MEMBERS: usize = 4_096;
const MAX_PATTERN_BYTES: usize = 1_024;
const MAX_PROPERTIES: usize = 512;
const MAX_IN_PLACE_COST: u64 = 50_000;

/// What is worth keeping of the walk.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// Every property name the schema declares anywhere: text that was accepted with it (GNT-S11).
    pub(crate) declared: BTreeSet<Box<str>>,
}

/// The dialect the document asks for (GNT-S2).
pub(crate) fn dialect(schema: &Value) -> Result<Draft, GauntletError> {
    match schema.get("$schema") {
        None => Ok(Draft::Draft202012),
        Some(address) => address
            .as_str()
            .and_then(dialect_named)
            .ok_or_else(|| GauntletError::uncompilable("/$schema", "unsupported-dialect")),
    }
}

/// A document and what is in it.
#[derive(Debug)]
pub(crate) struct Document<'s> {
    root: &'s Value,
    own_address: &'s str,
    anchors: BTreeMap<&'s str, &'s Value>,
    /// Every subschema, with a pointer to it; the first is the document itself.
    pub(crate) subschemas: Vec<(&'s Value, String)>,
}

impl<'s> Document<'s> {
    /// What a reference means; `None` if that is outside the document, or nothing.
    pub(crate) fn resolve(&self, reference: &str) -> Option<&'s Value> {
        self.inside(reference).and_then(|fragment| self.target(fragment))
    }

    /// The fragment of a reference that stays in this document; `None` if it leaves it.
    fn inside<'r>(&self, reference: &'r str) -> Option<&'r str> {
        let (document, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        (document.is_empty() || document == self.own_address).then_some(fragment)
    }

    /// What a fragment points at: the root, a JSON pointer, or an anchor.
    fn target(&self, fragment: &str) -> Option<&'s Value> {
        let fragment = percent_decoded(fragment)?;
        if fragment.is_empty() || fragment.starts_with('/') {
            self.root.pointer(&fragment)
        } else {
            self.anchors.get(fragment.as_ref()).copied()
        }
    }
}

/// Walks `schema`, whose canonical text is `bytes` long, and refuses what exceeds a cap.
pub(crate) fn survey(schema: &Value, bytes: usize) -> Result<(Survey, Document<'_>), GauntletError> {
    let mut walk = Walk {
        document: Document {
            root: schema,
            own_address: schema.get("$id").and_then(Value::as_str).map_or("", without_fragment),
            anchors: BTreeMap::new(),
            subschemas: Vec::new(),
        },
        pointer: String::new(),
        seen: HashSet::new(),
        references: Vec::new(),
        enum_members: 0,
        properties: 0,
        declared: BTreeSet::new(),
    };
    if bytes > MAX_BYTES {
        return Err(walk.too_complex("bytes", MAX_BYTES));
    }
    walk.schema(schema, 0)?;
    // A reference may lead to a place that is no schema position; it becomes one by being referred to.
    let mut next = 0;
    while let Some((fragment, pointer)) = walk.references.get(next).cloned() {
        let target = walk
            .document
            .target(fragment)
            .ok_or_else(|| GauntletError::uncompilable(&pointer, "dangling-ref"))?;
        walk.pointer = pointer;
        walk.schema(target, 0)?;
        next += 1;
    }
    let mut costs = Costs { document: &walk.document, known: HashMap::new() };
    for (subschema, pointer) in &walk.document.subschemas {
        match costs.of(subschema) {
            Some(cost) if cost <= MAX_IN_PLACE_COST => {}
            Some(_) => {
                return Err(GauntletError::TooComplex {
                    pointer: pointer.clone(),
                    what: "visits at one location",
                    limit: MAX_IN_PLACE_COST as usize,
                });
            }
            None => return Err(GauntletError::uncompilable(pointer, "endless-reference")),
        }
    }
    Ok((Survey { declared: walk.declared }, walk.document))
}

/// Where a keyword keeps its subschemas.
enum Holds {
    One,
    Many,
    Named,
}

/// The keywords of all three dialects that hold subschemas, and whether those are applied to the very same
/// location of the instance.
fn subschemas_of(keyword: &str) -> Option<(Holds, bool)> {
    Some(match keyword {
        "allOf" | "anyOf" | "oneOf" => (Holds::Many, true),
        "not" | "if" | "then" | "else" => (Holds::One, true),
        "dependentSchemas" | "dependencies" => (Holds::Named, true),
        "prefixItems" => (Holds::Many, false),
        "properties" | "patternProperties" | "$defs" | "definitions" => (Holds::Named, false),
        "items"
        | "additionalItems"
        | "unevaluatedItems"
        | "contains"
        | "additionalProperties"
        | "unevaluatedProperties"
        | "propertyNames"
        | "contentSchema" => (Holds::One, false),
        _ => return None,
    })
}

fn is_reference(keyword: &str) -> bool {
    matches!(keyword, "$ref" | "$dynamicRef" | "$recursiveRef")
}

/// The subschemas under one keyword, each with the pointer segment that leads to it. `items` may be one
/// schema or, in the older dialects, a list; `dependencies` may hold lists of names, which are no schemas.
fn children<'s>(holds: &Holds, value: &'s Value) -> Vec<(Option<Cow<'s, str>>, &'s Value)> {
    let is_schema = |v: &Value| v.is_object() || v.is_boolean();
    match (holds, value) {
        (Holds::Named, Value::Object(named)) => named
            .iter()
            .filter(|(_, v)| is_schema(v))
            .map(|(name, v)| (Some(Cow::Borrowed(name.as_str())), v))
            .collect(),
        (Holds::One | Holds::Many, Value::Array(items)) => items
            .iter()
            .enumerate()
            .filter(|(_, v)| is_schema(v))
            .map(|(index, v)| (Some(Cow::Owned(index.to_string())), v))
            .collect(),
        (Holds::One, v) if is_schema(v) => vec![(None, v)],
        _ => Vec::new(),
    }
}

struct Walk<'s> {
    document: Document<'s>,
    pointer: String,
    seen: HashSet<usize>,
    references: Vec<(&'s str, String)>,
    enum_members: usize,
    properties: usize,
    declared: BTreeSet<Box<str>>,
}

impl<'s> Walk<'s> {
    fn schema(&mut self, schema: &'s Value, depth: usize) -> Result<(), GauntletError> {
        if !self.seen.insert(address(schema)) {
            return Ok(());
        }
        if depth > MAX_DEPTH {
            return Err(self.too_complex("levels of subschemas", MAX_DEPTH));
        }
        self.document.subschemas.push((schema, self.pointer.clone()));
        if self.document.subschemas.len() > MAX_SUBSCHEMAS {
            return Err(self.too_complex("subschemas", MAX_SUBSCHEMAS));
        }
        let Value::Object(keywords) = schema else { return Ok(()) };
        self.identity(schema, keywords)?;
        for (keyword, value) in keywords {
            let here = self.pointer.len();
            push_segment(&mut self.pointer, keyword);
            self.measure(keyword, value)?;
            if let Some((holds, _)) = subschemas_of(keyword) {
                for (segment, child) in children(&holds, value) {
                    let keyword_end = self.pointer.len();
                    if let Some(segment) = segment {
                        push_segment(&mut self.pointer, &segment);
                    }
                    self.schema(child, depth + 1)?;
                    self.pointer.truncate(keyword_end);
                }
            }
            self.pointer.truncate(here);
        }
        Ok(())
    }

    /// What the schema calls itself.
    fn identity(&mut self, schema: &'s Value, keywords: &'s Map<String, Value>) -> Result<(), GauntletError> {
        let text = |keyword: &str| keywords.get(keyword).and_then(Value::as_str);
        for anchor in [text("$anchor"), text("$dynamicAnchor")].into_iter().flatten() {
            self.document.anchors.insert(anchor, schema);
        }
        match text("$id").map(|id| id.strip_prefix('#').ok_or(id)) {
            // Until 2019 an `$id` that is only a fragment was how an anchor was written.
            Some(Ok(anchor)) if !anchor.is_empty() => {
                self.document.anchors.insert(anchor, schema);
            }
            Some(Err(_)) if address(schema) != address(self.document.root) => {
                return Err(GauntletError::uncompilable(&self.pointer, "embedded-id"));
            }
            _ => {}
        }
        match text("$schema") {
            Some(address) if dialect_named(address).is_none() => {
                Err(GauntletError::uncompilable(&self.pointer, "unsupported-dialect"))
            }
            _ => Ok(()),
        }
    }

    /// Counts what one keyword contributes to the caps.
    fn measure(&mut self, keyword: &str, value: &'s Value) -> Result<(), GauntletError> {
        match (keyword, value) {
            (keyword, Value::String(reference)) if is_reference(keyword) => {
                let Some(fragment) = self.document.inside(reference) else {
                    return Err(GauntletError::ExternalReference { pointer: self.pointer.clone() });
                };
                self.references.push((fragment, self.pointer.clone()));
                if self.references.len() > MAX_REFERENCES {
                    return Err(self.too_complex("references", MAX_REFERENCES));
                }
            }
            ("enum", Value::Array(members)) => {
                self.enum_members += members.len();
                if self.enum_members > MAX_ENUM_MEMBERS {
                    return Err(self.too_complex("enum members", MAX_ENUM_MEMBERS));
                }
            }
            ("pattern", Value::String(pattern)) => self.pattern(pattern)?,
            ("patternProperties", Value::Object(patterns)) => {
                for pattern in patterns.keys() {
                    self.pattern(pattern)?;
                }
            }
            ("properties", Value::Object(properties)) => {
                self.properties += properties.len();
                if self.properties > MAX_PROPERTIES {
                    return Err(self.too_complex("properties", MAX_PROPERTIES));
                }
                self.declared.extend(properties.keys().map(|name| name.as_str().into()));
            }
            _ => {}
        }
        Ok(())
    }

    fn pattern(&self, pattern: &str) -> Result<(), GauntletError> {
        if pattern.len() > MAX_PATTERN_BYTES {
            return Err(self.too_complex("bytes in one pattern", MAX_PATTERN_BYTES));
        }
        Ok(())
    }

    fn too_complex(&self, what: &'static str, limit: usize) -> GauntletError {
        GauntletError::TooComplex { pointer: self.pointer.clone(), what, limit }
    }
}

/// In-place costs, each computed once.
struct Costs<'w, 's> {
    document: &'w Document<'s>,
    /// `None` while the cost is being computed: meeting it again then means a cycle.
    known: HashMap<usize, Option<u64>>,
}

impl<'s> Costs<'_, 's> {
    /// The cost of `schema`, saturating; `None` if it refers to itself at the same location.
    fn of(&mut self, schema: &'s Value) -> Option<u64> {
        let Value::Object(keywords) = schema else { return Some(1) };
        if let Some(known) = self.known.get(&address(schema)) {
            return *known;
        }
        self.known.insert(address(schema), None);
        let mut cost = 1u64;
        for (keyword, value) in keywords {
            match (value, subschemas_of(keyword)) {
                (Value::String(reference), _) if is_reference(keyword) => {
                    let target = self.document.resolve(reference)?;
                    cost = cost.saturating_add(self.of(target)?);
                }
                (value, Some((holds, true))) => {
                    for (_, child) in children(&holds, value) {
                        cost = cost.saturating_add(self.of(child)?);
                    }
                }
                _ => {}
            }
        }
        // To know what is left unevaluated, everything beside the keyword is evaluated once more.
        for keyword in ["unevaluatedProperties", "unevaluatedItems"] {
            if keywords.contains_key(keyword) {
                cost = cost.saturating_mul(2);
            }
        }
        self.known.insert(address(schema), Some(cost));
        Some(cost)
    }
}

/// Which node of the document this is. The document outlives the survey, so nothing moves meanwhile.
pub(crate) fn address(value: &Value) -> usize {
    std::ptr::from_ref(value) as usize
}

fn without_fragment(reference: &str) -> &str {
    reference.split_once('#').map_or(reference, |(document, _)| document)
}

/// The text of a URI fragment; `None` if an escape is broken or the result is not UTF-8.
fn percent_decoded(fragment: &str) -> Option<Cow<'_, str>> {
    if !fragment.contains('%') {
        return Some(Cow::Borrowed(fragment));
    }
    let mut bytes = Vec::with_capacity(fragment.len());
    let mut rest = fragment.as_bytes();
    while let [first, tail @ ..] = rest {
        if *first != b'%' {
            bytes.push(*first);
            rest = tail;
            continue;
        }
        let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &tail[2..];
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}
