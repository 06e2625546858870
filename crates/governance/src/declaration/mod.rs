//! Capability declarations: what an operator says a server may offer (GOV §4).
//!
//! The operator's file is authoritative; the live server must equal it. A declaration goes through three
//! stages, each a type: [`Declaration::parse`] reads strict YAML into the grammar of GOV-402,
//! [`rules::check`] applies the acceptance rules that need only the file and the record, and
//! [`live::compare`] holds it against what the server lists. Only what passed all three becomes an
//! [`crate::accepted::AcceptedDeclaration`].

pub mod compatible;
pub mod diff;
mod items;
pub mod live;
mod locate;
mod parse;
pub mod rules;
mod secrets;

use std::collections::BTreeMap;
use std::time::Duration;

use portcullis_core::name::ScopeName;
use portcullis_core::{ServerIdentity, ServerVersion, ToolName};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

pub use parse::{Rejection, Source};

/// The document as written, and the same thing understood.
#[derive(Debug, Clone)]
pub struct Declaration {
    /// Typed form.
    pub body: Body,
    /// The document as JSON: what the declaration version is the digest of (GOV-405).
    pub document: Value,
    locations: locate::Locations,
}

/// The grammar of GOV-402. Unknown keys are refused everywhere.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Body {
    /// `portcullis/v1`.
    #[serde(rename = "apiVersion")]
    pub api_version: ApiVersion,
    /// `CapabilityDeclaration`.
    pub kind: Kind,
    /// Which server this is about.
    pub server: ServerClause,
    /// Places and powers the tools may use, by name.
    #[serde(default)]
    pub scopes: BTreeMap<ScopeName, Scope>,
    /// Destinations whose denial is expected and no violation.
    #[serde(default)]
    pub expected_denials: Vec<ExpectedDenial>,
    /// Whether the server may talk outside calls.
    #[serde(default)]
    pub background_egress: bool,
    /// The tools.
    pub tools: Vec<ToolClause>,
    /// Resources and resource templates.
    #[serde(default)]
    pub resources: Vec<ResourceClause>,
    /// Prompts.
    #[serde(default)]
    pub prompts: Vec<PromptClause>,
    /// Requests the server may make to the client.
    #[serde(default)]
    pub server_requests: Vec<ServerRequestClause>,
    /// Whether calls may be answered with tasks, which go on after the answer (PRO §3).
    #[serde(default)]
    pub tasks: bool,
}

/// The extension by which a client says that it takes tasks for answers.
pub const TASKS: &str = "io.modelcontextprotocol/tasks";

/// The only version of the grammar.
#[derive(Debug, Clone, Copy, Deserialize)]
pub enum ApiVersion {
    /// `portcullis/v1`
    #[serde(rename = "portcullis/v1")]
    V1,
}

/// The only kind of document.
#[derive(Debug, Clone, Copy, Deserialize)]
pub enum Kind {
    /// `CapabilityDeclaration`
    CapabilityDeclaration,
}

/// Which server a declaration is about.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerClause {
    /// Must equal the record's.
    pub identity: ServerIdentity,
    /// Must equal the record's.
    pub version: ServerVersion,
    /// Protocol revisions the server may speak.
    pub protocol_versions: Vec<String>,
    /// Must equal the record's.
    pub surface: crate::record::Surface,
    /// Whether clients share the server's sessions.
    #[serde(default)]
    pub session: Sharing,
    /// How often a dynamic surface is asked again.
    #[serde(default)]
    pub refresh: Option<Refresh>,
}

/// Whether clients share a server's sessions (PRO-39).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharing {
    /// It keeps nothing about who calls: one connection serves all.
    #[default]
    Shared,
    /// It remembers who calls: each session of a client has a connection of its own.
    PerClient,
}

/// How often a dynamic surface is asked again.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refresh {
    /// 5 s to 1 h.
    pub max_age: Span,
}

/// A place or power.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scope {
    /// What kind of thing the scope is.
    pub kind: ScopeKind,
    /// `fs`, `exec`: an absolute path.
    #[serde(default)]
    pub path: Option<String>,
    /// `fs`: `ro` or `rw`.
    #[serde(default)]
    pub access: Option<Access>,
    /// `egress`: a host name.
    #[serde(default)]
    pub host: Option<String>,
    /// `egress`: a port.
    #[serde(default)]
    pub port: Option<u16>,
    /// `egress`: whether TLS is required.
    #[serde(default)]
    pub tls: Option<Tls>,
    /// `egress`: addresses allowed besides global ones.
    #[serde(default)]
    pub addrs: Option<Vec<String>>,
    /// `secret`: which class of credential.
    #[serde(default)]
    pub credential_class: Option<String>,
    /// `secret`: how it is delivered.
    #[serde(default)]
    pub via: Option<Via>,
    /// `secret`: the variable or file name.
    #[serde(default)]
    pub name: Option<String>,
    /// `secret`: the egress scope it may travel to.
    #[serde(default)]
    pub toward: Option<ScopeName>,
    /// `secret`: what a placeholder looks like.
    #[serde(default)]
    pub format: Option<String>,
    /// `secret`: where in a request it may be substituted.
    #[serde(default, rename = "in")]
    pub within: Option<Vec<String>>,
    /// `remote`: a label for a system beyond the server.
    #[serde(default)]
    pub system: Option<String>,
    /// `remote`: identifiers must start with this.
    #[serde(default)]
    pub prefix: Option<String>,
}

