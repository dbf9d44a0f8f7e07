//! Files that an earlier process has left open. The earlier process is this one, with a store of its own.

#![expect(clippy::unwrap_used, reason = "a test ends with the first surprise")]

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lunette_store::{FileStore, OpenError, OpenOptions, Store, left_files, own_left_files};
use tempfile::TempDir;

const LEN: u64 = 1 << 20;

/// A file that is not shared with other tests. Files are offered to the whole process, so tests take turns.
struct Place {
    path: PathBuf,
    _folder: TempDir,
    _turn: MutexGuard<'static, ()>,
}

fn place() -> Place {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    // What a test that failed has left.
    own_left_files();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    fs::write(&path, vec![7; LEN as usize]).unwrap();
    Place { path, _folder: folder, _turn: turn }
}

fn open(path: &Path) -> Result<FileStore, OpenError> {
    FileStore::open(path, &OpenOptions::default())
}

fn read_only(path: &Path) -> FileStore {
    FileStore::open(path, &OpenOptions { read_only: true, ..OpenOptions::default() }).unwrap()
}

#[track_caller]
fn assert_locked(path: &Path) {
    let refused = open(path).map(|_| ());
    assert!(matches!(refused, Err(OpenError::InUse { .. })), "{refused:?}");
}

/// The descriptor that a store leaves.
fn descriptor(store: &FileStore) -> OwnedFd {
    store.as_fd().try_clone_to_owned().unwrap()
}

/// Whether two descriptors are of the same open file: they share its position.
fn is_same(one: &impl AsFd, other: &impl AsFd) -> bool {
    let [mut one, mut other] =
        [one.as_fd(), other.as_fd()].map(|descriptor| File::from(descriptor.try_clone_to_owned().unwrap()));
    [12_345, 54_321].into_iter().all(|at| {
        one.seek(SeekFrom::Start(at)).unwrap();
        other.stream_position().unwrap() == at
    })
}

#[test]
fn a_left_file_is_opened_in_spite_of_its_locks_and_keeps_them() {
    let place = place();
    let path = &place.path;
    let before = open(path).unwrap();
    assert_locked(path);
    left_files(vec![descriptor(&before)]);
    let after = open(path).unwrap();
    assert!(is_same(&before, &after));
    assert_eq!(after.geometry(), before.geometry());
    assert_eq!(after.capabilities(), before.capabilities());
    assert_locked(path);
    drop(after);
    assert_locked(path);
    // It was offered once.
    own_left_files();
    assert_locked(path);
    drop(before);
    open(path).unwrap();
}

#[test]
fn a_file_that_is_owned_has_its_locks_until_it_is_dropped() {
    let place = place();
    let path = &place.path;
    let before = open(path).unwrap();
    left_files(vec![before.leave().try_clone_to_owned().unwrap()]);
    let after = open(path).unwrap();
    own_left_files();
    drop(before);
    assert_locked(path);
    // As a process that another thread is just starting has it open, which must not matter.
    let _inherited = descriptor(&after);
    drop(after);
    open(path).unwrap();
}

#[test]
fn a_store_that_stays_releases_its_locks_as_before() {
    let place = place();
    let store = open(&place.path).unwrap();
    let sent = store.leave().try_clone_to_owned().unwrap();
    store.stay();
    drop(store);
    open(&place.path).unwrap();
    drop(sent);
}

#[test]
fn another_file_at_the_path_is_not_taken_for_the_left_one() {
    let place = place();
    let path = &place.path;
    let before = open(path).unwrap();
    left_files(vec![descriptor(&before)]);
    let moved = path.with_extension("moved");
    fs::rename(path, &moved).unwrap();
    fs::write(path, vec![8; 512]).unwrap();
    let other = open(path).unwrap();
    assert!(!is_same(&before, &other));
    assert_eq!(other.geometry().len_bytes, 512);
    assert!(is_same(&before, &open(&moved).unwrap()), "the file is known under its other name");
    own_left_files();
}

#[test]
fn a_file_is_taken_for_the_access_that_it_is_open_for() {
    let place = place();
    let path = &place.path;
    let for_reading = read_only(path);
    let for_writing = open(path).unwrap();
    left_files(vec![descriptor(&for_reading), descriptor(&for_writing)]);
    assert!(is_same(&read_only(path), &for_reading));
    assert!(!is_same(&read_only(path), &for_reading), "it was taken once");
    let taken = open(path).unwrap();
    assert!(is_same(&taken, &for_writing));
    assert_locked(path);
    own_left_files();
}

#[test]
fn a_refused_opening_leaves_the_locks() {
    let place = place();
    let path = &place.path;
    let before = open(path).unwrap();
    left_files(vec![descriptor(&before)]);
    // An empty file is no disk, and is found out after it was locked.
    before.set_len(0).unwrap();
    assert!(matches!(open(path), Err(OpenError::Length { .. })));
    assert_locked(path);
    own_left_files();
}

#[test]
fn nothing_of_a_file_is_taken_back_that_another_process_may_write_to() {
    let place = place();
    let path = &place.path;
    let before = open(path).unwrap();
    before.set_len(0).unwrap();
    before.set_len(LEN).unwrap();
    left_files(vec![descriptor(&before)]);
    let options = OpenOptions { preallocate: true, tentative: true, create: Some(LEN), ..OpenOptions::default() };
    let after = FileStore::open(path, &options).unwrap();
    assert_eq!(after.make_room(2 * LEN).unwrap(), 2 * LEN);
    after.take_back();
    drop(after);
    let metadata = fs::metadata(path).unwrap();
    assert_eq!((metadata.len(), metadata.blocks() * 512), (2 * LEN, 2 * LEN));
    own_left_files();
}

#[test]
fn what_no_store_has_taken_is_closed() {
    let place = place();
    let (mut reader, writer) = std::io::pipe().unwrap();
    left_files(vec![writer.into()]);
    let store = open(&place.path).unwrap();
    own_left_files();
    assert_eq!(reader.read(&mut [0]).unwrap(), 0, "the other end is still open");
    let mut bytes = [0; 512];
    File::open(&place.path).unwrap().read_exact_at(&mut bytes, LEN - 512).unwrap();
    assert_eq!((bytes, store.file_len().unwrap()), ([7; 512], LEN));
}
