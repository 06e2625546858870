//! Who counts a program's memory where no control group does (SBX-35).
//!
//! Five times a second the memory of everything below the launcher are added up. Too many, and the launcher is ended, and with
//! it all the rest. Between two looks a program may have more for a moment; the limits of each process still hold.

use std::fs;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(200);

/// Looks until it is dropped.
#[derive(Debug)]
pub(crate) struct Watchdog(Arc<Watch>);

#[derive(Debug)]
struct Watch {
    launcher: OwnedFd,
    pid: u32,
    limit: u64,
    over: AtomicBool,
    bit: AtomicBool,
}

impl Watchdog {
    /// Watches everything that a process starts, and itself; `None` where it has gone already.
    pub(crate) fn over(pid: u32, limit: u64) -> Option<Self> {
        let number = Pid::from_raw(i32::try_from(pid).ok()?)?;
        // Its number may be somebody else's later; this is not.
        let launcher = pidfd_open(number, PidfdFlags::empty()).ok()?;
        let (over, bit) = (AtomicBool::new(false), AtomicBool::new(false));
        let watch = Arc::new(Watch { launcher, pid, limit, over, bit });
        let watching = Arc::clone(&watch);
        thread::Builder::new().name("memory".into()).spawn(move || watching.look()).ok()?;
        Some(Self(watch))
    }

    /// Whether it ended the program.
    pub(crate) fn bit(&self) -> bool {
        self.0.bit.load(Ordering::Acquire)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Release);
    }
}

impl Watch {
    fn look(&self) {
        while !self.over.load(Ordering::Acquire) {
            if resident(self.pid) > self.limit {
                self.bit.store(true, Ordering::Release);
                let _ = pidfd_send_signal(&self.launcher, Signal::KILL);
                return;
            }
            thread::sleep(PAUSE);
        }
    }
}

/// Bytes in memory of a process and everything below it. Whoever leaves its parents behind is below process 1 of its
/// namespace, which is below the launcher.
fn resident(pid: u32) -> u64 {
    let mut open = vec![pid];
    let mut sum = 0_u64;
    while let Some(pid) = open.pop() {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
        let kilobytes: u64 = line.and_then(|number| number.parse().ok()).unwrap_or_default();
        sum = sum.saturating_add(kilobytes << 10);
        for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            open.extend(children.split_ascii_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn what_takes_too_much_is_ended_with_its_parent() {
        // SBX-35: one shell is watched, and another, which it starts, takes memory.
        let script = r#"sh -c 'x=$(head -c 67108864 /dev/zero | tr "\0" a); read y'; true"#;
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // What is left behind reads to the end of this, and ends.
        let stdin = child.stdin.take();
        let watchdog = Watchdog::over(child.id(), 32 << 20).unwrap();
        let status = child.wait().unwrap();
        drop(stdin);
        assert!(!status.success() && watchdog.bit(), "{status}");
    }

    #[test]
    fn what_takes_little_is_left_alone() {
        // SBX-35
        let mut child = Command::new("sleep").arg("0.5").spawn().unwrap();
        let watchdog = Watchdog::over(child.id(), 256 << 20).unwrap();
        assert!(child.wait().unwrap().success() && !watchdog.bit());
    }
}
