//! The check of one file: its length, and its troubles.

use std::io;
use std::path::Path;

use lunette_api::{Cause, Health, Subject};
use lunette_device::LogicalUnit;
use lunette_store::{FileIdentity, FileStore, Store, whole_blocks};
use rustix::io::Errno;

use super::served::Served;

/// The moment at which a server opens files again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reopening {
    /// SIGHUP: it has a configuration file.
    OnHangup,
    /// The next start.
    AtStart,
}

/// A trouble that a file may have until it is mended, with its remedies.
struct FileTrouble {
    cause: Cause,
    what: &'static str,
    on_hangup: &'static str,
    at_start: &'static str,
}

const TROUBLES: [FileTrouble; 4] = [
    FileTrouble {
        cause: Cause::FileShorter,
        what: "the file is shorter than the disk was, and commands beyond its end fail",
        on_hangup: "make it as long as it was and send SIGHUP (what was cut reads as zeroes then)",
        at_start: "make it as long as it was and start the server again (what was cut reads as zeroes then)",
    },
    FileTrouble {
        cause: Cause::FileReplaced,
        what: "another file has its path",
        on_hangup: "the old one is served until SIGHUP lets the server open the new one",
        at_start: "the old one is served until the server stops, and is lost then if it has no other name",
    },
    FileTrouble {
        cause: Cause::FileDeleted,
        what: "the file was deleted; it is served until the server stops, and is lost then",
        on_hangup: "copy the disk before, or put a file in its place and send SIGHUP",
        at_start: "copy the disk before",
    },
    FileTrouble {
        cause: Cause::WritesLost,
        what: "a flush has failed, acknowledged writes may be lost, and all flushes fail",
        on_hangup: "mend the cause, then send SIGHUP; of an encrypted disk, start the server again",
        at_start: "mend the cause, then start the server again",
    },
];

impl FileTrouble {
    fn text(&self, reopening: Reopening) -> String {
        let remedy = match reopening {
            Reopening::OnHangup => self.on_hangup,
            Reopening::AtStart => self.at_start,
        };
        format!("{}; {remedy}", self.what)
    }
}

/// Facts of the system about a file.
pub(super) struct Facts {
    /// Length in bytes.
    pub(super) len: io::Result<u64>,
    /// The file that has its path.
    pub(super) identity: io::Result<FileIdentity>,
}

impl Facts {
    /// Asks the system, which may take long. `None` for a file that is no longer served.
    pub(super) fn of(file: &Served) -> Option<Self> {
        let store = file.store.upgrade()?;
        Some(Self { len: store.current_len(), identity: FileIdentity::at(&file.path) })
    }
}

/// Reports what is wrong with a file now, and clears what is not. `identity`: the file that has its path.
pub(super) fn report(
    health: &Health,
    file: &Served,
    store: &FileStore,
    identity: &io::Result<FileIdentity>,
    reopening: Reopening,
) {
    let is_there = |trouble: &&FileTrouble| match trouble.cause {
        Cause::FileShorter => file.blocks(store.geometry().len_bytes) < file.most_blocks,
        Cause::FileReplaced => identity.as_ref().is_ok_and(|identity| *identity != store.identity()),
        Cause::FileDeleted => identity.as_ref().is_err_and(leads_nowhere),
        _ => store.has_lost_writes(),
    };
    let (there, over): (Vec<_>, Vec<_>) = TROUBLES.iter().partition(is_there);
    for trouble in there {
        health.report(file.subject.clone(), trouble.cause, trouble.text(reopening));
    }
    // Afterwards: a subject with another trouble is not well again.
    for trouble in over {
        health.clear(&file.subject, trouble.cause);
    }
}

/// Whether a path that failed so leads to no file: it ends, a part of it is no folder, or its links form a circle.
fn leads_nowhere(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP))
}

/// Serves the length that the file has `now`, if that may be. Whether it is another one than before.
///
/// A shorter length is served at once: a write beyond it would make the file longer again. A longer one waits for the
/// administrator, because the file may be half written. It does not where nothing can be served else, or nothing of it
/// is believed unseen: a file without a block that is as long as it was again, and a ciphertext.
pub(super) fn serve_len(file: &Served, store: &FileStore, now: io::Result<u64>) -> bool {
    let (subject, path, before) = (&file.subject, file.path.display(), store.geometry().len_bytes);
    match now.and_then(|now| find_len(file, store, before, now)) {
        Ok(now) if now == before => false,
        Ok(now) => {
            store.serve_len(now);
            if now < before {
                tracing::warn!(%path, before, now, "{subject}: the file has become shorter");
            } else {
                tracing::info!(%path, before, now, "{subject}: the file has become longer again");
            }
            true
        }
        Err(error) => {
            tracing::debug!(%path, %error, "{subject}: the length of the file stays as it was");
            false
        }
    }
}

/// The length to serve of a file that has the length `now`, in bytes. A fully provisioned disk has got space for what
/// came back.
fn find_len(file: &Served, store: &FileStore, before: u64, now: u64) -> io::Result<u64> {
    let is_back = file.is_encrypted || file.blocks(before) == 0 && file.blocks(now) >= file.last_blocks;
    if now <= before {
        Ok(now)
    } else if is_back {
        store.make_room(0).inspect(|_| store.keep())
    } else {
        Ok(before)
    }
}

/// Says that the bytes behind the last whole block of a file are not served.
pub(crate) fn warn_of_partial_block(subject: &Subject, path: &Path, store: &FileStore, unit: &LogicalUnit) {
    let Ok(len) = store.file_len() else { return };
    let whole = whole_blocks(len, unit.block_size());
    // The length of a file of quanta is no whole number of them in general.
    if whole < len && unit.block_size().is_multiple_of(512) {
        let path = path.display();
        tracing::warn!(%path, len, whole, "{subject}: the last block of the file is not whole, and is not served");
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_that_leads_to_no_file_is_that_of_a_deleted_one() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        fs::write(place("file"), "").unwrap();
        symlink(place("circle"), place("circle")).unwrap();
        for name in ["missing", "file/disk", "circle", "circle/disk"] {
            let error = FileIdentity::at(&place(name)).unwrap_err();
            assert!(leads_nowhere(&error), "{name}: {error}");
        }
        assert!(!leads_nowhere(&Errno::IO.into()) && !leads_nowhere(&Errno::ACCESS.into()), "nothing is known of it");
    }
}
