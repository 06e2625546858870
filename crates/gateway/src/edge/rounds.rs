//! Rounds of input: a request that comes back with questions, and is asked again with their answers (PRO §4).
//!
//! A modern server ends a call with `input_required`; a legacy server asks in the middle of it. A modern client gets
//! either as `input_required` with a state of ours, sealed and bound to who asked what; a legacy client gets either
//! as requests on the stream of its call.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use portcullis_core::canon::to_jcs;
use portcullis_core::digest::to_hex;
use portcullis_core::error::{ErrorDocument, Fault};
use portcullis_core::jsonrpc::Message;
use portcullis_core::{ErrorCode, ProposalId, Sha256Digest};
use portcullis_gauntlet::Clean;
use portcullis_governance::declaration::ServerRequest;
use portcullis_governance::registry::ToolEntry;
use portcullis_upstream::{Input, Unanswered};
use rand::RngExt as _;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::conversation::Conversation;
use super::questions::{self, Question};
use super::{Answer, Edge, Era, Params, Sender};
use crate::lifecycle::Violation;
use crate::target::Target;
use crate::world::World;

/// GOV-408.
pub(super) const ROUNDS: u32 = 4;
/// The longest state handed to a client.
const LONGEST_STATE: usize = 64 << 10;
/// The one key under which a legacy server's question is put.
const ONLY: &str = "question";

/// Questions that may be put, by the server's own keys, and the state it wants back.
#[derive(Debug)]
pub(super) struct Required {
    pub(super) questions: BTreeMap<String, Question>,
    pub(super) state: Option<String>,
    /// Whether the server hears nothing of the answers: it is called again as it was (PRO-70).
    pub(super) is_plain: bool,
}

/// What is inside a request state of ours.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Carried {
    expires: u64,
    round: u32,
    /// The proposal whose questions these are.
    parent: Option<ProposalId>,
    /// The modern server's own state.
    upstream: Option<String>,
    /// The call that waits here for a legacy server's question.
    parked: Option<String>,
    /// Whether the questions are pages to be visited, of which the server hears nothing.
    pages: bool,
    questions: BTreeMap<String, Question>,
}

/// A question in the middle of a call whose client can only be asked by ending it.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) question: Question,
    pub(crate) answer: oneshot::Sender<Value>,
}

/// A call under way.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) task: JoinHandle<Option<Answer>>,
    pub(super) turns: mpsc::UnboundedReceiver<Turn>,
    pub(super) round: u32,
}

/// Calls that wait for their clients to come back.
#[derive(Debug, Default)]
pub(super) struct Parking(Mutex<HashMap<String, (Running, oneshot::Sender<Value>)>>);

impl Parking {
    fn park(&self, running: Running, answer: oneshot::Sender<Value>) -> String {
        let id = to_hex(&rand::rng().random::<[u8; 16]>());
        let mut parked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Who was not fetched in time has been told so, and has gone on without an answer.
        parked.retain(|_, (_, answer)| !answer.is_closed());
        parked.insert(id.clone(), (running, answer));
        id
    }

    fn fetch(&self, id: &str) -> Option<(Running, oneshot::Sender<Value>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(id)
    }
}

/// What a state is bound to: who asked for what, with which arguments, of which registration (PRO-11). Worked out when a
/// state is handed out or comes back, which few requests see.
#[derive(Debug, Clone)]
pub(crate) struct Bound {
    conversation: Arc<Conversation>,
    message: Bytes,
    /// As it was when the request came.
    world: Arc<World>,
}

impl Bound {
    pub(super) fn new(sender: &Sender, message: &Bytes, world: Arc<World>) -> Self {
        Self { conversation: sender.conversation.clone(), message: message.clone(), world }
    }

