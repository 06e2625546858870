//! The canonical identity of something an agent can ask for (GOV-601).
//!
//! `<server-identity>/<item>@<server-version>#<counter>:<sha256>`, for example
//! `filesystem/read_file@2.3.1#3:9f86…`. The item is a tool name, or `resource:<name>`, `prompt:<name>`,
//! `request:<kind>`, `probe:<method>`; a colon cannot occur in a tool name, so the kinds cannot be confused.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::digest::Sha256Digest;
use crate::name::{ServerIdentity, ServerVersion, ToolName, printable};

/// A version that counts up and names its content: `3:9f86…` (GOV-405, GOV-801).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CountedVersion {
    /// Rises with every version of the same thing and is never reused.
    pub counter: u64,
    /// SHA-256 of the canonical form of the content.
    pub sha256: Sha256Digest,
}

/// The version of an accepted capability declaration.
pub type DeclarationVersion = CountedVersion;
/// The version of an active policy bundle.
pub type PolicyVersion = CountedVersion;

/// What stands in the tool position of an identity.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Item {
    /// A tool, by the server's own name for it.
    Tool(ToolName),
    /// A declared resource or resource template, by its declared name.
    Resource(ToolName),
    /// A declared prompt.
    Prompt(ToolName),
    /// A request of the server to the client: sampling, elicitation, roots.
    Request(ToolName),
    /// A listing call of ours, made under a probe permit (GOV-404).
    Probe(ToolName),
}

/// The canonical identity of one item of one declaration of one version of one server.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ToolId(Arc<Parts>);

#[derive(PartialEq, Eq, Hash)]
struct Parts {
    server: ServerIdentity,
    item: Item,
    version: ServerVersion,
    declaration: DeclarationVersion,
    text: Box<str>,
}

/// The text is not a canonical identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a tool id: {shown}; expected <server>/<tool>@<server-version>#<counter>:<sha256>")]
pub struct ToolIdError {
    shown: String,
}

impl ToolId {
    /// The identity of `item`.
    pub fn new(
        server: ServerIdentity,
        item: Item,
        version: ServerVersion,
        declaration: DeclarationVersion,
    ) -> Self {
        let text = format!("{server}/{item}@{version}#{declaration}").into();
        Self(Arc::new(Parts { server, item, version, declaration, text }))
    }

    /// The server the item belongs to.
    pub fn server(&self) -> &ServerIdentity {
        &self.0.server
    }

    /// The item itself.
    pub fn item(&self) -> &Item {
        &self.0.item
    }

    /// The registered version of the server.
    pub fn version(&self) -> &ServerVersion {
        &self.0.version
    }

    /// The declaration that made the item usable.
    pub fn declaration(&self) -> DeclarationVersion {
        self.0.declaration
    }

    /// The canonical text.
    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// `<server>/<item>`: for people, who do not read digests. Identifies nothing.
    pub fn short(&self) -> &str {
        let end = self.0.server.as_str().len() + 1 + self.0.item.text_len();
        &self.0.text[..end]
    }
}

impl Item {
    fn prefix_and_name(&self) -> (&'static str, &ToolName) {
        match self {
            Item::Tool(name) => ("", name),
            Item::Resource(name) => ("resource:", name),
            Item::Prompt(name) => ("prompt:", name),
            Item::Request(name) => ("request:", name),
            Item::Probe(name) => ("probe:", name),
        }
    }

    fn text_len(&self) -> usize {
        let (prefix, name) = self.prefix_and_name();
        prefix.len() + name.as_str().len()
    }

    /// The name without its kind.
    pub fn name(&self) -> &str {
        self.prefix_and_name().1.as_str()
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (prefix, name) = self.prefix_and_name();
        write!(f, "{prefix}{name}")
    }
}

