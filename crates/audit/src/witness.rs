//! Witnesses (AUD-34; C2SP tlog-witness): others who saw a checkpoint, checked that it goes on from the last one they
//! saw, and say so with a signature of their own. A log that was rewritten finds no witness.
//!
//! A thread of its own asks them, at most once per interval. No call waits for a witness; if the operator requires
//! them, calls stop when one has not signed for too long.

use std::fmt::Debug;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use portcullis_core::{Actor, Clock, LogId};
use serde_json::json;

use crate::committer::{NoEvidence, Shared};
use crate::error::{AtPath as _, AuditError};
use crate::event::{Event, Trail};
use crate::event_name::EventName;
use crate::files;
use crate::layout::Layout;
use crate::note::{NoteKey, NoteSignature, SignedCheckpoint};
use crate::proof::prove_growth;
use crate::publisher::{self, Newest};
use crate::queue::{Parcel, Waiter};
use crate::sinks::{Next, Outbox};

/// Somebody who cosigns checkpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Witness {
    /// The submission prefix: `add-checkpoint` is below it.
    pub url: String,
    /// What its cosignatures are checked with.
    pub key: NoteKey,
}

/// Which witnesses there are, and how much depends on them.
#[derive(Debug, Clone)]
pub struct Witnessing {
    /// Everybody who is asked.
    pub witnesses: Vec<Witness>,
    /// Who carries requests to them.
    pub courier: Arc<dyn Courier>,
    /// Whether nothing may happen when one of them has not signed for `max_age`.
    pub required: bool,
    /// See `required`.
    pub max_age: Duration,
}

/// Carries requests to witnesses. This crate knows no HTTP.
pub trait Courier: Debug + Send + Sync {
    /// Posts `body` to `url` and brings the answer, whatever its status; an error is for people.
    fn post(&self, url: &str, body: String) -> Result<Answer, String>;
}

/// What a witness answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: String,
}

/// What is known of the witnesses, for whoever asks how the log is.
#[derive(Debug)]
pub(crate) struct Standing {
    required: bool,
    max_age: Duration,
    each: Mutex<Vec<One>>,
}

#[derive(Debug, Clone, Default)]
struct One {
    name: String,
    /// Since when there is something it has not signed.
    behind: Option<Instant>,
    /// It refused, and somebody must look.
    alarm: Option<String>,
}

impl Standing {
    pub(crate) fn of(witnessing: &Witnessing) -> Self {
        let one = |witness: &Witness| One { name: witness.key.name().to_owned(), ..One::default() };
        Self {
            required: witnessing.required,
            max_age: witnessing.max_age,
            each: Mutex::new(witnessing.witnesses.iter().map(one).collect()),
        }
    }

    /// Why nothing may happen, if so.
    pub(crate) fn overdue(&self) -> Option<String> {
        if !self.required {
            return None;
        }
        let each = self.lock();
        let late = each.iter().find(|one| one.behind.is_some_and(|since| since.elapsed() > self.max_age))?;
        let max_age = self.max_age;
        Some(format!("witness {} has not signed for more than {max_age:?}, and it is required", late.name))
    }

    /// What somebody should look at, if anything.
    pub(crate) fn alarm(&self) -> Option<String> {
        let each = self.lock();
        each.iter().find_map(|one| Some(format!("witness {}: {}", one.name, one.alarm.as_ref()?)))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<One>> {
        self.each.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn missed(&self, index: usize) {
        self.lock()[index].behind.get_or_insert_with(Instant::now);
    }

    fn is_behind(&self, index: usize) -> bool {
        self.lock()[index].behind.is_some()
    }

    fn signed(&self, index: usize) {
        let one = &mut self.lock()[index];
        (one.behind, one.alarm) = (None, None);
    }

    fn raise(&self, index: usize, alarm: String) {
        let one = &mut self.lock()[index];
        if one.alarm.as_ref() != Some(&alarm) {
            tracing::error!(witness = one.name, "a witness refuses the audit log: {alarm}");
        }
        one.alarm = Some(alarm);
    }
}

/// What the thread works with.
pub(crate) struct Asking {
    pub(crate) witnessing: Witnessing,
    pub(crate) standing: Arc<Standing>,
    pub(crate) newest: Arc<Newest>,
    pub(crate) layout: Layout,
    pub(crate) interval: Duration,
    pub(crate) log: LogId,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) shared: Arc<Shared>,
}

/// Starts asking for cosignatures of what is put into `outbox`; ends after it is closed.
pub(crate) fn ask(asking: Asking, outbox: Arc<Outbox>) -> Result<JoinHandle<()>, AuditError> {
    let dir = asking.layout.dir().to_owned();
    let run = move || asking.run(&outbox);
    std::thread::Builder::new().name("audit-witnesses".into()).spawn(run).at(&dir)
}

/// Why a witness did not sign.
enum Refusal {
    /// It could not be reached, or will sign another time.
    Later(String),
    /// It will not, and that means something.
    Alarm(String),
}

impl Asking {
    fn run(self, outbox: &Outbox) {
        // The sizes each is known to have signed; the note kept from before tells where to begin.
        let kept = publisher::newest(&self.layout.witnessed(), &[]).ok().flatten();
        let begun = |witness: &Witness| match &kept {
            Some(note) if note.is_signed_by(&witness.key) => note.checkpoint.size,
            _ => 0,
        };
        let mut sizes: Vec<u64> = self.witnessing.witnesses.iter().map(begun).collect();
        // Recording that a checkpoint was witnessed makes the log longer, which is no reason to witness it again.
        let mut quiet_until = 0;
        loop {
            let behind = (0..sizes.len()).any(|index| self.standing.is_behind(index));
            let next = outbox.next(behind.then(|| Instant::now() + self.interval));
            let begun = Instant::now();
            match next {
                Next::Checkpoint(checkpoint) if checkpoint.checkpoint.size <= quiet_until => continue,
                Next::Checkpoint(_) => (0..sizes.len()).for_each(|index| self.standing.missed(index)),
                Next::Nothing => {}
                Next::Closed => return,
            }
            let mut recorded = 0;
            let mut oldest = u64::MAX;
            for (index, witness) in self.witnessing.witnesses.iter().enumerate() {
                if !self.standing.is_behind(index) {
                    continue;
                }
                match self.cosign(witness, &mut sizes[index]) {
                    Ok(signed) => {
                        self.standing.signed(index);
                        oldest = oldest.min(signed.checkpoint.size);
                        recorded += u64::from(self.record(witness, &signed));
                    }
                    Err(Refusal::Later(why)) => {
                        tracing::warn!(witness = witness.key.name(), "a checkpoint was not witnessed: {why}");
                    }
                    Err(Refusal::Alarm(why)) => self.standing.raise(index, why),
                }
            }
            if oldest < u64::MAX {
                quiet_until = oldest + recorded;
            }
            outbox.rest(begun + self.interval);
        }
    }

