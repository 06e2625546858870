//! `portcullis connect CLIENT`: writes this gateway into an agent's own configuration, and takes it out again.
//!
//! What changes is shown first. The file as it was is kept beside it, and `--undo` puts it back byte for byte, unless
//! somebody changed it since.

pub(crate) mod client;
mod in_place;

use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use portcullis_core::scrub::scrub;
use portcullis_core::{ErrorCode, Sha256Digest};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::mcp::text;
use super::{Context, confirm};
use crate::cli::ConnectArgs;
use crate::failure::Failure;
use crate::output::visible;
use client::{Edited, Reach};

/// What `--undo` needs to know, kept in the home folder.
#[derive(Debug, Serialize, Deserialize)]
struct Connection {
    client: String,
    file: PathBuf,
    /// Where the file as it was is; nothing if there was none.
    backup: Option<PathBuf>,
    /// The file as we wrote it.
    written: Sha256Digest,
}

pub(super) fn run(context: &Context<'_>, args: &ConnectArgs) -> Result<ExitCode, Failure> {
    let file = match &args.file {
        Some(file) => file.clone(),
        None => {
            let user =
                std::env::home_dir().ok_or_else(|| Failure::field("file", "no home folder; give --file"))?;
            let here = std::env::current_dir().map_err(|error| Failure::field("file", error.to_string()))?;
            args.client.file(&user, &here)
        }
    };
    let file = std::path::absolute(&file).map_err(|error| at(&file, &error))?;
    let record = record_file(&context.home, &file);
    if args.undo { undo(context, args, &file, &record) } else { connect(context, args, &file, &record, &[]) }
}

/// Writes this gateway into a client's file in place of servers that it governs now.
pub(super) fn without(
    context: &Context<'_>,
    args: &ConnectArgs,
    governed: &[String],
) -> Result<ExitCode, Failure> {
    let file = args.file.clone().ok_or_else(|| Failure::field("file", "no file"))?;
    connect(context, args, &file, &record_file(&context.home, &file), governed)
}

fn connect(
    context: &Context<'_>,
    args: &ConnectArgs,
    file: &Path,
    record: &Path,
    governed: &[String],
) -> Result<ExitCode, Failure> {
    let before = match std::fs::read(file) {
        Ok(bytes) => Some(bytes),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(at(file, &error)),
    };
    let old = std::str::from_utf8(before.as_deref().unwrap_or_default())
        .map_err(|_| Failure::field("file", format!("{} is not UTF-8", file.display())))?;
    let program = std::env::current_exe().map_err(|error| Failure::unavailable(error.to_string()))?;
    let url = format!("http://{}/mcp", context.config.listen(None));
    let reach = Reach { url, program, home: context.home.clone() };
    let Edited { text: new, others } = (args.client.edit(old, &args.name, &reach, governed))
        .map_err(|reason| Failure::field("file", format!("{} is left as it is: {reason}", file.display())))?;
    if new == old {
        let value = json!({"client": args.client.as_str(), "file": file, "state": "connected already"});
        context.output.result(&value, |_| format!("{} is connected already", args.client.as_str()));
        return Ok(ExitCode::SUCCESS);
    }
    context.output.say(preview(file, old, &new));
    if args.dry_run {
        let value =
            json!({"client": args.client.as_str(), "file": file, "state": "not written", "content": new});
        context.output.result(&value, |_| "nothing was written".into());
        return Ok(ExitCode::SUCCESS);
    }
    if !args.yes && confirm("Write it?") != Some(true) {
        return Err(Failure::field("yes", "nothing was written; give --yes where nobody can be asked"));
    }
    let previous = read_record(record);
    let backup = match (&previous, &before) {
        // The file as it was before us, not as we left it.
        (Some(previous), _) => previous.backup.clone(),
        (None, Some(bytes)) => Some(keep_beside(file, bytes)?),
        (None, None) => None,
    };
    let connection = Connection {
        client: args.client.as_str().into(),
        file: file.to_owned(),
        backup: backup.clone(),
        written: Sha256Digest::of(new.as_bytes()),
    };
    // Known first, so that a crash between the two leaves nothing that cannot be undone.
    if let Some(folder) = record.parent() {
        std::fs::create_dir_all(folder).map_err(|error| at(folder, &error))?;
    }
    replace(record, &serde_json::to_vec(&connection).unwrap_or_default(), 0o600)?;
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).map_err(|error| at(folder, &error))?;
    }
    replace(file, new.as_bytes(), mode_of(file))?;
    let value = json!({
        "client": args.client.as_str(), "file": file, "backup": backup, "others": others, "state": "connected",
    });
    context.output.result(&value, |value| render(args, value));
    Ok(ExitCode::SUCCESS)
}

