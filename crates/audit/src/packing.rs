//! Making a parcel of a trail: everything about committing that does not need the committer, done on the thread of
//! whoever commits.

use portcullis_core::{Actor, Timestamp};
use serde_json::json;

use crate::context::Context;
use crate::error::AuditBlocked;
use crate::event::{Event, Sealer, Trail};
use crate::event_name::EventName;
use crate::evidence::{Day, EvidenceRef, RetentionClass, Role};
use crate::keys::NoKey;
use crate::log::Inner;
use crate::pack::Sealed;
use crate::queue::{Parcel, Refused, Waiter};
use crate::seal::{self, Binding};

impl Inner {
    /// Does all the work that does not need the committer.
    pub(crate) fn pack(&self, trail: &[Event], waiter: Waiter) -> Result<Parcel, AuditBlocked> {
        let now = self.clock.now();
        let mut packer = Packer { inner: self, now, today: None, objects: Vec::new() };
        let mut drafts = Trail::with_room_for(trail.len());
        for event in trail {
            drafts.push(event, self.log, now, &mut packer).map_err(AuditBlocked::new)?;
        }
        if drafts.framed_len() > self.max_trail {
            return Err(AuditBlocked::new(format!("a trail is longer than {} bytes", self.max_trail)));
        }
        Ok(Parcel { trail: drafts, objects: packer.objects, waiter })
    }
}

/// Seals the evidence of one trail, on its caller's thread.
struct Packer<'a> {
    inner: &'a Inner,
    now: Timestamp,
    today: Option<Day>,
    objects: Vec<Sealed>,
}

impl Sealer for Packer<'_> {
    fn seal(
        &mut self,
        role: Role,
        class: RetentionClass,
        context: &Context,
        plaintext: &[u8],
    ) -> Result<EvidenceRef, String> {
        let inner = self.inner;
        let today = *self.today.get_or_insert_with(|| Day::of(self.now));
        let session = context.session.filter(|_| inner.key_per_session);
        let key = inner.keys.current(class, today, session, |key| {
            let mut data = json!({"check": key.check, "class": class, "key": key.name});
            if let Some(session) = session {
                data["session"] = json!(session);
            }
            let event = Event::new(EventName::AuditKeyCreated, &Actor::system()).data(data);
            let parcel = inner.pack(&[event], Waiter::Nobody).map_err(|blocked| blocked.reason)?;
            inner.shared.queue.push(parcel).map_err(|refused| match refused {
                Refused::Blocked(blocked) => blocked.reason,
                Refused::Full(_) => "the audit queue is full".into(),
            })
        });
        let key = match key {
            Ok(key) => key,
            Err(NoKey::Unannounced(reason)) => return Err(reason),
            Err(NoKey::Unstored(error)) => {
                // AUD-3: what cannot be sealed cannot be recorded, today by nobody.
                let reason = error.to_string();
                inner.shared.queue.fail(error);
                return Err(reason);
            }
        };
        let binding = Binding { log: inner.log, role, proposal: context.proposal };
        let (object, bytes) =
            seal::seal(&key.cipher, binding, plaintext).ok_or("an evidence object is longer than 4 GiB")?;
        self.objects.push(Sealed { class, day: key.name.day, bytes });
        Ok(EvidenceRef { bytes: plaintext.len() as u64, key: key.name, object, role })
    }
}
