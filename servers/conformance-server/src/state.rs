//! Request state that only we can make: what it says, and a code over it.

/// The key of this process; the state of another is nobody's.
#[derive(Debug, Clone)]
pub(crate) struct Seal([u8; 32]);

impl Seal {
    pub(crate) fn new() -> Self {
        let started = std::time::SystemTime::now();
        let seed = format!("{started:?} {}", std::process::id());
        Self(*blake3::hash(seed.as_bytes()).as_bytes())
    }

    pub(crate) fn close(&self, what: &str) -> String {
        format!("{what}.{}", blake3::keyed_hash(&self.0, what.as_bytes()).to_hex())
    }

    /// What the state says, if it is ours.
    pub(crate) fn open<'a>(&self, state: &'a str) -> Option<&'a str> {
        let (what, _) = state.rsplit_once('.')?;
        (self.close(what) == state).then_some(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_state_is_not_ours() {
        let seal = Seal::new();
        let state = seal.close("step1");
        assert_eq!(seal.open(&state), Some("step1"));
        assert_eq!(seal.open(&state.replace("step1", "step2")), None);
        assert_eq!(seal.open(&format!("{state}x")), None);
        assert_eq!(seal.open("step1"), None);
    }
}
