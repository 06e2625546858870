//! A call through the lifecycle and back, round after round: what its server asks is put to the client in a way that it
//! knows, and what comes of it is said in the client's words.

use portcullis_core::ErrorCode;
use portcullis_core::error::{ErrorDocument, one_line};
use portcullis_gauntlet::{PagesWanted, URL_ELICITATION_REQUIRED};
use portcullis_governance::registry::Names;
use portcullis_upstream::{Input, Unanswered};
use serde_json::{Map, Value, json};

use super::rounds::{self, Origin, Required};
use super::{Answer, Asked, Edge, Era, Sender};
use crate::exposure::Manner;
use crate::exposure::shape::shape;
use crate::lifecycle::tasks::Begun;
use crate::lifecycle::{Answered, Call, Response, UpstreamFailure};
use crate::result::{self, View};

/// A call that was answered with a task.
pub(super) struct Later {
    pub(super) call: Call,
    pub(super) begun: Begun,
    pub(super) mark: Value,
}

impl Edge {
    /// Through the lifecycle, and back in the client's words.
    pub(super) async fn governed(
        &self,
        sender: &Sender,
        asked: &Asked<'_>,
        call: Call,
        begun: (u32, Map<String, Value>),
        manner: &Manner,
    ) -> Answer {
        // Who asked for a task gets one, whatever the server made of it.
        let wanted = call.wants.task.is_some().then(|| call.clone());
        match (self.round_after_round(sender, asked, call, begun, manner).await, wanted) {
            (Err(later), _) => self.task_begun(sender.era(), *later, manner).await,
            (Ok(Answer::Result(result)), Some(call)) => self.task_done_at_once(call, manner, result),
            (Ok(answer), _) => answer,
        }
    }

    async fn round_after_round(
        &self,
        sender: &Sender,
        asked: &Asked<'_>,
        mut call: Call,
        (begun, mut ahead): (u32, Map<String, Value>),
        manner: &Manner,
    ) -> Result<Answer, Box<Later>> {
        for round in begun.. {
            let mut response = self.attempted(&call).await;
            if let Ok(response) = &mut response
                && !call.repairs.is_empty()
            {
                response.mark["arg_repairs"] = json!(call.repairs);
            }
            let response = match response {
                Ok(Response { answered: Answered::Task(begun), mark, .. }) => {
                    call.attendant.finish();
                    return Err(Box::new(Later { call, begun: *begun, mark }));
                }
                response => response,
            };
            let (entry, proposal, required) = match &response {
                Ok(Response { answered: Answered::InputRequired(result), entry, proposal, .. }) => {
                    (entry, *proposal, self.required(entry, result.json()))
                }
                Ok(Response { answered: Answered::PagesWanted(wanted), entry, proposal, .. }) => {
                    (entry, *proposal, self.required_pages(entry, &wanted.pages))
                }
                _ => {
                    call.attendant.finish();
                    let short = self.in_short(sender, asked, &response, &call, manner).await;
                    let answer = self.shown(sender.era(), asked.method, response, short, manner);
                    self.count_shown(&call.session, &answer);
                    self.write_down(&call, &answer);
                    return Ok(answer);
                }
            };
            let refuse = |document: &ErrorDocument| {
                Answer::refused(document.clone(), sender.era(), asked.method, manner)
            };
            let path = entry.tool.id().short();
            if round >= rounds::ROUNDS {
                let message = "the server asked for input more often than is allowed";
                return Ok(refuse(&ErrorDocument::new(ErrorCode::UpstreamError, path, message)));
            }
            let required = match required {
                Ok(required) => required,
                Err(document) => return Ok(refuse(&document)),
            };
            if let Some(question) = required.questions.values().find(|q| !call.attendant.can_answer(q)) {
                // PRO-63: the client did not say that it can.
                let message = format!("the server needs a client that can do {}", question.needed());
                let data = json!({"requiredCapabilities": question.needs()});
                if sender.era() == Era::Legacy && required.is_plain {
                    let document = ErrorDocument::new(ErrorCode::UpstreamError, path, message);
                    return Ok(refuse(
                        &document.with("rpc_code", URL_ELICITATION_REQUIRED).with("needs", data),
                    ));
                }
                return Ok(Answer::Error { code: -32021, message, data: Some(data) });
            }
            // What the client said before it was asked is the answer, if it is one (GOV-408: in a call of its own).
            if let Some(responses) = required.answered_by(&mut ahead) {
                if let Err(document) = call.attendant.pass_on(required.questions.values()).await {
                    return Ok(refuse(&document));
                }
                (call.parent, call.after_questions) = (Some(proposal), true);
                call.wants.input = Some(Input { responses, state: required.state });
                continue;
            }
            if sender.era() == Era::Modern || required.is_plain {
                if let Err(document) = call.attendant.pass_on(required.questions.values()).await {
                    return Ok(refuse(&document));
                }
                if let (Era::Legacy, Ok(response)) = (sender.era(), response) {
                    return Ok(visit_first(&required, response));
                }
                let Required { questions, state, is_plain } = required;
                let origin =
                    if is_plain { Origin::Pages { proposal } } else { Origin::Server { proposal, state } };
                return Ok(self.input_required(questions, origin, round + 1, asked.bound));
            }
            // A legacy client is asked now, and its answers go into a call of their own (GOV-408).
            match call.attendant.put(required.questions).await {
                Ok(responses) => {
                    (call.parent, call.after_questions) = (Some(proposal), true);
                    call.wants.input = Some(Input { responses, state: required.state });
                }
                Err(unanswered) => {
                    let message = match unanswered {
                        Unanswered::Refused { message, .. } => message,
                        Unanswered::Undeclared => "the client cannot be asked this".into(),
                    };
                    return Ok(refuse(&ErrorDocument::new(ErrorCode::UpstreamError, path, message)));
                }
            }
        }
        Ok(Answer::invalid_params("too many rounds"))
    }

