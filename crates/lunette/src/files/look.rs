//! What is seen of one file: its length, and what is wrong with it.

use std::io::ErrorKind;
use std::path::Path;

use lunette_api::{Cause, Health, Subject};
use lunette_device::LogicalUnit;
use lunette_store::{FileIdentity, FileStore, Store, whole_blocks};

use super::Served;

/// What may be wrong with a file until someone mends it, and what to do.
const TROUBLES: [(Cause, &str); 4] = [
    (
        Cause::FileShorter,
        "the file is shorter than the disk was, and commands beyond its end fail; make it as long as it was and send SIGHUP \
         (what was cut reads as zeroes then)",
    ),
    (
        Cause::FileReplaced,
        "another file has its path; the old one is served until SIGHUP lets the server open the new one",
    ),
    (
        Cause::FileDeleted,
        "the file was deleted; it is served until the server stops, and is lost then: copy the disk before, or put a file in \
         its place and send SIGHUP",
    ),
    (
        Cause::WritesLost,
        "a flush has failed, acknowledged writes may be lost, and all flushes fail until SIGHUP; mend the cause before",
    ),
];

/// Reports what is wrong with a file now, and clears what is not.
pub(super) fn report(health: &Health, file: &Served, store: &FileStore, unit: &LogicalUnit) {
    let identity = FileIdentity::at(&file.path);
    for (cause, text) in TROUBLES {
        let is_there = match cause {
            Cause::FileShorter => unit.blocks() < file.most_blocks,
            Cause::FileReplaced => identity.as_ref().is_ok_and(|identity| *identity != store.identity()),
            Cause::FileDeleted => identity.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound),
            _ => store.has_lost_writes(),
        };
        if is_there {
            health.report(file.subject.clone(), cause, text);
        } else {
            health.clear(&file.subject, cause);
        }
    }
}

/// Lets a file that has become shorter be served so, at once: a write beyond its end would make it longer again. A file that
/// has become longer stays as it is served until the administrator says so, because it may be half written.
pub(super) fn cut(subject: &Subject, path: &Path, store: &FileStore) -> bool {
    let path = path.display();
    let before = store.geometry().len_bytes;
    let now = match store.current_len() {
        Ok(now) => now,
        Err(error) => {
            tracing::debug!(%path, %error, "{subject}: the length of the file cannot be told");
            return false;
        }
    };
    if now >= before {
        return false;
    }
    store.serve_len(now);
    tracing::warn!(%path, before, now, "{subject}: the file has become shorter");
    true
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
