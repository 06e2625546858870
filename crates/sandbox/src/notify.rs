//! Attempts that the kernel refuses and tells us about: a filter that asks before it answers (SBX-34, SBX-60).
//!
//! What is asked about is never allowed here, but for connections to the process's own loopback and to sockets of files,
//! which other layers bound. If nobody answers any more the kernel says that there is no such call: confinement does not
//! rest on this, observation does.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use libc::c_long;

use crate::launch::Detect;
use crate::looking::{self, Roots};
use crate::sentry::Sentry;
use crate::stage::Failure;

/// Calls about which we are asked, whatever their arguments.
pub(crate) const ASKED: [c_long; 8] = [
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_mount,
    libc::SYS_bpf,
    libc::SYS_open_by_handle_at,
    libc::SYS_unshare,
    libc::SYS_setns,
];

/// Calls that open files by their names.
#[cfg(target_arch = "x86_64")]
const OPENING: [c_long; 3] = [libc::SYS_open, libc::SYS_openat, libc::SYS_creat];
#[cfg(not(target_arch = "x86_64"))]
const OPENING: [c_long; 1] = [libc::SYS_openat];

/// Families of sockets about which we are asked.
pub(crate) const FAMILIES: [i32; 2] = [libc::AF_PACKET, libc::AF_VSOCK];

/// Something that the process tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// To reach an address beyond its loopback.
    Address(Ipv4Addr, u16),
    /// A call that no honest program makes in here.
    Call(&'static str),
    /// A call that browsers and runtimes make innocently.
    Probe(&'static str),
    /// It opened a file that is there to be opened by nobody (SBX-61).
    Bait(String),
    /// A file of the program itself was changed while it runs.
    Artifact(String),
    /// It asked for a file that is none of its business (SBX-62).
    File(String),
}

/// Puts the filter in force on this process; gives the descriptor at which the kernel asks.
#[allow(unsafe_code)]
pub(crate) fn install(detect: Detect) -> Result<OwnedFd, Failure> {
    const SET_MODE_FILTER: libc::c_uint = 1;
    const NEW_LISTENER: libc::c_ulong = 8;
    let program = program(detect);
    let filter = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(|error| Failure::new("seccomp_notify", error))?,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the kernel copies the program before it returns; it gives a new descriptor or an error.
    let listener =
        unsafe { libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, NEW_LISTENER, &raw const filter) };
    let listener = i32::try_from(listener).unwrap_or(-1);
    if listener < 0 {
        return Err(Failure::new("seccomp_notify", format!("listener: {}", io::Error::last_os_error())));
    }
    // SAFETY: the descriptor was just made for us.
    Ok(unsafe { OwnedFd::from_raw_fd(listener) })
}

/// The filter: who is asked about is in `ASKED`, a connection or datagram with an address, a socket of an odd kind.
fn program(detect: Detect) -> Vec<libc::sock_filter> {
    const ASK: u32 = 0x7fc0_0000;
    const ALLOW: u32 = 0x7fff_0000;
    let load = |offset: u32| stmt(0x20, offset);
    let argument = |index: u32| 16 + 8 * index;
    let number = |call: c_long| u32::try_from(call).unwrap_or(u32::MAX);
    // Each test jumps over the one answer that follows it.
    let ask_if = |value: u32| [jump(0x15, value, 0, 1), stmt(0x06, ASK)];
    // Another architecture is killed by the filters beside this one.
    let mut filter = vec![load(4), jump(0x15, ARCHITECTURE, 1, 0), stmt(0x06, ALLOW), load(0)];
    for call in ASKED {
        filter.extend(ask_if(number(call)));
    }
    if detect == Detect::Full {
        for call in OPENING {
            filter.extend(ask_if(number(call)));
        }
    }
    filter.extend(ask_if(number(libc::SYS_connect)));
    // sendto: only with an address.
    filter.extend([
        jump(0x15, number(libc::SYS_sendto), 0, 6),
        load(argument(4)),
        jump(0x15, 0, 0, 2),
        load(argument(4) + 4),
        jump(0x15, 0, 1, 0),
        stmt(0x06, ASK),
        stmt(0x06, ALLOW),
    ]);
    filter.extend([jump(0x15, number(libc::SYS_socket), 1, 0), stmt(0x06, ALLOW), load(argument(0))]);
    for family in FAMILIES {
        filter.extend(ask_if(u32::try_from(family).unwrap_or_default()));
    }
    filter.extend([
        // Raw sockets of the one family that is there.
        jump(0x15, u32::try_from(libc::AF_INET).unwrap_or_default(), 1, 0),
        stmt(0x06, ALLOW),
        load(argument(1)),
        stmt(0x54, 0xf),
    ]);
    filter.extend(ask_if(u32::try_from(libc::SOCK_RAW).unwrap_or_default()));
    filter.push(stmt(0x06, ALLOW));
    filter
}

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

fn stmt(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: 0, jf: 0, k }
}

