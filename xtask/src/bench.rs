//! `cargo xtask bench`: which benchmark, with which options.

use crate::spine::{self, Options};
use crate::workspace::Workspace;
use crate::{Outcome, admin, audit, catalogue, context, gauntlet, governance, sandbox, surface};

/// Runs what was asked for; without a name, everything.
pub(crate) fn run(workspace: &Workspace, arguments: &[&str]) -> Outcome {
    match arguments {
        [] => {
            admin::run(workspace)?;
            audit::run(workspace)?;
            gauntlet::run(workspace)?;
            governance::run(workspace)?;
            sandbox::run(workspace)?;
            context::run(workspace)?;
            surface::run(workspace)?;
            catalogue::routing(workspace)?;
            catalogue::tokens(workspace)?;
            spine::run(workspace, &Options::default())
        }
        ["admin"] => admin::run(workspace),
        ["audit"] => audit::run(workspace),
        ["context"] => context::run(workspace),
        ["gauntlet"] => gauntlet::run(workspace),
        ["governance"] => governance::run(workspace),
        ["sandbox"] => sandbox::run(workspace),
        ["routing"] => catalogue::routing(workspace),
        ["tokens"] => catalogue::tokens(workspace),
        ["surface"] => surface::run(workspace),
        ["spine", options @ ..] => spine::run(workspace, &parse(options)?),
        _ => Err(
            "bench knows admin, audit, context, gauntlet, governance, routing, sandbox, surface, tokens and spine"
                .to_owned(),
        ),
    }
}

fn parse(arguments: &[&str]) -> Outcome<Options> {
    let mut options = Options::default();
    let mut rest = arguments.iter();
    while let Some(name) = rest.next() {
        let mut number = || {
            let value = rest.next().and_then(|value| value.parse::<u32>().ok()).filter(|value| *value > 0);
            value.ok_or_else(|| format!("{name} needs a number above zero"))
        };
        match *name {
            "--calls" => options.calls = number()?,
            "--rounds" => options.rounds = number()?,
            "--peers-only" => options.peers_only = true,
            other => {
                return Err(format!("bench spine knows --calls N, --rounds N and --peers-only, not {other}"));
            }
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_nonsense_is_refused() {
        let options = parse(&["--calls", "5", "--peers-only"]).unwrap();
        assert_eq!((options.calls, options.peers_only), (5, true));
        for bad in [&["--calls"][..], &["--calls", "0"], &["--rounds", "x"], &["--fast"]] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
