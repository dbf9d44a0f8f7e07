//! The audit log: each change with its client, time, origin and old values.
//!
//! One line of JSON for each change, appended to a file. The file is bounded: a full one gets the name `….1`, the one
//! before it `….2`, and so on, up to [`KEPT_AUDIT_FILES`]. Objects are written as the API shows them, so without
//! passwords.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use lunette_files::{Content, FileProblem};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::callers::Caller;
use crate::limits::{
    KEPT_AUDIT_FILES, MAX_AUDIT_ENTRY_BYTES, MAX_AUDIT_FILE_BYTES, MAX_AUDIT_READ, MAX_AUDIT_TEXT_BYTES,
};
use crate::objects::{Document, Key, Kind};
use crate::server::Catalog;

/// The content and the longest length of a file of the log.
const LOG: Content = Content { name: "an audit log", max_bytes: 2 * MAX_AUDIT_FILE_BYTES };

/// A change, or a try to make one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// When it was, in seconds since 1970.
    pub time: u64,
    /// The client: the name of its token, or its user.
    #[schema(example = "prometheus")]
    pub who: String,
    /// Where the client comes from.
    #[schema(example = "192.0.2.7:51234")]
    pub from: String,
    /// The action that the client asked for.
    #[schema(example = "change")]
    pub action: String,
    /// `done`, or why not.
    #[schema(example = "done")]
    pub outcome: String,
    /// The objects that differ since then.
    pub changes: Vec<AuditChange>,
}

/// An object before and after a change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AuditChange {
    /// The object.
    #[schema(example = "target iqn.2026-11.org.example:db")]
    pub object: String,
    /// The old value; absent when there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub old: Option<Value>,
    /// The new value; absent when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub new: Option<Value>,
}

impl AuditEntry {
    /// An entry of this moment: the action of `caller`, and its outcome.
    pub fn new(caller: &Caller, action: &str, outcome: Result<(), String>, changes: Vec<AuditChange>) -> Self {
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let (who, from) = (cut(&caller.name), caller.from.clone());
        Self {
            time,
            who,
            from,
            action: cut(action),
            outcome: outcome.err().map_or("done".into(), |why| cut(&why)),
            changes,
        }
    }

    /// The entry within its bound: of a longer one, the names of the objects are kept, as far as there is room.
    fn bounded(mut self) -> Self {
        let len = |changes: &[AuditChange]| serde_json::to_vec(changes).map_or(usize::MAX, |bytes| bytes.len());
        if len(&self.changes) > MAX_AUDIT_ENTRY_BYTES {
            let left_out = || Some(Value::from("left out: the entry is too long"));
            for AuditChange { old, new, .. } in &mut self.changes {
                (*old, *new) = (old.take().and_then(|_| left_out()), new.take().and_then(|_| left_out()));
            }
            self.changes.truncate(MAX_AUDIT_ENTRY_BYTES / MAX_AUDIT_TEXT_BYTES);
        }
        self
    }
}

/// The objects that differ between two catalogs.
pub fn changes(old: &Catalog, new: &Catalog) -> Vec<AuditChange> {
    let mut keys: Vec<Key> = [old, new].into_iter().flat_map(keys).collect();
    keys.sort_unstable();
    keys.dedup();
    let value = |document: &Document| Value::Object(document.clone());
    let change = |key: Key| AuditChange {
        object: key.to_string(),
        old: old.find(&key).map(value),
        new: new.find(&key).map(value),
    };
    keys.into_iter().map(change).filter(|change| change.old != change.new).collect()
}

fn keys(catalog: &Catalog) -> impl Iterator<Item = Key> {
    let of = |kind| catalog.of(kind).filter_map(move |(name, _, _)| Key::new(kind, name).ok());
    Kind::ALL.into_iter().flat_map(of)
}

/// A text of a client, cut to what an entry keeps.
fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_AUDIT_TEXT_BYTES)].into()
}

/// The log. Its last entries are in memory, too; without a file, nowhere else.
#[derive(Debug, Default)]
pub struct AuditLog {
    last: Mutex<Last>,
    /// Apart from the above, so that readers do not wait for the disk.
    file: Mutex<Option<LogFile>>,
}

