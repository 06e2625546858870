//! MCP towards agents: both eras, over stdio and streamable HTTP.
//!
//! A transport finds out who is talking ([`http`], [`stdio`]) and hands single messages to the [`Edge`], which
//! knows the protocol but no transport. The era of a client is decided by what it sends, never by configuration
//! (PRO-1): per connection on stdio, per request on HTTP.

mod attempts;
pub(crate) mod attendant;
mod batch;
mod calling;
mod conversation;
mod early_tasks;
pub mod http;
mod lines;
mod listening;
mod log_level;
mod news;
mod outlet;
mod own_tools;
mod params;
pub(crate) mod questions;
pub mod revision;
mod rounds;
pub mod sessions;
mod stand_in;
pub mod stdio;
mod subscribing;
mod tasks;
pub(crate) mod told;
pub mod usable;
mod viewing;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use portcullis_core::error::{ErrorDocument, one_line};
use portcullis_core::jsonrpc::{Message, error_response, is_id, result_response};
use portcullis_core::{ErrorCode, IncidentId, Principal};
use portcullis_gauntlet::Gauntlet;
use portcullis_governance::boundary::CancellationSignal;
use portcullis_governance::declaration::TASKS;
use portcullis_upstream::Wants;
use portcullis_upstream::records::hooks::Hooks;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use crate::access::Access;
use crate::control::told_to_stop;
use crate::controls::Controls;
use crate::exposure::definitions::listed;
use crate::exposure::{Manner, Mode, refusal};
use crate::lifecycle::unusable::REQUIRED_CAPABILITIES;
use crate::lifecycle::{Call, Lifecycle, UpstreamFailure};
use crate::listing::{self, List};
use crate::sealed::Seal;
use crate::shaping::Shaping;
use crate::surface::audience::{Read, Readers};
use crate::target::Target;
use crate::world::WorldCell;
use attendant::Attendant;
use conversation::Conversation;
use log_level::Level;
use outlet::Outlet;
pub use own_tools::{OwnCall, OwnTools};
pub(crate) use params::Params;
use questions::{Abilities, Asker};
pub use revision::{Era, MODERN, NEWEST_LEGACY, Revision, SUPPORTED};
use rounds::{Again, Bound, CameBack, Parking, Running, Turn};
use usable::Usable;

/// Who sends a message, as far as its transport knows.
#[derive(Debug, Clone)]
pub(crate) struct Sender {
    pub(crate) conversation: Arc<Conversation>,
    /// How a modern client is asked: by ending its call.
    turns: Option<mpsc::UnboundedSender<Turn>>,
    /// What the client chose to see, by its URL or its listener.
    mode: Option<Mode>,
}

impl Sender {
    pub(crate) fn new(conversation: Arc<Conversation>) -> Self {
        Self { conversation, turns: None, mode: None }
    }

    /// The same, seeing what it chose to see.
    pub(crate) fn showing(self, mode: Option<Mode>) -> Self {
        Self { mode, ..self }
    }

    fn era(&self) -> Era {
        self.conversation.era()
    }
}

/// A request taken out of its envelope.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) method: &'a str,
    pub(crate) params: Option<&'a RawValue>,
    /// The whole message: evidence.
    pub(crate) message: &'a Bytes,
    /// What a state handed out for it is bound to.
    bound: &'a Bound,
}

/// What a modern request brings along for the questions of a server.
#[derive(Debug, Default)]
struct Came {
    /// It is made again, with the answers that were asked for.
    again: Option<Again>,
    /// Answers that nobody asked for yet.
    ahead: serde_json::Map<String, Value>,
}

