//! What Cedar is told about a call: entities and context.

use std::collections::HashSet;
use std::str::FromStr as _;
use std::sync::{Arc, LazyLock, OnceLock};

use cedar_policy::{
    Context, Entities, Entity, EntityId, EntityTypeName, EntityUid, Request, RestrictedExpression as Expr,
};
use portcullis_core::canon::{push_segment, to_jcs};
use portcullis_core::{Item, Principal, Timestamp};
use serde_json::Value;

use super::Policy;
use super::answers::Answers;
use crate::accepted::AcceptedTool;
use crate::approval::Scope;
use crate::record::RegistrationRecord;
use crate::registry::{ToolTrust, Trust};
use crate::request::CanonicalRequest;

/// The questions.
#[derive(Clone, Copy)]
pub(super) enum Action {
    Invoke,
    InvokeUnattended,
}

/// What is known about a tool and its server before any call: entities made once per snapshot.
#[derive(Debug, Clone)]
pub struct ToolFacts {
    tool: EntityUid,
    entities: Vec<Entity>,
    pub(super) answers: Arc<Answers>,
}

/// What is known about a call besides the request itself.
#[derive(Debug, Clone, Copy)]
pub struct Circumstances<'a> {
    /// Whether the agent proved who it is, or is only named.
    pub authenticated: bool,
    /// What the client calls itself; not trusted.
    pub client: &'a str,
    /// The groups an operator put the agent in: its parents (GOV-802).
    pub groups: &'a [String],
    /// How many calls its session has made.
    pub session_calls: u64,
    /// When.
    pub now: Timestamp,
}

/// One call that policy is asked about. What Cedar must be told is put together when it is first asked.
#[derive(Debug)]
pub(super) struct Inquiry<'r> {
    request: &'r CanonicalRequest,
    pub(super) tool: &'r ToolFacts,
    circumstances: Circumstances<'r>,
    facts: OnceLock<Facts>,
}

impl<'r> Inquiry<'r> {
    pub(super) fn new(
        request: &'r CanonicalRequest,
        tool: &'r ToolFacts,
        circumstances: Circumstances<'r>,
    ) -> Self {
        Self { request, tool, circumstances, facts: OnceLock::new() }
    }

    pub(super) fn facts(&self, policy: &Policy) -> &Facts {
        self.facts.get_or_init(|| {
            let tags = if policy.reads_arguments { argument_tags(self.request) } else { Vec::new() };
            let principal = &self.request.lineage().principal;
            Facts::gather(policy, principal, tags, self.tool, &self.circumstances)
        })
    }
}

/// Everything Cedar is told about one call.
#[derive(Debug)]
pub(super) struct Facts {
    principal: EntityUid,
    tool: EntityUid,
    call: EntityUid,
    mode: &'static str,
    session_calls: i64,
    hour: i64,
    entities: Entities,
}

static AGENT: LazyLock<EntityTypeName> = LazyLock::new(|| type_name("Portcullis::Agent"));
static SERVER: LazyLock<EntityTypeName> = LazyLock::new(|| type_name("Portcullis::Server"));
static TOOL: LazyLock<EntityTypeName> = LazyLock::new(|| type_name("Portcullis::Tool"));
static RESOURCE: LazyLock<EntityTypeName> = LazyLock::new(|| type_name("Portcullis::Resource"));
static PROMPT: LazyLock<EntityTypeName> = LazyLock::new(|| type_name("Portcullis::Prompt"));
static SERVER_REQUEST: LazyLock<EntityTypeName> = LazyLock::new(|| type_name("Portcullis::ServerRequest"));
static GROUP: LazyLock<EntityTypeName> = LazyLock::new(|| type_name("Portcullis::Group"));
static CALL: LazyLock<EntityTypeName> = LazyLock::new(|| type_name("Portcullis::Call"));
static INVOKE: LazyLock<EntityUid> = LazyLock::new(|| uid(&type_name("Portcullis::Action"), "invoke"));
static UNATTENDED: LazyLock<EntityUid> =
    LazyLock::new(|| uid(&type_name("Portcullis::Action"), "invokeUnattended"));

