//! Validation that ends: every visit is counted, and what costs too much is refused (GNT-S5).
//!
//! Validators of the field have no budget, and a schema of five lines (`oneOf` twice over the same child) makes one
//! visit two to the depth of the value many places. So what is validated *with* is ours: a schema becomes a list of
//! nodes, a node a list of keywords, and each visit of a node is paid for. What is validated *against* is not: whether a
//! schema means anything is decided by the `jsonschema` crate at compile time, patterns are run by it, and its verdicts
//! are what a test compares ours with, besides the official suite.
//!
//! | module | the idea |
//! |---|---|
//! | `compile` | from a surveyed schema to nodes |
//! | `check` | yes or no, with what was evaluated where somebody asks |
//! | `explain` | what is wrong, once the answer was no |
//! | `instance` | what is validated: a value that was built, or one that stands in a text |
//! | `effort` | the budget |
//! | `number` | numbers by their value, and values equal in the sense of JSON Schema |
//!
//! Subschemas have no `$id` of their own (the survey refuses them), so there is one resource, and a dynamic reference
//! is a reference.

mod check;
mod compile;
mod effort;
mod explain;
mod instance;
mod number;

use std::sync::Arc;

use serde_json::{Number, Value};

pub(crate) use compile::compile;
pub(crate) use effort::{Effort, Exhausted};
pub(crate) use explain::{Complaint, Name, Step};
pub(crate) use instance::Instance;
use instance::Kind;

/// Index of a node.
type NodeId = u32;

/// A schema as it is evaluated.
#[derive(Debug)]
pub(crate) struct Validator {
    nodes: Vec<Node>,
}

/// One subschema.
#[derive(Debug)]
struct Node {
    /// Where it stands in the schema.
    location: Vec<Step>,
    /// In the order they are tried: cheap ones first.
    keywords: Vec<Keyword>,
    /// Whether it asks what its other keywords left unevaluated.
    asks_unevaluated: bool,
    /// Whether it looks at one value only, and not for long. Tried before its neighbours: a `const` decides most unions.
    cheap: bool,
}

#[derive(Debug)]
enum Keyword {
    /// The schema `false`.
    Never,
    Type(Types),
    Const(Value),
    Enum(Members),
    Limit(Bound, Number),
    MultipleOf(Number),
    Length {
        least: Option<u64>,
        most: Option<u64>,
    },
    Pattern(Pattern),
    ItemCount {
        least: Option<u64>,
        most: Option<u64>,
    },
    UniqueItems,
    MemberCount {
        least: Option<u64>,
        most: Option<u64>,
    },
    Required(Vec<Box<str>>),
    DependentRequired(Vec<(Box<str>, Vec<Box<str>>)>),
    Reference(NodeId),
    All(Vec<NodeId>),
    Any(Vec<NodeId>),
    One(Vec<NodeId>),
    Not(NodeId),
    If {
        condition: NodeId,
        then: Option<NodeId>,
        otherwise: Option<NodeId>,
    },
    DependentSchemas(Vec<(Box<str>, NodeId)>),
    Properties(Properties),
    PropertyNames(NodeId),
    Items {
        prefix: Vec<NodeId>,
        rest: Option<NodeId>,
    },
    Contains {
        node: NodeId,
        least: u64,
        most: Option<u64>,
        evaluates: bool,
    },
    UnevaluatedProperties(NodeId),
    UnevaluatedItems(NodeId),
}

/// `properties`, `patternProperties` and `additionalProperties`, which belong together.
#[derive(Debug, Default)]
struct Properties {
    /// Sorted by name.
    named: Vec<(Box<str>, NodeId)>,
    /// Indices into `named`, cheap ones first.
    order: Vec<usize>,
    patterns: Vec<(Pattern, NodeId)>,
    additional: Option<NodeId>,
}

impl Properties {
    fn get(&self, name: &str) -> Option<NodeId> {
        self.named.binary_search_by(|(own, _)| (**own).cmp(name)).ok().map(|at| self.named[at].1)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    Minimum,
    ExclusiveMinimum,
    Maximum,
    ExclusiveMaximum,
}

/// A set of types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Types(u8);

const TYPE_NAMES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];

impl Types {
    fn has(self, name: &str) -> bool {
        TYPE_NAMES.iter().position(|known| *known == name).is_some_and(|at| self.0 & (1 << at) != 0)
    }

    fn admit<'i>(self, instance: impl Instance<'i>) -> bool {
        let bit = match instance.kind() {
            Kind::Array => 1,
            Kind::Bool => 2,
            Kind::Null => 8,
            Kind::Object => 32,
            Kind::String => 64,
            // Whether a number is an integer matters where not every number will do.
            Kind::Number if self.0 & 16 == 0 && instance.is_integer() => 4,
            Kind::Number => 16,
        };
        self.0 & bit != 0
    }

    fn names(self) -> impl Iterator<Item = &'static str> {
        TYPE_NAMES.into_iter().filter(move |name| self.has(name))
    }
}

/// The members of an `enum`.
#[derive(Debug)]
enum Members {
    /// All of them texts, sorted.
    Texts(Vec<Box<str>>),
    Values(Vec<Value>),
}

/// A pattern, run by the `jsonschema` crate: it knows how ECMA-262 differs from other dialects.
#[derive(Debug, Clone)]
struct Pattern(Arc<jsonschema::Validator>);

impl Validator {
    /// Whether `instance` fits. Every visit is taken from `effort`.
    pub(crate) fn is_valid<'i>(
        &self,
        instance: impl Instance<'i>,
        effort: &mut Effort,
    ) -> Result<bool, Exhausted> {
        check::check(self, 0, instance, None, effort)
    }

    /// What is wrong with `instance`: calls `found` with everything, in no particular order.
    pub(crate) fn explain(
        &self,
        instance: &Value,
        effort: &mut Effort,
        found: &mut dyn FnMut(Complaint),
    ) -> Result<(), Exhausted> {
        explain::explain(self, instance, effort, found)
    }

    fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id as usize]
    }
}