/// The protocol, apart from any transport.
#[derive(Debug)]
pub struct Edge {
    lifecycle: Arc<Lifecycle>,
    world: Arc<WorldCell>,
    version: String,
    principal: Principal,
    pub(crate) access: Arc<Access>,
    shaping: Arc<Shaping>,
    controls: Controls,
    seal: Seal,
    gauntlet: Arc<Gauntlet>,
    parking: Parking,
    /// Calls that go on after their answer.
    tasks: tasks::Tasks,
    /// Notifications that nobody here understands (PRO §3).
    ignored: AtomicU64,
    pub(crate) sessions: sessions::Sessions,
    /// Turns true when the edge is being closed: what lasts for ever ends then.
    closing: watch::Sender<bool>,
    /// Clients of 2024-11-05 over HTTP, by the unguessable part of the address they post to.
    old_clients: http::OldClients,
    /// Modern clients that listen.
    listens: listening::Listens,
    /// Who has how many streams.
    places: Arc<http::Places>,
    /// Subscriptions of records servers that deliver to us.
    pub(crate) hooks: Arc<Hooks>,
    /// What agents can use at all of what is listed.
    usable: Arc<Usable>,
    /// Who reads lists.
    readers: Arc<Readers>,
    /// Tools of the gateway itself.
    own: OnceLock<Arc<dyn OwnTools>>,
}

/// An answer in its envelope.
#[derive(Debug)]
pub(crate) struct Rendered {
    pub(crate) text: Vec<u8>,
    /// If it is an error: over HTTP some have a status of their own.
    pub(crate) code: Option<i32>,
}

/// What a method comes to.
#[derive(Debug)]
pub(crate) enum Answer {
    /// A result, already rendered.
    Result(Bytes),
    /// A JSON-RPC error.
    Error { code: i32, message: String, data: Option<Value> },
}

impl Edge {
    /// Under which users agents run (GOV-105).
    pub fn agent_users(&self) -> &crate::separation::AgentUsers {
        self.access.users()
    }

    /// An edge in front of `lifecycle`. Agents that prove nothing are `principal`.
    pub(crate) fn new(
        lifecycle: Arc<Lifecycle>,
        access: Arc<Access>,
        shaping: Arc<Shaping>,
        controls: Controls,
        version: String,
        principal: Principal,
        hooks: Arc<Hooks>,
    ) -> Self {
        let (world, gauntlet) = (lifecycle.world.clone(), lifecycle.gauntlet.clone());
        let sessions = sessions::Sessions::new(
            lifecycle.log.clone(),
            lifecycle.clock.clone(),
            shaping.artifacts().clone(),
            lifecycle.sessions.clone(),
        );
        Self {
            lifecycle,
            world,
            version,
            principal,
            access,
            shaping,
            controls,
            seal: Seal::new(),
            gauntlet,
            parking: Parking::default(),
            tasks: tasks::Tasks::default(),
            ignored: AtomicU64::new(0),
            sessions,
            closing: watch::Sender::new(false),
            old_clients: http::OldClients::default(),
            listens: listening::Listens::default(),
            places: Arc::default(),
            hooks,
            usable: Arc::default(),
            readers: Arc::default(),
            own: OnceLock::new(),
        }
    }

    /// What agents can use, and who reads lists: for those who measure.
    pub(crate) fn audience(&self) -> (Arc<Usable>, Arc<Readers>) {
        (self.usable.clone(), self.readers.clone())
    }

    pub(crate) fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Whether calls can be taken at all.
    pub fn health(&self) -> portcullis_audit::Health {
        self.lifecycle.log.health()
    }

    /// Answers one request, in a task of its own: when the client goes, its transport drops what waits here, but a
    /// call whose intent is durable must still be settled.
    pub(crate) async fn run(
        self: &Arc<Self>,
        sender: Sender,
        message: &Bytes,
        outlet: Outlet,
        cancel: CancellationSignal,
    ) -> Rendered {
        let era = sender.era();
        let reply = self.begin_or_resume(sender, message, outlet, cancel).await;
        let parsed = Message::read(message);
        let called = parsed.as_ref().filter(|message| message.method.as_deref() == Some("tools/call"));
        match (reply, parsed.as_ref().and_then(|message| message.id)) {
            (Some(answer), Some(id)) => Rendered { code: answer.code(), text: answer.into_response(id) },
            // The hook has recorded the panic; the client learns that it was our fault, and nothing else.
            (None, Some(id)) if called.is_some() => {
                let incident = IncidentId::new(self.lifecycle.clock.now());
                let answer = Answer::Result(refusal::as_result(&refusal::of_a_defect(incident), era).into());
                Rendered { code: answer.code(), text: answer.into_response(id) }
            }
            (_, id) => Rendered {
                code: Some(-32603),
                text: error_response(id, -32603, "internal error", None::<&()>),
            },
        }
    }

