//! An event before it is recorded, and its way into bytes.
//!
//! Everything that costs time happens on the caller's thread: serialising, canonicalising, sealing evidence.
//! What is left for the committer, of which there is one, are three gaps in otherwise finished bytes: `prev`,
//! `seq` and `time`, which only the order of commits decides. The members of a record are written in canonical
//! order by hand, because a general canonicaliser would have to sort again what is known; that the result is
//! RFC 8785 is proved by the property test below.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use portcullis_core::canon::{MAX_SAFE_INTEGER, to_jcs};
use portcullis_core::{
    Actor, EventId, LogId, PolicyVersion, ProposalId, RegistrationEpoch, SessionId, Sha256Digest, Timestamp,
    ToolId,
};
use serde::Serialize;

use crate::canonical;
use crate::context::{Context, Rendered};
use crate::event_name::EventName;
use crate::evidence::{EvidenceRef, RetentionClass, Role};
use crate::record::Reference;

/// The longest record (AUD-10).
pub(crate) const MAX_RECORD: usize = 16 * 1024;

/// Something that happened, to be recorded.
///
/// ```
/// use portcullis_audit::{Event, EventName};
/// use portcullis_core::Actor;
/// let event = Event::new(EventName::SessionOpened, &Actor::system())
///     .data(serde_json::json!({"client": "claude-code"}));
/// ```
#[derive(Debug, Clone)]
#[must_use = "an event is recorded by append or commit"]
pub struct Event {
    name: EventName,
    context: Arc<Context>,
    /// Canonical bytes, or why there are none.
    data: Result<Vec<u8>, String>,
    evidence: Vec<(Role, RetentionClass, Bytes)>,
}

impl Event {
    /// `name` happened, because of `actor`. `data` is `{}` until it is set.
    pub fn new(name: EventName, actor: &Actor) -> Self {
        Self::within(name, &Arc::new(Context::new(actor.clone())))
    }

    /// `name` happened in `context`, which it may share with other events.
    pub fn within(name: EventName, context: &Arc<Context>) -> Self {
        Self { name, context: context.clone(), data: Ok(Vec::new()), evidence: Vec::new() }
    }

    /// In this session.
    pub fn session(self, session: SessionId) -> Self {
        self.knowing(|context| context.session = Some(session))
    }

    /// As this step of the session.
    pub fn step(self, step: u64) -> Self {
        self.knowing(|context| context.step = Some(step))
    }

    /// For this proposal. Evidence is sealed to it.
    pub fn proposal(self, proposal: ProposalId) -> Self {
        self.knowing(|context| context.proposal = Some(proposal))
    }

    /// Concerning this tool.
    pub fn tool(self, tool: &ToolId) -> Self {
        self.knowing(|context| context.tool = Some(tool.clone()))
    }

    /// In this life of the server.
    pub fn epoch(self, epoch: RegistrationEpoch) -> Self {
        self.knowing(|context| context.epoch = Some(epoch))
    }

    /// Under this policy.
    pub fn policy(self, policy: PolicyVersion) -> Self {
        self.knowing(|context| context.policy = Some(policy))
    }

    /// With this canonicalization.
    pub fn canon(self, canon: &'static str) -> Self {
        self.knowing(|context| context.canon = Some(canon))
    }

    /// At this trust.
    pub fn trust(self, trust: &'static str) -> Self {
        self.knowing(|context| context.trust = Some(trust))
    }

    /// Because of record `seq` of another log.
    pub fn reference(self, log: LogId, seq: u64) -> Self {
        self.knowing(|context| context.refs.push(Reference { log, seq }))
    }

    fn knowing(mut self, learn: impl FnOnce(&mut Context)) -> Self {
        learn(Arc::make_mut(&mut self.context));
        self
    }

    /// What the event says besides. No free text of servers or clients but sanitised and short, and no secret
    /// (AUD-12). What JSON cannot say refuses the whole trail when it is recorded.
    pub fn data(mut self, data: impl Serialize) -> Self {
        self.data =
            canonical::bytes_of(&data).map_err(|error| format!("data of {} is not JSON: {error}", self.name));
        self
    }

    /// [`data`](Event::data) for who has its canonical bytes already; bytes that are not refuse the trail.
    pub fn canonical_data(mut self, bytes: Vec<u8>) -> Self {
        self.data = if canonical::is_canonical(&bytes) {
            Ok(bytes)
        } else {
            Err(format!("data of {} is not canonical JSON", self.name))
        };
        self
    }

