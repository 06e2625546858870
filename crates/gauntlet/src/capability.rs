//! Who may ask for what: grants, requirements, and whether the first cover the second (gauntlet §2).
//!
//! A tool needs `mcp.call:<server>/<tool>` and whatever its declared scopes make of it. Requirements may hold
//! templates that take the call's own arguments: a grant for `/secrets/*` says nothing about `/etc/shadow`, so the
//! argument must be looked at. Everything is compared as text that has one spelling: paths without `..`, addresses
//! as the URL standard writes them.

use serde_json::Value;
use url::Url;

use crate::glob::Glob;

/// What an unscoped grant is worth (GNT-C3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CapMode {
    /// Nothing.
    #[default]
    Cleared,
    /// Every scope of its name. For development.
    Dev,
}

/// A grant or requirement that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no capability: it {problem}")]
pub struct GrantParseError {
    text: String,
    problem: &'static str,
}

/// A set of grants. Never changed, only replaced (GNT-C12).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Capabilities {
    mode: CapMode,
    grants: Vec<Grant>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Grant {
    name: String,
    scope: Option<Scope>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Scope {
    Text(Glob),
    /// Compared part by part, so that `https://h` cannot reach `https://h.evil` (GNT-C6).
    Address {
        scheme: String,
        host: Host,
        port: Option<u16>,
        path: Glob,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Host {
    Exactly(String),
    /// Whole labels before this.
    Below(String),
}

/// Who calls, as far as the gate is concerned (GNT-C11).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grants {
    /// May do whatever the accepted declarations allow.
    Declared,
    /// May do this and no more.
    Only(Capabilities),
}

impl Grants {
    /// Whether calls of `tool`, `<server>/<tool>`, are covered at all, whatever else they need: who may never call a tool
    /// need not know of it (CAT-53).
    pub fn reach(&self, tool: &str) -> bool {
        match self {
            Grants::Declared => true,
            Grants::Only(grants) => grants.cover("mcp.call", Some(tool)),
        }
    }
}

/// Whether grants cover `wanted`, which holds no templates: the one by name that is the same, or one that reaches it.
/// What declarations offer does not: it is for what operators want besides.
pub fn covers_by_name(mode: CapMode, grants: &[String], wanted: &str) -> bool {
    let Ok((name, scope)) = split(wanted) else { return false };
    grants.iter().any(|held| {
        held == wanted
            || Capabilities::parse(mode, [held.as_str()]).is_ok_and(|grants| grants.cover(name, scope))
    })
}

impl Capabilities {
    /// Reads grants. One that cannot be understood refuses them all.
    ///
    /// ```
    /// use portcullis_gauntlet::capability::{CapMode, Capabilities};
    /// assert!(Capabilities::parse(CapMode::Cleared, ["fs.read:/srv/*", "mcp.call:fs/*"]).is_ok());
    /// assert!(Capabilities::parse(CapMode::Cleared, ["fs.read:"]).is_err());
    /// ```
    pub fn parse<'a>(
        mode: CapMode,
        grants: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, GrantParseError> {
        Ok(Self { mode, grants: grants.into_iter().map(Grant::parse).collect::<Result<_, _>>()? })
    }

    /// Whether a requirement without templates is covered.
    fn cover(&self, name: &str, scope: Option<&str>) -> bool {
        self.grants.iter().filter(|grant| grant.name == name).any(|grant| match (&grant.scope, scope) {
            (None, _) => self.mode == CapMode::Dev,
            // GNT-C4: without a scope, all of them are meant.
            (Some(Scope::Text(glob)), None) => glob.as_str() == "*",
            (Some(_), None) => false,
            (Some(granted), Some(wanted)) => granted.admits(wanted),
        })
    }

    fn knows(&self, name: &str) -> bool {
        self.grants.iter().any(|grant| grant.name == name)
    }
}

impl Grant {
    fn parse(text: &str) -> Result<Self, GrantParseError> {
        let (name, scope) = split(text)?;
        let scope = scope.map(|scope| Scope::parse(text, scope)).transpose()?;
        Ok(Self { name: name.to_owned(), scope })
    }
}

impl Scope {
    fn parse(text: &str, scope: &str) -> Result<Self, GrantParseError> {
        let glob = |part: &str| Glob::parse(part).map_err(|problem| refuse(text, problem));
        let Some((scheme, rest)) = scope.split_once("://") else { return glob(scope).map(Scope::Text) };
        let (authority, path) = rest.find('/').map_or((rest, "/*"), |at| rest.split_at(at));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) => {
                (host, Some(port.parse().map_err(|_| refuse(text, "has a port that is no number"))?))
            }
            None => (authority, None),
        };
        let plain = |part: &str| !part.is_empty() && !part.contains(['*', '?', '[', ']', '@', '\\']);
        let host = match host.strip_prefix("*.") {
            Some(below) if plain(below) => Host::Below(below.to_ascii_lowercase()),
            None if plain(host) => Host::Exactly(host.to_ascii_lowercase()),
            _ => return Err(refuse(text, "has a pattern in its host; only *.name is one")),
        };
        if !plain(scheme) {
            return Err(refuse(text, "has a pattern in its scheme"));
        }
        let scheme = scheme.to_ascii_lowercase();
        Ok(Scope::Address { port: port.or(default_port(&scheme)), scheme, host, path: glob(path)? })
    }

    fn admits(&self, wanted: &str) -> bool {
        match self {
            Scope::Text(glob) => glob.matches(wanted),
            Scope::Address { scheme, host, port, path } => Url::parse(wanted).is_ok_and(|url| {
                let name = url.host_str().unwrap_or_default();
                let host_fits = match host {
                    Host::Exactly(exact) => name == exact,
                    Host::Below(suffix) => {
                        name.strip_suffix(suffix.as_str()).is_some_and(|labels| labels.ends_with('.'))
                    }
                };
                let tail = &url[url::Position::BeforePath..];
                url.scheme() == scheme
                    && host_fits
                    && url.port_or_known_default() == *port
                    && path.matches(tail)
            }),
        }
    }
}

