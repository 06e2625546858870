//! Deliveries of change events to the gateway itself (REC-71 to REC-73).
//!
//! A subscription is known by an unguessable part of its address, made before the server hears of it, since the first
//! delivery may come before the answer that holds the key. What is received is believed if its signature, its time and
//! its subscription are right, and counts once.
//!
//! What is written down is sealed with the vault's key, addresses included: who has an address and its key can say anything.
//! Keys of subscriptions that deliver elsewhere are held here as well, until an operator takes them out (REC-70).

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use portcullis_core::{Secret, Sha256Digest};
use portcullis_governance::broker::Broker;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::sync::Notify;

/// How far a delivery's clock may be off.
const SKEW: i64 = 300;
/// How long an id is remembered.
const REMEMBERED: i64 = 7 * 86_400;
/// How long events are kept, and how many.
const KEPT: i64 = 30 * 86_400;
const MOST_EVENTS: usize = 10_000;
/// How long the key before a rotation still counts.
const OLD_KEY: i64 = 600;
/// How many deliveries a minute an address takes.
const PER_MINUTE: u32 = 100;
/// How long a first delivery is held for its key.
const HELD: Duration = Duration::from_secs(8);
/// No delivery is larger.
pub const MOST_BYTES: usize = 64 << 10;
/// What sealed files of this folder are.
const SEALED: &str = "sealed";

/// What deliveries are signed with. It is written nowhere but into what is sealed.
#[derive(Debug)]
struct SigningKey(Secret<String>);

impl SigningKey {
    fn new(text: &str) -> Self {
        Self(Secret::new(text.to_owned()))
    }
}

impl Serialize for SigningKey {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.expose())
    }
}

impl<'de> Deserialize<'de> for SigningKey {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(Secret::new(text)))
    }
}

/// One subscription that delivers to us, or whose key is held for who it delivers to.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Hook {
    server: String,
    /// The unguessable part of its address.
    token: String,
    /// Whether deliveries go elsewhere.
    #[serde(default)]
    elsewhere: bool,
    #[serde(default)]
    subscription_id: Option<String>,
    #[serde(default)]
    secret: Option<SigningKey>,
    /// The key before, and until when it counts.
    #[serde(default)]
    old_secret: Option<(SigningKey, i64)>,
    /// Ids that were taken, and when.
    #[serde(default)]
    seen: BTreeMap<String, i64>,
    #[serde(default)]
    events: Vec<Received>,
    #[serde(skip)]
    minute: (i64, u32),
}

/// An event that was believed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// Its id.
    pub webhook_id: String,
    /// What happened.
    #[serde(rename = "type")]
    pub kind: String,
    /// To which stream, where it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// In which connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_id: Option<String>,
    /// From where the change can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes_since: Option<String>,
    /// When it was received, in seconds since 1970.
    pub at: i64,
}

/// The parts of a delivery that count.
#[derive(Debug, Clone, Copy)]
pub struct Delivery<'a> {
    /// `webhook-id`.
    pub id: Option<&'a str>,
    /// `webhook-timestamp`.
    pub timestamp: Option<&'a str>,
    /// `webhook-signature`.
    pub signature: Option<&'a str>,
    /// The body, byte for byte.
    pub body: &'a [u8],
}

/// What becomes of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// Believed, and new.
    New(Received),
    /// Believed: the first one, whose challenge is echoed.
    Challenge(String),
    /// Had before.
    Again,
    /// Believed, and of a kind that nobody here knows.
    Unknown,
    /// Not believed, with the status that says so.
    Refused(u16),
}

/// All subscriptions that deliver to us, and keys of others.
#[derive(Debug, Default)]
pub struct Hooks {
    shelf: Option<Shelf>,
    hooks: Mutex<HashMap<String, Hook>>,
    keyed: Notify,
}

/// Where subscriptions are written down: a sealed file each.
#[derive(Debug)]
struct Shelf {
    folder: PathBuf,
    broker: Arc<Broker>,
}

impl Shelf {
    /// The name of a file says nothing about the address of its subscription.
    fn place(&self, token: &str) -> (String, PathBuf) {
        let name = Sha256Digest::of(token.as_bytes()).to_string();
        let path = self.folder.join(format!("{name}.{SEALED}"));
        (name, path)
    }

    fn write(&self, hook: &Hook) -> io::Result<()> {
        let (name, whole) = self.place(&hook.token);
        let text = zeroize::Zeroizing::new(serde_json::to_vec(hook)?);
        let sealed = self.broker.vault().seal(&name, &text)?;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let part = whole.with_extension("part");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
        file.write_all(&sealed)?;
        file.sync_all()?;
        fs::rename(part, whole)
    }

