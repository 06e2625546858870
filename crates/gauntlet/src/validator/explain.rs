//! What is wrong, once the answer was no.
//!
//! Told in words made of the schema alone (GNT-S10): nothing here reads a value of the instance into a text.

use serde_json::Value;

use super::check::{check, contained, evaluated, holds, names_fit, others_for};
use super::{Bound, Effort, Exhausted, Keyword, Node, NodeId, Properties, Validator};

/// One step of a pointer. The derived order is that of GNT-S8: indices by number, keys by code point, which is how
/// UTF-8 sorts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    Index(usize),
    Key(Box<str>),
}

/// The steps of an RFC 6901 pointer into a schema, where whatever looks like an index is one.
pub(super) fn steps(pointer: &str) -> Vec<Step> {
    let step = |segment: &str| match segment.parse() {
        Ok(index) => Step::Index(index),
        Err(_) => Step::Key(segment.replace("~1", "/").replace("~0", "~").into()),
    };
    pointer.split('/').skip(1).map(step).collect()
}

/// One thing wrong. Ordered by place in the instance, then by place in the schema (GNT-S8).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Complaint {
    pub(crate) instance: Vec<Step>,
    pub(crate) schema: Vec<Step>,
    pub(crate) keyword: &'static str,
    pub(crate) message: String,
    /// A member name that belongs to the message: the schema's own, or one of the instance.
    pub(crate) name: Option<Name>,
}

/// Whose name it is decides who may be told.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Name {
    Declared(Box<str>),
    Given(Box<str>),
}

pub(super) fn explain(
    validator: &Validator,
    instance: &Value,
    effort: &mut Effort,
    found: &mut dyn FnMut(Complaint),
) -> Result<(), Exhausted> {
    Explanation { validator, effort, found, path: Vec::new() }.node(0, instance)
}

struct Explanation<'v, 'e, 'f> {
    validator: &'v Validator,
    effort: &'e mut Effort,
    found: &'f mut dyn FnMut(Complaint),
    path: Vec<Step>,
}

impl<'v> Explanation<'v, '_, '_> {
    fn node(&mut self, id: NodeId, instance: &Value) -> Result<(), Exhausted> {
        let node = self.validator.node(id);
        self.effort.enter()?;
        for keyword in &node.keywords {
            self.keyword(node, keyword, instance)?;
        }
        self.effort.leave();
        Ok(())
    }

    /// Keywords that look into the value or elsewhere lead on; the others are asked and, if they do not hold, named.
    fn keyword(&mut self, node: &'v Node, keyword: &'v Keyword, instance: &Value) -> Result<(), Exhausted> {
        match (keyword, instance) {
            (Keyword::Reference(id), _) => self.node(*id, instance),
            (Keyword::All(ids), _) => ids.iter().try_for_each(|id| self.node(*id, instance)),
            (Keyword::If { condition, then, otherwise }, _) => {
                let met = check(self.validator, *condition, instance, None, self.effort)?;
                let branch = if met { then } else { otherwise };
                branch.map_or(Ok(()), |id| self.node(id, instance))
            }
            (Keyword::DependentSchemas(dependent), Value::Object(members)) => dependent
                .iter()
                .filter(|(name, _)| members.contains_key(&**name))
                .try_for_each(|(_, id)| self.node(*id, instance)),
            (Keyword::Properties(properties), Value::Object(_)) => {
                self.properties(node, properties, instance)
            }
            (Keyword::Items { prefix, rest }, Value::Array(items)) => {
                for (at, item) in items.iter().enumerate() {
                    let Some(id) = prefix.get(at).copied().or(*rest) else { break };
                    self.below(Step::Index(at), id, item)?;
                }
                Ok(())
            }
            _ => self.leaf(node, keyword, instance),
        }
    }

    fn below(&mut self, step: Step, id: NodeId, value: &Value) -> Result<(), Exhausted> {
        self.path.push(step);
        self.node(id, value)?;
        self.path.pop();
        Ok(())
    }

    fn properties(
        &mut self,
        node: &Node,
        properties: &Properties,
        instance: &Value,
    ) -> Result<(), Exhausted> {
        for (name, member) in instance.as_object().into_iter().flatten() {
            let own = properties.get(name);
            let others = others_for(properties, name, self.effort)?;
            let closed = |id: &NodeId| {
                Some(*id) == properties.additional
                    && matches!(self.validator.node(*id).keywords[..], [Keyword::Never])
            };
            if others.iter().any(closed) {
                let name = Some(Name::Given(name.as_str().into()));
                self.say(node, "additionalProperties", "property not allowed".into(), name);
                continue;
            }
            for id in own.into_iter().chain(others) {
                self.below(Step::Key(name.as_str().into()), id, member)?;
            }
        }
        Ok(())
    }

