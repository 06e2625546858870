//! Processes of a benchmark: started, watched through `/proc`, and ended whatever happens.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::workspace::run;

/// How long a process may take to end when asked.
const FAREWELL: Duration = Duration::from_secs(15);

/// A started process, which ends with this value.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Outcome<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).spawn().map(Self).map_err(|error| format!("{program}: {error}"))
    }

    /// Starts a server that says `listening on URL` first, and gives that URL.
    pub(crate) fn listening(command: &mut Command) -> Outcome<(Self, String)> {
        let mut running = Self::start(command.stdout(Stdio::piped()))?;
        let output = running.0.stdout.take().ok_or("there is no pipe")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).map_err(|error| error.to_string())?;
        let url =
            line.trim().strip_prefix("listening on ").ok_or("the server did not say where it listens")?;
        Ok((running, url.to_owned()))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Whether it has ended on its own.
    pub(crate) fn has_ended(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(Some(_)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.has_ended() {
            return;
        }
        let _ = run(Command::new("kill").args(["-TERM", &self.pid().to_string()]));
        let begun = Instant::now();
        while !self.has_ended() && begun.elapsed() < FAREWELL {
            std::thread::sleep(Duration::from_millis(20));
        }
        if !self.has_ended() {
            eprintln!("process {} did not end when asked and is killed", self.pid());
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

/// What a process tree has used.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Usage {
    pub(crate) cpu: Duration,
    pub(crate) rss_kib: u64,
}

/// The usage of a process and its descendants, without those whose command line `except` picks (and theirs).
pub(crate) fn usage(root: u32, except: impl Fn(&str) -> bool) -> Usage {
    let stats: Vec<Stat> = processes().collect();
    let mut children: HashMap<u32, Vec<&Stat>> = HashMap::new();
    for stat in &stats {
        children.entry(stat.parent).or_default().push(stat);
    }
    let mut total = Usage::default();
    let mut open: Vec<&Stat> = stats.iter().filter(|stat| stat.pid == root).collect();
    while let Some(stat) = open.pop() {
        if stat.pid != root && except(&command_line(stat.pid)) {
            continue;
        }
        total.cpu += stat.cpu;
        total.rss_kib += stat.rss_kib;
        open.extend(children.get(&stat.pid).into_iter().flatten());
    }
    total
}

struct Stat {
    pid: u32,
    parent: u32,
    cpu: Duration,
    rss_kib: u64,
}

fn processes() -> impl Iterator<Item = Stat> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        parse_stat(pid, &fs::read_to_string(entry.path().join("stat")).ok()?)
    })
}

/// Reads `/proc/<pid>/stat`: times in hundredths of a second, memory in pages of 4 KiB.
fn parse_stat(pid: u32, text: &str) -> Option<Stat> {
    // The name in brackets may hold anything, brackets too; what follows the last one is regular.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Stat {
        pid,
        parent: fields.get(1)?.parse().ok()?,
        cpu: Duration::from_millis((number(11)? + number(12)?) * 10),
        rss_kib: number(21)? * 4,
    })
}

fn command_line(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_whatever_the_name() {
        let line = "7 (a) b (c) S 3 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 1 0 100 1000000 512 18446744073709551615";
        let stat = parse_stat(7, line).unwrap();
        assert_eq!((stat.parent, stat.cpu, stat.rss_kib), (3, Duration::from_secs(3), 2048));
        assert!(parse_stat(7, "7 (a").is_none());
    }

    #[test]
    fn a_tree_is_counted_with_its_children_and_without_the_excepted() {
        let mut shell = Command::new("sh");
        // The shell takes its child along when it is told to end.
        shell.args(["-c", "trap 'kill $child' TERM; sleep 600 & child=$!; wait"]);
        let running = Running::start(&mut shell).unwrap();
        let begun = Instant::now();
        let (mut whole, mut part) = (Usage::default(), Usage::default());
        while begun.elapsed() < Duration::from_secs(20) && whole.rss_kib <= part.rss_kib {
            whole = usage(running.pid(), |_| false);
            part = usage(running.pid(), |line| line.starts_with("sleep 600"));
        }
        assert!(whole.rss_kib > part.rss_kib && part.rss_kib > 0, "{whole:?} {part:?}");
    }
}
