//! Commands about operators, agents, clients and secrets.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};

use crate::commands::connect::client::Client;

#[derive(Debug, Subcommand)]
pub(crate) enum OperatorCommand {
    /// Enrol an operator, or give one another passphrase or key
    #[command(
        after_help = "The new passphrase is asked for on the terminal, or read from --new-passphrase-fd. With --ssh-key the \
operator's ssh-agent signs instead (operator.auth must name ssh-agent). With --passkey a link is shown, good once and for 15 minutes, by which \
the operator enrols a security key in the browser (operator.auth must name webauthn, and the gateway must run). The first operator is enrolled by the user the gateway runs as; later ones by an operator."
    )]
    Enrol {
        /// The operator's name, by which records know it
        name: String,
        /// Read the new passphrase from this file descriptor
        #[arg(long, value_name = "N")]
        new_passphrase_fd: Option<i32>,
        /// The public half of a key in the operator's ssh-agent, as in ~/.ssh/id_ed25519.pub
        #[arg(long, value_name = "FILE", conflicts_with = "new_passphrase_fd")]
        ssh_key: Option<PathBuf>,
        /// Show a link by which the operator enrols a security key in the browser
        #[arg(long, conflicts_with_all = ["new_passphrase_fd", "ssh_key"])]
        passkey: bool,
    },
    /// List the enrolled operators
    List,
    /// Make, list and take back tokens with which your programs reach the admin tools
    #[command(subcommand)]
    Token(TokenCommand),
    /// Remove an operator, or one of its security keys
    Remove {
        /// The operator's name
        name: String,
        /// Only this security key of it, by its id in `operator list --output json`
        #[arg(long, value_name = "ID")]
        passkey: Option<String>,
        /// Why
        #[arg(long)]
        reason: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token that speaks for you; it is shown once
    #[command(
        after_help = "Example:\n  portcullis operator token create ci --expires 90d\n  curl -H \"Authorization: Bearer $TOKEN\" \
-H 'Content-Type: application/json' -d '{}' http://127.0.0.1:7412/api/admin/portcullis_servers_list"
    )]
    Create {
        /// What the token is called
        name: String,
        /// How long it holds, as in 12h or 90d [default: until revoked]
        #[arg(long, value_name = "SPAN")]
        expires: Option<String>,
    },
    /// List the tokens in force
    List,
    /// Take a token back
    Revoke {
        /// What the token is called
        name: String,
        /// Why
        #[arg(long)]
        reason: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum AdminCommand {
    /// Call an admin tool and print its envelope
    #[command(
        after_help = "Examples:\n  portcullis admin call servers_list\n  portcullis admin call servers_set_state --json \
'{\"server_id\": \"notes\", \"state\": \"halted\", \"confirm\": true, \"reason\": \"maintenance\"}'"
    )]
    Call {
        /// The tool, with or without `portcullis_`
        tool: String,
        /// Its arguments, a JSON object; `-` reads them from stdin
        #[arg(long, default_value = "{}", value_name = "JSON")]
        json: String,
    },
    /// List the admin tools
    Tools {
        /// Only of one part of the gateway
        domain: Option<String>,
    },
    /// Fetch a key that waits, or give a credential that is expected
    #[command(
        after_help = "The id is what clients_create, clients_rotate_key and credentials_capture answer with. It works once, \
within 15 minutes, and only with the gateway that gave it running."
    )]
    Capture {
        /// The capture_id
        id: String,
        /// Read the credential from this descriptor instead of the terminal
        #[arg(long, value_name = "N")]
        fd: Option<i32>,
    },
    /// Print the OpenAPI document of the HTTP surface
    Openapi,
    /// Serve the admin tools to one MCP client on stdin and stdout
    Mcp {
        /// List every tool instead of the three to browse, view and execute
        #[arg(long)]
        passthrough: bool,
    },
}

#[derive(Debug, Args)]
#[command(
    after_help = "What changes is shown first. The file as it was is kept beside it; --undo puts it back byte for \
byte.\n\nExamples:\n  portcullis connect claude-code\n  portcullis connect cursor --dry-run\n  portcullis connect codex --undo"
)]
pub(crate) struct ConnectArgs {
    /// Which agent
    pub(crate) client: Client,
    /// Its configuration file [default: where the agent looks for it]
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Under which name
    #[arg(long, default_value = "portcullis", value_parser = plain_name)]
    pub(crate) name: String,
    /// Put the file back as it was
    #[arg(long)]
    pub(crate) undo: bool,
    /// Show what would change, and change nothing
    #[arg(long, conflicts_with = "undo")]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
}

