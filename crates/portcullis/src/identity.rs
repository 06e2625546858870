//! Who the operator says to be, and the proof: a signature by the operator's ssh-agent, or a passphrase from the terminal or a
//! file descriptor, never from the command line, the environment or a file of ours (GOV-104).

use std::io::{BufRead as _, BufReader, IsTerminal as _, Read as _, Write as _};
use std::os::fd::AsFd as _;

use portcullis_core::{ErrorCode, Secret, Sha256Digest};
use portcullis_gateway::control::Credential as ShownCredential;
use portcullis_governance::operator::Method;
use portcullis_governance::operator::ssh::{PublicKey, request_digest};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use serde::{Deserialize, Serialize};

use crate::cli::Global;
use crate::failure::Failure;
use crate::operator::user_name;
use crate::ssh_agent;

/// A passphrase on its way to the gateway, over a socket that only its user can open.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Passphrase(String);

impl Passphrase {
    /// A value that was found where it should not be.
    pub(crate) fn found(value: String) -> Self {
        Self(value)
    }

    pub(crate) fn secret(&self) -> Secret<String> {
        Secret::new(self.0.clone())
    }

    /// The same as bytes, for who takes them into custody.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.as_bytes().to_vec()
    }
}

impl Drop for Passphrase {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.0);
    }
}

impl std::fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Passphrase(…)")
    }
}

/// Who asks, and what it will prove that with.
#[derive(Debug, Clone)]
pub(crate) enum Credential {
    Passphrase {
        name: String,
        passphrase: Passphrase,
    },
    /// The operator's agent; `or_passphrase`: where it does not have the key, the operator is asked.
    Agent {
        name: String,
        or_passphrase: bool,
    },
}

/// What the gateway wants signed, and by which key.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Challenge {
    pub(crate) random: String,
    pub(crate) key: Option<PublicKey>,
}

/// Who asks, and the proof of it, on its way to the gateway.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Proof {
    Passphrase { name: String, passphrase: Passphrase },
    Signature { name: String, signature: Vec<u8> },
}

impl Proof {
    /// The proof with what it is about: the request, and the challenge that came before it, if one did.
    pub(crate) fn shown(self, challenge: Option<&str>, request: &str) -> (String, ShownCredential) {
        match self {
            Proof::Passphrase { name, passphrase } => {
                (name, ShownCredential::Passphrase(passphrase.secret()))
            }
            Proof::Signature { name, signature } => {
                // Without a challenge nothing that was signed fits.
                let digest = match challenge {
                    Some(challenge) => request_digest(challenge, &name, request.as_bytes()),
                    None => Sha256Digest::of(b""),
                };
                (name, ShownCredential::Signature { digest, signature })
            }
        }
    }
}

impl Credential {
    /// The operator for whom something new to sign is needed.
    pub(crate) fn needs_challenge(&self) -> Option<String> {
        match self {
            Credential::Agent { name, .. } => Some(name.clone()),
            Credential::Passphrase { .. } => None,
        }
    }

    /// The proof for one request; `None` if there is none, and the gateway says what is missing.
    pub(crate) fn prove(self, challenge: Option<Challenge>, request: &str) -> Result<Option<Proof>, Failure> {
        let (name, or_passphrase) = match self {
            Credential::Passphrase { name, passphrase } => {
                return Ok(Some(Proof::Passphrase { name, passphrase }));
            }
            Credential::Agent { name, or_passphrase } => (name, or_passphrase),
        };
        let Some(Challenge { random, key }) = challenge else { return Ok(None) };
        let signature = match &key {
            Some(key) => {
                let digest = request_digest(&random, &name, request.as_bytes());
                ssh_agent::sign(key, &digest).map_err(|error| {
                    let message = format!("the ssh-agent at SSH_AUTH_SOCK does not answer: {error}");
                    Failure::new(ErrorCode::OperatorAuth, message)
                })?
            }
            None => None,
        };
        if let Some(signature) = signature {
            return Ok(Some(Proof::Signature { name, signature }));
        }
        if or_passphrase && let Some(passphrase) = ask(&format!("Passphrase of operator {name}: "))? {
            return Ok(Some(Proof::Passphrase { name, passphrase }));
        }
        let message = match key {
            Some(_) => {
                format!("the ssh-agent at SSH_AUTH_SOCK does not sign with the key of operator {name}")
            }
            None => return Ok(None),
        };
        Err(Failure::new(ErrorCode::OperatorAuth, message))
    }
}

/// What was typed about who asks.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    name: Option<String>,
    fd: Option<i32>,
}

