//! What somebody should look at, and who is told: signals, notifications, webhooks and what came of telling them.

use std::collections::BTreeSet;
use std::sync::Arc;

use portcullis_audit::EventName;
use portcullis_core::{Clock as _, SystemClock, Timestamp};
use portcullis_gateway::Control;
use portcullis_gateway::control::{Document, Versioned};
use portcullis_gateway::signals::{Acknowledgement, Detector, RULES, Signal, SignalState};
use portcullis_gateway::webhooks::Webhook;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::history::{HistoryService, text};
use crate::error::AdminError;
use crate::grant::Op;

/// How far back notifications go.
const DAYS: u64 = 30;

/// Something that somebody should look at.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct SignalRecord {
    /// Its id.
    pub signal_id: String,
    /// What it is about.
    pub kind: String,
    /// `info`, `warning` or `critical`.
    pub severity: String,
    /// `open`, `acknowledged` or `resolved`.
    pub state: String,
    /// Whom or what it is about.
    pub subject: String,
    /// Since when.
    pub opened_at: String,
    /// The records of the log that raised it.
    pub evidence: Vec<String>,
    /// What an operator said to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// When signals are raised.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct SignalRule {
    /// Of which kind.
    pub kind: String,
    /// How often.
    pub threshold: usize,
    /// Within how many minutes; 0 where time does not matter.
    pub minutes: u64,
    /// How bad it is then.
    pub severity: String,
    /// What is counted.
    pub counts: String,
    /// How many are open.
    pub open: usize,
}

/// What is open now.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct SignalSnapshot {
    /// How many signals are open.
    pub open: usize,
    /// By kind, with the rules.
    pub kinds: Vec<SignalRule>,
}

/// Something that happened and that operators may want to know.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct NotificationRecord {
    /// Its id.
    pub notification_id: String,
    /// When.
    pub at: String,
    /// What.
    pub event: String,
    /// The record of the log, or the signal.
    #[serde(rename = "ref")]
    pub reference: String,
    /// Whether nobody has read it.
    pub unread: bool,
}

/// That a notification was read.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct ReadNotification {
    notification_id: String,
    by: String,
}

impl Document for ReadNotification {
    const KIND: &'static str = "read_notification";

    fn id(&self) -> String {
        self.notification_id.clone()
    }
}

/// Who is told what.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct WebhookRecord {
    /// Its name.
    pub webhook_id: String,
    /// Where it is told.
    pub url: String,
    /// What.
    pub events: Vec<String>,
    /// The credential that signs.
    pub secret_handle: String,
    /// Whether it is told anything.
    pub enabled: bool,
    /// How often it was set.
    pub version: u64,
}

/// What came of telling something.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct DeliveryRecord {
    /// Its id.
    pub delivery_id: String,
    /// To whom.
    pub webhook_id: String,
    /// What.
    pub event: String,
    /// `delivered` or `failed`.
    pub status: String,
    /// How often it was tried.
    pub attempts: u64,
    /// When it was over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Signals, notifications and webhooks.
#[derive(Debug, Clone)]
pub struct NoticeService {
    control: Arc<Control>,
}

impl NoticeService {
    pub(crate) fn new(control: Arc<Control>) -> Self {
        Self { control }
    }

    /// Every signal, newest first.
    pub async fn signals(&self) -> Result<Vec<SignalRecord>, AdminError> {
        let history = HistoryService::new(self.control.clone());
        let detector = history
            .scan(Detector::default(), |detector: &mut Detector, record| {
                detector.take(&record);
            })
            .await?;
        Ok(detector.signals().iter().rev().map(signal).collect())
    }

    /// What is open, and by which rules.
    pub async fn snapshot(&self) -> Result<SignalSnapshot, AdminError> {
        let signals = self.signals().await?;
        let open = |kind: &str| signals.iter().filter(|row| row.state == "open" && row.kind == kind).count();
        let kinds: Vec<SignalRule> = (RULES.iter())
            .map(|rule| SignalRule {
                open: open(rule.kind.as_str()),
                kind: rule.kind.as_str().to_owned(),
                threshold: rule.threshold,
                minutes: rule.minutes,
                severity: rule.severity.as_str().to_owned(),
                counts: rule.counts.to_owned(),
            })
            .collect();
        Ok(SignalSnapshot { open: kinds.iter().map(|kind| kind.open).sum(), kinds })
    }

    /// Says that somebody has looked.
    pub async fn acknowledge(
        &self,
        op: &Op,
        id: &str,
        note: Option<String>,
    ) -> Result<SignalRecord, AdminError> {
        let find = |rows: Vec<SignalRecord>| rows.into_iter().find(|row| row.signal_id == id);
        let absent = || AdminError::not_found("there is no such signal");
        let found = find(self.signals().await?).ok_or_else(absent)?;
        if found.state != SignalState::Open.as_str() {
            return Err(AdminError::conflict(format!("the signal is {}", found.state)));
        }
        let note = note.map(|note| self.control.masked(&note));
        let said = Acknowledgement { signal_id: id.to_owned(), by: op.operator().name().to_owned(), note };
        self.control.set(op.operator(), &said, Some(0), Vec::new(), |_| Ok(())).await?;
        find(self.signals().await?).ok_or_else(absent)
    }

