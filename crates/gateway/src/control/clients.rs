//! Agents as operators know them, what they are shown, what they may use, and tools that nobody uses for now: documents,
//! and what calls go by made of them.

use std::collections::BTreeSet;

use portcullis_audit::{Event, EventName};
use portcullis_core::error::one_line;
use portcullis_core::{ErrorCode, Principal, Secret};
use portcullis_gauntlet::{CapMode, Capabilities};
use portcullis_governance::operator::OperatorProof;
use serde_json::json;

use super::kept::{KeptDocuments, Versioned};
use super::keys::KIND as KEY;
use super::permits::Meant;
use super::{Control, ControlError, State};
use crate::access::agent_keys::{AgentKey, principal_of};
use crate::access::{DECLARED, OAUTH_PREFIX};
use crate::orders::{Autonomy, Client, Metric, Orders, Profile, Quota, Subject, ToolOrder};
use crate::quotas::Used;

/// What taking an agent's access back came to.
#[derive(Debug, Clone, Copy)]
pub struct Revoked {
    /// Sessions that ended.
    pub sessions: usize,
    /// Permits that died.
    pub permits: usize,
}

/// What calls go by, of what is kept.
pub(super) fn orders_of(kept: &KeptDocuments) -> Orders {
    fn all<D: super::Document>(kept: &KeptDocuments) -> impl Iterator<Item = D> {
        kept.documents().into_iter().map(|versioned| versioned.document)
    }
    Orders::new(all::<Client>(kept), all::<Profile>(kept), all::<ToolOrder>(kept), all::<Quota>(kept))
        .waiting(super::tuning::approval_wait(kept))
}

impl Control {
    /// Puts in force what is kept: what calls go by, how results of tools are written, and whether lists need `tool_view`.
    pub(super) fn follow_orders(&self, state: &mut State) {
        let orders = orders_of(&self.kept);
        let treatments = self.documents::<ToolOrder>().into_iter().map(|order| order.document);
        let treated = state.gauntlet.treat(treatments.filter_map(|order| {
            let escape = order.escape.as_deref().and_then(portcullis_gauntlet::Escape::named);
            let text_json = order.text_json.as_deref().and_then(portcullis_gauntlet::TextJson::named);
            (escape.is_some() || text_json.is_some()).then_some((order.tool, (escape, text_json)))
        }));
        let budgets =
            self.documents::<Profile>().iter().any(|profile| profile.document.result_budget.is_some());
        let views = self.shaping.keeps_in_passthrough() || budgets;
        self.orders.put(orders);
        self.limits.store(std::sync::Arc::new(super::tuning::limited(&self.kept, &self.options.calls)));
        self.follow_withheld();
        if treated || views != state.views {
            state.views = views;
            self.world.swap(state.world());
        }
    }

    /// What calls go by.
    pub fn orders(&self) -> std::sync::Arc<Orders> {
        self.orders.load()
    }

    /// Every agent that has a key or that something is known of, by name; with its key.
    pub fn clients(&self) -> Vec<(Versioned<Client>, Option<AgentKey>)> {
        let keys = self.keys.list();
        let documents: Vec<Versioned<Client>> = self.documents();
        let known: BTreeSet<String> =
            documents.iter().map(|client| client.document.client_id.clone()).collect();
        let key_of = |id: &str| keys.iter().find(|key| key.agent == id).cloned();
        let mut rows: Vec<(Versioned<Client>, Option<AgentKey>)> = documents
            .into_iter()
            .map(|client| (client.clone(), key_of(&client.document.client_id)))
            .collect();
        let without = keys.iter().filter(|key| !known.contains(&key.agent));
        rows.extend(without.map(|key| {
            let document = of_key(key);
            (Versioned { document, version: 0 }, Some(key.clone()))
        }));
        rows.sort_by(|(a, _), (b, _)| a.document.client_id.cmp(&b.document.client_id));
        rows
    }

