//! Webhooks: what happens, told to programs elsewhere. Each delivery is signed with a credential of the vault, goes over
//! TLS to an address in the public network or to a host that the configuration names, is tried a few times, and is on
//! record.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use portcullis_audit::{Event, EventName, Record};
use portcullis_core::digest::to_hex;
use portcullis_core::error::one_line;
use portcullis_core::{Actor, ErrorCode, EventId};
use portcullis_sandbox::egress::is_global;
use portcullis_upstream::web::post_signed;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use url::Url;

use crate::control::{Control, ControlError, Document, told_to_stop};
use crate::signals::Detector;

/// How often a delivery is tried.
const ATTEMPTS: u32 = 3;
/// How long before the second time; twice as long before the third.
const PAUSE: Duration = Duration::from_millis(300);
/// Records that wait to be told; more are counted as failed by nobody, because nobody could read them.
const WAITING: usize = 1024;

/// Who is told what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Webhook {
    /// Its name.
    pub webhook_id: String,
    /// Where it is told.
    pub url: String,
    /// Names of events: `server.halted`, `approval.*`, `signal.drift`, `*`.
    pub events: Vec<String>,
    /// The credential that deliveries are signed with.
    pub secret_handle: String,
    /// Whether it is told anything.
    pub enabled: bool,
}

impl Document for Webhook {
    const KIND: &'static str = "webhook";

    fn id(&self) -> String {
        self.webhook_id.clone()
    }
}

impl Webhook {
    fn wants(&self, event: &str) -> bool {
        self.enabled && self.events.iter().any(|pattern| matches(pattern, event))
    }
}

fn matches(pattern: &str, event: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => event.starts_with(start),
        None => pattern == event,
    }
}

/// What came of telling something.
#[derive(Debug, Clone, Serialize)]
pub struct Delivery {
    /// Its id.
    pub delivery_id: String,
    /// To whom.
    pub webhook_id: String,
    /// What.
    pub event: String,
    /// `delivered` or `failed`.
    pub status: &'static str,
    /// How often it was tried.
    pub attempts: u32,
}

/// Something to tell.
#[derive(Debug, Clone)]
struct News {
    event: String,
    body: Value,
}

impl Control {
    /// Refuses a webhook that could never be told anything.
    pub async fn check_webhook(&self, webhook: &Webhook) -> Result<(), ControlError> {
        let url: Url = webhook.url.parse().map_err(|_| ControlError::field("url", "is not an address"))?;
        if !self.secrets().iter().any(|secret| secret.name == webhook.secret_handle) {
            let message =
                "there is no such credential; `portcullis secret set NAME --class CLASS` stores one";
            return Err(ControlError::field("secret_handle", message));
        }
        self.reachable(&url).await.map(drop).map_err(|reason| ControlError::field("url", reason))
    }

    /// Where an address leads, if it may be told anything.
    async fn reachable(&self, url: &Url) -> Result<Vec<SocketAddr>, String> {
        let host = url.host_str().ok_or("has no host")?.trim_matches(['[', ']']).to_owned();
        let named = self.admin_options().webhook_hosts.contains(&host);
        if !url.username().is_empty() || url.password().is_some() {
            return Err("must not hold a credential".into());
        }
        let loopback = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        match url.scheme() {
            "https" => {}
            "http" if named && loopback => {}
            _ => return Err("must be https".into()),
        }
        let port = url.port_or_known_default().ok_or("has no port")?;
        let known = self.options.hosts.get(&host).cloned();
        let addresses: Vec<IpAddr> = match (host.parse(), known) {
            (Ok(address), _) => vec![address],
            (Err(_), Some(known)) => known,
            (Err(_), None) => {
                let found = tokio::net::lookup_host((host.as_str(), port)).await;
                found.map_err(|_| "names a host that nobody knows")?.map(|address| address.ip()).collect()
            }
        };
        if addresses.is_empty() {
            return Err("names a host that nobody knows".into());
        }
        // SBX-46: this machine and its network are told nothing, unless an operator opened that.
        if !named && !addresses.iter().all(|address| is_global(*address)) {
            return Err("leads into a private network; admin.webhook_hosts names hosts that may".into());
        }
        Ok(addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect())
    }

    /// Tells one webhook something now, and says what came of it.
    pub async fn test_webhook(&self, id: &str) -> Result<Delivery, ControlError> {
        let webhook = self.document::<Webhook>(id).ok_or_else(|| {
            let shown = portcullis_core::name::printable(id);
            ControlError::new(ErrorCode::NotFound, format!("there is no webhook {shown}"))
        })?;
        let now = self.clock.now();
        let news = News { event: "webhook.test".into(), body: json!({"at": now, "event": "webhook.test"}) };
        Ok(self.deliver(&webhook.document, &news).await)
    }

