//! Agents, what they are shown, what they may use, and what is ordered about tools.

use std::sync::Arc;
use std::time::Duration;

use portcullis_core::{Clock as _, SystemClock};
use portcullis_gateway::Control;
use portcullis_gateway::access::agent_keys::AgentKey;
use portcullis_gateway::control::Versioned;
use portcullis_gateway::orders::{Autonomy, Client, Metric, Profile, Quota, Subject, ToolOrder};
use schemars::JsonSchema;
use serde::Serialize;

use crate::error::AdminError;
use crate::grant::Op;

/// An agent.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ClientRecord {
    /// Whom records and policies know it as.
    pub client_id: String,
    /// What people call it.
    pub display_name: String,
    /// `agent`, `human` or `service`.
    pub kind: String,
    /// `active`, `expired` or `revoked`.
    pub state: String,
    /// The team it is counted with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team_id: Option<String>,
    /// What it is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile_id: Option<String>,
    /// What it sees of admin tools, of its own objects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
    /// How far it goes by itself.
    pub autonomy: String,
    /// What it may do at most.
    pub grants: Vec<String>,
    /// The groups that policy knows it by.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// How often that was changed.
    pub grant_epoch: u64,
    /// Since when.
    pub created_at: String,
    /// Since when it has its key, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_since: Option<String>,
    /// Until when its key is good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// How often something of it was set.
    pub version: u64,
}

/// An agent with what it may use, and when it was last there.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ClientDetail {
    /// The row of the list.
    #[serde(flatten)]
    pub client: ClientRecord,
    /// Its own quotas.
    pub quotas: Vec<QuotaRecord>,
    /// Its last sign of life.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<String>,
}

/// A secret that waits for an operator.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct CaptureRecord {
    /// Under this id: `portcullis admin capture ID`.
    pub capture_id: String,
    /// Where programs fetch or give it, if operators have a listener.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

impl CaptureRecord {
    pub(crate) fn of(control: &Control, capture_id: String) -> Self {
        Self { url: control.capture_url(&capture_id), capture_id }
    }
}

/// A new client, whose key waits to be fetched.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct CreatedClient {
    /// It.
    #[serde(flatten)]
    pub client: ClientRecord,
    /// Its key.
    #[serde(flatten)]
    pub capture: CaptureRecord,
}

/// Another key for a client.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct RotatedKey {
    /// Whose.
    pub client_id: String,
    /// The new one.
    #[serde(flatten)]
    pub capture: CaptureRecord,
    /// Until when the old one is good: it ends at once.
    pub old_valid_until: String,
}

/// A key that an agent was given.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct IssuedKey {
    /// Whose.
    pub client_id: String,
    /// What it may do at most.
    pub grants: Vec<String>,
    /// Until when the key is good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// The key.
    #[serde(flatten)]
    pub capture: CaptureRecord,
}

/// What taking access back came to.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct RevokedClient {
    /// Whose.
    pub client_id: String,
    /// Sessions that ended.
    pub sessions_ended: usize,
    /// Permits that died.
    pub permits_revoked: usize,
}

/// What clients of a kind are shown.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ProfileRecord {
    /// Its name.
    pub profile_id: String,
    /// How much of the catalogue at once.
    pub mode: String,
    /// Whose tools; everybody's if none are named.
    pub namespaces: Vec<String>,
    /// Bytes of a result that are not too many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_budget: Option<u64>,
    /// How often it was set.
    pub version: u64,
}

/// How much of something may be used in a while.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct QuotaRecord {
    /// By whom, or of what.
    pub subject: String,
    /// What is counted.
    pub metric: String,
    /// How much.
    pub limit: u64,
    /// In which while.
    pub window: String,
    /// What happens beyond.
    pub action: String,
    /// How often it was set.
    pub version: u64,
}

/// What is used of a quota.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct UsageRecord {
    /// By whom, or of what.
    pub subject: String,
    /// What is counted.
    pub metric: String,
    /// How much is used.
    pub used: u64,
    /// Of how much.
    pub limit: u64,
    /// In which while.
    pub window: String,
}

/// What is ordered about a tool.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ToolOrderRecord {
    /// Which, `<server>/<tool>`.
    pub tool: String,
    /// `active` or `quarantined`.
    pub state: String,
    /// Grants that its callers need besides.
    pub extra_permissions: Vec<String>,
    /// How its texts are written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub escape: Option<String>,
    /// What a text of its that is JSON is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_json: Option<String>,
    /// Whether agents are told to use another.
    pub deprecated: bool,
    /// How often something was ordered about it.
    pub version: u64,
}

/// What changes of a client; what is not said stays.
#[derive(Debug, Clone, Default)]
pub struct ClientChange {
    /// What people call it.
    pub display_name: Option<String>,
    /// The team it is counted with.
    pub team_id: Option<String>,
    /// What it is shown.
    pub profile_id: Option<String>,
    /// What it sees of admin tools.
    pub roles: Option<Vec<String>>,
}

