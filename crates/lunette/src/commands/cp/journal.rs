//! The journal: which copy was under way, and how far it is durable.
//!
//! It is a file of `key=value` lines under a headline. It is replaced as a whole (written beside, synchronized,
//! renamed), so at any moment it is an old or a new one, and it never promises more than is on stable storage.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use lunette_files::{Content, Reason};

use crate::failure::Failure;

const HEADLINE: &str = "lunette cp journal 1";

/// A journal, as far as it is read.
const JOURNAL: Content = Content { name: "a journal of a copy", max_bytes: 4096 };

/// The content of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The identity of the source.
    pub(crate) source: String,
    /// The identity of the destination.
    pub(crate) destination: String,
    /// Whether everything before `done` was read back and compared.
    pub(crate) verified: bool,
    /// Bytes from the start that are copied and durable.
    pub(crate) done: u64,
}

impl Entry {
    fn to_text(&self) -> String {
        let Self { source, destination, verified, done } = self;
        format!("{HEADLINE}\nsource={source}\ndestination={destination}\nverified={verified}\ndone={done}\n")
    }

    fn parse(text: &str) -> Option<Self> {
        // A journal that was cut short lacks its last line end.
        let mut lines = text.strip_suffix('\n')?.split('\n');
        (lines.next()? == HEADLINE).then_some(())?;
        let mut value = |key: &str| lines.next()?.strip_prefix(key)?.strip_prefix('=').map(str::to_owned);
        let entry = Self {
            source: value("source")?,
            destination: value("destination")?,
            verified: value("verified")?.parse().ok()?,
            done: value("done")?.parse().ok()?,
        };
        lines.next().is_none().then_some(entry)
    }
}

/// The file of the journal.
#[derive(Debug)]
pub(crate) struct Journal(PathBuf);

impl Journal {
    pub(crate) fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// The default journal of a copy to `destination`, in the same folder.
    pub(crate) fn beside(destination: &Path) -> Self {
        let mut name = destination.as_os_str().to_owned();
        name.push(".lunette-cp");
        Self(name.into())
    }

    /// Reads the journal of an earlier run; `None` when there is none.
    pub(crate) fn read(&self) -> Result<Option<Entry>, Failure> {
        let text = match lunette_files::read_text(&self.0, JOURNAL) {
            Ok(text) => text,
            Err(problem) if problem.is_missing() => return Ok(None),
            Err(problem) => match problem.reason {
                // Whatever this is, it is no journal, and the message below says what to do.
                Reason::TooLong | Reason::NotText(_) => String::new(),
                _ => return Err(Failure::Other(problem.to_string())),
            },
        };
        let what = || format!("{}: this is no journal of a copy; remove it, or name another", self.0.display());
        Entry::parse(&text).map(Some).ok_or_else(|| Failure::Other(what()))
    }

    /// Replaces the journal.
    pub(crate) fn write(&self, entry: &Entry) -> Result<(), Failure> {
        let mut beside = self.0.as_os_str().to_owned();
        beside.push(".new");
        let beside = PathBuf::from(beside);
        let written = File::create(&beside)
            .and_then(|mut file| file.write_all(entry.to_text().as_bytes()).and_then(|()| file.sync_all()))
            .and_then(|()| fs::rename(&beside, &self.0))
            .and_then(|()| self.sync_folder());
        written.map_err(|error| self.failure("write", &error))
    }

    /// Removes the journal: the copy is complete, or starts over, and an old entry would be wrong.
    pub(crate) fn remove(&self) -> Result<(), Failure> {
        // On a file system that is mounted read only, removing what is not there is an error, too.
        if fs::symlink_metadata(&self.0).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Ok(());
        }
        match fs::remove_file(&self.0) {
            Ok(()) => self.sync_folder().map_err(|error| self.failure("remove", &error)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(self.failure("remove", &error)),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    fn sync_folder(&self) -> io::Result<()> {
        let folder = self.0.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()
    }

    fn failure(&self, action: &str, error: &io::Error) -> Failure {
        Failure::Other(format!(
            "{}: cannot {action} the journal of the copy: {error}{}",
            self.0.display(),
            lunette_files::remedy(error)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry { source: "file 1 2".into(), destination: "file 1 3".into(), verified: true, done: 1 << 40 }
    }

    #[test]
    fn what_is_written_is_read_until_it_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::beside(&folder.path().join("disk"));
        assert_eq!(journal.read().unwrap(), None);
        for done in [0, 5] {
            journal.write(&Entry { done, ..entry() }).unwrap();
            assert_eq!(journal.read().unwrap(), Some(Entry { done, ..entry() }));
        }
        journal.remove().unwrap();
        journal.remove().unwrap();
        assert_eq!(journal.read().unwrap(), None);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_journal_that_is_cut_anywhere_is_refused() {
        let text = entry().to_text();
        assert_eq!(Entry::parse(&text), Some(entry()));
        for cut in 0..text.len() {
            assert_eq!(Entry::parse(&text[..cut]), None, "{cut}");
        }
        assert_eq!(Entry::parse(&format!("{text}x=y\n")), None);
    }
}