fn type_name(text: &str) -> EntityTypeName {
    EntityTypeName::from_str(text).expect("a fixed name of the schema")
}

fn uid(kind: &EntityTypeName, id: &str) -> EntityUid {
    EntityUid::from_type_name_and_id(kind.clone(), EntityId::new(id))
}

fn text(value: impl Into<String>) -> Expr {
    Expr::new_string(value.into())
}

fn texts<T: ToString>(values: impl IntoIterator<Item = T>) -> Expr {
    Expr::new_set(values.into_iter().map(|value| text(value.to_string())))
}

fn entity(uid: EntityUid, attributes: Vec<(&str, Expr)>, parents: HashSet<EntityUid>) -> Entity {
    let attributes = attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Entity::new(uid, attributes, parents).expect("plain values evaluate")
}

impl ToolFacts {
    /// Describes a tool and its server.
    pub fn new(
        tool: &AcceptedTool,
        record: &RegistrationRecord,
        server_trust: Trust,
        tool_trust: ToolTrust,
    ) -> Self {
        let server_uid = uid(&SERVER, record.server_identity.as_str());
        let server = entity(
            server_uid.clone(),
            vec![
                ("transport", text(record.transport.as_str())),
                ("surface", text(record.surface.as_str())),
                ("isolation", text(record.isolation_class.as_str())),
                ("tier", Expr::new_long(record.assigned_trust_tier.into())),
                ("trust", text(server_trust.as_str())),
                ("modes", texts(record.policy_tags.iter().map(|mode| mode.as_str()))),
            ],
            HashSet::new(),
        );
        // GOV-802: completing an argument is asking about what has the argument.
        let kind = match tool.id().item() {
            Item::Tool(_) | Item::Probe(_) => &TOOL,
            Item::Resource(_) => &RESOURCE,
            Item::Prompt(_) => &PROMPT,
            Item::Request(_) => &SERVER_REQUEST,
        };
        let tool_uid = uid(kind, tool.id().as_str());
        let described = entity(
            tool_uid.clone(),
            vec![
                ("server", Expr::new_entity_uid(server_uid.clone())),
                ("name", text(tool.id().item().name())),
                ("classes", texts(tool.side_effects().iter().map(|class| class.as_str()))),
                ("scopes", texts(tool.scopes())),
                ("credentials", texts(tool.credentials())),
                ("idempotency", text(tool.idempotency().as_str())),
                ("bound", Expr::new_bool(tool.bound())),
                ("trust", text(tool_trust.state.as_str())),
                ("violations", Expr::new_long(i64::try_from(tool_trust.violations).unwrap_or(i64::MAX))),
            ],
            HashSet::from([server_uid]),
        );
        Self { tool: tool_uid, entities: vec![server, described], answers: Arc::default() }
    }
}

impl Facts {
    fn gather(
        policy: &Policy,
        principal: &Principal,
        tags: Vec<(String, Expr)>,
        tool: &ToolFacts,
        circumstances: &Circumstances<'_>,
    ) -> Self {
        let principal = uid(&AGENT, principal.name());
        let agent = entity(
            principal.clone(),
            vec![
                ("authenticated", Expr::new_bool(circumstances.authenticated)),
                ("client", text(circumstances.client)),
            ],
            circumstances.groups.iter().map(|group| uid(&GROUP, group)).collect(),
        );
        let call = uid(&CALL, "this");
        let described = Entity::new_with_tags(call.clone(), [], [], tags).expect("plain values evaluate");
        let groups: HashSet<&String> = circumstances.groups.iter().collect();
        let groups = groups.into_iter().map(|group| entity(uid(&GROUP, group), Vec::new(), HashSet::new()));
        let entities = tool.entities.iter().cloned().chain([agent, described]).chain(groups);
        Self {
            principal,
            tool: tool.tool.clone(),
            call,
            mode: policy.mode.as_str(),
            session_calls: i64::try_from(circumstances.session_calls).unwrap_or(i64::MAX),
            hour: circumstances.now.hour() as i64,
            entities: Entities::from_entities(entities, None).expect("distinct entities"),
        }
    }