    /// None for what no state can be handed out for.
    fn parts(&self) -> Option<[String; 6]> {
        let asked = Message::read(&self.message)?;
        let (method, params) = (asked.method?, Params::read(asked.params?).ok()?);
        let target = match &*method {
            "prompts/get" => params.name.as_deref().map(|name| Target::Prompt(name.to_owned())),
            "resources/read" => params.uri.as_deref().map(|uri| Target::Resource(uri.to_owned())),
            _ => params.name.as_deref().map(|name| Target::Tool(name.to_owned())),
        };
        let found = target.and_then(|target| target.find(self.world.registry()));
        let epoch = found.map(|found| found.entry.tool.epoch().to_string()).unwrap_or_default();
        let arguments = params.arguments.map_or("{}", RawValue::get);
        let canonical = serde_json::from_str::<Value>(arguments).ok().and_then(|value| to_jcs(&value).ok());
        let name = params.name.or(params.uri).unwrap_or_default();
        Some([
            "state".into(),
            self.conversation.session().principal().to_string(),
            method.into_owned(),
            name.into_owned(),
            Sha256Digest::of(&canonical.unwrap_or_default()).to_string(),
            epoch,
        ])
    }
}

impl Edge {
    /// Waits for what comes next of a call: its answer, or a question that ends this round.
    pub(super) async fn next_turn(&self, mut running: Running, bound: &Bound) -> Option<Answer> {
        tokio::select! {
            biased;
            Some(Turn { question, answer }) = running.turns.recv() => {
                let round = running.round + 1;
                running.round = round;
                let parked = self.parking.park(running, answer);
                let questions = BTreeMap::from([(ONLY.to_owned(), question)]);
                Some(self.input_required(questions, Origin::Parked(parked), round, bound))
            }
            done = &mut running.task => done.ok().flatten(),
        }
    }

    /// The answers a client came back with: for a parked call, which goes on, or for a new call of a modern server.
    pub(super) fn came_back(&self, params: &Params<'_>, bound: &Bound) -> Result<CameBack, Answer> {
        let Some(raw) = params.request_state else {
            // Answers to what nobody asked yet: they count if it is asked, and are judged then.
            let given = params.input_responses.and_then(|raw| serde_json::from_str(raw.get()).ok());
            return Ok(CameBack::Anew(given.unwrap_or_default()));
        };
        let Ok(state) = serde_json::from_str::<String>(raw.get()) else {
            return Err(Answer::invalid_params("requestState is a text that was handed out here"));
        };
        let opened = (bound.parts())
            .and_then(|parts| self.seal.open(&parts.each_ref().map(String::as_str), &state))
            .and_then(|text| serde_json::from_slice::<Carried>(&text).ok());
        let now = self.lifecycle.clock.now().as_millis();
        let Some(carried) = opened.filter(|carried| now < carried.expires) else {
            return Err(Answer::invalid_params(
                "this requestState is unknown, changed or expired; begin again without it",
            ));
        };
        let given =
            params.input_responses.and_then(|raw| serde_json::from_str::<Map<String, Value>>(raw.get()).ok());
        let mut given = given.unwrap_or_default();
        let mut responses = Map::new();
        for (key, question) in &carried.questions {
            let Some(answer) = given.remove(key) else { continue };
            match questions::judge(question, answer) {
                Ok(answer) => responses.insert(key.clone(), answer),
                Err(Unanswered::Refused { message, .. }) => return Err(Answer::invalid_params(&message)),
                Err(Unanswered::Undeclared) => return Err(Answer::invalid_params("an answer to nothing")),
            };
        }
        match carried.parked {
            Some(id) => {
                let Some(answer) = responses.remove(ONLY) else {
                    // The question stands; the call waits on.
                    let (questions, round) = (carried.questions, carried.round);
                    return Ok(CameBack::Unanswered { questions, origin: Origin::Parked(id), round });
                };
                let gone = || Answer::invalid_params("the call no longer waits for this answer; begin again");
                let (running, waiting) = self.parking.fetch(&id).ok_or_else(gone)?;
                waiting.send(answer).map_err(|_| gone())?;
                Ok(CameBack::Parked(running))
            }
            None if carried.pages => visited(carried, &responses),
            None => {
                let input = Some(Input { responses: Value::Object(responses), state: carried.upstream });
                Ok(CameBack::Again(Again { input, round: carried.round, parent: carried.parent }))
            }
        }
    }