/// The last lines of the log, bounded in number and bytes.
#[derive(Debug, Default)]
struct Last {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Last {
    fn push(&mut self, line: Vec<u8>) {
        self.bytes += line.len();
        self.lines.push_back(line);
        while self.lines.len() > MAX_AUDIT_READ || self.bytes > MAX_AUDIT_FILE_BYTES {
            self.bytes -= self.lines.pop_front().map_or(0, |line| line.len());
        }
    }
}

#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    file: File,
    len: usize,
}

impl AuditLog {
    /// The log in a file, which is created for its owner alone.
    ///
    /// # Errors
    ///
    /// When the file cannot be opened or read.
    pub fn open(path: &Path) -> Result<Self, FileProblem> {
        let file = LogFile::open(path)?;
        let mut last = Last::default();
        for path in [rotated(path, 1), path.into()] {
            match lunette_files::read(&path, LOG) {
                Ok(bytes) => bytes.split(|byte| *byte == b'\n').for_each(|line| last.push(line.into())),
                Err(problem) if problem.is_missing() => {}
                Err(problem) => return Err(problem),
            }
        }
        Ok(Self { last: Mutex::new(last), file: Mutex::new(Some(file)) })
    }

    /// Writes an entry down. A file that cannot be written is told in the log of the server.
    pub fn record(&self, entry: AuditEntry) {
        // A structure of texts becomes JSON.
        let line = serde_json::to_vec(&entry.bounded()).unwrap_or_default();
        if let Some(file) = &mut *lock(&self.file)
            && let Err(error) = file.append(&line)
        {
            tracing::error!(%error, path = %file.path.display(), "the audit log cannot be written");
        }
        lock(&self.last).push(line);
    }

    /// The last entries, the latest first. A line that a crash has cut is left out.
    pub fn last(&self, count: usize) -> Vec<AuditEntry> {
        let last = lock(&self.last);
        last.lines.iter().rev().filter_map(|line| serde_json::from_slice(line).ok()).take(count).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The name of the file that was the log before.
fn rotated(path: &Path, number: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

impl LogFile {
    fn open(path: &Path) -> Result<Self, FileProblem> {
        let problem = |error| FileProblem::of(path, LOG, error);
        match OpenOptions::new().append(true).create_new(true).mode(0o600).open(path) {
            Ok(file) => return Ok(Self { path: path.into(), file, len: 0 }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(problem(error)),
        }
        let mut file = lunette_files::open_with(path, LOG, OpenOptions::new().append(true).read(true))?;
        file.set_permissions(Permissions::from_mode(0o600)).map_err(problem)?;
        let len = usize::try_from(file.metadata().map_err(problem)?.len()).unwrap_or(usize::MAX);
        if len > 0 && !ends_a_line(&file, len).map_err(problem)? {
            // A crash has cut the last line; the next one is not to be lost with it.
            file.write_all(b"\n").map_err(problem)?;
        }
        Ok(Self { path: path.into(), file, len })
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let line = [line, b"\n"].concat();
        if self.len > 0 && self.len.saturating_add(line.len()) > MAX_AUDIT_FILE_BYTES {
            self.rotate()?;
        }
        self.file.write_all(&line)?;
        self.len = self.len.saturating_add(line.len());
        self.file.sync_data()
    }

    fn rotate(&mut self) -> io::Result<()> {
        for number in (1..KEPT_AUDIT_FILES).rev() {
            match fs::rename(rotated(&self.path, number), rotated(&self.path, number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        fs::rename(&self.path, rotated(&self.path, 1))?;
        self.file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&self.path)?;
        self.len = 0;
        Ok(())
    }
}

fn ends_a_line(file: &File, len: usize) -> io::Result<bool> {
    let mut last = [0];
    std::os::unix::fs::FileExt::read_exact_at(file, &mut last, len as u64 - 1)?;
    Ok(last == *b"\n")
}

#[cfg(test)]
mod tests;