    fn read(&self, path: &Path) -> Option<Hook> {
        let name = path.file_stem()?.to_str()?;
        let opened = self.broker.vault().open_sealed(name, &fs::read(path).ok()?)?;
        serde_json::from_slice(&opened).ok()
    }
}

impl Hooks {
    /// Those that are written down in a folder, which is made when it is needed. What does not open is left alone.
    pub fn open(folder: PathBuf, broker: Arc<Broker>) -> Self {
        let shelf = Shelf { folder, broker };
        let entries = fs::read_dir(&shelf.folder).into_iter().flatten().flatten();
        let sealed =
            entries.map(|entry| entry.path()).filter(|path| path.extension() == Some(SEALED.as_ref()));
        let read = |path: PathBuf| {
            let hook = shelf.read(&path);
            if hook.is_none() {
                tracing::warn!(file = %path.display(), "a subscription cannot be read: its deliveries are refused");
            }
            hook.map(|hook| (hook.token.clone(), hook))
        };
        let hooks = sealed.filter_map(read).collect();
        Self { shelf: Some(shelf), hooks: Mutex::new(hooks), keyed: Notify::new() }
    }

    /// Makes room for a subscription that does not exist yet: the unguessable part of its address.
    pub(crate) fn expect(&self, server: &str) -> String {
        let token = format!("{:032x}", rand::random::<u128>());
        let hook = Hook { server: server.to_owned(), token: token.clone(), ..Hook::default() };
        self.lock().insert(token.clone(), hook);
        token
    }

    /// A subscription that did not come to be.
    pub(crate) fn forget(&self, token: &str) {
        self.lock().remove(token);
        if let Some(shelf) = &self.shelf {
            let _ = fs::remove_file(shelf.place(token).1);
        }
    }

    /// Holds the key of a subscription that delivers elsewhere, until an operator takes it out.
    pub(crate) fn hold(&self, server: &str, subscription: &str, secret: &str) -> io::Result<()> {
        let token = self.expect(server);
        if let Some(hook) = self.lock().get_mut(&token) {
            hook.elsewhere = true;
        }
        self.key(&token, subscription, secret)
    }

    /// Whether the key of a subscription that delivers elsewhere is held.
    pub fn holds(&self, server: &str, subscription: &str) -> bool {
        let mut hooks = self.lock();
        of(&mut hooks, server, subscription).is_some_and(|(_, hook)| hook.elsewhere && hook.secret.is_some())
    }