fn undo(context: &Context<'_>, args: &ConnectArgs, file: &Path, record: &Path) -> Result<ExitCode, Failure> {
    let connection = read_record(record).ok_or_else(|| {
        let message = format!("{} was not connected from here", file.display());
        Failure::new(ErrorCode::NotFound, message)
    })?;
    let now = std::fs::read(file).map_err(|error| at(file, &error))?;
    if Sha256Digest::of(&now) != connection.written {
        let kept = connection.backup.as_ref().map(|path| format!("; as it was it is in {}", path.display()));
        let message = format!(
            "{} was changed since, so it is left as it is{}",
            file.display(),
            kept.unwrap_or_default()
        );
        return Err(Failure::new(ErrorCode::Conflict, message));
    }
    match &connection.backup {
        Some(backup) => {
            let before = std::fs::read(backup).map_err(|error| at(backup, &error))?;
            replace(file, &before, mode_of(file))?;
            std::fs::remove_file(backup).map_err(|error| at(backup, &error))?;
        }
        None => std::fs::remove_file(file).map_err(|error| at(file, &error))?,
    }
    std::fs::remove_file(record).map_err(|error| at(record, &error))?;
    let value = json!({"client": args.client.as_str(), "file": file, "state": "as it was"});
    context.output.result(&value, |value| format!("{} is as it was", text(&value["file"])));
    Ok(ExitCode::SUCCESS)
}

fn render(args: &ConnectArgs, value: &Value) -> String {
    let client = args.client;
    let mut lines =
        vec![format!("{} reaches its servers through this gateway once it is restarted", client.as_str())];
    if let Some(backup) = value["backup"].as_str() {
        lines.push(format!("the file as it was: {backup}"));
    }
    let others: Vec<String> =
        value["others"].as_array().into_iter().flatten().map(|other| visible(&text(other))).collect();
    if !others.is_empty() {
        lines.push(format!(
            "it still reaches {} without governance: register them with `portcullis mcp add`, then remove \
them there",
            others.join(", ")
        ));
    }
    let file = args.file.as_ref().map(|file| format!(" --file {}", file.display())).unwrap_or_default();
    lines.push(format!("take it back: portcullis connect {}{file} --undo", client.as_str()));
    lines.join("\n")
}

/// The lines that go and the lines that come.
fn preview(file: &Path, old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let same = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let rest = old[same..].iter().rev().zip(new[same..].iter().rev()).take_while(|(a, b)| a == b).count();
    let mut lines = vec![file.display().to_string()];
    // What others keep in there may be secret, and a terminal is no place for it.
    let shown = |sign: char, line: &&str| format!("{sign} {}", visible(&scrub(line)));
    lines.extend(old[same..old.len() - rest].iter().map(|line| shown('-', line)));
    lines.extend(new[same..new.len() - rest].iter().map(|line| shown('+', line)));
    lines.join("\n")
}

fn at(path: &Path, error: &std::io::Error) -> Failure {
    Failure::field("file", format!("{}: {error}", path.display()))
}

fn record_file(home: &Path, file: &Path) -> PathBuf {
    let name = Sha256Digest::of(file.as_os_str().as_encoded_bytes()).to_string();
    home.join("state/connections").join(format!("{}.json", &name[..16]))
}

fn read_record(record: &Path) -> Option<Connection> {
    serde_json::from_slice(&std::fs::read(record).ok()?).ok()
}

fn mode_of(file: &Path) -> u32 {
    // A new file may come to hold secrets of others.
    std::fs::metadata(file).map_or(0o600, |metadata| metadata.permissions().mode() & 0o777)
}

/// Keeps a file as it is, under a name that is free.
fn keep_beside(file: &Path, bytes: &[u8]) -> Result<PathBuf, Failure> {
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for number in 0_u32.. {
        let suffix = if number == 0 { String::new() } else { format!(".{number}") };
        let backup = file.with_file_name(format!("{name}.before-portcullis{suffix}"));
        let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode_of(file)).open(&backup);
        match made {
            Ok(mut out) => {
                out.write_all(bytes).and_then(|()| out.sync_all()).map_err(|error| at(&backup, &error))?;
                return Ok(backup);
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(at(&backup, &error)),
        }
    }
    Err(Failure::field("file", "no name is free for the file as it was"))
}

/// Whole or not at all: another file first, then its name.
fn replace(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Failure> {
    // A link is followed, so that what it names changes and not the link.
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let aside = path.with_file_name(format!(".{name}.{}.new", std::process::id()));
    let write = || -> std::io::Result<()> {
        let mut out = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&aside)?;
        out.write_all(bytes)?;
        out.set_permissions(std::fs::Permissions::from_mode(mode))?;
        out.sync_all()?;
        std::fs::rename(&aside, &path)
    };
    write().map_err(|error| {
        let _ = std::fs::remove_file(&aside);
        at(&path, &error)
    })
}
