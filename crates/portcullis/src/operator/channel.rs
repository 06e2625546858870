//! How a command reaches the control plane: over the socket of the running gateway, or in its own process.

use std::path::{Path, PathBuf};

use portcullis_core::ErrorCode;
use portcullis_core::digest::to_hex;
use portcullis_gateway::Gateway;
use portcullis_governance::operator::Method;
use rand::RngExt as _;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

use super::desk::{Desk, authorised};
use super::{Answer, Request};
use crate::failure::Failure;
use crate::home;
use crate::identity::{Challenge, Credential, Proof};

/// What goes over the socket: a request, as it was signed if it was, and who asks.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Letter {
    pub(super) credential: Option<Proof>,
    pub(super) request: Box<RawValue>,
}

/// What an operator whose agent signs asks for first.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WantsChallenge {
    pub(super) challenge_for: String,
}

/// The control plane: the running one, or our own.
pub(crate) enum Channel {
    Running(UnixStream, PathBuf),
    Own(Box<Gateway>, Desk),
}

impl Channel {
    /// Reaches the running gateway, or starts a control plane in this process.
    pub(crate) async fn open(options: portcullis_gateway::GatewayOptions) -> Result<Self, Failure> {
        let socket = home::operator_socket(&options.home);
        match UnixStream::connect(&socket).await {
            Ok(stream) => return Ok(Channel::Running(stream, socket)),
            // Not ours to take the place of: somebody else is the operator here.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                let message = "only the gateway's own user is its operator";
                return Err(Failure::new(ErrorCode::OperatorAuth, message));
            }
            Err(_) => {}
        }
        let gateway = Box::new(Gateway::start(options).await?);
        let desk = Desk::of(&gateway)?;
        Ok(Channel::Own(gateway, desk))
    }

    /// Asks for one thing of several.
    pub(crate) async fn ask_again(&self, request: &Request, credential: Option<Credential>) -> Answer {
        match self {
            Channel::Running(_, socket) => {
                let lost =
                    |error: std::io::Error| Failure::unavailable(format!("the gateway went away: {error}"));
                exchange(UnixStream::connect(socket).await.map_err(lost)?, request, credential).await
            }
            Channel::Own(_, desk) => ask_own(desk, request, credential).await,
        }
    }

    /// Done asking.
    pub(crate) async fn close(self) {
        if let Channel::Own(gateway, _) = self {
            gateway.finish().await;
        }
    }

    /// Asks for one thing.
    pub(crate) async fn ask(self, request: &Request, credential: Option<Credential>) -> Answer {
        match self {
            Channel::Running(stream, _) => exchange(stream, request, credential).await,
            Channel::Own(gateway, desk) => {
                let answer = ask_own(&desk, request, credential).await;
                gateway.finish().await;
                answer
            }
        }
    }
}

/// The running gateway's socket, if there is one that answers.
pub(crate) async fn running(home: &Path) -> Option<UnixStream> {
    UnixStream::connect(home::operator_socket(home)).await.ok()
}

async fn exchange(stream: UnixStream, request: &Request, credential: Option<Credential>) -> Answer {
    let lost = |error: std::io::Error| Failure::unavailable(format!("the gateway went away: {error}"));
    let silent = |_| Failure::unavailable("the gateway went away before it answered");
    let (read, mut write) = stream.into_split();
    let (mut read, mut reply) = (BufReader::new(read), String::new());
    let request = raw(request)?;
    let credential = match credential {
        Some(credential) => {
            let challenge = match credential.needs_challenge() {
                Some(name) => {
                    write
                        .write_all(&line_of(&WantsChallenge { challenge_for: name })?)
                        .await
                        .map_err(lost)?;
                    read.read_line(&mut reply).await.map_err(lost)?;
                    Some(serde_json::from_str(&reply).map_err(silent)?)
                }
                None => None,
            };
            credential.prove(challenge, request.get())?
        }
        None => None,
    };
    write.write_all(&line_of(&Letter { credential, request })?).await.map_err(lost)?;
    reply.clear();
    read.read_to_string(&mut reply).await.map_err(lost)?;
    serde_json::from_str(&reply).map_err(silent)?
}

/// The same without a socket, where the command is its own control plane.
async fn ask_own(desk: &Desk, request: &Request, credential: Option<Credential>) -> Answer {
    let raw = raw(request)?;
    let challenge =
        credential.as_ref().and_then(Credential::needs_challenge).map(|name| challenge(desk, &name));
    let random = challenge.as_ref().map(|challenge| challenge.random.clone());
    let proof = match credential {
        Some(credential) => credential.prove(challenge, raw.get())?,
        None => None,
    };
    authorised(desk, Method::Local, request, proof.map(|proof| proof.shown(random.as_deref(), raw.get())))
        .await
}

/// Something never asked before, for the agent of this operator to sign.
pub(super) fn challenge(desk: &Desk, operator: &str) -> Challenge {
    Challenge { random: to_hex(&rand::rng().random::<[u8; 32]>()), key: desk.control.ssh_key(operator) }
}

fn raw(request: &Request) -> Result<Box<RawValue>, Failure> {
    to_raw_value(request).map_err(|error| Failure::new(ErrorCode::Internal, error.to_string()))
}

pub(super) fn line_of(message: &impl Serialize) -> Result<Vec<u8>, Failure> {
    let mut line =
        serde_json::to_vec(message).map_err(|error| Failure::new(ErrorCode::Internal, error.to_string()))?;
    line.push(b'\n');
    Ok(line)
}
