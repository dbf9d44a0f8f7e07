//! The files and block devices below the disks that are served.
//!
//! They belong to other programs, too: one may cut, replace or delete them at any time. A thread finds that out, lets
//! initiators know, and logs it. `docs/disks.md` has the table of what may happen.

mod look;
mod watch;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use lunette_device::LogicalUnit;
use lunette_store::{FileIdentity, FileStore, StoreError};
use lunette_target::{Control, Growth};

use crate::disk::Place;
use crate::failure::Failure;
pub(crate) use look::warn_of_partial_block;
use look::{Seen, Trouble};
use watch::Watch;

/// The files that are served.
static SERVED: Mutex<Vec<Served>> = Mutex::new(Vec::new());

/// What tells the thread to look.
static WATCH: Watch = Watch::new();

/// A file below a logical unit, and what was seen of it last.
#[derive(Clone)]
struct Served {
    name: String,
    path: PathBuf,
    store: Weak<FileStore>,
    unit: Weak<LogicalUnit>,
    /// Of the watch of the system on the file; `None` where it has none.
    watch: Option<i32>,
    seen: Seen,
}

/// Whether another file or device than that of `store` has the path of the disk now. A missing one is none.
pub(crate) fn is_replaced(place: &Place, store: &FileStore) -> bool {
    let Place::Path(path) = place else { return false };
    FileIdentity::at(path).is_ok_and(|identity| identity != store.identity())
}

/// Follows the file below a logical unit from now on, once [`follow`] is called.
pub(crate) fn served(place: &Place, target: &str, lun: u16, store: &Arc<FileStore>, unit: &Arc<LogicalUnit>) {
    let Place::Path(path) = place else { return };
    let watch = WATCH.add(&**store);
    let name = format!("target {target}: LUN {lun}");
    warn_of_partial_block(&name, &place.to_string(), store, unit);
    let (path, seen) = (path.clone(), Seen::new(unit));
    let mut served = lock();
    forget_gone(&mut served);
    served.push(Served { name, path, store: Arc::downgrade(store), unit: Arc::downgrade(unit), watch, seen });
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

/// Serves the lengths that files have, and logs what becomes of them, until the server stops.
pub(crate) fn follow(control: Control) -> Result<(), Failure> {
    let run = move || {
        loop {
            let growth = look();
            if !growth.is_empty() && control.grow(growth).is_err() {
                return;
            }
            WATCH.wait();
        }
    };
    thread::Builder::new().name("lunette-files".into()).spawn(run).map(drop).map_err(Failure::other)
}

/// Looks at all files. Gives the units whose files have become shorter, which their stores know already.
fn look() -> Vec<Growth> {
    let mut served = lock();
    forget_gone(&mut served);
    // A file system may not answer; what is served anew does not wait for it.
    let files = served.clone();
    drop(served);
    let mut growth = Vec::new();
    for mut file in files {
        let (Some(store), Some(unit)) = (file.store.upgrade(), file.unit.upgrade()) else { continue };
        if file.seen.cut(&file.name, &file.path, &store, &unit) {
            growth.push(Growth { unit: Arc::clone(&unit), grow: Box::new(|| ()) });
        }
        let troubles = Trouble::find(&file.path, &store, &unit, &file.seen);
        file.seen.tell(&file.name, &file.path, troubles);
        let mut served = lock();
        if let Some(known) = served.iter_mut().find(|known| known.unit.ptr_eq(&file.unit)) {
            known.seen = file.seen;
        }
    }
    growth
}

fn lock() -> MutexGuard<'static, Vec<Served>> {
    SERVED.lock().unwrap_or_else(PoisonError::into_inner)
}