impl Identity {
    pub(crate) fn of(global: &Global) -> Self {
        Self { name: global.operator.clone(), fd: global.passphrase_fd }
    }

    /// The credential to send: none where the user the gateway runs as is its operator, unless one is named.
    pub(crate) fn credential(&self, methods: &[Method]) -> Result<Option<Credential>, Failure> {
        let named = self.name.is_some() || self.fd.is_some();
        let (by_passphrase, by_agent) =
            (methods.contains(&Method::Passphrase), methods.contains(&Method::SshAgent));
        if !named && (!(by_passphrase || by_agent) || methods.contains(&Method::Uid)) {
            return Ok(None);
        }
        let name = self.name.clone().unwrap_or_else(user_name);
        if by_agent && self.fd.is_none() && ssh_agent::is_there() {
            return Ok(Some(Credential::Agent { name, or_passphrase: by_passphrase }));
        }
        if by_agent && !by_passphrase && self.fd.is_none() {
            return Ok(None);
        }
        let passphrase = match self.fd {
            Some(fd) => Some(read_fd(fd)?),
            None => ask(&format!("Passphrase of operator {name}: "))?,
        };
        // Nobody to ask: the gateway says what is missing.
        Ok(passphrase.map(|passphrase| Credential::Passphrase { name, passphrase }))
    }
}

/// A new passphrase: twice from the terminal, or once from a file descriptor.
pub(crate) fn new_passphrase(fd: Option<i32>) -> Result<Passphrase, Failure> {
    if let Some(fd) = fd {
        return read_fd(fd);
    }
    let missing = || {
        Failure::new(
            ErrorCode::OperatorAuth,
            "no terminal to ask for the passphrase; give --new-passphrase-fd N",
        )
    };
    let first = ask("New passphrase: ")?.ok_or_else(missing)?;
    let second = ask("Again: ")?.ok_or_else(missing)?;
    if first.0 == second.0 {
        Ok(first)
    } else {
        Err(Failure::field("passphrase", "the two are not the same"))
    }
}

/// The value of a credential: from a file descriptor as it is, or once from the terminal.
pub(crate) fn new_credential(fd: Option<i32>) -> Result<Passphrase, Failure> {
    let Some(fd) = fd else {
        let missing = || Failure::field("fd", "no terminal to ask for the value; give --fd N");
        return ask("Value: ")?.ok_or_else(missing);
    };
    let unreadable =
        |error: std::io::Error| Failure::field("fd", format!("file descriptor {fd} cannot be read: {error}"));
    let file = std::fs::File::open(format!("/dev/fd/{fd}")).map_err(unreadable)?;
    let mut value = Passphrase(String::new());
    // One more than is kept, so that what is too long is refused and not cut.
    file.take((64 << 10) + 1).read_to_string(&mut value.0).map_err(unreadable)?;
    // Files and `echo` end in a line that is no part of the value.
    let length = value.0.trim_end_matches(['\r', '\n']).len();
    value.0.truncate(length);
    Ok(value)
}

/// The first line of an inherited file descriptor.
fn read_fd(fd: i32) -> Result<Passphrase, Failure> {
    let unreadable = |error: std::io::Error| {
        Failure::field("passphrase-fd", format!("file descriptor {fd} cannot be read: {error}"))
    };
    let file = std::fs::File::open(format!("/dev/fd/{fd}")).map_err(unreadable)?;
    let mut line = String::new();
    BufReader::new(file.take(4096)).read_line(&mut line).map_err(unreadable)?;
    Ok(Passphrase(line.trim_end_matches(['\r', '\n']).to_owned()))
}

/// Asks on the terminal without showing what is typed; `None` if there is none.
fn ask(question: &str) -> Result<Option<Passphrase>, Failure> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() || !std::io::stderr().is_terminal() {
        return Ok(None);
    }
    let broken = |error: std::io::Error| Failure::field("passphrase", error.to_string());
    let before = tcgetattr(stdin.as_fd()).map_err(|error| broken(error.into()))?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    let mut stderr = std::io::stderr();
    let _ = write!(stderr, "{question}");
    let _ = stderr.flush();
    tcsetattr(stdin.as_fd(), OptionalActions::Flush, &silent).map_err(|error| broken(error.into()))?;
    let mut line = String::new();
    let read = stdin.lock().read_line(&mut line);
    let restored = tcsetattr(stdin.as_fd(), OptionalActions::Now, &before);
    let _ = writeln!(stderr);
    read.map_err(broken)?;
    restored.map_err(|error| broken(error.into()))?;
    Ok(Some(Passphrase(line.trim_end_matches(['\r', '\n']).to_owned())))
}