fn default_port(scheme: &str) -> Option<u16> {
    match scheme {
        "https" | "wss" => Some(443),
        "http" | "ws" => Some(80),
        _ => None,
    }
}

/// `name[:scope]`, split at the first colon (GNT-C1).
fn split(text: &str) -> Result<(&str, Option<&str>), GrantParseError> {
    let (name, scope) = text.split_once(':').map_or((text, None), |(name, scope)| (name, Some(scope)));
    let is_word = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_lowercase())
            && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    if !name.split('.').all(is_word) {
        return Err(refuse(text, "has a name that is not made of lower-case words and dots"));
    }
    if scope == Some("") {
        return Err(refuse(text, "has a colon and no scope"));
    }
    Ok((name, scope))
}

fn refuse(text: &str, problem: &'static str) -> GrantParseError {
    GrantParseError { text: text.chars().take(128).collect(), problem }
}

/// What a tool needs, perhaps with the call's arguments in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    source: String,
    name: String,
    scope: Option<Vec<Piece>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Argument { pointer: Vec<String>, kind: Kind },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Raw,
    Path,
    Url,
    Host,
}

/// What became of a template.
enum Expanded {
    All(Vec<String>),
    /// An argument is missing or of another type.
    Unresolved,
    /// An argument means nothing that could be granted.
    Denied,
}

impl Requirement {
    /// Reads `name[:scope]`, where the scope may hold `{pointer|kind}` (GNT-C7).
    pub fn parse(text: &str) -> Result<Self, GrantParseError> {
        let (name, scope) = split(text)?;
        let scope = scope.map(|scope| pieces(text, scope)).transpose()?;
        Ok(Self { source: text.to_owned(), name: name.to_owned(), scope })
    }

    /// As it is written, templates unexpanded.
    pub fn as_str(&self) -> &str {
        &self.source
    }

