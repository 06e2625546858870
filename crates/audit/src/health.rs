//! Whether the log takes records, and how it comes to take them again (AUD-3, AUD-26, AUD-63, AUD-64).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, mpsc};

use portcullis_core::Actor;
use serde_json::json;

use crate::committer::{Committer, Setup, repaired, tell_of_unacknowledged};
use crate::error::{AuditBlocked, AuditError};
use crate::event::Event;
use crate::event_name::EventName;
use crate::log::{AuditLog, Receipt};
use crate::opening::{FIRST_SEGMENT, start};
use crate::options::MIB;
use crate::queue::{Refused, Waiter};
use crate::{files, recovery, reserve};

/// Whether the log takes records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// It does.
    Ok,
    /// It does, but somebody should look after it.
    Degraded {
        /// Why, in a word.
        cause: &'static str,
        /// Why, for people.
        reason: String,
    },
    /// It does not, and nothing may happen until it is reopened (AUD-3).
    Blocked {
        /// Why, in a word.
        cause: &'static str,
        /// Why, for people.
        reason: String,
    },
}

/// What the committer did so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Turns committed.
    pub turns: u64,
    /// Syncs of segments.
    pub segment_syncs: u64,
    /// Syncs of evidence packs.
    pub pack_syncs: u64,
}

impl AuditLog {
    /// Why nothing may happen, if so. Cheap: every call asks.
    pub fn blocked(&self) -> Option<AuditBlocked> {
        let overdue = || self.0.standing.as_ref()?.overdue().map(AuditBlocked::new);
        self.0.shared.queue.blocked().or_else(overdue)
    }

    /// Whether the log takes records, and how it is otherwise.
    pub fn health(&self) -> Health {
        if let Some(blocked) = self.0.shared.queue.blocked() {
            return Health::Blocked { cause: "audit_persistence", reason: blocked.reason };
        }
        if let Some(standing) = &self.0.standing {
            if let Some(reason) = standing.overdue() {
                return Health::Blocked { cause: "audit_witness", reason };
            }
            if let Some(reason) = standing.alarm() {
                return Health::Degraded { cause: "audit_witness", reason };
            }
        }
        match reserve::free_bytes(self.dir()) {
            Some(free) if free < self.0.min_free => Health::Degraded {
                cause: "audit_free_space",
                reason: format!(
                    "{} has {} MiB of free space left; below {} MiB the audit log may soon have to stop everything",
                    self.dir().display(),
                    free / MIB,
                    self.0.min_free / MIB
                ),
            },
            _ => Health::Ok,
        }
    }

    /// What the committer did so far.
    pub fn stats(&self) -> Stats {
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let shared = &self.0.shared;
        Stats {
            turns: read(&shared.turns),
            segment_syncs: read(&shared.segment_syncs),
            pack_syncs: read(&shared.pack_syncs),
        }
    }

    /// Checks the whole log, from its first record (AUD-65), and takes no more records if something is wrong with it.
    /// Reads everything there is; meant for a thread of its own.
    pub fn verify_or_block(&self) -> Result<(), AuditBlocked> {
        let reason = match crate::verify::verify(self.dir()) {
            Ok(report) if report.ok => return Ok(()),
            Ok(report) => match report.problems.first() {
                Some(first) => format!("record {}: {}: {}", first.seq, first.kind.as_str(), first.detail),
                None => "the log does not verify".to_owned(),
            },
            Err(error) => error.to_string(),
        };
        let blocked =
            AuditBlocked::new(format!("the audit log does not verify: {reason}; restore it from a copy"));
        tracing::error!(code = "MP-FH-010", "{blocked}");
        self.0.shared.queue.block(&blocked);
        Err(blocked)
    }

    /// Records how a call that is under way ended, even if the log takes nothing else: into the reserve of a full disk
    /// (AUD-63), or as soon as the log is unblocked.
    pub fn conclude(&self, mut trail: Vec<Event>) {
        while !trail.is_empty() && !self.0.shared.queue.owe(&mut trail) {
            let appended = self.0.pack(&trail, Waiter::Nobody).map(|parcel| self.0.shared.queue.push(parcel));
            // A log that was blocked in between takes it the other way; one that is closed or full takes no more.
            if !matches!(appended, Ok(Err(Refused::Blocked(_)))) || self.0.shared.queue.blocked().is_none() {
                return;
            }
        }
    }

