//! `settings.toml`: what policy decides that is not a question about one call (GOV-806).

use std::collections::BTreeMap;
use std::time::Duration;

use portcullis_core::ServerIdentity;
use portcullis_core::error::Fault;
use serde::Deserialize;

use crate::declaration::{SideEffect, Span};
use crate::record::{Isolation, Mode};
use crate::session::CheckpointRules;

/// The whole file. Unknown keys are refused: a setting that is misspelt must not be one that does nothing.
#[derive(Debug, Clone, PartialEq, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    tier: TierSection,
    modes: ModesSection,
    isolation: IsolationSection,
    /// What servers may have that are registered for a mode (GOV-403 rule 9).
    acceptance: BTreeMap<Mode, AcceptanceSection>,
    approvals: ApprovalsSection,
    trust: TrustSection,
    checkpoints: CheckpointsSection,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TierSection {
    /// The highest tier any server is assigned.
    max: u8,
    /// The highest tier of single servers, in place of `max`.
    servers: BTreeMap<ServerIdentity, u8>,
}

impl Default for TierSection {
    fn default() -> Self {
        Self { max: 1, servers: BTreeMap::new() }
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ModesSection {
    /// The modes in which servers may say that their surface changes (GOV-502).
    dynamic: Vec<Mode>,
}

impl Default for ModesSection {
    fn default() -> Self {
        Self { dynamic: vec![Mode::Local] }
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct IsolationSection {
    /// Whether a loopback server that we did not start needs no waiver.
    allow_unmanaged_local: bool,
    /// Whether credentials may be put into the environment of a process (SBX-52).
    allow_env_credentials: bool,
    /// Whether nothing leaves any process that is started here, whatever was declared (SBX-10).
    deny_egress: bool,
}

/// What a server may have in one mode; what is not said is not limited.
#[derive(Debug, Clone, PartialEq, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct AcceptanceSection {
    classes: Option<Vec<SideEffect>>,
    isolation: Option<Vec<Isolation>>,
    credentials: Option<Vec<String>>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ApprovalsSection {
    /// How long a request waits for an operator, 1m to 24h.
    pending: Span,
}

impl Default for ApprovalsSection {
    fn default() -> Self {
        Self { pending: Span(crate::approval::PENDING_TTL) }
    }
}

/// What of a session's calls stops it until somebody has looked (GOV-1203).
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct CheckpointsSection {
    triggers: Vec<OptionalTrigger>,
    /// How many calls a session makes before it is stopped, with `call_budget` among the triggers.
    call_budget: u64,
}

impl Default for CheckpointsSection {
    fn default() -> Self {
        Self { triggers: Vec::new(), call_budget: 100 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OptionalTrigger {
    ClassEscalation,
    ScopeExpansion,
    CallBudget,
}

/// What becomes of trust after a violation (GOV-1105).
#[derive(Debug, Clone, PartialEq, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct TrustSection {
    violation_score: ViolationScore,
    /// Whether a violation by one tool is one by all; without a word, it is for what a server does beside its
    /// declaration (MP-FH-005, MP-FH-008).
    contamination: Option<Contamination>,
    envelopes: Envelopes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
enum ViolationScore {
    #[default]
    Zero,
    Halve,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Contamination {
    None,
    Server,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
enum Envelopes {
    #[default]
    Invalidate,
    Keep,
}

impl Settings {
    /// Reads the file's text.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let settings: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        let tiers = settings.tier.servers.values().chain([&settings.tier.max]);
        if let Some(tier) = tiers.copied().find(|tier| *tier > 3) {
            return Err(format!("tier: {tier} is not one; tiers are 0, 1, 2 and 3"));
        }
        let pending = settings.approvals.pending.0;
        if !(Duration::from_secs(60)..=Duration::from_secs(24 * 3600)).contains(&pending) {
            return Err("approvals.pending: must be 1m to 24h".into());
        }
        if settings.checkpoints.call_budget == 0 {
            return Err("checkpoints.call_budget: must be at least 1".into());
        }
        Ok(settings)
    }

    /// What of a session's calls opens a checkpoint.
    pub fn checkpoint_rules(&self) -> CheckpointRules {
        let CheckpointsSection { triggers, call_budget } = &self.checkpoints;
        let has = |trigger| triggers.contains(&trigger);
        CheckpointRules {
            class_escalation: has(OptionalTrigger::ClassEscalation),
            scope_expansion: has(OptionalTrigger::ScopeExpansion),
            call_budget: has(OptionalTrigger::CallBudget).then_some(*call_budget),
        }
    }

    /// The tier a server is assigned that asks for `requested`.
    pub fn assigned_tier(&self, server: &ServerIdentity, requested: u8) -> u8 {
        requested.min(self.tier.servers.get(server).copied().unwrap_or(self.tier.max))
    }

    /// Whether a server whose surface changes may be registered for `mode`.
    pub fn allows_dynamic(&self, mode: Mode) -> bool {
        self.modes.dynamic.contains(&mode)
    }

    /// Whether a loopback server that we did not start needs no waiver.
    pub fn allows_unmanaged_local(&self) -> bool {
        self.isolation.allow_unmanaged_local
    }

    /// Whether a tool of a server in `mode` may have this class.
    pub fn allows_class(&self, mode: Mode, class: SideEffect) -> bool {
        let limit = self.acceptance.get(&mode).and_then(|section| section.classes.as_ref());
        limit.is_none_or(|classes| classes.contains(&class))
    }

    /// Whether a tool of a server in `mode` may be lent credentials of this class.
    pub fn allows_credential(&self, mode: Mode, class: &str) -> bool {
        let limit = self.acceptance.get(&mode).and_then(|section| section.credentials.as_ref());
        limit.is_none_or(|classes| classes.iter().any(|allowed| allowed == class))
    }

    /// Whether a server in `mode` may be confined no better than this.
    pub fn allows_isolation(&self, mode: Mode, isolation: Isolation) -> bool {
        let limit = self.acceptance.get(&mode).and_then(|section| section.isolation.as_ref());
        limit.is_none_or(|classes| classes.contains(&isolation))
    }

    /// Whether credentials may be put into the environment of a process.
    pub fn allows_env_credentials(&self) -> bool {
        self.isolation.allow_env_credentials
    }

    /// Whether nothing leaves any process that is started here.
    pub fn denies_egress(&self) -> bool {
        self.isolation.deny_egress
    }

    /// Whether a violation of this kind by one tool is one by all of its server.
    pub fn contaminates(&self, fault: Fault) -> bool {
        match self.trust.contamination {
            Some(contamination) => contamination == Contamination::Server,
            None => matches!(fault, Fault::UngovernedSurface | Fault::ScopeViolation),
        }
    }

    /// What a violation leaves of a score: `zero` or `halve`.
    pub fn violation_score(&self) -> &'static str {
        match self.trust.violation_score {
            ViolationScore::Zero => "zero",
            ViolationScore::Halve => "halve",
        }
    }

    /// Whether wide approvals outlive a violation.
    pub fn keeps_envelopes(&self) -> bool {
        self.trust.envelopes == Envelopes::Keep
    }

    /// How long a request waits for an operator.
    pub fn pending_ttl(&self) -> Duration {
        self.approvals.pending.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tier_assigned_is_the_lesser_of_asked_and_allowed() {
        // GOV-806
        let name = |text: &str| text.parse::<ServerIdentity>().unwrap();
        let settings = Settings::parse("").unwrap();
        assert_eq!((0..=3).map(|n| settings.assigned_tier(&name("a"), n)).collect::<Vec<_>>(), [0, 1, 1, 1]);
        let settings = Settings::parse("[tier]\nmax = 0\n[tier.servers]\nnotes = 3\n").unwrap();
        assert_eq!(
            (settings.assigned_tier(&name("a"), 3), settings.assigned_tier(&name("notes"), 2)),
            (0, 2)
        );
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for text in [
            "[tier]\nmax = 4",
            "[tier.servers]\nNOTES = 1",
            "[tiers]\nmax = 1",
            "[modes]\ndynamic = [\"moon\"]",
            "[isolation]\nallow_unmanaged = true",
            "[approvals]\npending = \"1s\"",
            "[checkpoints]\ntriggers = [\"policy_activation\"]",
            "[checkpoints]\ncall_budget = 0",
            "tier = ",
        ] {
            assert!(Settings::parse(text).is_err(), "{text}");
        }
        let settings =
            Settings::parse("[modes]\ndynamic = [\"team\"]\n[approvals]\npending = \"30m\"").unwrap();
        assert!(settings.allows_dynamic(Mode::Team) && !settings.allows_dynamic(Mode::Local));
        assert_eq!(settings.pending_ttl(), Duration::from_secs(1800));
        assert!(!Settings::default().allows_unmanaged_local());
        assert_eq!(Settings::default().checkpoint_rules(), CheckpointRules::default());
        let settings =
            Settings::parse("[checkpoints]\ntriggers = [\"call_budget\"]\ncall_budget = 7").unwrap();
        assert_eq!(settings.checkpoint_rules().call_budget, Some(7));
        assert!(Settings::default().contaminates(Fault::UngovernedSurface));
        assert!(!Settings::default().contaminates(Fault::Mismatch));
        let settings =
            Settings::parse("[trust]\ncontamination = \"none\"\nviolation_score = \"halve\"").unwrap();
        assert!(!settings.contaminates(Fault::UngovernedSurface));
        assert_eq!((settings.violation_score(), settings.keeps_envelopes()), ("halve", false));
    }
}
