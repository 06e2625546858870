//! The other side of a launch: the stages from our own executable to the confined program (SBX-20).
//!
//! The first stage leaves the host's namespaces. The second is process 1 of the new ones: it makes the view, and
//! stays to reap whatever the program leaves behind; when it ends, the kernel ends everything in there. The third
//! gives up what is left of its rights, tests itself, waits for the word, and becomes the program.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{FromRawFd as _, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use portcullis_core::failpoint;

use crate::launch::{Layers, Order, Report};
use crate::own_user::{self, OwnUser};
use crate::profile::Profile;
use crate::view::{self, Sources, View};
use crate::{bait, calls, doors, notify, privileges, rules, trial};

/// What a launcher that could not do its work exits with.
const FAILED: i32 = 125;
/// The longest order: a profile with many scopes.
const LONGEST_ORDER: u64 = 16 << 20;
/// The word that lets the program go, and the longest that may follow it: a few credentials.
pub(crate) const GO: &str = "go";
const LONGEST_WORD: u64 = 1 << 20;
/// Who the program is, in its own eyes.
const UID: u32 = 1000;

/// A layer that could not be put in place.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) facility: &'static str,
    pub(crate) detail: String,
}

impl Failure {
    pub(crate) fn new(facility: &'static str, detail: impl std::fmt::Display) -> Self {
        Self { facility, detail: detail.to_string() }
    }
}

