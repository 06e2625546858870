//! Running steps: a heading, a time and a verdict each. A failed step does not stop the next: who waits minutes for a
//! result wants all of it. The last line is for programs: `N passed, M failed`, and nothing else on it.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::Outcome;

/// What was run so far.
#[derive(Default)]
pub(crate) struct Steps {
    done: Vec<Step>,
}

struct Step {
    name: String,
    took: Duration,
    outcome: Outcome,
}

impl Steps {
    /// Runs one step and gives its value, if it has one.
    pub(crate) fn run<T>(&mut self, name: &str, step: impl FnOnce() -> Outcome<T>) -> Option<T> {
        println!("\n==> {name}");
        let begun = Instant::now();
        let outcome = step();
        let took = begun.elapsed();
        let (value, outcome) = match outcome {
            Ok(value) => {
                println!("==> {name}: ok ({:.1} s)", took.as_secs_f64());
                (Some(value), Ok(()))
            }
            Err(error) => {
                println!("{error}\n==> {name}: FAILED ({:.1} s)", took.as_secs_f64());
                (None, Err(error))
            }
        };
        self.done.push(Step { name: name.to_owned(), took, outcome });
        value
    }

    /// Prints the summary; the exit code says whether all went well.
    pub(crate) fn finish(&self) -> ExitCode {
        print!("{}", self.summary());
        if self.failed() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn failed(&self) -> usize {
        self.done.iter().filter(|step| step.outcome.is_err()).count()
    }

    fn summary(&self) -> String {
        let width = self.done.iter().map(|step| step.name.len()).max().unwrap_or(0);
        let mut text = "\n".to_owned();
        for step in &self.done {
            let (verdict, reason) = match &step.outcome {
                Ok(()) => ("ok", ""),
                Err(error) => ("FAILED", error.lines().next().unwrap_or_default()),
            };
            let line =
                format!("{:width$}  {:>7.1} s  {verdict:6}  {reason}", step.name, step.took.as_secs_f64());
            text.push_str(line.trim_end());
            text.push('\n');
        }
        let failed = self.failed();
        text.push_str(&format!("{} passed, {failed} failed\n", self.done.len() - failed));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_go_on_after_a_failure_and_the_last_line_counts_them() {
        let mut steps = Steps::default();
        assert_eq!(steps.run("first", || Ok(7)), Some(7));
        assert_eq!(steps.run("second", || Err::<(), _>("it broke\nmore".to_owned())), None);
        assert_eq!(steps.run("third", || Ok(())), Some(()));
        let summary = steps.summary();
        assert_eq!(summary.lines().last(), Some("2 passed, 1 failed"));
        assert!(summary.lines().any(|line| line.starts_with("second") && line.ends_with("FAILED  it broke")));
        assert_ne!(steps.finish(), ExitCode::SUCCESS);
    }
}
