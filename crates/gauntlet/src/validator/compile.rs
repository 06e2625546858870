//! From a surveyed schema to nodes.

use std::collections::HashMap;
use std::sync::Arc;

use jsonschema::Draft;
use portcullis_core::canon::push_segment;
use serde_json::{Map, Value, json};

use super::explain::steps;
use super::{Bound, Keyword, Members, Node, NodeId, Pattern, Properties, TYPE_NAMES, Types, Validator};
use crate::GauntletError;
use crate::schema::pattern_options;
use crate::survey::{Document, address};

/// Compiles a document that was surveyed and that the `jsonschema` crate has found to mean something.
pub(crate) fn compile(document: &Document<'_>, dialect: Draft) -> Result<Validator, GauntletError> {
    let ids = document.subschemas.iter().enumerate();
    let ids = ids.map(|(id, (schema, _))| (address(schema), id as NodeId)).collect();
    let mut compiler = Compiler { document, dialect, ids, patterns: HashMap::new() };
    let mut nodes = Vec::with_capacity(document.subschemas.len());
    for (schema, pointer) in &document.subschemas {
        let keywords = match schema {
            Value::Bool(true) => Vec::new(),
            Value::Object(keywords) => compiler.keywords(keywords, pointer)?,
            _ => vec![Keyword::Never],
        };
        let asks_unevaluated = keywords.iter().any(|keyword| {
            matches!(keyword, Keyword::UnevaluatedProperties(_) | Keyword::UnevaluatedItems(_))
        });
        let cheap = keywords.iter().all(is_cheap);
        nodes.push(Node { location: steps(pointer), keywords, asks_unevaluated, cheap });
    }
    order_properties(&mut nodes);
    Ok(Validator { nodes })
}

fn is_cheap(keyword: &Keyword) -> bool {
    rank(keyword) < 2
}

/// When a keyword is tried: what looks at one value, then what looks into it, then what asks several questions about
/// it, and last what needs to know what the others evaluated.
fn rank(keyword: &Keyword) -> u8 {
    match keyword {
        Keyword::Never | Keyword::Type(_) | Keyword::Const(_) | Keyword::Enum(_) => 0,
        Keyword::Limit(..)
        | Keyword::MultipleOf(_)
        | Keyword::Length { .. }
        | Keyword::ItemCount { .. }
        | Keyword::MemberCount { .. }
        | Keyword::Required(_)
        | Keyword::DependentRequired(_) => 1,
        Keyword::Pattern(_) | Keyword::UniqueItems => 2,
        Keyword::Properties(_) | Keyword::PropertyNames(_) | Keyword::Items { .. } => 3,
        Keyword::Reference(_) | Keyword::All(_) | Keyword::Contains { .. } => 4,
        Keyword::Any(_)
        | Keyword::One(_)
        | Keyword::Not(_)
        | Keyword::If { .. }
        | Keyword::DependentSchemas(_) => 5,
        Keyword::UnevaluatedProperties(_) | Keyword::UnevaluatedItems(_) => 6,
    }
}

fn order_properties(nodes: &mut [Node]) {
    let cheap: Vec<bool> = nodes.iter().map(|node| node.cheap).collect();
    for keyword in nodes.iter_mut().flat_map(|node| &mut node.keywords) {
        if let Keyword::Properties(properties) = keyword {
            let mut order: Vec<usize> = (0..properties.named.len()).collect();
            order.sort_by_key(|at| !cheap[properties.named[*at].1 as usize]);
            properties.order = order;
        }
    }
}

struct Compiler<'d, 's> {
    document: &'d Document<'s>,
    dialect: Draft,
    ids: HashMap<usize, NodeId>,
    patterns: HashMap<&'d str, Pattern>,
}

