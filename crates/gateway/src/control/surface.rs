//! What surfaces come to, on record when it changes and for who asks.

use std::collections::BTreeMap;
use std::sync::Arc;

use portcullis_audit::{Event, EventName};
use portcullis_core::{Actor, ServerIdentity, Sha256Digest};
use portcullis_gauntlet::Grants;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{Alarm, Control, ControlError, told_to_stop};
use crate::alarms::AlarmKind;
use crate::edge::Era;
use crate::edge::told::introduced;
use crate::exposure::Mode;
use crate::exposure::definitions::{listed, stand_ins};
use crate::surface::instructions::Introduced;
use crate::surface::offered::{Effect, Offered};
use crate::surface::profile::Profile;
use crate::surface::{self, Budgeting, Input, Surface, SurfaceOptions};

/// A section for a server that is not there would be without effect, unseen.
pub(super) fn check_servers<'a>(
    options: &SurfaceOptions,
    registered: impl Iterator<Item = &'a ServerIdentity>,
) -> Result<(), ControlError> {
    let registered: Vec<&str> = registered.map(ServerIdentity::as_str).collect();
    match options.servers.keys().find(|name| !registered.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => Err(ControlError::field(
            &format!("surface.server.{name}"),
            format!(
                "[surface.server.{name}]: there is no server '{name}'; register it first, or take the section out"
            ),
        )),
    }
}

/// What a surface is made of, for who wants to see what it would be with other settings.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SurfaceParts {
    /// How tools are shown.
    pub mode: Mode,
    /// Their definitions, as accepted and cleaned.
    pub tools: Vec<ToolPart>,
    /// The servers.
    pub servers: Vec<Introduced>,
    /// Whether one of them keeps records.
    pub records: bool,
    /// What stands for tools that have no room.
    pub stand_ins: Vec<String>,
    /// Bytes of the other lists, which are measured by themselves (SURF-50).
    #[serde(default)]
    pub beside: BTreeMap<String, usize>,
}

/// One definition.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct ToolPart {
    pub server: String,
    pub effect: Option<Effect>,
    pub definition: String,
}

impl SurfaceParts {
    /// What a client of a profile would be shown.
    pub fn compile(&self, profile: &Profile, options: &SurfaceOptions) -> Surface {
        let tools = self.tools.iter();
        surface::compile(&Input {
            tools: tools
                .filter_map(|tool| Offered::new(&tool.server, tool.effect, &tool.definition))
                .collect(),
            mode: self.mode,
            profile,
            options,
            prune: std::collections::BTreeSet::new(),
            servers: self.servers.clone(),
            records: self.records,
            stand_ins: self.stand_ins.clone(),
        })
    }
}

impl Control {
    /// Everything that can be shown, in a mode or in the one that is chosen for who does not choose.
    pub fn surface_parts(&self, mode: Option<Mode>) -> SurfaceParts {
        let world = self.world();
        let mode = mode.unwrap_or_else(|| world.shelf().options().choose("", world.registry().tools().len()));
        let (servers, records) = introduced(&world, &Grants::Declared);
        let part = |tool: &Offered| ToolPart {
            server: tool.server.clone(),
            effect: tool.effect,
            definition: tool.original().to_owned(),
        };
        let tools = match mode {
            Mode::Passthrough => world.offered(Era::Modern).iter().map(part).collect(),
            mode => {
                let catalogue = world.catalogue();
                let listed = listed(mode, catalogue, catalogue.everything());
                let own = |definition| ToolPart { server: String::new(), effect: None, definition };
                listed.into_iter().map(own).collect()
            }
        };
        let others = [
            ("prompts", "prompts/list"),
            ("resources", "resources/list"),
            ("resource_templates", "resources/templates/list"),
        ];
        let beside = others
            .iter()
            .filter_map(|(name, method)| Some(((*name).to_owned(), world.list(method)?.bytes())));
        SurfaceParts { mode, tools, servers, records, stand_ins: stand_ins(), beside: beside.collect() }
    }