/// Agents.
#[derive(Debug, Clone)]
pub struct ClientService {
    control: Arc<Control>,
}

impl ClientService {
    pub(crate) fn new(control: Arc<Control>) -> Self {
        Self { control }
    }

    /// Every agent that has a key or that something is known of, by name.
    pub fn list(&self) -> Vec<ClientRecord> {
        self.control.clients().into_iter().map(|(client, key)| record(client, key)).collect()
    }

    /// One of them; `last_seen` is for who reads the log to say.
    pub fn get(&self, id: &str) -> Result<ClientDetail, AdminError> {
        let (client, key) = self.control.client(id)?;
        let subject = Subject::Client(client.document.client_id.clone());
        let quotas = self.quotas().into_iter().filter(|quota| quota.subject == subject.to_string());
        Ok(ClientDetail { quotas: quotas.collect(), client: record(client, key), last_seen: None })
    }

    /// Makes one. Its key waits to be fetched.
    pub async fn create(
        &self,
        op: &Op,
        (client_id, kind): (&str, &str),
        change: ClientChange,
        grants: Vec<String>,
    ) -> Result<CreatedClient, AdminError> {
        let client = Client {
            client_id: client_id.to_owned(),
            display_name: change.display_name.unwrap_or_else(|| client_id.to_owned()),
            kind: kind.to_owned(),
            team_id: change.team_id,
            profile_id: change.profile_id,
            roles: change.roles.unwrap_or_default(),
            autonomy: Autonomy::Full,
            revoked: false,
            grant_epoch: 0,
            created_at: SystemClock.now(),
        };
        let (key, client) = self.control.create_client(op.operator(), client, grants).await?;
        let capture = self.handed_over(op, key);
        let (_, key) = self.control.client(client_id)?;
        Ok(CreatedClient { client: record(client, key), capture })
    }

    fn handed_over(&self, op: &Op, key: portcullis_core::Secret<String>) -> CaptureRecord {
        CaptureRecord::of(&self.control, self.control.hand_over(op.operator(), key))
    }

    /// Changes what is known of one.
    pub async fn update(
        &self,
        op: &Op,
        id: &str,
        change: ClientChange,
        expected: Option<u64>,
    ) -> Result<ClientRecord, AdminError> {
        let changed = self.control.change_client(op.operator(), id, expected, |client| {
            if let Some(name) = change.display_name {
                client.display_name = name;
            }
            client.team_id = change.team_id.or(client.team_id.take());
            client.profile_id = change.profile_id.or(client.profile_id.take());
            if let Some(roles) = change.roles {
                client.roles = roles;
            }
        });
        let changed = changed.await?;
        let (_, key) = self.control.client(id)?;
        Ok(record(changed, key))
    }

    /// Gives one another key.
    pub async fn rotate_key(&self, op: &Op, id: &str) -> Result<RotatedKey, AdminError> {
        let key = self.control.rotate_client_key(op.operator(), id).await?;
        let old_valid_until = SystemClock.now().to_string();
        Ok(RotatedKey { client_id: id.to_owned(), capture: self.handed_over(op, key), old_valid_until })
    }

    /// Gives one a key with these grants, in these groups, in place of the one it had. It need not be known before.
    pub async fn issue_key(
        &self,
        op: &Op,
        id: &str,
        (grants, groups): (Vec<String>, Vec<String>),
        lifetime: Option<Duration>,
    ) -> Result<IssuedKey, AdminError> {
        let (secret, key) = self.control.create_key(op.operator(), id, grants, groups, lifetime).await?;
        Ok(IssuedKey {
            client_id: key.agent,
            grants: key.grants,
            expires_at: key.expires_at.map(|end| end.to_string()),
            capture: self.handed_over(op, secret),
        })
    }

    /// Takes one's access back.
    pub async fn revoke(&self, op: &Op, id: &str) -> Result<RevokedClient, AdminError> {
        let revoked = self.control.revoke_client(op.operator(), id, op.reason()).await?;
        Ok(RevokedClient {
            client_id: id.to_owned(),
            sessions_ended: revoked.sessions,
            permits_revoked: revoked.permits,
        })
    }

    /// Changes what one may do at most.
    pub async fn set_grants(
        &self,
        op: &Op,
        id: &str,
        grants: Vec<String>,
        expected: Option<u64>,
    ) -> Result<ClientRecord, AdminError> {
        let changed = self.control.set_client_grants(op.operator(), id, grants, expected).await?;
        let (_, key) = self.control.client(id)?;
        Ok(record(changed, key))
    }