    /// Takes records again after a failure (AUD-3, AUD-26, AUD-64): everything there is is verified, the end of the log
    /// is read anew, the reserve is made again, and what the log could not be told is told first.
    ///
    /// Reads everything; meant for a thread that may block. On failure the log stays blocked.
    pub fn unblock(&self, actor: &Actor, reason: &str) -> Result<Receipt, AuditError> {
        let inner = &*self.0;
        let mut running = inner.running.lock().unwrap_or_else(PoisonError::into_inner);
        let refuse = |what: &str| AuditError::Options { what: what.into() };
        let running = running.as_mut().ok_or_else(|| refuse("the audit log is closed"))?;
        let Some(blocked) = inner.shared.queue.given_up() else {
            return Err(refuse("the audit log is not blocked"));
        };
        // One that still writes last words ends by this.
        inner.shared.queue.block(&blocked);
        if let Some(committer) = running.committer.take() {
            let _ = committer.join();
        }
        let layout = &inner.layout;
        files::check_tree(layout.dir())?;
        let report = crate::verify::verify(self.dir())?;
        if let Some(first) = report.problems.first() {
            let reason = format!("record {}: {}: {}", first.seq, first.kind.as_str(), first.detail);
            return Err(AuditBlocked::new(format!("the audit log does not verify: {reason}")).into());
        }
        let gone = || AuditError::Layout { path: layout.segments(), problem: "has no segment".into() };
        let tail = recovery::recover(layout, inner.log, &(inner.promised)())?.ok_or_else(gone)?;
        running.hurry.store(true, Ordering::Relaxed);
        if let Some(making) = running.reserve.take() {
            let _ = making.join();
        }
        reserve::ensure(&layout.reserve(), inner.reserve_bytes, &AtomicBool::new(true))?;
        tell_of_unacknowledged(&inner.shared, layout, &tail)?;
        let setup = Setup {
            log: inner.log,
            layout: layout.clone(),
            clock: inner.clock.clone(),
            shared: inner.shared.clone(),
            segment_bytes: inner.segment_bytes,
            pack_bytes: inner.pack_bytes,
            first_segment_bytes: inner.segment_bytes.min(FIRST_SEGMENT),
            group_delay: inner.group_delay,
            append_only: inner.append_only,
            promised: inner.promised.clone(),
        };
        let committer = Committer::new(setup, Some(tail))?;

        let failure = inner.shared.failure.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let note = failure.unwrap_or_else(|| json!({"first_error": blocked.reason}));
        let system = Actor::system();
        let mut trail = vec![Event::new(EventName::AuditPersistenceFailure, &system).data(note)];
        let (pending, repairs) = repaired(layout)?;
        trail.extend(repairs);
        let owed = inner.shared.queue.owed();
        trail.extend(owed.iter().cloned());
        let data = json!({"reason": portcullis_core::error::one_line(reason)});
        trail.push(Event::new(EventName::AuditUnblocked, actor).data(data));
        let (sender, receiver) = mpsc::sync_channel(1);
        inner.shared.queue.reopen(inner.pack(&trail, Waiter::Thread(sender))?);
        running.committer = Some(start(committer, layout)?);
        let receipt = match receiver.recv_timeout(inner.commit_timeout) {
            Ok(Ok(receipt)) => receipt,
            failed => {
                inner.shared.queue.owe(&mut owed.clone());
                return Err(match failed {
                    Ok(Err(blocked)) => blocked.into(),
                    _ => self.timed_out().into(),
                });
            }
        };
        inner.shared.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        pending.iter().try_for_each(|pending| recovery::settle(pending))?;
        let _ = std::fs::remove_file(layout.failure());
        tracing::warn!("the audit log takes records again");
        Ok(receipt)
    }
}
