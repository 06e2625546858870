//! What clients put in the place of `${…}` before they start a server: folders, and who the user is.
//!
//! Only what is known here and is no secret is put in. What a client asks its user for, and variables that may hold anything,
//! stay as they are, and are treated as the secrets that they mostly are.

use std::path::{Path, PathBuf};

use super::entries::{Entry, How};

/// Variables of the user's that tell nothing but who and where that is.
const PLAIN: [&str; 4] = ["HOME", "USER", "LOGNAME", "LANG"];

/// Where a configuration is, and whose.
pub(super) struct Surroundings {
    /// The project it belongs to; none if it is the user's for all projects.
    workspace: Option<PathBuf>,
    home: Option<PathBuf>,
}

impl Surroundings {
    /// Those of a file.
    pub(super) fn of(file: &Path) -> Self {
        let home = std::env::home_dir();
        let folder = file.parent().unwrap_or(Path::new("/"));
        let own = folder.file_name().is_some_and(|name| name == ".vscode" || name == ".cursor");
        let project = if own { folder.parent() } else { Some(folder) };
        let is_project = own || file.file_name().is_some_and(|name| name == ".mcp.json");
        let workspace = project.filter(|project| is_project && Some(*project) != home.as_deref());
        Self { workspace: workspace.map(Path::to_owned), home }
    }

    /// The entry as the client would have it.
    pub(super) fn filled(&self, mut entry: Entry) -> Entry {
        let fill = |text: &mut String| *text = self.fill(text);
        match &mut entry.how {
            How::Stdio { command, args, env } => {
                fill(command);
                args.iter_mut().for_each(fill);
                env.values_mut().for_each(fill);
            }
            How::Http { url, .. } | How::Sse { url, .. } => fill(url),
        }
        entry
    }

    fn fill(&self, text: &str) -> String {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once("${") {
            let Some((name, after)) = behind.split_once('}') else { break };
            filled.push_str(before);
            match self.value(name) {
                Some(value) => filled.push_str(&value),
                None => filled.push_str(&format!("${{{name}}}")),
            }
            rest = after;
        }
        filled.push_str(rest);
        filled
    }

    fn value(&self, name: &str) -> Option<String> {
        let shown = |path: &Option<PathBuf>| path.as_ref()?.to_str().map(ToOwned::to_owned);
        match name {
            "workspaceFolder" | "workspaceRoot" => shown(&self.workspace),
            "workspaceFolderBasename" => {
                self.workspace.as_ref()?.file_name()?.to_str().map(ToOwned::to_owned)
            }
            "userHome" => shown(&self.home),
            "pathSeparator" | "/" => Some("/".into()),
            _ => {
                let name = name.strip_prefix("env:").unwrap_or(name);
                let (name, otherwise) = match name.split_once(":-") {
                    Some((name, otherwise)) => (name, Some(otherwise)),
                    None => (name, None),
                };
                let set = std::env::var(name).ok();
                let known = set.clone().filter(|_| PLAIN.contains(&name));
                known.or_else(|| otherwise.filter(|_| set.is_none()).map(ToOwned::to_owned))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_put_in_and_what_may_be_a_secret_is_not() {
        // GOV-1401, T-IMP-1
        let here = Surroundings::of(Path::new("/srv/project/.vscode/mcp.json"));
        let home = std::env::var("HOME").unwrap();
        for (text, filled) in [
            ("${workspaceFolder}/docs", "/srv/project/docs".to_owned()),
            ("--name=${workspaceFolderBasename}", "--name=project".into()),
            ("${HOME}${/}x ${env:HOME}", format!("{home}/x {home}")),
            ("${PORTCULLIS_NOT_SET:-/srv/other}", "/srv/other".into()),
            ("${input:token}", "${input:token}".into()),
            ("${env:PATH}", "${env:PATH}".into()),
            ("${PATH:-/x}", "${PATH:-/x}".into()),
            ("${open", "${open".into()),
            ("plain", "plain".into()),
        ] {
            assert_eq!(here.fill(text), filled, "{text}");
        }
        // What holds for all projects belongs to none.
        let user = Path::new(&home).join(".cursor/mcp.json");
        assert_eq!(Surroundings::of(&user).fill("${workspaceFolder}"), "${workspaceFolder}");
        assert_eq!(Surroundings::of(Path::new("/srv/p/.mcp.json")).fill("${workspaceFolder}"), "/srv/p");
    }
}