    /// The exact bytes it happened with.
    pub fn evidence(mut self, role: Role, class: RetentionClass, bytes: Bytes) -> Self {
        self.evidence.push((role, class, bytes));
        self
    }

    /// What happened.
    pub fn name(&self) -> EventName {
        self.name
    }

    /// What it says, if that could be written as JSON.
    pub fn data_value(&self) -> Option<serde_json::Value> {
        serde_json::from_slice(self.data.as_ref().ok()?).ok()
    }
}

/// Something that seals a plaintext and says how to refer to it.
pub(crate) trait Sealer {
    fn seal(
        &mut self,
        role: Role,
        class: RetentionClass,
        context: &Context,
        plaintext: &[u8],
    ) -> Result<EvidenceRef, String>;
}

/// The place of one record in a [`Trail`]'s bytes, and of the gaps in it.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub(crate) name: EventName,
    pub(crate) id: EventId,
    whole: Range<usize>,
    prev_at: usize,
    seq_at: usize,
    time_at: usize,
}

/// Finished records but for their gaps, in the order they are to be committed.
#[derive(Debug, Default)]
pub(crate) struct Trail {
    bytes: Vec<u8>,
    drafts: Vec<Draft>,
    /// The last event's context in bytes: the next one's is nearly always the same.
    context: Option<Rendered>,
}

impl Trail {
    /// An empty trail that need not grow for `events` of the usual size.
    pub(crate) fn with_room_for(events: usize) -> Self {
        const USUAL: usize = 768;
        Self { bytes: Vec::with_capacity(events * USUAL), drafts: Vec::with_capacity(events), context: None }
    }

    pub(crate) fn drafts(&self) -> &[Draft] {
        &self.drafts
    }

    /// An upper bound of what the records will take in a segment, frames included.
    pub(crate) fn framed_len(&self) -> usize {
        self.bytes.len() + self.drafts.len() * (crate::frame::FRAME_HEAD + GAPS)
    }

    /// Turns `event` into bytes, sealing its evidence and whatever of its data is too large.
    pub(crate) fn push(
        &mut self,
        event: &Event,
        log: LogId,
        now: Timestamp,
        sealer: &mut impl Sealer,
    ) -> Result<(), String> {
        if event.context.step.is_some_and(|step| step > MAX_SAFE_INTEGER) {
            return Err(format!("step of {} is beyond 2^53-1", event.name));
        }
        let mut refs = Vec::with_capacity(event.evidence.len());
        for (role, class, plaintext) in &event.evidence {
            refs.push(sealer.seal(*role, *class, &event.context, plaintext)?);
        }
        let id = EventId::new(now);
        let start = self.bytes.len();
        let data = event.data.as_deref().map_err(Clone::clone)?;
        let mut draft = self.write(event, data, &refs, id, log);
        if draft.final_len() > MAX_RECORD {
            self.bytes.truncate(start);
            let data = shrink(event, data, draft.final_len(), &mut refs, sealer)?;
            draft = self.write(event, &data, &refs, id, log);
            if draft.final_len() > MAX_RECORD {
                self.bytes.truncate(start);
                return Err(format!(
                    "a record of {} is longer than {MAX_RECORD} bytes without its data",
                    event.name
                ));
            }
        }
        self.drafts.push(draft);
        Ok(())
    }

    fn write(&mut self, event: &Event, data: &[u8], refs: &[EvidenceRef], id: EventId, log: LogId) -> Draft {
        if self.context.as_ref().is_none_or(|rendered| !rendered.is_of(&event.context)) {
            self.context = Some(Rendered::new(&event.context, log));
        }
        let Some(context) = &self.context else { unreachable!("it was rendered above") };
        let out = &mut self.bytes;
        let start = out.len();
        out.extend_from_slice(context.to_data());
        out.extend_from_slice(if data.is_empty() { b"{}" } else { data });
        out.extend_from_slice(context.to_event());
        out.extend_from_slice(event.name.as_str().as_bytes());
        out.extend_from_slice(b"\",\"evidence\":");
        if refs.is_empty() {
            out.extend_from_slice(b"[]");
        } else {
            json(out, &refs);
        }
        out.extend_from_slice(b",\"id\":");
        json(out, &id);
        out.extend_from_slice(context.to_prev());
        let prev_at = out.len();
        out.extend_from_slice(context.to_seq());
        let seq_at = out.len();
        out.extend_from_slice(context.to_time());
        let time_at = out.len();
        out.extend_from_slice(context.to_end());
        Draft { name: event.name, id, whole: start..out.len(), prev_at, seq_at, time_at }
    }

