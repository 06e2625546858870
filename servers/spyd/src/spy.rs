//! One frame in, and everything that follows from it.
//!
//! Each request is answered in a task of its own, so that a slow call holds up nobody. What a task may do to its
//! answer on the way out (delay it, double it, replace it, die) is decided by the switches as they were when the
//! frame came.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::oneshot;

use crate::catalogue;
use crate::control::{Control, ControlFile, Generation};
use crate::frame::{CAPABILITIES_KEY, Failure, Frame, Request};
use crate::frame_log::FrameLog;
use crate::offerings;
use crate::outbox::Outbox;
use crate::revision::{Era, MODERN, Revisions};
use crate::tools::{self, Progress};

const SERVER_KEY: &str = "io.modelcontextprotocol/serverInfo";
const SUBSCRIPTION_KEY: &str = "io.modelcontextprotocol/subscriptionId";
const CLIENT_PATIENCE: Duration = Duration::from_secs(10);
const CONTROL_POLL: Duration = Duration::from_millis(50);

/// The server, whatever the transport.
pub(crate) struct Spy {
    pub(crate) log: FrameLog,
    control: ControlFile,
    revisions: Revisions,
    announced: AtomicU64,
    updated: AtomicU64,
    asked: AtomicU64,
    connections: AtomicU64,
    listeners: Mutex<Vec<Listener>>,
    /// What the spy asked the client and still waits for.
    questions: Mutex<HashMap<String, oneshot::Sender<Value>>>,
    /// What legacy clients subscribed to, by connection.
    subscribed: Mutex<BTreeSet<(u64, String)>>,
    /// Requests being worked on, by connection and id.
    running: Mutex<HashMap<RunKey, oneshot::Sender<()>>>,
}

type RunKey = (u64, String);

/// Somebody to tell about a changed list, or changed resources.
struct Listener {
    key: RunKey,
    subscription: Option<Value>,
    tools: bool,
    /// Resources of a modern subscription; those of the legacy era belong to the connection.
    resources: BTreeSet<String>,
    outbox: Outbox,
}

/// What is known about the other side: one per stdio process, per HTTP session, or per modern HTTP request.
pub(crate) struct Connection {
    number: u64,
    era: Mutex<Option<Era>>,
    /// What a legacy client said at `initialize` that it can be asked.
    capabilities: Mutex<Value>,
    /// PRO-67: whether losing the reader of an answer cancels the request (a modern HTTP stream).
    closing_cancels: bool,
}

impl Connection {
    fn era(&self) -> Option<Era> {
        *lock(&self.era)
    }
}

/// One request being answered.
#[derive(Clone, Copy)]
struct Run<'a> {
    connection: &'a Connection,
    request: &'a Request,
    control: &'a Control,
    outbox: &'a Outbox,
}

type Outcome = Result<Value, Failure>;

impl Spy {
    pub(crate) fn new(log: FrameLog, control: ControlFile, revisions: Revisions) -> Self {
        Self {
            log,
            control,
            revisions,
            announced: AtomicU64::new(0),
            updated: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            listeners: Mutex::default(),
            questions: Mutex::default(),
            subscribed: Mutex::default(),
            running: Mutex::default(),
        }
    }

    /// A new other side; its era is settled by what it says unless `era` is known.
    pub(crate) fn connection(&self, era: Option<Era>, closing_cancels: bool) -> Arc<Connection> {
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        Arc::new(Connection { number, era: Mutex::new(era), capabilities: Mutex::default(), closing_cancels })
    }

    pub(crate) fn speaks(&self, era: Era) -> bool {
        self.revisions.speaks(era)
    }

