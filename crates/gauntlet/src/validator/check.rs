//! Yes or no.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeSet;

use jsonschema::error::ValidationErrorKind;
use serde_json::Value;

use super::number::{are_unique, compare, equal, is_multiple};
use super::{
    Bound, Effort, Exhausted, Instance, Keyword, Kind, Members, Node, NodeId, Pattern, Properties, Validator,
};

/// How many bytes of text a pattern looks at for the price of a visit; counting characters is cheaper.
const PATTERN_BYTES: usize = 256;
const COUNTED_BYTES: usize = 4_096;
/// How many values are compared for the price of a visit.
const COMPARED: usize = 8;

/// What of one value the keywords at one place have evaluated, for those that ask what is left.
#[derive(Debug, Default)]
pub(super) struct Seen<'i> {
    all_members: bool,
    members: BTreeSet<Cow<'i, str>>,
    all_items: bool,
    first_items: usize,
    items: BTreeSet<usize>,
}

impl<'i> Seen<'i> {
    fn absorb(&mut self, other: Seen<'i>) {
        self.all_members |= other.all_members;
        self.members.extend(other.members);
        self.all_items |= other.all_items;
        self.first_items = self.first_items.max(other.first_items);
        self.items.extend(other.items);
    }

    pub(super) fn has_member(&self, name: &str) -> bool {
        self.all_members || self.members.contains(name)
    }

    pub(super) fn has_item(&self, at: usize) -> bool {
        self.all_items || at < self.first_items || self.items.contains(&at)
    }
}

/// Whether `instance` fits node `id`. What was evaluated is added to `seen`, if somebody asks; what was evaluated by a
/// node that does not fit is worth nothing.
pub(super) fn check<'i>(
    validator: &Validator,
    id: NodeId,
    instance: impl Instance<'i>,
    seen: Option<&mut Seen<'i>>,
    effort: &mut Effort,
) -> Result<bool, Exhausted> {
    let node = validator.node(id);
    effort.enter()?;
    let fits = if node.asks_unevaluated {
        asking(validator, node, instance, seen, effort)?
    } else {
        all_keywords(validator, node, instance, seen, effort)?
    };
    effort.leave();
    Ok(fits)
}

fn all_keywords<'i>(
    validator: &Validator,
    node: &Node,
    instance: impl Instance<'i>,
    mut seen: Option<&mut Seen<'i>>,
    effort: &mut Effort,
) -> Result<bool, Exhausted> {
    for keyword in &node.keywords {
        if !holds(validator, keyword, instance, seen.as_deref_mut(), effort)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A node with `unevaluatedProperties` or `unevaluatedItems`: they come last, and are told what the others saw.
fn asking<'i>(
    validator: &Validator,
    node: &Node,
    instance: impl Instance<'i>,
    seen: Option<&mut Seen<'i>>,
    effort: &mut Effort,
) -> Result<bool, Exhausted> {
    let mut own = Seen::default();
    if !all_keywords(validator, node, instance, Some(&mut own), effort)? {
        return Ok(false);
    }
    if let Some(seen) = seen {
        seen.absorb(own);
    }
    Ok(true)
}

/// What the keywords of a node evaluated, those that do not hold left out.
pub(super) fn evaluated<'i>(
    validator: &Validator,
    node: &Node,
    instance: impl Instance<'i>,
    effort: &mut Effort,
) -> Result<Seen<'i>, Exhausted> {
    let mut all = Seen::default();
    for keyword in &node.keywords {
        if matches!(keyword, Keyword::UnevaluatedProperties(_) | Keyword::UnevaluatedItems(_)) {
            continue;
        }
        let mut own = Seen::default();
        if holds(validator, keyword, instance, Some(&mut own), effort)? {
            all.absorb(own);
        }
    }
    Ok(all)
}

