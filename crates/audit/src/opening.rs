//! Opening a log: what is taken, checked, started and said before anybody may use it, in this order.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use portcullis_core::Actor;
use serde_json::{Value, json};

use crate::committer::{Committer, Setup, Shared, max_trail, repaired};
use crate::description::Description;
use crate::error::{AtPath as _, AuditError};
use crate::event::Event;
use crate::event_name::EventName;
use crate::keys::KeyRing;
use crate::layout::Layout;
use crate::log::{AuditLog, Inner, Promised, Running};
use crate::options::{MIB, Options};
use crate::publisher::{self, Publisher};
use crate::signer::Signer;
use crate::sinks::{Outbox, Sink, deliver};
use crate::witness::{self, Asking, Standing};
use crate::{files, mount, recovery, reserve, rotation};

/// A new log begins with a small segment: writing its zeros is what a first start waits for.
pub(crate) const FIRST_SEGMENT: u64 = 8 * MIB;

impl AuditLog {
    /// Opens the one log in the options' folder for writing, or begins it.
    ///
    /// Takes the lock, refuses files that others could use, cuts off a torn tail, and records what it found.
    pub fn open(options: Options) -> Result<AuditLog, AuditError> {
        options.check()?;
        let now = options.clock.now();
        let (log, layout) = Layout::find_or_create(&options.dir, now)?;
        let lock = layout.acquire(now)?;
        files::check_tree(layout.dir())?;
        let volatile = mount::volatile(layout.dir());
        if let Some(what) = &volatile {
            tracing::warn!(dir = %layout.dir().display(), "the audit log is on {what}: a crash of the machine may lose it");
        }
        let described = Description::read(&layout.description())?;
        // A log keeps the origin it began with: its checkpoints are held against that name.
        let origin =
            described.as_ref().map_or_else(|| format!("{}/{log}", options.origin), |d| d.origin.clone());
        let before = described.and_then(|described| described.key);
        rotation::finish_renaming(&options.signer, &origin, before.as_ref())?;
        let signer = Signer::open(&options.signer, &origin)?;
        if before.as_ref().is_some_and(|key| key != signer.key()) {
            let problem = "names another key than the one that is to sign; put that key back".into();
            return Err(AuditError::Layout { path: layout.description(), problem });
        }
        let key = signer.key().clone();
        let newest = publisher::newest(&layout.checkpoint(), before.as_slice())?;
        let promised = promises(&layout, &options.sinks);
        let tail = recovery::recover(&layout, log, &promised())?;
        if let (true, Some(tail)) = (options.append_only, &tail) {
            // What an earlier run did not come to, or was not asked to.
            let segments = layout.list_segments()?;
            segments.iter().filter(|segment| segment.path != tail.segment).for_each(|segment| {
                files::make_append_only(&segment.path);
            });
        }
        let keys = KeyRing::open(log, layout.keys(), &options.kek)?;
        if before.is_none() {
            Description { origin: origin.clone(), key: Some(key.clone()) }.write(&layout.description())?;
        }
        let size = tail.as_ref().map_or(0, |tail| tail.next_seq);
        let mut publisher =
            Publisher::open(layout.clone(), origin.clone(), signer, newest, size, options.publish)?;
        let shared = Arc::new(Shared::default());
        let pack_bytes = options.pack_bytes.unwrap_or(options.segment_bytes);
        let setup = Setup {
            log,
            layout: layout.clone(),
            clock: options.clock.clone(),
            shared: shared.clone(),
            segment_bytes: options.segment_bytes,
            pack_bytes,
            first_segment_bytes: options.segment_bytes.min(FIRST_SEGMENT),
            group_delay: options.group_delay,
            append_only: options.append_only,
            promised: promised.clone(),
        };
        let thread = start(Committer::new(setup, tail)?, &layout)?;
        let (reserve, hurry) = make_reserve(&layout, options.reserve_bytes);
        let outboxes: [Arc<Outbox>; 2] = Default::default();
        let mut sinks = [None, None];
        if !options.sinks.is_empty() {
            sinks[0] = Some(deliver(options.sinks, options.sink_interval, outboxes[0].clone())?);
            publisher = publisher.with_outbox(outboxes[0].clone());
        }
        let standing = options.witnessing.as_ref().map(|witnessing| Arc::new(Standing::of(witnessing)));
        if let (Some(witnessing), Some(standing)) = (options.witnessing, &standing) {
            let asking = Asking {
                witnessing,
                standing: standing.clone(),
                newest: publisher.newest(),
                layout: layout.clone(),
                interval: options.sink_interval,
                log,
                clock: options.clock.clone(),
                shared: shared.clone(),
            };
            sinks[1] = Some(witness::ask(asking, outboxes[1].clone())?);
            publisher = publisher.with_outbox(outboxes[1].clone());
        }
        let publisher = publisher.start(shared.leaves.clone())?;
        let opened = AuditLog(Arc::new(Inner {
            log,
            key: Mutex::new(key),
            signer: options.signer,
            standing,
            layout,
            clock: options.clock,
            shared,
            keys,
            retention: options.retention,
            key_per_session: options.key_per_session,
            commit_timeout: options.commit_timeout,
            max_trail: max_trail(options.segment_bytes),
            segment_bytes: options.segment_bytes,
            pack_bytes,
            group_delay: options.group_delay,
            append_only: options.append_only,
            reserve_bytes: options.reserve_bytes,
            min_free: options.min_free,
            promised,
            volatile,
            running: Mutex::new(Some(Running {
                committer: Some(thread),
                reserve,
                hurry,
                publisher,
                outboxes,
                sinks,
                lock,
            })),
        }));
        opened.record_opening(&origin, before.is_none())?;
        opened.finish_destruction()?;
        opened.finish_rotation()?;
        Ok(opened)
    }