    fn leaf(&mut self, node: &'v Node, keyword: &'v Keyword, instance: &Value) -> Result<(), Exhausted> {
        match (keyword, instance) {
            (Keyword::Required(names), Value::Object(members)) => {
                for name in names.iter().filter(|name| !members.contains_key(&***name)) {
                    self.missing(node, "required", name);
                }
            }
            (Keyword::DependentRequired(dependent), Value::Object(members)) => {
                let met = dependent.iter().filter(|(name, _)| members.contains_key(&**name));
                for name in met.flat_map(|(_, needs)| needs).filter(|name| !members.contains_key(&***name)) {
                    self.missing(node, "dependentRequired", name);
                }
            }
            (Keyword::PropertyNames(id), Value::Object(members)) => {
                for name in members.keys() {
                    if !names_fit(self.validator, *id, name, self.effort)? {
                        self.say(node, "propertyNames", "property name not allowed".into(), None);
                    }
                }
            }
            (Keyword::UnevaluatedProperties(id), Value::Object(members)) => {
                let seen = evaluated(self.validator, node, instance, self.effort)?;
                for (name, member) in members {
                    if !seen.has_member(name) && !check(self.validator, *id, member, None, self.effort)? {
                        let name = Some(Name::Given(name.as_str().into()));
                        self.say(node, "unevaluatedProperties", "property not allowed".into(), name);
                    }
                }
            }
            (Keyword::UnevaluatedItems(id), Value::Array(items)) => {
                let seen = evaluated(self.validator, node, instance, self.effort)?;
                for (at, item) in items.iter().enumerate() {
                    if !seen.has_item(at) && !check(self.validator, *id, item, None, self.effort)? {
                        self.say(node, "unevaluatedItems", "item not allowed".into(), None);
                        break;
                    }
                }
            }
            (Keyword::Contains { node: wanted, least, most, .. }, Value::Array(_)) => {
                let count = contained(self.validator, *wanted, instance, None, self.effort)? as u64;
                if count < *least {
                    self.say(node, "contains", "does not contain the required item".into(), None);
                } else if most.is_some_and(|most| count > most) {
                    self.say(node, "maxContains", "contains too many of an item".into(), None);
                }
            }
            (Keyword::One(ids), _) => {
                let mut fitting = 0;
                for id in ids {
                    fitting += usize::from(check(self.validator, *id, instance, None, self.effort)?);
                }
                match fitting {
                    0 => self.say(node, "oneOf", "matches none of the allowed forms".into(), None),
                    1 => {}
                    _ => self.say(node, "oneOf", "matches more than one of the exclusive forms".into(), None),
                }
            }
            _ => {
                if !holds(self.validator, keyword, instance, None, self.effort)? {
                    let (name, message) = words(keyword);
                    self.say(node, name, message, None);
                }
            }
        }
        Ok(())
    }

    fn missing(&mut self, node: &Node, keyword: &'static str, name: &str) {
        self.say(node, keyword, "missing required property".into(), Some(Name::Declared(name.into())));
    }

    fn say(&mut self, node: &Node, keyword: &'static str, message: String, name: Option<Name>) {
        let mut schema = Vec::with_capacity(node.location.len() + 1);
        schema.extend_from_slice(&node.location);
        schema.push(Step::Key(keyword.into()));
        (self.found)(Complaint { instance: self.path.clone(), schema, keyword, message, name });
    }
}

/// The keyword's name and what it expects.
fn words(keyword: &Keyword) -> (&'static str, String) {
    let counted =
        |names: [&'static str; 2], unit: &str, least: &Option<u64>, most: &Option<u64>| match (least, most) {
            (Some(least), _) => (names[0], format!("must have at least {least} {unit}")),
            (_, Some(most)) => (names[1], format!("must have at most {most} {unit}")),
            _ => (names[0], "not valid".into()),
        };
    match keyword {
        Keyword::Type(types) => {
            ("type", format!("expected {}", types.names().collect::<Vec<_>>().join(" or ")))
        }
        Keyword::Const(_) => ("const", "value not allowed".into()),
        Keyword::Enum(_) => ("enum", "value not allowed".into()),
        Keyword::Not(_) => ("not", "value not allowed".into()),
        Keyword::Never => ("falseSchema", "value not allowed".into()),
        Keyword::Limit(Bound::Minimum, limit) => ("minimum", format!("must be >= {limit}")),
        Keyword::Limit(Bound::ExclusiveMinimum, limit) => ("exclusiveMinimum", format!("must be > {limit}")),
        Keyword::Limit(Bound::Maximum, limit) => ("maximum", format!("must be <= {limit}")),
        Keyword::Limit(Bound::ExclusiveMaximum, limit) => ("exclusiveMaximum", format!("must be < {limit}")),
        Keyword::MultipleOf(of) => ("multipleOf", format!("must be a multiple of {of}")),
        Keyword::Length { least, most } => counted(["minLength", "maxLength"], "characters", least, most),
        Keyword::ItemCount { least, most } => counted(["minItems", "maxItems"], "items", least, most),
        Keyword::MemberCount { least, most } => {
            counted(["minProperties", "maxProperties"], "properties", least, most)
        }
        Keyword::Pattern(_) => ("pattern", "does not match the required pattern".into()),
        Keyword::UniqueItems => ("uniqueItems", "items must differ from each other".into()),
        Keyword::Any(_) => ("anyOf", "matches none of the allowed forms".into()),
        _ => ("schema", "not valid".into()),
    }
}
