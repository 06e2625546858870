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
            surface::run(workspace, &surface::Options::default())?;
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
        ["surface", options @ ..] => surface::run(workspace, &surface_options(options)?),
        ["spine", options @ ..] => spine::run(workspace, &parse(options)?),
        _ => Err(
            "bench knows admin, audit, context, gauntlet, governance, routing, sandbox, surface, tokens and spine"
                .to_owned(),
        ),
    }
}

/// The number that follows an option.
fn number<'a>(name: &str, rest: &mut impl Iterator<Item = &'a &'a str>) -> Outcome<u32> {
    let value = rest.next().and_then(|value| value.parse::<u32>().ok()).filter(|value| *value > 0);
    value.ok_or_else(|| format!("{name} needs a number above zero"))
}

fn surface_options(arguments: &[&str]) -> Outcome<surface::Options> {
    let mut options = surface::Options::default();
    let mut rest = arguments.iter();
    while let Some(name) = rest.next() {
        match *name {
            "--calls" => options.calls = number(name, &mut rest)?,
            "--rounds" => options.rounds = number(name, &mut rest)?,
            "--programs" => {
                let folder = rest.next().ok_or("--programs needs a folder with what was built")?;
                options.programs = Some(folder.into());
            }
            other => {
                return Err(format!(
                    "bench surface knows --calls N, --rounds N and --programs FOLDER, not {other}"
                ));
            }
        }
    }
    Ok(options)
}

fn parse(arguments: &[&str]) -> Outcome<Options> {
    let mut options = Options::default();
    let mut rest = arguments.iter();
    while let Some(name) = rest.next() {
        match *name {
            "--calls" => options.calls = number(name, &mut rest)?,
            "--rounds" => options.rounds = number(name, &mut rest)?,
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
        let options = surface_options(&["--calls", "5", "--programs", "x"]).unwrap();
        assert_eq!((options.calls, options.programs.as_deref()), (5, Some("x".as_ref())));
        for bad in [&["--programs"][..], &["--rounds", "0"], &["--peers-only"]] {
            assert!(surface_options(bad).is_err(), "{bad:?}");
        }
    }
}
