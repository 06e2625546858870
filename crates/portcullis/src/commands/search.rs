//! `portcullis search embeddings …`: a table that finds by meaning, put in place and taken away again (CAT-69a).
//!
//! The table is copied into the home folder under its own digest, and named in the configuration with that digest: what ranks
//! tools decides what a model sees, so a table that changed is not used. The configuration is edited as text, so that comments
//! stay, and written only if it then says exactly what it said before and this.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::ExitCode;

use portcullis_catalog::{SemanticScorer as _, StaticTable};
use serde_json::json;

use super::Context;
use crate::cli::EmbeddingsCommand;
use crate::failure::Failure;

const SECTION: &str = "[search]";
const KEY: &str = "embeddings";

pub(super) fn embeddings(context: &Context<'_>, command: &EmbeddingsCommand) -> Result<ExitCode, Failure> {
    match command {
        EmbeddingsCommand::Install { file } => install(context, file),
        EmbeddingsCommand::Remove => remove(context),
    }
}

/// Says once, to somebody who has none, that there are such tables.
pub(super) fn mention(context: &Context<'_>) {
    let mentioned = context.home.join("embeddings/mentioned");
    if context.config.search.has_embeddings() || mentioned.exists() {
        return;
    }
    context.output.say(
        "\nAgents find tools by words. To have them found by meaning too (“who owes us money” finds list_invoices), run\n  \
         cargo xtask embeddings                      in a checkout: fetches and converts a table of 8 MB\n  \
         portcullis search embeddings install FILE   puts it in place",
    );
    let folder = mentioned.parent().map(private_folder);
    if matches!(folder, Some(Ok(()))) {
        let _ = fs::write(mentioned, "");
    }
}

fn install(context: &Context<'_>, file: &Path) -> Result<ExitCode, Failure> {
    let fail = |problem: String| Failure::field("file", format!("{}: {problem}", file.display()));
    let bytes = fs::read(file).map_err(|error| fail(error.to_string()))?;
    let table = StaticTable::parse(&bytes, None).map_err(|error| fail(error.to_string()))?;
    let place = context.home.join("embeddings").join(format!("{}.pclemb", table.digest()));
    let entry = format!(
        "{KEY} = {{ path = {}, sha256 = \"{}\" }}",
        toml::Value::String(place.display().to_string()),
        table.digest()
    );
    let text = configured(context)?;
    let edited = with_entry(&text, Some(&entry)).map_err(|problem| unedited(context, &problem, &entry))?;
    keep(&place, &bytes).map_err(|error| Failure::unavailable(format!("{}: {error}", place.display())))?;
    write_config(context, &text, &edited)?;
    let value = json!({
        "file": place, "sha256": table.digest(), "pieces": table.pieces(), "dimensions": table.dim(),
        "config": context.config_file,
    });
    context.output.result(&value, |_| {
        format!(
            "installed {} pieces of {} dimensions\n  {}\n  named in {}\nA running gateway uses it after a restart.",
            table.pieces(),
            table.dim(),
            place.display(),
            context.config_file.display()
        )
    });
    Ok(ExitCode::SUCCESS)
}

fn remove(context: &Context<'_>) -> Result<ExitCode, Failure> {
    let text = configured(context)?;
    let edited = with_entry(&text, None).map_err(|problem| unedited(context, &problem, "no embeddings"))?;
    let was_there = edited != text;
    write_config(context, &text, &edited)?;
    context.output.result(
        &json!({"removed": was_there, "config": context.config_file}),
        |_| match was_there {
            true => "search goes by words alone; a running gateway does after a restart".to_owned(),
            false => "there was no table: search goes by words alone".to_owned(),
        },
    );
    Ok(ExitCode::SUCCESS)
}

fn configured(context: &Context<'_>) -> Result<String, Failure> {
    match fs::read_to_string(&context.config_file) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(Failure::field("config", format!("{}: {error}", context.config_file.display()))),
    }
}

fn unedited(context: &Context<'_>, problem: &str, entry: &str) -> Failure {
    let file = context.config_file.display();
    Failure::field(
        "config",
        format!("{file} is left as it is: {problem}; write under {SECTION} yourself: {entry}"),
    )
}

