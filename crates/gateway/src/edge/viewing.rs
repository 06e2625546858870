//! Results in short, and `tool_view` where tools are called directly (CTX-4).

use serde_json::Value;
use serde_json::value::RawValue;

use super::{Answer, Asked, Era, Params, Sender};
use crate::exposure::{Manner, Mode};
use crate::lifecycle::gating::unescaped;
use crate::lifecycle::{Answered, Call, Response};
use crate::shaping::bounds::ResultOptions;
use crate::shaping::{Provenance, TOOL_VIEW, Viewer, as_documents};
use portcullis_context::bound::Detail;
use portcullis_core::error::ErrorDocument;
use portcullis_gauntlet::{Raw, ResultKind};

impl super::Edge {
    /// A long result of a tool in short, if this gateway shapes results here.
    pub(super) async fn in_short(
        &self,
        sender: &Sender,
        asked: &Asked<'_>,
        response: &Result<Response, ErrorDocument>,
        call: &Call,
        manner: &Manner,
    ) -> Option<String> {
        let Ok(Response { answered: Answered::Result(result), entry, proposal, cache_hit, .. }) = response
        else {
            return None;
        };
        // CTX-4: where definitions are listed, clients hold results to them, so those are shaped only if somebody says so.
        let shapes = self.shaping.in_passthrough() || matches!(manner, Manner::Meta { .. });
        if asked.method != "tools/call" || entry.tool.subject().result() != ResultKind::Tool {
            return None;
        }
        let is_ours = entry.server.record.transport.is_builtin() && matches!(manner, Manner::Native);
        if is_ours && result.is_error() {
            return self.with_document(result.json());
        }
        let orders = self.lifecycle.orders.load();
        let ordered = orders.profile(call.session.principal()).and_then(|profile| profile.result_budget);
        if shapes {
            let came = Provenance {
                cache_hit: *cache_hit,
                repairs: call.repairs.clone(),
                inline_chars: ordered.map(|budget| budget as usize),
            };
            return self.shaping.shape(result, entry, *proposal, &call.session, came).await;
        }
        let world = self.world.load();
        let profile = self.profile(&world, sender);
        if profile.openai_documents && entry.server.record.transport.is_builtin() {
            let json = std::str::from_utf8(result.json()).ok()?;
            return as_documents(json, entry.tool.id().item().name());
        }
        // What an operator ordered for the agent goes before what is set for its kind of client.
        let of_client = &ordered.map_or_else(
            || profile.results.clone(),
            |budget| ResultOptions::within(budget as usize).or(&profile.results),
        );
        let meta = asked.params.and_then(|raw| Params::read(raw).ok()).and_then(|params| params.meta);
        let detail = match meta.and_then(|meta| meta.result_detail).as_deref() {
            Some("compact") => Some(Detail::Compact),
            Some("full") => Some(Detail::Full),
            _ => None,
        };
        self.shaping.bound(result, entry, *proposal, &call.session, (of_client, detail)).await
    }

    /// An error of an adapter of ours as structure too (SURF-80): it is no result, so the tool's output schema, which took
    /// it out, does not apply to it (SURF-82).
    fn with_document(&self, json: &[u8]) -> Option<String> {
        let mut result: Value = serde_json::from_slice(json).ok()?;
        let document: Value =
            serde_json::from_str(&unescaped(result["content"][0]["text"].as_str()?)).ok()?;
        document.get("error")?.as_str()?;
        let (clean, _) = self.gauntlet.clean_value(Raw::new(document)).ok()?;
        result["structuredContent"] = clean.get().clone();
        Some(result.to_string())
    }

    /// Whether this is a call of our own tool rather than of a server's.
    pub(super) fn is_view(&self, sender: &Sender, asked: &Asked<'_>, mode: Mode) -> bool {
        (self.shaping.keeps_in_passthrough() || mode != Mode::Passthrough || self.defers(sender, mode))
            && (asked.params.and_then(|raw| Params::read(raw).ok()).and_then(|params| params.name))
                .is_some_and(|name| name == TOOL_VIEW)
    }

    /// `tool_view`.
    pub(super) async fn viewed(&self, sender: &Sender, asked: &Asked<'_>) -> Answer {
        let arguments: Option<&RawValue> =
            asked.params.and_then(|raw| Params::read(raw).ok()).and_then(|params| params.arguments);
        let session = sender.conversation.session();
        let world = self.world.load();
        let groups = self.lifecycle.groups_of(session.principal());
        let viewer = Viewer {
            session,
            registry: world.registry(),
            authenticated: session.principal() != &self.principal,
            client: sender.conversation.client(),
            groups: &groups,
            now: self.lifecycle.clock.now(),
        };
        // CTX-93
        if let Err(document) = self.admitted(session, TOOL_VIEW, TOOL_VIEW) {
            return Answer::for_the_model(&document, sender.era());
        }
        match self.shaping.view(&self.lifecycle.log, viewer, arguments).await {
            Ok(mut result) => {
                if sender.era() == Era::Modern {
                    result.truncate(result.len() - 1);
                    result.push_str(",\"resultType\":\"complete\"}");
                }
                let answer = Answer::Result(result.into());
                self.count_shown(session, &answer);
                answer
            }
            Err(document) => Answer::for_the_model(&document, sender.era()),
        }
    }
}
