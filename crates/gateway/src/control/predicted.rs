//! What accepting a server would do to what clients read (SURF-55), and what in its definitions stands against it (SURF §4).

use std::collections::BTreeSet;
use std::sync::Arc;

use portcullis_governance::accepted::AcceptedDeclaration;
use portcullis_governance::record::RegistrationRecord;
use portcullis_governance::registry::{Registry, ServerEntry, ServerLive, ToolEntry, Trust};
use serde::Serialize;
use serde_json::{Value, json};

use super::{ControlError, State};
use crate::edge::Era;
use crate::exposure::Mode;
use crate::exposure::definitions::stand_ins;
use crate::listing;
use crate::surface::instructions::Introduced;
use crate::surface::lints::{Finding, Severity};
use crate::surface::{self, Budgeting, Input, Routability, Surface, SurfaceOptions, published};

/// How the list of whole definitions changes.
#[derive(Debug, Clone, Serialize)]
pub struct Predicted {
    /// For which clients.
    pub profile: String,
    /// Its bytes before.
    pub bytes_before: usize,
    /// And with what is accepted.
    pub bytes_after: usize,
    /// What those clients take.
    pub budget: usize,
    /// In a few words, as in `+3,212 B, 61 % → 74 % of strict`.
    pub summary: String,
}

/// What an operator lets pass all the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Waived<'a> {
    pub(super) rules: &'a [String],
    pub(super) over_budget: bool,
}

/// A waiver of lints that had something to waive: what was found and let pass.
#[derive(Debug, Clone, Default)]
pub(super) struct LetPass {
    rules: BTreeSet<&'static str>,
    over_budget: bool,
}

impl LetPass {
    /// As it is on record; nothing if nothing was waived.
    pub(super) fn on_record(&self) -> Option<Value> {
        let waived = !self.rules.is_empty() || self.over_budget;
        waived.then(|| json!({"lints": self.rules, "over_budget": self.over_budget}))
    }
}

impl State {
    /// Refuses a new or changed server whose definitions, or what it says of itself, no agent should be shown unless an
    /// operator says so (SURF §4). What was accepted before is not asked about again.
    pub(super) fn check_lints(
        &self,
        options: &SurfaceOptions,
        (record, accepted): (&RegistrationRecord, &Arc<AcceptedDeclaration>),
        waived: &Waived<'_>,
    ) -> Result<LetPass, ControlError> {
        let (now, next) = self.before_and_after(record, accepted);
        let as_accepted =
            SurfaceOptions { routability: Routability::Lint, mode: Budgeting::Report, ..options.clone() };
        let errors = |entries: Vec<ServerEntry>| -> Vec<Finding> {
            let found = self.with_input(entries, &as_accepted, surface::findings).into_iter();
            found
                .filter(|one| one.server == record.server_identity.as_str())
                .filter(|one| one.severity == Severity::Error)
                .collect()
        };
        let found = errors(next);
        if found.is_empty() {
            return Ok(LetPass { over_budget: waived.over_budget, ..LetPass::default() });
        }
        let known = errors(now);
        let is_waived = |error: &Finding| waived.rules.iter().any(|rule| rule == error.rule);
        let Some(error) = found.iter().find(|error| !known.contains(error) && !is_waived(error)) else {
            let rules = found.iter().filter(|error| is_waived(error)).map(|error| error.rule).collect();
            return Ok(LetPass { rules, over_budget: waived.over_budget });
        };
        let about = if error.tool.is_empty() { &error.server } else { &error.tool };
        let message = format!(
            "{} {about}: {}; `--waive {}` accepts it all the same, with your reason on record",
            error.rule, error.message, error.rule
        );
        Err(ControlError::field("waive", message))
    }

    /// What accepting a new or changed server would come to, or why it may not be accepted.
    pub(super) fn predict(
        &self,
        options: &SurfaceOptions,
        (record, accepted): (&RegistrationRecord, &Arc<AcceptedDeclaration>),
        waived: &Waived<'_>,
    ) -> Result<Predicted, ControlError> {
        let (now, next) = self.before_and_after(record, accepted);
        let before = self.with_input(now, options, surface::compile);
        let after = self.with_input(next, options, surface::compile);
        let predicted = predicted(&before, &after, options);
        if options.mode == Budgeting::Enforce && after.ladder_step == 7 && !waived.over_budget {
            let message = format!(
                "the list of tools could not be made to fit any more ({}); `--allow-over-budget` accepts it, and the last list that fitted stays",
                predicted.summary
            );
            return Err(ControlError::field("allow_over_budget", message));
        }
        Ok(predicted)
    }

    /// The servers there are, and those there would be.
    fn before_and_after(
        &self,
        record: &RegistrationRecord,
        accepted: &Arc<AcceptedDeclaration>,
    ) -> (Vec<ServerEntry>, Vec<ServerEntry>) {
        let now = self.trusted_entries();
        let (others, before): (Vec<ServerEntry>, Vec<ServerEntry>) =
            now.iter().cloned().partition(|entry| entry.record.server_identity != record.server_identity);
        let before = before.first();
        let changed = ServerEntry {
            record: Arc::new(record.clone()),
            declaration: accepted.clone(),
            live: before.map_or_else(|| Arc::new(ServerLive::of(accepted)), |before| before.live.clone()),
            trust: before.map_or(Trust::Untrusted, |before| before.trust),
            tools: before.map(|before| before.tools.clone()).unwrap_or_default(),
        };
        (now, others.into_iter().chain([changed]).collect())
    }

    /// What is made of the surface that these servers would have.
    fn with_input<T>(
        &self,
        entries: Vec<ServerEntry>,
        options: &SurfaceOptions,
        make: impl FnOnce(&Input<'_>) -> T,
    ) -> T {
        // SURF-18: what it would say of itself counts, as far as the operator says nothing in its place.
        let introduced = |entry: &ServerEntry| Introduced {
            name: entry.record.server_identity.to_string(),
            digest: options
                .servers
                .get(entry.record.server_identity.as_str())
                .and_then(|said| said.digest.clone()),
            instructions: entry.declaration.live().instructions.clone(),
            ..Introduced::default()
        };
        let servers: Vec<Introduced> = entries.iter().map(introduced).collect();
        let records = entries.iter().any(|entry| entry.record.transport.is_builtin());
        let registry = Registry::named(entries, self.policy.clone(), self.names);
        let definition = |entry: &ToolEntry| listing::tool_definition(entry, &self.gauntlet, Era::Modern);
        make(&Input {
            tools: published::offered(&registry, definition, &[]),
            mode: Mode::Passthrough,
            profile: options.profile(""),
            options,
            prune: BTreeSet::new(),
            servers,
            records,
            stand_ins: stand_ins(),
        })
    }
}

fn predicted(before: &Surface, after: &Surface, options: &SurfaceOptions) -> Predicted {
    let profile = options.profile("");
    let (was, is, budget) =
        (before.footprint.tools.size.bytes, after.footprint.tools.size.bytes, profile.tools_total_bytes);
    let share = |bytes: usize| (bytes * 100).checked_div(budget).unwrap_or(0);
    let sign = if is < was { '-' } else { '+' };
    Predicted {
        profile: profile.name.clone(),
        bytes_before: was,
        bytes_after: is,
        budget,
        summary: format!(
            "{sign}{} B, {} % → {} % of {}",
            is.abs_diff(was),
            share(was),
            share(is),
            profile.name
        ),
    }
}