/// Whether one keyword holds.
pub(super) fn holds<'i>(
    validator: &Validator,
    keyword: &Keyword,
    instance: impl Instance<'i>,
    seen: Option<&mut Seen<'i>>,
    effort: &mut Effort,
) -> Result<bool, Exhausted> {
    match (keyword, instance.kind()) {
        (Keyword::Reference(id), _) => check(validator, *id, instance, seen, effort),
        (Keyword::All(ids), _) => every(validator, ids, instance, seen, effort),
        (Keyword::Any(ids), _) => Ok(how_many(validator, ids, instance, 1, seen, effort)? >= 1),
        (Keyword::One(ids), _) => Ok(how_many(validator, ids, instance, 2, seen, effort)? == 1),
        (Keyword::Not(id), _) => Ok(!check(validator, *id, instance, None, effort)?),
        (Keyword::If { condition, then, otherwise }, _) => {
            let branches = (*condition, *then, *otherwise);
            conditional(validator, branches, instance, seen, effort)
        }
        (Keyword::DependentSchemas(dependent), Kind::Object) => {
            dependents(validator, dependent, instance, seen, effort)
        }
        (Keyword::Properties(properties), Kind::Object) => {
            properties_hold(validator, properties, instance, seen, effort)
        }
        (Keyword::PropertyNames(id), Kind::Object) => all_names_fit(validator, *id, instance, effort),
        (Keyword::Items { prefix, rest }, Kind::Array) => {
            items_hold(validator, prefix, *rest, instance, seen, effort)
        }
        (Keyword::Contains { node, least, most, evaluates }, Kind::Array) => {
            let found = contained(validator, *node, instance, seen.filter(|_| *evaluates), effort)?;
            Ok(within(found, Some(*least), *most))
        }
        (Keyword::UnevaluatedProperties(id), Kind::Object) => {
            other_members_fit(validator, *id, instance, seen, effort)
        }
        (Keyword::UnevaluatedItems(id), Kind::Array) => {
            other_items_fit(validator, *id, instance, seen, effort)
        }
        _ => holds_alone(keyword, instance, effort),
    }
}

/// Whether a keyword holds that leads to no other node. Apart from the others, whose stack frames stand for every level
/// of a value and a schema.
fn holds_alone<'i>(
    keyword: &Keyword,
    instance: impl Instance<'i>,
    effort: &mut Effort,
) -> Result<bool, Exhausted> {
    match (keyword, instance.kind()) {
        (Keyword::Never, _) => Ok(false),
        (Keyword::Type(types), _) => Ok(types.admit(instance)),
        (Keyword::Const(value), _) => Ok(equal(value, &instance.value())),
        (Keyword::Enum(members), _) => is_member(members, instance, effort),
        (Keyword::Limit(bound, limit), Kind::Number) => {
            let order = compare(&instance.number(), limit);
            Ok(match bound {
                Bound::Minimum => order != Ordering::Less,
                Bound::ExclusiveMinimum => order == Ordering::Greater,
                Bound::Maximum => order != Ordering::Greater,
                Bound::ExclusiveMaximum => order == Ordering::Less,
            })
        }
        (Keyword::MultipleOf(of), Kind::Number) => Ok(is_multiple(&instance.number(), of)),
        (Keyword::Length { least, most }, Kind::String) => {
            let text = instance.text();
            effort.spend(text.len(), COUNTED_BYTES)?;
            Ok(has_length(&text, *least, *most))
        }
        (Keyword::Pattern(pattern), Kind::String) => pattern.matches(&instance.value(), effort),
        (Keyword::ItemCount { least, most }, Kind::Array)
        | (Keyword::MemberCount { least, most }, Kind::Object) => Ok(within(instance.count(), *least, *most)),
        (Keyword::UniqueItems, Kind::Array) => {
            let (unique, looked_at) = are_unique(instance.value().as_array().map_or(&[], Vec::as_slice));
            effort.spend(looked_at, COMPARED)?;
            Ok(unique)
        }
        (Keyword::Required(names), Kind::Object) => {
            effort.spend(names.len(), COMPARED)?;
            Ok(names.iter().all(|name| instance.member(name).is_some()))
        }
        (Keyword::DependentRequired(dependent), Kind::Object) => {
            effort.spend(dependent.iter().map(|(_, needs)| 1 + needs.len()).sum(), COMPARED)?;
            let has = |name: &str| instance.member(name).is_some();
            Ok(dependent.iter().all(|(name, needs)| !has(name) || needs.iter().all(|need| has(need))))
        }
        // What is said about one type says nothing about the others.
        _ => Ok(true),
    }
}

