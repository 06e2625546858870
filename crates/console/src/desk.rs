//! Where pages get what they show and do what they are told: the admin tools, and nothing else (ADM-1).

use axum::http::StatusCode;
use axum::response::Response;
use portcullis_admin::{Actor, Channel, Pagination};
use serde_json::Value;

use crate::Console;
use crate::confirmation::Unsigned;
use crate::page::{Frame, Message};
use crate::session::Session;

/// What a tool answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) data: Value,
    /// Where in a list the data are.
    pub(crate) place: Option<Pagination>,
}

impl Answer {
    /// The rows of a list.
    pub(crate) fn rows(&self) -> &[Value] {
        self.data.as_array().map(Vec::as_slice).unwrap_or_default()
    }

    /// How many rows there are altogether.
    pub(crate) fn total(&self) -> u64 {
        self.place.map_or(self.rows().len() as u64, |place| place.total)
    }
}

/// Why a tool did not do it. Nothing was changed.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    /// The form that the operator's security key has to sign first, if that is why.
    pub(crate) unsigned: Option<Unsigned>,
}

impl Refused {
    /// The refusal as a page of its own.
    pub(crate) fn page(&self, frame: Frame) -> Response {
        if let Some(unsigned) = &self.unsigned {
            return unsigned.page(frame);
        }
        let title = match self.status {
            StatusCode::NOT_FOUND => "Not here",
            StatusCode::CONFLICT => "Too late",
            _ => "Not done",
        };
        Message::new(frame, title, &self.message).with(self.status)
    }
}

impl Console {
    /// Calls an admin tool as the operator of a session.
    pub(crate) async fn ask(&self, session: &Session, tool: &str, args: Value) -> Result<Answer, Refused> {
        // GOV-104: here, so that no page can forget it.
        if self.wants_key(session, tool) {
            let message = "Your security key has to sign this.".to_owned();
            return Err(Refused {
                status: StatusCode::UNAUTHORIZED,
                message,
                unsigned: self.unsigned(session),
            });
        }
        let actor = Actor::operator(session.operator.clone());
        let envelope = self.invoker.call_value(tool, &args, Some(&actor), Channel::Operator).await;
        if envelope.is_error() {
            let status =
                StatusCode::from_u16(envelope.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let message = envelope
                .failure()
                .map_or_else(|| "There is no such operation.".to_owned(), |error| plain(&error.message()));
            return Err(Refused { status, message, unsigned: None });
        }
        let data = envelope.data().and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
        Ok(Answer { data, place: envelope.pagination() })
    }
}

/// Programs read the type in front of a message; people need not.
fn plain(message: &str) -> String {
    match message.split_once(": ") {
        Some((kind, text)) if kind.ends_with("Error") && kind.bytes().all(|b| b.is_ascii_alphabetic()) => {
            text.to_owned()
        }
        _ => message.to_owned(),
    }
}

/// A text of a document, or nothing.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// The texts of a list.
pub(crate) fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(text).collect()
}
