//! Clients that do not see definitions: a call of theirs is one of a tool that stands for others (CTX-70 to CTX-73).

use portcullis_context::repair;
use portcullis_governance::policy::Verdict;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{Answer, Edge, Era, Sender};
use crate::exposure::meta_call::{Looking, Meta};
use crate::exposure::{Manner, Mode};
use crate::lifecycle::{Call, Rehearsal};
use crate::target::{Found, Target};

impl Edge {
    /// What a client is shown: what it chose, else what was said or found to be best for it.
    pub(crate) fn mode(&self, sender: &Sender) -> Mode {
        let conversation = &sender.conversation;
        // What an operator ordered for the agent goes before what its client chose.
        let orders = self.lifecycle.orders.load();
        if let Some(profile) = orders.profile(conversation.session().principal()) {
            return profile.mode;
        }
        if let Some(mode) = sender.mode {
            return mode;
        }
        conversation.mode(|| {
            let world = self.world.load();
            world.shelf().options().choose(conversation.client(), world.registry().tools().len())
        })
    }

    /// Makes a client's call of a meta-tool the call it stands for, or answers it.
    pub(super) fn stand_in(&self, sender: &Sender, mode: Mode, call: &mut Call) -> Result<Manner, Answer> {
        let Target::Tool(name) = &call.target else { return Ok(Manner::Native) };
        let mode = match mode {
            // SURF-64: what is not listed for want of room is found and called as it is where nothing is listed.
            mode if self.is_deferral(sender, mode, name) => Mode::Gateway,
            Mode::Passthrough => return Ok(Manner::Native),
            mode => mode,
        };
        let (name, world) = (name.clone(), self.world.load());
        let catalogue = world.catalogue();
        let orders = self.lifecycle.orders.load();
        let namespaces = orders.namespaces(sender.conversation.session().principal());
        let view = world.shelf().view(catalogue, world.registry(), &call.grants, namespaces);
        let mut ledger = world.shelf().options().browse.cache_stable.then(|| sender.conversation.ledger());
        let mut looking = Looking {
            world: &world,
            catalogue,
            view: &view,
            mode,
            era: sender.era(),
            ledger: ledger.as_deref_mut(),
        };
        match looking.call(&name, call.arguments.as_deref()) {
            // CTX-80: a name that is not listed is an error of the protocol.
            None => {
                call.target = Target::Nothing(name);
                Ok(Manner::Native)
            }
            // CTX-93: looking is counted too, and what is found is read.
            Some(Meta::Answer(result)) => Err(match self.admitted(&call.session, &name, &name) {
                Ok(()) => {
                    let answer = Answer::Result(result.into());
                    self.count_shown(&call.session, &answer);
                    answer
                }
                Err(document) => Answer::for_the_model(&document, sender.era()),
            }),
            Some(Meta::Call(governed)) => {
                (call.target, call.arguments) = (governed.target, governed.arguments);
                self.mend(call);
                if governed.dry_run {
                    return Err(self.rehearsed(call, sender.era(), &governed.manner));
                }
                Ok(governed.manner)
            }
        }
    }

    /// Repairs arguments that are nearly right, if this gateway does (CTX-90): before there is a proposal.
    pub(super) fn mend(&self, call: &mut Call) {
        let Some(arguments) = call.arguments.as_deref().filter(|_| self.controls.is_tolerant()) else {
            return;
        };
        let world = self.world.load();
        let Some(Found { entry, arguments: None }) = call.target.find(world.registry()) else { return };
        if arguments.get().len() > entry.tool.spec().max_request_bytes {
            return;
        }
        let definition: Value = serde_json::from_str(entry.tool.definition().get()).unwrap_or_default();
        if let Some((mended, repairs)) = repair(arguments.get(), &definition["inputSchema"])
            && let Ok(mended) = RawValue::from_string(mended)
        {
            (call.arguments, call.repairs) = (Some(mended), repairs);
        }
    }

    /// A dry run (CTX-73).
    fn rehearsed(&self, call: &Call, era: Era, manner: &Manner) -> Answer {
        match (self.lifecycle.rehearse(call), manner) {
            (Ok(Rehearsal { entry, verdict, proposal }), Manner::Meta { item: Ok(meant), .. }) => {
                let policy = match verdict {
                    Verdict::Unattended => "pass",
                    Verdict::NeedsApproval => "approval_required",
                    Verdict::Denied => "denied",
                };
                let mut hints: Value = (meant.item.hints.raw.as_ref())
                    .and_then(|raw| serde_json::from_str(raw.get()).ok())
                    .unwrap_or_else(|| json!({}));
                hints["verified"] = json!(false);
                let effects: Vec<&str> =
                    meant.item.effects.iter().map(portcullis_catalog::Effect::as_str).collect();
                let (session, now) = (&call.session, self.lifecycle.clock.uptime());
                let short = entry.tool.id().short();
                let within = self.controls.would_admit(session.principal(), session.id(), short, now);
                let limits = if within.is_ok() { "pass" } else { "limited" };
                let mut checks = vec![
                    json!({"name": "schema", "status": "pass"}),
                    json!({"name": "rate_limit", "status": limits}),
                    json!({"name": "policy", "status": policy}),
                ];
                // SURF-91: nothing is fetched to find out what would happen.
                if self.lifecycle.gates.before(entry.tool.id().short()).next().is_some() {
                    checks.push(json!({"name": "gate", "status": "not_run"}));
                }
                let report = json!({
                    "dry_run": true,
                    "tool_id": meant.item.id,
                    "identity": entry.tool.id(),
                    "args_valid": true,
                    "effects": effects,
                    "hints": hints,
                    "checks": checks,
                });
                let mut result = json!({
                    "content": [{"type": "text", "text": report.to_string()}],
                    "_meta": {"io.portcullis/call": {"proposal_id": proposal}},
                });
                if era == Era::Modern {
                    result["resultType"] = json!("complete");
                }
                Answer::Result(result.to_string().into())
            }
            (Ok(_), _) => Answer::Error { code: -32603, message: "internal error".into(), data: None },
            (Err(document), manner) => Answer::refused(document, era, "tools/call", manner),
        }
    }
}