fn is_member<'i>(
    members: &Members,
    instance: impl Instance<'i>,
    effort: &mut Effort,
) -> Result<bool, Exhausted> {
    match members {
        Members::Texts(texts) => {
            let is_one = |text: &str| texts.binary_search_by(|member| (**member).cmp(text)).is_ok();
            Ok(instance.kind() == Kind::String && is_one(&instance.text()))
        }
        Members::Values(values) => {
            effort.spend(values.len(), COMPARED)?;
            let instance = instance.value();
            Ok(values.iter().any(|value| equal(value, &instance)))
        }
    }
}

fn within(count: usize, least: Option<u64>, most: Option<u64>) -> bool {
    let count = count as u64;
    least.is_none_or(|least| count >= least) && most.is_none_or(|most| count <= most)
}

/// A character has one to four bytes, so most texts need not be counted.
fn has_length(text: &str, least: Option<u64>, most: Option<u64>) -> bool {
    let bytes = text.len() as u64;
    let surely = least.is_none_or(|least| bytes / 4 >= least) && most.is_none_or(|most| bytes <= most);
    surely || within(text.chars().count(), least, most)
}

impl Pattern {
    /// Whether a text matches. A pattern that runs out of steps decides nothing (GNT-S6).
    fn matches(&self, text: &Value, effort: &mut Effort) -> Result<bool, Exhausted> {
        effort.spend(text.as_str().map_or(0, str::len), PATTERN_BYTES)?;
        if self.0.is_valid(text) {
            return Ok(true);
        }
        let gave_up = |error: jsonschema::ValidationError<'_>| {
            matches!(
                error.kind(),
                ValidationErrorKind::BacktrackLimitExceeded { .. }
                    | ValidationErrorKind::RegexEngineFailure { .. }
            )
        };
        if self.0.validate(text).err().is_some_and(gave_up) { Err(Exhausted) } else { Ok(false) }
    }
}

fn every<'i>(
    validator: &Validator,
    ids: &[NodeId],
    instance: impl Instance<'i>,
    mut seen: Option<&mut Seen<'i>>,
    effort: &mut Effort,
) -> Result<bool, Exhausted> {
    for id in ids {
        if !check(validator, *id, instance, seen.as_deref_mut(), effort)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// How many of the forms fit, counted up to `enough`; all of them are asked if what they evaluate matters.
fn how_many<'i>(
    validator: &Validator,
    ids: &[NodeId],
    instance: impl Instance<'i>,
    enough: usize,
    mut seen: Option<&mut Seen<'i>>,
    effort: &mut Effort,
) -> Result<usize, Exhausted> {
    let mut fitting = 0;
    for id in ids {
        fitting += usize::from(apart(validator, *id, instance, seen.as_deref_mut(), effort)?);
        if seen.is_none() && fitting >= enough {
            break;
        }
    }
    Ok(fitting)
}

/// A node whose failure is no failure of whoever asks: what it evaluated counts only if it fits.
fn apart<'i>(
    validator: &Validator,
    id: NodeId,
    instance: impl Instance<'i>,
    seen: Option<&mut Seen<'i>>,
    effort: &mut Effort,
) -> Result<bool, Exhausted> {
    let Some(seen) = seen else { return check(validator, id, instance, None, effort) };
    let mut own = Seen::default();
    let fits = check(validator, id, instance, Some(&mut own), effort)?;
    if fits {
        seen.absorb(own);
    }
    Ok(fits)
}

fn conditional<'i>(
    validator: &Validator,
    (condition, then, otherwise): (NodeId, Option<NodeId>, Option<NodeId>),
    instance: impl Instance<'i>,
    mut seen: Option<&mut Seen<'i>>,
    effort: &mut Effort,
) -> Result<bool, Exhausted> {
    let branch =
        if apart(validator, condition, instance, seen.as_deref_mut(), effort)? { then } else { otherwise };
    branch.map_or(Ok(true), |id| check(validator, id, instance, seen, effort))
}

