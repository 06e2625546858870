//! `cargo xtask fuzz`: the properties that every test run tries a few hundred times, tried as often as one likes.
//!
//! The cases are made and shrunk by proptest, so nothing beyond the usual toolchain is needed; a failure is written beside
//! the test's source, and every later run tries it first.

use crate::Outcome;
use crate::workspace::{Workspace, run as run_command};

/// How many cases of each property, unless told otherwise.
const CASES: &str = "100000";

/// Runs the properties whose name holds `name`; all of them if it is empty.
pub(crate) fn run(workspace: &Workspace, arguments: &[&str]) -> Outcome {
    let (cases, name) = parsed(arguments)?;
    for (places, properties) in PLACES {
        let mut command = workspace.cargo_command(&["test", "--release"]);
        command.args(places).arg("--");
        match name {
            Some(name) => command.arg(name),
            None => command.args(properties),
        };
        command.env("PORTCULLIS_FUZZ_CASES", cases);
        run_command(&mut command)?;
    }
    Ok(())
}

/// Where properties are, and what they are called.
const PLACES: [(&[&str], &[&str]); 3] = [
    (
        &["--package", "portcullis-gauntlet", "--features", "stdio", "--lib", "--test", "it"],
        &["fuzz", "sanitise::properties"],
    ),
    // T-PRO-6: what servers write
    (&["--package", "portcullis-upstream", "--lib"], &["framing_fuzz"]),
    // T-SURF-33
    (
        &["--package", "portcullis-gateway", "--package", "portcullis-context", "--lib"],
        &["no_definition_breaks_anything", "no_value_and_no_budget_break_a_summary"],
    ),
];

fn parsed<'a>(arguments: &[&'a str]) -> Outcome<(&'a str, Option<&'a str>)> {
    let (mut cases, mut name) = (CASES, None);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match *argument {
            "--cases" => {
                cases = rest.next().copied().unwrap_or_default();
                cases.parse::<u32>().map_err(|_| "--cases takes a number".to_owned())?;
            }
            flag if flag.starts_with('-') => return Err(format!("fuzz does not know {flag}")),
            given => name = Some(given),
        }
    }
    Ok((cases, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_and_a_name_may_be_given() {
        assert_eq!(parsed(&[]), Ok((CASES, None)));
        assert_eq!(parsed(&["--cases", "7", "fuzz_pointer"]), Ok(("7", Some("fuzz_pointer"))));
        assert!(parsed(&["--cases"]).is_err() && parsed(&["--seconds", "7"]).is_err());
    }
}