    /// One of them.
    pub fn client(&self, id: &str) -> Result<(Versioned<Client>, Option<AgentKey>), ControlError> {
        let id = id.strip_prefix("agent:").unwrap_or(id);
        let found = self.clients().into_iter().find(|(client, _)| client.document.client_id == id);
        // Who has no key is known too: the agent of this machine, and those whom an issuer vouches for.
        let keyless = id == self.options.principal.name() || id.starts_with(OAUTH_PREFIX);
        match found {
            Some(found) => Ok(found),
            None if keyless && Principal::agent(id).is_ok() => {
                let document = Client {
                    client_id: id.to_owned(),
                    display_name: id.to_owned(),
                    kind: "agent".into(),
                    team_id: None,
                    profile_id: None,
                    roles: Vec::new(),
                    autonomy: Autonomy::Full,
                    revoked: false,
                    grant_epoch: 0,
                    created_at: self.clock.now(),
                };
                Ok((Versioned { document, version: 0 }, None))
            }
            None => {
                let shown = portcullis_core::name::printable(id);
                Err(ControlError::new(ErrorCode::NotFound, format!("client {shown} does not exist")))
            }
        }
    }

    /// Makes a client with a key of its own.
    pub async fn create_client(
        &self,
        operator: &OperatorProof,
        client: Client,
        grants: Vec<String>,
    ) -> Result<(Secret<String>, Versioned<Client>), ControlError> {
        let principal = principal_of(&client.client_id)
            .map_err(|error| ControlError::field("client_id", error.to_string()))?;
        understood(&grants)?;
        self.is_profile(client.profile_id.as_deref())?;
        let (secret, key) = AgentKey::create(&principal, grants, client.created_at, None);
        let stored = key_event(operator, &key);
        let version = self
            .set(operator, &client, Some(0), vec![stored], |control| {
                match control.keys.list().iter().any(|key| key.agent == client.client_id) {
                    true => Err(ControlError::new(ErrorCode::Conflict, "there is a client of this name")),
                    false => Ok(()),
                }
            })
            .await?;
        self.keys.put(key);
        Ok((secret, Versioned { document: client, version }))
    }

    /// Changes what is known of a client, which `change` does.
    pub async fn change_client(
        &self,
        operator: &OperatorProof,
        id: &str,
        expected: Option<u64>,
        change: impl FnOnce(&mut Client) + Send,
    ) -> Result<Versioned<Client>, ControlError> {
        let (mut client, _) = self.client(id)?;
        let seen = client.version;
        change(&mut client.document);
        self.is_profile(client.document.profile_id.as_deref())?;
        self.are_roles(&client.document.roles)?;
        if let Some(expected) = expected.filter(|expected| *expected != seen) {
            let message = format!("version {seen} is the current one, not {expected}");
            return Err(ControlError::new(ErrorCode::Conflict, message));
        }
        let version = self.set(operator, &client.document, Some(seen), Vec::new(), |_| Ok(())).await?;
        Ok(Versioned { document: client.document, version })
    }

    /// Gives a client another key in place of the one it has.
    pub async fn rotate_client_key(
        &self,
        operator: &OperatorProof,
        id: &str,
    ) -> Result<Secret<String>, ControlError> {
        let (client, key) = self.client(id)?;
        let key = key.ok_or_else(|| {
            ControlError::new(ErrorCode::Conflict, "this client has no key; a new client is given one")
        })?;
        let (secret, _) =
            self.create_key(operator, &client.document.client_id, key.grants, key.groups, None).await?;
        Ok(secret)
    }

    /// Changes what a client may do at most.
    pub async fn set_client_grants(
        &self,
        operator: &OperatorProof,
        id: &str,
        grants: Vec<String>,
        expected: Option<u64>,
    ) -> Result<Versioned<Client>, ControlError> {
        understood(&grants)?;
        let (mut client, key) = self.client(id)?;
        let Some(key) = key else {
            let message = "this client has no key, so what it may do is not for a key to say";
            return Err(ControlError::new(ErrorCode::Conflict, message));
        };
        let seen = client.version;
        if let Some(expected) = expected.filter(|expected| *expected != seen) {
            let message = format!("version {seen} is the current one, not {expected}");
            return Err(ControlError::new(ErrorCode::Conflict, message));
        }
        client.document.grant_epoch += 1;
        let key = AgentKey { grants, ..key };
        let stored = key_event(operator, &key);
        let version = self.set(operator, &client.document, Some(seen), vec![stored], |_| Ok(())).await?;
        self.keys.put(key);
        Ok(Versioned { document: client.document, version })
    }

