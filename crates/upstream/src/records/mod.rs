//! The built-in adapter for records servers (REC): a grant-scoped resource server of personal data as thirteen tools.
//!
//! It is a server like any other to everybody above: greeted, listed, called with a validated permit's frame, and what it
//! answers goes through evidence, gauntlet and redaction. Only that it lives in this process (`boundary_kind: builtin`), so
//! there is nothing to start and nothing to confine, and that it holds the bearer, which never leaves it but in one header to
//! the registered host.
//!
//! | module | the idea |
//! |---|---|
//! | [`tools`] | what is published, byte for byte, and the declaration of it |
//! | [`arguments`] | checked arguments as one HTTP request |
//! | [`http`] | one exchange, bounded, with one header that is secret |
//! | [`credential`] | where the bearer comes from, and which kinds of it are refused |
//! | [`expand`] | the expand gate |
//! | [`answers`], [`summary`] | what a model gets of an answer: structure and a few lines |
//! | [`hooks`] | deliveries of change events to the gateway itself |
//! | [`refusal`] | errors in the words of every other tool's |

mod answers;
mod arguments;
pub(crate) mod credential;
pub mod expand;
pub mod hooks;
mod http;
mod refusal;
mod summary;
pub mod tools;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use portcullis_governance::boundary::{CancellationSignal, Outcome, TransmitFailure};
use portcullis_governance::endpoint::HttpEndpoint;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::event::{Events, UpstreamEvent};
use crate::link::{Answer, Exchange};
use crate::settings::Settings;
use arguments::Prepared;
use credential::Credential;
pub use credential::is_named_like_an_owner;
use expand::ExpandGate;
use hooks::Hooks;
use http::{Exchanged, Http};
use refusal::Refusal;

/// What an operator may set for one records server (REC-3).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RecordsOptions {
    /// Whether change events can be subscribed to.
    pub events: EventsMode,
    /// Where deliveries may go: https prefixes. None means nowhere.
    pub callback_allow: Vec<String>,
    /// The https base under which the records server reaches our listener (`gateway`).
    pub public_url: String,
    /// Whether the gate also judges the relations that are asked for (REC-65).
    pub strict_relations: bool,
    /// Whether a token is used of which the server does not say what kind it is.
    pub allow_unlabelled_token: bool,
    /// Whether its tools have their own names, without the server's: some clients look for tools called exactly `search`
    /// and `fetch`. There is no room for another server then.
    pub bare_names: bool,
    /// How long opening a connection may take.
    pub connect_timeout_ms: u64,
    /// How long one request may take.
    pub timeout_ms: u64,
    /// How long an answer may be.
    pub max_body_bytes: usize,
}

/// Who receives change events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventsMode {
    /// Receivers that the operator allows.
    #[default]
    External,
    /// The gateway itself.
    Gateway,
    /// Nobody: the tools are not there.
    Off,
}

impl Default for RecordsOptions {
    fn default() -> Self {
        Self {
            events: EventsMode::External,
            callback_allow: Vec::new(),
            public_url: String::new(),
            strict_relations: false,
            allow_unlabelled_token: false,
            bare_names: false,
            connect_timeout_ms: 5_000,
            timeout_ms: 30_000,
            max_body_bytes: 8 << 20,
        }
    }
}

/// Where a records server is, and where its bearer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordsEndpoint {
    /// Its base.
    pub url: HttpEndpoint,
    /// The file that holds the bearer.
    pub credential_file: PathBuf,
}

/// The adapter, as something that carries exchanges.
#[derive(Debug)]
pub(crate) struct RecordsLink {
    options: RecordsOptions,
    http: Http,
    credential: Credential,
    gate: ExpandGate,
    events: Events,
    /// Subscriptions that deliver to us.
    hooks: Arc<Hooks>,
    server: String,
    in_flight: Arc<AtomicUsize>,
    /// Whether the server said that the grant is gone, and nothing worked since (REC-75).
    without_grant: AtomicBool,
}

/// A `tools/call`, as far as it is understood here.
#[derive(Deserialize)]
struct Message {
    params: Params,
}