    /// Hands over the key of a subscription that delivers elsewhere. It is held no longer once it was taken.
    pub fn hand_over(
        &self,
        server: &str,
        subscription: &str,
        take: impl FnOnce(&Secret<String>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut hooks = self.lock();
        let found = of(&mut hooks, server, subscription).filter(|(_, hook)| hook.elsewhere);
        let hook = found.map(|(_, hook)| hook).ok_or_else(|| io::Error::other("no such subscription"))?;
        let key = hook.secret.take().ok_or_else(|| io::Error::other("its key was handed over already"))?;
        if let Err(error) = take(&key.0) {
            hook.secret = Some(key);
            return Err(error);
        }
        self.write(hook)
    }

    /// The key of a new subscription.
    pub(crate) fn key(&self, token: &str, subscription: &str, secret: &str) -> io::Result<()> {
        {
            let mut hooks = self.lock();
            let hook = hooks.get_mut(token).ok_or_else(|| io::Error::other("no such address"))?;
            hook.subscription_id = Some(subscription.to_owned());
            hook.secret = Some(SigningKey::new(secret));
            self.write(hook)?;
        }
        self.keyed.notify_waiters();
        Ok(())
    }

    /// Another key for a subscription; the one before counts a little longer. Whether the subscription is one of these.
    pub(crate) fn rotate(&self, server: &str, subscription: &str, secret: &str, now: i64) -> bool {
        let mut hooks = self.lock();
        let Some((_, hook)) = of(&mut hooks, server, subscription) else { return false };
        hook.old_secret = hook.secret.replace(SigningKey::new(secret)).map(|old| (old, now + OLD_KEY));
        let _ = self.write(hook);
        true
    }

    /// The subscription is gone.
    pub(crate) fn end(&self, server: &str, subscription: &str) {
        let token = of(&mut self.lock(), server, subscription).map(|(token, _)| token.clone());
        if let Some(token) = token {
            self.forget(&token);
        }
    }

    /// What was received for a subscription, for who reads it.
    pub(crate) fn received(&self, server: &str, subscription: &str) -> Option<Value> {
        let mut hooks = self.lock();
        let (_, hook) = of(&mut hooks, server, subscription)?;
        let latest: Vec<&Received> = hook.events.iter().rev().take(20).collect();
        Some(json!({"count": hook.events.len(), "latest": latest}))
    }

    /// Judges a delivery. Bad ones change nothing.
    pub async fn take(&self, server: &str, token: &str, delivery: Delivery<'_>, now: i64) -> Taken {
        let (Some(id), Some(timestamp), Some(signature)) =
            (delivery.id, delivery.timestamp, delivery.signature)
        else {
            return Taken::Refused(400);
        };
        if delivery.body.len() > MOST_BYTES || id.len() > 256 {
            return Taken::Refused(413);
        }
        // Whose deliveries go elsewhere has no address here.
        if self.lock().get(token).is_some_and(|hook| hook.elsewhere) {
            return Taken::Refused(404);
        }
        if !self.wait_for_key(server, token).await {
            return Taken::Refused(404);
        }
        let mut hooks = self.lock();
        let Some(hook) = hooks.get_mut(token).filter(|hook| hook.server == server) else {
            return Taken::Refused(404);
        };
        if hook.minute.0 != now / 60 {
            hook.minute = (now / 60, 0);
        }
        hook.minute.1 += 1;
        if hook.minute.1 > PER_MINUTE {
            return Taken::Refused(429);
        }
        let in_time = timestamp.parse::<i64>().is_ok_and(|at| at.abs_diff(now) <= SKEW.unsigned_abs());
        let old = hook.old_secret.as_ref().filter(|(_, until)| *until >= now).map(|(old, _)| old);
        let believed = hook.secret.iter().chain(old).any(|secret| {
            signature.split(' ').any(|one| is_signed(secret.0.expose(), id, timestamp, delivery.body, one))
        });
        if !in_time || !believed {
            return Taken::Refused(401);
        }
        let Ok(event) = serde_json::from_slice::<Value>(delivery.body) else { return Taken::Refused(400) };
        let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).map(ToOwned::to_owned);
        if text("/data/subscription_id") != hook.subscription_id {
            return Taken::Refused(401);
        }
        hook.seen.retain(|_, at| *at > now - REMEMBERED);
        if hook.seen.insert(id.to_owned(), now).is_some() {
            return Taken::Again;
        }
        let kind = text("/type").unwrap_or_default();
        let received = Received {
            webhook_id: id.to_owned(),
            kind: kind.clone(),
            stream: text("/data/stream"),
            connection_id: text("/data/connection_id"),
            changes_since: text("/data/changes_since"),
            at: now,
        };
        let taken = match kind.as_str() {
            "pdpp.subscription.verify" => Taken::Challenge(text("/data/challenge").unwrap_or_default()),
            "pdpp.subscription.test" | "pdpp.records.changed" | "pdpp.grant.revoked" => {
                Taken::New(received.clone())
            }
            _ => Taken::Unknown,
        };
        if matches!(taken, Taken::New(_)) {
            hook.events.retain(|event| event.at > now - KEPT);
            if hook.events.len() >= MOST_EVENTS {
                hook.events.remove(0);
            }
            hook.events.push(received);
        }
        // If it cannot be written down it was not received, and comes again.
        if self.write(hook).is_err() {
            hook.seen.remove(id);
            return Taken::Refused(503);
        }
        taken
    }

    /// Whether the address is one of ours, waiting a little for its key.
    async fn wait_for_key(&self, server: &str, token: &str) -> bool {
        let state =
            || self.lock().get(token).filter(|hook| hook.server == server).map(|hook| hook.secret.is_some());
        let keyed = async {
            loop {
                let notified = self.keyed.notified();
                match state() {
                    None => return false,
                    Some(true) => return true,
                    Some(false) => notified.await,
                }
            }
        };
        tokio::time::timeout(HELD, keyed).await.unwrap_or(false)
    }

