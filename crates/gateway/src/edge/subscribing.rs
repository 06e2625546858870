//! Clients that want to hear when a resource changes: `resources/subscribe` of the legacy era, and the resources of a
//! modern `subscriptions/listen` (PRO §3, GOV-407).

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use portcullis_audit::{AuditLog, Event, EventName};
use portcullis_core::error::{ErrorDocument, one_line};
use portcullis_core::{Actor, ErrorCode, ProposalId};
use portcullis_governance::boundary::CancellationSignal;
use portcullis_governance::registry::Registry;
use portcullis_governance::session::Session;
use portcullis_upstream::{Following, Inbox, UpstreamError};
use serde_json::{Value, json};

use super::outlet::Outlet;
use super::{Answer, Asked, Edge, Era, Params, Sender};
use crate::lifecycle::Call;
use crate::target::Target;
use crate::upstreams::{Caller, NotUsable};

/// How many resources one client may follow at once.
const MOST: usize = 256;

/// One client's subscription to one resource; over, and on record as such, when dropped.
#[derive(Debug)]
pub(crate) struct Subscription {
    _following: Following,
    log: AuditLog,
    session: Arc<Session>,
    proposal: ProposalId,
    uri: String,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let data = json!({"proposal_id": self.proposal, "uri": one_line(&self.uri)});
        let event = Event::new(EventName::SubscriptionEnded, &Actor::from(self.session.principal()));
        let _ = self.log.append(vec![event.session(self.session.id()).data(data)]);
    }
}

/// What a modern client asked to follow: what it may, and why it may not follow the rest.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    pub(super) granted: BTreeMap<String, Subscription>,
    pub(super) refused: BTreeMap<String, Value>,
}

impl Edge {
    /// Whether any declaration in force allows subscriptions.
    pub(super) fn allows_subscriptions(&self) -> bool {
        let world = self.world.load();
        let registry = world.registry();
        let mut resources = registry.resources().iter().chain(registry.templates());
        resources.any(|entry| entry.server.declaration.allows_subscriptions(&entry.tool))
    }

    /// `resources/subscribe`: answered when the server has agreed.
    pub(super) async fn subscribe(
        &self,
        sender: &Sender,
        asked: &Asked<'_>,
        outlet: Outlet,
        cancel: CancellationSignal,
    ) -> Answer {
        let call = match self.understand(sender, asked, outlet, cancel) {
            Ok(call) => call,
            Err(answer) => return answer,
        };
        let conversation = &sender.conversation;
        let uri = call.target.name().to_owned();
        if conversation.subscriptions().contains_key(&uri) {
            return Answer::Result(Bytes::from_static(b"{}"));
        }
        if conversation.subscriptions().len() >= MOST {
            let message = format!("a client may follow {MOST} resources at once");
            let document = ErrorDocument::new(ErrorCode::RateLimited, one_line(&uri), message);
            return not_subscribed(&document, sender.era());
        }
        match self.follow(&call, conversation.inbox()).await {
            Ok(subscription) => {
                // Asked for twice at once, one of them is enough.
                if let Entry::Vacant(place) = conversation.subscriptions().entry(uri) {
                    place.insert(subscription);
                }
                Answer::Result(Bytes::from_static(b"{}"))
            }
            Err(document) => not_subscribed(&document, sender.era()),
        }
    }

    /// `resources/unsubscribe`. What is not followed need not be left.
    pub(super) fn unsubscribe(&self, sender: &Sender, asked: &Asked<'_>) -> Answer {
        let uri = asked.params.and_then(|raw| Params::read(raw).ok()?.uri);
        let Some(uri) = uri else {
            return Answer::invalid_params("resources/unsubscribe needs the resource's uri");
        };
        let ended = sender.conversation.subscriptions().remove(&*uri);
        drop(ended);
        Answer::Result(Bytes::from_static(b"{}"))
    }

    /// The resources of `subscriptions/listen`, each decided about on its own.
    pub(super) async fn wishes(
        &self,
        sender: &Sender,
        asked: &Asked<'_>,
        notifications: &Value,
        inbox: &Arc<Inbox>,
        cancel: &CancellationSignal,
    ) -> Result<Wishes, Answer> {
        let uris: Vec<String> = match &notifications["resourceSubscriptions"] {
            Value::Null => return Ok(Wishes::default()),
            list => serde_json::from_value(list.clone())
                .map_err(|_| Answer::invalid_params("resourceSubscriptions is a list of URIs"))?,
        };
        if uris.len() > MOST {
            let message = format!("a client may follow {MOST} resources at once");
            return Err(Answer::invalid_params(&message));
        }
        let decided = join_all(uris.into_iter().map(|uri| async move {
            let mut call = self.understand(sender, asked, Outlet::None, cancel.clone())?;
            call.target = Target::Resource(uri.clone());
            Ok((uri, self.follow(&call, inbox).await))
        }));
        let mut wishes = Wishes::default();
        for decision in decided.await {
            match decision? {
                (uri, Ok(subscription)) => drop(wishes.granted.insert(uri, subscription)),
                (uri, Err(document)) => {
                    let document = serde_json::to_value(document).expect("an error document is plain JSON");
                    wishes.refused.insert(uri, document);
                }
            }
        }
        Ok(wishes)
    }

    /// Decided about, on record, and agreed to by the server.
    async fn follow(&self, call: &Call, inbox: &Arc<Inbox>) -> Result<Subscription, ErrorDocument> {
        self.within_limits(call)?;
        let decided = self.lifecycle.subscribe(call).await;
        call.attendant.finish();
        let decided = decided?;
        let (entry, uri) = (&decided.entry, call.target.name());
        let world = self.world.load();
        let followed = match world.upstream(entry.tool.id().server()) {
            Some(upstream) => {
                let capabilities = call.attendant.capabilities(&entry.server.declaration);
                let caller = Caller { session: &call.session, capabilities: &capabilities };
                let whose = (&**entry, caller);
                upstream.follow(&self.world, whose, (&decided.uri, uri), inbox).await
            }
            None => Err(UpstreamError::Closed.into()),
        };
        let (log, session) = (self.lifecycle.log.clone(), call.session.clone());
        let subscription = |following| Subscription {
            _following: following,
            log,
            session,
            proposal: decided.proposal,
            uri: uri.to_owned(),
        };
        followed.map(subscription).map_err(|error| {
            let document = match &error {
                NotUsable::Upstream(UpstreamError::Refused { code, .. }) => {
                    let path = entry.tool.id().short();
                    ErrorDocument::new(ErrorCode::UpstreamError, path, error.to_string())
                        .with("rpc_code", *code)
                }
                _ => self.lifecycle.unusable(&error, entry),
            };
            document.with("proposal_id", json!(decided.proposal))
        })
    }
}

/// Whether an update of `uri` may still be told: the declaration may be another by now, or its server halted.
pub(super) fn is_in_force(registry: &Registry, uri: &str) -> bool {
    registry.resource(uri).is_some_and(|(entry, _)| {
        entry.server.is_active() && entry.server.declaration.allows_subscriptions(&entry.tool)
    })
}

/// A resource that is not there has the code of its era (PRO §1).
fn not_subscribed(document: &ErrorDocument, era: Era) -> Answer {
    match Answer::refusal(document, era, "resources/read") {
        Answer::Error { code: -32602, message, data } if era == Era::Legacy => {
            Answer::Error { code: -32002, message, data }
        }
        answer => answer,
    }
}
