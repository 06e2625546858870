//! What accepting a server would do to what clients read (SURF-55), and what in its definitions stands against it (SURF §4).

use std::sync::Arc;

use portcullis_governance::accepted::AcceptedDeclaration;
use portcullis_governance::record::RegistrationRecord;
use portcullis_governance::registry::{Registry, ServerEntry, ToolEntry};
use serde::Serialize;

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

impl State {
    /// What accepting a changed server would come to, or why it may not be accepted.
    pub(super) fn predict(
        &self,
        options: &SurfaceOptions,
        before: &ServerEntry,
        record: &RegistrationRecord,
        accepted: &Arc<AcceptedDeclaration>,
        waived: &Waived<'_>,
    ) -> Result<Predicted, ControlError> {
        let now = self.trusted_entries();
        let name = &record.server_identity;
        let changed =
            ServerEntry { record: Arc::new(record.clone()), declaration: accepted.clone(), ..before.clone() };
        let mut next: Vec<ServerEntry> =
            now.iter().filter(|entry| entry.record.server_identity != *name).cloned().collect();
        next.push(changed);
        let as_accepted =
            SurfaceOptions { routability: Routability::Lint, mode: Budgeting::Report, ..options.clone() };
        let errors = |surface: &Surface| -> Vec<Finding> {
            let own = surface.findings.iter().filter(|one| one.server == name.as_str());
            own.filter(|one| one.severity == Severity::Error).cloned().collect()
        };
        // What was accepted before is not asked about again.
        let known = errors(&self.surface_of(now.clone(), &as_accepted));
        let stands_against = (errors(&self.surface_of(next.clone(), &as_accepted)).into_iter())
            .find(|error| !known.contains(error) && !waived.rules.iter().any(|rule| rule == error.rule));
        if let Some(error) = stands_against {
            let message = format!(
                "{} {}: {}; `--waive {}` accepts it all the same, with your reason on record",
                error.rule, error.tool, error.message, error.rule
            );
            return Err(ControlError::field("waive", message));
        }
        let (before, after) = (self.surface_of(now, options), self.surface_of(next, options));
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

    fn surface_of(&self, entries: Vec<ServerEntry>, options: &SurfaceOptions) -> Surface {
        let introduced = |entry: &ServerEntry| Introduced {
            name: entry.record.server_identity.to_string(),
            ..Introduced::default()
        };
        let servers: Vec<Introduced> = entries.iter().map(introduced).collect();
        let records = entries.iter().any(|entry| entry.record.transport.is_builtin());
        let registry = Registry::named(entries, self.policy.clone(), self.names);
        let definition = |entry: &ToolEntry| listing::tool_definition(entry, &self.gauntlet, Era::Modern);
        surface::compile(&Input {
            tools: published::offered(&registry, definition, &[]),
            mode: Mode::Passthrough,
            profile: options.profile(""),
            options,
            prune: std::collections::BTreeSet::new(),
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
