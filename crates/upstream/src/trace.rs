//! Whose work a call is part of: the trace context of W3C that a client puts into `_meta`, handed on as it is.
//!
//! Nothing is made up where a client says nothing. What is not well-formed is left out, as the recommendation wants it: a
//! malformed `traceparent` takes its `tracestate` with it, and `baggage` stands for itself.

use serde_json::Value;

/// What the recommendations say must be handed on at most.
const LONGEST_STATE: usize = 512;
const LONGEST_BAGGAGE: usize = 8192;

/// The trace context of one call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    parent: Option<String>,
    state: Option<String>,
    baggage: Option<String>,
}

impl Trace {
    /// What is well-formed of what a client said.
    pub fn read(parent: Option<&str>, state: Option<&str>, baggage: Option<&str>) -> Self {
        let within =
            |text: &&str, limit: usize| !text.is_empty() && text.len() <= limit && is_printable(text);
        let parent = parent.filter(|text| is_parent(text));
        let state = state.filter(|text| parent.is_some() && within(text, LONGEST_STATE));
        let baggage = baggage.filter(|text| within(text, LONGEST_BAGGAGE));
        Self {
            parent: parent.map(str::to_owned),
            state: state.map(str::to_owned),
            baggage: baggage.map(str::to_owned),
        }
    }

    /// Which span of which trace it is, for the record.
    pub fn parent(&self) -> Option<&str> {
        self.parent.as_deref()
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Says it in the `_meta` of a request.
    pub(crate) fn write(&self, meta: &mut Value) {
        let members =
            [("traceparent", &self.parent), ("tracestate", &self.state), ("baggage", &self.baggage)];
        for (name, value) in members {
            if let Some(value) = value {
                meta[name] = value.as_str().into();
            }
        }
    }
}

/// `version-trace-span-flags`, in lower case; no version `ff`, and neither trace nor span of zeros alone.
fn is_parent(text: &str) -> bool {
    let hex = |part: &str, length: usize| {
        part.len() == length && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let some = |part: &str| part.bytes().any(|byte| byte != b'0');
    let parts: Vec<&str> = text.splitn(5, '-').collect();
    let [version, trace, span, flags, rest @ ..] = parts.as_slice() else { return false };
    let known = hex(version, 2) && *version != "ff" && hex(trace, 32) && some(trace);
    // Later versions may say more.
    known
        && hex(span, 16)
        && some(span)
        && hex(flags, 2)
        && (rest.is_empty() || *version != "00")
        && text.len() <= 256
}

fn is_printable(text: &str) -> bool {
    text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01";

    #[test]
    fn what_is_well_formed_is_handed_on_as_it_is() {
        // PRO-10: what need not be changed is not changed
        let trace = Trace::read(Some(PARENT), Some("a=b,c=d"), Some("user=ada;x"));
        let mut meta = json!({});
        trace.write(&mut meta);
        assert_eq!(meta, json!({"traceparent": PARENT, "tracestate": "a=b,c=d", "baggage": "user=ada;x"}));
        assert_eq!(trace.parent(), Some(PARENT));
        assert!(Trace::read(None, None, None).is_empty());
    }

    #[test]
    fn what_is_not_well_formed_is_left_out_with_what_hangs_on_it() {
        for bad in [
            "",
            "00",
            "ff-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-00f067aa0ba902b7-01",
            "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01-x",
            "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-0\n",
        ] {
            let trace = Trace::read(Some(bad), Some("a=b"), Some("k=v"));
            assert_eq!((trace.parent(), &trace.state), (None, &None), "{bad}");
            assert_eq!(trace.baggage.as_deref(), Some("k=v"));
        }
        let long = "x".repeat(LONGEST_BAGGAGE + 1);
        assert!(Trace::read(None, None, Some(&long)).is_empty());
        assert!(Trace::read(None, None, Some("a\r\nb")).is_empty());
        assert!(Trace::read(None, Some("a=b"), None).is_empty());
    }
}