fn plain_name(text: &str) -> Result<String, String> {
    let plain =
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    if plain { Ok(text.to_owned()) } else { Err("letters, digits, - and _".into()) }
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Make a key for an agent, in place of the one it has; it is shown once
    #[command(
        after_help = "Example:\n  portcullis key create ci --expires 90d --grant 'mcp.call:notes/*'\n\nWithout --grant \
the agent may do whatever the accepted declarations offer (the grant `declared`)."
    )]
    Create {
        /// The agent's name, by which records and policies know it
        agent: String,
        /// What it may do at most; may be given several times
        #[arg(long, value_name = "GRANT")]
        grant: Vec<String>,
        /// A group that policies know it by, as in `principal in Portcullis::Group::\"ops\"`; may be given several times
        #[arg(long, value_name = "GROUP")]
        group: Vec<String>,
        /// How long the key holds, as in 12h or 90d [default: until revoked]
        #[arg(long, value_name = "SPAN")]
        expires: Option<String>,
    },
    /// List the keys in force
    List,
    /// Take an agent's key back
    Revoke {
        /// The agent's name
        agent: String,
        /// Why
        #[arg(long)]
        reason: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum SecretCommand {
    /// Keep a credential; its value is read from the terminal, or from a file descriptor
    #[command(
        after_help = "Example:\n  portcullis secret set github --class issues.read --fd 3 3< token.txt\n\nTools whose declared \
credentials list the class are lent the value, each for the time of one call. No command prints it."
    )]
    Set {
        /// Its name
        name: String,
        /// What it is good for, as declarations say it
        #[arg(long, value_name = "CLASS")]
        class: String,
        /// What kind of thing it is: static, or mtls for a private key with its certificates that the server of class mtls.SERVER is shown
        #[arg(long, value_name = "KIND", default_value = "static")]
        kind: String,
        /// Read the value from this file descriptor
        #[arg(long, value_name = "N")]
        fd: Option<i32>,
        /// The program of secrets.backend has the value already, under this name; none is read
        #[arg(long, conflicts_with = "fd")]
        kept: bool,
    },
    /// List credentials, without their values
    List,
    /// Change the value of a credential; calls that have the old one lose it
    Rotate {
        /// Its name
        name: String,
        /// Read the value from this file descriptor
        #[arg(long, value_name = "N")]
        fd: Option<i32>,
        /// The program of secrets.backend has the new value already; none is read
        #[arg(long, conflicts_with = "fd")]
        kept: bool,
    },
    /// Write the key that a records subscription's deliveries are signed with to a file, once
    #[command(
        after_help = "Example:\n  portcullis secret export-signing-key personal sub_0001 --reason 'for the receiver'\n\n\
For subscriptions that deliver past the gateway. The file can be read by its owner alone; move it to whoever verifies \
deliveries. A key that was handed over is gone from here; `rotate_secret` makes another."
    )]
    ExportSigningKey {
        /// The records server
        server: String,
        /// The subscription's id
        subscription: String,
        /// Why
        #[arg(long)]
        reason: String,
    },
    /// Forget a credential
    Rm {
        /// Its name
        name: String,
        /// Why
        #[arg(long)]
        reason: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuthCommand {
    /// Log in at a server's issuer; the gateway keeps what that leaves, shows it to the server, and renews it
    #[command(
        after_help = "Examples:\n  portcullis auth login tickets\n  portcullis auth login tickets --url https://tickets.example/mcp --no-browser\n  \
portcullis auth login reports --client-credentials --client-id ci --client-secret-fd 3 3< secret.txt\n\nThe server says who its \
issuer is. The gateway is known there by --client-id, by the document at upstream.client_document of the configuration, or registers itself. \
A server that is not registered yet needs --url; log in first, then `portcullis mcp add`."
    )]
    Login(Box<AuthLoginArgs>),
    /// List the servers somebody logged in at
    Status,
    /// Forget a login
    Logout {
        /// The server
        server: String,
        /// Why
        #[arg(long)]
        reason: String,
    },
    /// Print the document about this client that issuers may fetch, to be published at an address of yours
    ClientDocument {
        /// The address it will be published at, with https
        #[arg(long, value_name = "URL")]
        at: url::Url,
    },
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("proof").args(["client_secret_fd", "client_key_fd"])))]
pub(crate) struct AuthLoginArgs {
    /// The server
    pub(crate) server: String,
    /// Where it is [default: as registered]
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<url::Url>,
    /// A client that is registered at the issuer
    #[arg(long, value_name = "ID")]
    pub(crate) client_id: Option<String>,
    /// Read the client's secret from this file descriptor
    #[arg(long, value_name = "N", requires = "client_id")]
    pub(crate) client_secret_fd: Option<i32>,
    /// Read the client's private key (PKCS #8, PEM) from this file descriptor: it signs who the client is
    #[arg(long, value_name = "N", requires = "client_id")]
    pub(crate) client_key_fd: Option<i32>,
    /// For the gateway itself: nobody logs in, the client's secret or key is enough
    #[arg(long, requires = "proof")]
    pub(crate) client_credentials: bool,
    /// For the workload that the token in this file speaks for; it is read again whenever the login is renewed
    #[arg(long, value_name = "FILE", requires = "client_id", conflicts_with = "client_credentials")]
    pub(crate) workload_token_file: Option<PathBuf>,
    /// For the person that the identity token in this file speaks for, by way of --identity-provider
    #[arg(
        long,
        value_name = "FILE",
        requires_all = ["client_id", "identity_provider", "identity_client_id"],
        conflicts_with_all = ["client_credentials", "workload_token_file"]
    )]
    pub(crate) identity_token_file: Option<PathBuf>,
    /// Who exchanges identity tokens for what the issuer takes
    #[arg(long, value_name = "URL", requires = "identity_token_file")]
    pub(crate) identity_provider: Option<url::Url>,
    /// The gateway's client at the identity provider
    #[arg(long, value_name = "ID", requires = "identity_token_file")]
    pub(crate) identity_client_id: Option<String>,
    /// Have the token bound to a key, even if the server does not insist (DPoP)
    #[arg(long)]
    pub(crate) dpop: bool,
    /// What to ask for [default: what the server says it needs]
    #[arg(long)]
    pub(crate) scope: Option<String>,
    /// Only print the address to log in at
    #[arg(long)]
    pub(crate) no_browser: bool,
    /// Where somebody comes back to on this machine [default: a free port]
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    pub(crate) port: u16,
}