    /// Tells webhooks what happens until told to stop.
    pub(crate) async fn follow_webhooks(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut news = self.news();
        let mut under_way = tokio::task::JoinSet::new();
        loop {
            tokio::select! {
                () = told_to_stop(&mut stop) => return,
                Some(_) = under_way.join_next() => {}
                next = news.recv() => {
                    let Some(news) = next else { return };
                    let webhooks = self.documents::<Webhook>().into_iter().map(|webhook| webhook.document);
                    for webhook in webhooks.filter(|webhook| webhook.wants(&news.event)) {
                        let (control, news) = (self.clone(), news.clone());
                        under_way.spawn(async move { control.deliver(&webhook, &news).await });
                    }
                }
            }
        }
    }

    /// What there is to tell, from a thread that reads the log as it grows.
    fn news(self: &Arc<Self>) -> mpsc::Receiver<News> {
        let (sender, receiver) = mpsc::channel(WAITING);
        // Where nobody is to be told, what happened is not even handed over.
        let any = self.kept.has_webhooks();
        let wanted =
            move |name: EventName| any.load(Ordering::Acquire) && !name.as_str().starts_with("webhook.");
        let records = self.log.subscribe(wanted);
        let control = Arc::downgrade(self);
        let follow = move || {
            let mut detector = Detector::default();
            for durable in records {
                if control.strong_count() == 0 {
                    return;
                }
                let Ok(record) = durable.parse() else { continue };
                let mut told = vec![of_record(&record)];
                told.extend(detector.take(&record).map(|signal| News {
                    event: format!("signal.{}", signal.kind.as_str()),
                    body: json!({
                        "at": signal.opened_at, "event": format!("signal.{}", signal.kind.as_str()),
                        "signal_id": signal.signal_id, "subject": signal.subject, "severity": signal.severity,
                        "evidence": signal.evidence,
                    }),
                }));
                for news in told {
                    if sender.blocking_send(news).is_err() {
                        return;
                    }
                }
            }
        };
        let _ = std::thread::Builder::new().name("webhooks".into()).spawn(follow);
        receiver
    }

    async fn deliver(&self, webhook: &Webhook, news: &News) -> Delivery {
        let delivery_id = format!("dlv_{}", EventId::new(self.clock.now()));
        let mut body = news.body.clone();
        body["delivery_id"] = json!(delivery_id);
        body["webhook_id"] = json!(webhook.webhook_id);
        let body = body.to_string();
        let mut attempts = 0;
        let mut reason = String::new();
        let delivered = loop {
            attempts += 1;
            match self.attempt(webhook, &body).await {
                Ok(()) => break true,
                Err(failed) => reason = failed,
            }
            if attempts >= ATTEMPTS {
                break false;
            }
            tokio::time::sleep(PAUSE * attempts).await;
        };
        let status = if delivered { "delivered" } else { "failed" };
        let mut data = json!({
            "attempts": attempts, "delivery_id": delivery_id, "event": news.event, "webhook": webhook.webhook_id,
        });
        if !delivered {
            data["reason"] = json!(one_line(&reason));
        }
        let name = if delivered { EventName::WebhookDelivered } else { EventName::WebhookFailed };
        let _ = self.log.append(vec![Event::new(name, &Actor::system()).data(data)]);
        let (webhook_id, event) = (webhook.webhook_id.clone(), news.event.clone());
        Delivery { delivery_id, webhook_id, event, status, attempts }
    }

    async fn attempt(&self, webhook: &Webhook, body: &str) -> Result<(), String> {
        let url: Url = webhook.url.parse().map_err(|_| "is not an address")?;
        let addresses = self.reachable(&url).await?;
        // The moment is signed too, so that what was told once cannot be told again later.
        let moment = self.clock.now().as_millis() / 1000;
        let signed = self.broker.vault().sign(&webhook.secret_handle, format!("{moment}.{body}").as_bytes());
        let signature = signed.ok_or("the credential that signs it is gone")?;
        let header = format!("t={moment},v1={}", to_hex(&signature));
        let authorities = self.options.authorities.as_deref();
        let status = post_signed(&url, &addresses, authorities, body.to_owned(), &header)
            .await
            .map_err(|error| error.to_string())?;
        if (200..300).contains(&status) { Ok(()) } else { Err(format!("it answered with status {status}")) }
    }
}

/// What is told of a record: what happened to what, and where to read more. Nothing of what was said or sent.
fn of_record(record: &Record) -> News {
    let event = record.event.to_string();
    let body = json!({
        "actor": record.actor.to_string(), "at": record.time, "entry_id": record.id, "event": event, "seq": record.seq,
        "tool": record.tool_id, "server": record.data["server"],
    });
    News { event, body }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_chosen_by_name_and_beginning() {
        assert!(matches("server.halted", "server.halted") && !matches("server.halted", "server.removed"));
        assert!(matches("approval.*", "approval.requested") && matches("*", "x"));
        assert!(!matches("signal.*", "server.halted"));
    }
}
