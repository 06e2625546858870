//! Resources that somebody wants to hear of.
//!
//! Any number of clients may follow a resource; the server is asked once, by [`Live::keep_up`](crate::Live::keep_up),
//! and stops being asked when the last follower goes. What a server says about a resource that nobody follows is
//! dropped: an update goes to exactly those who asked for it (PRO-20).

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{Notify, oneshot, watch};

/// How many subscriptions that are over are remembered, for answers that come late.
const REMEMBERED: usize = 64;

/// Who follows which resources of one server.
#[derive(Debug, Default)]
pub struct Followed {
    table: Mutex<Table>,
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Table {
    followers: BTreeMap<String, Vec<Follower>>,
    next: u64,
    /// Who waits for the server to say what it agrees to, by the id of the request.
    unacknowledged: HashMap<u64, oneshot::Sender<BTreeSet<String>>>,
    over: VecDeque<u64>,
}

#[derive(Debug)]
struct Follower {
    number: u64,
    /// The URI by which this client knows the resource.
    known_as: String,
    inbox: Arc<Inbox>,
}

/// What one client has not been told yet: each resource once, however often it changed.
#[derive(Debug, Default)]
pub struct Inbox {
    updated: Mutex<BTreeSet<String>>,
    bell: Notify,
}

impl Inbox {
    /// Resolves when there is something to tell; takes nothing.
    pub async fn rings(&self) {
        loop {
            let rung = self.bell.notified();
            if !lock(&self.updated).is_empty() {
                return;
            }
            rung.await;
        }
    }

    /// The resources that changed, by the URIs the client knows.
    pub fn take(&self) -> BTreeSet<String> {
        std::mem::take(&mut lock(&self.updated))
    }

    fn put(&self, uri: &str) {
        lock(&self.updated).insert(uri.to_owned());
        self.bell.notify_waiters();
    }
}

/// Following one resource; over when dropped.
#[derive(Debug)]
pub struct Following {
    followed: Arc<Followed>,
    uri: String,
    number: u64,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.followed.leave(&self.uri, self.number);
    }
}

impl Followed {
    /// Puts updates of `uri`, under the name the client knows, into its inbox from now on.
    pub fn follow(self: &Arc<Self>, uri: &str, known_as: &str, inbox: &Arc<Inbox>) -> Following {
        let mut table = lock(&self.table);
        let number = table.next;
        table.next += 1;
        let follower = Follower { number, known_as: known_as.to_owned(), inbox: Arc::clone(inbox) };
        table.followers.entry(uri.to_owned()).or_default().push(follower);
        drop(table);
        self.changes.send_modify(|count| *count += 1);
        Following { followed: Arc::clone(self), uri: uri.to_owned(), number }
    }

    fn leave(&self, uri: &str, number: u64) {
        let mut table = lock(&self.table);
        if let Some(followers) = table.followers.get_mut(uri) {
            followers.retain(|follower| follower.number != number);
            if followers.is_empty() {
                table.followers.remove(uri);
            }
        }
        drop(table);
        self.changes.send_modify(|count| *count += 1);
    }

    /// The resources that somebody follows, by the server's own URIs.
    pub fn wanted(&self) -> BTreeSet<String> {
        lock(&self.table).followers.keys().cloned().collect()
    }

    /// Tells when that may be another set.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// `notifications/resources/updated`.
    pub(crate) fn updated(&self, params: Option<&RawValue>) {
        #[derive(Deserialize)]
        struct Updated {
            uri: String,
        }
        let Some(updated) = params.and_then(|raw| serde_json::from_str::<Updated>(raw.get()).ok()) else {
            return;
        };
        for follower in lock(&self.table).followers.get(&updated.uri).into_iter().flatten() {
            follower.inbox.put(&follower.known_as);
        }
    }

    /// Waits for what the server agrees to in answer to `id`.
    pub(crate) fn expect(&self, id: u64) -> oneshot::Receiver<BTreeSet<String>> {
        let (sender, receiver) = oneshot::channel();
        lock(&self.table).unacknowledged.insert(id, sender);
        receiver
    }

    /// `notifications/subscriptions/acknowledged`.
    pub(crate) fn acknowledged(&self, params: Option<&RawValue>) {
        #[derive(Deserialize)]
        struct Acknowledged {
            #[serde(rename = "_meta")]
            meta: Meta,
            notifications: Agreed,
        }
        #[derive(Deserialize)]
        struct Meta {
            #[serde(rename = "io.modelcontextprotocol/subscriptionId")]
            id: u64,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Agreed {
            #[serde(default)]
            resource_subscriptions: BTreeSet<String>,
        }
        let read = |raw: &RawValue| serde_json::from_str::<Acknowledged>(raw.get()).ok();
        if let Some(Acknowledged { meta, notifications }) = params.and_then(read)
            && let Some(waiting) = lock(&self.table).unacknowledged.remove(&meta.id)
        {
            let _ = waiting.send(notifications.resource_subscriptions);
        }
    }

    /// The subscription `id` was given up by us.
    pub(crate) fn gave_up(&self, id: u64) {
        let mut table = lock(&self.table);
        table.unacknowledged.remove(&id);
        if table.over.len() == REMEMBERED {
            table.over.pop_front();
        }
        table.over.push_back(id);
    }

    /// Whether an answer to `id` only says that a subscription which we gave up is over.
    pub(crate) fn is_over(&self, id: u64) -> bool {
        lock(&self.table).over.contains(&id)
    }
}

// Nothing here can panic half-way, so a poisoned lock guards a whole value.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.into()).unwrap()
    }

    #[test]
    fn an_update_reaches_exactly_those_who_follow_and_each_once() {
        // PRO-20
        let followed = Arc::new(Followed::default());
        let (one, two) = (Arc::new(Inbox::default()), Arc::new(Inbox::default()));
        let following = followed.follow("a:1", "portcullis://s/a%3A1", &one);
        let _other = followed.follow("a:1", "other", &two);
        let _more = followed.follow("a:2", "more", &two);
        assert_eq!(followed.wanted(), BTreeSet::from(["a:1".to_owned(), "a:2".to_owned()]));
        for params in [r#"{"uri":"a:1"}"#, r#"{"uri":"a:1","_meta":{}}"#, r#"{"uri":"a:3"}"#, r#"{"uri":7}"#]
        {
            followed.updated(Some(&raw(params)));
        }
        assert_eq!(one.take(), BTreeSet::from(["portcullis://s/a%3A1".to_owned()]));
        assert_eq!(two.take(), BTreeSet::from(["other".to_owned()]));
        drop(following);
        followed.updated(Some(&raw(r#"{"uri":"a:1"}"#)));
        assert!(one.take().is_empty() && !two.take().is_empty());
    }

    #[test]
    fn only_the_subscription_that_was_asked_for_is_acknowledged() {
        // PRO-11
        let followed = Followed::default();
        let mut waiting = followed.expect(7);
        let said = |id: &str| {
            raw(&format!(
                r#"{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}},"notifications":{{"resourceSubscriptions":["a:1"]}}}}"#
            ))
        };
        followed.acknowledged(Some(&said("8")));
        followed.acknowledged(Some(&said("\"7\"")));
        assert!(waiting.try_recv().is_err());
        followed.acknowledged(Some(&said("7")));
        assert_eq!(waiting.try_recv().unwrap(), BTreeSet::from(["a:1".to_owned()]));
        followed.gave_up(7);
        assert!(followed.is_over(7) && !followed.is_over(8));
    }
}