    /// Takes a client's access back: its key, its permits and its sessions.
    pub async fn revoke_client(
        &self,
        operator: &OperatorProof,
        id: &str,
        reason: &str,
    ) -> Result<Revoked, ControlError> {
        let (mut client, key) = self.client(id)?;
        let (name, seen) = (client.document.client_id.clone(), client.version);
        if client.document.revoked {
            let shown = portcullis_core::name::printable(&name);
            let message = format!("client {shown} has no access that could be taken back");
            return Err(ControlError::new(ErrorCode::NotFound, message));
        }
        client.document.revoked = true;
        let mut events = Vec::new();
        if key.is_some() {
            let data = json!({"kind": KEY, "agent": name, "reason": one_line(reason)});
            events.push(Event::new(EventName::CredentialRemoved, &operator.actor()).data(data));
        }
        self.set(operator, &client.document, Some(seen), events, |_| Ok(())).await?;
        self.keys.remove(&name);
        let permits = self.revoke_permits(operator, &Meant::Agent(name.clone()), false, reason).await?.len();
        let own = self.sessions.list().into_iter().filter(|session| session.principal().name() == name);
        let ids: Vec<_> = own.map(|session| session.id()).collect();
        let mut sessions = 0;
        for id in ids {
            sessions += usize::from(self.end_session(operator, id, reason).await.is_ok());
        }
        Ok(Revoked { sessions, permits })
    }

    /// A new key gives access again that was taken back.
    pub(super) async fn let_in_again(&self, operator: &OperatorProof, id: &str) -> Result<(), ControlError> {
        match self.document::<Client>(id) {
            Some(client) if client.document.revoked => {
                self.change_client(operator, id, None, |client| client.revoked = false).await.map(drop)
            }
            _ => Ok(()),
        }
    }

    fn is_profile(&self, id: Option<&str>) -> Result<(), ControlError> {
        match id {
            Some(id) if self.document::<Profile>(id).is_none() => {
                let shown = portcullis_core::name::printable(id);
                Err(ControlError::field("profile_id", format!("there is no profile {shown}")))
            }
            _ => Ok(()),
        }
    }

    /// Removes a profile that no client has.
    pub async fn remove_profile(&self, operator: &OperatorProof, id: &str) -> Result<(), ControlError> {
        self.unset::<Profile>(operator, id, |control| {
            let clients: Vec<Versioned<Client>> = control.documents();
            let user = clients.iter().find(|client| client.document.profile_id.as_deref() == Some(id));
            match user {
                Some(user) => {
                    let message = format!("client {} has this profile", user.document.client_id);
                    Err(ControlError::new(ErrorCode::Conflict, message))
                }
                None => Ok(()),
            }
        })
        .await
    }

    /// Sets a quota. What was used before counts, as far as the log tells.
    pub async fn set_quota(
        &self,
        operator: &OperatorProof,
        quota: Quota,
        expected: Option<u64>,
    ) -> Result<Versioned<Quota>, ControlError> {
        let version = self.set(operator, &quota, expected, Vec::new(), |_| Ok(())).await?;
        self.meter.forget(&quota.subject, quota.metric);
        self.recall_usage(vec![quota.clone()]).await;
        Ok(Versioned { document: quota, version })
    }

    /// Takes a quota away.
    pub async fn clear_quota(
        &self,
        operator: &OperatorProof,
        subject: &Subject,
        metric: Metric,
    ) -> Result<Versioned<Quota>, ControlError> {
        let id = Quota::key(subject, metric);
        let Some(quota) = self.document::<Quota>(&id) else {
            let message = format!("{subject} has no quota of {}", metric.as_str());
            return Err(ControlError::new(ErrorCode::NotFound, message));
        };
        self.unset::<Quota>(operator, &id, |_| Ok(())).await?;
        self.meter.forget(subject, metric);
        Ok(quota)
    }