fn dependents<'i>(
    validator: &Validator,
    dependent: &[(Box<str>, NodeId)],
    instance: impl Instance<'i>,
    mut seen: Option<&mut Seen<'i>>,
    effort: &mut Effort,
) -> Result<bool, Exhausted> {
    effort.spend(dependent.len(), COMPARED)?;
    for (name, id) in dependent {
        if instance.member(name).is_some() && !check(validator, *id, instance, seen.as_deref_mut(), effort)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn properties_hold<'i>(
    validator: &Validator,
    properties: &Properties,
    instance: impl Instance<'i>,
    mut seen: Option<&mut Seen<'i>>,
    effort: &mut Effort,
) -> Result<bool, Exhausted> {
    effort.spend(properties.named.len(), COMPARED)?;
    for at in &properties.order {
        let (name, id) = &properties.named[*at];
        if let Some(member) = instance.member(name) {
            if !check(validator, *id, member, None, effort)? {
                return Ok(false);
            }
            if let Some(seen) = &mut seen {
                seen.members.insert(name.to_string().into());
            }
        }
    }
    if properties.patterns.is_empty() && properties.additional.is_none() {
        return Ok(true);
    }
    for (name, member) in instance.members() {
        for id in others_for(properties, &name, effort)? {
            if !check(validator, id, member, None, effort)? {
                return Ok(false);
            }
            if let Some(seen) = &mut seen {
                seen.members.insert(name.clone());
            }
        }
    }
    Ok(true)
}

/// The nodes a member must fit besides the one of its name.
pub(super) fn others_for(
    properties: &Properties,
    name: &str,
    effort: &mut Effort,
) -> Result<Vec<NodeId>, Exhausted> {
    let mut ids = Vec::new();
    if !properties.patterns.is_empty() {
        let text = Value::from(name);
        for (pattern, id) in &properties.patterns {
            effort.visit()?;
            if pattern.matches(&text, effort)? {
                ids.push(*id);
            }
        }
    }
    if ids.is_empty() && properties.get(name).is_none() {
        ids.extend(properties.additional);
    }
    Ok(ids)
}

fn all_names_fit<'i>(
    validator: &Validator,
    id: NodeId,
    instance: impl Instance<'i>,
    effort: &mut Effort,
) -> Result<bool, Exhausted> {
    for (name, _) in instance.members() {
        if !names_fit(validator, id, &name, effort)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a member may have its name.
pub(super) fn names_fit(
    validator: &Validator,
    id: NodeId,
    name: &str,
    effort: &mut Effort,
) -> Result<bool, Exhausted> {
    check(validator, id, &Value::from(name), None, effort)
}

/// The members that no keyword beside this one evaluated.
fn other_members_fit<'i>(
    validator: &Validator,
    id: NodeId,
    instance: impl Instance<'i>,
    seen: Option<&mut Seen<'i>>,
    effort: &mut Effort,
) -> Result<bool, Exhausted> {
    let Some(seen) = seen else { return Ok(true) };
    for (name, member) in instance.members() {
        if !seen.has_member(&name) && !check(validator, id, member, None, effort)? {
            return Ok(false);
        }
    }
    seen.all_members = true;
    Ok(true)
}

fn other_items_fit<'i>(
    validator: &Validator,
    id: NodeId,
    instance: impl Instance<'i>,
    seen: Option<&mut Seen<'i>>,
    effort: &mut Effort,
) -> Result<bool, Exhausted> {
    let Some(seen) = seen else { return Ok(true) };
    for (at, item) in instance.items().enumerate() {
        if !seen.has_item(at) && !check(validator, id, item, None, effort)? {
            return Ok(false);
        }
    }
    seen.all_items = true;
    Ok(true)
}

fn items_hold<'i>(
    validator: &Validator,
    prefix: &[NodeId],
    rest: Option<NodeId>,
    instance: impl Instance<'i>,
    seen: Option<&mut Seen<'i>>,
    effort: &mut Effort,
) -> Result<bool, Exhausted> {
    for (at, item) in instance.items().enumerate() {
        let Some(id) = prefix.get(at).copied().or(rest) else { break };
        if !check(validator, id, item, None, effort)? {
            return Ok(false);
        }
    }
    if let Some(seen) = seen {
        seen.first_items = seen.first_items.max(prefix.len());
        seen.all_items |= rest.is_some();
    }
    Ok(true)
}

/// How many items fit the node; which ones, if somebody asks.
pub(super) fn contained<'i>(
    validator: &Validator,
    node: NodeId,
    instance: impl Instance<'i>,
    mut seen: Option<&mut Seen<'i>>,
    effort: &mut Effort,
) -> Result<usize, Exhausted> {
    let mut found = 0;
    for (at, item) in instance.items().enumerate() {
        if check(validator, node, item, None, effort)? {
            found += 1;
            if let Some(seen) = &mut seen {
                seen.items.insert(at);
            }
        }
    }
    Ok(found)
}
