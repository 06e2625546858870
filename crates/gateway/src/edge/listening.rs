//! `subscriptions/listen`: a stream that lasts, and how it ends.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portcullis_core::Principal;
use portcullis_core::jsonrpc::Message;
use portcullis_governance::boundary::{CancellationSignal, Canceller};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::conversation::Conversation;
use super::news::{self, News, Topic};
use super::outlet::Outlet;
use super::{Answer, Asked, Edge, MODERN, Params, Sender};
use crate::control::told_to_stop;
use crate::surface::Listener;

/// Who listens. A modern client over HTTP has no session that knows its requests, and may give one up all the same
/// (PRO-69).
#[derive(Debug, Default)]
pub(super) struct Listens(Mutex<Vec<(Arc<Listen>, Canceller)>>);

/// One that lasts: whose, and the id of its request.
#[derive(Debug)]
struct Listen {
    principal: Principal,
    client: String,
    id: String,
    /// Whether no connection of its client's knows its requests.
    alone: bool,
}

/// A place among those who listen, given back when it is dropped.
pub(super) struct Listed<'l> {
    listens: &'l Listens,
    listen: Arc<Listen>,
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.listens.lock().retain(|(listen, _)| !Arc::ptr_eq(listen, &self.listen));
    }
}

impl Listens {
    fn enter(&self, conversation: &Conversation, id: &RawValue) -> (Listed<'_>, CancellationSignal) {
        let principal = conversation.session().principal().clone();
        let client = conversation.client().to_owned();
        let alone = conversation.listener() == Listener::Http;
        let listen = Arc::new(Listen { principal, client, id: id.get().to_owned(), alone });
        let (canceller, cancel) = CancellationSignal::pair();
        self.lock().push((listen.clone(), canceller));
        (Listed { listens: self, listen }, cancel)
    }

    /// Gives up the one that is meant. Two programs of one principal may use the same id: then nobody can tell which, and
    /// neither ends (PRO-20).
    fn give_up(&self, principal: &Principal, client: Option<&str>, id: &RawValue) {
        let all = self.lock();
        let is_meant = |listen: &Listen| {
            let same_client = client.is_none_or(|client| listen.client == client);
            listen.alone && listen.principal == *principal && same_client && listen.id == id.get()
        };
        let mut meant = all.iter().filter(|(listen, _)| is_meant(listen));
        if let (Some((_, canceller)), None) = (meant.next(), meant.next()) {
            canceller.cancel();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Arc<Listen>, Canceller)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Edge {
    /// A notification of a client without a session: all it can be about is a request that lasts.
    pub(super) fn notified_alone(&self, principal: &Principal, method: &str, params: Option<&RawValue>) {
        let params = params.and_then(|raw| Params::read(raw).ok());
        match (method, params) {
            ("notifications/cancelled", Some(Params { request_id: Some(id), meta, .. })) => {
                let client = meta.and_then(|meta| meta.client_info).map(|info| info.name);
                self.listens.give_up(principal, client.as_deref(), id);
            }
            _ => drop(self.ignored.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// `subscriptions/listen`: lasts until its client or this gateway goes (PRO-69).
    pub(super) async fn listen(
        &self,
        sender: &Sender,
        asked: &Asked<'_>,
        outlet: &Outlet,
        mut cancel: CancellationSignal,
    ) -> Answer {
        let id = Message::read(asked.message).and_then(|message| message.id.map(ToOwned::to_owned));
        let wishes = asked.params.and_then(|raw| Params::read(raw).ok()?.notifications);
        let (Some(id), Some(Ok(wishes))) = (id, wishes.map(|raw| serde_json::from_str::<Value>(raw.get())))
        else {
            return Answer::invalid_params("subscriptions/listen takes an object of notifications");
        };
        if !outlet.is_open() {
            return Answer::invalid_params(
                "subscriptions/listen needs an event stream: the client must accept one, and have fewer open than the operator allows",
            );
        }
        let topics = news::wished(&wishes, |topic| match topic {
            Topic::Tools => true,
            Topic::Resources => self.offers("resources/list", MODERN),
            Topic::Prompts => self.offers("prompts/list", MODERN),
        });
        let inbox = Arc::default();
        let wishes = match self.wishes(sender, asked, &wishes, &inbox, &cancel).await {
            Ok(wishes) => wishes,
            Err(answer) => return answer,
        };
        let mut news = News::new(self.world.clone(), self.reader(sender), &topics, inbox);
        let mut agreed = json!({"notifications": news::agreed(&topics)});
        if !wishes.granted.is_empty() {
            let granted: Vec<&String> = wishes.granted.keys().collect();
            agreed["notifications"]["resourceSubscriptions"] = json!(granted);
        }
        if !wishes.refused.is_empty() {
            agreed["_meta"] = json!({"io.portcullis/refused": wishes.refused});
        }
        // Before it hears of it, it can give it up.
        let (_listed, mut given_up) = self.listens.enter(&sender.conversation, &id);
        outlet.send(news::notification("notifications/subscriptions/acknowledged", agreed, Some(&id)));
        let mut closing = self.closing.subscribe();
        loop {
            tokio::select! {
                changed = news.next() => for (method, params) in changed {
                    outlet.send(news::notification(method, params, Some(&id)));
                },
                () = cancel.cancelled() => break,
                () = given_up.cancelled() => break,
                () = sender.conversation.hung_up() => break,
                () = told_to_stop(&mut closing) => break,
            }
        }
        drop(wishes);
        let meta = json!({"io.modelcontextprotocol/subscriptionId": id, "io.modelcontextprotocol/serverInfo": self.server_info()});
        Answer::Result(json!({"resultType": "complete", "_meta": meta}).to_string().into())
    }
}