    /// Changes how far one goes by itself.
    pub async fn set_autonomy(&self, op: &Op, id: &str, level: Autonomy) -> Result<ClientRecord, AdminError> {
        let changed =
            self.control.change_client(op.operator(), id, None, |client| client.autonomy = level).await?;
        let (_, key) = self.control.client(id)?;
        Ok(record(changed, key))
    }

    /// Every profile, by name.
    pub fn profiles(&self) -> Vec<ProfileRecord> {
        self.control.documents::<Profile>().into_iter().map(profile_record).collect()
    }

    /// Sets a profile.
    pub async fn put_profile(
        &self,
        op: &Op,
        profile: Profile,
        expected: Option<u64>,
    ) -> Result<ProfileRecord, AdminError> {
        let version = self.control.set(op.operator(), &profile, expected, Vec::new(), |_| Ok(())).await?;
        Ok(profile_record(Versioned { document: profile, version }))
    }

    /// Removes a profile that nobody has.
    pub async fn delete_profile(&self, op: &Op, id: &str) -> Result<(), AdminError> {
        Ok(self.control.remove_profile(op.operator(), id).await?)
    }

    /// Every quota, by subject.
    pub fn quotas(&self) -> Vec<QuotaRecord> {
        self.control.documents::<Quota>().into_iter().map(quota_record).collect()
    }

    /// Sets a quota.
    pub async fn set_quota(
        &self,
        op: &Op,
        quota: Quota,
        expected: Option<u64>,
    ) -> Result<QuotaRecord, AdminError> {
        Ok(quota_record(self.control.set_quota(op.operator(), quota, expected).await?))
    }

    /// Takes a quota away.
    pub async fn clear_quota(
        &self,
        op: &Op,
        subject: &Subject,
        metric: Metric,
    ) -> Result<QuotaRecord, AdminError> {
        Ok(quota_record(self.control.clear_quota(op.operator(), subject, metric).await?))
    }

    /// What is used of the quotas of a subject.
    pub fn usage(&self, subject: &Subject) -> Vec<UsageRecord> {
        let rows = self.control.quota_usage(subject).into_iter();
        rows.map(|used| UsageRecord {
            subject: used.quota.subject.to_string(),
            metric: used.quota.metric.as_str().to_owned(),
            used: used.used,
            limit: used.quota.limit,
            window: used.quota.window.as_str().to_owned(),
        })
        .collect()
    }

    /// What is ordered about a tool.
    pub async fn order_tool(
        &self,
        op: &Op,
        tool: &str,
        expected: Option<u64>,
        change: impl FnOnce(&mut ToolOrder) + Send,
    ) -> Result<ToolOrderRecord, AdminError> {
        let Versioned { document: order, version } =
            self.control.order_tool(op.operator(), tool, expected, change).await?;
        Ok(ToolOrderRecord {
            tool: order.tool,
            state: if order.quarantined { "quarantined" } else { "active" }.to_owned(),
            extra_permissions: order.extra_permissions,
            escape: order.escape,
            text_json: order.text_json,
            deprecated: order.deprecated,
            version,
        })
    }
}

fn record(client: Versioned<Client>, key: Option<AgentKey>) -> ClientRecord {
    let Versioned { document: client, version } = client;
    let expired = key.as_ref().and_then(|key| key.expires_at).is_some_and(|end| SystemClock.now() >= end);
    let state = match (client.revoked, expired) {
        (true, _) => "revoked",
        (false, true) => "expired",
        (false, false) => "active",
    };
    ClientRecord {
        client_id: client.client_id,
        display_name: client.display_name,
        kind: client.kind,
        state: state.to_owned(),
        team_id: client.team_id,
        profile_id: client.profile_id,
        roles: client.roles,
        autonomy: client.autonomy.as_str().to_owned(),
        grants: key.as_ref().map(|key| key.grants.clone()).unwrap_or_default(),
        groups: key.as_ref().map(|key| key.groups.clone()).unwrap_or_default(),
        grant_epoch: client.grant_epoch,
        created_at: client.created_at.to_string(),
        key_since: key.as_ref().map(|key| key.created_at.to_string()),
        expires_at: key.and_then(|key| key.expires_at).map(|end| end.to_string()),
        version,
    }
}

fn profile_record(profile: Versioned<Profile>) -> ProfileRecord {
    let Versioned { document: profile, version } = profile;
    ProfileRecord {
        profile_id: profile.profile_id,
        mode: profile.mode.as_str().to_owned(),
        namespaces: profile.namespaces,
        result_budget: profile.result_budget,
        version,
    }
}

fn quota_record(quota: Versioned<Quota>) -> QuotaRecord {
    let Versioned { document: quota, version } = quota;
    QuotaRecord {
        subject: quota.subject.to_string(),
        metric: quota.metric.as_str().to_owned(),
        limit: quota.limit,
        window: quota.window.as_str().to_owned(),
        action: quota.action.as_str().to_owned(),
        version,
    }
}