#[derive(Deserialize)]
struct Params {
    name: String,
    #[serde(default)]
    arguments: Value,
}

impl RecordsLink {
    pub(crate) fn new(
        server: &str,
        endpoint: &RecordsEndpoint,
        options: RecordsOptions,
        settings: &Settings,
        events: Events,
    ) -> Self {
        let timeouts =
            (Duration::from_millis(options.connect_timeout_ms), Duration::from_millis(options.timeout_ms));
        let http =
            Http::new(endpoint.url.url().clone(), timeouts, options.max_body_bytes, &settings.client_version);
        let gate = ExpandGate::new(options.strict_relations, settings.records_gate.clone());
        let credential = Credential::new(endpoint.credential_file.clone(), options.allow_unlabelled_token);
        Self {
            options,
            http,
            credential,
            gate,
            events,
            hooks: settings.records_hooks.clone(),
            server: server.to_owned(),
            in_flight: Arc::default(),
            without_grant: AtomicBool::new(false),
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Acquire)
    }

    pub(crate) async fn exchange(&self, exchange: Exchange<'_>, mut cancel: CancellationSignal) -> Answer {
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        let answered = async {
            match exchange.method {
                "server/discover" => self.discover().await,
                "tools/list" => Answer::Of(Outcome::Result(tools::listed(self.options.events).into())),
                "tools/call" => self.call(exchange.bytes, exchange.max_response_bytes).await,
                _ => Answer::Of(Outcome::RpcError(Bytes::from_static(
                    br#"{"code":-32601,"message":"unknown method"}"#,
                ))),
            }
        };
        let answer = tokio::select! {
            answered = tokio::time::timeout(exchange.timeout, answered) => {
                answered.unwrap_or_else(|_| Answer::failed(TransmitFailure::Timeout))
            }
            () = cancel.cancelled() => Answer::failed(TransmitFailure::Cancelled),
        };
        self.in_flight.fetch_sub(1, Ordering::AcqRel);
        answer
    }