    /// What the lifecycle came to, in the client's words.
    pub(super) fn shown(
        &self,
        era: Era,
        method: &str,
        response: Result<Response, ErrorDocument>,
        short: Option<String>,
        manner: &Manner,
    ) -> Answer {
        match response {
            Ok(Response { answered: Answered::Result(result), entry, mark, .. }) => {
                let registry = self.world.load().registry().clone();
                let server = entry.tool.id().server();
                let map = |uri: &str| registry.outward_uri(server, uri);
                let uris: Option<&dyn Fn(&str) -> String> = match registry.names() {
                    Names::Bare => None,
                    Names::Prefixed => Some(&map),
                };
                let (kind, is_native) = (entry.tool.subject().result(), matches!(manner, Manner::Native));
                let view = View { era, kind, mark: &mark, keeps_meta: is_native, uris };
                Answer::Result(match short {
                    Some(short) => result::in_short(&short, view).into(),
                    None if is_native => result::for_client(&result, view).into(),
                    None => shape(result::for_client(&result, view), kind).into(),
                })
            }
            // Taken out before (see `governed`).
            Ok(Response {
                answered: Answered::InputRequired(_) | Answered::PagesWanted(_) | Answered::Task(_),
                ..
            }) => Answer::Error { code: -32603, message: "internal error".into(), data: None },
            Ok(Response { answered: Answered::Failure(mut failure), upstream, mark, .. }) => {
                // A resource that is not there has another code in each era (PRO §1, PRO-70).
                failure.code = match (method, upstream, era, failure.code) {
                    ("resources/read", _, Era::Modern, -32002) => -32602,
                    ("resources/read", portcullis_upstream::Era::Modern, Era::Legacy, -32602) => -32002,
                    (.., code) => code,
                };
                if let Manner::Meta { id, .. } = manner {
                    // CTX-81: by the facts of the protocol, never by words.
                    let document =
                        ErrorDocument::new(ErrorCode::UpstreamError, one_line(id), &failure.message);
                    let document = document.with("rpc_code", failure.code).with("call", mark);
                    return Answer::refused(document, era, method, manner);
                }
                Answer::upstream(failure, mark)
            }
            Err(document) => match Answer::refused(document, era, method, manner) {
                Answer::Error { code: -32602, message, data }
                    if method == "resources/read" && era == Era::Legacy =>
                {
                    Answer::Error { code: -32002, message, data }
                }
                answer => answer,
            },
        }
    }
}

/// A legacy client that opens links is told as its revision says it (PRO-70): it shows the pages, and calls again when they
/// were visited.
fn visit_first(required: &Required, response: Response) -> Answer {
    let Response { answered: Answered::PagesWanted(PagesWanted { message, .. }), mark, .. } = response else {
        return Answer::Error { code: -32603, message: "internal error".into(), data: None };
    };
    let elicitations: Vec<&Value> = required.questions.values().map(|question| &question.params).collect();
    let data = Some(json!({"elicitations": elicitations}));
    Answer::upstream(
        UpstreamFailure { code: URL_ELICITATION_REQUIRED, message: message.into_inner(), data },
        mark,
    )
}
