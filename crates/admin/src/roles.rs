//! Who sees which tools (ADM-71). What an actor does not see is not there for it: not listed, not browsed, not called.

use std::collections::BTreeMap;

use portcullis_gateway::Control;
pub use portcullis_gateway::control::{OWNER, Role};

use crate::actor::{Actor, Channel};
use crate::tool::{Class, ToolDef};

/// The role that sees everything.
pub fn owner() -> Role {
    Role { id: OWNER.into(), patterns: vec!["*".into()], allow: Vec::new(), deny: Vec::new() }
}

/// First match: denied by name, allowed by name, by pattern, else hidden.
pub fn sees(role: &Role, tool: &ToolDef) -> bool {
    let named = |names: &[String]| names.iter().any(|name| name == tool.name() || name == tool.short_name());
    if named(&role.deny) {
        return false;
    }
    named(&role.allow) || role.patterns.iter().any(|pattern| tag_matches(pattern, &tool.tag()))
}

/// Whether a pattern of tags covers a tag.
pub fn tag_matches(pattern: &str, tag: &str) -> bool {
    if pattern == "*" {
        return true;
    }
    let (Some((domain, class)), Some((of, is))) = (pattern.split_once(':'), tag.split_once(':')) else {
        return false;
    };
    (domain == "*" || domain == of) && (class == "*" || class == is)
}

/// All roles, and who has which.
#[derive(Debug, Clone, Default)]
pub struct Roles {
    roles: BTreeMap<String, Role>,
    /// Operators with roles of their own; the others are owners.
    operators: BTreeMap<String, Vec<String>>,
    /// Agents, by principal.
    clients: BTreeMap<String, Vec<String>>,
}

impl Roles {
    /// These roles, given to these actors. An operator who is not named is an owner; an agent who is not named sees
    /// nothing.
    pub fn new(
        roles: impl IntoIterator<Item = Role>,
        operators: BTreeMap<String, Vec<String>>,
        clients: BTreeMap<String, Vec<String>>,
    ) -> Self {
        let roles = roles.into_iter().map(|role| (role.id.clone(), role)).collect();
        Self { roles, operators, clients }
    }

    /// As the control plane has them now.
    pub fn of_gateway(control: &Control) -> Self {
        let roles = control.roles().into_iter().map(|role| role.document);
        let users = control.documents::<portcullis_gateway::control::User>().into_iter();
        // Who is switched off has no role at all, whatever it was let in with before.
        let operators = users.map(|user| {
            let user = user.document;
            (user.user_id, if user.enabled { user.roles } else { Vec::new() })
        });
        let clients = control.documents::<portcullis_gateway::orders::Client>().into_iter();
        let clients = clients.map(|client| client.document).filter(|client| !client.revoked);
        let clients = clients.map(|client| (format!("agent:{}", client.client_id), client.roles));
        Self::new(roles, operators.collect(), clients.collect())
    }

    /// The roles of an actor.
    pub fn of(&self, actor: Option<&Actor>) -> Vec<Role> {
        let Some(actor) = actor else { return vec![owner()] };
        let named = match actor.channel() {
            Channel::Operator => match self.operators.get(actor.id()) {
                Some(named) => named,
                None => return vec![owner()],
            },
            Channel::Agent => match self.clients.get(actor.id()) {
                Some(named) => named,
                None => return Vec::new(),
            },
        };
        let owner = owner();
        let find =
            |id: &String| self.roles.get(id).cloned().or_else(|| (*id == owner.id).then(|| owner.clone()));
        named.iter().filter_map(find).collect()
    }

    /// Whether an actor sees a tool on a channel. On the agents' channel nothing that changes anything exists, nor what
    /// tells of others, whatever roles say (ADM-3).
    pub fn shows(&self, tool: &ToolDef, actor: Option<&Actor>, channel: Channel) -> bool {
        let of_agents = tool.class() == Class::Read && tool.is_for_owners() && actor.is_some();
        if channel == Channel::Agent && !of_agents {
            return false;
        }
        // Somebody from the other door is nobody here.
        if actor.is_some_and(|actor| actor.channel() != channel) {
            return false;
        }
        self.of(actor).iter().any(|role| sees(role, tool))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::NoArgs;
    use crate::tool::unwired_tool;
    use portcullis_core::Principal;

    #[test]
    fn denied_beats_allowed_beats_pattern_beats_hidden() {
        // ADM-71, SO-23
        let tool = unwired_tool::<NoArgs>("servers", "list", Class::Read, "x");
        let role = |patterns: &[&str], allow: &[&str], deny: &[&str]| {
            let texts = |list: &[&str]| list.iter().map(ToString::to_string).collect();
            Role { id: "r".into(), patterns: texts(patterns), allow: texts(allow), deny: texts(deny) }
        };
        let name = "portcullis_servers_list";
        assert!(!sees(&role(&["*"], &[name], &[name]), &tool));
        assert!(sees(&role(&[], &[name], &[]), &tool));
        for pattern in ["servers:read", "servers:*", "*:read", "*"] {
            assert!(sees(&role(&[pattern], &[], &[]), &tool), "{pattern}");
        }
        for pattern in ["servers:admin", "trust:*", "*:write", "servers", ""] {
            assert!(!sees(&role(&[pattern], &[], &[]), &tool), "{pattern}");
        }
    }

    #[test]
    fn agents_see_nothing_that_changes_anything_whatever_roles_say() {
        // ADM-3, SO-04
        let agent = Actor::client(&Principal::agent("a").unwrap());
        let clients = BTreeMap::from([("agent:a".to_owned(), vec!["owner".to_owned()])]);
        let roles = Roles::new([], BTreeMap::new(), clients);
        let read = unwired_tool::<NoArgs>("sessions", "list", Class::Read, "x").for_owners();
        let others = unwired_tool::<NoArgs>("servers", "list", Class::Read, "x");
        let admin = unwired_tool::<NoArgs>("servers", "remove", Class::Admin, "x").for_owners();
        let write = unwired_tool::<NoArgs>("servers", "refresh", Class::Write, "x").for_owners();
        assert!(roles.shows(&read, Some(&agent), Channel::Agent));
        assert!(!roles.shows(&others, Some(&agent), Channel::Agent), "there is nothing of its own in it");
        assert!(!roles.shows(&write, Some(&agent), Channel::Agent));
        assert!(!roles.shows(&admin, Some(&agent), Channel::Agent));
        assert!(
            !roles.shows(&read, Some(&agent), Channel::Operator),
            "an agent is nobody on the operators' channel"
        );
        assert!(!roles.shows(&read, None, Channel::Agent));
        assert!(!Roles::default().shows(&read, Some(&agent), Channel::Agent));
    }
}