    /// Who we are; and that the bearer is one that may be used at all (REC-10).
    async fn discover(&self) -> Answer {
        if let Err(refusal) = self.credential.usable(&self.http).await {
            self.tell_of(&refusal);
            return Answer::unavailable(refusal.message, false);
        }
        let greeting = json!({
            "supportedVersions": [crate::era::MODERN_REVISION],
            "capabilities": {"tools": {}},
            "resultType": "complete",
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "portcullis-records", "version": tools::VERSION}},
        });
        Answer::Of(Outcome::Result(greeting.to_string().into()))
    }

    async fn call(&self, message: &[u8], most: usize) -> Answer {
        let Ok(Message { params }) = serde_json::from_slice::<Message>(message) else {
            return Answer::protocol("a call that is not one");
        };
        let mut trace = Vec::new();
        let result = match self.called(&params, &mut trace).await {
            Ok(result) => {
                if self.without_grant.swap(false, Ordering::AcqRel) {
                    self.events.emit(UpstreamEvent::CredentialUsable);
                }
                result
            }
            Err(refusal) => {
                self.tell_of(&refusal);
                refusal.result(&format!("{}/{}", self.server, params.name))
            }
        };
        let bytes = with_trace(result, &trace).to_string();
        if bytes.len() > most {
            return Answer::Of(crate::link::too_large(bytes.len(), bytes.as_bytes()));
        }
        Answer::Of(Outcome::Result(bytes.into()))
    }

    /// Arguments, credential, gate, request, answer; each in its order (REC-30).
    async fn called(&self, params: &Params, trace: &mut Vec<Value>) -> Result<Value, Refusal> {
        let mut prepared = Prepared::new(&params.name, &params.arguments, &self.options)?;
        let token = self.credential.usable(&self.http).await?;
        if let Some(subject) = &prepared.gated {
            let judged = self.gate.judge(&self.http, &token, subject, &params.arguments).await;
            trace.push(judged.note);
            let indecision = self.gate.indecision();
            let was_alarming = indecision.never_decides();
            if indecision.count(judged.verdict) {
                let (unknown_subject, source_error) = indecision.undecided();
                self.events.emit(UpstreamEvent::GateNeverDecides {
                    gate: expand::ID.into(),
                    unknown_subject,
                    source_error,
                });
            }
            if was_alarming && !indecision.never_decides() {
                self.events.emit(UpstreamEvent::GateDecides { gate: expand::ID.into() });
            }
            if let Some(refusal) = judged.refusal {
                return Err(refusal);
            }
        }
        let hook = self.expect_delivery(&params.name, &mut prepared);
        let sent = self.http.send(&prepared.request, &token).await;
        if let Some(hook) = hook.as_ref().filter(|_| !sent.as_ref().is_ok_and(|sent| sent.status == 201)) {
            self.hooks.forget(hook);
        }
        let exchanged = sent?;
        trace.push(exchanged.note(&prepared.request));
        let Exchanged { status, body, request_id } = exchanged;
        if !(200..300).contains(&status) {
            if params.name == "discover_event_subscription_capabilities" && status == 404 {
                return Ok(answers::unsupported());
            }
            return Err(Refusal::upstream(status, &body));
        }
        let mut body = self.without_secret(body, hook.as_deref())?;
        let subscription =
            params.arguments.get("subscription_id").and_then(Value::as_str).unwrap_or_default();
        match params.name.as_str() {
            "get_event_subscription" => {
                if let Some(received) = self.hooks.received(&self.server, subscription) {
                    body["received"] = received;
                }
            }
            "delete_event_subscription" => self.hooks.end(&self.server, subscription),
            _ => {}
        }
        answers::made(params, &prepared, body, request_id)
    }

    /// The address for deliveries to us exists before anybody is told of it (REC-71).
    fn expect_delivery(&self, tool: &str, prepared: &mut Prepared) -> Option<String> {
        if tool != "create_event_subscription" || self.options.events != EventsMode::Gateway {
            return None;
        }
        let token = self.hooks.expect(&self.server);
        let base = self.options.public_url.trim_end_matches('/');
        if let Some(body) = &mut prepared.request.body {
            body["callback_url"] = json!(format!("{base}/records/{}/{token}", self.server));
        }
        Some(token)
    }

    /// The signing secret stays with who verifies deliveries: us, or whoever an operator takes it out for (REC-70).
    fn without_secret(&self, mut body: Value, hook: Option<&str>) -> Result<Value, Refusal> {
        let Some(secret) = body.get("secret").and_then(Value::as_str).map(ToOwned::to_owned) else {
            return Ok(body);
        };
        let id = body.get("subscription_id").or_else(|| body.pointer("/subscription/subscription_id"));
        let id = id.and_then(Value::as_str).unwrap_or_default().to_owned();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(now.as_secs()).unwrap_or(0);
        let kept = match hook {
            Some(hook) => self.hooks.key(hook, &id, &secret),
            None if self.hooks.rotate(&self.server, &id, &secret, now) => Ok(()),
            None => self.hooks.hold(&self.server, &id, &secret),
        };
        kept.map_err(|_| Refusal::internal("the signing secret cannot be kept; the subscription exists, but nobody can verify its deliveries"))?;
        body["secret"] = json!("[held by gateway]");
        // The address of a hook is worth as much as its key.
        for place in ["/callback_url", "/subscription/callback_url"] {
            if let Some(url) = body.pointer_mut(place).filter(|_| self.options.events == EventsMode::Gateway)
            {
                *url = json!("[held by gateway]");
            }
        }
        Ok(body)
    }

    fn tell_of(&self, refusal: &Refusal) {
        if refusal.code == credential::OWNER {
            self.events.emit(UpstreamEvent::OwnerCredential);
        }
        if let Some(code) = refusal.ends_the_grant()
            && !self.without_grant.swap(true, Ordering::AcqRel)
        {
            self.events.emit(UpstreamEvent::CredentialUnavailable { code: code.to_owned() });
        }
    }
}

/// What was exchanged, where evidence has it and no agent sees it.
fn with_trace(mut result: Value, trace: &[Value]) -> Value {
    result["_meta"]["io.portcullis/exchanges"] = json!(trace);
    result["resultType"] = json!("complete");
    result
}