    /// Reads a modern server's questions and holds each to the declaration.
    pub(super) fn required(&self, entry: &ToolEntry, result: &[u8]) -> Result<Required, Box<ErrorDocument>> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Raw {
            #[serde(default)]
            input_requests: BTreeMap<String, Asked>,
            #[serde(default)]
            request_state: Option<String>,
        }
        #[derive(Deserialize)]
        struct Asked {
            method: String,
            #[serde(default)]
            params: Option<Box<RawValue>>,
        }
        let unreadable = |_| {
            let message = "the server's questions are not readable";
            Box::new(ErrorDocument::new(ErrorCode::UpstreamError, entry.tool.id().short(), message))
        };
        let raw: Raw = serde_json::from_slice(result).map_err(unreadable)?;
        let empty = || RawValue::from_string("{}".into()).expect("an empty object");
        let asked = (raw.input_requests.into_iter())
            .map(|(key, asked)| (key, asked.method, asked.params.unwrap_or_else(empty)));
        let questions = self.prepared(entry, asked)?;
        Ok(Required { questions, state: raw.request_state, is_plain: false })
    }

    /// The pages that a server wants visited first, each an elicitation like any other (PRO-70).
    pub(super) fn required_pages(
        &self,
        entry: &ToolEntry,
        pages: &[Clean<Value>],
    ) -> Result<Required, Box<ErrorDocument>> {
        let method = ServerRequest::Elicitation.method();
        let asked = pages.iter().enumerate().map(|(index, page)| {
            let params = serde_json::value::to_raw_value(page.get()).expect("a value is JSON");
            (format!("page{index}"), method.to_owned(), params)
        });
        Ok(Required { questions: self.prepared(entry, asked)?, state: None, is_plain: true })
    }

    /// Each question as it may be put, or why one may not.
    fn prepared(
        &self,
        entry: &ToolEntry,
        asked: impl Iterator<Item = (String, String, Box<RawValue>)>,
    ) -> Result<BTreeMap<String, Question>, Box<ErrorDocument>> {
        let path = entry.tool.id().short();
        let mut questions = BTreeMap::new();
        for (index, (key, method, params)) in (0..).zip(asked) {
            match questions::prepare(entry, &method, &params, index, None) {
                Ok(question) => {
                    questions.insert(key, question);
                }
                Err(Unanswered::Refused { message, .. }) => {
                    return Err(Box::new(ErrorDocument::new(ErrorCode::UpstreamError, path, message)));
                }
                Err(Unanswered::Undeclared) => {
                    // MP-FH-005: as if a legacy server had asked.
                    let fault = Fault::UngovernedSurface;
                    let shown = portcullis_core::name::printable(&method);
                    let reason = format!("it asked the client for {shown}, which is not declared");
                    entry.server.live.halt();
                    let server = entry.tool.id().server().clone();
                    let _ = self.lifecycle.violations.send(Violation {
                        server,
                        fault,
                        tools: Vec::new(),
                        reason: reason.clone(),
                    });
                    return Err(Box::new(ErrorDocument::fault(fault, path, reason)));
                }
            }
        }
        Ok(questions)
    }

    /// `input_required` for a modern client.
    pub(super) fn input_required(
        &self,
        questions: BTreeMap<String, Question>,
        origin: Origin,
        round: u32,
        bound: &Bound,
    ) -> Answer {
        let requests: Map<String, Value> = (questions.iter())
            .map(|(key, question)| {
                (key.clone(), json!({"method": question.method, "params": question.params}))
            })
            .collect();
        // PRO §4: as long as a client may take to come back.
        let life = u64::try_from(self.controls.answer_timeout().as_millis()).unwrap_or(u64::MAX);
        let expires = self.lifecycle.clock.now().as_millis().saturating_add(life);
        let (parent, upstream, parked, pages) = match origin {
            Origin::Parked(id) => (None, None, Some(id), false),
            Origin::Server { proposal, state } => (Some(proposal), state, None, false),
            Origin::Pages { proposal } => (Some(proposal), None, None, true),
        };
        let carried = Carried { expires, round, parent, upstream, parked, pages, questions };
        let text = serde_json::to_vec(&carried).expect("plain values are JSON");
        if text.len() > LONGEST_STATE {
            let message = "the server's questions are too long to be carried".into();
            return Answer::Error { code: -32603, message, data: None };
        }
        let Some(parts) = bound.parts() else {
            return Answer::Error { code: -32603, message: "internal error".into(), data: None };
        };
        let result = json!({
            "resultType": "input_required",
            "inputRequests": requests,
            "requestState": self.seal.close(&parts.each_ref().map(String::as_str), &text),
        });
        Answer::Result(result.to_string().into())
    }
}

