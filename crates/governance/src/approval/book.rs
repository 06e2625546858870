//! The book of approvals: what waits, what was granted, and the claims on it.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use portcullis_core::{
    ApprovalId, Principal, ProposalId, RegistrationEpoch, ServerIdentity, SessionId, Sha256Digest, Timestamp,
    ToolId,
};
use tokio::sync::watch;

use super::{Approval, Asked, DENIAL_WINDOW, DecisionRefused, MAX_DENIALS, Scope, State};
use crate::operator::OperatorProof;
use crate::policy::{Offer, Policy};
use crate::request::{CANON, CanonicalRequest, Fingerprint};

/// One use of a grant, taken but not yet spent. Given back if dropped.
#[derive(Debug)]
pub struct Claim {
    book: Arc<Book>,
    approval: ApprovalId,
    scope: Scope,
    approvers: u32,
    spent: bool,
}

impl Claim {
    /// The approval behind it.
    pub fn approval_id(&self) -> ApprovalId {
        self.approval
    }

    /// How far that approval reaches.
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// The envelope the use is taken from, if the approval is a wide one (GOV-1201).
    pub(crate) fn envelope_id(&self) -> Option<String> {
        (self.scope != Scope::Once).then(|| super::envelope::id_of(self.approval))
    }

    /// How many operators stand behind it.
    pub fn approvers(&self) -> u32 {
        self.approvers
    }

    /// Whether the approval has not been ended since the use was taken.
    pub(crate) fn stands(&self) -> bool {
        (self.book.lock().approvals.get(&self.approval))
            .is_some_and(|entry| entry.approval.state == State::Approved)
    }

    /// The intent is durable: the use is gone.
    pub(crate) fn spend(mut self) {
        self.spent = true;
        self.book.release_claim(self.approval, 0);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.spent {
            self.book.release_claim(self.approval, 1);
        }
    }
}

/// All approvals that matter now.
#[derive(Debug, Default)]
pub struct Book {
    // Held for a few map operations, never across a wait. Calls that need no approval never take it.
    entries: Mutex<Entries>,
    /// For those who show the book: told after each change, never before.
    changes: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Entries {
    approvals: HashMap<ApprovalId, Entry>,
    pending: HashMap<RequestKey, ApprovalId>,
    grants: HashMap<GrantKey, Vec<ApprovalId>>,
    denials: HashMap<RequestKey, Vec<Timestamp>>,
}

#[derive(Debug)]
struct Entry {
    approval: Approval,
    /// Uses taken and neither spent nor given back.
    claims: u64,
    presented: Arc<[u8]>,
    state: watch::Sender<State>,
}

type RequestKey = (Principal, Fingerprint, ToolId, RegistrationEpoch);

/// What a grant matches, by its scope (the table of GOV §9).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum GrantKey {
    Once(RequestKey),
    Session(Principal, SessionId, ToolId, RegistrationEpoch),
    UntilVersionChange(Principal, ToolId, RegistrationEpoch),
}

impl GrantKey {
    fn of(approval: &Approval, scope: Scope) -> Self {
        let Approval { principal, session, tool_id, registration_epoch: epoch, fingerprint, .. } = approval;
        match scope {
            Scope::Once => GrantKey::Once((principal.clone(), *fingerprint, tool_id.clone(), *epoch)),
            Scope::Session => GrantKey::Session(principal.clone(), *session, tool_id.clone(), *epoch),
            Scope::UntilVersionChange => {
                GrantKey::UntilVersionChange(principal.clone(), tool_id.clone(), *epoch)
            }
        }
    }

    fn candidates(request: &CanonicalRequest) -> [Self; 3] {
        let (tool, epoch) = (request.tool().id().clone(), request.tool().epoch());
        let (principal, session) = (request.lineage().principal.clone(), request.lineage().session);
        [
            GrantKey::Once(request_key(request)),
            GrantKey::Session(principal.clone(), session, tool.clone(), epoch),
            GrantKey::UntilVersionChange(principal, tool, epoch),
        ]
    }
}

fn request_key(request: &CanonicalRequest) -> RequestKey {
    let tool = request.tool();
    (request.lineage().principal.clone(), request.fingerprint(), tool.id().clone(), tool.epoch())
}