    /// A new task, or one that waited for its client to come back with answers.
    async fn begin_or_resume(
        self: &Arc<Self>,
        mut sender: Sender,
        message: &Bytes,
        outlet: Outlet,
        cancel: CancellationSignal,
    ) -> Option<Answer> {
        let modern = sender.era() == Era::Modern;
        let bound = Bound::new(&sender, message, self.world.load());
        let (mut again, mut ahead) = (None, serde_json::Map::new());
        if modern {
            let parsed = Message::read(message)?;
            let params = parsed.params.and_then(|raw| Params::read(raw).ok());
            if let Some(params) = &params
                && (params.request_state.is_some() || params.input_responses.is_some())
            {
                match self.came_back(params, &bound) {
                    Ok(CameBack::Parked(running)) => return self.next_turn(running, &bound).await,
                    Ok(CameBack::Again(came)) => again = Some(came),
                    Ok(CameBack::Anew(given)) => ahead = given,
                    Ok(CameBack::Unanswered { questions, origin, round }) => {
                        return Some(self.input_required(questions, origin, round, &bound));
                    }
                    Err(answer) => return Some(answer),
                }
            }
        }
        let (turns, receiving) = rounds::turns_of(&sender);
        sender.turns = turns;
        let (edge, message, bound_inside) = (self.clone(), message.clone(), bound.clone());
        let settled = async move {
            // Read inside the task: borrowed parts cannot cross into it.
            let parsed = Message::read(&message)?;
            let asked = Asked {
                method: parsed.method.as_deref()?,
                params: parsed.params,
                message: &message,
                bound: &bound_inside,
            };
            Some(edge.answer(&sender, &asked, outlet, Came { again, ahead }, cancel).await)
        };
        let running = Running { task: tokio::spawn(settled), turns: receiving, round: 0 };
        self.next_turn(running, &bound).await
    }

    /// What one request comes to, as its client can take it.
    async fn answer(
        self: &Arc<Self>,
        sender: &Sender,
        asked: &Asked<'_>,
        outlet: Outlet,
        came: Came,
        cancel: CancellationSignal,
    ) -> Answer {
        let answer = self.answered(sender, asked, outlet, came, cancel).await;
        let structured =
            asked.method != "tools/call" || self.profile(&self.world.load(), sender).error_structured;
        if structured { answer } else { answer.without_structured_error() }
    }

    async fn answered(
        self: &Arc<Self>,
        sender: &Sender,
        asked: &Asked<'_>,
        outlet: Outlet,
        came: Came,
        cancel: CancellationSignal,
    ) -> Answer {
        if !self.offers(asked.method, sender.conversation.revision()) {
            return Answer::unknown_method(asked.method);
        }
        if let Some(answer) = self.own_answer(sender, asked).await {
            return answer;
        }
        let mode = self.mode(sender);
        match asked.method {
            "tools/call" if self.is_view(sender, asked, mode) => self.viewed(sender, asked).await,
            "tools/call" | "resources/read" | "prompts/get" | "completion/complete" => {
                match self.understand(sender, asked, outlet, cancel) {
                    Ok(mut call) => {
                        let mut round = 0;
                        if let Some(again) = came.again {
                            (call.wants.input, call.parent) = (again.input, again.parent);
                            call.after_questions = true;
                            round = again.round;
                        }
                        let manner = match self.stand_in(sender, mode, &mut call) {
                            Ok(manner) => manner,
                            Err(answer) => return answer,
                        };
                        if matches!(manner, Manner::Native) {
                            self.mend(&mut call);
                        }
                        // What comes back with answers was counted when it first came.
                        if round == 0
                            && let Err(document) = self.within_limits(&call)
                        {
                            return Answer::refused(document, sender.era(), asked.method, &manner);
                        }
                        self.governed(sender, asked, call, (round, came.ahead), &manner).await
                    }
                    Err(answer) => answer,
                }
            }
            "server/discover" => Answer::Result(self.discover(sender, mode)),
            "subscriptions/listen" => self.listen(sender, asked, &outlet, cancel).await,
            "resources/subscribe" => self.subscribe(sender, asked, outlet, cancel).await,
            "resources/unsubscribe" => self.unsubscribe(sender, asked),
            "tasks/get" | "tasks/update" | "tasks/cancel" | "tasks/result" | "tasks/list" => {
                self.task_method(sender, asked, outlet, cancel).await
            }
            "ping" => Answer::Result(Bytes::from_static(b"{}")),
            "logging/setLevel" => set_level(sender, asked),
            "tools/list" => {
                self.learn_what_is_usable(&sender.conversation).await;
                self.list(sender, asked)
            }
            _ => self.list(sender, asked),
        }
    }

