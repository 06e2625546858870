//! The ways out of the namespace (SBX-45).
//!
//! The namespace has a loopback and nothing else. Listeners are opened inside it, before the program starts, and handed
//! to the gateway, which accepts on them from outside: no device, no address translation, no rights needed. Each
//! declared host has an address of its own in 127.77.0.0/24, and `/etc/hosts` says so.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

use crate::profile::Profile;
use crate::stage::{Failure, Within as _};

/// Where programs that know proxies find one.
pub(crate) const PROXY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 3128);
/// Where names are resolved.
pub(crate) const RESOLVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 53);
/// So many descriptors go into one message at most.
const MOST: usize = 250;

/// A listener, and what is behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    /// A declared host and port: an index into the profile's scopes.
    Host(usize),
    /// The proxy.
    Proxy,
    /// The resolver, over UDP.
    Names,
    /// The resolver, over TCP.
    NamesOverTcp,
}

/// Which doors a profile has, in a fixed order. If nothing may go out there is at most one for names, none of which it has.
pub(crate) fn plan(profile: &Profile) -> Vec<(Door, SocketAddrV4)> {
    let names = [(Door::Names, RESOLVER), (Door::NamesOverTcp, RESOLVER)];
    if profile.egress.is_empty() {
        return if profile.tells_names { names.to_vec() } else { Vec::new() };
    }
    let mut doors = vec![(Door::Proxy, PROXY)];
    doors.extend(names);
    for (index, scope) in profile.egress.iter().enumerate() {
        let Some(address) = address_of(profile, &scope.host) else { continue };
        let at = SocketAddrV4::new(address, scope.port);
        // Two scopes may name one place.
        if doors.iter().all(|(_, known)| *known != at) {
            doors.push((Door::Host(index), at));
        }
    }
    doors
}

/// The address that stands for a declared host inside.
pub(crate) fn address_of(profile: &Profile, host: &str) -> Option<Ipv4Addr> {
    let mut hosts: Vec<&str> = Vec::new();
    for scope in &profile.egress {
        if !hosts.contains(&scope.host.as_str()) {
            hosts.push(&scope.host);
        }
    }
    let position = hosts.iter().position(|known| *known == host)?;
    Some(Ipv4Addr::new(127, 77, 0, u8::try_from(position + 1).ok()?))
}

/// Opens the doors, inside, and hands them out.
pub(crate) fn open(profile: &Profile, control: &UnixStream) -> Result<(), Failure> {
    let plan = plan(profile);
    if plan.is_empty() {
        return Ok(());
    }
    if plan.len() > MOST {
        return Err(Failure::new("egress", format!("{} destinations are too many", plan.len())));
    }
    let mut opened: Vec<OwnedFd> = Vec::with_capacity(plan.len());
    for (door, at) in plan {
        let listener = match door {
            Door::Names => UdpSocket::bind(at).map(OwnedFd::from),
            _ => TcpListener::bind(at).map(OwnedFd::from),
        };
        opened.push(listener.within("egress", format_args!("a listener at {at}"))?);
    }
    hand_over(control, DOORS, &opened).within("egress", "handing listeners over")
}

/// What a message with descriptors begins with: doors, files for credentials, watches on baits, where the kernel asks.
pub(crate) const DOORS: u8 = b'd';
pub(crate) const FILES: u8 = b'f';
pub(crate) const BAITS: u8 = b'b';
pub(crate) const QUESTIONS: u8 = b'n';

/// Hands descriptors out.
pub(crate) fn hand_over(control: &UnixStream, tag: u8, opened: &[OwnedFd]) -> io::Result<()> {
    let descriptors: Vec<BorrowedFd<'_>> = opened.iter().map(OwnedFd::as_fd).collect();
    let mut space =
        vec![std::mem::MaybeUninit::uninit(); SendAncillaryMessage::ScmRights(&descriptors).size()];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    rustix::net::sendmsg(control, &[IoSlice::new(&[tag])], &mut ancillary, SendFlags::empty())?;
    Ok(())
}

/// Takes descriptors that are handed out; none if something else comes first, which says what went wrong.
pub(crate) fn take(control: &UnixStream, tag: u8) -> io::Result<Option<Vec<OwnedFd>>> {
    let mut byte = [0];
    let peeked = rustix::net::recv(control, &mut byte, RecvFlags::PEEK)?;
    if peeked.0 == 0 || byte != [tag] {
        return Ok(None);
    }
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    rustix::net::recvmsg(control, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, flags)?;
    let mut received = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            received.extend(descriptors);
        }
    }
    Ok(Some(received))
}

/// Takes the doors that the launcher hands out; the first thing it sends, if there are any.
pub(crate) fn receive(profile: &Profile, control: &UnixStream) -> io::Result<Vec<(Door, OwnedFd)>> {
    let plan = plan(profile);
    if plan.is_empty() {
        return Ok(Vec::new());
    }
    let Some(received) = take(control, DOORS)? else { return Ok(Vec::new()) };
    if received.len() != plan.len() {
        return Err(io::Error::other("the launcher did not hand over its listeners"));
    }
    Ok(plan.into_iter().map(|(door, _)| door).zip(received).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{EgressScope, Tls};

    fn scope(host: &str, port: u16) -> EgressScope {
        EgressScope { scope: "api".into(), host: host.into(), port, tls: Tls::Required, addrs: Vec::new() }
    }

    #[test]
    fn every_host_has_an_address_and_every_place_one_door() {
        // SBX-45
        let mut profile = Profile::bare("/bin/true", Vec::new());
        assert!(plan(&profile).is_empty());
        profile.tells_names = true;
        let doors: Vec<_> = plan(&profile).into_iter().map(|(door, _)| door).collect();
        assert_eq!(doors, [Door::Names, Door::NamesOverTcp], "nothing leads out");
        profile.egress = vec![
            scope("a.example", 443),
            scope("b.example", 443),
            scope("a.example", 80),
            scope("a.example", 443),
        ];
        let hosts: Vec<_> =
            plan(&profile).into_iter().filter(|(door, _)| matches!(door, Door::Host(_))).collect();
        let at = |last, port| SocketAddrV4::new(Ipv4Addr::new(127, 77, 0, last), port);
        assert_eq!(
            hosts,
            [(Door::Host(0), at(1, 443)), (Door::Host(1), at(2, 443)), (Door::Host(2), at(1, 80))]
        );
        assert_eq!(address_of(&profile, "c.example"), None);
    }

    #[test]
    fn doors_pass_through_the_control_socket_and_carry_connections() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut profile = Profile::bare("/bin/true", Vec::new());
        profile.egress = vec![scope("a.example", 50_443)];
        // Ports below 1024 need the namespace's rights; what is tested here is the passing.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let descriptors = [listener.as_fd(); 4];
        let mut space =
            vec![std::mem::MaybeUninit::uninit(); SendAncillaryMessage::ScmRights(&descriptors).size()];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        rustix::net::sendmsg(&theirs, &[IoSlice::new(b"d")], &mut ancillary, SendFlags::empty()).unwrap();
        let doors = receive(&profile, &ours).unwrap();
        assert_eq!(doors.len(), 4);
        let passed = TcpListener::from(doors.into_iter().next().unwrap().1);
        std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        passed.accept().unwrap();
    }
}
