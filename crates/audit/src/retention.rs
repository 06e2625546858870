//! Forgetting on schedule (AUD-43): a class's day is over, its key is destroyed, and what was sealed with it is noise.
//!
//! The log stays whole: records keep the addresses of what they referred to, which tell nothing. The order is: key
//! gone, destruction on record, packs deleted. A note beside the log remembers what was begun, so that a crash in
//! between loses neither the record nor the deletion.

use std::time::Duration;

use portcullis_core::{Actor, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::error::{AtPath as _, AuditError, ProblemKind};
use crate::event::Event;
use crate::event_name::EventName;
use crate::evidence::{Day, KeyName, RetentionClass};
use crate::layout::Layout;
use crate::log::AuditLog;
use crate::read::read;
use crate::verify::Problem;
use crate::{files, pack};

const DAY: Duration = Duration::from_secs(86_400);

/// How long each class is kept; `hold` is kept until somebody says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Calls.
    pub standard: Duration,
    /// Calls of tools with credentials or access to secrets.
    pub sensitive: Duration,
    /// What probing brought up.
    pub probe: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        Self { standard: 90 * DAY, sensitive: 30 * DAY, probe: 30 * DAY }
    }
}

impl Retention {
    fn of(&self, class: RetentionClass) -> Option<Duration> {
        match class {
            RetentionClass::Standard => Some(self.standard),
            RetentionClass::Sensitive => Some(self.sensitive),
            RetentionClass::Probe => Some(self.probe),
            RetentionClass::Hold => None,
        }
    }

    /// Whether everything of that day is older than its class is kept.
    fn is_over(&self, key: KeyName, now: Timestamp) -> bool {
        let Some(kept) = self.of(key.class) else { return false };
        let earliest = Timestamp::from_millis(now.as_millis().saturating_sub(kept.as_millis() as u64));
        key.day < Day::of(earliest)
    }
}

/// A data key and what becomes of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyState {
    /// Its name.
    pub key: KeyName,
    /// Its class.
    pub class: RetentionClass,
    /// Whether an operator keeps it beyond its time.
    pub held: bool,
    /// Whether its time is over.
    pub expired: bool,
}

/// What was begun: written before the first key is gone.
#[derive(Debug, Serialize, Deserialize)]
struct Begun {
    keys: Vec<KeyName>,
    actor: Actor,
}

impl AuditLog {
    /// Every data key that still exists.
    pub fn data_keys(&self) -> Vec<KeyState> {
        let now = self.now();
        let state = |(key, held): (KeyName, bool)| KeyState {
            key,
            class: key.class(),
            held,
            expired: self.retention().is_over(key, now),
        };
        self.ring().list().into_iter().map(state).collect()
    }

    /// Keeps everything sealed with a key beyond its time, or no longer. False if there is no such key.
    pub fn hold(&self, key: KeyName, held: bool) -> Result<bool, AuditError> {
        self.ring().hold(key, held)
    }

    /// Destroys the keys whose time is over and that nobody holds, records it, and deletes what they had sealed.
    pub fn destroy_expired(&self, actor: &Actor) -> Result<Vec<KeyName>, AuditError> {
        self.finish_destruction()?;
        let over: Vec<KeyName> =
            self.data_keys().into_iter().filter(|key| key.expired && !key.held).map(|key| key.key).collect();
        if over.is_empty() {
            return Ok(over);
        }
        // Asked first: what is begun is gone through with, at the next start if need be.
        self.ring().can_destroy()?;
        let begun = Begun { keys: over.clone(), actor: actor.clone() };
        let note =
            serde_json::to_vec(&begun).map_err(std::io::Error::other).at(&self.layout().destruction())?;
        files::replace(&self.layout().destruction(), &note)?;
        self.finish_destruction()?;
        Ok(over)
    }

    /// Compares every data key with the check value the log has of it (AUD-42): a key that was swapped shows.
    pub fn check_keys(&self) -> Result<Vec<Problem>, AuditError> {
        let mut swapped = Vec::new();
        for record in read(self.dir())? {
            let record = record?;
            if record.event != EventName::AuditKeyCreated {
                continue;
            }
            let Some(name) = record.data["key"].as_str().and_then(|key| key.parse::<KeyName>().ok()) else {
                continue;
            };
            if let Some(key) = self.ring().named(name)
                && record.data["check"] != key.check.as_str()
            {
                let detail = format!("data key {name} is not the one that was announced");
                swapped.push(Problem { seq: record.seq, kind: ProblemKind::EvidenceDigest, detail });
            }
        }
        Ok(swapped)
    }

    /// Goes through with what was begun, now or before a crash.
    pub(crate) fn finish_destruction(&self) -> Result<(), AuditError> {
        let path = self.layout().destruction();
        if !path.exists() {
            return Ok(());
        }
        let begun: Begun =
            serde_json::from_slice(&files::read(&path)?).map_err(std::io::Error::other).at(&path)?;
        if self.ring().list().iter().any(|(key, _)| begun.keys.contains(key)) {
            self.ring().destroy(&begun.keys)?;
        }
        let events = begun.keys.iter().map(|key| {
            let data = json!({"class": key.class(), "key": key, "reason": "retention"});
            Event::new(EventName::AuditKeyDestroyed, &begun.actor).data(data)
        });
        self.commit_blocking(events.collect())?;
        delete_packs(self.layout(), &begun.keys, &self.ring().list())?;
        std::fs::remove_file(&path).at(&path)
    }
}

/// Deletes the packs of every day of which no key is left.
fn delete_packs(layout: &Layout, destroyed: &[KeyName], left: &[(KeyName, bool)]) -> Result<(), AuditError> {
    for key in destroyed {
        if left.iter().any(|(other, _)| other.class == key.class && other.day == key.day) {
            continue;
        }
        for (_, path) in pack::list(&layout.packs(key.class), key.day)? {
            std::fs::remove_file(&path).at(&path)?;
        }
        files::sync_dir(&layout.packs(key.class))?;
    }
    Ok(())
}
