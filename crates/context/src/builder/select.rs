//! Which items are in the prompt (CTX-62, 63, 65).

use super::render::{Shown, block, placeholder, render};
use super::score::Scored;
use super::{BuildError, Built, Dropped, Fate, Reason, Stage};
use crate::item::Kind;

/// Two line ends between blocks, and what may not merge into one token: more than either can cost.
const SEPARATOR: usize = 2;

/// Keeps the best of a kind, where a limit is set.
pub(super) fn limit(stage: &mut Stage<'_>, scored: &Scored) {
    for (kind, most) in stage.build.max_per_kind.clone() {
        let latest = latest_turn(stage);
        let over = (scored.order.iter().copied())
            .filter(|at| stage.items[*at].kind == kind && stage.is_candidate(*at))
            .skip(most)
            .filter(|at| kind != Kind::Policy && Some(*at) != latest);
        for at in over.collect::<Vec<_>>() {
            stage.fates[at] = Fate::Dropped(Reason::Limit);
        }
    }
}

fn latest_turn(stage: &Stage<'_>) -> Option<usize> {
    (0..stage.items.len()).rev().find(|at| stage.items[*at].kind == Kind::UserTurn && stage.is_candidate(*at))
}

/// Selects, renders and counts.
pub(super) fn select(stage: Stage<'_>, scored: &Scored) -> Result<Built, BuildError> {
    let encoder = stage.build.encoder;
    let budget = stage.build.budget.unwrap_or(stage.build.phase.budget());
    let labels = Kind::ALL.map(|kind| (kind, encoder.count(&block(kind, ""))));
    let label = |kind: Kind| labels.iter().find(|(other, _)| *other == kind).map_or(0, |(_, tokens)| *tokens);

    let mut shown = vec![Shown::Not; stage.items.len()];
    let latest = latest_turn(&stage);
    for (at, shown) in shown.iter_mut().enumerate() {
        if stage.is_candidate(at) && (stage.items[at].kind == Kind::Policy || Some(at) == latest) {
            *shown = Shown::Item;
        }
    }
    let mandatory = shown.clone();
    let needed = encoder.count(&render(&stage, &shown));
    if needed > budget {
        return Err(BuildError::BudgetTooSmall { needed, budget });
    }

    let mut used = needed;
    let mut groups: Vec<Vec<(usize, Shown)>> = Vec::new();
    for at in scored.order.iter().copied() {
        if shown[at] != Shown::Not || !stage.is_candidate(at) {
            continue;
        }
        let whole = |at: usize| {
            let item = &stage.items[at];
            let note = item.artifact_ref.as_ref().map_or(0, |artifact| artifact.len() / 2 + 8);
            // An ancestor that was a duplicate was counted like any candidate.
            scored.tokens[at] + label(item.kind) + note + SEPARATOR
        };
        // What has no room alone has none with its ancestors, who need not be looked for.
        if used + whole(at) > budget {
            continue;
        }
        let group = group(&stage, &shown, at);
        let cost: usize = (group.iter())
            .map(|(at, how)| {
                let item = &stage.items[*at];
                match how {
                    Shown::Placeholder => {
                        encoder.count(&placeholder(item.kind, item.sensitivity)) + SEPARATOR
                    }
                    _ => whole(*at),
                }
            })
            .sum();
        if used + cost > budget {
            continue;
        }
        used += cost;
        for (at, how) in &group {
            shown[*at] = *how;
        }
        groups.push(group);
    }

    // The sum was of parts; what counts is the whole (stage 8).
    loop {
        let prompt = render(&stage, &shown);
        let tokens = encoder.count(&prompt);
        if tokens <= budget {
            return Ok(finished(&stage, &shown, prompt, tokens));
        }
        // Groups were taken best first, so the last one is the least; later groups may rest on earlier ones only.
        let Some(least) = groups.pop() else {
            return Err(BuildError::BudgetTooSmall { needed: tokens, budget });
        };
        for (at, _) in least {
            shown[at] = mandatory[at];
        }
    }
}

/// An item with those of its ancestors that are not in the prompt yet. One whose kind is not for this phase is passed
/// over; one that is too sensitive leaves a line.
fn group(stage: &Stage<'_>, shown: &[Shown], at: usize) -> Vec<(usize, Shown)> {
    let mut group = vec![(at, Shown::Item)];
    let mut here = stage.parent(at);
    while let Some(ancestor) = here {
        if group.iter().any(|(member, _)| *member == ancestor) {
            break;
        }
        if shown[ancestor] == Shown::Not {
            match stage.fates[ancestor] {
                Fate::Dropped(Reason::Kind) => {}
                Fate::Dropped(Reason::Sensitivity) => group.push((ancestor, Shown::Placeholder)),
                Fate::Candidate | Fate::Dropped(_) => group.push((ancestor, Shown::Item)),
            }
        }
        here = stage.parent(ancestor);
    }
    group
}

fn finished(stage: &Stage<'_>, shown: &[Shown], prompt: String, tokens: usize) -> Built {
    let (mut included, mut dropped) = (Vec::new(), Vec::new());
    for (at, item) in stage.items.iter().enumerate() {
        let id = item.id.clone();
        match (shown[at], stage.fates[at]) {
            (Shown::Item, _) => included.push(id),
            (_, Fate::Dropped(reason)) => dropped.push(Dropped { id, reason }),
            (_, Fate::Candidate) => dropped.push(Dropped { id, reason: Reason::Budget }),
        }
    }
    Built { prompt, tokens, included, dropped }
}
