//! The folder `conf.d`: one file for each object, changed as a whole or not at all, also when the power fails.
//!
//! A change of several files goes through a redo log. [`ConfD::stage`] writes the log under another name, where it
//! means nothing; that can fail, and then nothing has happened. [`ConfD::commit`] gives the log its name, which is the
//! moment from which the change holds, writes the files, and removes the log. A log that is found when the folder is
//! read belongs to a change that was interrupted, and is applied again.

mod disk;
mod seen;

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

pub use disk::DiskFolder;
pub use seen::Seen;

use crate::objects::{self, FileChange, Key, Objects};

/// The redo log of a change that holds.
const REDO: &str = ".redo";

/// The redo log of a change that does not hold yet.
const STAGED: &str = ".redo.new";

/// The next content of an object's file.
const NEXT: &str = ".next";

/// The operations on a folder that the order of a change is made of.
pub trait Folder {
    /// The names in the folder, with U+FFFD for what is not UTF-8. None, when there is no folder.
    ///
    /// # Errors
    ///
    /// The system's, as with all of these.
    fn names(&self) -> io::Result<Vec<String>>;

    /// The content of a file; `None` when there is none.
    ///
    /// # Errors
    ///
    /// The system's.
    fn read(&self, name: &str) -> io::Result<Option<String>>;

    /// Creates or overwrites a file. Its content is on stable storage then; its name is after the next
    /// [`sync`](Self::sync).
    ///
    /// # Errors
    ///
    /// The system's.
    fn write(&self, name: &str, content: &str) -> io::Result<()>;

    /// Gives a file another name, in the place of the file that has it.
    ///
    /// # Errors
    ///
    /// The system's.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file, which need not be there.
    ///
    /// # Errors
    ///
    /// The system's.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Brings the names of the folder to stable storage.
    ///
    /// # Errors
    ///
    /// The system's.
    fn sync(&self) -> io::Result<()>;
}

/// The objects of a folder.
pub struct ConfD<F = DiskFolder> {
    folder: F,
}

/// Why the folder as a whole cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The system says so.
    #[error("{file}: {source}")]
    Io {
        /// The file.
        file: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The redo log cannot be used.
    #[error("{file}: {why}")]
    Mistake {
        /// The file.
        file: String,
        /// The mistake.
        why: String,
    },
}

/// The content of a folder.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Contents {
    /// The objects that can be read.
    pub objects: Objects,
    /// The files that hold none, though their names say so.
    pub broken: Vec<BrokenFile>,
    /// The texts of the files.
    pub seen: Seen,
}

/// A file that takes no other object away: it cannot be read, or its text is that of no object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenFile {
    /// The name of the file.
    pub file: String,
    /// The mistake, and where it is.
    pub why: String,
    /// The object that it holds, when only its name is wrong.
    pub holds: Option<Key>,
}

impl BrokenFile {
    /// The object that the name of the file promises.
    pub fn key(&self) -> Option<Key> {
        Key::of_file(&self.file)
    }

    /// The objects that may be meant.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        self.key().into_iter().chain(self.holds.clone())
    }
}

/// The content of the redo log.
#[derive(Serialize, Deserialize)]
struct Redo {
    changes: Vec<FileChange>,
    /// The checksum of the changes: a log that something else has damaged is not applied.
    sum: String,
}

/// The names and the texts of the objects in a folder, in the order of their names. Nothing is changed, and a folder
/// that is not there is empty.
///
/// # Errors
///
/// The system's, for the folder. A file that cannot be read has the system's error in the place of its text.
pub fn object_texts(folder: &Path) -> io::Result<Vec<(String, io::Result<String>)>> {
    texts(&DiskFolder::new(folder.to_owned()))
}

fn texts(folder: &impl Folder) -> io::Result<Vec<(String, io::Result<String>)>> {
    let mut names = folder.names()?;
    names.retain(|name| objects::is_object_file(name));
    names.sort_unstable();
    let read = |name: String| {
        let text = folder.read(&name).and_then(|text| text.ok_or_else(|| no_file(&name)));
        (name, text)
    };
    Ok(names.into_iter().map(read).collect())
}

/// Why a name in a folder leads to no file.
fn no_file(name: &str) -> io::Error {
    let why = if name.contains(char::REPLACEMENT_CHARACTER) {
        "the name of this file is not UTF-8; rename it"
    } else {
        "no such file; this link leads nowhere: mend or remove it"
    };
    io::Error::new(io::ErrorKind::NotFound, why)
}

