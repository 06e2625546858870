//! The ratchet (SURF §7): what a surface may cost is written down, and may shrink but not grow unseen.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Surface;
use super::duplicates::{self, Hoisted};
use super::instructions::check_prefix;
use super::lints::Severity;
use super::sentences::sentences;

const FORMAT: &str = "portcullis-surface-baseline/1";

/// What a surface was when somebody said that it is good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Baseline {
    pub format: String,
    pub profile: String,
    pub mode: String,
    pub budget_bytes: usize,
    pub bytes: usize,
    pub o200k: usize,
    pub sentence_dup_bytes: usize,
    pub tools: BTreeMap<String, usize>,
    pub hoisted: Vec<Hoisted>,
    pub history: Vec<Growth>,
}

/// A budget that somebody set, and why it had to be larger than the one before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Growth {
    pub bytes: usize,
    pub reason: String,
}

/// Why a baseline was not written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotWritten {
    /// It would allow more than the one before.
    #[error(
        "the list has {bytes} bytes and the budget is {budget}; a larger budget needs --allow-growth and --reason"
    )]
    Grown {
        /// What there is.
        bytes: usize,
        /// What was allowed.
        budget: usize,
    },
}

impl Baseline {
    /// Of a surface as it is. A budget above that of `before` needs a reason.
    pub fn of(
        surface: &Surface,
        before: Option<&Baseline>,
        reason: Option<&str>,
    ) -> Result<Self, NotWritten> {
        let size = surface.footprint.tools.size;
        let mut history = before.map(|before| before.history.clone()).unwrap_or_default();
        if let Some(before) = before.filter(|before| size.bytes > before.budget_bytes) {
            let Some(reason) = reason.filter(|reason| !reason.trim().is_empty()) else {
                return Err(NotWritten::Grown { bytes: size.bytes, budget: before.budget_bytes });
            };
            history.push(Growth { bytes: size.bytes, reason: reason.to_owned() });
        }
        let mut hoisted = surface.hoisted.clone();
        for old in before.iter().flat_map(|before| &before.hoisted) {
            if !hoisted.iter().any(|new| new.text == old.text) {
                hoisted.push(old.clone());
            }
        }
        Ok(Self {
            format: FORMAT.into(),
            profile: surface.profile.clone(),
            mode: surface.mode.as_str().into(),
            budget_bytes: size.bytes,
            bytes: size.bytes,
            o200k: size.o200k,
            sentence_dup_bytes: duplicated(surface),
            tools: surface.footprint.per_tool.iter().map(|tool| (tool.name.clone(), tool.bytes)).collect(),
            hoisted,
            history,
        })
    }

    /// Every reason why a surface is worse than this.
    pub fn check(&self, surface: &Surface) -> Vec<String> {
        let mut causes = Vec::new();
        let bytes = surface.footprint.tools.size.bytes;
        if self.format != FORMAT {
            causes.push(format!("the baseline is not {FORMAT}"));
        }
        if bytes > self.budget_bytes {
            causes.push(format!(
                "{bytes} bytes, {} over the budget of {}",
                bytes - self.budget_bytes,
                self.budget_bytes
            ));
        }
        for hoisted in &self.hoisted {
            for tool in surface.tools.iter().filter(|tool| tool.name != hoisted.home) {
                let says = |text: &str| sentences(text).iter().any(|one| *one == hoisted.text);
                if tool.texts().into_iter().any(says) {
                    causes.push(format!(
                        "{} says again what {} says: {:?}",
                        tool.name, hoisted.home, hoisted.text
                    ));
                }
            }
        }
        if surface.instructions.is_empty() {
            causes.push("there are no instructions".into());
        } else if let Err(problem) = check_prefix(&surface.instructions, 512) {
            causes.push(format!("instructions: {problem}"));
        }
        let duplicated = duplicated(surface);
        if duplicated > self.sentence_dup_bytes {
            causes.push(format!(
                "{duplicated} bytes of repeated sentences, {} before",
                self.sentence_dup_bytes
            ));
        }
        for name in self.tools.keys().filter(|name| !surface.tools.iter().any(|tool| tool.name == **name)) {
            causes.push(format!("the tool {name} is gone"));
        }
        for finding in surface.findings.iter().filter(|finding| finding.severity == Severity::Error) {
            causes.push(format!("{} {}: {}", finding.rule, finding.tool, finding.message));
        }
        causes
    }
}

fn duplicated(surface: &Surface) -> usize {
    let mut servers: Vec<&str> = surface.tools.iter().map(|tool| tool.server.as_str()).collect();
    servers.sort_unstable();
    servers.dedup();
    let of = |server: &&str| {
        duplicates::report(surface.tools.iter().filter(|tool| tool.server == **server)).sentence_dup_bytes
    };
    servers.iter().map(of).sum()
}
