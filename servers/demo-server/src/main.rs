//! The notes server as a program of its own. All of it is in the library, which the `portcullis` binary embeds.

use std::process::ExitCode;

fn main() -> ExitCode {
    demo_server::run(std::env::args_os())
}