    /// Writes the record of `draft` with its gaps filled.
    pub(crate) fn fill(&self, draft: &Draft, prev: &Sha256Digest, seq: u64, time: &str, out: &mut Vec<u8>) {
        let mut hex = [0; 64];
        out.extend_from_slice(&self.bytes[draft.whole.start..draft.prev_at]);
        out.extend_from_slice(portcullis_core::digest::encode_hex(prev.as_bytes(), &mut hex).as_bytes());
        out.extend_from_slice(&self.bytes[draft.prev_at..draft.seq_at]);
        json(out, &seq);
        out.extend_from_slice(&self.bytes[draft.seq_at..draft.time_at]);
        out.extend_from_slice(time.as_bytes());
        out.extend_from_slice(&self.bytes[draft.time_at..draft.whole.end]);
    }
}

/// What the gaps take when filled: a digest, at most twenty digits, a time.
const GAPS: usize = 64 + 20 + 24;

impl Draft {
    fn final_len(&self) -> usize {
        self.whole.len() + GAPS
    }
}

/// Plain serialisation, for values whose members are few and declared in canonical order. serde_json escapes
/// strings exactly as RFC 8785 wants it.
pub(crate) fn json(out: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(out, value).expect("writing an identifier to memory does not fail");
}

/// Moves the largest members of `data` into evidence until the record fits (AUD-10); all of it if it has no
/// members to move or moving them is not enough.
fn shrink(
    event: &Event,
    data: &[u8],
    record_len: usize,
    refs: &mut Vec<EvidenceRef>,
    sealer: &mut impl Sealer,
) -> Result<Vec<u8>, String> {
    // A reference in `evidence` and one in place of the member.
    const COST: usize = 256;
    let class = event.evidence.first().map_or(RetentionClass::Standard, |(_, class, _)| *class);
    let mut move_out = |plaintext: &[u8]| -> Result<serde_json::Value, String> {
        let reference = sealer.seal(Role::Data, class, &event.context, plaintext)?;
        let pointer = serde_json::json!({ "evidence": reference.object });
        refs.push(reference);
        Ok(pointer)
    };
    let as_text = |error: serde_json::Error| error.to_string();
    let mut excess = record_len - MAX_RECORD;
    if let Ok(serde_json::Value::Object(mut members)) = serde_json::from_slice(data) {
        let mut sizes = Vec::with_capacity(members.len());
        for (name, value) in &members {
            sizes.push((to_jcs(value).map_err(as_text)?.len(), name.clone()));
        }
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let worth_moving: usize = sizes.iter().map(|(size, _)| size.saturating_sub(COST)).sum();
        if worth_moving >= excess {
            for (size, name) in sizes {
                if excess == 0 {
                    break;
                }
                if let Some(member) = members.get_mut(&name) {
                    *member = move_out(&to_jcs(member).map_err(as_text)?)?;
                }
                excess = excess.saturating_sub(size.saturating_sub(COST));
            }
            return to_jcs(&members).map_err(as_text);
        }
    }
    to_jcs(&move_out(data)?).map_err(as_text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;
    use portcullis_core::canon::{Limits, parse};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    /// Seals nothing, but remembers what it was given.
    #[derive(Default)]
    struct Kept(Vec<(Role, Vec<u8>)>);

    impl Sealer for Kept {
        fn seal(
            &mut self,
            role: Role,
            _: RetentionClass,
            _: &Context,
            plaintext: &[u8],
        ) -> Result<EvidenceRef, String> {
            self.0.push((role, plaintext.to_vec()));
            let (object, key) = (Sha256Digest::of(plaintext), "std-20261116-1".parse().unwrap());
            Ok(EvidenceRef { bytes: plaintext.len() as u64, key, object, role })
        }
    }

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn record_of(event: &Event, seq: u64, kept: &mut Kept) -> Vec<u8> {
        let mut trail = Trail::default();
        trail.push(event, LogId::new(NOW), NOW, kept).unwrap();
        let mut out = Vec::new();
        trail.fill(&trail.drafts()[0], &Sha256Digest::of(b"before"), seq, &NOW.to_string(), &mut out);
        assert!(out.len() <= trail.framed_len());
        out
    }

    fn any_data() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-1_000_000_000_000i64..1_000_000_000_000).prop_map(Value::from),
            (-1e15f64..1e15).prop_map(Value::from),
            ".{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 30, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map(".{0,6}", inner, 0..5)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    prop_compose! {
        fn any_event()(
            name in prop::sample::select(EventName::ALL),
            operator in ".{0,20}",
            data in any_data(),
            present in any::<[bool; 8]>(),
            step in 0..=MAX_SAFE_INTEGER,
            version in "[!-~&&[^/@#]]{1,10}",
            evidence in prop::collection::vec(any::<u8>(), 0..20),
            digest in any::<[u8; 32]>(),
        ) -> Event {
            let mut event = Event::new(name, &Actor::operator(operator)).data(data);
            let counted = PolicyVersion { counter: step, sha256: Sha256Digest::from_bytes(digest) };
            if present[0] { event = event.session(SessionId::new(NOW)).step(step) }
            if present[1] { event = event.proposal(ProposalId::new(NOW)) }
            if present[2] { event = event.tool(&format!("fs/a/b@{version}#{counted}").parse().unwrap()) }
            if present[3] { event = event.epoch(RegistrationEpoch::new(NOW)) }
            if present[4] { event = event.policy(counted) }
            if present[5] { event = event.canon("canon-v1").trust("untrusted") }
            if present[6] { event = event.reference(LogId::new(NOW), step).reference(LogId::new(NOW), 0) }
            if present[7] {
                event = event.evidence(Role::Request, RetentionClass::Standard, evidence.clone().into());
                event = event.evidence(Role::Response, RetentionClass::Hold, evidence.into());
            }
            event
        }
    }

    proptest! {
        #[test]
        fn a_record_is_its_own_canonical_form_whatever_it_says(event in any_event(), seq in 0..=MAX_SAFE_INTEGER) {
            // AUD-10
            let bytes = record_of(&event, seq, &mut Kept::default());
            let value = parse(&bytes, Limits { bytes: MAX_RECORD, depth: 64, nodes: 10_000 }).unwrap();
            let canonical = to_jcs(&value).unwrap();
            prop_assert_eq!(std::str::from_utf8(&canonical), std::str::from_utf8(&bytes));
            let record = Record::parse(&bytes).unwrap();
            prop_assert_eq!(record.seq, seq);
            prop_assert_eq!(to_jcs(&record).unwrap(), bytes);
        }
    }

    fn of_data(data: Value) -> (Value, Kept) {
        let mut kept = Kept::default();
        let bytes =
            record_of(&Event::new(EventName::SessionOpened, &Actor::system()).data(data), 7, &mut kept);
        assert!(bytes.len() <= MAX_RECORD, "{}", bytes.len());
        (serde_json::from_slice(&bytes).unwrap(), kept)
    }

    #[test]
    fn a_member_too_large_for_the_record_becomes_evidence() {
        // AUD-10, A-25
        let large = "x".repeat(1 << 20);
        let (record, kept) = of_data(json!({"large": large, "small": 1}));
        let address = Sha256Digest::of(format!("\"{large}\"").as_bytes()).to_string();
        assert_eq!(record["data"], json!({"large": {"evidence": address}, "small": 1}));
        assert_eq!(record["evidence"][0]["object"], address);
        assert_eq!(record["evidence"][0]["role"], "data");
        assert_eq!(kept.0, [(Role::Data, format!("\"{large}\"").into_bytes())]);
    }

    #[test]
    fn data_that_is_too_large_as_a_whole_becomes_evidence_as_a_whole() {
        // A-25
        for data in
            [json!(vec!["y".repeat(100); 1000]), (0..5000).map(|n| (n.to_string(), Value::from(n))).collect()]
        {
            let (record, kept) = of_data(data.clone());
            assert_eq!(record["data"], json!({"evidence": record["evidence"][0]["object"]}));
            assert_eq!(kept.0, [(Role::Data, to_jcs(&data).unwrap())]);
        }
    }

    #[test]
    fn what_cannot_be_said_in_json_is_refused() {
        let no_json = std::collections::BTreeMap::from([((1, 2), 3)]);
        let event = Event::new(EventName::SessionOpened, &Actor::system()).data(no_json);
        assert!(Trail::default().push(&event, LogId::new(NOW), NOW, &mut Kept::default()).is_err());
        let event = Event::new(EventName::SessionOpened, &Actor::operator("x".repeat(MAX_RECORD)));
        let mut trail = Trail::default();
        assert!(trail.push(&event, LogId::new(NOW), NOW, &mut Kept::default()).is_err());
        assert!(trail.bytes.is_empty() && trail.drafts.is_empty());
    }
}