    /// Gets one witness to sign the newest checkpoint.
    fn cosign(&self, witness: &Witness, known: &mut u64) -> Result<SignedCheckpoint, Refusal> {
        let url = format!("{}/add-checkpoint", witness.url.trim_end_matches('/'));
        // Once more if it knows another size than we thought (409).
        for again in [false, true] {
            let grown =
                prove_growth(self.layout.dir(), *known).map_err(|error| Refusal::Later(error.to_string()))?;
            let Some((signed, proof)) = grown else {
                return Err(Refusal::Alarm(format!("it signed {known} records, and the log has fewer")));
            };
            let mut body = format!("old {known}\n");
            proof.iter().for_each(|hash| body += &format!("{}\n", BASE64.encode(hash.as_bytes())));
            body += &format!("\n{signed}");
            let answer = self.witnessing.courier.post(&url, body).map_err(Refusal::Later)?;
            match answer.status {
                200 => {
                    let signatures = cosignatures(&answer.body, &witness.key, &signed);
                    if signatures.is_empty() {
                        return Err(Refusal::Alarm(
                            "what it signed is not the checkpoint it was given".into(),
                        ));
                    }
                    *known = signed.checkpoint.size;
                    return self
                        .newest
                        .cosign(&signed, signatures, &self.layout)
                        .map_err(|error| Refusal::Later(error.to_string()));
                }
                409 if !again => match answer.body.trim_end().parse::<u64>() {
                    Ok(size) if size != *known => *known = size,
                    _ => return Err(Refusal::Alarm("it knows another tree of this size (409)".into())),
                },
                409 => return Err(Refusal::Later("it signs others meanwhile (409)".into())),
                403 => return Err(Refusal::Alarm("it does not know the log's key (403)".into())),
                404 => return Err(Refusal::Alarm("it does not know this log (404)".into())),
                422 => {
                    let why = format!("the log does not go on from the {known} records it signed (422)");
                    return Err(Refusal::Alarm(why));
                }
                status => return Err(Refusal::Later(format!("it answered with status {status}"))),
            }
        }
        Err(Refusal::Later("it does not settle on a size".into()))
    }

    /// Puts on record who saw how much; false if the log takes nothing now.
    fn record(&self, witness: &Witness, signed: &SignedCheckpoint) -> bool {
        let data = json!({"size": signed.checkpoint.size, "witness": witness.key.to_string()});
        let event = Event::new(EventName::AuditWitnessed, &Actor::system()).data(data);
        let mut trail = Trail::default();
        if trail.push(&event, self.log, self.clock.now(), &mut NoEvidence).is_err() {
            return false;
        }
        let (sender, receiver) = mpsc::sync_channel(1);
        let parcel = Parcel { trail, objects: Vec::new(), waiter: Waiter::Thread(sender) };
        self.shared.queue.push(parcel).is_ok() && receiver.recv().is_ok_and(|outcome| outcome.is_ok())
    }
}

/// The witness's own signatures in its answer; whatever else is there does not count.
fn cosignatures(body: &str, key: &NoteKey, signed: &SignedCheckpoint) -> Vec<NoteSignature> {
    let parsed = body.lines().filter_map(|line| NoteSignature::parse(line).ok());
    parsed.filter(|signature| key.verifies(signed.text(), signature)).collect()
}

/// Keeps the newest note that a witness signed.
pub(crate) fn keep(path: &Path, note: &SignedCheckpoint) -> Result<(), AuditError> {
    files::replace(path, note.to_string().as_bytes())
}