/// Names the layer an error belongs to.
pub(crate) trait Within<T> {
    fn within(self, facility: &'static str, what: impl std::fmt::Display) -> Result<T, Failure>;
}

impl<T, E: std::fmt::Display> Within<T> for Result<T, E> {
    fn within(self, facility: &'static str, what: impl std::fmt::Display) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(facility, format!("{what}: {error}")))
    }
}

/// The hidden mode. `control` is the descriptor that the launcher handed over. Never returns.
pub fn main(control: &str) -> ! {
    let code = match control.parse::<RawFd>().ok().filter(|fd| *fd > 2) {
        Some(fd) => begin(fd),
        None => FAILED,
    };
    std::process::exit(code)
}

#[allow(unsafe_code)]
fn begin(fd: RawFd) -> i32 {
    // SAFETY: the launcher opened this descriptor for us and nobody else uses it; an invalid number only makes
    // reads and writes fail.
    let control = unsafe { UnixStream::from_raw_fd(fd) };
    let mut reader = BufReader::new((&control).take(LONGEST_ORDER));
    let mut line = String::new();
    let order: Order = match reader.read_line(&mut line).ok().and_then(|_| serde_json::from_str(&line).ok()) {
        Some(order) => order,
        None => return FAILED,
    };
    drop(reader);
    match first(&control, &order) {
        Ok(code) => code,
        Err(failure) => {
            report(&control, &Report::Failed { facility: failure.facility.into(), detail: failure.detail });
            FAILED
        }
    }
}

fn report(control: &UnixStream, report: &Report) {
    let mut line = serde_json::to_vec(report).unwrap_or_default();
    line.push(b'\n');
    // Nobody there means nobody who could say go.
    let _ = (&*control).write_all(&line);
}

/// Leaves the namespaces of the host.
fn first(control: &UnixStream, order: &Order) -> Result<i32, Failure> {
    rustix::io::fcntl_setfd(control, rustix::io::FdFlags::CLOEXEC).within("launcher", "control")?;
    privileges::die_with_parent().within("launcher", "parent death signal")?;
    privileges::close_all_but(control);
    let items = view::items(&order.profile, &order.copies)?;
    let own_user = match OwnUser::prepare(order.user, &items) {
        Ok(own_user) => Some(own_user),
        // What cannot be shown cannot be shown to anybody.
        Err(failure) if order.needs_own_user || failure.facility != own_user::FACILITY => {
            return Err(failure);
        }
        Err(_) => None,
    };
    let separate = own_user.is_some();
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    unshare(CloneFlags::CLONE_NEWUSER).within("userns", "unshare")?;
    let translated = match own_user {
        Some(own_user) => own_user.enter(UID)?,
        None => {
            fs::write("/proc/self/setgroups", "deny").within("userns", "setgroups")?;
            fs::write("/proc/self/uid_map", format!("{UID} {uid} 1")).within("userns", "uid map")?;
            fs::write("/proc/self/gid_map", format!("{UID} {gid} 1")).within("userns", "gid map")?;
            BTreeMap::new()
        }
    };
    for (flag, facility) in [
        (CloneFlags::CLONE_NEWNS, "mountns"),
        (CloneFlags::CLONE_NEWPID, "pidns"),
        (CloneFlags::CLONE_NEWNET, "netns"),
        (CloneFlags::CLONE_NEWIPC, "ipcns"),
        (CloneFlags::CLONE_NEWUTS, "utsns"),
        (CloneFlags::CLONE_NEWCGROUP, "cgroupns"),
    ] {
        if !sabotaged(order, facility) {
            unshare(flag).within(facility, "unshare")?;
        }
    }
    // The mounts of these descriptors must be ours, or they could not be mounted again.
    let sources = Sources::open(&order.profile, items, translated)?;
    if separate {
        own_user::become_user(UID)?;
    }
    // A change of credentials forgets it.
    privileges::die_with_parent().within("launcher", "parent death signal")?;
    privileges::ignore_requests_to_end();
    match fork_once()? {
        Some(init) => Ok(wait_for(init)),
        None => second(control, order, sources, separate),
    }
}

/// Process 1: makes the view and stays.
fn second(
    control: &UnixStream,
    order: &Order,
    sources: Sources,
    uid_separation: bool,
) -> Result<i32, Failure> {
    privileges::die_with_parent().within("launcher", "parent death signal")?;
    let move_in = !sabotaged(order, "view");
    let files = View::build(&order.profile, &sources, order.authority.as_deref(), &order.baits, move_in)?;
    drop(sources);
    if !sabotaged(order, "netns") {
        privileges::raise_loopback().within("netns", "loopback")?;
    }
    doors::open(&order.profile, control)?;
    if !files.is_empty() {
        doors::hand_over(control, doors::FILES, &files).within("view", "handing files over")?;
    }
    drop(files);
    let watching = bait::watch(if move_in { &order.baits } else { &[] })?;
    doors::hand_over(control, doors::BAITS, &[watching]).within("bait", "handing watches over")?;
    nix::unistd::sethostname("sandbox").within("utsns", "host name")?;
    let mut watched = SigSet::empty();
    watched.add(Signal::SIGTERM);
    watched.add(Signal::SIGCHLD);
    watched.thread_block().within("launcher", "signals")?;
    match fork_once()? {
        Some(program) => Ok(reap(program, &watched)),
        None => third(control, order, uid_separation),
    }
}

/// Whether a test wants to see what happens without a layer. No other build can be told to.
fn sabotaged(order: &Order, layer: &str) -> bool {
    failpoint::BUILT_IN && order.sabotaged.iter().any(|sabotaged| sabotaged == layer)
}

/// The last steps before the program.
fn third(control: &UnixStream, order: &Order, uid_separation: bool) -> Result<i32, Failure> {
    let profile = &order.profile;
    rustix::process::setsid().within("launcher", "session")?;
    if !sabotaged(order, "limits") {
        privileges::limit(&profile.limits).within("limits", "rlimits")?;
    }
    std::env::set_current_dir(&profile.cwd)
        .within("view", format_args!("working folder {}", profile.cwd.display()))?;
    privileges::drop_all().within("capabilities", "drop")?;
    let mut waived = Vec::new();
    let enforced = if sabotaged(order, "landlock") { Ok(1) } else { rules::enforce(profile, &order.baits) };
    let landlock = match enforced {
        Err(_) if order.waives("landlock") => {
            waived.push("landlock".to_owned());
            0
        }
        enforced => enforced?,
    };
    let unasked = order.waives("seccomp_notify") || sabotaged(order, "seccomp");
    let installed = match sabotaged(order, "seccomp") {
        true => Err(Failure::new("seccomp_notify", "sabotaged")),
        false => notify::install(order.detect),
    };
    let asks = match installed {
        Ok(listener) => {
            doors::hand_over(control, doors::QUESTIONS, &[listener])
                .within("seccomp_notify", "handing over")?;
            true
        }
        Err(_) if unasked => {
            waived.push("seccomp_notify".to_owned());
            false
        }
        Err(failure) => return Err(failure),
    };
    if !sabotaged(order, "seccomp") {
        calls::filter(asks)?;
    }
    let checks =
        trial::run(profile, &order.canaries, &trial::Expected { control, uid: UID, landlock: landlock > 0 })?;
    let layers = Layers { landlock, seccomp: calls::NAME.into(), waived, uid_separation, checks };
    report(control, &Report::Ready(layers));
    let Some(lent) = told_to_go(control) else { return Ok(FAILED) };
    let mut variables = order.variables.clone();
    variables.extend(lent);
    become_program(profile, &variables)
}

/// The word, and what is in the environment of this one process alone; nothing if the word is another.
fn told_to_go(control: &UnixStream) -> Option<BTreeMap<String, String>> {
    let mut word = String::new();
    BufReader::new(control.take(LONGEST_WORD)).read_line(&mut word).ok()?;
    let lent = word.strip_prefix(GO)?.strip_suffix('\n')?;
    if lent.is_empty() { Some(BTreeMap::new()) } else { serde_json::from_str(lent).ok() }
}

fn become_program(profile: &Profile, more: &BTreeMap<String, String>) -> Result<i32, Failure> {
    privileges::forget_signals();
    let mut command = Command::new(&profile.command);
    // Everything else is closed on execution.
    privileges::close_all_but_three();
    let error = command.args(&profile.args).env_clear().envs(&profile.env).envs(more).exec();
    // The report has been given; this is the program's own failure to start.
    let _ = writeln!(std::io::stderr(), "{}: {error}", profile.command.display());
    Ok(126)
}

#[allow(unsafe_code)]
fn fork_once() -> Result<Option<Pid>, Failure> {
    // SAFETY: this process has one thread, so the child may do whatever the parent may.
    match unsafe { fork() }.within("launcher", "fork")? {
        ForkResult::Parent { child } => Ok(Some(child)),
        ForkResult::Child => Ok(None),
    }
}

/// Reaps everything until the program has ended, and passes requests to end on to it.
fn reap(program: Pid, watched: &SigSet) -> i32 {
    loop {
        let signal = watched.wait();
        if signal == Ok(Signal::SIGTERM) {
            let _ = kill(program, Signal::SIGTERM);
            continue;
        }
        // One SIGCHLD may stand for many.
        loop {
            match waitpid(None::<Pid>, Some(nix::sys::wait::WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => break,
                Ok(status) if status.pid() == Some(program) => {
                    if let Some(code) = exit_code(status) {
                        return code;
                    }
                }
                Ok(_) => {}
                Err(_) => return FAILED,
            }
        }
    }
}

fn wait_for(child: Pid) -> i32 {
    loop {
        match waitpid(child, None) {
            Ok(status) => {
                if let Some(code) = exit_code(status) {
                    return code;
                }
            }
            Err(nix::errno::Errno::EINTR) => {}
            Err(_) => return FAILED,
        }
    }
}

fn exit_code(status: WaitStatus) -> Option<i32> {
    match status {
        WaitStatus::Exited(_, code) => Some(code),
        // As shells say it.
        WaitStatus::Signaled(_, signal, _) => Some(128 + signal as i32),
        _ => None,
    }
}