    /// Whether the call's arguments are part of it.
    pub(crate) fn takes_arguments(&self) -> bool {
        self.scope.iter().flatten().any(|piece| matches!(piece, Piece::Argument { .. }))
    }

    fn expand(&self, args: &Value) -> Option<Expanded> {
        let pieces = self.scope.as_ref()?;
        let mut texts = vec![String::new()];
        for piece in pieces {
            let values = match piece {
                Piece::Text(text) => vec![text.clone()],
                Piece::Argument { pointer, kind } => {
                    let mut found = Vec::new();
                    if !collect(args, pointer, &mut found) || found.is_empty() {
                        return Some(Expanded::Unresolved);
                    }
                    match found.into_iter().map(|text| kind.read(text)).collect::<Option<Vec<_>>>() {
                        Some(values) => values,
                        None => return Some(Expanded::Denied),
                    }
                }
            };
            texts = texts.iter().flat_map(|text| values.iter().map(move |v| format!("{text}{v}"))).collect();
        }
        // The requirement's side is a literal; a path among them has one spelling too (GNT-C5).
        let plain =
            texts.into_iter().map(|text| if text.starts_with('/') { path(&text) } else { Some(text) });
        Some(plain.collect::<Option<_>>().map_or(Expanded::Denied, Expanded::All))
    }
}

fn pieces(text: &str, scope: &str) -> Result<Vec<Piece>, GrantParseError> {
    let mut pieces = Vec::new();
    let mut rest = scope;
    while let Some(at) = rest.find('{') {
        if at > 0 {
            pieces.push(Piece::Text(rest[..at].to_owned()));
        }
        let (template, after) =
            rest[at + 1..].split_once('}').ok_or_else(|| refuse(text, "has a brace that is not closed"))?;
        let (pointer, kind) = template.split_once('|').unwrap_or((template, "raw"));
        let kind = match kind {
            "raw" => Kind::Raw,
            "path" => Kind::Path,
            "url" => Kind::Url,
            "host" => Kind::Host,
            _ => return Err(refuse(text, "has a template of no known kind")),
        };
        let unescape = |segment: &str| segment.replace("~1", "/").replace("~0", "~");
        let pointer: Vec<String> = match pointer.strip_prefix('/') {
            Some(pointer) => pointer.split('/').map(unescape).collect(),
            None if pointer.is_empty() => return Err(refuse(text, "has a template without an argument")),
            None => vec![pointer.to_owned()],
        };
        pieces.push(Piece::Argument { pointer, kind });
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest.to_owned()));
    }
    Ok(pieces)
}

/// Every string at `pointer`; false if something there is missing or no string.
fn collect<'v>(value: &'v Value, pointer: &[String], found: &mut Vec<&'v str>) -> bool {
    match (pointer, value) {
        ([], Value::String(text)) => {
            found.push(text);
            true
        }
        ([star, rest @ ..], Value::Array(items)) if star == "*" => {
            items.iter().all(|item| collect(item, rest, found))
        }
        ([name, rest @ ..], Value::Object(members)) => {
            members.get(name).is_some_and(|member| collect(member, rest, found))
        }
        _ => false,
    }
}

impl Kind {
    fn read(self, text: &str) -> Option<String> {
        match self {
            Kind::Raw => Some(text.to_owned()),
            Kind::Path => path(text),
            Kind::Url => {
                let mut url = Url::parse(text).ok()?;
                let anonymous = url.username().is_empty() && url.password().is_none();
                url.set_fragment(None);
                (anonymous && url.has_host()).then(|| url.into())
            }
            Kind::Host => {
                let url = Url::parse(&format!("https://{text}/")).ok()?;
                let bare = url.path() == "/" && url.port().is_none() && url.username().is_empty();
                url.host_str().filter(|_| bare && url.query().is_none()).map(str::to_owned)
            }
        }
    }
}

