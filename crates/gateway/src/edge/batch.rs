//! JSON-RPC batches, which only 2025-03-26 knows: each element is a message of its own (PRO §3).

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use portcullis_core::jsonrpc::{Kind, Message, error_response};
use serde_json::value::RawValue;

use super::outlet::Outlet;
use super::{Answer, Edge, Sender};

/// More elements than this are refused: one message must not become any number of calls.
const MOST: usize = 64;

/// Whether a text would be a batch, by its first character.
pub(crate) fn is_batch(text: &[u8]) -> bool {
    text.trim_ascii_start().first() == Some(&b'[')
}

impl Edge {
    /// Answers every element: the array of the answers, `None` if none of them wants one, or why the batch as a
    /// whole is refused.
    pub(crate) async fn batch(
        self: &Arc<Self>,
        sender: &Sender,
        text: &Bytes,
    ) -> Result<Option<Vec<u8>>, Vec<u8>> {
        let refuse = |code, why: &str| Err(error_response::<()>(None, code, why, None));
        if !sender.conversation.revision().has_batches() {
            return refuse(-32600, "batches exist in protocol revision 2025-03-26 only");
        }
        let Ok(elements) = serde_json::from_slice::<Vec<&RawValue>>(text) else {
            return refuse(-32700, "not valid JSON");
        };
        if elements.is_empty() || elements.len() > MOST {
            return refuse(-32600, "a batch has 1 to 64 elements");
        }
        let answers = elements.into_iter().map(|element| {
            let element = text.slice_ref(element.get().as_bytes());
            async move { self.element(sender, &element).await }
        });
        let answers: Vec<Vec<u8>> = join_all(answers).await.into_iter().flatten().collect();
        if answers.is_empty() {
            return Ok(None);
        }
        let mut out = vec![b'['];
        out.extend_from_slice(&answers.join(&b","[..]));
        out.push(b']');
        Ok(Some(out))
    }

    async fn element(self: &Arc<Self>, sender: &Sender, element: &Bytes) -> Option<Vec<u8>> {
        let invalid = |id| Some(error_response::<()>(id, -32600, "not a JSON-RPC 2.0 message", None));
        let Some(message) = Message::read(element) else { return invalid(None) };
        match message.kind() {
            Kind::Request { id, method: "initialize" } => {
                let message = "initialize cannot be part of a batch".into();
                Some(Answer::Error { code: -32600, message, data: None }.into_response(id))
            }
            Kind::Request { id, .. } => match sender.conversation.begin(id.get()) {
                Some((_under_way, cancel)) => {
                    Some(self.run(sender.clone(), element, Outlet::None, cancel).await.text)
                }
                None => Some(Answer::id_in_use().into_response(id)),
            },
            Kind::Notification { method } => {
                self.notified(&sender.conversation, method, message.params);
                None
            }
            Kind::Response { id, outcome } => {
                sender.conversation.owed().answered(id, outcome);
                None
            }
            Kind::Invalid => invalid(message.id),
        }
    }
}
