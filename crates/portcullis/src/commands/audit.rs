//! `portcullis audit …`: reading and verifying the evidence, without a lock and without a gateway; and what only an
//! operator may take out of it, through the control plane, which records it first.

mod custody;
mod export;
mod log;
mod replay;
mod retention;
mod show;
mod verify;

use std::path::PathBuf;
use std::process::ExitCode;

use portcullis_audit::AuditError;
use portcullis_core::ErrorCode;

use super::Context;
use crate::cli::AuditCommand;
use crate::failure::Failure;

pub(super) async fn run(context: &Context<'_>, command: &AuditCommand) -> Result<ExitCode, Failure> {
    let dir = |dir: &Option<PathBuf>| dir.clone().unwrap_or_else(|| context.home.join("audit"));
    match command {
        AuditCommand::Log(args) => log::run(context, args, &dir(&args.dir)).await,
        AuditCommand::Verify(args) => verify::run(context, args),
        AuditCommand::Show(args) => show::run(context, args, &dir(&args.dir)).await,
        AuditCommand::Retention(command) => retention::run(context, command).await,
        AuditCommand::Unblock { reason } => custody::unblock(context, reason).await,
        AuditCommand::RotateSigner { reason } => custody::rotate_signer(context, reason).await,
        AuditCommand::RebuildIndex => custody::rebuild_index(context).await,
        AuditCommand::Replay(args) => replay::run(context, args).await,
        AuditCommand::Export(args) => export::run(context, args).await,
    }
}

pub(crate) fn unreadable(error: &AuditError) -> Failure {
    let failure = Failure::new(error.code(), error.to_string());
    // Evidence that belongs to another user is not unreadable, it is not ours to read.
    if failure.code == ErrorCode::OperatorAuth.as_str() { failure } else { Failure { exit: 5, ..failure } }
}
