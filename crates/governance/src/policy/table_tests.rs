//! The presets against the table of GOV-805, and what no bundle can undo (T-POL-1).

use std::sync::Arc;

use super::*;
use crate::accepted::AcceptedTool;
use crate::fixture::{self, Sketch, circumstances};
use crate::registry::{ToolTrust, Trust};

const CLASSES: [&[&str]; 12] = [
    &[],
    &["read"],
    &["write"],
    &["network"],
    &["execute"],
    &["secret_access"],
    &["other"],
    &["read", "write"],
    &["network", "read"],
    &["network", "read", "write"],
    &["execute", "read"],
    &["read", "secret_access"],
];
const MODES: [Mode; 4] = [Mode::Local, Mode::Team, Mode::Enterprise, Mode::Ci];

fn tool(classes: &[&str], bound: bool) -> Arc<AcceptedTool> {
    fixture::sketched("files", &[Sketch { name: "tool", classes, bound }]).tools()[0].clone()
}

fn request(tool: &Arc<AcceptedTool>) -> CanonicalRequest {
    let lineage = fixture::session("claude-code").next_step(None);
    fixture::canonical(tool, "{}", lineage, &portcullis_core::Secret::new([1; 32]))
}

/// A tool's facts at a trust and tier, registered for some modes.
fn facts(tool: &AcceptedTool, trust: Trust, tier: u8, modes: &[Mode]) -> ToolFacts {
    let mut record = fixture::record(&fixture::accepted(fixture::epoch(7), 3));
    record.server_identity = tool.id().server().clone();
    record.assigned_trust_tier = tier;
    record.policy_tags = modes.to_vec();
    ToolFacts::new(tool, &record, trust, ToolTrust { state: trust, violations: 0 })
}

fn with(preset: Preset, mode: Mode, text: &str) -> Policy {
    Policy::compile(&Bundle::preset(preset).with("mine.cedar", text), mode, 1).unwrap()
}

/// One cell of the table, in the words of the table.
struct Cell<'a> {
    preset: Preset,
    mode: Mode,
    trust: Trust,
    tier: u8,
    classes: &'a [&'a str],
    bound: bool,
}

impl Cell<'_> {
    fn only(&self, allowed: &[&str]) -> bool {
        self.classes.iter().all(|class| allowed.contains(class))
    }

    fn dangerous(&self) -> bool {
        self.classes.iter().any(|class| ["execute", "secret_access", "other"].contains(class))
    }

    fn verdict(&self) -> Verdict {
        let Cell { preset, mode, trust, tier, .. } = *self;
        if preset == Preset::Observe && !matches!(mode, Mode::Local | Mode::Team) {
            return Verdict::Denied;
        }
        let known = trust >= Trust::Probationary;
        let unattended = match preset {
            Preset::Strict => {
                trust == Trust::Trusted
                    && ((tier >= 2 && self.only(&["read"])) || (tier >= 3 && self.only(&["read", "write"])))
            }
            Preset::Balanced => {
                (known && tier >= 1 && self.only(&["read"]))
                    || (trust == Trust::Trusted && tier >= 3 && self.only(&["read", "network", "write"]))
            }
            Preset::Observe => known && tier >= 1 && !self.dangerous(),
        };
        if unattended { Verdict::Unattended } else { Verdict::NeedsApproval }
    }

    fn offers(&self) -> Vec<Offer> {
        let session = match self.preset {
            Preset::Strict => self.only(&["read"]) && self.trust != Trust::Untrusted,
            Preset::Balanced => !self.dangerous(),
            Preset::Observe => true,
        };
        let until = match self.preset {
            Preset::Strict => false,
            Preset::Balanced => self.only(&["read", "network"]),
            Preset::Observe => !self.dangerous(),
        };
        let serious = self.classes.iter().any(|class| ["execute", "secret_access"].contains(class));
        let two = self.preset == Preset::Balanced && self.mode == Mode::Enterprise && serious;
        let quorum = if two { 2 } else { 1 };
        let offered = |scope| match scope {
            Scope::Once => true,
            Scope::Session => session && self.bound,
            Scope::UntilVersionChange => until && self.bound,
        };
        Scope::ALL.into_iter().filter(|scope| offered(*scope)).map(|scope| Offer { scope, quorum }).collect()
    }
}