impl<'d, 's: 'd> Compiler<'d, 's> {
    fn keywords(
        &mut self,
        schema: &'s Map<String, Value>,
        pointer: &str,
    ) -> Result<Vec<Keyword>, GauntletError> {
        let mut keywords = Vec::new();
        for (name, value) in schema {
            // Until 2019 a reference stood for everything beside it.
            if self.dialect == Draft::Draft7 && schema.contains_key("$ref") && name != "$ref" {
                continue;
            }
            let mut place = pointer.to_owned();
            push_segment(&mut place, name);
            if name == "dependencies" {
                keywords.extend(self.dependencies(value));
            } else {
                keywords.extend(self.keyword(schema, name, value, &place)?);
            }
        }
        keywords.sort_by_key(rank);
        Ok(keywords)
    }

    /// One keyword; `None` if it says nothing by itself, or not in this dialect.
    fn keyword(
        &mut self,
        schema: &'s Map<String, Value>,
        name: &str,
        value: &'s Value,
        place: &str,
    ) -> Result<Option<Keyword>, GauntletError> {
        let newest = self.dialect == Draft::Draft202012;
        let before_2019 = self.dialect == Draft::Draft7;
        let number = || value.as_number().cloned();
        Ok(match name {
            "type" => types(value).map(Keyword::Type),
            "const" => Some(Keyword::Const(value.clone())),
            "enum" => value.as_array().map(|members| Keyword::Enum(enumerated(members))),
            "minimum" => number().map(|n| Keyword::Limit(Bound::Minimum, n)),
            "exclusiveMinimum" => number().map(|n| Keyword::Limit(Bound::ExclusiveMinimum, n)),
            "maximum" => number().map(|n| Keyword::Limit(Bound::Maximum, n)),
            "exclusiveMaximum" => number().map(|n| Keyword::Limit(Bound::ExclusiveMaximum, n)),
            "multipleOf" => number().map(Keyword::MultipleOf),
            "minLength" => Some(Keyword::Length { least: count(value), most: None }),
            "maxLength" => Some(Keyword::Length { least: None, most: count(value) }),
            "minItems" => Some(Keyword::ItemCount { least: count(value), most: None }),
            "maxItems" => Some(Keyword::ItemCount { least: None, most: count(value) }),
            "minProperties" => Some(Keyword::MemberCount { least: count(value), most: None }),
            "maxProperties" => Some(Keyword::MemberCount { least: None, most: count(value) }),
            "pattern" => match value.as_str() {
                Some(pattern) => Some(Keyword::Pattern(self.pattern(pattern, place)?)),
                None => None,
            },
            "uniqueItems" => (value == &Value::Bool(true)).then_some(Keyword::UniqueItems),
            "required" => Some(Keyword::Required(names(value))),
            "dependentRequired" if !before_2019 => {
                let dependent = value.as_object().into_iter().flatten();
                let dependent = dependent.map(|(name, needs)| (name.as_str().into(), names(needs)));
                Some(Keyword::DependentRequired(dependent.collect()))
            }
            "$ref" | "$dynamicRef" | "$recursiveRef" => {
                self.reference(name, value, place)?.map(Keyword::Reference)
            }
            "allOf" => Some(Keyword::All(self.list(value))),
            "anyOf" => Some(Keyword::Any(self.list(value))),
            "oneOf" => Some(Keyword::One(self.list(value))),
            "not" => self.id(value).map(Keyword::Not),
            "if" => self.id(value).map(|condition| Keyword::If {
                condition,
                then: schema.get("then").and_then(|then| self.id(then)),
                otherwise: schema.get("else").and_then(|otherwise| self.id(otherwise)),
            }),
            "dependentSchemas" if !before_2019 => Some(Keyword::DependentSchemas(self.named(value))),
            // The three belong together; the first of them that is there stands for all.
            "properties" | "patternProperties" | "additionalProperties" => {
                let first = ["properties", "patternProperties", "additionalProperties"]
                    .into_iter()
                    .find(|keyword| schema.contains_key(*keyword));
                if first == Some(name) { Some(self.properties(schema, place)?) } else { None }
            }
            "propertyNames" => self.id(value).map(Keyword::PropertyNames),
            "prefixItems" if newest => Some(Keyword::Items {
                prefix: self.list(value),
                rest: schema.get("items").and_then(|rest| self.id(rest)),
            }),
            "items" => match value {
                Value::Array(_) if !newest => Some(Keyword::Items {
                    prefix: self.list(value),
                    rest: schema.get("additionalItems").and_then(|rest| self.id(rest)),
                }),
                _ if newest && schema.contains_key("prefixItems") => None,
                _ => self.id(value).map(|rest| Keyword::Items { prefix: Vec::new(), rest: Some(rest) }),
            },
            "contains" => self.id(value).map(|node| Keyword::Contains {
                node,
                least: schema.get("minContains").filter(|_| !before_2019).and_then(count).unwrap_or(1),
                most: schema.get("maxContains").filter(|_| !before_2019).and_then(count),
                evaluates: newest,
            }),
            "unevaluatedProperties" if !before_2019 => self.id(value).map(Keyword::UnevaluatedProperties),
            "unevaluatedItems" if !before_2019 => self.id(value).map(Keyword::UnevaluatedItems),
            _ => None,
        })
    }

    fn id(&self, schema: &Value) -> Option<NodeId> {
        self.ids.get(&address(schema)).copied()
    }

    fn list(&self, value: &Value) -> Vec<NodeId> {
        value.as_array().into_iter().flatten().filter_map(|schema| self.id(schema)).collect()
    }

    fn named(&self, value: &Value) -> Vec<(Box<str>, NodeId)> {
        let members = value.as_object().into_iter().flatten();
        members.filter_map(|(name, schema)| Some((name.as_str().into(), self.id(schema)?))).collect()
    }

    fn reference(&self, keyword: &str, value: &Value, place: &str) -> Result<Option<NodeId>, GauntletError> {
        let known = match keyword {
            "$dynamicRef" => self.dialect == Draft::Draft202012,
            "$recursiveRef" => self.dialect == Draft::Draft201909,
            _ => true,
        };
        let Some(reference) = value.as_str().filter(|_| known) else { return Ok(None) };
        let target = self.document.resolve(reference).and_then(|target| self.id(target));
        target.map(Some).ok_or_else(|| GauntletError::uncompilable(place, "dangling-ref"))
    }

    /// Names and schemas mixed, as they were until 2019.
    fn dependencies(&self, value: &Value) -> [Keyword; 2] {
        let lists = value.as_object().into_iter().flatten().filter(|(_, value)| value.is_array());
        let lists = lists.map(|(name, needs)| (name.as_str().into(), names(needs))).collect();
        [Keyword::DependentRequired(lists), Keyword::DependentSchemas(self.named(value))]
    }

    fn properties(&mut self, schema: &'s Map<String, Value>, place: &str) -> Result<Keyword, GauntletError> {
        let named = schema.get("properties").map(|named| self.named(named)).unwrap_or_default();
        let additional = schema.get("additionalProperties").and_then(|schema| self.id(schema));
        let mut properties = Properties { named, additional, ..Properties::default() };
        properties.named.sort();
        if let Some(Value::Object(patterns)) = schema.get("patternProperties") {
            for (pattern, schema) in patterns {
                let pattern = self.pattern(pattern, place)?;
                properties.patterns.extend(self.id(schema).map(|id| (pattern, id)));
            }
        }
        Ok(Keyword::Properties(properties))
    }

    fn pattern(&mut self, pattern: &'s str, place: &str) -> Result<Pattern, GauntletError> {
        if let Some(known) = self.patterns.get(pattern) {
            return Ok(known.clone());
        }
        let validator = jsonschema::options()
            .with_draft(Draft::Draft202012)
            .offline()
            .with_pattern_options(pattern_options())
            .build(&json!({"pattern": pattern}))
            .map_err(|_| GauntletError::uncompilable(place, "pattern"))?;
        let made = Pattern(Arc::new(validator));
        self.patterns.insert(pattern, made.clone());
        Ok(made)
    }
}

fn types(value: &Value) -> Option<Types> {
    let bit = |name: &Value| TYPE_NAMES.iter().position(|known| name == known).map(|at| Types(1 << at));
    match value {
        Value::Array(names) => Some(names.iter().filter_map(bit).fold(Types(0), |a, b| Types(a.0 | b.0))),
        name => bit(name),
    }
}

fn enumerated(members: &[Value]) -> Members {
    match members.iter().map(|member| member.as_str().map(Box::from)).collect::<Option<Vec<Box<str>>>>() {
        Some(mut texts) => {
            texts.sort();
            Members::Texts(texts)
        }
        None => Members::Values(members.to_vec()),
    }
}

/// A count; `2.0` is one too.
fn count(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_f64().filter(|n| *n >= 0.0).map(|n| n as u64))
}

fn names(value: &Value) -> Vec<Box<str>> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(Box::from).collect()
}