impl<F: Folder> ConfD<F> {
    /// The objects in that folder.
    pub fn new(folder: F) -> Self {
        Self { folder }
    }

    /// Reads all objects, after a change that was interrupted has been brought to its end.
    ///
    /// # Errors
    ///
    /// [`ReadError`] when the folder or its redo log cannot be read. A file with a mistake takes no other away.
    pub fn read(&self) -> Result<Contents, ReadError> {
        self.recover()?;
        let mut contents = Contents::default();
        for (file, text) in texts(&self.folder).map_err(at("conf.d"))? {
            let added = match &text {
                Ok(text) => {
                    contents.seen.note(&file, text);
                    contents.objects.add_file(&file, text)
                }
                Err(error) => Err(error.to_string()),
            };
            if let Err(why) = added {
                let holds = text.ok().and_then(|text| objects::parse(&text).ok()).map(|(key, _)| key);
                contents.broken.push(BrokenFile { file, why, holds });
            }
        }
        Ok(contents)
    }

    /// Brings a change that was interrupted to its end.
    ///
    /// # Errors
    ///
    /// [`ReadError`] when the redo log of the change cannot be used.
    pub fn recover(&self) -> Result<(), ReadError> {
        let Some(text) = self.folder.read(REDO).map_err(at(REDO))? else { return Ok(()) };
        let redo: Option<Redo> = serde_json::from_str(&text).ok();
        let Some(redo) = redo.filter(|redo| redo.sum == objects::etag(&redo.changes)) else {
            let why = "this log of an interrupted change is damaged; look through the files beside it, then remove it";
            return Err(ReadError::Mistake { file: REDO.into(), why: why.into() });
        };
        if let Some(FileChange { file, .. }) = redo.changes.iter().find(|change| !objects::is_object_file(&change.file))
        {
            let why = format!(
                "{file:?} is no file of an object in this folder; remove this log, which the server did not write"
            );
            return Err(ReadError::Mistake { file: REDO.into(), why });
        }
        tracing::warn!(files = redo.changes.len(), "a change of conf.d was interrupted and is made again");
        self.redo(&redo.changes).map_err(at(REDO))
    }

    /// Refuses a change when its files are not as they were `seen`: it would undo what someone else has changed.
    ///
    /// # Errors
    ///
    /// A sentence that names the file.
    pub fn check(&self, seen: &Seen, changes: &[FileChange]) -> Result<(), String> {
        for FileChange { file, .. } in changes {
            let now = self.folder.read(file).map_err(|error| format!("conf.d/{file}: {error}"))?;
            seen.check(file, now.as_deref())?;
        }
        Ok(())
    }

    /// Writes down a change that does not hold yet. What can be known to fail (no space, no permission) fails here.
    ///
    /// # Errors
    ///
    /// The system's; then nothing has happened.
    pub fn stage(&self, changes: Vec<FileChange>) -> io::Result<Vec<FileChange>> {
        let sum = objects::etag(&changes);
        let redo = Redo { changes, sum };
        self.folder.write(STAGED, &serde_json::to_string(&redo)?)?;
        Ok(redo.changes)
    }

    /// Drops what was staged.
    ///
    /// # Errors
    ///
    /// The system's. What was staged means nothing all the same.
    pub fn unstage(&self) -> io::Result<()> {
        self.folder.remove(STAGED)
    }

    /// Makes the change that was staged last hold.
    ///
    /// # Errors
    ///
    /// The system's. It is not known then whether the change will hold after a restart: as a whole or not at all.
    pub fn commit(&self, staged: &[FileChange]) -> io::Result<()> {
        self.folder.rename(STAGED, REDO)?;
        self.folder.sync()?;
        self.redo(staged)
    }

    fn redo(&self, changes: &[FileChange]) -> io::Result<()> {
        for FileChange { file, content } in changes {
            match content {
                Some(content) => {
                    self.folder.write(NEXT, content)?;
                    self.folder.rename(NEXT, file)?;
                }
                None => self.folder.remove(file)?,
            }
        }
        self.folder.sync()?;
        // Before the folder changes in any other way, or an old log could undo that.
        self.folder.remove(REDO)?;
        self.folder.sync()
    }
}

fn at(file: &str) -> impl FnOnce(io::Error) -> ReadError {
    let file = file.to_owned();
    move |source| ReadError::Io { file, source }
}

#[cfg(test)]
mod tests;