fn jump(code: u16, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

/// Answers the kernel until the last process behind the filter is gone, on a thread of its own.
/// With `roots`, every file that is asked for is held against them.
pub(crate) fn answer(listener: OwnedFd, sentry: Arc<Sentry>, roots: Option<Roots>) -> io::Result<()> {
    let work = move || {
        while let Some(asked) = next(&listener) {
            let (attempt, answer) = match roots.as_ref().and_then(|roots| opened(roots, &asked)) {
                Some(attempt) => (attempt, Answer::Go),
                None => judge(&asked),
            };
            if let Some(attempt) = attempt {
                // Before the process goes on: what it says next is not believed any more.
                sentry.saw(attempt);
            }
            reply(&listener, asked.id, answer);
        }
    };
    std::thread::Builder::new().name("notify".into()).spawn(work).map(drop)
}

/// What the kernel is told.
enum Answer {
    Go,
    Refuse(i32),
}

/// What opening a file comes to, if that is what is asked about. The kernel goes on as if nobody had looked.
fn opened(roots: &Roots, asked: &libc::seccomp_notif) -> Option<Option<Attempt>> {
    let (call, arguments) = (c_long::from(asked.data.nr), asked.data.args);
    if !OPENING.contains(&call) {
        return None;
    }
    let here = u64::from(libc::AT_FDCWD as u32);
    let (folder, at) =
        if call == libc::SYS_openat { (arguments[0], arguments[1]) } else { (here, arguments[0]) };
    Some(looking::beyond(roots, asked.pid, folder, at).map(Attempt::File))
}

fn judge(asked: &libc::seccomp_notif) -> (Option<Attempt>, Answer) {
    let (call, arguments) = (c_long::from(asked.data.nr), asked.data.args);
    let refuse = |attempt| (Some(attempt), Answer::Refuse(libc::EPERM));
    match call {
        libc::SYS_connect => match address(asked.pid, arguments[1], arguments[2]) {
            Some((to, port)) => (Some(Attempt::Address(to, port)), Answer::Refuse(libc::ENETUNREACH)),
            None => (None, Answer::Go),
        },
        libc::SYS_sendto => match address(asked.pid, arguments[4], arguments[5]) {
            Some((to, port)) => (Some(Attempt::Address(to, port)), Answer::Refuse(libc::ENETUNREACH)),
            None => (None, Answer::Go),
        },
        libc::SYS_socket => refuse(Attempt::Call("socket")),
        // Attaching is an attack; being traced is what debuggers of oneself ask for.
        libc::SYS_ptrace if matches!(arguments[0], 16 | 0x4206) => refuse(Attempt::Call("ptrace")),
        libc::SYS_ptrace => refuse(Attempt::Probe("ptrace")),
        libc::SYS_process_vm_readv => refuse(Attempt::Call("process_vm_readv")),
        libc::SYS_process_vm_writev => refuse(Attempt::Call("process_vm_writev")),
        libc::SYS_mount => refuse(Attempt::Call("mount")),
        libc::SYS_bpf => refuse(Attempt::Call("bpf")),
        libc::SYS_open_by_handle_at => refuse(Attempt::Call("open_by_handle_at")),
        libc::SYS_unshare => refuse(Attempt::Probe("unshare")),
        libc::SYS_setns => refuse(Attempt::Probe("setns")),
        _ => (None, Answer::Refuse(libc::EPERM)),
    }
}

/// The address of a call, if it is one beyond the process's own loopback. It may change after we looked; then it leads
/// nowhere all the same.
fn address(pid: u32, at: u64, length: u64) -> Option<(Ipv4Addr, u16)> {
    let mut bytes = [0; 8];
    if length < 8 {
        return None;
    }
    File::open(format!("/proc/{pid}/mem")).ok()?.read_exact_at(&mut bytes, at).ok()?;
    let family = u16::from_ne_bytes([bytes[0], bytes[1]]);
    let to = Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]);
    let beyond = i32::from(family) == libc::AF_INET && !to.is_loopback() && !to.is_unspecified();
    beyond.then(|| (to, u16::from_be_bytes([bytes[2], bytes[3]])))
}

/// The next question; none when nobody is left to ask.
#[allow(unsafe_code)]
fn next(listener: &OwnedFd) -> Option<libc::seccomp_notif> {
    loop {
        let mut ready = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor that is open, and a place for what is said of it.
        let count = unsafe { libc::poll(&raw mut ready, 1, -1) };
        if count < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
            continue;
        }
        if count <= 0 || ready.revents & libc::POLLIN == 0 {
            return None;
        }
        // SAFETY: plain data, for which all zeros are valid, and which the kernel wants zeroed.
        let mut asked: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes one question there.
        let got =
            unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut asked) };
        if got == 0 {
            return Some(asked);
        }
        // Who asked is gone already.
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::ENOENT | libc::EINTR) => {}
            _ => return None,
        }
    }
}

#[allow(unsafe_code)]
fn reply(listener: &OwnedFd, id: u64, answer: Answer) {
    let (error, flags) = match answer {
        Answer::Go => (0, u32::try_from(libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE).unwrap_or(1)),
        Answer::Refuse(error) => (-error, 0),
    };
    let mut response = libc::seccomp_notif_resp { id, val: 0, error, flags };
    // SAFETY: the kernel reads one answer; an id that is gone is an error that does not matter.
    unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut response) };
}