/// A server that wanted pages visited is called again once all of them were opened. Whoever does not want to open one does
/// not want the call.
fn visited(carried: Carried, responses: &Map<String, Value>) -> Result<CameBack, Answer> {
    let Carried { round, parent, questions, .. } = carried;
    if responses.values().any(|answer| answer["action"] != "accept") {
        let message = "the page that the server wants visited first was not opened";
        let document = ErrorDocument::new(ErrorCode::UpstreamError, "elicitation/create", message);
        return Err(Answer::for_the_model(&document.with("code", "declined"), Era::Modern));
    }
    match parent {
        Some(proposal) if responses.len() < questions.len() => {
            Ok(CameBack::Unanswered { questions, origin: Origin::Pages { proposal }, round })
        }
        _ => Ok(CameBack::Again(Again { input: None, round, parent })),
    }
}

/// How a client came back.
pub(super) enum CameBack {
    /// With nothing that was asked for: as if it came for the first time, with answers to what it expects to be asked.
    Anew(Map<String, Value>),
    /// Without the answer that is waited for.
    Unanswered { questions: BTreeMap<String, Question>, origin: Origin, round: u32 },
    /// To a call that waited here.
    Parked(Running),
    /// With input for a new call.
    Again(Again),
}

/// What a call that is made again brings along.
#[derive(Debug)]
pub(super) struct Again {
    /// For the server; nothing where it is called again as it was.
    pub(super) input: Option<Input>,
    pub(super) round: u32,
    pub(super) parent: Option<ProposalId>,
}

impl Required {
    /// The answers to all of the questions, if a client gave them before it was asked and they fit. They are used once.
    pub(super) fn answered_by(&self, given: &mut Map<String, Value>) -> Option<Value> {
        if self.is_plain {
            return None;
        }
        let given = std::mem::take(given);
        let judged = |(key, question): (&String, &Question)| {
            let answer = questions::judge(question, given.get(key)?.clone()).ok()?;
            Some((key.clone(), answer))
        };
        let answers: Map<String, Value> = self.questions.iter().map(judged).collect::<Option<_>>()?;
        (!answers.is_empty()).then_some(Value::Object(answers))
    }
}

/// Who asks.
pub(super) enum Origin {
    /// A legacy server, in the middle of a call that waits here.
    Parked(String),
    /// A modern server, by ending the call.
    Server { proposal: ProposalId, state: Option<String> },
    /// A server that wants pages visited before it is called again.
    Pages { proposal: ProposalId },
}

/// Only modern clients end a round by ending the call.
pub(super) fn turns_of(
    sender: &Sender,
) -> (Option<mpsc::UnboundedSender<Turn>>, mpsc::UnboundedReceiver<Turn>) {
    let (sending, receiving) = mpsc::unbounded_channel();
    ((sender.era() == Era::Modern).then_some(sending), receiving)
}
