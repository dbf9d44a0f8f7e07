//! The files and block devices below the disks that are served.
//!
//! They belong to other programs, too: one may cut, replace or delete them at any time. A thread finds that out, and lets
//! initiators and administrators know. `docs/disks.md` has the table of what may happen.

mod look;
mod watch;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use lunette_api::{Health, Subject};
use lunette_device::LogicalUnit;
use lunette_store::{FileIdentity, FileStore, StoreError};
use lunette_target::{Control, Growth};

use crate::disk::Place;
use crate::failure::Failure;
pub(crate) use look::warn_of_partial_block;
use watch::Watch;

/// The files that are served.
static SERVED: Mutex<Vec<Served>> = Mutex::new(Vec::new());

/// What tells the thread to look.
static WATCH: Watch = Watch::new();

/// A file below a logical unit.
#[derive(Clone)]
struct Served {
    subject: Subject,
    path: PathBuf,
    store: Weak<FileStore>,
    unit: Weak<LogicalUnit>,
    /// Of the watch of the system on the file; `None` where it has none.
    watch: Option<i32>,
    /// The most blocks that the disk has had.
    most_blocks: u64,
}

/// Whether another file or device than that of `store` has the path of the disk now. A missing one is none.
pub(crate) fn is_replaced(place: &Place, store: &FileStore) -> bool {
    let Place::Path(path) = place else { return false };
    FileIdentity::at(path).is_ok_and(|identity| identity != store.identity())
}

/// Follows the file below a logical unit from now on, once [`follow`] is called.
pub(crate) fn served(place: &Place, target: &str, lun: u16, store: &Arc<FileStore>, unit: &Arc<LogicalUnit>) {
    let Place::Path(path) = place else { return };
    let (subject, watch) = (Subject::lun(target, lun), WATCH.add(&**store));
    warn_of_partial_block(&subject, path, store, unit);
    let (path, most_blocks) = (path.clone(), unit.blocks());
    let mut served = lock();
    forget_gone(&mut served);
    let (store, weak_unit) = (Arc::downgrade(store), Arc::downgrade(unit));
    served.push(Served { subject, path, store, unit: weak_unit, watch, most_blocks });
    unit.on_store_failure(|error| {
        if matches!(error, StoreError::OutOfRange { .. } | StoreError::FlushFailed(_)) {
            WATCH.wake();
        }
    });
}

/// Removes the disks that are not served any more. A store that has moved to another unit keeps its watch.
fn forget_gone(served: &mut Vec<Served>) {
    let gone: Vec<_> = served.extract_if(.., |served| served.unit.strong_count() == 0).collect();
    for watch in gone.into_iter().filter_map(|gone| gone.watch) {
        if !served.iter().any(|other| other.watch == Some(watch)) {
            WATCH.remove(watch);
        }
    }
}

/// Serves the lengths that files have, and tells `health` what becomes of them, until the server stops.
pub(crate) fn follow(control: Control, health: Health) -> Result<(), Failure> {
    let run = move || {
        loop {
            let growth = look(&health);
            if !growth.is_empty() && control.grow(growth).is_err() {
                return;
            }
            WATCH.wait();
        }
    };
    thread::Builder::new().name("lunette-files".into()).spawn(run).map(drop).map_err(Failure::other)
}

/// Looks at all files. Gives the units whose files have become shorter, which their stores know already.
fn look(health: &Health) -> Vec<Growth> {
    let mut served = lock();
    forget_gone(&mut served);
    for file in served.iter_mut() {
        file.most_blocks = file.most_blocks.max(file.unit.upgrade().map_or(0, |unit| unit.blocks()));
    }
    // A file system may not answer; what is served from now on does not wait for it.
    let files = served.clone();
    drop(served);
    let mut growth = Vec::new();
    for (index, file) in files.iter().enumerate() {
        let (Some(store), Some(unit)) = (file.store.upgrade(), file.unit.upgrade()) else { continue };
        if look::cut(&file.subject, &file.path, &store) {
            growth.push(Growth { unit: Arc::clone(&unit), grow: Box::new(|| ()) });
        }
        // What has its number now is told of, not what had it before and ends.
        if !files[index + 1..].iter().any(|later| later.subject == file.subject) {
            look::report(health, file, &store, &unit);
        }
    }
    growth
}

fn lock() -> MutexGuard<'static, Vec<Served>> {
    SERVED.lock().unwrap_or_else(PoisonError::into_inner)
}
