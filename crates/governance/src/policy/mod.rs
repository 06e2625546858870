//! Policy: may it happen, may it happen unattended, and which approvals may be asked for (GOV §8).
//!
//! Policies are Cedar, validated strictly against one schema; the base policies are always in force. Asking
//! has three parts, and each is a separate question to Cedar: `invoke` without an approval (no: denied),
//! `invokeUnattended` (yes: go), and, when an approval is needed or reused, `invoke` with that approval.

mod answers;
mod bundle;
mod facts;
mod settings;

use std::str::FromStr as _;
use std::sync::Arc;

use cedar_policy::{
    Authorizer, Decision as CedarDecision, PolicyId, PolicySet, Schema, ValidationMode, Validator,
};
use portcullis_core::{ApprovalId, PolicyVersion, Principal, Sha256Digest};
use serde::{Deserialize, Serialize};

use crate::approval::{Claim, Scope};
use crate::record::Mode;
use crate::request::CanonicalRequest;

use answers::Answer;
pub use bundle::Bundle;
use facts::{Action, Facts, Inquiry};
pub use facts::{Circumstances, ToolFacts};
pub use settings::Settings;

const SCHEMA: &str = include_str!("schema.cedarschema");
const BASE: &str = include_str!("base.cedar");

/// The most operators a quorum can ask for.
const MAX_QUORUM: u32 = 5;

/// A ready-made policy (GOV-805).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    /// Every untrusted call asks; approvals are narrow.
    #[default]
    Strict,
    /// For teams.
    Balanced,
    /// For getting to know one's servers; modes local and team only.
    Observe,
}

impl Preset {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Preset::Strict => "strict",
            Preset::Balanced => "balanced",
            Preset::Observe => "observe",
        }
    }

    fn source(self) -> &'static str {
        match self {
            Preset::Strict => include_str!("strict.cedar"),
            Preset::Balanced => include_str!("balanced.cedar"),
            Preset::Observe => include_str!("observe.cedar"),
        }
    }
}

/// One file of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyFile {
    /// Its name, for messages.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// A policy that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// Not Cedar.
    #[error("{file}: {message}")]
    Syntax {
        /// The file.
        file: String,
        /// What Cedar says, with the place.
        message: String,
    },
    /// Does not fit the schema.
    #[error("{file}: {message}")]
    Invalid {
        /// The file, where it can be told.
        file: String,
        /// What the validator says.
        message: String,
    },
    /// `settings.toml` is not what it should be.
    #[error("settings.toml: {message}")]
    Settings {
        /// What is wrong, with the place.
        message: String,
    },
    /// Two policies with one id.
    #[error("{file}: policy id {id:?} is used twice")]
    DuplicateId {
        /// The file with the second.
        file: String,
        /// The id.
        id: String,
    },
}

/// The policy in force.
#[derive(Debug)]
pub struct Policy {
    version: PolicyVersion,
    bundle: Bundle,
    document: Vec<u8>,
    settings: Settings,
    mode: Mode,
    /// Ours, which look at the tool, its server and the mode only: their answer about a tool holds for all its calls.
    shipped: PolicySet,
    /// The operator's own, which may look at anything; asked about each call, if there are any.
    own: Option<PolicySet>,
    authorizer: Authorizer,
    /// Whether any policy looks at arguments: if none does, they need not be turned into entities.
    reads_arguments: bool,
}

/// What policy says about one request.
#[derive(Debug)]
pub struct Decision<'r> {
    request: &'r CanonicalRequest,
    policy: PolicyVersion,
    verdict: Verdict,
    reasons: Arc<[String]>,
    inquiry: Inquiry<'r>,
}

/// The three answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// No.
    Denied,
    /// Yes, without asking anybody.
    Unattended,
    /// Yes, if an operator approves.
    NeedsApproval,
}

impl Verdict {
    /// The word in events.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Denied => "deny",
            Verdict::Unattended => "unattended",
            Verdict::NeedsApproval => "approval",
        }
    }
}

/// An authorised request: what a permit is made of (INV-MP-002). Made only by a [`Decision`].
#[derive(Debug)]
pub struct Authorised<'r> {
    pub(crate) request: &'r CanonicalRequest,
    policy: PolicyVersion,
    claim: Option<Claim>,
}