/// GNT-C8: absolute, without `.`, `..` and `//`; nothing that is not plainly a path.
fn path(text: &str) -> Option<String> {
    if !text.starts_with('/') || text.contains(char::is_control) {
        return None;
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in text.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    let slash = if text.len() > 1 && text.ends_with('/') && !parts.is_empty() { "/" } else { "" };
    Some(format!("/{}{slash}", parts.join("/")))
}

/// What the gate says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passes,
    Refused,
    /// An argument the decision needs is not there: if the schema is content without it, the answer is no
    /// (GNT-C10).
    Undecided,
}

/// Whether `grants` cover everything in `needs`. Nothing of the arguments is told.
pub(crate) fn judge<'r>(
    grants: &Capabilities,
    call: &str,
    needs: impl IntoIterator<Item = &'r Requirement>,
    args: &Value,
) -> Verdict {
    if !grants.cover("mcp.call", Some(call)) {
        return Verdict::Refused;
    }
    let mut undecided = false;
    for need in needs {
        match need.expand(args) {
            None if grants.cover(&need.name, None) => {}
            Some(Expanded::All(scopes))
                if scopes.iter().all(|scope| grants.cover(&need.name, Some(scope))) => {}
            Some(Expanded::Unresolved) if grants.knows(&need.name) => undecided = true,
            _ => return Verdict::Refused,
        }
    }
    if undecided { Verdict::Undecided } else { Verdict::Passes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn allows(mode: CapMode, grant: &str, requirement: &str, args: &Value) -> bool {
        let grants = Capabilities::parse(mode, ["mcp.call:s/*", grant]).unwrap();
        let need = Requirement::parse(requirement).unwrap();
        judge(&grants, "s/t", &[need], args) == Verdict::Passes
    }

    #[test]
    fn the_truth_table_holds() {
        // SG-12, gauntlet §2
        use CapMode::{Cleared, Dev};
        let both = |grant: &str, requirement: &str| {
            let args = json!({});
            (allows(Cleared, grant, requirement, &args), allows(Dev, grant, requirement, &args))
        };
        assert_eq!(both("fs.read", "fs.read:/x"), (false, true));
        for wanted in ["/secrets/a", "/secrets/a/b/c", "/secrets/", "/secrets/*", "/secrets/[..]"] {
            assert_eq!(both("fs.read:/secrets/*", &format!("fs.read:{wanted}")), (true, true), "{wanted}");
        }
        for wanted in [
            "fs.read:/secrets",
            "fs.read:/*",
            "fs.read:*",
            "fs.read",
            "fs.write:/secrets/a",
            "fs.read:/secrets/../etc/passwd",
        ] {
            assert_eq!(both("fs.read:/secrets/*", wanted), (false, false), "{wanted}");
        }
        assert_eq!(both("fs.read:*", "fs.read"), (true, true));
        assert_eq!(both("fs.read", "fs.read"), (false, true));
        for bad in [
            "FS.read:x",
            "fs.read:",
            "fs..read",
            ".fs",
            "",
            ":x",
            "1a",
            "net.connect:https://h*",
            "net.connect:https://[*]/",
        ] {
            assert!(Capabilities::parse(Cleared, [bad]).is_err(), "{bad}");
        }
        // GNT-C2: a tool that declares nothing still needs its call granted.
        let none = Capabilities::default();
        assert_eq!(judge(&none, "s/t", &[], &json!({})), Verdict::Refused);
        let other = Capabilities::parse(Cleared, ["mcp.call:other/*"]).unwrap();
        assert_eq!(judge(&other, "s/t", &[], &json!({})), Verdict::Refused);
    }

    #[test]
    fn arguments_are_looked_at() {
        // SG-13, GNT-C7, GNT-C8, GNT-C10
        let reads =
            |args: Value| allows(CapMode::Cleared, "fs.read:/secrets/*", "fs.read:{path|path}", &args);
        assert!(reads(json!({"path": "/secrets//a/./b"})));
        assert!(reads(json!({"path": "/secrets/%2e%2e/x"})));
        for bad in [
            "/secrets/../etc/passwd",
            "~/x",
            "x",
            "file:///secrets/x",
            "",
            "/secrets/\0",
            "C:/secrets/x",
            "/../secrets/x",
        ] {
            assert!(!reads(json!({"path": bad})), "{bad}");
        }
        let grants = Capabilities::parse(CapMode::Cleared, ["mcp.call:s/*", "fs.read:/secrets/*"]).unwrap();
        let verdict = |requirement: &str, args: Value| {
            judge(&grants, "s/t", &[Requirement::parse(requirement).unwrap()], &args)
        };
        assert_eq!(verdict("fs.read:{path|path}", json!({})), Verdict::Undecided);
        assert_eq!(verdict("fs.read:{path|path}", json!({"path": 7})), Verdict::Undecided);
        assert_eq!(verdict("fs.write:{path|path}", json!({})), Verdict::Refused);
        assert_eq!(
            verdict(
                "fs.read:{/files/*/p|path}",
                json!({"files": [{"p": "/secrets/a"}, {"p": "/secrets/b"}]})
            ),
            Verdict::Passes
        );
        assert_eq!(
            verdict("fs.read:{/files/*/p|path}", json!({"files": [{"p": "/secrets/a"}, {"p": "/etc/b"}]})),
            Verdict::Refused
        );
        for bad in ["fs.read:{a|b}", "fs.read:{a", "fs.read:{}"] {
            assert!(Requirement::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn addresses_are_compared_part_by_part() {
        // SG-14, GNT-C6, GNT-C9
        let reaches = |grant: &str, url: &str| {
            allows(CapMode::Cleared, grant, "net.connect:{url|url}", &json!({"url": url}))
        };
        let grant = "net.connect:https://h/*";
        for good in ["https://H:443/a", "https://h/", "https://h/a?b#c"] {
            assert!(reaches(grant, good), "{good}");
        }
        for bad in [
            "https://h.evil.com/",
            "https://u@h/",
            "http://h/",
            "https://h:8443/",
            "h",
            "https://",
            "https://hh/",
        ] {
            assert!(!reaches(grant, bad), "{bad}");
        }
        assert!(reaches("net.connect:https://*.example.com/v1/*", "https://a.b.example.com/v1/x"));
        for bad in ["https://example.com/v1/x", "https://evilexample.com/v1/x", "https://a.example.com/v2"] {
            assert!(!reaches("net.connect:https://*.example.com/v1/*", bad), "{bad}");
        }
        assert!(reaches("net.connect:http://127.0.0.1/*", "http://0x7f.1/"));
        assert!(allows(
            CapMode::Cleared,
            "net.connect:https://h:443/*",
            "net.connect:https://h:443/*",
            &json!({})
        ));
        assert!(allows(CapMode::Cleared, "x.y:h.example", "x.y:{h|host}", &json!({"h": "H.EXAMPLE"})));
        assert!(!allows(CapMode::Cleared, "x.y:*", "x.y:{h|host}", &json!({"h": "h/x"})));
    }

    proptest! {
        #[test]
        fn more_grants_never_allow_less(
            grants in prop::collection::vec("(fs|net)\\.(read|use)(:(/[a-c*/.]{0,6}|\\*))?", 0..4),
            more in "(fs|net)\\.(read|use):/[a-c*/]{0,6}",
            wanted in "/?[a-c/.]{0,8}",
        ) {
            let need = [Requirement::parse("fs.read:{p|path}").unwrap()];
            let args = json!({"p": wanted});
            let set = |extra: Option<&str>| {
                let all = grants.iter().map(String::as_str).chain(["mcp.call:s/t"]).chain(extra);
                Capabilities::parse(CapMode::Cleared, all).unwrap()
            };
            if judge(&set(None), "s/t", &need, &args) == Verdict::Passes {
                prop_assert_eq!(judge(&set(Some(&more)), "s/t", &need, &args), Verdict::Passes);
            }
        }
    }
}