#[test]
fn every_preset_decides_as_its_table_says() {
    // T-POL-1, GOV-803, GOV-805
    let policies: Vec<_> = [Preset::Strict, Preset::Balanced, Preset::Observe]
        .into_iter()
        .flat_map(|preset| {
            let bundle = Bundle::preset(preset);
            MODES.map(|mode| (preset, mode, Policy::compile(&bundle, mode, 1).unwrap()))
        })
        .collect();
    for classes in CLASSES {
        for bound in [true, false] {
            let tool = tool(classes, bound);
            let request = request(&tool);
            for trust in [Trust::Untrusted, Trust::Probationary, Trust::Trusted] {
                // Being unbound narrows the offers only: one tier says all.
                for tier in if bound { 0..=3 } else { 3..=3 } {
                    let facts = facts(&tool, trust, tier, &MODES);
                    for &(preset, mode, ref policy) in &policies {
                        let cell = Cell { preset, mode, trust, tier, classes, bound };
                        let place =
                            format!("{preset:?} {mode:?} {trust:?} tier {tier} {classes:?} bound {bound}");
                        let decision = policy.decide(&request, &facts, &circumstances());
                        assert_eq!(decision.verdict(), cell.verdict(), "{place}");
                        assert_eq!(decision.unattended().is_some(), cell.verdict() == Verdict::Unattended);
                        if decision.verdict() == Verdict::NeedsApproval {
                            assert_eq!(policy.offers(&decision), cell.offers(), "{place}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn no_bundle_overrides_the_base() {
    // GOV-804
    let all = "permit (principal, action, resource);";
    for preset in [Preset::Strict, Preset::Balanced, Preset::Observe] {
        let policy = with(preset, Mode::Local, all);
        let verdict = |tool: &Arc<AcceptedTool>, trust, modes: &[Mode]| {
            let request = request(tool);
            let facts = facts(tool, trust, 3, modes);
            let decision = policy.decide(&request, &facts, &circumstances());
            (decision.verdict(), decision.reasons().to_vec(), policy.offers(&decision))
        };
        let read = tool(&["read"], true);
        let (denied, reasons, offers) = verdict(&read, Trust::Trusted, &[Mode::Team, Mode::Ci]);
        assert_eq!((denied, reasons), (Verdict::Denied, vec!["base/mode".to_owned()]));
        assert!(offers.is_empty(), "what the mode forbids, no operator can approve");
        let (asks, reasons, _) = verdict(&read, Trust::Untrusted, &[Mode::Local]);
        assert_eq!((asks, reasons), (Verdict::NeedsApproval, vec!["base/untrusted-asks".to_owned()]));
        for class in ["execute", "secret_access", "other"] {
            let (asks, ..) = verdict(&tool(&[class], true), Trust::Trusted, &[Mode::Local]);
            assert_eq!(asks, Verdict::NeedsApproval, "{class}");
        }
        let (_, _, offers) = verdict(&tool(&["execute"], false), Trust::Trusted, &[Mode::Local]);
        assert_eq!(offers.iter().map(|offer| offer.scope).collect::<Vec<_>>(), [Scope::Once]);
        assert_eq!(verdict(&read, Trust::Trusted, &[Mode::Local]).0, Verdict::Unattended, "it does widen");
    }
}

#[test]
fn an_argument_rule_sees_where_a_path_really_leads() {
    // GOV-803
    let tool = fixture::accepted(fixture::epoch(7), 3).tools()[0].clone();
    let facts = facts(&tool, Trust::Untrusted, 1, &[Mode::Local]);
    let verdict = |policy: &Policy, args: &str| {
        let lineage = fixture::session("claude-code").next_step(None);
        let request = fixture::canonical(&tool, args, lineage, &portcullis_core::Secret::new([1; 32]));
        policy.decide(&request, &facts, &circumstances()).verdict()
    };
    for call in ["context.call", r#"context["c\u{61}ll"]"#] {
        let rule = format!(
            r#"forbid (principal, action, resource) unless {{
                 {call}.hasTag("/path") && {call}.getTag("/path") like "/srv/project/docs/*" }};"#
        );
        let policy = with(Preset::Strict, Mode::Local, &rule);
        let asks = [r#"{"path":"/srv/project/docs/a.md"}"#, r#"{"path":"/srv/project/x/..//docs/./a.md"}"#];
        let denied = [r#"{"path":"/srv/project/a.md"}"#, r#"{"path":"/srv/project/docs/../a.md"}"#];
        for args in asks {
            assert_eq!(verdict(&policy, args), Verdict::NeedsApproval, "{call} {args}");
        }
        for args in denied {
            assert_eq!(verdict(&policy, args), Verdict::Denied, "{call} {args}");
        }
    }
    let rule = r#"forbid (principal, action, resource) when {
        context.call.hasTag("/limit") && context.call.getTag("/limit") == "5" };"#;
    let policy = with(Preset::Strict, Mode::Local, rule);
    assert_eq!(verdict(&policy, r#"{"path":"/srv/project/a","limit":5.0}"#), Verdict::Denied);
    assert_eq!(verdict(&policy, r#"{"path":"/srv/project/a","limit":6}"#), Verdict::NeedsApproval);
}

#[test]
fn a_policy_that_errs_denies() {
    // GOV-803: Cedar would skip it, and a skipped `forbid` lets things through.
    let overflow =
        "forbid (principal, action, resource) when { context.session_calls + 9223372036854775807 < 0 };";
    let policy = with(Preset::Strict, Mode::Local, overflow);
    let tool = tool(&["read"], true);
    let request = request(&tool);
    let facts = facts(&tool, Trust::Trusted, 3, &[Mode::Local]);
    let decide =
        |session_calls| policy.decide(&request, &facts, &Circumstances { session_calls, ..circumstances() });
    assert_eq!(decide(0).verdict(), Verdict::Unattended);
    let erred = decide(1);
    assert_eq!((erred.verdict(), erred.reasons()), (Verdict::Denied, &["error".to_owned()][..]));
    assert!(policy.offers(&erred).is_empty());
}