/// What kind of thing a scope is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum ScopeKind {
    Fs,
    Egress,
    Secret,
    Exec,
    Remote,
}

/// What may be done with a file system scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Access {
    Ro,
    Rw,
}

/// Whether an egress scope needs TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Tls {
    Required,
    None,
}

/// How a credential is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Via {
    Proxy,
    Header,
    Fd,
    Env,
}

/// A destination whose denial is expected.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedDenial {
    /// By name.
    #[serde(default)]
    pub host: Option<String>,
    /// By address.
    #[serde(default)]
    pub addr: Option<String>,
}

/// What a tool may do to the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum SideEffect {
    Execute,
    Network,
    Other,
    Read,
    SecretAccess,
    Write,
}

impl SideEffect {
    /// The word in declarations, permits and policy.
    pub fn as_str(self) -> &'static str {
        match self {
            SideEffect::Execute => "execute",
            SideEffect::Network => "network",
            SideEffect::Other => "other",
            SideEffect::Read => "read",
            SideEffect::SecretAccess => "secret_access",
            SideEffect::Write => "write",
        }
    }
}

/// Whether calling twice is like calling once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Idempotency {
    Idempotent,
    NonIdempotent,
    Unknown,
}

impl Idempotency {
    /// The word in declarations and policy.
    pub fn as_str(self) -> &'static str {
        match self {
            Idempotency::Idempotent => "idempotent",
            Idempotency::NonIdempotent => "non-idempotent",
            Idempotency::Unknown => "unknown",
        }
    }
}

/// One tool. The nine required items of GOV-403.3 have no default.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolClause {
    /// Byte-equal to the server's name for it.
    pub name: ToolName,
    /// The tool's own version.
    pub version: String,
    /// Must equal the live text, if given.
    #[serde(default)]
    pub description: Option<String>,
    /// What it does to the world; empty = pure.
    pub side_effects: Vec<SideEffect>,
    /// Which scopes it uses.
    pub scopes: Vec<ScopeName>,
    /// Which argument must lie in which scope.
    #[serde(default)]
    pub scope_bindings: Vec<BindingClause>,
    /// Instead of bindings: the arguments do not name the place.
    #[serde(default)]
    pub unbound: bool,
    /// Required credential classes.
    pub credentials: Vec<String>,
    /// The closed input schema, equal to the live one.
    pub parameters: Value,
    /// What it returns.
    pub output: OutputClause,
    /// Whether it may be repeated.
    pub idempotency: Idempotency,
    /// Failures that are part of its contract.
    pub failure_modes: Vec<FailureMode>,
    /// Caps on time and size.
    #[serde(default)]
    pub limits: Limits,
    /// What replay does with it (AUD-70).
    #[serde(default)]
    pub replay: Replay,
}

/// Which argument must lie in which scope.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BindingClause {
    /// RFC 6901 pointer into the arguments; `*` stands for each element.
    pub param: String,
    /// The scope.
    pub scope: ScopeName,
    /// How the argument is read.
    #[serde(rename = "as")]
    pub reading: BindingKind,
}

/// How a bound argument is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum BindingKind {
    FsPath,
    Url,
    Host,
    ExecPath,
    Prefix,
}

/// What a tool returns: a schema or a plain type.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutputClause {
    /// The schema of `structuredContent`, equal to the live output schema.
    #[serde(default)]
    pub schema: Option<Value>,
    /// Or just what kind of content comes.
    #[serde(default, rename = "type")]
    pub kind: Option<OutputKind>,
}

/// What kind of content comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum OutputKind {
    Text,
    Json,
    Binary,
    None,
}

/// A failure that is part of a tool's contract.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailureMode {
    /// Its name.
    pub code: String,
    /// Whether trying again may help.
    pub retryable: bool,
}

/// Caps on time and size; the defaults are those of GOV-402.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// How long one call may take. At most 600 s.
    pub timeout: Span,
    /// Canonical arguments. At most 4 MiB.
    pub max_request_bytes: u64,
    /// Raw result. At most 16 MiB.
    pub max_response_bytes: u64,
    /// Bytes sent out during one call. At most 1 GiB.
    pub max_egress_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            timeout: Span(Duration::from_secs(30)),
            max_request_bytes: 64 << 10,
            max_response_bytes: 256 << 10,
            max_egress_bytes: 64 << 20,
        }
    }
}

/// What replay does with a tool (AUD-70).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Replay {
    #[default]
    MustStub,
    FailLoud,
    RecordedResult,
    Reexecute,
}