    /// What Cedar is told about a look at a result: the tool, and by which kind of selector (CTX-22).
    pub(super) fn of_view(
        policy: &Policy,
        principal: &Principal,
        tool: &ToolFacts,
        circumstances: &Circumstances<'_>,
        selector: &str,
    ) -> Self {
        let tags = vec![("portcullis:view".to_owned(), text(selector))];
        Self::gather(policy, principal, tags, tool, circumstances)
    }

    /// What Cedar is told about calls of a tool before there is one.
    pub(super) fn of_any_call(
        policy: &Policy,
        principal: &Principal,
        tool: &ToolFacts,
        circumstances: &Circumstances<'_>,
    ) -> Self {
        Self::gather(policy, principal, Vec::new(), tool, circumstances)
    }

    pub(super) fn entities(&self) -> &Entities {
        &self.entities
    }

    /// `None` only if Cedar cannot hold the values, which then counts as a refusal.
    pub(super) fn request(&self, action: Action, approval: Option<(Scope, u32)>) -> Option<Request> {
        let (scope, approvers) =
            approval.map_or(("none", 0), |(scope, approvers)| (scope.as_str(), approvers));
        let approval = Expr::new_record([
            ("scope".to_owned(), text(scope)),
            ("approvers".to_owned(), Expr::new_long(approvers.into())),
        ]);
        let context = Context::from_pairs([
            ("mode".to_owned(), text(self.mode)),
            ("call".to_owned(), Expr::new_entity_uid(self.call.clone())),
            ("approval".to_owned(), approval.ok()?),
            ("session_calls".to_owned(), Expr::new_long(self.session_calls)),
            ("hour".to_owned(), Expr::new_long(self.hour)),
        ]);
        let action = match action {
            Action::Invoke => INVOKE.clone(),
            Action::InvokeUnattended => UNATTENDED.clone(),
        };
        Request::new(self.principal.clone(), action, self.tool.clone(), context.ok()?, None).ok()
    }
}

/// Every scalar argument by its pointer; a bound one in its resolved form.
fn argument_tags(request: &CanonicalRequest) -> Vec<(String, Expr)> {
    let mut scalars = Vec::new();
    collect_scalars(request.args_value(), &mut String::new(), &mut scalars);
    for (pointer, value) in &mut scalars {
        if let Some(bound) = request.bindings().iter().find(|binding| &binding.param == pointer) {
            value.clone_from(&bound.resolved);
        }
    }
    scalars.into_iter().map(|(pointer, value)| (pointer, Expr::new_string(value))).collect()
}

fn collect_scalars(value: &Value, pointer: &mut String, into: &mut Vec<(String, String)>) {
    let length = pointer.len();
    match value {
        Value::Object(members) => {
            for (name, child) in members {
                push_segment(pointer, name);
                collect_scalars(child, pointer, into);
                pointer.truncate(length);
            }
        }
        Value::Array(items) => {
            for (index, child) in items.iter().enumerate() {
                push_segment(pointer, &index.to_string());
                collect_scalars(child, pointer, into);
                pointer.truncate(length);
            }
        }
        Value::String(text) => into.push((pointer.clone(), text.clone())),
        // In its canonical spelling, or `5.0` would pass a rule about `5`.
        scalar => {
            let text = to_jcs(scalar).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            into.push((pointer.clone(), text.unwrap_or_else(|| scalar.to_string())));
        }
    }
}