    /// The first records of this run: that the log begins, that its tail was cut, that it had failed.
    fn record_opening(&self, origin: &str, first_key: bool) -> Result<(), AuditError> {
        let actor = Actor::system();
        let mut trail = Vec::new();
        let key = self.vkey().to_string();
        if self.next_seq() == 0 {
            let data = json!({"format": "portcullis-audit-v1", "origin": origin, "vkey": key});
            trail.push(Event::new(EventName::SystemInitialized, &actor).data(data));
        } else if first_key {
            let data = json!({"new": key, "old": null});
            trail.push(Event::new(EventName::AuditSignerRotated, &actor).data(data));
        }
        let (pending, repairs) = repaired(&self.0.layout)?;
        trail.extend(repairs);
        let failure = self.0.layout.failure();
        if let Ok(note) = std::fs::read(&failure) {
            let note = serde_json::from_slice::<Value>(&note)
                .unwrap_or_else(|_| json!({"first_error": "its note cannot be read"}));
            trail.push(Event::new(EventName::AuditPersistenceFailure, &actor).data(note));
        }
        if trail.is_empty() {
            return Ok(());
        }
        self.commit_blocking(trail)?;
        pending.iter().try_for_each(|pending| recovery::settle(pending))?;
        let _ = std::fs::remove_file(&failure);
        Ok(())
    }
}

/// What copies of checkpoints promise: the log's own, and those in sinks that can be read.
fn promises(layout: &Layout, sinks: &[Sink]) -> Promised {
    let (own, sinks) = (layout.checkpoint(), sinks.to_vec());
    Arc::new(move || {
        let newest = publisher::newest(&own, &[]).ok().flatten();
        let own = newest.map(|newest| (own.clone(), newest.checkpoint.size));
        own.into_iter().chain(sinks.iter().filter_map(Sink::promised)).collect()
    })
}

pub(crate) fn start(committer: Committer, layout: &Layout) -> Result<JoinHandle<()>, AuditError> {
    let run = move || committer.run();
    std::thread::Builder::new().name("audit-committer".into()).spawn(run).at(layout.dir())
}

/// Makes the reserve where nobody waits for it.
fn make_reserve(layout: &Layout, bytes: u64) -> (Option<JoinHandle<()>>, Arc<AtomicBool>) {
    let hurry = Arc::new(AtomicBool::new(false));
    let (path, theirs) = (layout.reserve(), hurry.clone());
    let make = move || {
        if let Err(error) = reserve::ensure(&path, bytes, &theirs) {
            tracing::warn!("no room can be kept back for a full disk: {error}");
        }
    };
    (std::thread::Builder::new().name("audit-reserve".into()).spawn(make).ok(), hurry)
}
