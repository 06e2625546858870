//! One connection, from its first words to its end.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

use super::Watch;
use super::address::{NoAddress, resolve};
use super::first_words::{Head, Said, authority, head, hello};
use super::substitution;
use crate::profile::{EgressScope, Tls};

/// So many connections of one door at once.
const AT_ONCE: usize = 256;
pub(super) const CONNECT: Duration = Duration::from_secs(10);
/// How often a connection is asked whether it may still go on.
pub(super) const TICK: Duration = Duration::from_secs(1);
const BUFFER: usize = 32 << 10;
pub(super) const TOO_MUCH: &str = "more bytes than the call may send";

/// Serves whoever comes to a door.
pub(super) async fn accept<F>(listener: TcpListener, serve: impl Fn(TcpStream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if connections.len() < AT_ONCE => {
                    connections.spawn(serve(stream));
                }
                // Refused by being closed.
                Ok(_) => {}
                // The namespace is gone, or we are out of descriptors.
                Err(_) => tokio::time::sleep(TICK).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// A connection to an address that stands for a declared host.
pub(super) async fn direct(watch: Arc<Watch>, index: usize, mut inside: TcpStream) {
    let scope = watch.profile.egress[index].clone();
    if watch.stand_ins.toward(&scope).next().is_some() {
        return substitution::serve(watch, scope, inside).await;
    }
    if let Some(first) = introduce(&watch, &scope, &mut inside).await {
        carry(&watch, &scope, inside, first).await;
    }
}

/// A connection to the proxy.
pub(super) async fn proxied(watch: Arc<Watch>, mut inside: TcpStream) {
    match head(&mut inside).await {
        Said::Nothing => {}
        Said::Otherwise => refuse(&mut inside, "400 Bad Request").await,
        Said::Understood(head, read) if head.method == "CONNECT" => {
            let Some(scope) = destination(&watch, &head.target, 443, None) else {
                return refuse(&mut inside, "403 Forbidden").await;
            };
            // Whatever was sent along was sent before it was allowed.
            if !head.is_all_of(&read)
                || inside.write_all(b"HTTP/1.1 200 Connection Established\r\n\r\n").await.is_err()
            {
                return;
            }
            if watch.stand_ins.toward(&scope).next().is_some() {
                return substitution::serve(watch, scope, inside).await;
            }
            if let Some(first) = introduce(&watch, &scope, &mut inside).await {
                carry(&watch, &scope, inside, first).await;
            }
        }
        Said::Understood(head, read) => match absolute(&watch, &head) {
            Some((scope, path)) => carry(&watch, &scope, inside, head.alone(&path, &read)).await,
            None => refuse(&mut inside, "403 Forbidden").await,
        },
    }
}

/// Hears what is said first, and whether it is what was declared for this host; gives what is to be sent on.
async fn introduce(watch: &Watch, scope: &EgressScope, inside: &mut TcpStream) -> Option<Vec<u8>> {
    match scope.tls {
        Tls::Required => match hello(inside).await {
            Said::Understood(Some(name), read) if name == scope.host => Some(read),
            Said::Understood(..) => accuse(watch, scope, "another name in TLS than the declared one"),
            Said::Otherwise => accuse(watch, scope, "no TLS where TLS is required"),
            Said::Nothing => None,
        },
        Tls::None => match head(inside).await {
            Said::Understood(head, read) if names(&head, scope) && head.target.starts_with('/') => {
                Some(head.alone(&head.target, &read))
            }
            Said::Understood(..) => accuse(watch, scope, "another host in the request than the declared one"),
            Said::Otherwise => accuse(watch, scope, "no HTTP/1.1 where it is declared"),
            Said::Nothing => None,
        },
    }
}

fn accuse<T>(watch: &Watch, scope: &EgressScope, reason: &'static str) -> Option<T> {
    watch.accuse(&scope.host, scope.port, reason);
    None
}

fn names(head: &Head, scope: &EgressScope) -> bool {
    let said = head.host.as_deref().and_then(|host| authority(host, 80));
    said.is_some_and(|(host, port)| host == scope.host && port == scope.port)
}

/// The declared host that an authority names.
fn destination(watch: &Watch, said: &str, otherwise: u16, tls: Option<Tls>) -> Option<EgressScope> {
    let Some((host, port)) = authority(said, otherwise) else {
        watch.accuse(said, 0, "not a host and port");
        return None;
    };
    let place = |scope: &&EgressScope| scope.host == host && scope.port == port;
    match watch.profile.egress.iter().find(place) {
        Some(scope) if tls.is_none_or(|tls| scope.tls == tls) => Some(scope.clone()),
        Some(scope) => accuse(watch, scope, "no TLS where TLS is required"),
        None => {
            watch.accuse(&host, port, "not declared");
            None
        }
    }
}

/// The declared host and the path of a request in absolute form.
fn absolute(watch: &Watch, head: &Head) -> Option<(EgressScope, String)> {
    let Some(rest) = head.target.strip_prefix("http://") else {
        watch.accuse(&head.target, 0, "not an address of HTTP");
        return None;
    };
    let (said, path) = match rest.find(['/', '?']) {
        Some(at) => rest.split_at(at),
        None => (rest, "/"),
    };
    let scope = destination(watch, said, 80, Some(Tls::None))?;
    if !names(head, &scope) {
        return accuse(watch, &scope, "another host in the request than the declared one");
    }
    let path = if path.starts_with('?') { format!("/{path}") } else { path.to_owned() };
    Some((scope, path))
}

/// Takes the first words and all that follows to the host, and back, for as long as a call may.
async fn carry(watch: &Watch, scope: &EgressScope, mut inside: TcpStream, first: Vec<u8>) {
    let Some(leave) = watch.leave(scope, true) else {
        watch.refuse(&scope.host, scope.port, watch.why_not());
        return close(scope, &mut inside, "403 Forbidden").await;
    };
    let addresses = match resolve(watch, scope).await {
        Ok(addresses) => addresses,
        Err(NoAddress::Unknown) => {
            watch.refuse(&scope.host, scope.port, "its name cannot be resolved");
            return close(scope, &mut inside, "502 Bad Gateway").await;
        }
        Err(NoAddress::Private) => {
            watch.accuse(&scope.host, scope.port, "its name leads to an address that is not declared");
            return close(scope, &mut inside, "403 Forbidden").await;
        }
    };
    let Ok(Ok(mut outside)) = timeout(CONNECT, TcpStream::connect(addresses.as_slice())).await else {
        watch.refuse(&scope.host, scope.port, "it does not answer");
        return close(scope, &mut inside, "502 Bad Gateway").await;
    };
    let (sent, received) = (AtomicU64::new(0), AtomicU64::new(0));
    let within = |count: u64| watch.spend(scope, count);
    let length = first.len() as u64;
    if !within(length) {
        watch.refuse(&scope.host, scope.port, TOO_MUCH);
    } else if outside.write_all(&first).await.is_ok() {
        sent.fetch_add(length, Ordering::Relaxed);
        let (inward, outward) = (inside.split(), outside.split());
        let mut tick = interval(TICK);
        let both = async {
            tokio::try_join!(
                pump(inward.0, outward.1, &sent, within),
                pump(outward.0, inward.1, &received, |_| true)
            )
        };
        tokio::pin!(both);
        loop {
            tokio::select! {
                carried = &mut both => {
                    if let Err(TooMuch) = carried {
                        watch.refuse(&scope.host, scope.port, TOO_MUCH);
                    }
                    break;
                }
                _ = tick.tick() => if watch.leave(scope, false).is_none() {
                    watch.refuse(&scope.host, scope.port, "the call is over");
                    break;
                },
            }
        }
    }
    watch.carried(scope, sent.into_inner(), received.into_inner(), leave.permit());
}

/// More than may pass.
struct TooMuch;

/// Copies until the end.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    count: &AtomicU64,
    within: impl Fn(u64) -> bool,
) -> Result<(), TooMuch> {
    let mut buffer = vec![0; BUFFER];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if !within(length as u64) {
            return Err(TooMuch);
        }
        if to.write_all(&buffer[..length]).await.is_err() {
            break;
        }
        count.fetch_add(length as u64, Ordering::Relaxed);
    }
    let _ = to.shutdown().await;
    Ok(())
}

/// Says no in a way that the client understands, where there is one.
async fn close(scope: &EgressScope, inside: &mut TcpStream, status: &str) {
    if scope.tls == Tls::None {
        refuse(inside, status).await;
    }
}

async fn refuse(inside: &mut TcpStream, status: &str) {
    let answer = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    let _ = inside.write_all(answer.as_bytes()).await;
    let _ = inside.shutdown().await;
}
