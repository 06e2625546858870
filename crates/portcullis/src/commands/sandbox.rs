//! `portcullis sandbox …`: what this machine can confine, and trying it.

use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

use portcullis_core::ErrorCode;
use portcullis_sandbox::{Access, FsScope, LaunchError, Launcher, Profile, doctor};
use serde_json::{Value, json};

use super::mcp::text;
use crate::cli::{SandboxCommand, SandboxRunArgs};
use crate::failure::Failure;
use crate::output::{Output, table};

pub(super) fn run(output: &Output, command: &SandboxCommand) -> Result<ExitCode, Failure> {
    match command {
        SandboxCommand::Doctor => examine(output),
        SandboxCommand::Run(args) => confine(args),
        _ => unreachable!("asks the gateway"),
    }
}

fn launcher() -> Result<Launcher, Failure> {
    Launcher::own().map_err(|error| Failure::unavailable(format!("cannot find this program: {error}")))
}

fn examine(output: &Output) -> Result<ExitCode, Failure> {
    let own = std::env::current_exe().and_then(std::fs::canonicalize);
    let own = own.map_err(|error| Failure::unavailable(format!("cannot find this program: {error}")))?;
    let diagnosis = json!(doctor::examine(&launcher()?, &own));
    output.result(&diagnosis, render);
    Ok(if diagnosis["verdict"] == "blocked" { ExitCode::from(7) } else { ExitCode::SUCCESS })
}

fn render(diagnosis: &Value) -> String {
    let facilities = diagnosis["facilities"].as_array().map(Vec::as_slice).unwrap_or_default();
    let rows = facilities.iter().map(|facility| {
        let fix = facility["fix"].as_str().map(|fix| format!("→ {fix}")).unwrap_or_default();
        vec![text(&facility["name"]), text(&facility["status"]), text(&facility["detail"]), fix]
    });
    let verdict = match diagnosis["verdict"].as_str() {
        Some("enforceable") => "Programs can be confined here.",
        Some("degraded") => {
            "Programs can be confined here; something weaker takes the place of what is degraded."
        }
        _ => "Programs cannot be confined here, so none would be started.",
    };
    format!("{}\n\n{verdict}", table(&["facility", "status", "found", ""], rows.collect()))
}

/// Runs a command under a profile made of flags, its streams being ours.
fn confine(args: &SandboxRunArgs) -> Result<ExitCode, Failure> {
    let (command, rest) = args.command.split_first().expect("clap wants at least one");
    let mut profile = Profile::bare(real("command", Path::new(command))?, rest.to_vec());
    let scopes = |paths: &[PathBuf], access| {
        paths
            .iter()
            .map(|path| Ok(FsScope { path: real("path", path)?, access }))
            .collect::<Result<Vec<_>, Failure>>()
    };
    profile.fs = [scopes(&args.ro, Access::Ro)?, scopes(&args.rw, Access::Rw)?].concat();
    profile.artifacts = args.artifact.iter().map(|path| real("artifact", path)).collect::<Result<_, _>>()?;
    profile.exec = args.exec.iter().map(|path| real("exec", path)).collect::<Result<_, _>>()?;
    if let Some(cwd) = &args.cwd {
        profile.cwd = real("cwd", cwd)?;
    }
    for assignment in &args.env {
        let (name, value) = assignment
            .split_once('=')
            .ok_or_else(|| Failure::field("env", format!("{assignment} is not NAME=VALUE")))?;
        profile.env.insert(name.into(), value.into());
    }
    profile.limits.memory = args.memory.unwrap_or(profile.limits.memory >> 20) << 20;
    profile.limits.pids = args.pids.unwrap_or(profile.limits.pids);
    let mut caged = launcher()?
        .launch(&profile, Stdio::inherit(), Stdio::inherit(), Stdio::inherit())
        .map_err(refused)?;
    let status = caged
        .child
        .wait()
        .map_err(|error| Failure::new(ErrorCode::Internal, format!("cannot wait for it: {error}")))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Ok(ExitCode::from(code))
}

/// Paths are used as they are, so links are resolved now, by whoever typed them.
fn real(field: &str, path: &Path) -> Result<PathBuf, Failure> {
    std::fs::canonicalize(path).map_err(|error| Failure::field(field, format!("{}: {error}", path.display())))
}

fn refused(error: LaunchError) -> Failure {
    let facility = match &error {
        LaunchError::Facility { facility, .. } => Some(facility.clone()),
        LaunchError::Io(_) => None,
    };
    let mut failure = Failure::unavailable(format!("{error}; `portcullis sandbox doctor` says more"));
    failure.details = facility.map(|facility| json!({"code": "MP-FH-007", "facility": facility}));
    failure
}
