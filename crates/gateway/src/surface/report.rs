//! What a surface comes to, as one document: for `portcullis footprint`, for programs and for the console.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::footprint::Size;
use super::ladder::{Rungs, StepSize, climb};
use super::offered::Offered;
use super::profile::Profile;
use super::{Surface, SurfaceOptions};
use crate::exposure::Mode;

/// One text that is published otherwise than it was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The tool.
    pub tool: String,
    /// Where in its definition.
    pub pointer: String,
    /// What was accepted.
    pub before: String,
    /// What is published; nothing if it is gone.
    pub after: Option<String>,
}

impl Surface {
    /// `within` its budget, `over` it, `degraded` to fit it, or `refused`.
    pub fn verdict(&self) -> &'static str {
        match (self.ladder_step, self.excess.is_empty()) {
            (7, _) => "refused",
            (0, true) => "within",
            (0, false) => "over",
            _ => "degraded",
        }
    }

    /// The whole measurement, against what a profile takes (SURF-50).
    pub fn report(&self, profile: &Profile) -> Value {
        let mut document = json!({
            "format": "portcullis-footprint/1", "mode": self.mode, "profile": profile.name,
            "surface_digest": self.surface_digest, "tools": self.footprint.tools,
            "instructions": {
                "chars": self.instructions.encode_utf16().count(),
                "head_chars": self.instructions.get(..512).unwrap_or(&self.instructions).trim_end().len(),
                "o200k": Size::of(&self.instructions).o200k,
            },
            "budget": {"bytes": profile.tools_total_bytes, "tokens": profile.tools_total_tokens, "encoding": "o200k"},
            "verdict": self.verdict(), "ladder_step": self.ladder_step, "deferred": self.deferred,
            "findings": self.findings, "per_tool": self.footprint.per_tool,
        });
        document["servers"] = (self.footprint.servers.iter())
            .map(|server| {
                let mut row = json!(server);
                let mut lints = BTreeMap::new();
                for finding in self.findings.iter().filter(|finding| finding.server == server.name) {
                    *lints.entry(finding.rule).or_insert(0) += 1;
                }
                row["lints"] = json!(lints);
                row
            })
            .collect();
        document
    }

    /// What each step of making it fit would come to, one after another.
    pub fn explained(&self, profile: &Profile, options: &SurfaceOptions) -> Vec<StepSize> {
        // SURF-37: these steps rewrite, and only whole definitions are rewritten.
        if self.mode != Mode::Passthrough {
            return vec![StepSize { step: 0, bytes: self.tools_json.len() }];
        }
        // Nothing fits into nothing, so every step is taken.
        let none = Profile { tools_total_bytes: 0, ..profile.clone() };
        let originals =
            self.tools.iter().filter_map(|tool| Offered::new(&tool.server, tool.effect, tool.original()));
        let rungs = Rungs {
            servers: Some(&options.servers),
            dedup_min_tools: options.dedup_min_tools,
            stand_ins: Vec::new(),
            ..Rungs::default()
        };
        let mut steps = climb(originals.collect(), &none, &rungs).steps;
        steps.retain(|step| step.step < 6);
        steps
    }

    /// What is published otherwise than it was accepted (SURF-4).
    pub fn changes(&self) -> Vec<Change> {
        let of = |tool: &Offered| {
            let accepted = Offered::new("", None, tool.original());
            let before = accepted.as_ref().map(Offered::descriptions).unwrap_or_default();
            let after = tool.descriptions();
            let changed = before.into_iter().filter_map(|(pointer, before)| {
                let now = after.iter().find(|(at, _)| *at == pointer).map(|(_, text)| *text);
                (now != Some(before)).then(|| Change {
                    tool: tool.name.clone(),
                    pointer,
                    before: before.to_owned(),
                    after: now.map(ToOwned::to_owned),
                })
            });
            changed.collect::<Vec<_>>()
        };
        self.tools.iter().filter(|tool| tool.is_rewritten()).flat_map(of).collect()
    }
}