    /// What clients of a profile are shown, and what it costs them; the profile of clients that name none if none is named.
    pub fn surface(
        &self,
        profile: Option<&str>,
        mode: Option<Mode>,
    ) -> Result<(Surface, Value), ControlError> {
        let options = &self.options.surface;
        let name = profile.unwrap_or(&options.profile);
        let Some(profile) = options.profiles.get(name) else {
            let known: Vec<&str> = options.profiles.keys().map(String::as_str).collect();
            let message = format!("there is no such profile; there are {}", known.join(", "));
            return Err(ControlError::field("profile", message));
        };
        let surface = self.surface_parts(mode).compile(profile, options);
        let report = surface.report(profile);
        Ok((surface, report))
    }

    /// How large results were in the last seconds, by tool, for a client that cuts at so many tokens (SURF-75).
    pub fn result_sizes(&self, seconds: u64, limit: Option<usize>) -> Vec<crate::shaping::OfTool> {
        let since = self.clock.now().as_millis().saturating_sub(seconds.saturating_mul(1_000));
        self.shaping.result_sizes(since, limit)
    }

    /// What somebody should look at and no call fails for.
    pub fn alarms(&self) -> Vec<Alarm> {
        self.alarms.all()
    }

    /// The profiles of clients there are.
    pub fn surface_profiles(&self) -> Vec<String> {
        self.options.surface.profiles.keys().cloned().collect()
    }

    /// Puts every change of the default surface on record (SURF-53).
    pub(super) async fn follow_surface(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut changes = self.world.changes();
        let mut last: Option<Sha256Digest> = None;
        loop {
            let control = self.clone();
            let looked = tokio::task::spawn_blocking(move || {
                let options = &control.options.surface;
                control.surface_parts(Some(Mode::Passthrough)).compile(options.profile(""), options)
            });
            if let Ok(surface) = looked.await
                && last.replace(surface.surface_digest) != Some(surface.surface_digest)
            {
                self.record_surface(&surface);
            }
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = told_to_stop(&mut stop) => return,
            }
        }
    }

    fn record_surface(&self, surface: &Surface) {
        let size = surface.footprint.tools.size;
        let ledger = serde_json::to_vec(&surface.ledger).unwrap_or_default();
        let compiled = json!({
            "surface_digest": surface.surface_digest, "bytes": size.bytes, "tokens": size.o200k,
            "ladder_step": surface.ladder_step, "ledger_sha256": Sha256Digest::of(&ledger), "profile": surface.profile,
        });
        let mut events = vec![Event::new(EventName::SurfaceCompiled, &Actor::system()).data(compiled)];
        let excess: Vec<&str> = surface.excess.iter().map(|excess| excess.limit).collect();
        self.alarms.end(AlarmKind::SurfaceRefused, &surface.profile);
        if surface.ladder_step == 7 {
            let what = format!("the list of tools cannot be made to fit: {}", excess.join(", "));
            let fix =
                "portcullis footprint --explain; hide tools with [catalog.filter], or choose another profile";
            self.alarms.raise(AlarmKind::SurfaceRefused, &surface.profile, what, fix.into());
            let data = json!({"excess": excess, "profile": surface.profile});
            events.push(Event::new(EventName::SurfaceRefused, &Actor::system()).data(data));
            tracing::error!(
                profile = surface.profile,
                ?excess,
                "the list of tools cannot be made to fit; the last one that did stays"
            );
        } else if surface.ladder_step > 0 {
            let data = json!({"deferred": surface.deferred, "ladder_step": surface.ladder_step, "profile": surface.profile});
            events.push(Event::new(EventName::SurfaceDegraded, &Actor::system()).data(data));
        } else if !excess.is_empty() && self.options.surface.mode == Budgeting::Warn {
            tracing::warn!(
                profile = surface.profile,
                ?excess,
                "the list of tools is larger than clients take; see `portcullis footprint`"
            );
        }
        let _ = self.log.append(events);
    }
}
