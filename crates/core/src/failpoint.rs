//! Named places where a test build may die, fail or stall (AUD-80).
//!
//! `PORTCULLIS_FAILPOINTS="audit.sync=err(EIO);permit.after_issue=abort@3"` arms them, in builds with the
//! cargo feature `failpoints` only; elsewhere each compiles to nothing and [`BUILT_IN`] is false.

/// Whether this build has failpoints. A release binary must not.
pub const BUILT_IN: bool = cfg!(feature = "failpoints");

/// Passes the failpoint: dies or stalls here if the test says so.
#[inline(always)]
pub fn pass(name: &'static str) {
    #[cfg(feature = "failpoints")]
    armed::pass(name);
    #[cfg(not(feature = "failpoints"))]
    let _ = name;
}

/// Passes the failpoint of an operation that can fail: `Err` if the test says that it fails here.
#[inline(always)]
pub fn pass_io(name: &'static str) -> std::io::Result<()> {
    #[cfg(feature = "failpoints")]
    return armed::pass_io(name);
    #[cfg(not(feature = "failpoints"))]
    {
        let _ = name;
        Ok(())
    }
}

/// Passes the failpoint of a write: `Some(n)` if the test says that only `n` bytes get through.
#[inline(always)]
pub fn short_write(name: &'static str) -> Option<usize> {
    #[cfg(feature = "failpoints")]
    return armed::short_write(name);
    #[cfg(not(feature = "failpoints"))]
    {
        let _ = name;
        None
    }
}

/// Passes the failpoint of a clock: by how many milliseconds the test says that it has jumped.
#[inline(always)]
pub fn jumped(name: &'static str) -> i64 {
    #[cfg(feature = "failpoints")]
    return armed::jumped(name);
    #[cfg(not(feature = "failpoints"))]
    {
        let _ = name;
        0
    }
}

#[cfg(feature = "failpoints")]
mod armed {
    use std::collections::HashMap;
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    #[derive(Debug, Clone, Copy)]
    enum Action {
        Abort,
        Panic,
        Fail(i32),
        Sleep(u64),
        Short(usize),
        Jump(i64),
    }

    struct Point {
        action: Action,
        /// Acts on this hit only; `None`: on every hit.
        on_hit: Option<u64>,
        hits: AtomicU64,
    }

    static POINTS: LazyLock<HashMap<String, Point>> = LazyLock::new(|| {
        let text = std::env::var("PORTCULLIS_FAILPOINTS").unwrap_or_default();
        text.split(';').filter(|entry| !entry.is_empty()).map(parse).collect()
    });

    /// A test that arms a failpoint wrongly would pass for the wrong reason, so a bad entry is a panic.
    fn parse(entry: &str) -> (String, Point) {
        let bad = || panic!("PORTCULLIS_FAILPOINTS: cannot read {entry:?}");
        let Some((name, action)) = entry.split_once('=') else { bad() };
        let (action, on_hit) = match action.split_once('@') {
            Some((action, hit)) => (action, Some(hit.parse().unwrap_or_else(|_| bad()))),
            None => (action, None),
        };
        let argument = |prefix: &str| action.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(')'));
        let action = if action == "abort" {
            Action::Abort
        } else if action == "panic" {
            Action::Panic
        } else if let Some(errno) = argument("err(") {
            Action::Fail(match errno {
                "EIO" => 5,
                "ENOSPC" => 28,
                "EROFS" => 30,
                other => other.parse().unwrap_or_else(|_| bad()),
            })
        } else if let Some(ms) = argument("sleep(") {
            Action::Sleep(ms.parse().unwrap_or_else(|_| bad()))
        } else if let Some(bytes) = argument("short(") {
            Action::Short(bytes.parse().unwrap_or_else(|_| bad()))
        } else if let Some(ms) = argument("jump(") {
            Action::Jump(ms.parse().unwrap_or_else(|_| bad()))
        } else {
            bad()
        };
        (name.to_owned(), Point { action, on_hit, hits: AtomicU64::new(0) })
    }

    fn due(name: &str) -> Option<Action> {
        let point = POINTS.get(name)?;
        let hit = point.hits.fetch_add(1, Ordering::SeqCst) + 1;
        point.on_hit.is_none_or(|n| n == hit).then_some(point.action)
    }

    fn perform(action: Action) {
        match action {
            // SIGKILL, not abort(): no handler, no unwinding, no flush, as when the machine loses power.
            Action::Abort => {
                let _ =
                    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
                loop {
                    std::thread::sleep(Duration::from_secs(1));
                }
            }
            Action::Panic => panic!("a failpoint says so"),
            Action::Sleep(ms) => std::thread::sleep(Duration::from_millis(ms)),
            Action::Fail(_) | Action::Short(_) | Action::Jump(_) => {}
        }
    }

    pub(super) fn pass(name: &'static str) {
        if let Some(action) = due(name) {
            perform(action);
        }
    }

    pub(super) fn pass_io(name: &'static str) -> std::io::Result<()> {
        match due(name) {
            Some(Action::Fail(errno)) => Err(std::io::Error::from_raw_os_error(errno)),
            Some(action) => {
                perform(action);
                Ok(())
            }
            None => Ok(()),
        }
    }

    pub(super) fn short_write(name: &'static str) -> Option<usize> {
        match due(name) {
            Some(Action::Short(bytes)) => Some(bytes),
            Some(action) => {
                perform(action);
                None
            }
            None => None,
        }
    }

    /// A clock that has jumped stays there: `@N` is the first reading after the jump, not the only one.
    pub(super) fn jumped(name: &'static str) -> i64 {
        let Some(point) = POINTS.get(name) else { return 0 };
        let hit = point.hits.fetch_add(1, Ordering::SeqCst) + 1;
        match point.action {
            Action::Jump(ms) if hit >= point.on_hit.unwrap_or(1) => ms,
            _ => 0,
        }
    }
}