impl Book {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Takes one use of a grant that covers `request`, the narrowest first.
    pub fn claim(self: &Arc<Self>, request: &CanonicalRequest, now: Timestamp) -> Option<Claim> {
        self.claim_within(request, Scope::UntilVersionChange, now)
    }

    /// The same, but of no grant that reaches further than `widest`.
    pub fn claim_within(
        self: &Arc<Self>,
        request: &CanonicalRequest,
        widest: Scope,
        now: Timestamp,
    ) -> Option<Claim> {
        let mut entries = self.lock();
        let Entries { approvals, grants, .. } = &mut *entries;
        for key in GrantKey::candidates(request) {
            for id in grants.get(&key).into_iter().flatten() {
                let Some(Entry { approval, claims, .. }) = approvals.get_mut(id) else { continue };
                if approval.state != State::Approved || approval.uses_left == 0 || approval.expires_at <= now
                {
                    continue;
                }
                let (scope, approvers) = (approval.scope?, approval.decisions.len() as u32);
                if scope > widest {
                    continue;
                }
                approval.uses_left -= 1;
                *claims += 1;
                return Some(Claim { book: self.clone(), approval: *id, scope, approvers, spent: false });
            }
        }
        None
    }

    /// A claim is over, with `unused` uses given back. The approval is consumed with the last claim on its last
    /// use; one that was ended meanwhile stays as it was ended.
    fn release_claim(&self, id: ApprovalId, unused: u64) {
        let mut entries = self.lock();
        let Some(entry) = entries.approvals.get_mut(&id) else { return };
        entry.claims = entry.claims.saturating_sub(1);
        entry.approval.uses_left += unused;
        let used_up = entry.claims == 0 && entry.approval.uses_left == 0;
        if used_up && entry.approval.state == State::Approved {
            entries.finish(id, State::Consumed);
            self.changes.send_replace(());
        }
    }

    /// Asks for approval of `request`; equal pending requests join (GOV-904). A new request is not in the book
    /// until [`Book::enter`] puts it there, after its event is durable.
    pub fn ask(
        &self,
        request: &CanonicalRequest,
        proposal: ProposalId,
        offers: Vec<Offer>,
        policy: &Policy,
        presented: Sha256Digest,
        now: Timestamp,
    ) -> Asked {
        let entries = self.lock();
        let key = request_key(request);
        // One that nobody can decide any more is not joined, even if it has not been swept yet.
        let pending = entries.pending.get(&key).and_then(|id| entries.approvals.get(id));
        if let Some(Entry { approval, .. }) = pending.filter(|entry| now < entry.approval.expires_at) {
            return Asked::Joined(approval.approval_id);
        }
        if let Some(until) = entries.suppressed_until(&key).filter(|until| now < *until) {
            return Asked::Suppressed { until };
        }
        let lineage = request.lineage();
        Asked::New(Box::new(Approval {
            approval_id: ApprovalId::random(),
            proposal_id: proposal,
            fingerprint: request.fingerprint(),
            tool_id: request.tool().id().clone(),
            registration_epoch: request.tool().epoch(),
            principal: lineage.principal.clone(),
            session: lineage.session,
            policy_version: policy.version(),
            canon_version: CANON.into(),
            offers,
            scope: None,
            decisions: Vec::new(),
            requested_at: now,
            expires_at: now.after(policy.settings().pending_ttl()),
            uses_left: 0,
            presented_sha256: presented,
            state: State::Pending,
        }))
    }

    /// Puts an approval into the book, with exactly what operators are shown: a new one whose event is durable, or
    /// a recorded one after a restart.
    pub fn enter(&self, approval: Approval, presented: &[u8]) {
        let mut entries = self.lock();
        let id = approval.approval_id;
        match (approval.state, approval.scope) {
            (State::Pending, _) => {
                let Approval { principal, fingerprint, tool_id, registration_epoch, .. } = &approval;
                let key = (principal.clone(), *fingerprint, tool_id.clone(), *registration_epoch);
                entries.pending.insert(key, id);
            }
            (State::Approved, Some(scope)) => {
                entries.grants.entry(GrantKey::of(&approval, scope)).or_default().push(id);
            }
            _ => {}
        }
        let state = watch::Sender::new(approval.state);
        entries.approvals.insert(id, Entry { approval, claims: 0, presented: presented.into(), state });
        self.changes.send_replace(());
    }

