//! What surfaces come to, on record when it changes and for who asks.

use std::collections::BTreeMap;
use std::sync::Arc;

use portcullis_audit::{AuditError, Event, EventName, Record};
use portcullis_core::{Actor, ErrorCode, Principal, ServerIdentity, Sha256Digest, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{Alarm, Control, ControlError, told_to_stop};
use crate::alarms::AlarmKind;
use crate::edge::Era;
use crate::edge::told::introduced;
use crate::edge::usable::Pruned;
use crate::exposure::Mode;
use crate::exposure::definitions::{listed, stand_ins};
use crate::index::{Wanted, search};
use crate::surface::instructions::Introduced;
use crate::surface::ladder::StepSize;
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
    /// To whom.
    #[serde(default)]
    pub principal: String,
    /// What kind of client that is, if the operator says so.
    #[serde(default)]
    pub profile: Option<String>,
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
    /// Arguments it can never use (SURF-96).
    #[serde(default)]
    pub prune: Pruned,
    /// Bytes of the other lists, which are measured by themselves (SURF-50).
    #[serde(default)]
    pub beside: BTreeMap<String, usize>,
}

/// What the list came to at one moment (SURF-54).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct SurfacePoint {
    pub at: String,
    pub bytes: u64,
    pub tokens: u64,
    pub ladder_step: u64,
}

/// No history is longer than this.
const MOST_POINTS: usize = 500;

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
            prune: self.prune.clone(),
            servers: self.servers.clone(),
            records: self.records,
            stand_ins: self.stand_ins.clone(),
        })
    }
}

impl Control {
    /// An agent by its name, as in `agent:ci`, if it is one that is known here.
    pub fn agent(&self, name: &str) -> Result<Principal, ControlError> {
        let agent = match name.contains(':') {
            true => name.parse().ok(),
            false => Principal::agent(name).ok(),
        };
        let known = |agent: &Principal| !self.access.grants_of(agent).is_empty();
        agent.filter(known).ok_or_else(|| {
            let message = format!(
                "no agent {} is known; `portcullis key list` names those that are",
                portcullis_core::name::printable(name)
            );
            ControlError::new(ErrorCode::NotFound, message)
        })
    }

    /// Everything that can be shown to an agent, in a mode or in the one that is chosen for who does not choose. Without an
    /// agent, to those that prove nothing.
    pub fn surface_parts(&self, mode: Option<Mode>, agent: Option<&Principal>) -> SurfaceParts {
        let world = self.world();
        let agent = agent.unwrap_or(&self.options.principal);
        let grants = self.access.granted(agent);
        let orders = self.orders();
        let mode = mode.or_else(|| orders.profile(agent).map(|profile| profile.mode));
        let mode = mode.unwrap_or_else(|| world.shelf().options().choose("", world.registry().tools().len()));
        let (servers, records) = introduced(&world, &grants, orders.namespaces(agent));
        let part = |tool: &Offered| ToolPart {
            server: tool.server.clone(),
            effect: tool.effect,
            definition: tool.original().to_owned(),
        };
        let namespaces = orders.namespaces(agent);
        let tools = match mode {
            Mode::Passthrough => world.offered(Era::Modern, &world.hidden(&grants, namespaces)),
            mode => {
                let catalogue = world.catalogue();
                let view = world.shelf().view(catalogue, world.registry(), &grants, namespaces);
                listed(mode, world.registry(), catalogue, &view)
            }
        };
        let others = [
            ("prompts", "prompts/list"),
            ("resources", "resources/list"),
            ("resource_templates", "resources/templates/list"),
        ];
        let beside = others.iter().filter_map(|(name, method)| {
            let list = world.list(method)?;
            let reached = world.within(list, &grants, namespaces);
            Some(((*name).to_owned(), reached.as_ref().unwrap_or(list).bytes()))
        });
        SurfaceParts {
            principal: agent.to_string(),
            profile: self.options.surface.principals.get(&agent.to_string()).cloned(),
            mode,
            tools: tools.iter().map(part).collect(),
            servers,
            records,
            stand_ins: stand_ins(),
            prune: (*self.usable.of(agent)).clone(),
            beside: beside.collect(),
        }
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
        let parts = self.surface_parts(mode, None);
        let surface = parts.compile(profile, options);
        let mut report = surface.report(profile);
        report["principal"] = json!(parts.principal);
        Ok((surface, report))
    }

