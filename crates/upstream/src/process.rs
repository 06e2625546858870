//! A child process: how it starts, and how it surely ends.
//!
//! The kernel sends the parent-death signal when the *thread* that started the child ends, not when the process
//! does. Threads of the async runtime come and go, so children are started by one thread that never ends before
//! the process.

use std::collections::BTreeMap;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use portcullis_core::ServerIdentity;
use portcullis_governance::endpoint::check_pins;
use portcullis_sandbox::broker::{Secret, SecretFiles};
use portcullis_sandbox::{Cgroup, Confined, Doors, LaunchError, Launcher, Layers};
use rustix::process::{Pid, Signal};
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::{Settings, StdioEndpoint, UpstreamError};

/// Starts the program in its cage, with an environment of its own, in a process group of its own, unable to gain
/// privileges, and bound to die with us. Its files are compared with their pins first, and what runs is what was kept of them. There is no other way to start
/// one (SBX-73).
///
/// What is started is the launcher, and it becomes the program only after its report; the second value says what
/// confines it, the third is where it gets out. `lent` is in the environment of this process alone.
pub(crate) async fn spawn(
    endpoint: &StdioEndpoint,
    server: &ServerIdentity,
    settings: &Settings,
    lent: Vec<(String, Arc<Secret>)>,
) -> Result<(Child, Cage, Doors), UpstreamError> {
    let shown = endpoint.profile.command.display().to_string();
    let failed = |reason: String| UpstreamError::Spawn { command: shown.clone(), reason };
    let mut conditions = settings.conditions_of(server);
    let (pins, copies) = (endpoint.pins.clone(), settings.copies.clone());
    if !pins.is_empty() {
        let look = move || match copies {
            Some(copies) => copies.of(&pins),
            None => check_pins(&pins).map(|()| BTreeMap::new()),
        };
        conditions.copies = tokio::task::spawn_blocking(look).await.map_err(|e| failed(e.to_string()))??;
    }
    let (command, handshake) = launcher()
        .and_then(|launcher| launcher.prepare(&endpoint.profile, &conditions))
        .map_err(|error| failed(error.to_string()))?;
    let mut command = Command::from(command);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    die_with_us(&mut command);
    let child = spawn_from_lasting_thread(command).await.map_err(|error| failed(error.to_string()))?;
    let pid = child.id().unwrap_or_default();
    let confined = tokio::task::spawn_blocking(move || handshake.complete(pid, &lent)).await;
    match confined.map_err(|error| failed(error.to_string()))? {
        Ok(Confined { layers, cgroup, doors, files }) => Ok((child, Cage { layers, cgroup, files }, doors)),
        // Dropping the child kills it.
        Err(LaunchError::Facility { facility, detail }) => Err(UpstreamError::Isolation { facility, detail }),
        Err(LaunchError::Io(error)) => Err(failed(error.to_string())),
    }
}

/// Confines a server's program, tests that, and ends it before the program runs (SBX-72): what confines it, and which
/// control groups there are.
pub async fn rehearse(
    server: &ServerIdentity,
    endpoint: &StdioEndpoint,
    settings: &Settings,
) -> Result<(Layers, &'static str), UpstreamError> {
    let (mut child, cage, doors) = spawn(endpoint, server, settings, Vec::new()).await?;
    drop(doors);
    sweep(group_of(&child));
    let _ = child.wait().await;
    let confined = (cage.layers.clone(), cage.cgroup.version);
    let _ = tokio::task::spawn_blocking(move || drop(cage)).await;
    Ok(confined)
}

/// What confines a child. Its control group goes with it.
#[derive(Debug)]
pub(crate) struct Cage {
    pub(crate) layers: Layers,
    pub(crate) cgroup: Cgroup,
    /// Files for credentials inside it.
    pub(crate) files: SecretFiles,
}

/// Opened once: what is started later is what runs now.
fn launcher() -> io::Result<&'static Launcher> {
    static LAUNCHER: OnceLock<Launcher> = OnceLock::new();
    if let Some(launcher) = LAUNCHER.get() {
        return Ok(launcher);
    }
    #[cfg(not(test))]
    let launcher = Launcher::own()?;
    // A test's own executable is no launcher.
    #[cfg(test)]
    let launcher = Launcher::at(&crate::scenarios::launcher())?;
    Ok(LAUNCHER.get_or_init(|| launcher))
}

#[allow(unsafe_code)]
fn die_with_us(command: &mut Command) {
    let gateway = rustix::process::getpid();
    let prepare = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // We may have died before the line above; then nobody would ever send the signal.
        if rustix::process::getppid() != Some(gateway) {
            return Err(io::Error::from(rustix::io::Errno::SRCH));
        }
        rustix::thread::set_no_new_privs(true)?;
        Ok(())
    };
    // SAFETY: between fork and exec only async-signal-safe functions may run. The closure makes three system
    // calls through rustix, which is neither libc's locale nor its allocator, and builds errors from numbers.
    unsafe {
        command.pre_exec(prepare);
    }
}

type Job = Box<dyn FnOnce() + Send>;

async fn spawn_from_lasting_thread(mut command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, jobs) = mpsc::channel::<Job>();
        let work = move || jobs.into_iter().for_each(|job| job());
        std::thread::Builder::new()
            .name("spawner".into())
            .spawn(work)
            .expect("the system can start a thread");
        sender
    });
    let (sender, receiver) = oneshot::channel();
    let runtime = Handle::current();
    let job = move || {
        let _inside = runtime.enter();
        // If nobody waits any more, the child is dropped here, which kills it.
        let _ = sender.send(command.spawn());
    };
    spawner.send(Box::new(job)).map_err(|_| io::Error::other("the spawning thread has ended"))?;
    receiver.await.map_err(|_| io::Error::other("the spawning thread has ended"))?
}

/// Waits for a child whose input is closed, then asks it to end, then ends it (PRO-64).
pub(crate) async fn end(child: &mut Child, group: Option<Pid>, grace: Duration) -> io::Result<ExitStatus> {
    if let Ok(status) = timeout(grace, child.wait()).await {
        return status;
    }
    signal(group, Signal::TERM);
    if let Ok(status) = timeout(grace, child.wait()).await {
        return status;
    }
    signal(group, Signal::KILL);
    child.wait().await
}

/// The process group of a child that has not been waited for.
pub(crate) fn group_of(child: &Child) -> Option<Pid> {
    child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?))
}

/// Ends whatever the child started and left behind in its group.
pub(crate) fn sweep(group: Option<Pid>) {
    signal(group, Signal::KILL);
}

fn signal(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        // It may be gone already; that is what we want.
        let _ = rustix::process::kill_process_group(group, signal);
    }
}

/// How a process ended, in words.
pub(crate) fn epitaph(status: io::Result<ExitStatus>, cgroup: &Cgroup) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    // SBX-35
    if cgroup.exhausted() {
        return "resource_limit: the server used more memory than it may, and was ended".into();
    }
    match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("the server exited with status {code}"),
            (None, Some(signal)) => format!("the server was ended by signal {signal}"),
            (None, None) => "the server ended".into(),
        },
        Err(error) => format!("the server cannot be waited for: {error}"),
    }
}
