//! Results in short, and `tool_view` where tools are called directly (CTX-4).

use serde_json::value::RawValue;

use super::{Answer, Asked, Era, Params, Sender};
use crate::exposure::{Manner, Mode};
use crate::lifecycle::{Answered, Call, Response};
use crate::shaping::{TOOL_VIEW, Viewer};
use portcullis_core::error::ErrorDocument;
use portcullis_gauntlet::ResultKind;

impl super::Edge {
    /// A long result of a tool in short, if this gateway shapes results here.
    pub(super) async fn in_short(
        &self,
        method: &str,
        response: &Result<Response, ErrorDocument>,
        call: &Call,
        manner: &Manner,
    ) -> Option<String> {
        let Ok(Response { answered: Answered::Result(result), entry, proposal, .. }) = response else {
            return None;
        };
        // CTX-4: where definitions are listed, clients hold results to them, so those are shaped only if somebody says so.
        let shapes = self.shaping.in_passthrough() || matches!(manner, Manner::Meta { .. });
        if method != "tools/call" || !shapes || entry.tool.subject().result() != ResultKind::Tool {
            return None;
        }
        self.shaping.shape(result, entry, *proposal, &call.session).await
    }

    /// Whether this is a call of our own tool rather than of a server's.
    pub(super) fn is_view(&self, sender: &Sender, asked: &Asked<'_>, mode: Mode) -> bool {
        (self.shaping.in_passthrough() || mode != Mode::Passthrough || self.defers(sender))
            && (asked.params.and_then(|raw| Params::read(raw).ok()).and_then(|params| params.name))
                .is_some_and(|name| name == TOOL_VIEW)
    }

    /// `tool_view`.
    pub(super) async fn viewed(&self, sender: &Sender, asked: &Asked<'_>) -> Answer {
        let arguments: Option<&RawValue> =
            asked.params.and_then(|raw| Params::read(raw).ok()).and_then(|params| params.arguments);
        let session = sender.conversation.session();
        let world = self.world.load();
        let viewer = Viewer {
            session,
            registry: world.registry(),
            authenticated: session.principal() != &self.principal,
            client: sender.conversation.client(),
            now: self.lifecycle.clock.now(),
        };
        match self.shaping.view(&self.lifecycle.log, viewer, arguments).await {
            Ok(mut result) => {
                if sender.era() == Era::Modern {
                    result.truncate(result.len() - 1);
                    result.push_str(",\"resultType\":\"complete\"}");
                }
                Answer::Result(result.into())
            }
            Err(document) => Answer::for_the_model(&document, sender.era()),
        }
    }
}