/// The same configuration with this entry in `[search]`, or without any.
fn with_entry(text: &str, entry: Option<&str>) -> Result<String, String> {
    let mut lines: Vec<&str> = text.lines().collect();
    let section = lines.iter().position(|line| line.trim() == SECTION);
    let key_of = |line: &str| line.split('=').next().unwrap_or_default().trim() == KEY;
    let known = section.and_then(|start| {
        let end = lines[start + 1..].iter().position(|line| line.trim_start().starts_with('['));
        let end = end.map_or(lines.len(), |length| start + 1 + length);
        (start + 1..end).find(|at| key_of(lines[*at]))
    });
    match (known, section, entry) {
        (Some(at), _, Some(entry)) => lines[at] = entry,
        (Some(at), _, None) => drop(lines.remove(at)),
        (None, Some(start), Some(entry)) => lines.insert(start + 1, entry),
        (None, None, Some(entry)) => {
            if lines.last().is_some_and(|line| !line.is_empty()) {
                lines.push("");
            }
            lines.extend([SECTION, entry]);
        }
        (None, _, None) => return Ok(text.to_owned()),
    }
    let edited = lines.join("\n") + "\n";
    if meant(text, entry)? == parsed(&edited)? {
        Ok(edited)
    } else {
        Err("its [search] is written in another way".into())
    }
}

fn parsed(text: &str) -> Result<toml::Table, String> {
    text.parse().map_err(|error: toml::de::Error| error.message().to_owned())
}

/// What the configuration says, with this entry instead of what it has.
fn meant(text: &str, entry: Option<&str>) -> Result<toml::Table, String> {
    let mut table = parsed(text)?;
    let search = table.entry("search").or_insert_with(|| toml::Table::new().into());
    let search = search.as_table_mut().ok_or("search is not a table")?;
    search.remove(KEY);
    if let Some(entry) = entry {
        search.extend(parsed(entry)?);
    }
    Ok(table)
}

fn keep(place: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = place.parent() {
        private_folder(folder)?;
    }
    replace(place, bytes, 0o400)
}

fn private_folder(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))
}

fn write_config(context: &Context<'_>, old: &str, new: &str) -> Result<(), Failure> {
    if old == new {
        return Ok(());
    }
    let file = &context.config_file;
    let mode = fs::metadata(file).map_or(0o600, |metadata| metadata.permissions().mode() & 0o777);
    replace(file, new.as_bytes(), mode)
        .map_err(|error| Failure::unavailable(format!("{}: {error}", file.display())))
}

/// The old file or the new one, never half of it.
fn replace(file: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut temporary = file.as_os_str().to_owned();
    temporary.push(".new");
    let _ = fs::remove_file(&temporary);
    let mut writer = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
    writer.write_all(bytes)?;
    writer.sync_all()?;
    fs::rename(&temporary, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: &str = "embeddings = { path = \"/x\", sha256 = \"00\" }";

    #[test]
    fn an_entry_goes_where_it_belongs_and_nothing_else_moves() {
        // CAT-69a
        for (before, after) in [
            ("", format!("[search]\n{ENTRY}\n")),
            ("# mine\n[browse]\ntop_k = 5\n", format!("# mine\n[browse]\ntop_k = 5\n\n[search]\n{ENTRY}\n")),
            ("[search]\nfamily_max = 2 # why\n", format!("[search]\n{ENTRY}\nfamily_max = 2 # why\n")),
            ("[search]\nembeddings = {}\n[browse]\n", format!("[search]\n{ENTRY}\n[browse]\n")),
        ] {
            assert_eq!(with_entry(before, Some(ENTRY)).unwrap(), after);
        }
        assert_eq!(with_entry(&format!("[search]\n{ENTRY}\n"), None).unwrap(), "[search]\n");
        assert_eq!(with_entry("[browse]\n", None).unwrap(), "[browse]\n");
    }

    #[test]
    fn what_is_written_in_another_way_is_left_alone() {
        // CAT-69a
        for text in [
            "search.family_max = 2\n",
            "search = { family_max = 2 }\n",
            "[search.embeddings]\npath = \"/y\"\nsha256 = \"11\"\n",
        ] {
            assert!(with_entry(text, Some(ENTRY)).is_err(), "{text}");
        }
    }
}