/// The approval of a call, as far as it covers what the server asks while the call runs. Only a permit has one.
#[derive(Debug, Clone)]
pub struct Covering {
    pub(crate) approval_id: ApprovalId,
    pub(crate) scope: Scope,
    pub(crate) approvers: u32,
}

impl Covering {
    /// Which approval.
    pub fn approval_id(&self) -> ApprovalId {
        self.approval_id
    }
}

/// A scope an operator may choose, and how many operators it takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Offer {
    /// The scope.
    pub scope: Scope,
    /// How many distinct operators.
    pub quorum: u32,
}

impl Policy {
    /// Compiles a bundle. `counter` rises with every activation.
    pub fn compile(bundle: &Bundle, mode: Mode, counter: u64) -> Result<Self, PolicyError> {
        let settings =
            Settings::parse(&bundle.settings).map_err(|message| PolicyError::Settings { message })?;
        let mut all = PolicySet::new();
        let mut set_of = |files: &[PolicyFile]| {
            let mut set = PolicySet::new();
            for file in files {
                add_file(&mut set, file)?;
                // Ids are used once over all files.
                add_file(&mut all, file)?;
            }
            Ok::<_, PolicyError>(set)
        };
        let shipped = set_of(&bundle.shipped())?;
        let own = Some(set_of(&bundle.files)?).filter(|set| !set.is_empty());
        let (schema, _) = Schema::from_cedarschema_str(SCHEMA).expect("the shipped schema is valid");
        let result = Validator::new(schema).validate(&all, ValidationMode::Strict);
        if let Some(error) = result.validation_errors().next() {
            let file = error.policy_id().to_string();
            return Err(PolicyError::Invalid { file, message: error.to_string() });
        }
        let document = bundle.document();
        let version = PolicyVersion { counter, sha256: Sha256Digest::of(&document) };
        // Tags are read by `hasTag` and `getTag` only, and a method's name cannot be written with escapes, as the
        // attribute in `context["c\u{61}ll"]` can.
        let reads_arguments = bundle.files.iter().any(|file| file.text.contains("Tag"));
        let authorizer = Authorizer::new();
        let bundle = bundle.clone();
        Ok(Self { version, bundle, document, settings, mode, shipped, own, authorizer, reads_arguments })
    }

    /// `<counter>:<sha256>`.
    pub fn version(&self) -> PolicyVersion {
        self.version
    }

    /// The texts in force: evidence.
    pub fn document(&self) -> &[u8] {
        &self.document
    }

    /// What was compiled.
    pub fn bundle(&self) -> &Bundle {
        &self.bundle
    }

    /// What it decides besides calls.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The ids of all policies in force, sorted.
    pub fn ids(&self) -> Vec<String> {
        let policies = self.shipped.policies().chain(self.own.iter().flat_map(PolicySet::policies));
        let mut ids: Vec<String> = policies.map(|policy| policy.id().to_string()).collect();
        ids.sort();
        ids
    }