    /// Whether a method exists for clients of a revision: over modern HTTP an unknown one is 404.
    pub(crate) fn offers(&self, method: &str, revision: Revision) -> bool {
        let era = revision.era();
        let registry = || self.world.load().registry().clone();
        match method {
            "tools/call" | "tools/list" => true,
            "resources/list" | "resources/templates/list" | "resources/read" => {
                let registry = registry();
                !registry.resources().is_empty() || !registry.templates().is_empty()
            }
            // GOV-407
            "resources/subscribe" | "resources/unsubscribe" => {
                era == Era::Legacy && self.allows_subscriptions()
            }
            "prompts/list" | "prompts/get" => !registry().prompts().is_empty(),
            "completion/complete" => registry().completes(),
            "server/discover" | "subscriptions/listen" => era == Era::Modern,
            "tasks/get" | "tasks/cancel" => revision.has_tasks() && self.allows_tasks(),
            "tasks/update" => era == Era::Modern && self.allows_tasks(),
            "tasks/result" | "tasks/list" => {
                era == Era::Legacy && revision.has_tasks() && self.allows_tasks()
            }
            "ping" | "logging/setLevel" => era == Era::Legacy,
            _ => false,
        }
    }

    /// What declarations allow, in the words of `initialize` and `server/discover`.
    fn capabilities(&self) -> Value {
        let mut capabilities = json!({"tools": {"listChanged": true}, "logging": {}});
        for (method, capability) in [
            ("resources/list", "resources"),
            ("prompts/list", "prompts"),
            ("completion/complete", "completions"),
        ] {
            if self.offers(method, NEWEST_LEGACY) {
                let announced = capability != "completions";
                capabilities[capability] = if announced { json!({"listChanged": true}) } else { json!({}) };
            }
        }
        if self.allows_subscriptions() {
            capabilities["resources"]["subscribe"] = json!(true);
        }
        capabilities
    }

