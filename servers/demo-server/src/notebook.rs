//! Notes as files: one markdown file per note in one folder.
//!
//! A note's name is a [`NoteName`], and a `NoteName` cannot hold a separator or a dot, so that joining it to the
//! folder cannot leave the folder. Symbolic links are not followed: only regular files are notes. A write goes to a
//! hidden file first and is renamed, so that a reader sees the old text or the new one.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The longest note, in bytes.
pub(crate) const MAX_NOTE_BYTES: u64 = 64 * 1024;
/// How many notes the folder may hold; keeps every list within one answer.
pub(crate) const MAX_NOTES: usize = 500;
const MAX_TAGS: usize = 16;
const MAX_TITLE_CHARS: usize = 120;

const SEEDS: [(&str, &str); 3] = [
    ("welcome", include_str!("../seeds/welcome.md")),
    ("one-call-ten-steps", include_str!("../seeds/one-call-ten-steps.md")),
    ("operator-checklist", include_str!("../seeds/operator-checklist.md")),
];

/// A note's name: 1 to 64 of `a-z`, `0-9` and `-`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NoteName(String);

impl NoteName {
    /// The name as text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for NoteName {
    type Err = NotebookError;

    fn from_str(text: &str) -> Result<Self, NotebookError> {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if (1..=64).contains(&text.len()) && text.bytes().all(allowed) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NotebookError::Name)
        }
    }
}

impl fmt::Display for NoteName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a note could not be had. The texts are what a tool's caller reads.
#[derive(Debug)]
pub(crate) enum NotebookError {
    /// The name is not a [`NoteName`].
    Name,
    /// There is no such note.
    Missing(NoteName),
    /// The note is, or would be, over 64 KiB.
    TooLong(NoteName),
    /// The folder holds its 500 notes already.
    Full,
    /// The file is there but is not a regular text file.
    Unreadable(NoteName),
    /// The disk refused.
    Disk(io::Error),
}

impl fmt::Display for NotebookError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => f.write_str("a note name is 1 to 64 of the characters a-z, 0-9 and -"),
            Self::Missing(name) => write!(f, "there is no note named {name}; notes_list shows what there is"),
            Self::TooLong(name) => write!(f, "the note {name} is over {MAX_NOTE_BYTES} bytes; split it"),
            Self::Full => write!(f, "the folder holds {MAX_NOTES} notes already"),
            Self::Unreadable(name) => write!(f, "the note {name} is not a plain UTF-8 file"),
            Self::Disk(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for NotebookError {}

impl From<io::Error> for NotebookError {
    fn from(error: io::Error) -> Self {
        Self::Disk(error)
    }
}

/// One note, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) name: NoteName,
    pub(crate) text: String,
}

impl Note {
    /// The first heading or first line, shortened; the name if there is neither.
    pub(crate) fn title(&self) -> String {
        let line =
            self.text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or(self.name.as_str());
        line.trim_start_matches('#').trim().chars().take(MAX_TITLE_CHARS).collect()
    }

    /// The `#words` of the text, sorted, each once. A heading is no tag: it has a space after its `#`.
    pub(crate) fn tags(&self) -> Vec<&str> {
        let mut tags: Vec<&str> = self.text.split_whitespace().filter_map(tag).collect();
        tags.sort_unstable();
        tags.dedup();
        tags.truncate(MAX_TAGS);
        tags
    }
}

fn tag(word: &str) -> Option<&str> {
    let tag = word.strip_prefix('#')?.trim_end_matches([',', '.', ';']);
    NoteName::from_str(tag).is_ok().then_some(tag)
}

/// The folder of notes.
#[derive(Debug)]
pub(crate) struct Notebook {
    folder: PathBuf,
}

impl Notebook {
    /// Opens `folder`, creating it if need be, and seeds it if it has no entry at all.
    pub(crate) fn open(folder: &Path) -> Result<Self, NotebookError> {
        fs::create_dir_all(folder)?;
        let notebook = Self { folder: folder.to_owned() };
        if fs::read_dir(folder)?.next().is_none() {
            for (name, text) in SEEDS {
                notebook.write(&name.parse()?, text)?;
            }
        }
        Ok(notebook)
    }

