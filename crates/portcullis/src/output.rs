//! What is printed: results to stdout, everything else to stderr.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use comfy_table::{ContentArrangement, Table, presets};
use owo_colors::OwoColorize as _;
use serde_json::{Value, json};

use crate::cli::{Cli, Format};
use crate::failure::Failure;

/// How to print.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    pub(crate) format: Format,
    quiet: bool,
    colour: bool,
}

impl Output {
    pub(crate) fn new(cli: &Cli) -> Self {
        let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { format: cli.global.output, quiet: cli.global.quiet, colour }
    }

    /// The same in another format.
    pub(crate) fn with_format(self, format: Format) -> Self {
        Self { format, ..self }
    }

    /// A result: JSON as it is, or the text made for people.
    pub(crate) fn result(&self, value: &Value, text: impl FnOnce(&Value) -> String) {
        let rendered = match (self.format, value) {
            (Format::Text, value) => text(value),
            (Format::Json, value) => serde_json::to_string_pretty(value).unwrap_or_default(),
            (Format::Ndjson, Value::Array(items)) => {
                items.iter().map(Value::to_string).collect::<Vec<_>>().join("\n")
            }
            (Format::Ndjson, value) => value.to_string(),
        };
        if !rendered.is_empty() {
            // A closed pipe (`| head`) is no failure of ours.
            let _ = writeln!(std::io::stdout(), "{}", rendered.trim_end_matches('\n'));
        }
    }

    /// A file, as it is.
    pub(crate) fn bytes(&self, text: &str) {
        let _ = std::io::stdout().write_all(text.as_bytes());
    }

    /// A line for people that is not the result.
    pub(crate) fn say(&self, line: impl AsRef<str>) {
        if !self.quiet && self.format == Format::Text {
            let _ = writeln!(std::io::stdout(), "{}", line.as_ref());
        }
    }

    /// A line of progress or warning, which never mixes with results.
    pub(crate) fn note(&self, line: impl AsRef<str>) {
        if !self.quiet {
            let _ = writeln!(std::io::stderr(), "{}", line.as_ref());
        }
    }

    /// The end of a command that failed.
    pub(crate) fn failure(&self, failure: &Failure) -> ExitCode {
        if self.format == Format::Text {
            let rendered = failure.details.as_ref().and_then(|details| details["rendered"].as_str());
            let text = rendered.map_or_else(|| plain(failure), ToOwned::to_owned);
            let _ = writeln!(std::io::stderr(), "{}", text.trim_end());
        } else {
            let mut error = json!({"code": failure.code, "message": failure.message, "field": failure.field});
            if let Some(details) =
                failure.details.as_ref().filter(|details| details.get("rendered").is_none())
            {
                error["details"] = details.clone();
            }
            let _ = writeln!(std::io::stdout(), "{}", json!({"error": error}));
        }
        ExitCode::from(failure.exit)
    }

    pub(crate) fn bold(&self, text: &str) -> String {
        if self.colour { text.bold().to_string() } else { text.to_owned() }
    }

    pub(crate) fn dim(&self, text: &str) -> String {
        if self.colour { text.dimmed().to_string() } else { text.to_owned() }
    }

    pub(crate) fn bad(&self, text: &str) -> String {
        if self.colour { text.red().to_string() } else { text.to_owned() }
    }

    pub(crate) fn good(&self, text: &str) -> String {
        if self.colour { text.green().to_string() } else { text.to_owned() }
    }
}

/// The message, with the flag or field that is at fault unless the message names it itself.
fn plain(failure: &Failure) -> String {
    match failure.field.as_deref() {
        Some(field) if !failure.message.contains(field) => format!("error: {field}: {}", failure.message),
        _ => format!("error: {}", failure.message),
    }
}

/// A plain table.
pub(crate) fn table(head: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(head.iter().map(|cell| cell.to_uppercase()));
    table.add_rows(rows);
    let text = table.to_string();
    text.lines().map(|line| line.trim_end().strip_prefix(' ').unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

/// Text from a server or an agent, made visible: control, bidi and other invisible characters as escapes.
pub(crate) fn visible(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' => "\\n".to_owned(),
            c if c.is_control()
                || portcullis_core::name::has_visible_character(&c.to_string())
                || c == ' ' =>
            {
                if c.is_control() {
                    c.escape_default().to_string()
                } else {
                    c.to_string()
                }
            }
            c => c.escape_unicode().to_string(),
        })
        .collect()
}
