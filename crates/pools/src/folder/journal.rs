//! The redo log of a change that consists of several operations.
//!
//! The change holds from the moment in which the log has its name on stable storage. An opening that finds the log
//! makes the change again. So each operation of a change may be made twice.

use std::collections::BTreeSet;
use std::io;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::files::Files;
use super::layout;
use crate::name::Name;

/// The version of the log that this program reads and writes.
const VERSION: u32 = 1;

/// A change that consists of several operations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Journal {
    /// Files get other names.
    Moves(Vec<Move>),
    /// A volume gets the content of its snapshot.
    RollBack { volume: Name, snapshot: Name },
}

/// A file that gets another name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Move {
    pub(super) from: PathBuf,
    pub(super) to: PathBuf,
}

/// The file of the log. The checksum is that of the change's text: a log that something else has damaged is not used.
#[derive(Serialize, Deserialize)]
struct LogFile {
    version: u32,
    crc32c: u32,
    change: String,
}

impl Journal {
    /// The log that the pool has, if it has one.
    ///
    /// # Errors
    ///
    /// The system's, or of the kind `InvalidData` with the remedy.
    pub(super) fn read<F: Files>(files: &F) -> io::Result<Option<Self>> {
        let Some(text) = files.read(&layout::journal())? else { return Ok(None) };
        Self::parse(&text).map(Some).map_err(|why| {
            let file = layout::journal();
            io::Error::new(io::ErrorKind::InvalidData, format!("{}: {why}", file.display()))
        })
    }

    /// Gives the pool this log. From here on the change holds.
    ///
    /// # Errors
    ///
    /// The system's. There is no log then, unless that cannot be reached either.
    pub(super) fn write<F: Files>(&self, files: &F, scratch: &Path) -> io::Result<()> {
        files.write(scratch, &self.to_text())?;
        // What the log names must be there before the log is.
        files.sync(&layout::work())?;
        files.rename(scratch, &layout::journal())?;
        files.sync(&layout::work())
    }

    /// Makes the change, on stable storage.
    pub(super) fn apply<F: Files>(&self, files: &F) -> io::Result<()> {
        match self {
            Self::Moves(moves) => rename_all(files, moves.iter().map(|Move { from, to }| (&**from, &**to))),
            Self::RollBack { volume, snapshot } => {
                let from = files.open_image(&layout::snapshot(volume, snapshot))?;
                let into = files.change_image(&layout::disk(volume))?;
                files.set_len(&into, files.len(&from)?)?;
                files.clone_into(&from, &into)?;
                files.flush(&into)
            }
        }
    }

    /// Removes the log, on stable storage. It must not be there any more when the next change begins.
    pub(super) fn forget<F: Files>(files: &F) -> io::Result<()> {
        files.remove_file(&layout::journal())?;
        files.sync(&layout::work())
    }

    fn to_text(&self) -> String {
        let change = serde_json::to_string(self).expect("names");
        let file = LogFile { version: VERSION, crc32c: lunette_crc32c::crc32c(change.as_bytes()), change };
        serde_json::to_string(&file).expect("numbers and a text")
    }

    fn parse(text: &str) -> Result<Self, String> {
        const DAMAGED: &str =
            "this log of an interrupted change is damaged; look at the newest snapshots, then remove it";
        let file: LogFile = serde_json::from_str(text).map_err(|_| DAMAGED)?;
        if file.version != VERSION {
            let version = file.version;
            return Err(format!("this log has version {version}, and not {VERSION}; use a newer version of Lunette"));
        }
        if file.crc32c != lunette_crc32c::crc32c(file.change.as_bytes()) {
            return Err(DAMAGED.into());
        }
        let journal: Self = serde_json::from_str(&file.change).map_err(|_| DAMAGED)?;
        match journal.stranger() {
            Some(path) => Err(format!("{} leads out of the pool; remove this log", path.display())),
            None => Ok(journal),
        }
    }

    /// A path that leads out of the pool.
    fn stranger(&self) -> Option<&Path> {
        let Self::Moves(moves) = self else { return None };
        let mut paths = moves.iter().flat_map(|Move { from, to }| [&**from, &**to]);
        paths.find(|path| !path.components().all(|part| matches!(part, Component::Normal(_))))
    }
}

/// Takes moves back, on stable storage.
pub(super) fn take_back<F: Files>(files: &F, moves: &[Move]) -> io::Result<()> {
    rename_all(files, moves.iter().map(|Move { from, to }| (&**to, &**from)))
}

/// Renames what has not been renamed yet.
fn rename_all<'m, F: Files>(files: &F, moves: impl Iterator<Item = (&'m Path, &'m Path)>) -> io::Result<()> {
    let mut folders = BTreeSet::new();
    for (from, to) in moves {
        if files.kind(from)?.is_some() {
            files.rename(from, to)?;
        }
        folders.extend([from, to].map(layout::parent));
    }
    folders.iter().try_for_each(|folder| files.sync(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_leads_out_of_the_pool_is_refused() {
        for path in ["/etc/passwd", "../db", "db/../../other"] {
            for (from, to) in [(path, "db"), ("db", path)] {
                let moves = vec![Move { from: from.into(), to: to.into() }];
                let refused = Journal::parse(&Journal::Moves(moves).to_text()).unwrap_err();
                assert!(refused.contains(path) && refused.contains("leads out of the pool"), "{refused}");
            }
        }
    }

    #[test]
    fn a_log_is_read_as_it_was_written_and_no_other() {
        let name = |text: &str| text.parse::<Name>().unwrap();
        let moves = vec![Move { from: ".lunette/new-1/0.img".into(), to: "db/snapshots/monday.img".into() }];
        let roll_back = Journal::RollBack { volume: name("db"), snapshot: name("monday") };
        for journal in [Journal::Moves(moves), roll_back] {
            let text = journal.to_text();
            assert_eq!(Journal::parse(&text), Ok(journal));
            assert!(Journal::parse(&text.replace("monday", "sunday")).unwrap_err().contains("damaged"));
            assert!(Journal::parse(&text[..text.len() - 1]).unwrap_err().contains("damaged"));
            let newer = text.replace("\"version\":1", "\"version\":2");
            assert!(Journal::parse(&newer).unwrap_err().contains("use a newer version"));
        }
    }
}
