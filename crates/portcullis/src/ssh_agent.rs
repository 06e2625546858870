//! The operator's ssh-agent, which signs what the operator asks for: the two messages of its protocol that takes.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;

use portcullis_core::Sha256Digest;
use portcullis_governance::operator::ssh::{PublicKey, signed};

const REQUEST_IDENTITIES: u8 = 11;
const IDENTITIES: u8 = 12;
const SIGN_REQUEST: u8 = 13;
const SIGNATURE: u8 = 14;
/// No answer of an agent's is longer.
const MAX_ANSWER: u32 = 256 * 1024;

/// Whether there is an agent to ask.
pub(crate) fn is_there() -> bool {
    std::env::var_os("SSH_AUTH_SOCK").is_some_and(|path| !path.is_empty())
}

/// The agent's signature of a request; `None` if it does not have the key, or its user said no.
pub(crate) fn sign(key: &PublicKey, digest: &Sha256Digest) -> io::Result<Option<Vec<u8>>> {
    let path = std::env::var_os("SSH_AUTH_SOCK").unwrap_or_default();
    let mut agent = UnixStream::connect(path)?;
    let blob = key.blob();
    if !keys(&ask(&mut agent, &[REQUEST_IDENTITIES])?)?.contains(&blob) {
        return Ok(None);
    }
    let mut request = vec![SIGN_REQUEST];
    for part in [&blob, &signed(digest)] {
        let length = u32::try_from(part.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        request.extend(length.to_be_bytes());
        request.extend(part);
    }
    request.extend(0u32.to_be_bytes());
    let answer = ask(&mut agent, &request)?;
    match answer.split_first() {
        Some((&SIGNATURE, mut rest)) => Ok(Some(string(&mut rest)?)),
        _ => Ok(None),
    }
}

fn ask(agent: &mut UnixStream, message: &[u8]) -> io::Result<Vec<u8>> {
    let length = u32::try_from(message.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    agent.write_all(&[&length.to_be_bytes(), message].concat())?;
    let mut head = [0; 4];
    agent.read_exact(&mut head)?;
    let length = u32::from_be_bytes(head);
    if length > MAX_ANSWER {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut answer = vec![0; length as usize];
    agent.read_exact(&mut answer)?;
    Ok(answer)
}

/// The keys an agent has.
fn keys(answer: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    let Some((&IDENTITIES, mut rest)) = answer.split_first() else { return Ok(Vec::new()) };
    let count = number(&mut rest)?;
    let mut keys = Vec::new();
    for _ in 0..count {
        keys.push(string(&mut rest)?);
        let _comment = string(&mut rest)?;
    }
    Ok(keys)
}

fn number(rest: &mut &[u8]) -> io::Result<u32> {
    let (head, tail) = rest.split_first_chunk::<4>().ok_or(io::ErrorKind::UnexpectedEof)?;
    *rest = tail;
    Ok(u32::from_be_bytes(*head))
}

fn string(rest: &mut &[u8]) -> io::Result<Vec<u8>> {
    let length = number(rest)? as usize;
    let (head, tail) = rest.split_at_checked(length).ok_or(io::ErrorKind::UnexpectedEof)?;
    *rest = tail;
    Ok(head.to_vec())
}
