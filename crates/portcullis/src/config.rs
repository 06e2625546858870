//! `portcullis.toml`.

mod exposure;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use miette::{NamedSource, SourceSpan};
use portcullis_audit::{KekSource, NoteKey, Retention, SignerSource, Witness};
use portcullis_console::SessionLife;
use portcullis_core::Secret;
use portcullis_gateway::GatewayOptions;
use portcullis_gateway::access::{AccessOptions, DECLARED, OAuthOptions};
use portcullis_gateway::control::{AdminOptions, AuditSettings, OWNER, Role};
use portcullis_gateway::gates::Gates;
use portcullis_gauntlet::{
    CapMode, Capabilities, Escape, Gauntlet, GauntletConfig, Glob, TextJson, ToolOverride,
};
use portcullis_governance::broker::backend::Backend;
use portcullis_governance::declaration::Span;
use portcullis_governance::operator::Method;
use portcullis_governance::operator::webauthn::RelyingParty;
use portcullis_governance::policy::{Bundle, PolicyFile, Preset};
use portcullis_governance::record::Mode;
use portcullis_governance::registry::Names;
use serde::Deserialize;
use url::Url;

use crate::cli::Global;
use crate::failure::Failure;
pub(crate) use exposure::ModeWord;
use exposure::{BrowseSection, CatalogSection, ExposureSection, SearchSection};

mod bucket;
mod calls;
pub(crate) mod gates;
mod http;
mod records;
mod results;
mod surface;

use calls::CallsSection;
use http::HttpSection;
use results::{ArtifactsSection, EnvelopeSection, FirewallSection, RedactionSection};
use surface::SurfaceSection;

/// Where agents connect unless told otherwise.
pub(crate) const DEFAULT_LISTEN: &str = "127.0.0.1:7411";

/// The whole file. Unknown keys are refused.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    pub(crate) gateway: GatewaySection,
    pub(crate) upstream: UpstreamSection,
    pub(crate) sandbox: SandboxSection,
    pub(crate) access: AccessSection,
    pub(crate) policy: PolicySection,
    pub(crate) approvals: ApprovalsSection,
    pub(crate) operator: OperatorSection,
    secrets: SecretsSection,
    admin: AdminSection,
    /// What operators see, by role.
    role: Vec<Role>,
    pub(crate) permits: PermitsSection,
    pub(crate) audit: AuditSection,
    pub(crate) state: StateSection,
    pub(crate) gauntlet: GauntletSection,
    pub(crate) redaction: RedactionSection,
    pub(crate) firewall: FirewallSection,
    pub(crate) envelope: EnvelopeSection,
    pub(crate) artifacts: ArtifactsSection,
    pub(crate) calls: CallsSection,
    pub(crate) exposure: ExposureSection,
    pub(crate) surface: SurfaceSection,
    /// What stands before tools and asks whether their server supports the arguments.
    pub(crate) gate: Vec<portcullis_gateway::gates::GateOptions>,
    /// What is set for records servers, by their registered name.
    pub(crate) records: std::collections::BTreeMap<String, portcullis_gateway::records::RecordsOptions>,
    catalog: CatalogSection,
    pub(crate) search: SearchSection,
    browse: BrowseSection,
    /// Only so that it can be refused with an explanation (GOV-201).
    server: Option<toml::Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct GatewaySection {
    /// Where this gateway runs: local, team, enterprise, ci.
    pub(crate) mode: Option<Mode>,
    /// Where agents connect. Beyond loopback only with `access.authentication = "required"`.
    pub(crate) listen: Option<SocketAddr>,
    /// Folder of declaration files; `mcp add NAME` looks for NAME.yaml there.
    pub(crate) declarations: Option<PathBuf>,
    /// `Origin` values allowed besides loopback ones.
    pub(crate) allowed_origins: Vec<String>,
    /// How agents name tools: prefixed (with the server's name) or bare (one server only).
    pub(crate) names: Names,
    /// `Host` values allowed besides the listener's own and loopback ones.
    pub(crate) allowed_hosts: Vec<String>,
    /// Whether sessions are written to files that `context build` reads: on or off.
    pub(crate) session_log: Switch,
    /// What one request, and one agent, may take of the listener.
    pub(crate) http: HttpSection,
}