    /// Notices a changed control file even while no frame comes, for the sake of `list_changed`.
    pub(crate) fn watch_control(self: Arc<Self>) {
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(CONTROL_POLL).await;
                self.switches();
            }
        });
    }

    /// The switches as they are now. Announces a changed list if they say so and somebody listens.
    pub(crate) fn switches(&self) -> Generation {
        let (generation, error) = self.control.read();
        if let Some(error) = error {
            self.log.event("bad_control", &[("error", error.into())]);
        }
        let times = generation.control.list_changed.times();
        let mut listeners = lock(&self.listeners);
        listeners.retain(|listener| !listener.outbox.is_closed());
        if times > 0
            && !listeners.is_empty()
            && self.announced.fetch_max(generation.number, Ordering::Relaxed) < generation.number
        {
            for listener in listeners.iter().filter(|listener| listener.tools) {
                let mut message = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
                if let Some(id) = &listener.subscription {
                    message["params"] = json!({ "_meta": { SUBSCRIPTION_KEY: id } });
                }
                (0..times).for_each(|_| listener.outbox.send(&message));
            }
        }
        self.say_updated(&generation, &listeners);
        generation
    }

    /// Tells who subscribed to what changed; if nobody has, it is said when somebody does.
    fn say_updated(&self, generation: &Generation, listeners: &[Listener]) {
        let subscribed = lock(&self.subscribed);
        let wants = |listener: &Listener, uri: &String| {
            let legacy = listener.subscription.is_none();
            listener.resources.contains(uri)
                || (legacy && subscribed.contains(&(listener.key.0, uri.clone())))
        };
        let uris = &generation.control.updated;
        let told: Vec<_> = (listeners.iter())
            .flat_map(|listener| uris.iter().map(move |uri| (listener, uri)))
            .filter(|(listener, uri)| wants(listener, uri))
            .collect();
        if told.is_empty()
            || self.updated.fetch_max(generation.number, Ordering::Relaxed) >= generation.number
        {
            return;
        }
        for (listener, uri) in told {
            let mut params = json!({ "uri": uri });
            if let Some(id) = &listener.subscription {
                params["_meta"] = json!({ SUBSCRIPTION_KEY: id });
            }
            let method = "notifications/resources/updated";
            let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
            (0..3).for_each(|_| listener.outbox.send(&message));
        }
    }

    /// `resources/subscribe` and `resources/unsubscribe` of the legacy era.
    fn subscription(&self, connection: &Connection, request: &Request) -> Outcome {
        let uri = request.params.get("uri").and_then(Value::as_str).unwrap_or_default();
        let key = (connection.number, uri.to_owned());
        if request.method == "resources/unsubscribe" {
            lock(&self.subscribed).remove(&key);
        } else if offerings::exists(uri) {
            lock(&self.subscribed).insert(key);
        } else {
            return Err(Failure::new(-32002, "no such resource"));
        }
        Ok(json!({}))
    }

    /// Adds a listener of the legacy era: the whole connection is its stream.
    pub(crate) fn listen(&self, connection: &Connection, outbox: Outbox) {
        let key = (connection.number, String::new());
        let resources = BTreeSet::new();
        lock(&self.listeners).push(Listener { key, subscription: None, tools: true, resources, outbox });
    }

    /// Acts on one frame, which the transport has logged already. Returns at once; answers go to the outbox.
    pub(crate) fn act(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        frame: Frame,
        control: Arc<Control>,
        outbox: Outbox,
    ) {
        match frame {
            Frame::Invalid(failure) => outbox.send(&failure.message(&Value::Null)),
            Frame::Answer(id, message) => {
                if let Some(waiting) = id.as_str().and_then(|id| lock(&self.questions).remove(id)) {
                    let _ = waiting.send(message);
                }
            }
            Frame::Notification { method, params } => {
                if method == "notifications/cancelled"
                    && let Some(id) = params.get("requestId")
                    && let Some(run) = lock(&self.running).remove(&(connection.number, id.to_string()))
                {
                    let _ = run.send(());
                }
            }
            Frame::Request(request) => {
                let key = (connection.number, request.id.to_string());
                let (cancel, cancelled) = oneshot::channel();
                lock(&self.running).insert(key.clone(), cancel);
                // Here and not in the task: two requests may be on their way at once, and the first one decides.
                let era = self.settle_era(connection, &request);
                let (spy, connection) = (self.clone(), connection.clone());
                tokio::spawn(async move {
                    let run = Run {
                        connection: &connection,
                        request: &request,
                        control: &control,
                        outbox: &outbox,
                    };
                    spy.answer(run, era, cancelled).await;
                    lock(&spy.running).remove(&key);
                    lock(&spy.listeners).retain(|listener| listener.key != key);
                });
            }
        }
    }

    async fn answer(&self, run: Run<'_>, era: Result<Era, Failure>, cancelled: oneshot::Receiver<()>) {
        let Run { connection, request, control, outbox } = run;
        let odd = control.misbehaves_on(&request.method);
        let probe = request.method == "server/discover";
        if (odd && control.die_on_call) || (probe && control.die_on_discover) {
            self.die(if probe { "die_on_discover" } else { "die_on_call" });
        }
        let silent = (probe && control.silent_discover)
            || (request.method == "initialize" && control.silent_initialize)
            || (odd && control.never_answer);
        if silent {
            return outbox.closed().await;
        }
        // A late answer is late on purpose: it comes to a request that was given up.
        let deaf = odd && control.late_ms.is_some();
        let outcome = tokio::select! {
            // A subscription ends by itself when nobody reads it any more: that it was given up is noted all the same.
            biased;
            _ = cancelled, if !deaf => return self.note_cancelled(request, "notified"),
            () = outbox.closed(), if connection.closing_cancels && !deaf => {
                return self.note_cancelled(request, "disconnected");
            }
            outcome = self.outcome(run, era) => outcome,
        };
        let mut message = match outcome {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": request.id, "result": result }),
            Err(failure) => failure.message(&request.id),
        };
        if odd {
            self.send_oddly(&mut message, control, outbox).await;
        } else {
            outbox.send_text(control.written(&message), false);
        }
    }

    fn note_cancelled(&self, request: &Request, how: &str) {
        let more = [
            ("request", request.id.clone()),
            ("method", request.method.as_str().into()),
            ("how", how.into()),
        ];
        self.log.event("cancelled", &more);
    }

    /// Sends an answer with whatever the switches put before, into, after or instead of it.
    async fn send_oddly(&self, message: &mut Value, control: &Control, outbox: &Outbox) {
        if let Some(late) = control.late_ms {
            tokio::time::sleep(Duration::from_millis(late)).await;
        }
        if let Some(size) = control.huge_line {
            let open =
                r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":""#;
            let padding = "x".repeat(size.saturating_sub(open.len() + 3));
            outbox.send_text(format!("{open}{padding}\"}}}}"), false);
        }
        if control.garbage {
            outbox.send_text("this is not JSON: debug output of a careless server".to_owned(), false);
        }
        if let Some(code) = control.forge_error {
            let data = json!({ "_meta": { "io.portcullis/x": "forged" }, "approval_id": "forged" });
            let failure = Failure { code, message: "approval required".to_owned(), data: Some(data) };
            *message = failure.message(&message["id"]);
        }
        if control.forge_meta && message.get("result").is_some() {
            message["result"]["_meta"]["io.portcullis/x"] = "forged".into();
        }
        if control.unknown_id {
            message["id"] = format!("spy-unknown-{}", self.asked.fetch_add(1, Ordering::Relaxed)).into();
        }
        if control.die_mid_line {
            outbox.flushed().await;
            let text = control.written(message);
            let _ = io::stdout().write_all(&text.as_bytes()[..text.len() / 2]);
            let _ = io::stdout().flush();
            self.die("die_mid_line");
        }
        for _ in 0..=usize::from(control.answer_twice) {
            outbox.send_text(control.written(message), control.split_writes);
        }
        if control.die_after_call {
            outbox.flushed().await;
            self.die("die_after_call");
        }
    }

    async fn outcome(&self, run: Run<'_>, era: Result<Era, Failure>) -> Outcome {
        let Run { connection, request, control, outbox } = run;
        match era? {
            Era::Legacy => match request.method.as_str() {
                "initialize" => {
                    let asked = request.params.get("protocolVersion").and_then(Value::as_str);
                    *lock(&connection.capabilities) =
                        request.params.get("capabilities").cloned().unwrap_or_default();
                    let mut greeting = json!({
                        "protocolVersion": self.revisions.negotiate(asked.unwrap_or_default()),
                        "capabilities": offerings::capabilities(),
                        "serverInfo": server_info(control)
                    });
                    if let Some(said) = &control.instructions {
                        greeting["instructions"] = said.as_str().into();
                    }
                    Ok(greeting)
                }
                "ping" => Ok(json!({})),
                "tools/list" => list(request, control, &lock(&connection.capabilities)),
                "tools/call" => self.call(request, control, outbox, Era::Legacy).await,
                "resources/subscribe" | "resources/unsubscribe" => self.subscription(connection, request),
                other => {
                    offerings::answer(request, control).unwrap_or_else(|| Err(Failure::unknown_method(other)))
                }
            },
            Era::Modern => {
                let mut result = match request.method.as_str() {
                    "server/discover" => cacheable(json!({
                        "supportedVersions": [MODERN],
                        "capabilities": offerings::capabilities()
                    })),
                    "tools/list" => {
                        let able = request.meta(CAPABILITIES_KEY).cloned().unwrap_or_default();
                        cacheable(list(request, control, &able)?)
                    }
                    "tools/call" => self.call(request, control, outbox, Era::Modern).await?,
                    "subscriptions/listen" => self.subscribe(connection, request, outbox).await,
                    other => match offerings::answer(request, control) {
                        Some(answer) => {
                            let answer = answer?;
                            if matches!(other, "prompts/get" | "completion/complete") {
                                answer
                            } else {
                                cacheable(answer)
                            }
                        }
                        None => return Err(Failure::unknown_method(other)),
                    },
                };
                if result.get("resultType").is_none() {
                    result["resultType"] = "complete".into();
                }
                result["_meta"][SERVER_KEY] = server_info(control);
                Ok(result)
            }
        }
    }

    /// The era is that of the first request which fits one (PRO-62).
    fn settle_era(&self, connection: &Connection, request: &Request) -> Result<Era, Failure> {
        let method = request.method.as_str();
        let era = match connection.era() {
            Some(era) => era,
            None if method == "initialize" => Era::Legacy,
            None if request.version().is_some() || method == "server/discover" => Era::Modern,
            None if !self.speaks(Era::Legacy) => Era::Modern,
            None => Era::Legacy,
        };
        if !self.speaks(era) || (era == Era::Modern && method == "initialize") {
            return Err(Failure::unknown_method(method));
        }
        if era == Era::Modern {
            request.check_modern()?;
        } else if connection.era().is_none() && !matches!(method, "initialize" | "ping") {
            return Err(Failure::new(-32600, "the first request of a session is initialize"));
        }
        if method != "ping" {
            *lock(&connection.era) = Some(era);
        }
        Ok(era)
    }

    async fn call(&self, request: &Request, control: &Control, outbox: &Outbox, era: Era) -> Outcome {
        let name = request.params.get("name").and_then(Value::as_str).unwrap_or_default();
        let none = Map::new();
        let arguments = request.params.get("arguments").and_then(Value::as_object).unwrap_or(&none);
        let questions = control.server_request.as_slice();
        let answers = match era {
            Era::Legacy => {
                let mut answers = Vec::new();
                for method in questions {
                    answers.push(self.ask(method, outbox).await);
                }
                answers
            }
            // The modern era asks by ending the call; how far we got is in the state the client brings back.
            Era::Modern => {
                let state = request.params.get("requestState").and_then(Value::as_str);
                let round: usize = state
                    .and_then(|state| state.strip_prefix("spy:"))
                    .and_then(|n| n.parse().ok())
                    .unwrap_or(0);
                if let Some(method) = questions.get(round) {
                    return Ok(json!({
                        "resultType": "input_required",
                        "inputRequests": { format!("q{round}"): { "method": method, "params": question(method) } },
                        "requestState": format!("spy:{}", round + 1)
                    }));
                }
                request.params.get("inputResponses").cloned().into_iter().collect()
            }
        };
        if let Some(level) = &control.log {
            let params = json!({ "level": level, "logger": "inner", "data": "spy <b>logs</b>" });
            for _ in 0..control.log_times.unwrap_or(1) {
                outbox
                    .send(&json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": params }));
            }
        }
        if control.isolate != Default::default() {
            let (attempts, log) = (&control.isolate, &self.log);
            tokio::task::block_in_place(|| tools::attempt(attempts, log));
        }
        let progress = Progress { token: request.meta("progressToken").cloned(), outbox };
        let mut result = tools::call(control, name, arguments, progress).await?;
        let content = result.get_mut("content").and_then(Value::as_array_mut);
        if let (false, Some(content)) = (answers.is_empty(), content) {
            content.push(json!({ "type": "text", "text": json!({ "answers": answers }).to_string() }));
        }
        Ok(result)
    }

    /// Asks the client, in the middle of its call.
    async fn ask(&self, method: &str, outbox: &Outbox) -> Value {
        let id = format!("spy-{}", self.asked.fetch_add(1, Ordering::Relaxed));
        let (sender, receiver) = oneshot::channel();
        lock(&self.questions).insert(id.clone(), sender);
        outbox.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": question(method) }));
        match tokio::time::timeout(CLIENT_PATIENCE, receiver).await {
            Ok(Ok(answer)) => answer,
            _ => json!("no answer"),
        }
    }

    /// Grants a subscription, which ends only with its reader or by cancellation.
    async fn subscribe(&self, connection: &Connection, request: &Request, outbox: &Outbox) -> Value {
        let wanted = request.params.get("notifications").cloned().unwrap_or_default();
        let mut granted = json!({});
        let tools = wanted["toolsListChanged"] == true;
        if tools {
            granted["toolsListChanged"] = true.into();
        }
        let resources: BTreeSet<String> = (wanted["resourceSubscriptions"].as_array().into_iter().flatten())
            .filter_map(|uri| uri.as_str().filter(|uri| offerings::exists(uri)).map(str::to_owned))
            .collect();
        if !resources.is_empty() {
            granted["resourceSubscriptions"] = json!(resources);
        }
        if tools || !resources.is_empty() {
            let key = (connection.number, request.id.to_string());
            let subscription = Some(request.id.clone());
            lock(&self.listeners).push(Listener {
                key,
                subscription,
                tools,
                resources,
                outbox: outbox.clone(),
            });
        }
        outbox.send(&json!({
            "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": { "_meta": { SUBSCRIPTION_KEY: request.id }, "notifications": granted }
        }));
        outbox.closed().await;
        json!({ "_meta": { SUBSCRIPTION_KEY: request.id } })
    }

    /// Returns when no request is being answered any more; a subscription or a silent one may keep it for ever.
    pub(crate) async fn idle(&self) {
        while !lock(&self.running).is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Notes the end of the process.
    pub(crate) fn end(&self, reason: &str) {
        self.log.event("stop", &[("reason", reason.into())]);
    }

    fn die(&self, reason: &str) -> ! {
        self.end(reason);
        let _ = writeln!(io::stderr(), "spyd: {reason}");
        std::process::exit(1)
    }
}

fn list(request: &Request, control: &Control, able: &Value) -> Outcome {
    let cursor = request.params.get("cursor").and_then(Value::as_str);
    let (mut tools, next) =
        catalogue::page(control, cursor).ok_or_else(|| Failure::new(-32602, "no such cursor"))?;
    tools.retain(|tool| {
        let needed = tool["name"].as_str().and_then(|name| control.needs.get(name));
        needed.is_none_or(|needed| able.get(needed).is_some())
    });
    let mut result = json!({ "tools": tools });
    if control.verbatim.contains_key("tools") {
        result["tools"] = "@tools@".into();
    }
    if let Some(next) = next {
        result["nextCursor"] = next.into();
    }
    Ok(result)
}

/// It says that everything may be kept for a day and shared with everybody: nobody in between may believe it.
fn cacheable(mut result: Value) -> Value {
    result["ttlMs"] = 86_400_000.into();
    result["cacheScope"] = "public".into();
    result
}

fn question(method: &str) -> Value {
    match method {
        "sampling/createMessage" => json!({
            "messages": [{ "role": "user", "content": { "type": "text", "text": "The spy asks." } }],
            "maxTokens": 16
        }),
        "elicitation/create" => json!({
            "mode": "form",
            "message": "The spy asks.",
            "requestedSchema": {
                "type": "object",
                "properties": { "answer": { "type": "string" } },
                "required": ["answer"]
            }
        }),
        _ => json!({}),
    }
}

fn server_info(control: &Control) -> Value {
    json!({ "name": "spy", "version": control.version.as_deref().unwrap_or("1.0.0") })
}

/// A poisoned lock is as good as another: no state here spans a panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
