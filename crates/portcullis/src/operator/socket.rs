//! The gateway's end of the operator socket. Only its own user can open it; the peer's uid is checked besides.

use std::sync::Arc;

use portcullis_core::ErrorCode;
use portcullis_gateway::control::told_to_stop;
use portcullis_governance::operator::Method;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::sync::watch;

use super::channel::{Letter, WantsChallenge, challenge, line_of};
use super::desk::{Desk, authorised};
use super::{Answer, Request};
use crate::failure::Failure;
use crate::home;

/// Longest request: a declaration may be 16 MiB.
const MAX_REQUEST: u64 = 20 << 20;

/// Serves the operator socket until told to stop.
pub(crate) async fn serve(desk: Arc<Desk>, mut stop: watch::Receiver<bool>) -> std::io::Result<()> {
    let path = home::operator_socket(desk.control.home());
    let listener = home::listen(&path)?;
    tokio::spawn(async move {
        loop {
            tokio::select! {
                accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                    tokio::spawn(serve_one(desk.clone(), stream));
                },
                () = told_to_stop(&mut stop) => break,
            }
        }
        let _ = std::fs::remove_file(&path);
    });
    Ok(())
}

async fn serve_one(desk: Arc<Desk>, stream: UnixStream) -> Option<()> {
    let peer = stream.peer_cred().ok()?;
    let (read, mut write) = stream.into_split();
    let answer: Answer = if peer.uid() == rustix::process::geteuid().as_raw() {
        let mut line = String::new();
        let mut read = BufReader::new(read.take(MAX_REQUEST));
        read.read_line(&mut line).await.ok()?;
        let mut asked = None;
        if let Ok(wanted) = serde_json::from_str::<WantsChallenge>(&line) {
            let challenge = challenge(&desk, &wanted.challenge_for);
            write.write_all(&line_of(&challenge).ok()?).await.ok()?;
            asked = Some(challenge.random);
            line.clear();
            read.read_line(&mut line).await.ok()?;
        }
        let letter = serde_json::from_str::<Letter>(&line);
        let letter = letter.and_then(|letter| {
            let request: Request = serde_json::from_str(letter.request.get())?;
            // A challenge is for one request; there is no second on this connection.
            let shown = letter.credential.map(|proof| proof.shown(asked.as_deref(), letter.request.get()));
            Ok((request, shown))
        });
        match letter {
            Ok((request, shown)) => authorised(&desk, Method::Uid, &request, shown).await,
            Err(error) => {
                Err(Failure::new(ErrorCode::Validation, format!("not an operator request: {error}")))
            }
        }
    } else {
        let event = portcullis_audit::Event::new(
            portcullis_audit::EventName::OperatorAuthFailed,
            &portcullis_core::Actor::operator(format!("uid-{}", peer.uid())),
        );
        let _ = desk.control.log().append(vec![event.data(json!({"method": "uid"}))]);
        Err(Failure::new(ErrorCode::OperatorAuth, "only the gateway's own user is its operator"))
    };
    let reply = serde_json::to_vec(&answer).ok()?;
    write.write_all(&reply).await.ok()
}