    /// How the list of whole definitions grew and shrank in the last days: a point for each change, the oldest first.
    pub async fn surface_history(&self, days: u64) -> Result<Vec<SurfacePoint>, ControlError> {
        let since = self.clock.now().as_millis().saturating_sub(days.saturating_mul(86_400_000));
        let wanted = Wanted {
            event: Some(EventName::SurfaceCompiled.as_str().to_owned()),
            since: Some(Timestamp::from_millis(since)),
            ..Wanted::default()
        };
        let unreadable = |error: AuditError| ControlError::new(ErrorCode::Internal, error.to_string());
        let found = search(self.log.dir(), &wanted, MOST_POINTS).await.map_err(unreadable)?;
        let point = |record: Record| SurfacePoint {
            at: record.time.to_string(),
            bytes: record.data["bytes"].as_u64().unwrap_or_default(),
            tokens: record.data["tokens"].as_u64().unwrap_or_default(),
            ladder_step: record.data["ladder_step"].as_u64().unwrap_or_default(),
        };
        Ok(found.into_iter().map(point).collect())
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

    /// What each step of making a surface fit would come to.
    pub fn surface_ladder(&self, surface: &Surface) -> Vec<StepSize> {
        let options = &self.options.surface;
        surface.explained(options.profile(&surface.profile), options)
    }

    /// The profiles of clients there are.
    pub fn surface_profiles(&self) -> Vec<String> {
        self.options.surface.profiles.keys().cloned().collect()
    }

    /// Puts every change of the surfaces that clients get which nothing is known of on record (SURF-53): that of whole
    /// definitions and, where an operator chose it, that of names alone.
    pub(super) async fn follow_surface(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut changes = self.world.changes();
        let mut last: BTreeMap<Mode, Sha256Digest> = BTreeMap::new();
        loop {
            let control = self.clone();
            let looked = tokio::task::spawn_blocking(move || {
                let options = &control.options.surface;
                let of = |mode| control.surface_parts(Some(mode), None).compile(options.profile(""), options);
                control.listed_modes().into_iter().map(of).collect::<Vec<_>>()
            });
            for surface in looked.await.unwrap_or_default() {
                if last.insert(surface.mode, surface.surface_digest) != Some(surface.surface_digest) {
                    self.record_surface(&surface);
                }
            }
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = told_to_stop(&mut stop) => return,
            }
        }
    }

    /// The modes in which tools are listed to anybody, as far as that is set.
    fn listed_modes(&self) -> Vec<Mode> {
        let world = self.world();
        let exposure = world.shelf().options();
        let stubs = exposure.mode.iter().chain(exposure.clients.values()).any(|m| *m == Mode::Transparent);
        std::iter::once(Mode::Passthrough).chain(stubs.then_some(Mode::Transparent)).collect()
    }

    fn record_surface(&self, surface: &Surface) {
        let size = surface.footprint.tools.size;
        let ledger = serde_json::to_vec(&surface.ledger).unwrap_or_default();
        let compiled = json!({
            "surface_digest": surface.surface_digest, "bytes": size.bytes, "tokens": size.o200k,
            "ladder_step": surface.ladder_step, "ledger_sha256": Sha256Digest::of(&ledger), "profile": surface.profile,
            "mode": surface.mode,
        });
        let mut events = vec![Event::new(EventName::SurfaceCompiled, &Actor::system()).data(compiled)];
        let excess: Vec<&str> = surface.excess.iter().map(|excess| excess.limit).collect();
        let subject = match surface.mode {
            Mode::Passthrough => surface.profile.clone(),
            mode => format!("{} {}", surface.profile, mode.as_str()),
        };
        self.alarms.end(AlarmKind::SurfaceRefused, &subject);
        if surface.ladder_step == 7 {
            let what = format!("the list of tools cannot be made to fit: {}", excess.join(", "));
            let fix =
                "portcullis footprint --explain; hide tools with [catalog.filter], or choose another profile";
            self.alarms.raise(AlarmKind::SurfaceRefused, &subject, what, fix.into());
            let data = json!({"excess": excess, "profile": surface.profile, "mode": surface.mode});
            events.push(Event::new(EventName::SurfaceRefused, &Actor::system()).data(data));
            tracing::error!(
                profile = surface.profile,
                ?excess,
                "the list of tools cannot be made to fit; the last one that did stays"
            );
        } else if surface.ladder_step > 0 {
            let data = json!({
                "deferred": surface.deferred, "ladder_step": surface.ladder_step, "profile": surface.profile,
                "mode": surface.mode,
            });
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
