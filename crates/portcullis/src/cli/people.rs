//! Commands about operators, agents, clients and secrets.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::commands::connect::client::Client;

#[derive(Debug, Subcommand)]
pub(crate) enum OperatorCommand {
    /// Enrol an operator, or give one another passphrase or key
    #[command(
        after_help = "The new passphrase is asked for on the terminal, or read from --new-passphrase-fd. With --ssh-key the \
operator's ssh-agent signs instead (operator.auth must name ssh-agent). The first operator is enrolled by the user the gateway runs as; later ones by an operator."
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
    },
    /// List the enrolled operators
    List,
    /// Make, list and take back tokens with which your programs reach the admin tools
    #[command(subcommand)]
    Token(TokenCommand),
    /// Remove an operator
    Remove {
        /// The operator's name
        name: String,
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
        /// What kind of thing it is
        #[arg(long, value_name = "KIND", default_value = "static")]
        kind: String,
        /// Read the value from this file descriptor
        #[arg(long, value_name = "N")]
        fd: Option<i32>,
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
