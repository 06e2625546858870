//! Control groups: memory, processes and time of everything a program starts (SBX-35).
//!
//! Version 2 where its controllers are there, version 1 where they are, and nothing where neither can be written: then
//! the limits of single processes are what there is, somebody who counts memory, and a record that says so.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::profile::Limits;
use crate::watchdog::Watchdog;

const MOUNT: &str = "/sys/fs/cgroup";
/// How long a program's share of the processors is counted before it begins anew, in microseconds.
const PERIOD: u64 = 100_000;

/// What bounds a program. The groups go when this is dropped.
#[derive(Debug, Serialize)]
pub struct Cgroup {
    /// `v2`, `v1` or `none`.
    pub version: &'static str,
    #[serde(skip)]
    folders: Vec<PathBuf>,
    /// Who counts memory where there is no group to do it.
    #[serde(skip)]
    watchdog: Option<Watchdog>,
}

impl Cgroup {
    /// Puts a process, and whatever it starts, into a group of its own.
    pub(crate) fn around(pid: u32, limits: &Limits) -> Self {
        sweep();
        let name = format!("portcullis-{pid}");
        Self::v2(&name, pid, limits).or_else(|| Self::v1(&name, pid, limits)).unwrap_or_else(|| {
            let watchdog = Watchdog::over(pid, limits.memory);
            Self { version: "none", folders: Vec::new(), watchdog }
        })
    }

    /// Whether something in here was ended because it used more memory than it may.
    pub fn exhausted(&self) -> bool {
        self.watchdog.as_ref().is_some_and(Watchdog::bit)
            || self.folders.iter().any(|folder| {
                let counts = fs::read_to_string(folder.join("memory.events"))
                    .or_else(|_| fs::read_to_string(folder.join("memory.oom_control")));
                counts.is_ok_and(|counts| killed(&counts))
            })
    }

    fn v2(name: &str, pid: u32, limits: &Limits) -> Option<Self> {
        let controllers = fs::read_to_string(Path::new(MOUNT).join("cgroup.subtree_control")).ok()?;
        if !["memory", "pids"]
            .iter()
            .all(|wanted| controllers.split_whitespace().any(|there| there == *wanted))
        {
            return None;
        }
        let group = Self::make("v2", vec![Path::new(MOUNT).join(name)])?;
        let folder = &group.folders[0];
        write(folder, "memory.max", limits.memory)?;
        let _ = write(folder, "memory.swap.max", 0);
        write(folder, "pids.max", limits.pids)?;
        // Controllers are there or not, each for itself; a program that takes longer is no danger.
        let _ = fs::write(folder.join("cpu.max"), format!("{} {PERIOD}", limits.cpu.of(PERIOD)));
        write(folder, "cgroup.procs", pid.into())?;
        Some(group)
    }

    fn v1(name: &str, pid: u32, limits: &Limits) -> Option<Self> {
        let folder = |controller: &str| Path::new(MOUNT).join(controller).join(name);
        let mut group = Self::make("v1", vec![folder("memory"), folder("pids")])?;
        write(&group.folders[0], "memory.limit_in_bytes", limits.memory)?;
        write(&group.folders[1], "pids.max", limits.pids)?;
        if let Some(time) = Self::make("v1", vec![folder("cpu")]) {
            let set = write(&time.folders[0], "cpu.cfs_period_us", PERIOD)
                .and_then(|()| write(&time.folders[0], "cpu.cfs_quota_us", limits.cpu.of(PERIOD)));
            if set.is_some() {
                group.folders.append(&mut std::mem::ManuallyDrop::new(time).folders);
            }
        }
        for folder in &group.folders {
            write(folder, "cgroup.procs", pid.into())?;
        }
        Some(group)
    }

    fn make(version: &'static str, folders: Vec<PathBuf>) -> Option<Self> {
        for folder in &folders {
            // Never the root of a hierarchy by mistake: the parent must be one of the kernel's.
            if !folder.parent()?.join("cgroup.procs").is_file() {
                return None;
            }
            fs::create_dir(folder).ok()?;
        }
        Some(Self { version, folders, watchdog: None })
    }
}

/// Whether the kernel counted a process that it ended: `oom_kill 1`
fn killed(counts: &str) -> bool {
    let count = counts.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse::<u64>().ok());
    count.is_some_and(|count| count > 0)
}

/// Removes the groups of gateways that could not do it themselves. One that is in use cannot be removed.
fn sweep() {
    for parent in ["", "memory", "pids", "cpu"] {
        for entry in fs::read_dir(Path::new(MOUNT).join(parent)).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let pid = name.to_str().and_then(|name| name.strip_prefix("portcullis-")?.parse::<u32>().ok());
            // One that is just being made has no process yet, but its process lives.
            if pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
                let _ = fs::remove_dir(entry.path());
            }
        }
    }
}

fn write(folder: &Path, file: &str, value: u64) -> Option<()> {
    fs::write(folder.join(file), value.to_string()).ok()
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for folder in &self.folders {
            // Processes that are ending still hold it for a moment; an empty group left behind does no harm.
            for _ in 0..50 {
                if fs::remove_dir(folder).is_ok() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_the_kernel_ended_is_counted() {
        // SBX-35
        assert!(killed("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"));
        assert!(!killed("low 0\nhigh 0\nmax 4\noom 1\noom_kill 0\noom_group_kill 0\n"));
        assert!(!killed(""));
    }
}