    /// Where the gateway runs.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Step 3: the decision about one request.
    pub fn decide<'r>(
        &self,
        request: &'r CanonicalRequest,
        tool: &'r ToolFacts,
        circumstances: &Circumstances<'r>,
    ) -> Decision<'r> {
        let inquiry = Inquiry::new(request, tool, *circumstances);
        let may = self.ask(&inquiry, Action::Invoke, None);
        let (verdict, reasons) = if !may.allowed {
            (Verdict::Denied, may.reasons)
        } else {
            let unattended = self.ask(&inquiry, Action::InvokeUnattended, None);
            match (unattended.allowed, unattended.reasons.is_empty()) {
                (true, _) => (Verdict::Unattended, unattended.reasons),
                (false, false) => (Verdict::NeedsApproval, unattended.reasons),
                (false, true) => (Verdict::NeedsApproval, may.reasons),
            }
        };
        Decision { request, policy: self.version, verdict, reasons, inquiry }
    }

    /// The scopes an operator may choose for this request, each with its quorum (GOV-803).
    pub fn offers(&self, decision: &Decision<'_>) -> Vec<Offer> {
        let least_quorum = |scope| {
            (1..=MAX_QUORUM).find(|n| self.ask(&decision.inquiry, Action::Invoke, Some((scope, *n))).allowed)
        };
        Scope::ALL
            .into_iter()
            .filter_map(|scope| least_quorum(scope).map(|quorum| Offer { scope, quorum }))
            .collect()
    }

    /// Turns an approval into an authorisation, if policy still allows its scope (GOV-803: asked on each reuse).
    pub fn approved<'r>(&self, decision: &Decision<'r>, claim: Claim) -> Option<Authorised<'r>> {
        let with = Some((claim.scope(), claim.approvers()));
        let allowed = decision.verdict != Verdict::Denied
            && decision.policy == self.version
            && self.ask(&decision.inquiry, Action::Invoke, with).allowed;
        allowed.then_some(Authorised { request: decision.request, policy: self.version, claim: Some(claim) })
    }

    /// Turns the approval of a call into the authorisation of what its server asks while it runs (GOV-408): what the
    /// operator allowed has this in its declaration. Policy must allow it under such an approval, and no use is spent.
    pub fn covered<'r>(&self, decision: &Decision<'r>, covering: &Covering) -> Option<Authorised<'r>> {
        let with = Some((covering.scope, covering.approvers));
        let allowed = decision.verdict != Verdict::Denied
            && decision.policy == self.version
            && self.ask(&decision.inquiry, Action::Invoke, with).allowed;
        allowed.then_some(Authorised { request: decision.request, policy: self.version, claim: None })
    }

    fn ask(&self, inquiry: &Inquiry<'_>, action: Action, approval: Option<(Scope, u32)>) -> Answer {
        self.answer(inquiry.tool, || inquiry.facts(self), action, approval)
    }

    /// One question. What our own policies say is asked once per tool; they and the operator's say together what all of
    /// them would say as one set.
    fn answer<'f>(
        &self,
        tool: &ToolFacts,
        facts: impl Fn() -> &'f Facts,
        action: Action,
        approval: Option<(Scope, u32)>,
    ) -> Answer {
        let key = (self.version, self.mode);
        let ask = |set| self.ask_cedar(set, facts(), action, approval);
        let shipped = tool.answers.get_or_ask(key, action, approval, || ask(&self.shipped));
        match &self.own {
            Some(own) => shipped.and(ask(own)),
            None => shipped,
        }
    }

    /// Whether an agent may look at what a result of this tool left behind, by this kind of selector (CTX-22). It is
    /// the question `invoke` with the tag `portcullis:view`; nobody is asked, because the call itself was approved.
    /// A refusal names the policies that decided.
    pub fn may_view(
        &self,
        principal: &Principal,
        tool: &ToolFacts,
        circumstances: Circumstances<'_>,
        selector: &str,
    ) -> Result<(), Arc<[String]>> {
        let facts = Facts::of_view(self, principal, tool, &circumstances, selector);
        let answer = self.answer(tool, || &facts, Action::Invoke, None);
        if answer.allowed { Ok(()) } else { Err(answer.reasons) }
    }

    /// How many operators an approval of this scope takes, given before there is a call: for whatever arguments, so a
    /// policy that wants particular ones does not allow it. `None` if it cannot be given.
    pub fn quorum_of(
        &self,
        principal: &Principal,
        tool: &ToolFacts,
        circumstances: Circumstances<'_>,
        scope: Scope,
    ) -> Option<u32> {
        let facts = Facts::of_any_call(self, principal, tool, &circumstances);
        let may = |approval| self.answer(tool, || &facts, Action::Invoke, approval).allowed;
        may(None).then_some(())?;
        (1..=MAX_QUORUM).find(|n| may(Some((scope, *n))))
    }

    /// What it says of a call of this tool by this agent, whatever its arguments. `None` if it reads them.
    pub fn verdict_on_any_call(
        &self,
        principal: &Principal,
        tool: &ToolFacts,
        circumstances: Circumstances<'_>,
    ) -> Option<Verdict> {
        if self.reads_arguments {
            return None;
        }
        let facts = Facts::of_any_call(self, principal, tool, &circumstances);
        let allows = |action| self.answer(tool, || &facts, action, None).allowed;
        Some(match (allows(Action::Invoke), allows(Action::InvokeUnattended)) {
            (false, _) => Verdict::Denied,
            (true, true) => Verdict::Unattended,
            (true, false) => Verdict::NeedsApproval,
        })
    }

    fn ask_cedar(
        &self,
        set: &PolicySet,
        facts: &Facts,
        action: Action,
        approval: Option<(Scope, u32)>,
    ) -> Answer {
        let Some(request) = facts.request(action, approval) else { return Answer::error() };
        let response = self.authorizer.is_authorized(&request, set, facts.entities());
        // A policy that errs is skipped by Cedar; a skipped `forbid` must not let anything through (GOV-803).
        if response.diagnostics().errors().next().is_some() {
            return Answer::error();
        }
        let reasons = response.diagnostics().reason().map(ToString::to_string).collect();
        Answer { allowed: response.decision() == CedarDecision::Allow, reasons }
    }
}

