//! What the events of one call have in common, and its bytes.
//!
//! A call leaves about ten events which differ in their name and data and in nothing else, so they share one
//! [`Context`], and it is turned into bytes once: the stretches of a record between the members that differ.

use std::sync::Arc;

use portcullis_core::{Actor, LogId, PolicyVersion, ProposalId, RegistrationEpoch, SessionId, ToolId};

use crate::event::json;
use crate::record::Reference;

/// Who did something, where and under what.
#[derive(Debug, Clone)]
pub struct Context {
    /// Who did it.
    pub actor: Actor,
    /// In this session,
    pub session: Option<SessionId>,
    /// as this step of it.
    pub step: Option<u64>,
    /// For this proposal. Evidence is sealed to it.
    pub proposal: Option<ProposalId>,
    /// Concerning this tool,
    pub tool: Option<ToolId>,
    /// in this life of its server.
    pub epoch: Option<RegistrationEpoch>,
    /// Under this policy.
    pub policy: Option<PolicyVersion>,
    /// With this canonicalization.
    pub canon: Option<&'static str>,
    /// At this trust.
    pub trust: Option<&'static str>,
    /// Because of these records of other logs.
    pub refs: Vec<Reference>,
}

impl Context {
    /// What `actor` did; everything else is unknown.
    pub fn new(actor: Actor) -> Self {
        Self {
            actor,
            session: None,
            step: None,
            proposal: None,
            tool: None,
            epoch: None,
            policy: None,
            canon: None,
            trust: None,
            refs: Vec::new(),
        }
    }
}

/// A context in bytes: six stretches of a record, with gaps between them for `data`, the event's name and what
/// follows it, `prev`, `seq` and `time`.
#[derive(Debug)]
pub(crate) struct Rendered {
    of: Arc<Context>,
    bytes: Vec<u8>,
    /// Where the first five stretches end.
    ends: [usize; 5],
}

impl Rendered {
    pub(crate) fn new(context: &Arc<Context>, log: LogId) -> Self {
        let mut bytes = Vec::with_capacity(640);
        let out = &mut bytes;
        let mut ends = [0; 5];
        out.extend_from_slice(b"{\"actor\":");
        json(out, &context.actor);
        out.extend_from_slice(b",\"canon\":");
        json(out, &context.canon);
        out.extend_from_slice(b",\"data\":");
        ends[0] = out.len();
        out.extend_from_slice(b",\"epoch\":");
        json(out, &context.epoch);
        out.extend_from_slice(b",\"event\":\"");
        ends[1] = out.len();
        out.extend_from_slice(b",\"log\":");
        json(out, &log);
        out.extend_from_slice(b",\"policy\":");
        json(out, &context.policy);
        out.extend_from_slice(b",\"prev\":\"");
        ends[2] = out.len();
        out.extend_from_slice(b"\",\"proposal\":");
        json(out, &context.proposal);
        out.extend_from_slice(b",\"refs\":");
        json(out, &context.refs);
        out.extend_from_slice(b",\"seq\":");
        ends[3] = out.len();
        out.extend_from_slice(b",\"session\":");
        json(out, &context.session);
        out.extend_from_slice(b",\"step\":");
        json(out, &context.step);
        out.extend_from_slice(b",\"time\":\"");
        ends[4] = out.len();
        out.extend_from_slice(b"\",\"tool_id\":");
        json(out, &context.tool);
        out.extend_from_slice(b",\"trust\":");
        json(out, &context.trust);
        out.extend_from_slice(b",\"v\":1}");
        Self { of: context.clone(), bytes, ends }
    }

    /// Whether these are the bytes of `context`. Nobody can have changed it meanwhile: it is shared with this.
    pub(crate) fn is_of(&self, context: &Arc<Context>) -> bool {
        Arc::ptr_eq(&self.of, context)
    }

    pub(crate) fn to_data(&self) -> &[u8] {
        &self.bytes[..self.ends[0]]
    }

    pub(crate) fn to_event(&self) -> &[u8] {
        &self.bytes[self.ends[0]..self.ends[1]]
    }

    pub(crate) fn to_prev(&self) -> &[u8] {
        &self.bytes[self.ends[1]..self.ends[2]]
    }

    pub(crate) fn to_seq(&self) -> &[u8] {
        &self.bytes[self.ends[2]..self.ends[3]]
    }

    pub(crate) fn to_time(&self) -> &[u8] {
        &self.bytes[self.ends[3]..self.ends[4]]
    }

    pub(crate) fn to_end(&self) -> &[u8] {
        &self.bytes[self.ends[4]..]
    }
}