    fn write(&self, hook: &Hook) -> io::Result<()> {
        self.shelf.as_ref().map_or(Ok(()), |shelf| shelf.write(hook))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Hook>> {
        self.hooks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn of<'h>(
    hooks: &'h mut HashMap<String, Hook>,
    server: &str,
    subscription: &str,
) -> Option<(&'h String, &'h mut Hook)> {
    hooks
        .iter_mut()
        .find(|(_, hook)| hook.server == server && hook.subscription_id.as_deref() == Some(subscription))
}

/// Whether one signature of a list is that of the body under a key; in constant time.
fn is_signed(secret: &str, id: &str, timestamp: &str, body: &[u8], signature: &str) -> bool {
    let Some(wanted) = signature.strip_prefix("v1,").and_then(|text| STANDARD.decode(text).ok()) else {
        return false;
    };
    let Some(key) = secret.strip_prefix("whsec_").and_then(|text| STANDARD.decode(text).ok()) else {
        return false;
    };
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&key) else { return false };
    mac.update(id.as_bytes());
    mac.update(b".");
    mac.update(timestamp.as_bytes());
    mac.update(b".");
    mac.update(body);
    mac.verify_slice(&wanted).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    const OTHER: &str = "whsec_ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=";
    const CAPTURES: &str = include_str!("deliveries.jsonl");

    fn signed(secret: &str, id: &str, timestamp: &str, body: &str) -> String {
        let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
        let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
        mac.update(format!("{id}.{timestamp}.{body}").as_bytes());
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }

    fn hooks() -> (Hooks, String) {
        let hooks = Hooks::default();
        let token = hooks.expect("personal");
        hooks.key(&token, "sub_000000000000000000000001", KEY).unwrap();
        (hooks, token)
    }

    #[tokio::test]
    async fn captured_deliveries_are_believed_and_count_once() {
        // REC-72, T-REC-22
        let (hooks, token) = hooks();
        for line in CAPTURES.lines() {
            let capture: Value = serde_json::from_str(line).unwrap();
            let header = |name: &str| capture["headers"][name].as_str();
            let delivery = Delivery {
                id: header("webhook-id"),
                timestamp: header("webhook-timestamp"),
                signature: header("webhook-signature"),
                body: capture["raw_body"].as_str().unwrap().as_bytes(),
            };
            let now = header("webhook-timestamp").unwrap().parse::<i64>().unwrap() + 10;
            let taken = hooks.take("personal", &token, delivery, now).await;
            match capture["name"].as_str().unwrap() {
                "pdpp.subscription.verify" => {
                    assert_eq!(taken, Taken::Challenge("831b02a7b63db96806dc68d40b54557e".into()));
                }
                name => assert!(matches!(&taken, Taken::New(event) if event.kind == name), "{taken:?}"),
            }
            assert_eq!(hooks.take("personal", &token, delivery, now).await, Taken::Again);
        }
        let received = hooks.received("personal", "sub_000000000000000000000001").unwrap();
        assert_eq!(received["count"], 2);
        assert_eq!(received["latest"][0]["stream"], "labels");
    }

    #[tokio::test]
    async fn forged_stale_and_misdirected_deliveries_change_nothing() {
        // REC-72, T-REC-22
        let (hooks, token) = hooks();
        let body =
            r#"{"data":{"subscription_id":"sub_000000000000000000000001"},"type":"pdpp.subscription.test"}"#;
        let now = 1_800_000_000_i64;
        let time = now.to_string();
        let good = signed(KEY, "evt_1", &time, body);
        let take =
            async |server: &str, token: &str, id: Option<&str>, time: &str, signature: &str, body: &[u8]| {
                let delivery = Delivery { id, timestamp: Some(time), signature: Some(signature), body };
                hooks.take(server, token, delivery, now).await
            };
        let bytes = body.as_bytes();
        let flipped = body.replace("test", "tesT");
        let stale = (now - 301).to_string();
        let stale_signed = signed(KEY, "evt_1", &stale, body);
        let other = body.replace("0001", "0002");
        let other_signed = signed(KEY, "evt_1", &time, &other);
        assert_eq!(
            take("personal", &token, Some("evt_1"), &time, &good, flipped.as_bytes()).await,
            Taken::Refused(401)
        );
        assert_eq!(
            take("personal", &token, Some("evt_1"), &stale, &stale_signed, bytes).await,
            Taken::Refused(401)
        );
        assert_eq!(take("personal", &token, Some("evt_2"), &time, &good, bytes).await, Taken::Refused(401));
        assert_eq!(
            take("personal", &token, Some("evt_1"), &time, &other_signed, other.as_bytes()).await,
            Taken::Refused(401)
        );
        assert_eq!(take("personal", &token, None, &time, &good, bytes).await, Taken::Refused(400));
        assert_eq!(take("other", &token, Some("evt_1"), &time, &good, bytes).await, Taken::Refused(404));
        assert_eq!(take("personal", "0123", Some("evt_1"), &time, &good, bytes).await, Taken::Refused(404));
        let large = vec![b' '; MOST_BYTES + 1];
        assert_eq!(take("personal", &token, Some("evt_1"), &time, &good, &large).await, Taken::Refused(413));
        assert_eq!(hooks.received("personal", "sub_000000000000000000000001").unwrap()["count"], 0);
        // One good signature among others is enough.
        let several = format!("v1,AAAA {good} v2,x");
        assert!(matches!(
            take("personal", &token, Some("evt_1"), &time, &several, bytes).await,
            Taken::New(_)
        ));
    }

    #[tokio::test]
    async fn the_key_before_counts_ten_minutes_longer_and_floods_are_cut_off() {
        // REC-72, T-REC-21
        let (hooks, token) = hooks();
        let body = r#"{"data":{"subscription_id":"sub_000000000000000000000001"},"type":"x.unknown"}"#;
        let now = 1_800_000_000_i64;
        assert!(hooks.rotate("personal", "sub_000000000000000000000001", OTHER, now));
        let sent = async |secret: &str, id: &str, now: i64| {
            let time = now.to_string();
            let signature = signed(secret, id, &time, body);
            let delivery = Delivery {
                id: Some(id),
                timestamp: Some(&time),
                signature: Some(&signature),
                body: body.as_bytes(),
            };
            hooks.take("personal", &token, delivery, now).await
        };
        assert_eq!(sent(KEY, "a", now + 600).await, Taken::Unknown);
        assert_eq!(sent(KEY, "b", now + 601).await, Taken::Refused(401));
        assert_eq!(sent(OTHER, "c", now + 601).await, Taken::Unknown);
        let mut taken = Vec::new();
        for n in 0..101 {
            taken.push(sent(OTHER, &format!("n{n}"), now + 6_000).await);
        }
        assert_eq!(taken.pop(), Some(Taken::Refused(429)));
        assert!(taken.iter().all(|one| *one == Taken::Unknown));
    }

    #[test]
    fn a_key_for_others_is_handed_over_once_and_only_to_who_takes_it() {
        // REC-70
        let hooks = Hooks::default();
        hooks.hold("personal", "s", KEY).unwrap();
        assert!(hooks.holds("personal", "s") && !hooks.holds("other", "s"));
        assert!(hooks.hand_over("personal", "s", |_| Err(io::Error::other("no room"))).is_err());
        let mut taken = String::new();
        let mut take = || {
            hooks.hand_over("personal", "s", |key| {
                taken.clone_from(key.expose());
                Ok(())
            })
        };
        take().unwrap();
        assert!(take().is_err());
        assert_eq!(taken, KEY);
        assert!(!hooks.holds("personal", "s"));
        // Another key can be handed over again.
        assert!(hooks.rotate("personal", "s", OTHER, 0));
        assert!(hooks.holds("personal", "s"));
    }

    #[tokio::test]
    async fn nothing_is_delivered_here_for_a_subscription_that_delivers_elsewhere() {
        // REC-70
        let hooks = Hooks::default();
        hooks.hold("personal", "s", KEY).unwrap();
        let token = hooks.lock().keys().next().unwrap().clone();
        let body = r#"{"data":{"subscription_id":"s"},"type":"pdpp.subscription.test"}"#;
        let signature = signed(KEY, "e", "1800000000", body);
        let delivery = Delivery {
            id: Some("e"),
            timestamp: Some("1800000000"),
            signature: Some(&signature),
            body: body.as_bytes(),
        };
        assert_eq!(hooks.take("personal", &token, delivery, 1_800_000_000).await, Taken::Refused(404));
    }

    #[tokio::test]
    async fn a_delivery_before_its_key_waits_for_it() {
        // REC-71
        let hooks = std::sync::Arc::new(Hooks::default());
        let token = hooks.expect("personal");
        let body = r#"{"data":{"challenge":"c","subscription_id":"s"},"type":"pdpp.subscription.verify"}"#;
        let time = "1800000000";
        let signature = signed(KEY, "e", time, body);
        let (waiting, its) = (hooks.clone(), token.clone());
        let early = tokio::spawn(async move {
            let delivery = Delivery {
                id: Some("e"),
                timestamp: Some(time),
                signature: Some(&signature),
                body: body.as_bytes(),
            };
            waiting.take("personal", &its, delivery, 1_800_000_000).await
        });
        tokio::task::yield_now().await;
        hooks.key(&token, "s", KEY).unwrap();
        assert_eq!(early.await.unwrap(), Taken::Challenge("c".into()));
    }
}