impl<'r> Decision<'r> {
    /// The answer.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// The policies that decided, by id.
    pub fn reasons(&self) -> &[String] {
        &self.reasons
    }

    /// The policy version that decided.
    pub fn policy(&self) -> PolicyVersion {
        self.policy
    }

    /// The authorisation of a request that needs no approval.
    pub fn unattended(&self) -> Option<Authorised<'r>> {
        (self.verdict == Verdict::Unattended).then_some(Authorised {
            request: self.request,
            policy: self.policy,
            claim: None,
        })
    }
}

impl Authorised<'_> {
    /// The approval that authorised it, if one was needed.
    pub fn claim(&self) -> Option<&Claim> {
        self.claim.as_ref()
    }

    pub(crate) fn into_parts(self) -> (PolicyVersion, Option<Claim>) {
        (self.policy, self.claim)
    }
}

/// Adds a file's policies under their `@id`, or under the file's name and their position.
fn add_file(set: &mut PolicySet, file: &PolicyFile) -> Result<(), PolicyError> {
    let parsed = PolicySet::from_str(&file.text).map_err(|error| {
        let detail: Vec<String> = error.iter().map(ToString::to_string).collect();
        PolicyError::Syntax { file: file.name.clone(), message: detail.join("; ") }
    })?;
    for (index, policy) in parsed.policies().enumerate() {
        let id = policy.annotation("id").map_or_else(|| format!("{}#{index}", file.name), ToOwned::to_owned);
        let policy = policy.new_id(PolicyId::new(&id));
        set.add(policy).map_err(|_| PolicyError::DuplicateId { file: file.name.clone(), id })?;
    }
    Ok(())
}

#[cfg(test)]
mod table_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_validates_against_the_schema() {
        // GOV-802, GOV-805
        for preset in [Preset::Strict, Preset::Balanced, Preset::Observe] {
            Policy::compile(&Bundle::preset(preset), Mode::Local, 1).unwrap();
        }
    }

    #[test]
    fn a_policy_that_does_not_fit_the_schema_is_refused_with_its_file() {
        let compile = |text: &str| {
            let bundle = Bundle::default().with("mine.cedar", text);
            Policy::compile(&bundle, Mode::Local, 1).map(|_| ()).unwrap_err()
        };
        let syntax = compile("permit (principal, action");
        assert!(matches!(&syntax, PolicyError::Syntax { file, .. } if file == "mine.cedar"), "{syntax}");
        let unknown = compile("permit (principal, action, resource) when { resource.colour == \"red\" };");
        assert!(matches!(&unknown, PolicyError::Invalid { file, .. } if file == "mine.cedar#0"), "{unknown}");
        let twice = compile("@id(\"strict/invoke\") permit (principal, action, resource);");
        assert!(matches!(twice, PolicyError::DuplicateId { .. }), "{twice}");
        let settings = Bundle { settings: "[tier]\nmax = 9".into(), ..Bundle::default() };
        let refused = Policy::compile(&settings, Mode::Local, 1).map(|_| ()).unwrap_err();
        assert!(refused.to_string().starts_with("settings.toml: tier: 9"), "{refused}");
    }

    #[test]
    fn the_version_names_the_texts() {
        let version = |preset, counter| {
            Policy::compile(&Bundle::preset(preset), Mode::Local, counter).unwrap().version()
        };
        assert_eq!(version(Preset::Strict, 1).sha256, version(Preset::Strict, 2).sha256);
        assert_ne!(version(Preset::Strict, 1).sha256, version(Preset::Balanced, 1).sha256);
    }
}