impl FromStr for Item {
    type Err = crate::name::NameError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            Some(("resource", name)) => name.parse().map(Item::Resource),
            Some(("prompt", name)) => name.parse().map(Item::Prompt),
            Some(("request", name)) => name.parse().map(Item::Request),
            Some(("probe", name)) => name.parse().map(Item::Probe),
            _ => text.parse().map(Item::Tool),
        }
    }
}

impl FromStr for ToolId {
    type Err = ToolIdError;

    /// Split at the first `/`, the last `#` and the last `@` before it, so tool names may hold `/`.
    fn from_str(text: &str) -> Result<Self, ToolIdError> {
        let parse = || {
            let (server, rest) = text.split_once('/')?;
            let (rest, declaration) = rest.rsplit_once('#')?;
            let (item, version) = rest.rsplit_once('@')?;
            let id = ToolId::new(
                server.parse().ok()?,
                item.parse().ok()?,
                version.parse().ok()?,
                declaration.parse().ok()?,
            );
            // Parse and print round-trip, or it is not canonical.
            (id.as_str() == text).then_some(id)
        };
        parse().ok_or_else(|| ToolIdError { shown: printable(text) })
    }
}

impl fmt::Display for ToolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

impl fmt::Debug for ToolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ToolId({})", self.0.text)
    }
}

impl Serialize for ToolId {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.0.text)
    }
}

impl<'de> Deserialize<'de> for ToolId {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<'de, str>::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for CountedVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.counter, self.sha256)
    }
}

impl FromStr for CountedVersion {
    type Err = crate::digest::DigestError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = crate::digest::DigestError;
        let (counter, sha256) = text.split_once(':').ok_or(error.clone())?;
        let version = Self { counter: counter.parse().map_err(|_| error.clone())?, sha256: sha256.parse()? };
        // `+3` and `03` are other spellings of 3.
        if version.counter.to_string() == counter { Ok(version) } else { Err(error) }
    }
}

impl Serialize for CountedVersion {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CountedVersion {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<'de, str>::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn version(counter: u64) -> DeclarationVersion {
        DeclarationVersion { counter, sha256: Sha256Digest::of(b"x") }
    }

    #[test]
    fn a_tool_name_with_slashes_parses_at_the_first_slash() {
        // GOV-601
        let text = format!("fs/a/b@2.3.1#{}", version(3));
        let id: ToolId = text.parse().unwrap();
        assert_eq!(id.server().as_str(), "fs");
        assert_eq!(id.item(), &Item::Tool("a/b".parse().unwrap()));
        assert_eq!(id.version().as_str(), "2.3.1");
        assert_eq!(id.declaration().counter, 3);
        assert_eq!(id.short(), "fs/a/b");
    }

    #[test]
    fn anything_not_canonical_is_refused() {
        let digest = Sha256Digest::of(b"x");
        for bad in [
            "fs/read".to_owned(),
            "fs/read@1#3".into(),
            format!("fs/read@1#03:{digest}"),
            format!("FS/read@1#3:{digest}"),
            format!("fs/read @1#3:{digest}"),
            format!("fs/re\u{0430}d@1#3:{digest}"),
            format!("fs/other:x@1#3:{digest}"),
            format!("fs/read@1#3:{}", digest.to_string().to_uppercase()),
        ] {
            assert!(bad.parse::<ToolId>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn parse_and_print_round_trip(
            server in "[a-z][a-z0-9-]{0,20}",
            kind in prop::sample::select(vec!["", "resource:", "prompt:", "request:", "probe:"]),
            tool in "[A-Za-z0-9_./-]{1,40}",
            ver in "[!-~&&[^/@#]]{1,20}",
            counter in 0u64..,
        ) {
            let text = format!("{server}/{kind}{tool}@{ver}#{}", version(counter));
            let id: ToolId = text.parse().unwrap();
            prop_assert_eq!(id.as_str(), text.as_str());
            prop_assert_eq!(id.item().name(), tool.as_str());
        }

        #[test]
        fn no_text_panics_the_parser(text in ".{0,60}") {
            let _ = text.parse::<ToolId>();
        }
    }
}
