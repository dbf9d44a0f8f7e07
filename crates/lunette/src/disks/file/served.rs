//! The files and block devices below the disks that are served.
//!
//! They belong to other programs, too: one may cut, replace or delete them at any time. A thread finds that out, and
//! lets initiators and administrators know. `docs/disks.md` has the table of what may happen.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::{fmt, io};

use lunette_api::{Health, Subject};
use lunette_device::LogicalUnit;
use lunette_store::{FileIdentity, FileStore, Store, StoreError};
use lunette_target::{Control, Growth};

use super::super::kind::Opened;
use super::look::{self, Reopening, warn_of_partial_block};
use super::watch::Watch;
use crate::failure::Failure;
use crate::questions::Rounds;

/// The files that are served.
static SERVED: Mutex<Vec<Served>> = Mutex::new(Vec::new());

/// The signal that makes the thread check files.
static WATCH: Watch = Watch::new();

/// A file below a logical unit.
#[derive(Clone)]
pub(super) struct Served {
    pub(super) subject: Subject,
    pub(super) path: PathBuf,
    pub(super) store: Weak<FileStore>,
    pub(super) unit: Weak<LogicalUnit>,
    /// The system's watch on the file; `None` where it has none.
    pub(super) watch: Option<i32>,
    /// The file has the ciphertext of an encrypted disk, whose own length stands in its header.
    pub(super) is_encrypted: bool,
    /// The bytes that are worth something together: a block, or of a ciphertext each byte.
    pub(super) block_bytes: u32,
    /// The most blocks that were served.
    pub(super) most_blocks: u64,
    /// The blocks that were served last, when there were any.
    pub(super) last_blocks: u64,
}

impl Served {
    /// The whole blocks of this many bytes.
    pub(super) fn blocks(&self, len_bytes: u64) -> u64 {
        len_bytes / u64::from(self.block_bytes.max(1))
    }
}

/// Whether another file or device than the open one has the path of each disk now. A missing one is none, and neither
/// is one that does not answer.
pub(crate) fn replaced(disks: &[(Option<&Path>, Option<&Arc<FileStore>>)]) -> Vec<bool> {
    static ROUNDS: Rounds = Rounds::new();
    let file = |(path, file): &(Option<&Path>, Option<&Arc<FileStore>>)| {
        Some(((*path)?.to_owned(), file.as_ref()?.identity()))
    };
    let files: Vec<_> = disks.iter().map(file).collect();
    let asked: Vec<_> = files.iter().flatten().cloned().collect();
    let names = asked.iter().map(|(path, _)| format!("file at {}", path.display())).collect();
    let is_other = move |index: usize| {
        let (path, identity) = &asked[index];
        FileIdentity::at(path).is_ok_and(|now| now != *identity)
    };
    let mut answers = ROUNDS.ask(names, is_other).into_iter();
    files.iter().map(|file| file.is_some() && answers.next().flatten() == Some(true)).collect()
}

/// The files and devices that have these paths now, but for those that are missing or do not answer.
pub(crate) fn identities_at(paths: BTreeSet<PathBuf>) -> BTreeMap<PathBuf, FileIdentity> {
    static ROUNDS: Rounds = Rounds::new();
    let paths: Vec<_> = paths.into_iter().collect();
    let (names, asked) = (paths.iter().map(|path| format!("file at {}", path.display())).collect(), paths.clone());
    let found = ROUNDS.ask(names, move |index| FileIdentity::at(&asked[index]).ok());
    paths.into_iter().zip(found).filter_map(|(path, identity)| Some((path, identity.flatten()?))).collect()
}

/// Whether another file or device has the path of one disk now: see [`replaced`].
pub(crate) fn is_replaced(path: Option<&Path>, disk: &Opened) -> bool {
    replaced(&[(path, disk.file())]) == [true]
}

/// The length that each file has now, in bytes; `None` for one that does not answer.
pub(crate) fn lengths(files: &[(&dyn fmt::Display, &Arc<FileStore>)]) -> Vec<Option<io::Result<u64>>> {
    static ROUNDS: Rounds = Rounds::new();
    let stores: Vec<_> = files.iter().map(|(_, store)| Arc::clone(store)).collect();
    let names = files.iter().map(|(place, _)| format!("length of {place}")).collect();
    ROUNDS.ask(names, move |index| stores[index].current_len())
}

/// Follows the file below a logical unit from now on, once [`follow`] is called.
pub(crate) fn served(path: Option<&Path>, subject: Subject, disk: &Opened, unit: &Arc<LogicalUnit>) {
    let (Some(path), Some(file)) = (path, disk.file()) else { return };
    let (path, watch, is_encrypted) = (path.to_owned(), WATCH.add(&**file), disk.plain_file().is_none());
    let block_bytes = if is_encrypted { 1 } else { unit.block_size() };
    if !is_encrypted {
        warn_of_partial_block(&subject, &path, file, unit);
    }
    let mut served = lock();
    forget_gone(&mut served);
    let (store, weak_unit) = (Arc::downgrade(file), Arc::downgrade(unit));
    served.push(Served {
        subject,
        path,
        store,
        unit: weak_unit,
        watch,
        is_encrypted,
        block_bytes,
        most_blocks: 0,
        last_blocks: 0,
    });
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
pub(crate) fn follow(control: Control, health: Health, reopening: Reopening) -> Result<(), Failure> {
    WATCH.open();
    let run = move || {
        loop {
            let growth = look(&health, reopening);
            if !growth.is_empty() && control.grow(growth).is_err() {
                return;
            }
            WATCH.wait();
        }
    };
    thread::Builder::new().name("lunette-files".into()).spawn(run).map(drop).map_err(Failure::no_thread)
}

/// Looks at all files. Gives the units that have another length, which their stores know already.
fn look(health: &Health, reopening: Reopening) -> Vec<Growth> {
    static ROUNDS: Rounds = Rounds::new();
    let mut served = lock();
    forget_gone(&mut served);
    for file in served.iter_mut() {
        let blocks = file.store.upgrade().map_or(0, |store| file.blocks(store.geometry().len_bytes));
        file.most_blocks = file.most_blocks.max(blocks);
        file.last_blocks = if blocks > 0 { blocks } else { file.last_blocks };
    }
    // A file system may not answer; what is served from now on does not wait for it.
    let files = served.clone();
    drop(served);
    let names = files.iter().map(|file| format!("{} at {}", file.subject, file.path.display())).collect();
    let asked = files.clone();
    // One that does not answer keeps the others from nothing.
    let answers = ROUNDS.ask(names, move |index| look::Facts::of(&asked[index]));
    let mut growth = Vec::new();
    for (index, (file, facts)) in files.iter().zip(answers).enumerate() {
        let (Some(store), Some(unit)) = (file.store.upgrade(), file.unit.upgrade()) else { continue };
        let Some(facts) = facts.flatten() else { continue };
        if look::serve_len(file, &store, facts.len) && !file.is_encrypted {
            growth.push(Growth { unit, grow: Box::new(|| ()) });
        }
        // What has its number now is told of, not what had it before and ends.
        if !files[index + 1..].iter().any(|later| later.subject == file.subject) {
            look::report(health, file, &store, &facts.identity, reopening);
        }
    }
    growth
}

fn lock() -> MutexGuard<'static, Vec<Served>> {
    SERVED.lock().unwrap_or_else(PoisonError::into_inner)
}
