//! A resolver that knows the declared hosts and nobody else (SBX-45). It never asks anybody, so no name carries
//! anything out.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::Watch;
use crate::doors;

/// The longest question: a header and one name.
const LONGEST: usize = 512;
const PATIENCE: Duration = Duration::from_secs(5);

const TYPE_A: u16 = 1;
const CLASS_IN: u16 = 1;

pub(super) async fn over_udp(watch: Arc<Watch>, socket: UdpSocket) {
    let mut buffer = [0; LONGEST];
    loop {
        match socket.recv_from(&mut buffer).await {
            Ok((length, asker)) => {
                if let Some(answer) = answer(&watch, &buffer[..length]) {
                    let _ = socket.send_to(&answer, asker).await;
                }
            }
            // An asker that is gone; or no socket any more, and then there is no hurry.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// One question after the other, each behind its length.
pub(super) async fn over_tcp(watch: Arc<Watch>, mut stream: TcpStream) {
    let mut buffer = [0; LONGEST];
    while let Ok(Ok(length)) = timeout(PATIENCE, stream.read_u16()).await {
        let Some(question) = buffer.get_mut(..usize::from(length)) else { return };
        if !matches!(timeout(PATIENCE, stream.read_exact(question)).await, Ok(Ok(_))) {
            return;
        }
        let Some(answer) = answer(&watch, question) else { return };
        let Ok(length) = u16::try_from(answer.len()) else { return };
        if stream.write_u16(length).await.is_err() || stream.write_all(&answer).await.is_err() {
            return;
        }
    }
}

fn answer(watch: &Watch, message: &[u8]) -> Option<Vec<u8>> {
    let question = Question::read(message)?;
    let address = doors::address_of(&watch.profile, &question.name);
    if address.is_none() {
        watch.name_denied(&question.name);
    }
    Some(question.answer(address))
}

/// The one question of a message.
#[derive(Debug)]
struct Question<'a> {
    id: [u8; 2],
    /// Whether the asker wants recursion, which is answered as asked.
    wants_recursion: bool,
    name: String,
    kind: u16,
    class: u16,
    /// As it was asked.
    bytes: &'a [u8],
}

impl<'a> Question<'a> {
    /// None if the message is no question, or more than one.
    fn read(message: &'a [u8]) -> Option<Self> {
        let header = message.get(..12)?;
        let (is_answer, opcode) = (header[2] & 0x80 != 0, header[2] >> 3 & 0x0f);
        if is_answer || opcode != 0 || header[4..6] != [0, 1] {
            return None;
        }
        let mut name = String::new();
        let mut at = 12;
        loop {
            let length = usize::from(*message.get(at)?);
            at += 1;
            match length {
                0 => break,
                1..=63 => {
                    let label = message.get(at..at + length)?;
                    if !name.is_empty() {
                        name.push('.');
                    }
                    name.extend(label.iter().map(|byte| char::from(byte.to_ascii_lowercase())));
                    at += length;
                }
                // A pointer: to what, in a question?
                _ => return None,
            }
        }
        let tail = message.get(at..at + 4)?;
        Some(Self {
            id: [header[0], header[1]],
            wants_recursion: header[2] & 1 != 0,
            name,
            kind: u16::from_be_bytes([tail[0], tail[1]]),
            class: u16::from_be_bytes([tail[2], tail[3]]),
            bytes: &message[12..at + 4],
        })
    }

    /// The address if there is one and it is asked for; no such name if there is none.
    fn answer(&self, address: Option<Ipv4Addr>) -> Vec<u8> {
        const NO_SUCH_NAME: u8 = 3;
        let record = address.filter(|_| self.kind == TYPE_A && self.class == CLASS_IN);
        let code = if address.is_none() { NO_SUCH_NAME } else { 0 };
        let mut answer = self.id.to_vec();
        // An authoritative answer; recursion is available, as far as it goes.
        answer.extend([
            0x84 | u8::from(self.wants_recursion),
            0x80 | code,
            0,
            1,
            0,
            u8::from(record.is_some()),
        ]);
        answer.extend([0, 0, 0, 0]);
        answer.extend_from_slice(self.bytes);
        if let Some(address) = record {
            // The name of the question, type A, class IN, one minute, four bytes.
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
            answer.extend(address.octets());
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(name: &str, kind: u16) -> Vec<u8> {
        let mut message = vec![7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            message.push(label.len() as u8);
            message.extend(label.bytes());
        }
        message.push(0);
        message.extend(kind.to_be_bytes());
        message.extend([0, 1]);
        message
    }

    #[test]
    fn declared_names_have_an_address_and_others_do_not_exist() {
        let message = ask("API.example", TYPE_A);
        let question = Question::read(&message).unwrap();
        assert_eq!(question.name, "api.example");
        let known = question.answer(Some(Ipv4Addr::new(127, 77, 0, 1)));
        assert_eq!(&known[..8], [7, 9, 0x85, 0x80, 0, 1, 0, 1]);
        assert_eq!(&known[known.len() - 4..], [127, 77, 0, 1]);
        let unknown = question.answer(None);
        assert_eq!(&unknown[..8], [7, 9, 0x85, 0x83, 0, 1, 0, 0]);
        // AAAA of a declared name: it exists, and has none.
        let message = ask("api.example", 28);
        let six = Question::read(&message).unwrap().answer(Some(Ipv4Addr::new(127, 77, 0, 1)));
        assert_eq!(&six[..8], [7, 9, 0x85, 0x80, 0, 1, 0, 0]);
    }

    #[test]
    fn no_message_panics_the_reader() {
        let whole = ask(&"x".repeat(63), TYPE_A);
        for cut in 0..whole.len() {
            assert!(Question::read(&whole[..cut]).is_none(), "{cut}");
        }
        for byte in 0..whole.len() {
            for value in [0, 1, 63, 64, 0xc0, 0xff] {
                let mut message = whole.clone();
                message[byte] = value;
                if let Some(question) = Question::read(&message) {
                    question.answer(None);
                }
            }
        }
    }
}