/// One resource or template.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct ResourceClause {
    pub name: ToolName,
    pub version: String,
    #[serde(default)]
    pub uri: Option<String>,
    #[serde(default)]
    pub uri_template: Option<String>,
    #[serde(default)]
    pub mime_types: Vec<String>,
    #[serde(default)]
    pub subscribe: bool,
    pub side_effects: Vec<SideEffect>,
    pub scopes: Vec<ScopeName>,
    #[serde(default)]
    pub scope_bindings: Vec<BindingClause>,
    #[serde(default)]
    pub unbound: bool,
    pub credentials: Vec<String>,
    pub failure_modes: Vec<FailureMode>,
    #[serde(default)]
    pub limits: Limits,
}

/// One prompt.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct PromptClause {
    pub name: ToolName,
    pub version: String,
    pub arguments: Vec<PromptArgument>,
    pub side_effects: Vec<SideEffect>,
    pub scopes: Vec<ScopeName>,
    pub credentials: Vec<String>,
    pub failure_modes: Vec<FailureMode>,
    #[serde(default)]
    pub limits: Limits,
}

/// One argument of a prompt.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct PromptArgument {
    pub name: String,
    pub required: bool,
    pub max_length: u64,
}

/// A request the server may make to the client.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
#[allow(missing_docs)]
pub enum ServerRequestClause {
    Plain(ServerRequest),
    Limited(LimitedServerRequest),
}

/// The kinds of request a server may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum ServerRequest {
    Sampling,
    Elicitation,
    Roots,
}

impl ServerRequest {
    /// The word in declarations, which is also that of the client's capability.
    pub fn as_str(self) -> &'static str {
        match self {
            ServerRequest::Sampling => "sampling",
            ServerRequest::Elicitation => "elicitation",
            ServerRequest::Roots => "roots",
        }
    }

    /// All of them.
    pub const ALL: [Self; 3] = [ServerRequest::Sampling, ServerRequest::Elicitation, ServerRequest::Roots];

    /// The method on the wire.
    pub fn method(self) -> &'static str {
        match self {
            ServerRequest::Sampling => "sampling/createMessage",
            ServerRequest::Elicitation => "elicitation/create",
            ServerRequest::Roots => "roots/list",
        }
    }

    /// The kind of a request by its method.
    pub fn of_method(method: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.method() == method)
    }
}

/// A request the server may make, with its caps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptedRequest {
    /// What it may ask.
    pub kind: ServerRequest,
    /// How often in one call.
    pub max_per_call: u32,
    /// Sampling: how many tokens at most.
    pub max_tokens: u32,
}

impl Body {
    /// The requests the server may make.
    pub fn accepted_requests(&self) -> Vec<AcceptedRequest> {
        // GOV-408: four rounds, unless less is declared.
        const ROUNDS: u32 = 4;
        const TOKENS: u32 = 1_024;
        let accepted = |clause: &ServerRequestClause| match clause {
            ServerRequestClause::Plain(kind) => {
                AcceptedRequest { kind: *kind, max_per_call: ROUNDS, max_tokens: TOKENS }
            }
            ServerRequestClause::Limited(limited) => AcceptedRequest {
                kind: limited.kind,
                max_per_call: limited.max_per_call.unwrap_or(ROUNDS).min(ROUNDS),
                max_tokens: limited.max_tokens.unwrap_or(TOKENS),
            },
        };
        self.server_requests.iter().map(accepted).collect()
    }

    /// The same in the words of a client's capabilities: what we say upstream that we can be asked.
    pub fn client_capabilities(&self) -> Value {
        let requests = self.accepted_requests();
        let members = requests.iter().map(|request| {
            let how = match request.kind {
                ServerRequest::Elicitation => serde_json::json!({"form": {}, "url": {}}),
                ServerRequest::Sampling | ServerRequest::Roots => serde_json::json!({}),
            };
            (request.kind.as_str().to_owned(), how)
        });
        let mut capabilities = Value::Object(members.collect());
        if self.tasks {
            capabilities["extensions"] = serde_json::json!({TASKS: {}});
        }
        capabilities
    }
}

/// A server request with caps.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct LimitedServerRequest {
    pub kind: ServerRequest,
    #[serde(default)]
    pub max_per_call: Option<u32>,
    #[serde(default)]
    pub max_tokens: Option<u32>,
}

/// A length of time as people write it: `30s`, `5m`, `1h`, `90d`, `200ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span(pub Duration);

impl std::str::FromStr for Span {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let error = || {
            format!(
                "{} is not a duration; expected e.g. 200ms, 30s, 5m, 1h or 90d",
                portcullis_core::name::printable(text)
            )
        };
        let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(error)?;
        let number: u64 = text[..digits].parse().map_err(|_| error())?;
        let unit_ms = match &text[digits..] {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(error()),
        };
        number.checked_mul(unit_ms).map(|ms| Span(Duration::from_millis(ms))).ok_or_else(error)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&format!("{}ms", self.0.as_millis()))
    }
}