    /// What happened that operators may want to know, newest first.
    pub async fn notifications(&self) -> Result<Vec<NotificationRecord>, AdminError> {
        let read: BTreeSet<String> = self
            .control
            .documents::<ReadNotification>()
            .into_iter()
            .map(|read| read.document.notification_id)
            .collect();
        let now = SystemClock.now().as_millis();
        let since = Timestamp::from_millis(now.saturating_sub(DAYS * 24 * 3_600_000));
        let history = HistoryService::new(self.control.clone());
        let (_, mut rows) = history
            .scan(
                (Detector::default(), Vec::new()),
                move |(detector, rows): &mut (Detector, Vec<NotificationRecord>), record| {
                    let raised = detector
                        .take(&record)
                        .map(|signal| (format!("signal.{}", signal.kind.as_str()), signal.signal_id.clone()));
                    let noted =
                        is_notable(record.event).then(|| (record.event.to_string(), record.id.to_string()));
                    for (event, reference) in raised.into_iter().chain(noted).filter(|_| record.time >= since)
                    {
                        rows.push(NotificationRecord {
                            notification_id: format!("ntf_{}", reference.trim_start_matches("sig_"))
                                + if event.starts_with("signal.") { "s" } else { "" },
                            at: record.time.to_string(),
                            event,
                            reference,
                            unread: true,
                        });
                    }
                },
            )
            .await?;
        rows.reverse();
        rows.iter_mut().for_each(|row| row.unread = !read.contains(&row.notification_id));
        Ok(rows)
    }

    /// Says that one was read.
    pub async fn read(&self, op: &Op, id: &str) -> Result<NotificationRecord, AdminError> {
        let found = self.notifications().await?.into_iter().find(|row| row.notification_id == id);
        let found = found.ok_or_else(|| AdminError::not_found("there is no such notification"))?;
        if found.unread {
            let read =
                ReadNotification { notification_id: id.to_owned(), by: op.operator().name().to_owned() };
            self.control.set(op.operator(), &read, None, Vec::new(), |_| Ok(())).await?;
        }
        Ok(NotificationRecord { unread: false, ..found })
    }

    /// Every webhook, by name.
    pub fn webhooks(&self) -> Vec<WebhookRecord> {
        self.control.documents::<Webhook>().into_iter().map(webhook).collect()
    }

    /// Sets a webhook.
    pub async fn put_webhook(
        &self,
        op: &Op,
        set: Webhook,
        expected: Option<u64>,
    ) -> Result<WebhookRecord, AdminError> {
        self.control.check_webhook(&set).await?;
        let version = self.control.set(op.operator(), &set, expected, Vec::new(), |_| Ok(())).await?;
        Ok(webhook(Versioned { document: set, version }))
    }

    /// Removes a webhook.
    pub async fn delete_webhook(&self, op: &Op, id: &str) -> Result<(), AdminError> {
        Ok(self.control.unset::<Webhook>(op.operator(), id, |_| Ok(())).await?)
    }

    /// Tells a webhook something now.
    pub async fn test_webhook(&self, _: &Op, id: &str) -> Result<DeliveryRecord, AdminError> {
        let delivery = self.control.test_webhook(id).await?;
        Ok(DeliveryRecord {
            delivery_id: delivery.delivery_id,
            webhook_id: delivery.webhook_id,
            event: delivery.event,
            status: delivery.status.to_owned(),
            attempts: u64::from(delivery.attempts),
            at: None,
            reason: None,
        })
    }

    /// What came of telling things, newest first.
    pub async fn deliveries(&self) -> Result<Vec<DeliveryRecord>, AdminError> {
        let history = HistoryService::new(self.control.clone());
        let mut rows = history
            .scan(Vec::new(), |rows: &mut Vec<DeliveryRecord>, record| {
                let status = match record.event {
                    EventName::WebhookDelivered => "delivered",
                    EventName::WebhookFailed => "failed",
                    _ => return,
                };
                rows.push(DeliveryRecord {
                    delivery_id: text(&record.data["delivery_id"]),
                    webhook_id: text(&record.data["webhook"]),
                    event: text(&record.data["event"]),
                    status: status.to_owned(),
                    attempts: record.data["attempts"].as_u64().unwrap_or_default(),
                    at: Some(record.time.to_string()),
                    reason: record.data["reason"].as_str().map(str::to_owned),
                });
            })
            .await?;
        rows.reverse();
        Ok(rows)
    }
}

fn is_notable(event: EventName) -> bool {
    use EventName as E;
    matches!(
        event,
        E::ApprovalRequested
            | E::AdminOpDeferred
            | E::ServerHalted
            | E::ServerRegistered
            | E::ServerRemoved
            | E::PolicyActivated
            | E::TrustViolation
            | E::CheckpointOpened
            | E::AuditBlocked
            | E::WebhookFailed
            | E::OperatorAuthFailed
    )
}

fn signal(signal: &Signal) -> SignalRecord {
    SignalRecord {
        signal_id: signal.signal_id.clone(),
        kind: signal.kind.as_str().to_owned(),
        severity: signal.severity.as_str().to_owned(),
        state: signal.state.as_str().to_owned(),
        subject: signal.subject.clone(),
        opened_at: signal.opened_at.to_string(),
        evidence: signal.evidence.clone(),
        note: signal.note.clone(),
    }
}

fn webhook(webhook: Versioned<Webhook>) -> WebhookRecord {
    let Versioned { document, version } = webhook;
    WebhookRecord {
        webhook_id: document.webhook_id,
        url: document.url,
        events: document.events,
        secret_handle: document.secret_handle,
        enabled: document.enabled,
        version,
    }
}