    /// Tells that the book has changed. What is read after that has the change in it.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Follows an approval's state.
    pub fn watch(&self, id: ApprovalId) -> Option<watch::Receiver<State>> {
        self.lock().approvals.get(&id).map(|entry| entry.state.subscribe())
    }

    /// One approval.
    pub fn get(&self, id: ApprovalId) -> Option<Approval> {
        self.lock().approvals.get(&id).map(|entry| entry.approval.clone())
    }

    /// What operators are shown of it.
    pub fn presented(&self, id: ApprovalId) -> Option<Arc<[u8]>> {
        self.lock().approvals.get(&id).map(|entry| entry.presented.clone())
    }

    /// All approvals, oldest first.
    pub fn list(&self, state: Option<State>) -> Vec<Approval> {
        let mut found: Vec<Approval> = (self.lock().approvals.values())
            .map(|entry| entry.approval.clone())
            .filter(|approval| state.is_none_or(|state| approval.state == state))
            .collect();
        found.sort_by_key(|approval| (approval.requested_at, approval.approval_id));
        found
    }

    /// What the approval would be if `operator` granted it; changes nothing. The caller makes the decision
    /// durable and then [`apply`](Book::apply)s it.
    pub fn grant(
        &self,
        id: ApprovalId,
        scope: Scope,
        operator: &OperatorProof,
        reason: &str,
        now: Timestamp,
    ) -> Result<Approval, DecisionRefused> {
        let mut approval = self.decidable(id, operator, reason, now)?;
        let offer = approval.offers.iter().find(|offer| offer.scope == scope).copied();
        let same_scope = approval.scope.is_none_or(|chosen| chosen == scope);
        let Some(offer) = offer.filter(|_| same_scope) else {
            let offered: Vec<_> = match approval.scope {
                Some(chosen) => vec![chosen.as_str()],
                None => approval.offers.iter().map(|offer| offer.scope.as_str()).collect(),
            };
            return Err(DecisionRefused::NotOffered { scope, offered: offered.join(", ") });
        };
        approval.scope = Some(scope);
        approval.decisions.push(operator.decision(reason, now));
        let approvers: BTreeSet<&str> =
            approval.decisions.iter().map(|decision| decision.by.as_str()).collect();
        if approvers.len() as u32 >= offer.quorum {
            let (life, uses) = scope.life();
            approval.state = State::Approved;
            approval.expires_at = now.after(life);
            approval.uses_left = uses;
        }
        Ok(approval)
    }

    /// What the approval would be if `operator` denied it; changes nothing.
    pub fn deny(
        &self,
        id: ApprovalId,
        operator: &OperatorProof,
        reason: &str,
        now: Timestamp,
    ) -> Result<Approval, DecisionRefused> {
        let mut approval = self.decidable(id, operator, reason, now)?;
        approval.decisions.push(operator.decision(reason, now));
        approval.state = State::Denied;
        Ok(approval)
    }

    fn decidable(
        &self,
        id: ApprovalId,
        operator: &OperatorProof,
        reason: &str,
        now: Timestamp,
    ) -> Result<Approval, DecisionRefused> {
        let approval = self.get(id).ok_or(DecisionRefused::Unknown(id))?;
        // A decision that comes too late is refused even if nobody has swept the book yet.
        let state = if approval.state == State::Pending && approval.expires_at <= now {
            State::Expired
        } else {
            approval.state
        };
        if state != State::Pending {
            return Err(DecisionRefused::NotPending { id, state });
        }
        if approval.principal.name() == operator.name() {
            return Err(DecisionRefused::OwnRequest(operator.name().to_owned()));
        }
        if approval.decisions.iter().any(|decision| decision.by == operator.name()) {
            return Err(DecisionRefused::SamePerson(operator.name().to_owned()));
        }
        if !portcullis_core::name::has_visible_character(reason) {
            return Err(DecisionRefused::NoReason);
        }
        Ok(approval)
    }