    /// The names of all notes, sorted. What is not a note (hidden, other endings, links) is not listed.
    pub(crate) fn names(&self) -> Result<Vec<NoteName>, NotebookError> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let file = entry.file_name();
            let name = file.to_str().and_then(|file| file.strip_suffix(".md")).map(NoteName::from_str);
            if let Some(Ok(name)) = name
                && entry.file_type()?.is_file()
            {
                names.push(name);
            }
        }
        names.sort_unstable();
        names.truncate(MAX_NOTES);
        Ok(names)
    }

    /// Every readable note, by name. One that cannot be read as text is left out rather than hiding the others.
    pub(crate) fn notes(&self) -> Result<Vec<Note>, NotebookError> {
        let names = self.names()?;
        Ok(names.iter().filter_map(|name| self.read(name).ok()).collect())
    }

    /// One note.
    pub(crate) fn read(&self, name: &NoteName) -> Result<Note, NotebookError> {
        let path = self.path(name);
        let metadata = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(NotebookError::Missing(name.clone()));
            }
            other => other?,
        };
        if !metadata.is_file() {
            return Err(NotebookError::Unreadable(name.clone()));
        }
        if metadata.len() > MAX_NOTE_BYTES {
            return Err(NotebookError::TooLong(name.clone()));
        }
        let text =
            String::from_utf8(fs::read(&path)?).map_err(|_| NotebookError::Unreadable(name.clone()))?;
        Ok(Note { name: name.clone(), text })
    }

    /// Writes a note whole, replacing an earlier one; says whether it is new.
    pub(crate) fn write(&self, name: &NoteName, text: &str) -> Result<bool, NotebookError> {
        if text.len() as u64 > MAX_NOTE_BYTES {
            return Err(NotebookError::TooLong(name.clone()));
        }
        let path = self.path(name);
        let created = !fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_file());
        if created && self.names()?.len() >= MAX_NOTES {
            return Err(NotebookError::Full);
        }
        let draft = self.folder.join(format!(".{name}.{}.draft", std::process::id()));
        fs::write(&draft, text)?;
        fs::rename(&draft, &path).inspect_err(|_| drop(fs::remove_file(&draft)))?;
        Ok(created)
    }

    fn path(&self, name: &NoteName) -> PathBuf {
        self.folder.join(format!("{name}.md"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_can_leave_the_folder() {
        for bad in ["", "..", "../x", "a/b", "a.b", "A", "ä", "a b", "a\0", &"a".repeat(65)] {
            assert!(bad.parse::<NoteName>().is_err(), "{bad:?}");
        }
        assert!("a".repeat(64).parse::<NoteName>().is_ok());
    }

    #[test]
    fn an_empty_folder_is_seeded_once_and_a_used_one_never() {
        let folder = tempfile::tempdir().unwrap();
        let notebook = Notebook::open(folder.path()).unwrap();
        let names = notebook.names().unwrap();
        assert_eq!(names.len(), 3);
        fs::remove_file(notebook.path(&names[0])).unwrap();
        assert_eq!(Notebook::open(folder.path()).unwrap().names().unwrap().len(), 2);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_out_of_the_folder_is_neither_listed_nor_read_and_a_write_replaces_only_the_link() {
        let folder = tempfile::tempdir().unwrap();
        let outside = folder.path().join("outside.txt");
        fs::write(&outside, "secret").unwrap();
        let notebook = Notebook::open(&folder.path().join("notes")).unwrap();
        std::os::unix::fs::symlink(&outside, folder.path().join("notes/link.md")).unwrap();
        let link: NoteName = "link".parse().unwrap();
        assert!(!notebook.names().unwrap().contains(&link));
        assert!(matches!(notebook.read(&link), Err(NotebookError::Unreadable(_))));
        assert!(notebook.write(&link, "mine").unwrap());
        assert_eq!(fs::read_to_string(outside).unwrap(), "secret");
        assert_eq!(notebook.read(&link).unwrap().text, "mine");
    }

    #[test]
    fn a_note_has_the_title_of_its_heading_and_the_tags_of_its_words() {
        let note = Note { name: "n".parse().unwrap(), text: "\n## A  title\n#b, #a #b #No # c".to_owned() };
        assert_eq!(note.title(), "A  title");
        assert_eq!(note.tags(), ["a", "b"]);
    }

    #[test]
    fn a_note_over_the_limit_is_refused_and_the_old_one_kept() {
        let folder = tempfile::tempdir().unwrap();
        let notebook = Notebook::open(folder.path()).unwrap();
        let name: NoteName = "welcome".parse().unwrap();
        let long = "x".repeat(64 * 1024 + 1);
        assert!(matches!(notebook.write(&name, &long), Err(NotebookError::TooLong(_))));
        assert!(notebook.read(&name).unwrap().text.starts_with("# Welcome"));
    }
}
