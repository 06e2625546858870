//! The closed loop: a fixed number of callers, each with one call in flight, until the calls are used up. What is
//! printed is what a ratio needs: throughput, two quantiles of latency, and the generator's own CPU, which tells
//! whether the generator was the bottleneck.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::Barrier;

use crate::LoadArguments;
use crate::call::{Call, check};
use crate::http_caller::HttpCaller;
use crate::stdio_child::StdioChild;

/// A call that takes longer is an error: a benchmark must end.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the loop and prints its report; fails if every call did.
pub(crate) async fn run(arguments: LoadArguments) -> io::Result<ExitCode> {
    let call =
        Arc::new(Call::new(&arguments.tool, &arguments.args, arguments.revision).map_err(io::Error::other)?);
    let child = if arguments.target.stdio {
        let child = StdioChild::start(&arguments.target.command)?;
        child.open(arguments.revision).await?;
        Some(Arc::new(child))
    } else {
        None
    };
    let warmup = Arc::new(AtomicU32::new(arguments.warmup));
    let budget = Arc::new(AtomicU32::new(arguments.calls));
    let callers = usize::try_from(arguments.callers).unwrap_or(usize::MAX);
    let start = Arc::new(Barrier::new(callers + 1));

    let mut tasks = Vec::with_capacity(callers);
    for _ in 0..callers {
        let mut caller = match (&child, &arguments.target.url) {
            (Some(child), _) => Caller::Stdio(child.clone()),
            (None, Some(url)) => Caller::Http(Box::new(HttpCaller::open(url, arguments.revision).await?)),
            (None, None) => return Err(io::Error::other("neither --url nor --stdio")),
        };
        let (call, warmup, budget, start) = (call.clone(), warmup.clone(), budget.clone(), start.clone());
        tasks.push(tokio::spawn(async move {
            let mut tally = Tally::default();
            let mut id = 0;
            while take(&warmup) {
                id += 1;
                // A failed warm-up shows in the measured calls; here it does not count.
                let _ = caller.call(&call, id).await;
            }
            start.wait().await;
            while take(&budget) {
                id += 1;
                let begun = Instant::now();
                match caller.call(&call, id).await {
                    Ok(()) => tally.took(begun.elapsed()),
                    Err(error) => tally.failed(error),
                }
            }
            tally
        }));
    }
    start.wait().await;
    let (begun, cpu) = (Instant::now(), cpu_time());
    let mut total = Tally::default();
    for task in tasks {
        total.add(task.await.map_err(io::Error::other)?);
    }
    let seconds = begun.elapsed().as_secs_f64();
    let cpu = cpu_time().saturating_sub(cpu);
    total.report(seconds, cpu, &mut io::stdout())?;
    Ok(if total.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn take(budget: &AtomicU32) -> bool {
    budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}

enum Caller {
    Http(Box<HttpCaller>),
    Stdio(Arc<StdioChild>),
}

impl Caller {
    async fn call(&mut self, call: &Call, id: u64) -> Result<(), String> {
        let answer = async {
            match self {
                Self::Http(caller) => check(&caller.call(call, id).await.map_err(|error| error.to_string())?),
                Self::Stdio(child) => {
                    let answer = child.ask(|id| call.with_id(id)).await;
                    check(&answer.map_err(|error| error.to_string())?)
                }
            }
        };
        tokio::time::timeout(PATIENCE, answer).await.unwrap_or_else(|_| Err("no answer in time".to_owned()))
    }
}

/// What came of calls.
#[derive(Default)]
pub(crate) struct Tally {
    micros: Vec<u64>,
    errors: u64,
    first_error: Option<String>,
}

impl Tally {
    /// A call that succeeded, and how long it took.
    pub(crate) fn took(&mut self, time: Duration) {
        self.micros.push(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// A call that did not.
    pub(crate) fn failed(&mut self, error: String) {
        self.errors += 1;
        self.first_error.get_or_insert(error);
    }

    /// Whether none succeeded.
    pub(crate) fn is_empty(&self) -> bool {
        self.micros.is_empty()
    }

    fn add(&mut self, other: Self) {
        self.micros.extend(other.micros);
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
    }

    pub(crate) fn report(&mut self, seconds: f64, cpu: Duration, output: &mut impl Write) -> io::Result<()> {
        self.micros.sort_unstable();
        let calls = self.micros.len() as u64 + self.errors;
        let line = json!({
            "calls": calls,
            "errors": self.errors,
            "first_error": self.first_error,
            "seconds": seconds,
            "calls_per_s": calls as f64 / seconds,
            "p50_us": quantile(&self.micros, 0.50),
            "p99_us": quantile(&self.micros, 0.99),
            "cpu_us_per_call": cpu.as_micros() as f64 / calls.max(1) as f64,
        });
        writeln!(output, "{line}")
    }
}

/// The smallest value that at least this part of the sorted values does not exceed.
fn quantile(sorted: &[u64], part: f64) -> Option<u64> {
    let rank = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

/// User and system time of this process. The kernel counts in hundredths of a second, whatever its own tick is.
pub(crate) fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field is a name that may hold anything; fields are counted from behind its bracket.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 =
        fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_occurred() {
        let values: Vec<u64> = (1..=100).collect();
        assert_eq!((quantile(&values, 0.5), quantile(&values, 0.99)), (Some(50), Some(99)));
        assert_eq!((quantile(&[7], 0.5), quantile(&[7], 0.99), quantile(&[], 0.5)), (Some(7), Some(7), None));
    }

    #[test]
    fn a_budget_is_used_up_exactly() {
        let budget = AtomicU32::new(3);
        assert_eq!((0..10).filter(|_| take(&budget)).count(), 3);
    }
}
