//! Capabilities, limits and signals: what a process gives up on its way.

use std::io;
use std::os::fd::AsRawFd;

use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets};

use crate::profile::Limits;

/// Asks the kernel to kill us when our parent goes, and makes sure that it has not gone already.
pub(crate) fn die_with_parent() -> io::Result<()> {
    let before = rustix::process::getppid();
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    if rustix::process::getppid() != before {
        return Err(io::Error::other("the parent has gone"));
    }
    Ok(())
}

/// The stages before the program leave a polite request to the program.
#[allow(unsafe_code)]
pub(crate) fn ignore_requests_to_end() {
    for ignored in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        // SAFETY: ignoring a signal runs no code of ours.
        let _ = unsafe { signal(ignored, SigHandler::SigIgn) };
    }
}

/// The program gets signals as any program does.
#[allow(unsafe_code)]
pub(crate) fn forget_signals() {
    for ignored in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGPIPE] {
        // SAFETY: the default action runs no code of ours.
        let _ = unsafe { signal(ignored, SigHandler::SigDfl) };
    }
    let _ = SigSet::all().thread_unblock();
}

/// All capability sets empty, for good.
pub(crate) fn drop_all() -> io::Result<()> {
    for capability in CapabilitySet::all() {
        // One that this kernel does not know is not there to be dropped.
        let _ = rustix::thread::remove_capability_from_bounding_set(capability);
    }
    rustix::thread::clear_ambient_capability_set()?;
    let locked = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    rustix::thread::set_capabilities_secure_bits(locked)?;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets)?;
    rustix::thread::set_no_new_privs(true)?;
    Ok(())
}

/// SBX-35: what one process may use. What all of them may use together is bounded by the control group where there is one.
fn limits(limits: &Limits) -> [(&'static str, Resource, u64); 6] {
    [
        ("open files", Resource::Nofile, limits.nofile),
        ("file size", Resource::Fsize, limits.fsize),
        ("core files", Resource::Core, 0),
        ("locked memory", Resource::Memlock, 64 << 10),
        ("data", Resource::Data, limits.memory.saturating_mul(4)),
        // Counted for each user in each user namespace, and so for this program alone.
        ("processes", Resource::Nproc, limits.pids),
    ]
}

/// Puts all limits in force.
pub(crate) fn limit(by: &Limits) -> io::Result<()> {
    for (_, resource, value) in limits(by) {
        setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })?;
    }
    Ok(())
}

/// Which limit is not in force, and what is.
pub(crate) fn not_limited(by: &Limits) -> Option<(&'static str, Rlimit)> {
    limits(by).into_iter().find_map(|(name, resource, value)| {
        let found = getrlimit(resource);
        (found.current != Some(value) || found.maximum != Some(value)).then_some((name, found))
    })
}

/// The namespace's own loopback, which is all the network there is.
#[allow(unsafe_code)]
pub(crate) fn raise_loopback() -> io::Result<()> {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
    // SAFETY: an `ifreq` is plain data, for which all zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(b"lo") {
        *place = *byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    let fd = socket.as_raw_fd();
    // SAFETY: the call reads an `ifreq`, which lives until it returns.
    let result = unsafe { libc::ioctl(fd, libc::SIOCSIFFLAGS as _, &request) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whatever whoever started the gateway left open is not ours, and goes before anything else is opened.
#[allow(unsafe_code)]
pub(crate) fn close_all_but(control: &impl AsRawFd) {
    let control = libc::c_uint::try_from(control.as_raw_fd()).unwrap_or(3);
    for (first, last) in [(3, control.saturating_sub(1)), (control.saturating_add(1), libc::c_uint::MAX)] {
        if first <= last {
            // SAFETY: nothing of ours is open but the three streams and `control`, which are left out.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
    }
}

/// Nothing but the three streams goes into the program.
#[allow(unsafe_code)]
pub(crate) fn close_all_but_three() {
    // SAFETY: marks descriptors; no memory of ours is touched, and nothing of ours is used after the program starts.
    unsafe {
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
    }
}
