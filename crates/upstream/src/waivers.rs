//! What operators waived, by server, until when (SBX-71).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use portcullis_core::{Clock as _, ServerIdentity, SystemClock, Timestamp};

/// Facilities without which a server is started all the same.
#[derive(Debug, Default)]
pub struct Waivers(Mutex<BTreeMap<ServerIdentity, Vec<(String, Timestamp)>>>);

impl Waivers {
    /// A facility is waived for a server from now on, until then.
    pub fn grant(&self, server: &ServerIdentity, facility: &str, until: Timestamp) {
        let mut all = self.lock();
        let of_server = all.entry(server.clone()).or_default();
        of_server.retain(|(known, _)| known != facility);
        of_server.push((facility.to_owned(), until));
    }

    /// Nothing is waived for a server any more: it is another one now.
    pub fn end(&self, server: &ServerIdentity) {
        self.lock().remove(server);
    }

    /// One facility is waived for a server no more.
    pub fn end_of(&self, server: &ServerIdentity, facility: &str) {
        if let Some(of_server) = self.lock().get_mut(server) {
            of_server.retain(|(known, _)| known != facility);
        }
    }

    /// What is waived for a server now.
    pub fn of(&self, server: &ServerIdentity) -> Vec<String> {
        let now = SystemClock.now();
        let all = self.lock();
        let of_server = all.get(server).into_iter().flatten();
        of_server.filter(|(_, until)| now < *until).map(|(facility, _)| facility.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ServerIdentity, Vec<(String, Timestamp)>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiver_ends_by_itself_and_with_its_server() {
        // SBX-71, S-HOST-2
        let (waivers, server): (Waivers, ServerIdentity) = (Waivers::default(), "notes".parse().unwrap());
        let now = SystemClock.now();
        waivers.grant(&server, "landlock", now.after(std::time::Duration::from_secs(3600)));
        waivers.grant(&server, "seccomp_notify", now);
        assert_eq!(waivers.of(&server), ["landlock"]);
        assert!(waivers.of(&"other".parse().unwrap()).is_empty());
        waivers.end(&server);
        assert!(waivers.of(&server).is_empty());
    }
}
