//! What a client hears of unasked: that a list changed; and that a resource did which it follows.
//!
//! Only what the control plane accepted changes a list, so a new world is the only source of news (PRO §3). A client
//! is told once for many changes close together, and only if the list that it would get now differs from the one that
//! it could have had before.

use std::sync::Arc;
use std::time::Duration;

use portcullis_core::Sha256Digest;
use portcullis_upstream::Inbox;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::subscribing::is_in_force;
use super::told::Reader;
use crate::world::WorldCell;

/// Changes closer together than this are one.
const COALESCED: Duration = Duration::from_millis(200);

/// A list that can change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Topic {
    Tools,
    Resources,
    Prompts,
}

impl Topic {
    pub(crate) const ALL: [Topic; 3] = [Topic::Tools, Topic::Resources, Topic::Prompts];

    /// What says that it changed.
    fn notification(self) -> &'static str {
        match self {
            Topic::Tools => "notifications/tools/list_changed",
            Topic::Resources => "notifications/resources/list_changed",
            Topic::Prompts => "notifications/prompts/list_changed",
        }
    }

    /// The methods whose answers would be others.
    fn lists(self) -> &'static [&'static str] {
        match self {
            Topic::Tools => &["tools/list"],
            Topic::Resources => &["resources/list", "resources/templates/list"],
            Topic::Prompts => &["prompts/list"],
        }
    }

    /// How a modern client asks for it.
    fn wish(self) -> &'static str {
        match self {
            Topic::Tools => "toolsListChanged",
            Topic::Resources => "resourcesListChanged",
            Topic::Prompts => "promptsListChanged",
        }
    }
}

/// The topics that a modern client asked for, of those there are.
pub(crate) fn wished(notifications: &Value, offered: impl Fn(Topic) -> bool) -> Vec<Topic> {
    Topic::ALL.into_iter().filter(|topic| notifications[topic.wish()] == true && offered(*topic)).collect()
}

/// What was agreed, in the words of the acknowledgement.
pub(crate) fn agreed(topics: &[Topic]) -> Value {
    topics
        .iter()
        .map(|topic| (topic.wish().to_owned(), Value::Bool(true)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// News for one client.
#[derive(Debug)]
pub(crate) struct News {
    world: Arc<WorldCell>,
    changes: watch::Receiver<u64>,
    /// Whether there is another world that was not looked at yet.
    is_due: bool,
    /// Who is told.
    reader: Reader,
    /// The resources it follows that changed.
    inbox: Arc<Inbox>,
    topics: Vec<(Topic, Vec<Sha256Digest>)>,
}

impl News {
    /// From now on.
    pub(crate) fn new(world: Arc<WorldCell>, reader: Reader, topics: &[Topic], inbox: Arc<Inbox>) -> Self {
        // Subscribed before looking, so that nothing falls in between.
        let changes = world.changes();
        let mut news = Self { world, changes, is_due: false, reader, inbox, topics: Vec::new() };
        news.topics = topics.iter().map(|topic| (*topic, news.digests(*topic))).collect();
        news
    }

    /// The next notifications, by method and parameters; never ends by itself. Dropped before it is done, it loses
    /// nothing.
    pub(crate) async fn next(&mut self) -> Vec<(&'static str, Value)> {
        loop {
            if !self.is_due {
                tokio::select! {
                    changed = self.changes.changed() => match changed {
                        Ok(()) => self.is_due = true,
                        Err(_) => std::future::pending::<()>().await,
                    },
                    () = self.inbox.rings() => {}
                }
            }
            tokio::time::sleep(COALESCED).await;
            self.changes.borrow_and_update();
            self.is_due = false;
            let registry = self.world.load().registry().clone();
            let updated = self.inbox.take().into_iter().filter(|uri| is_in_force(&registry, uri));
            let mut changed: Vec<_> =
                updated.map(|uri| ("notifications/resources/updated", json!({"uri": uri}))).collect();
            for at in 0..self.topics.len() {
                let topic = self.topics[at].0;
                let now = self.digests(topic);
                if now != self.topics[at].1 {
                    self.topics[at].1 = now;
                    changed.push((topic.notification(), json!({})));
                }
            }
            if !changed.is_empty() {
                return changed;
            }
        }
    }

    fn digests(&self, topic: Topic) -> Vec<Sha256Digest> {
        let world = self.world.load();
        topic.lists().iter().filter_map(|method| self.reader.digest(&world, method)).collect()
    }
}

/// A notification, tagged with the subscription it belongs to if it belongs to one.
pub(crate) fn notification(method: &str, mut params: Value, subscription: Option<&RawValue>) -> Vec<u8> {
    let mut message = json!({"jsonrpc": "2.0", "method": method});
    if let Some(id) = subscription {
        params["_meta"]["io.modelcontextprotocol/subscriptionId"] = json!(id);
    }
    if params.as_object().is_some_and(|params| !params.is_empty()) {
        message["params"] = params;
    }
    message.to_string().into_bytes()
}