    /// Puts a durable decision into effect and wakes who waits for it.
    pub fn apply(&self, decided: Approval) {
        let mut entries = self.lock();
        let id = decided.approval_id;
        let key = (
            decided.principal.clone(),
            decided.fingerprint,
            decided.tool_id.clone(),
            decided.registration_epoch,
        );
        match (decided.state, decided.scope) {
            (State::Approved, Some(scope)) => {
                no_longer_pending(&mut entries.pending, &key, id);
                entries.grants.entry(GrantKey::of(&decided, scope)).or_default().push(id);
            }
            (State::Denied, _) => {
                no_longer_pending(&mut entries.pending, &key, id);
                let at = decided.decisions.last().map_or(decided.requested_at, |decision| decision.at);
                // Denials that can no longer suppress anything are forgotten, of other requests too: what
                // agents ask for must not pile up here.
                entries
                    .denials
                    .retain(|_, times| times.last().is_some_and(|last| at.since(*last) < DENIAL_WINDOW));
                entries.denials.entry(key).or_default().push(at);
            }
            _ => {}
        }
        let state = decided.state;
        if let Some(entry) = entries.approvals.get_mut(&id) {
            entry.approval = decided;
            entry.state.send_replace(state);
        }
        self.changes.send_replace(());
    }

    /// The approvals whose time has come, for the caller to record as expired and then [`end`](Book::end).
    pub fn due(&self, now: Timestamp) -> Vec<ApprovalId> {
        let entries = self.lock();
        let due = entries.approvals.values().map(|entry| &entry.approval).filter(|approval| {
            matches!(approval.state, State::Pending | State::Approved) && approval.expires_at <= now
        });
        due.map(|approval| approval.approval_id).collect()
    }

    /// A grant that is in force, for the caller to record as revoked and then [`end`](Book::end).
    pub fn grant_in_force(&self, id: ApprovalId) -> Result<Approval, DecisionRefused> {
        let approval = self.get(id).ok_or(DecisionRefused::Unknown(id))?;
        match approval.state {
            State::Approved => Ok(approval),
            state => Err(DecisionRefused::NotGranted { id, state }),
        }
    }

    /// The live approvals of one registration (GOV-906), for the caller to record as invalidated.
    pub fn of_server(&self, server: &ServerIdentity, epoch: RegistrationEpoch) -> Vec<ApprovalId> {
        let entries = self.lock();
        let live = entries.approvals.values().map(|entry| &entry.approval).filter(|approval| {
            matches!(approval.state, State::Pending | State::Approved)
                && approval.registration_epoch == epoch
                && approval.tool_id.server() == server
        });
        live.map(|approval| approval.approval_id).collect()
    }

    /// Ends approvals whose end is durable.
    pub fn end(&self, ids: &[ApprovalId], state: State) {
        let mut entries = self.lock();
        for id in ids {
            entries.finish(*id, state);
        }
        self.changes.send_replace(());
    }
}

impl Entries {
    /// When asking is possible again, if the last denials came close together.
    fn suppressed_until(&self, key: &RequestKey) -> Option<Timestamp> {
        let [first, .., last] = self.denials.get(key)?.last_chunk::<MAX_DENIALS>()?;
        (last.since(*first) < DENIAL_WINDOW).then(|| last.after(DENIAL_WINDOW))
    }

    fn finish(&mut self, id: ApprovalId, state: State) {
        let Some(entry) = self.approvals.get_mut(&id) else { return };
        let approval = &mut entry.approval;
        let key = (
            approval.principal.clone(),
            approval.fingerprint,
            approval.tool_id.clone(),
            approval.registration_epoch,
        );
        no_longer_pending(&mut self.pending, &key, id);
        if let Some(scope) = approval.scope {
            let key = GrantKey::of(approval, scope);
            if let Some(ids) = self.grants.get_mut(&key) {
                ids.retain(|other| *other != id);
                if ids.is_empty() {
                    self.grants.remove(&key);
                }
            }
        }
        approval.state = state;
        entry.state.send_replace(state);
    }
}

/// Equal requests no longer join `id`; they may be joining a later one.
fn no_longer_pending(pending: &mut HashMap<RequestKey, ApprovalId>, key: &RequestKey, id: ApprovalId) {
    if pending.get(key) == Some(&id) {
        pending.remove(key);
    }
}

#[cfg(test)]
#[path = "../approval_tests.rs"]
mod tests;