    /// A notification: some are understood, the rest is counted and forgotten.
    pub(crate) fn notified(&self, conversation: &Conversation, method: &str, params: Option<&RawValue>) {
        match method {
            "notifications/cancelled" => {
                let request = params.and_then(|raw| Params::read(raw).ok()).and_then(|p| p.request_id);
                if let Some(id) = request {
                    conversation.cancel(id.get());
                }
            }
            "notifications/initialized" => {}
            _ => {
                self.ignored.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Reads what is asked for, or says what is wrong with the request.
    fn understand(
        &self,
        sender: &Sender,
        asked: &Asked<'_>,
        outlet: Outlet,
        cancel: CancellationSignal,
    ) -> Result<Call, Answer> {
        let Some(Ok(params)) = asked.params.map(Params::read) else {
            return Err(Answer::invalid_params(&format!("{} takes an object", asked.method)));
        };
        if sender.era() == Era::Legacy && (params.input_responses.is_some() || params.request_state.is_some())
        {
            return Err(Answer::invalid_params("no request of this kind is waiting for input"));
        }
        let need = |text: Option<std::borrow::Cow<'_, str>>, what: &str| {
            let message = format!("{} needs {what}", asked.method);
            text.map(std::borrow::Cow::into_owned).ok_or_else(|| Answer::invalid_params(&message))
        };
        let mut arguments = params.arguments.map(ToOwned::to_owned);
        let target = match asked.method {
            "tools/call" => Target::Tool(need(params.name, "the tool's name")?),
            "prompts/get" => Target::Prompt(need(params.name, "the prompt's name")?),
            "resources/read" | "resources/subscribe" => {
                Target::Resource(need(params.uri, "the resource's uri")?)
            }
            // Which it is about is said for each of its resources.
            "subscriptions/listen" => Target::Nothing(String::new()),
            _ => {
                let params::Reference { kind, name, uri } = params.reference.unwrap_or_default();
                arguments = params::completion_arguments(params.argument, params.context);
                match (kind.as_deref(), name, uri) {
                    (Some("ref/prompt"), Some(name), _) => Target::PromptArgument(name.into_owned()),
                    (Some("ref/resource"), _, Some(uri)) => Target::TemplateVariable(uri.into_owned()),
                    _ => {
                        let message = "completion/complete needs ref: a ref/prompt with name or a ref/resource with uri";
                        return Err(Answer::invalid_params(message));
                    }
                }
            }
        };
        let conversation = &sender.conversation;
        let session = conversation.session();
        let meta = params.meta.unwrap_or_default();
        let task = match sender.era() {
            Era::Legacy => self.task_wanted(sender, params.task, &target)?,
            Era::Modern => None,
        };
        let (threshold, abilities) = match sender.era() {
            Era::Legacy => {
                (conversation.threshold(), conversation.abilities().clone().for_call(task.is_some()))
            }
            Era::Modern => {
                let level = meta.log_level.as_deref().and_then(Level::named);
                (level.map_or(Level::OFF, |level| level as u8), Abilities::read(meta.client_capabilities))
            }
        };
        let token = meta.progress_token.filter(|token| is_id(token)).map(ToOwned::to_owned);
        let wants = Wants {
            progress: token.is_some(),
            log_level: Level::of_threshold(threshold),
            trace: meta.trace(),
            task,
            ..Wants::default()
        };
        let (owed, turns) = (conversation.owed().clone(), sender.turns.clone());
        let asker = Asker { abilities, owed, turns, patience: self.controls.answer_timeout() };
        let (lifecycle, gauntlet) = (self.lifecycle.clone(), self.gauntlet.clone());
        let attendant = Arc::new(Attendant::new(token, threshold, outlet, asker, lifecycle, gauntlet));
        Ok(Call {
            parent: None,
            after_questions: false,
            is_source: false,
            wants,
            attendant,
            session: session.clone(),
            client: sender.conversation.client().to_owned(),
            // Whoever is not the anonymous agent has proved it at the edge.
            authenticated: session.principal() != &self.principal,
            grants: self.access.granted(session.principal()),
            groups: self.lifecycle.groups_of(session.principal()),
            access: self.access.clone(),
            message: asked.message.clone(),
            target,
            arguments,
            repairs: Vec::new(),
            cancel,
        })
    }

    fn list(&self, sender: &Sender, asked: &Asked<'_>) -> Answer {
        let cursor = match asked.params.map(Params::read) {
            None => None,
            Some(Ok(params)) => params.cursor,
            Some(Err(_)) => {
                return Answer::invalid_params("a list takes an object, with a cursor or without");
            }
        };
        let world = self.world.load();
        let principal = sender.conversation.session().principal();
        let grants = self.access.granted(principal);
        let mode = self.mode(sender);
        let (stand_ins, published, reached, besides);
        let mut list = match (asked.method, mode) {
            ("tools/list", mode) => {
                published = self.published(&world, sender, mode);
                match &published {
                    Some(published) => &published.list,
                    None => {
                        let catalogue = world.catalogue();
                        let orders = self.lifecycle.orders.load();
                        let namespaces = orders.namespaces(principal);
                        let view = world.shelf().view(catalogue, world.registry(), &grants, namespaces);
                        stand_ins = List::offered(&listed(mode, world.registry(), catalogue, &view));
                        &stand_ins
                    }
                }
            }
            (method, _) => match world.list(method) {
                Some(list) => {
                    let orders = self.lifecycle.orders.load();
                    reached = world.within(list, &grants, orders.namespaces(principal));
                    reached.as_ref().unwrap_or(list)
                }
                None => return Answer::unknown_method(method),
            },
        };
        if asked.method == "tools/list" {
            let own = self.own_tools_of(sender);
            if !own.is_empty() {
                besides = list.with(&own);
                list = &besides;
            }
            let (profile, principal) = (self.profile(&world, sender).name.clone(), principal.clone());
            self.readers.note(Read { profile, mode, principal });
        }
        match list.page(&world, sender.era(), cursor.as_deref(), (principal, &grants), &self.seal) {
            Ok(page) if asked.method == "tools/list" => {
                Answer::Result(self.with_task_support(sender, &world, page))
            }
            Ok(page) => Answer::Result(page),
            Err(listing::UnknownCursor) => {
                Answer::invalid_params("unknown cursor; the list may have changed: begin again without one")
            }
        }
    }

    fn discover(&self, sender: &Sender, mode: Mode) -> Bytes {
        let grants = self.access.granted(sender.conversation.session().principal());
        let mut capabilities = self.capabilities();
        if self.allows_tasks() {
            capabilities["extensions"] = json!({TASKS: {}});
        }
        let result = json!({
            "supportedVersions": SUPPORTED.map(Revision::as_str),
            "capabilities": capabilities,
            "instructions": self.instructions(sender, mode),
            "resultType": "complete",
            "ttlMs": listing::ttl_ms(&self.world.load(), &grants),
            "cacheScope": "private",
            "_meta": {
                "io.modelcontextprotocol/serverInfo": self.server_info(),
                "io.portcullis/servers": listing::outcomes(&self.world.load(), &grants),
            },
        });
        result.to_string().into()
    }

    /// The result of `initialize`.
    pub(crate) fn initialize(&self, revision: Revision, sender: &Sender, mode: Mode) -> Bytes {
        let grants = self.access.granted(sender.conversation.session().principal());
        let mut capabilities = self.capabilities();
        if revision.has_tasks() && self.allows_tasks() {
            capabilities["tasks"] = early_tasks::capability();
        }
        let result = json!({
            "protocolVersion": revision.as_str(),
            "capabilities": capabilities,
            "serverInfo": self.server_info(),
            "instructions": self.instructions(sender, mode),
            "_meta": {"io.portcullis/servers": listing::outcomes(&self.world.load(), &grants)},
        });
        result.to_string().into()
    }

    fn server_info(&self) -> Value {
        json!({"name": "portcullis", "title": "Portcullis", "version": self.version})
    }
}

/// `logging/setLevel`, which we answer ourselves.
fn set_level(sender: &Sender, asked: &Asked<'_>) -> Answer {
    let params = asked.params.and_then(|raw| Params::read(raw).ok());
    match params.and_then(|params| params.level).as_deref().and_then(Level::named) {
        Some(level) => {
            sender.conversation.set_level(level);
            Answer::Result(Bytes::from_static(b"{}"))
        }
        None => Answer::invalid_params("logging/setLevel takes a level from debug to emergency"),
    }
}

impl Answer {
    pub(crate) fn invalid_params(message: &str) -> Self {
        Answer::Error { code: -32602, message: message.into(), data: None }
    }

    pub(crate) fn unknown_method(method: &str) -> Self {
        let message = format!("method {} is not offered", portcullis_core::name::printable(method));
        Answer::Error { code: -32601, message, data: None }
    }

    /// PRO-4.
    pub(crate) fn unsupported_version(requested: &str) -> Self {
        let data = json!({"supported": SUPPORTED.map(Revision::as_str), "requested": one_line(requested)});
        Answer::Error { code: -32022, message: "unsupported protocol version".into(), data: Some(data) }
    }

    /// The request's id is that of another one under way.
    pub(crate) fn id_in_use() -> Self {
        let message = "the id is that of a request that is still being answered";
        Answer::Error { code: -32600, message: message.into(), data: None }
    }

    /// A server's own error passes with its code (PRO-70), beside where its evidence is.
    fn upstream(failure: UpstreamFailure, mark: Value) -> Self {
        let data = match failure.data {
            None => Some(json!({"io.portcullis/call": mark})),
            Some(Value::Object(mut data)) => {
                data.retain(|key, _| !key.starts_with("io.portcullis/"));
                data.insert("io.portcullis/call".into(), mark);
                Some(Value::Object(data))
            }
            other => other,
        };
        Answer::Error { code: failure.code, message: failure.message, data }
    }

    /// A refusal in the manner of what was asked: behind a meta-tool every one is a result (CTX-80).
    pub(crate) fn refused(document: ErrorDocument, era: Era, method: &str, manner: &Manner) -> Self {
        let Manner::Meta { id, item } = manner else { return Answer::refusal(&document, era, method) };
        let document = match item {
            Ok(meant) if document.error == ErrorCode::PathNotFound => {
                // It was there when it was resolved, and is no more (CTX-94).
                let message = "the tool has changed or was removed; look for it again";
                let mut gone = ErrorDocument::new(ErrorCode::HydrateFailed, one_line(id), message);
                gone.details = document.details;
                refusal::of_call(gone, id, Some(&meant.item), None)
            }
            Ok(meant) => refusal::of_call(document, id, Some(&meant.item), Some(meant.schema.clone())),
            Err(unknown) => match document.details.get("proposal_id") {
                Some(proposal) => unknown.clone().with("proposal_id", proposal.clone()),
                None => unknown.clone(),
            },
        };
        Answer::Result(refusal::as_result(&document, era).into())
    }

    /// Governance refusals are JSON-RPC errors; what the tool or its arguments got wrong is a result the model can
    /// read and act on (GOV-1601, CTX-80).
    fn refusal(document: &ErrorDocument, era: Era, method: &str) -> Self {
        use portcullis_core::ErrorCode::*;
        let mut data = serde_json::to_value(document).expect("an error document is plain JSON");
        if method == "resources/read" && document.error == PathNotFound {
            // Where clients of every revision look for what was not found.
            data["uri"] = json!(document.path);
        }
        // PRO-63
        if let (Era::Modern, Some(needs)) = (era, document.details.get(REQUIRED_CAPABILITIES)) {
            data[REQUIRED_CAPABILITIES] = needs.clone();
            return Answer::Error { code: -32021, message: document.message.clone(), data: Some(data) };
        }
        // Only a tool has results that say what went wrong.
        if method != "tools/call" && document.error == ArgsInvalid {
            return Answer::Error { code: -32602, message: document.message.clone(), data: Some(data) };
        }
        let for_the_model = method == "tools/call"
            && document.governed_fault().is_none()
            && matches!(
                document.error,
                ArgsInvalid | UpstreamError | ResultTooLarge | SchemaInvalid | RateLimited
            );
        if !for_the_model {
            return Answer::Error {
                code: document.rpc_code(),
                message: document.message.clone(),
                data: Some(data),
            };
        }
        Self::for_the_model(document, era)
    }

    /// A refusal as an error of the protocol, whatever it is about.
    fn as_error(document: &ErrorDocument) -> Self {
        let data = serde_json::to_value(document).expect("an error document is plain JSON");
        Answer::Error { code: document.rpc_code(), message: document.message.clone(), data: Some(data) }
    }

    /// A refusal that a model can read and act on (CTX-80).
    fn for_the_model(document: &ErrorDocument, era: Era) -> Self {
        let text = serde_json::to_string(document).expect("an error document is plain JSON");
        // As structure too, so that it survives clients that show only one of the two (SURF-80).
        let mut result = json!({"content": [{"type": "text", "text": text}], "structuredContent": document, "isError": true});
        if era == Era::Modern {
            result["resultType"] = json!("complete");
        }
        Answer::Result(result.to_string().into())
    }

    /// The same without an error document as structure, for clients that hold structure to the tool's schema even
    /// where a call failed (SURF-82).
    fn without_structured_error(self) -> Self {
        let Answer::Result(bytes) = &self else { return self };
        if !bytes.windows(17).any(|part| part == b"structuredContent") {
            return self;
        }
        let Ok(mut result) = serde_json::from_slice::<Value>(bytes) else { return self };
        let structured = &result["structuredContent"];
        let is_ours = structured["error"].is_string() && structured["retryable"].is_boolean();
        if result["isError"] != true || !is_ours {
            return self;
        }
        if let Some(members) = result.as_object_mut() {
            members.shift_remove("structuredContent");
        }
        Answer::Result(result.to_string().into())
    }

    fn code(&self) -> Option<i32> {
        match self {
            Answer::Result(_) => None,
            Answer::Error { code, .. } => Some(*code),
        }
    }

    pub(crate) fn into_response(self, id: &RawValue) -> Vec<u8> {
        match self {
            Answer::Result(result) => result_response(id, &result),
            Answer::Error { code, message, data } => error_response(Some(id), code, &message, data.as_ref()),
        }
    }
}