/// On or off.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Switch {
    #[default]
    Off,
    On,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct UpstreamSection {
    /// Certificate authorities that https servers may have besides the machine's own, in PEM form.
    pub(crate) ca_file: Option<PathBuf>,
    /// Where the document about this client is published, for issuers that fetch one (`portcullis auth client-document`).
    pub(crate) client_document: Option<url::Url>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SandboxSection {
    /// Addresses of declared hosts that the machine's resolver does not know, or is not to be asked about. They must be
    /// global ones, or listed in the declaration's `addrs`: this file opens nothing.
    pub(crate) hosts: BTreeMap<String, Vec<IpAddr>>,
    /// Where baits lie in the view of a server, in place of the usual places; an empty list lays none.
    pub(crate) baits: Option<Vec<PathBuf>>,
    /// Where the user ids of servers begin, one for each, if the gateway runs as root [default: 2147000000].
    pub(crate) uid_base: Option<u32>,
    /// How much a process of a server may use, from its next registration on: memory, pids, nofile, fsize, tmp, cpu.
    pub(crate) limits: portcullis_sandbox::Limits,
    /// How closely servers are watched: standard, or full, which looks at every file they ask for and takes time.
    pub(crate) detect: portcullis_sandbox::Detect,
    /// How long a process of a server that is not shared is kept without a call [default: 10m].
    pub(crate) idle_stop: Option<Span>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AccessSection {
    /// Whether agents on HTTP must prove who they are.
    pub(crate) authentication: Authentication,
    /// The issuer whose access tokens count.
    oauth: Option<OAuthSection>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Authentication {
    /// No: everybody on this machine is the agent `local`. A credential that is presented is still checked.
    #[default]
    None,
    /// Yes: with a key, or with a token of the issuer.
    Required,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OAuthSection {
    /// Exactly as the tokens' `iss` says.
    issuer: Url,
    /// Where agents reach this gateway; the audience of their tokens.
    resource: Url,
    /// Where the issuer's keys are [default: what its metadata says].
    jwks_url: Option<Url>,
    /// The scope that tokens must have.
    scope: Option<String>,
    /// The claim that names the agent [default: client_id].
    agent_claim: Option<String>,
    /// What agents with a token may do at most [default: declared].
    grants: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PolicySection {
    /// strict, balanced or observe.
    pub(crate) preset: Preset,
    /// Folder of `*.cedar` files in force beside the preset.
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ApprovalsSection {
    /// How long a call waits for an operator.
    pub(crate) wait: Option<Span>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct OperatorSection {
    /// How operators prove who they are: uid, passphrase, ssh-agent [default: uid in mode local, passphrase elsewhere].
    pub(crate) auth: Option<Vec<OperatorMethod>>,
    /// Where the console is: an address, or `off` [default: on this machine, the port after the agents' one].
    listen: Option<String>,
    /// Where operators reach it, if something in front of it carries TLS.
    url: Option<Url>,
    /// How long a session of the console lasts with nothing done in it [default: 30m].
    session_idle: Option<Span>,
    /// How long it lasts altogether [default: 12h].
    session_max: Option<Span>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AdminSection {
    /// Tags of admin tools that take two operators: `policies:admin`, `keys:*` [default: none].
    four_eyes: Vec<String>,
    /// How long the first waits for the second [default: 24h].
    four_eyes_ttl: Option<Span>,
    /// Operators who count as somebody else than whoever enrolled them [default: none].
    founders: Vec<String>,
    /// Hosts in private networks, or this machine, that webhooks may lead to [default: none].
    webhook_hosts: Vec<String>,
}

impl AdminSection {
    fn options(&self, roles: &[Role]) -> Result<AdminOptions, Failure> {
        let usual = AdminOptions::default();
        let is_tag = |tag: &str| {
            let word = |word: &str| {
                word == "*" || (!word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'))
            };
            tag == "*" || tag.split_once(':').is_some_and(|(domain, class)| word(domain) && word(class))
        };
        if let Some(bad) = self.four_eyes.iter().find(|tag| !is_tag(tag)) {
            let message =
                format!("admin.four_eyes: {bad:?} is not DOMAIN:CLASS, as in policies:admin or keys:*");
            return Err(Failure::field("admin.four_eyes", message));
        }
        if roles.iter().any(|role| role.id == OWNER || role.id.is_empty()) {
            return Err(Failure::field("role.id", "role.id: the owner's role is built in; name another"));
        }
        Ok(AdminOptions {
            four_eyes: self.four_eyes.clone(),
            four_eyes_ttl: self.four_eyes_ttl.map_or(usual.four_eyes_ttl, |span| span.0),
            founders: self.founders.clone(),
            roles: roles.to_vec(),
            webhook_hosts: self.webhook_hosts.clone(),
        })
    }
}

/// How operators reach the gateway by HTTP.
#[derive(Debug)]
pub(crate) struct ListenerSettings {
    /// `None` for nowhere, `Some(None)` for wherever there is room.
    pub(crate) listen: Option<Option<SocketAddr>>,
    pub(crate) url: Option<Url>,
    pub(crate) life: SessionLife,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OperatorMethod {
    /// The user the gateway runs as is its operator.
    Uid,
    /// Operators are enrolled, and know a passphrase.
    Passphrase,
    /// Operators are enrolled, and their ssh-agent signs what they ask for.
    SshAgent,
    /// Operators are enrolled, and their security keys sign what they do in the console.
    Webauthn,
}

impl OperatorSection {
    /// Where the console is.
    pub(crate) fn listener(&self) -> Result<ListenerSettings, Failure> {
        let listen = match self.listen.as_deref() {
            None => Some(None),
            Some("off") => None,
            Some(address) => Some(Some(address.parse::<SocketAddr>().map_err(|_| {
                Failure::field("operator.listen", "operator.listen must be ADDRESS:PORT or off")
            })?)),
        };
        let https = self.url.as_ref().is_some_and(|url| url.scheme() == "https");
        if self.url.as_ref().is_some_and(|url| !matches!(url.scheme(), "https" | "http")) {
            return Err(Failure::field("operator.url", "operator.url must begin with https:// or http://"));
        }
        if let Some(Some(address)) = listen.filter(|listen| listen.is_some_and(|at| !at.ip().is_loopback()))
            && !https
        {
            let message = format!(
                "operator.listen: {address} is not a loopback address, and passphrases must not travel in the clear; \
                 put something that carries TLS in front of it and name it with operator.url = \"https://…\""
            );
            return Err(Failure::field("operator.listen", message));
        }
        let usual = SessionLife::default();
        let life = SessionLife {
            idle: self.session_idle.map_or(usual.idle, |span| span.0),
            whole: self.session_max.map_or(usual.whole, |span| span.0),
        };
        Ok(ListenerSettings { listen, url: self.url.clone(), life })
    }

    /// Browsers use security keys at a host's name, by https or on this machine, and only a page can ask them to.
    fn can_use_security_keys(&self) -> Result<(), Failure> {
        if self.listen.as_deref() == Some("off") {
            let message = "operator.auth: webauthn is used in the console, and operator.listen is off";
            return Err(Failure::field("operator.auth", message));
        }
        let Some(url) = &self.url else { return Ok(()) };
        match RelyingParty::of(url) {
            Ok(_) => Ok(()),
            Err(problem) => {
                let message = format!(
                    "operator.url: webauthn cannot be used at {url}: {problem}; name the host, as in https://gate.example"
                );
                Err(Failure::field("operator.url", message))
            }
        }
    }

    fn methods(&self, mode: Mode) -> Result<Vec<Method>, Failure> {
        let word = |method: &OperatorMethod| match method {
            OperatorMethod::Uid => Method::Uid,
            OperatorMethod::Passphrase => Method::Passphrase,
            OperatorMethod::SshAgent => Method::SshAgent,
            OperatorMethod::Webauthn => Method::Webauthn,
        };
        match (self.auth.as_deref(), mode) {
            (Some([]), _) => {
                let message = "operator.auth must name uid, passphrase, ssh-agent or webauthn";
                Err(Failure::field("operator.auth", message))
            }
            (Some(methods), _) => {
                let methods: Vec<Method> = methods.iter().map(word).collect();
                if methods.contains(&Method::Webauthn) {
                    self.can_use_security_keys()?;
                }
                Ok(methods)
            }
            // GOV-105: only on one person's machine may agents share the operator's user.
            (None, Mode::Local) => Ok(vec![Method::Uid]),
            (None, _) => Ok(vec![Method::Passphrase]),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PermitsSection {
    /// How long a permit lives, 1s to 300s.
    pub(crate) ttl: Option<Span>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct StateSection {
    /// The Postgres that several replicas share their state in: an address without a password, or a file: with one.
    postgres: Option<String>,
}

impl StateSection {
    /// The address, of which nothing is ever shown.
    fn postgres(&self, file: &Path) -> Result<Option<std::sync::Arc<Secret<String>>>, Failure> {
        let Some(text) = &self.postgres else { return Ok(None) };
        let refuse = |message: String| Err(Failure::field("state.postgres", message));
        let address = match text.strip_prefix("file:") {
            Some(path) => {
                let path = beside(file, Path::new(path));
                match std::fs::read_to_string(&path) {
                    Ok(address) => address.trim().to_owned(),
                    Err(error) => return refuse(format!("{}: {error}", path.display())),
                }
            }
            None if Url::parse(text).is_ok_and(|url| url.password().is_some()) => {
                let message =
                    "put an address with a password into a file of its own and name that: file:PATH";
                return refuse(message.into());
            }
            None => text.clone(),
        };
        if !address.starts_with("postgres://") && !address.starts_with("postgresql://") {
            return refuse(
                "state.postgres must be postgres://HOST/DATABASE, or file:PATH with such an address".into(),
            );
        }
        Ok(Some(std::sync::Arc::new(Secret::new(address))))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AuditSection {
    /// Size of a log segment, 8 MiB to 1 GiB.
    pub(crate) segment_bytes: Option<u64>,
    /// Who keeps the log: the first part of the origin of its checkpoints [default: portcullis/HOST].
    pub(crate) origin: Option<String>,
    /// Whether full entry bundles are written beside the tiles, for others to fetch.
    pub(crate) publish: bool,
    /// Where checkpoints go besides the log's own folder: file:PATH, syslog, command:PROGRAM.
    pub(crate) sinks: Vec<String>,
    /// How often at most.
    pub(crate) sink_interval: Option<Span>,
    /// Where the key of the evidence keys comes from: file:PATH, keyring:NAME or command:PROGRAM.
    pub(crate) kek: Option<String>,
    /// What has evidence keys of its own: each day, or each session of it.
    pub(crate) key_granularity: KeyGranularity,
    /// Who cosigns checkpoints.
    pub(crate) witness: Vec<WitnessSection>,
    /// Whether calls stop when one of them has not signed for `witness_max_age`.
    pub(crate) witness_required: bool,
    /// See above.
    pub(crate) witness_max_age: Option<Span>,
    /// Below this much free room, in bytes, health is `degraded`.
    pub(crate) min_free: Option<u64>,
    /// How long a turn of the log waits for company before it is written, at most 5ms.
    pub(crate) group_delay: Option<Span>,
    /// How long a call waits for its evidence to be durable before it is refused, 1s to 5m.
    pub(crate) commit_timeout: Option<Span>,
    /// Whether the kernel is asked to refuse changes of segments that are done [default: in mode enterprise].
    pub(crate) append_only: Option<bool>,
    /// Who signs checkpoints, if not the key in keys/log.key.
    pub(crate) signer: Option<SignerSection>,
    /// How long evidence is kept.
    pub(crate) retention: RetentionSection,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum KeyGranularity {
    #[default]
    Day,
    Session,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WitnessSection {
    /// Its submission prefix.
    pub(crate) url: Url,
    /// What its cosignatures are checked with.
    pub(crate) vkey: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignerSection {
    /// The program and its arguments.
    pub(crate) command: Vec<String>,
    /// Its Ed25519 public key, 64 hexadecimal digits.
    pub(crate) public_key: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RetentionSection {
    /// Calls.
    pub(crate) standard: Option<Span>,
    /// Calls of tools with credentials or access to secrets.
    pub(crate) sensitive: Option<Span>,
    /// What probing brought up.
    pub(crate) probe: Option<Span>,
}

impl AuditSection {
    fn settings(&self) -> Result<AuditSettings, Failure> {
        let sink = |text: &String| {
            text.parse().map_err(|error: portcullis_audit::SinkError| {
                Failure::field("audit.sinks", error.to_string())
            })
        };
        let mut retention = Retention::default();
        let kept = &self.retention;
        for (set, class) in [
            (kept.standard, &mut retention.standard),
            (kept.sensitive, &mut retention.sensitive),
            (kept.probe, &mut retention.probe),
        ] {
            *class = set.map_or(*class, |span| span.0);
        }
        if self.group_delay.is_some_and(|span| span.0 > Duration::from_millis(5)) {
            return Err(Failure::field("audit.group_delay", "audit.group_delay must be 0ms to 5ms"));
        }
        let patience = Duration::from_secs(1)..=Duration::from_secs(300);
        if self.commit_timeout.is_some_and(|span| !patience.contains(&span.0)) {
            return Err(Failure::field("audit.commit_timeout", "audit.commit_timeout must be 1s to 5m"));
        }
        Ok(AuditSettings {
            origin: self.origin.clone(),
            publish: self.publish,
            sinks: self.sinks.iter().map(sink).collect::<Result<_, _>>()?,
            sink_interval: self.sink_interval.map(|span| span.0),
            key_per_session: self.key_granularity == KeyGranularity::Session,
            retention,
            kek: self.kek.as_deref().map(kek).transpose()?,
            signer: self.signer.as_ref().map(signer).transpose()?,
            min_free: self.min_free,
            group_delay: self.group_delay.map(|span| span.0),
            commit_timeout: self.commit_timeout.map(|span| span.0),
            append_only: self.append_only,
            witnesses: self.witness.iter().map(witness).collect::<Result<_, _>>()?,
            witness_required: self.witness_required,
            witness_max_age: self.witness_max_age.map(|span| span.0),
        })
    }
}

fn witness(section: &WitnessSection) -> Result<Witness, Failure> {
    let key: NoteKey = (section.vkey.parse()).map_err(|error: portcullis_audit::NoteError| {
        Failure::field("audit.witness.vkey", error.to_string())
    })?;
    if !key.is_witness() {
        let message = "audit.witness.vkey is the key of a log, not of a witness (cosignature/v1)";
        return Err(Failure::field("audit.witness.vkey", message));
    }
    let loopback = matches!(section.url.host_str(), Some("127.0.0.1" | "[::1]" | "localhost"));
    if section.url.scheme() != "https" && !(section.url.scheme() == "http" && loopback) {
        let message = "audit.witness.url must be https; plain http is for loopback addresses only";
        return Err(Failure::field("audit.witness.url", message));
    }
    Ok(Witness { url: section.url.to_string(), key })
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SecretsSection {
    /// Where values of credentials lie: vault-file, keyring, or command:/PATH of a program that has them.
    backend: Option<String>,
}

impl SecretsSection {
    fn backend(&self) -> Result<Backend, Failure> {
        let Some(text) = &self.backend else { return Ok(Backend::VaultFile) };
        text.parse()
            .map_err(|problem| Failure::field("secrets.backend", format!("secrets.backend {problem}")))
    }
}

fn kek(text: &str) -> Result<KekSource, Failure> {
    match text.split_once(':') {
        Some(("file", path)) if Path::new(path).is_absolute() => Ok(KekSource::File(path.into())),
        Some(("command", command)) if !command.trim().is_empty() => {
            Ok(KekSource::Command(command.split_whitespace().map(ToOwned::to_owned).collect()))
        }
        Some(("keyring", name)) if is_key_name(name) => Ok(KekSource::Keyring(name.to_owned())),
        _ => {
            let message = "audit.kek must be file:/PATH, keyring:NAME or command:PROGRAM ARGUMENTS";
            Err(Failure::field("audit.kek", message))
        }
    }
}

/// A name in the kernel's keyring that needs no quoting anywhere.
fn is_key_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_:".contains(c);
    !name.is_empty() && name.len() <= 128 && name.chars().all(plain)
}

fn signer(section: &SignerSection) -> Result<SignerSource, Failure> {
    let public_key = portcullis_core::digest::parse_hex(&section.public_key).ok_or_else(|| {
        Failure::field(
            "audit.signer.public_key",
            "audit.signer.public_key must be 64 lowercase hexadecimal digits",
        )
    })?;
    Ok(SignerSource::Command { command: section.command.clone(), public_key })
}

/// How results are made safe to show.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct GauntletSection {
    /// What a grant without a scope is worth: cleared or dev.
    capability_mode: CapModeWord,
    /// What a text block that is JSON is: leaf or string.
    text_json: TextJsonWord,
    sanitiser: SanitiserSection,
    /// Tools that are treated differently.
    tool: Vec<ToolSection>,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TextJsonWord {
    #[default]
    Leaf,
    String,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CapModeWord {
    #[default]
    Cleared,
    Dev,
}

impl From<CapModeWord> for CapMode {
    fn from(word: CapModeWord) -> Self {
        match word {
            CapModeWord::Cleared => CapMode::Cleared,
            CapModeWord::Dev => CapMode::Dev,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SanitiserSection {
    /// Markers removed besides the three that always are.
    extra_markers: Vec<String>,
    /// Whether terminal sequences go whole.
    strip_ansi: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolSection {
    /// Which: `<server>/<tool>`, with `*` and `?`.
    #[serde(rename = "match")]
    tools: String,
    /// How their texts are written: html or none.
    escape: EscapeWord,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum EscapeWord {
    Html,
    None,
}

impl GauntletSection {
    fn config(&self) -> Result<GauntletConfig, Failure> {
        let tools = self.tool.iter().map(|tool| {
            let pattern = Glob::parse(&tool.tools).map_err(|problem| {
                Failure::field("gauntlet.tool.match", format!("{:?} {problem}", tool.tools))
            })?;
            let escape = match tool.escape {
                EscapeWord::Html => Escape::Html,
                EscapeWord::None => Escape::None,
            };
            Ok(ToolOverride { tools: pattern, escape })
        });
        let config = GauntletConfig {
            text_json: match self.text_json {
                TextJsonWord::Leaf => TextJson::Leaf,
                TextJsonWord::String => TextJson::String,
            },
            extra_markers: self.sanitiser.extra_markers.clone(),
            strip_ansi: self.sanitiser.strip_ansi,
            tools: tools.collect::<Result<_, Failure>>()?,
            redact: None,
        };
        Gauntlet::new(&config)
            .map_err(|error| Failure::field("gauntlet.sanitiser.extra_markers", error.to_string()))?;
        Ok(config)
    }
}

/// A configuration error with its place in the file.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[error("{message}")]
struct Misconfigured {
    message: String,
    #[source_code]
    source_code: NamedSource<String>,
    #[label("here")]
    place: Option<SourceSpan>,
    #[help]
    help: Option<String>,
}

impl Config {
    /// Reads the file; the defaults if there is none and none was named.
    pub(crate) fn load(global: &Global, home: &Path) -> Result<(Self, PathBuf), Failure> {
        let path = global.config.clone().unwrap_or_else(|| home.join("portcullis.toml"));
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && global.config.is_none() => {
                String::new()
            }
            // The home folder is for its owner alone, who is the operator.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied && global.config.is_none() => {
                let message = format!("{} belongs to another user, who is its operator", home.display());
                return Err(Failure::new(portcullis_core::ErrorCode::OperatorAuth, message));
            }
            Err(error) => return Err(Failure::field("config", format!("{}: {error}", path.display()))),
        };
        let config = Self::parse(&text, &path)?;
        Ok((config, path))
    }

    fn parse(text: &str, path: &Path) -> Result<Self, Failure> {
        let config: Config = toml::from_str(text)
            .map_err(|error| misconfigured(text, path, error.span(), error.message().to_owned(), None))?;
        if config.server.is_some() {
            let at = text.find("[[server]]").or_else(|| text.find("[server")).unwrap_or(0);
            return Err(misconfigured(
                text,
                path,
                Some(at..at + 8),
                "servers are not registered by a file".into(),
                Some("register the server with `portcullis mcp add NAME`, which checks and records it"),
            ));
        }
        if let Some(listen) = config.gateway.listen.filter(|listen| !config.access.admits(*listen)) {
            let at = text.find("listen").unwrap_or(0);
            let message = format!("{listen} is not a loopback address, and agents are not authenticated");
            let help = "listen on 127.0.0.1, or set `authentication = \"required\"` in [access]";
            return Err(misconfigured(text, path, Some(at..at + 6), message, Some(help)));
        }
        Ok(config)
    }

    /// What the gateway needs of it.
    pub(crate) fn options(&self, home: &Path, file: &Path) -> Result<GatewayOptions, Failure> {
        let mut options = GatewayOptions::new(home);
        options.version = env!("CARGO_PKG_VERSION").into();
        options.mode = self.gateway.mode.unwrap_or(Mode::Local);
        options.secrets_backend = self.secrets.backend()?;
        options.operator_methods = self.operator.methods(options.mode)?;
        self.operator.listener()?;
        options.admin = self.admin.options(&self.role)?;
        options.names = self.gateway.names;
        options.authorities = self.upstream.ca_file.as_ref().map(|path| beside(file, path));
        options.hosts =
            self.sandbox.hosts.iter().map(|(name, at)| (name.to_ascii_lowercase(), at.clone())).collect();
        options.baits.clone_from(&self.sandbox.baits);
        if let Some(base) = self.sandbox.uid_base {
            // Below are users of the machine, above is what the kernel does not count to.
            if !(65_536..=4_000_000_000).contains(&base) {
                let message =
                    "sandbox.uid_base: must be 65536 to 4000000000, where nobody of this machine is";
                return Err(Failure::field("sandbox.uid_base", message));
            }
            options.uid_base = base;
        }
        if let Some((limit, cap)) = self.sandbox.limits.unreasonable() {
            let message = match cap {
                Some(cap) => format!("must be at most {cap}"),
                None => "must be more than nothing".to_owned(),
            };
            return Err(Failure::field(&format!("sandbox.limits.{limit}"), message));
        }
        options.limits.clone_from(&self.sandbox.limits);
        options.detect = self.sandbox.detect;
        if let Some(idle_stop) = self.sandbox.idle_stop {
            options.idle_stop = idle_stop.0;
        }
        options.access = self.access.options()?;
        options.exposure = self.exposure_options(file)?;
        options.surface = self.surface.options()?;
        options.gates = std::sync::Arc::new(Gates::new(gates::ready(&self.gate)?));
        options.records = records::options(&self.records)?;
        // REC-3: with names of its own there is room for that server alone.
        if options.records.values().any(|records| records.bare_names) {
            if options.records.len() > 1 {
                let message = "records: bare_names is for a gateway in front of one server alone";
                return Err(Failure::field("records", message));
            }
            options.names = Names::Bare;
        }
        options.gauntlet = self.gauntlet.config()?;
        options.gauntlet.redact = self.redaction.redactor()?;
        options.unredacted = self.redaction.waived()?;
        options.calls = self.calls.options()?;
        options.shaping = results::shaping(&self.firewall, &self.envelope, &self.artifacts, file)?;
        options.shaping.results = self.surface.results()?;
        options.shaping.session_log = self.gateway.session_log == Switch::On;
        options.shaping.clients_keep =
            options.surface.profiles.values().any(|profile| profile.results.keeps());
        options.access.mode = self.gauntlet.capability_mode.into();
        options.refresh = self.catalog.refresh()?;
        options.approval_wait = self.approvals.wait.map_or(options.approval_wait, |span| span.0);
        self.gateway.http.limits()?;
        options.permit_ttl = self.permits.ttl.map_or(options.permit_ttl, |span| span.0);
        if !(Duration::from_secs(1)..=Duration::from_secs(300)).contains(&options.permit_ttl) {
            return Err(Failure::field("permits.ttl", "permits.ttl must be 1s to 300s"));
        }
        if let Some(bytes) = self.audit.segment_bytes {
            if !(8 << 20..=1 << 30).contains(&bytes) {
                return Err(Failure::field(
                    "audit.segment_bytes",
                    "audit.segment_bytes must be 8 MiB to 1 GiB",
                ));
            }
            options.segment_bytes = bytes;
        }
        options.audit = self.audit.settings()?;
        options.postgres = self.state.postgres(file)?;
        self.artifacts.fits(options.postgres.is_some())?;
        options.policy = match &self.policy.dir {
            Some(dir) => read_bundle(self.policy.preset, &beside(file, dir))?,
            None => Bundle::preset(self.policy.preset),
        };
        // GOV-403 rule 5: what decides about servers, and what keeps evidence, is not theirs to touch.
        options.protected.extend(self.policy.dir.as_ref().map(|dir| beside(file, dir)));
        if let Some(KekSource::File(key)) = &options.audit.kek {
            options.protected.push(key.clone());
        }
        Ok(options)
    }

    /// Where agents connect.
    pub(crate) fn listen(&self, flag: Option<SocketAddr>) -> SocketAddr {
        flag.or(self.gateway.listen).unwrap_or_else(|| DEFAULT_LISTEN.parse().expect("a fixed address"))
    }

    /// The declaration file of a server that `mcp add` was given none for.
    pub(crate) fn declaration_of(&self, file: &Path, name: &str) -> Option<PathBuf> {
        self.gateway.declarations.as_ref().map(|dir| beside(file, dir).join(format!("{name}.yaml")))
    }
}

impl AccessSection {
    /// Strangers can reach us only where they must prove who they are (PRO-32).
    pub(crate) fn admits(&self, listen: SocketAddr) -> bool {
        listen.ip().is_loopback() || self.authentication == Authentication::Required
    }

    /// The host under which agents reach us, as far as it is configured.
    pub(crate) fn host(&self) -> Option<String> {
        self.oauth.as_ref()?.resource.host_str().map(ToOwned::to_owned)
    }

    fn options(&self) -> Result<AccessOptions, Failure> {
        let oauth = self.oauth.as_ref().map(OAuthSection::options).transpose()?;
        let required = self.authentication == Authentication::Required;
        Ok(AccessOptions { required, oauth, ..AccessOptions::default() })
    }
}

impl OAuthSection {
    fn grants(&self) -> Result<Vec<String>, Failure> {
        let grants = self.grants.clone().unwrap_or_else(|| vec![DECLARED.into()]);
        let limited = grants.iter().map(String::as_str).filter(|grant| *grant != DECLARED);
        Capabilities::parse(CapMode::Cleared, limited)
            .map_err(|error| Failure::field("access.oauth.grants", error.to_string()))?;
        Ok(grants)
    }

    fn options(&self) -> Result<OAuthOptions, Failure> {
        let scope = self.scope.clone();
        // It goes into a header, between quotes.
        let printable = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\\');
        if scope.as_ref().is_some_and(|scope| scope.is_empty() || !scope.chars().all(printable)) {
            return Err(Failure::field("access.oauth.scope", "must be one word of printable ASCII"));
        }
        if self.resource.path() != "/mcp"
            || self.resource.query().is_some()
            || self.resource.fragment().is_some()
        {
            return Err(Failure::field(
                "access.oauth.resource",
                "must be the address of this gateway's /mcp",
            ));
        }
        Ok(OAuthOptions {
            // A URL type ends a bare host with a slash; issuers do not.
            issuer: match self.issuer.path() {
                "/" => self.issuer.as_str().trim_end_matches('/').to_owned(),
                _ => self.issuer.to_string(),
            },
            resource: self.resource.clone(),
            jwks_url: self.jwks_url.clone(),
            scope,
            agent_claim: self.agent_claim.clone().unwrap_or_else(|| "client_id".into()),
            grants: self.grants()?,
        })
    }
}

/// Paths in the file are relative to it.
fn beside(file: &Path, path: &Path) -> PathBuf {
    file.parent().unwrap_or(Path::new("/")).join(path)
}

/// A bundle: the `*.cedar` files of a folder, and its `settings.toml` if it has one (GOV-801).
pub(crate) fn read_bundle(preset: Preset, dir: &Path) -> Result<Bundle, Failure> {
    let settings = match std::fs::read_to_string(dir.join("settings.toml")) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => {
            let message = format!("{}: {error}", dir.join("settings.toml").display());
            return Err(Failure::field("policy.dir", message));
        }
    };
    Ok(Bundle { preset, files: read_policies(dir)?, settings })
}

pub(crate) fn read_policies(dir: &Path) -> Result<Vec<PolicyFile>, Failure> {
    let fail = |error: std::io::Error| Failure::field("policy.dir", format!("{}: {error}", dir.display()));
    let mut paths: Vec<PathBuf> = std::fs::read_dir(dir)
        .map_err(fail)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .map_err(fail)?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "cedar"));
    paths.sort();
    (paths.into_iter())
        .map(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            Ok(PolicyFile { name, text: std::fs::read_to_string(&path).map_err(fail)? })
        })
        .collect()
}

fn misconfigured(
    text: &str,
    path: &Path,
    span: Option<std::ops::Range<usize>>,
    message: String,
    help: Option<&str>,
) -> Failure {
    let place = span.clone().map(|span| {
        let before = &text[..span.start.min(text.len())];
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        format!(":{line}:{column}")
    });
    let head = format!("{}{}: {message}", path.display(), place.unwrap_or_default());
    let report = miette::Report::new(Misconfigured {
        message: head.clone(),
        source_code: NamedSource::new(path.display().to_string(), text.to_owned()),
        place: span.map(SourceSpan::from),
        help: help.map(ToOwned::to_owned),
    });
    let mut failure = Failure::field("config", head);
    failure.details = Some(serde_json::json!({"rendered": format!("{report:?}")}));
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> Failure {
        Config::parse(text, Path::new("portcullis.toml")).map(|_| ()).unwrap_err()
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_line_and_column() {
        let failure = refused("[gateway]\nmode = \"local\"\ncolour = \"red\"\n");
        assert!(failure.message.starts_with("portcullis.toml:3:1:"), "{}", failure.message);
        assert_eq!(failure.exit, 7);
        assert!(refused("[gateway]\nmode = \"lokal\"\n").message.contains(":2:8:"));
        assert!(refused("[approvals]\nwait = \"soon\"\n").message.contains(":2:8:"));
    }

    #[test]
    fn a_server_table_is_refused_and_points_to_the_command() {
        // GOV-201
        let failure = refused("[[server]]\nname = \"x\"\n");
        let rendered = failure.details.unwrap()["rendered"].to_string();
        assert!(rendered.contains("portcullis mcp add"), "{rendered}");
    }

    #[test]
    fn listening_beyond_loopback_is_refused() {
        // PRO-32
        assert!(refused("[gateway]\nlisten = \"0.0.0.0:7411\"\n").message.contains("not a loopback address"));
        assert!(Config::parse("[gateway]\nlisten = \"127.0.0.1:1\"\n", Path::new("x")).is_ok());
        let guarded = "[gateway]\nlisten = \"0.0.0.0:7411\"\n[access]\nauthentication = \"required\"\n";
        assert!(Config::parse(guarded, Path::new("x")).is_ok());
    }

    #[test]
    fn security_keys_are_refused_where_no_browser_would_use_them() {
        // GOV-104
        let methods = |text: &str| {
            let text = format!("[operator]\nauth = [\"webauthn\"]\n{text}\n");
            Config::parse(&text, Path::new("x")).unwrap().operator.methods(Mode::Local)
        };
        assert_eq!(methods("").unwrap(), [Method::Webauthn]);
        assert!(methods("url = \"https://gate.example\"").is_ok());
        for (text, about) in [
            ("listen = \"off\"", "operator.listen is off"),
            ("url = \"https://10.0.0.5\"", "this is an address"),
            ("url = \"http://gate.example\"", "only by https"),
        ] {
            assert!(methods(text).unwrap_err().message.contains(about), "{text}");
        }
    }

    #[test]
    fn the_console_stays_on_this_machine_unless_something_carries_tls() {
        // GOV-104
        let listener = |text: &str| {
            Config::parse(&format!("[operator]\n{text}\n"), Path::new("x")).unwrap().operator.listener()
        };
        assert!(matches!(listener("").unwrap().listen, Some(None)));
        assert!(listener("listen = \"off\"").unwrap().listen.is_none());
        assert!(listener("listen = \"127.0.0.1:0\"").is_ok());
        assert!(listener("listen = \"0.0.0.0:7412\"").unwrap_err().message.contains("operator.url"));
        assert!(listener("listen = \"0.0.0.0:7412\"\nurl = \"http://gate.example\"").is_err());
        assert!(listener("listen = \"0.0.0.0:7412\"\nurl = \"https://gate.example\"").is_ok());
        assert!(listener("listen = \"7412\"").is_err());
        assert!(listener("url = \"ftp://gate.example\"").is_err());
    }

    #[test]
    fn the_gauntlet_section_is_understood_and_bad_values_are_refused() {
        // GNT-Z15, GNT-Z16
        let text = "[gauntlet]\ntext_json = \"string\"\n[gauntlet.sanitiser]\nextra_markers = [\"[INST]\"]\nstrip_ansi = true\n\
                    [[gauntlet.tool]]\nmatch = \"fs/*\"\nescape = \"none\"\n";
        let config = Config::parse(text, Path::new("x")).unwrap().gauntlet.config().unwrap();
        assert!(
            config.strip_ansi && config.extra_markers == ["[INST]"] && config.tools[0].escape == Escape::None
        );
        let bad =
            |text: &str| Config::parse(text, Path::new("x")).unwrap().gauntlet.config().unwrap_err().message;
        assert!(bad("[gauntlet.sanitiser]\nextra_markers = [\"abc\"]\n").contains("extra marker 1"));
        assert!(bad("[[gauntlet.tool]]\nmatch = \"[\"\nescape = \"html\"\n").contains("not closed"));
        assert!(refused("[gauntlet]\ntext_json = \"tree\"\n").message.contains(":2:"));
    }
}