    /// What is used of the quotas of a subject.
    pub fn quota_usage(&self, subject: &Subject) -> Vec<Used> {
        self.meter.usage(&self.orders.load(), subject, self.clock.now())
    }

    /// What a thousand tokens cost, in millionths.
    pub fn token_price(&self) -> u64 {
        self.meter.price()
    }

    /// Reads what was used from the log, where nothing else waits for the thread.
    pub(super) async fn recall_usage(&self, quotas: Vec<Quota>) {
        if quotas.is_empty() {
            return;
        }
        let (meter, orders, now) = (self.meter.clone(), self.orders.load(), self.clock.now());
        let log = self.log.dir().to_owned();
        let recalled = tokio::task::spawn_blocking(move || meter.recall(&log, &orders, &quotas, now)).await;
        if !matches!(recalled, Ok(Ok(()))) {
            tracing::error!("what was used of quotas before this start cannot be read; they begin anew");
        }
    }

    /// Orders something about a tool, which `change` does; `<server>/<tool>` must be there.
    pub async fn order_tool(
        &self,
        operator: &OperatorProof,
        tool: &str,
        expected: Option<u64>,
        change: impl FnOnce(&mut ToolOrder) + Send,
    ) -> Result<Versioned<ToolOrder>, ControlError> {
        let short = self.known_tool(tool)?;
        let current = self.document::<ToolOrder>(&short);
        let seen = current.as_ref().map_or(0, |order| order.version);
        let mut order = current.map_or_else(
            || ToolOrder { tool: short.clone(), ..ToolOrder::default() },
            |order| order.document,
        );
        change(&mut order);
        understood(&order.extra_permissions)?;
        if let Some(expected) = expected.filter(|expected| *expected != seen) {
            let message = format!("version {seen} is the current one, not {expected}");
            return Err(ControlError::new(ErrorCode::Conflict, message));
        }
        let version = self.set(operator, &order, Some(seen), Vec::new(), |_| Ok(())).await?;
        Ok(Versioned { document: order, version })
    }

    /// A tool's `<server>/<tool>`, by any of its names.
    pub fn known_tool(&self, tool: &str) -> Result<String, ControlError> {
        let world = self.world();
        let registry = world.registry();
        let all = [registry.tools(), registry.resources(), registry.templates(), registry.prompts()];
        let is = |id: &portcullis_core::ToolId| id.as_str() == tool || id.short() == tool;
        let mut found = all.iter().flat_map(|list| list.iter());
        let found = found.find(|entry| is(entry.tool.id()) || entry.wire_name == tool);
        found.map(|entry| entry.tool.id().short().to_owned()).ok_or_else(|| {
            let shown = portcullis_core::name::printable(tool);
            ControlError::new(ErrorCode::NotFound, format!("there is no tool {shown}"))
        })
    }
}

fn of_key(key: &AgentKey) -> Client {
    Client {
        client_id: key.agent.clone(),
        display_name: key.agent.clone(),
        kind: "agent".into(),
        team_id: None,
        profile_id: None,
        roles: Vec::new(),
        autonomy: Autonomy::Full,
        revoked: false,
        grant_epoch: 0,
        created_at: key.created_at,
    }
}

fn key_event(operator: &OperatorProof, key: &AgentKey) -> Event {
    Event::new(EventName::CredentialStored, &operator.actor()).data(json!({"kind": KEY, "key": key}))
}

/// Grants that can be understood.
fn understood(grants: &[String]) -> Result<(), ControlError> {
    let limited = grants.iter().map(String::as_str).filter(|grant| *grant != DECLARED);
    Capabilities::parse(CapMode::Cleared, limited)
        .map(drop)
        .map_err(|error| ControlError::field("grants", error.to_string()))
}
