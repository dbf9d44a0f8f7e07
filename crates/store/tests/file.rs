//! Files as stores: opening, durability and failures.

#![expect(clippy::unwrap_used, reason = "a test ends with the first surprise")]

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::channel;

use lunette_buffer::Pool;
use lunette_store::{
    AllocationMap, Completion, FileIo, FileOp, FileOpKind, FileStore, InlineIo, Op, OpKind, OpenError, OpenOptions,
    Outcome, Store, StoreError, execute,
};
use tempfile::TempDir;

const LEN: u64 = 1 << 20;

fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    (folder, path)
}

fn create(len: u64) -> OpenOptions {
    OpenOptions { create: Some(len), ..OpenOptions::default() }
}

const EXISTING: OpenOptions =
    OpenOptions { create: None, read_only: false, preallocate: false, any_length: false, tentative: false };
const READ_ONLY: OpenOptions = OpenOptions { read_only: true, ..EXISTING };

fn write(fill: u8, len: usize, fua: bool) -> Op {
    let mut from = Pool::new(16 << 20).take(len).unwrap();
    from.fill(fill);
    Op::Write { offset: 0, from, fua }
}

#[test]
fn a_missing_file_is_created_sparse_or_reported() {
    let (_folder, path) = place();
    assert!(matches!(FileStore::open(&path, &EXISTING), Err(OpenError::Missing { .. })));
    let store = FileStore::open(&path, &create(1 << 40)).unwrap();
    assert_eq!(store.geometry().len_bytes, 1 << 40);
    assert_eq!(fs::metadata(&path).unwrap().blocks(), 0);
    assert!(matches!(FileStore::open("/no/such/folder/disk", &create(LEN)), Err(OpenError::MissingFolder { .. })));
}

#[test]
fn an_existing_file_keeps_its_length() {
    let (_folder, path) = place();
    drop(FileStore::open(&path, &create(LEN)).unwrap());
    let again = FileStore::open(&path, &create(2 * LEN)).unwrap();
    assert_eq!(again.geometry().len_bytes, LEN);
}

#[test]
fn a_file_of_any_length_is_exact_to_the_byte_and_changes_its_length() {
    let (_folder, path) = place();
    let options = OpenOptions { create: Some(0), any_length: true, ..OpenOptions::default() };
    let store = FileStore::open(&path, &options).unwrap();
    assert_eq!((store.geometry().len_bytes, store.geometry().granularity_bytes), (0, 1));
    assert!(matches!(execute(&store, write(7, 3, false)).result, Err(StoreError::OutOfRange { .. })));
    store.set_len(1001).unwrap();
    execute(&store, write(7, 3, false)).result.unwrap();
    execute(&store, Op::Flush).result.unwrap();
    drop(store);
    let bytes = fs::read(&path).unwrap();
    assert_eq!((bytes.len(), &bytes[..4]), (1001, &[7, 7, 7, 0][..]));
    assert_eq!(FileStore::open(&path, &EXISTING).unwrap().geometry().len_bytes, 512);
    let store = FileStore::open(&path, &options).unwrap();
    store.set_len(2).unwrap();
    assert_eq!(store.geometry().len_bytes, 2);
    assert_eq!(fs::metadata(&path).unwrap().len(), 2);
}

#[test]
fn the_wrong_type_is_named() {
    let (folder, _) = place();
    let error = FileStore::open(folder.path(), &EXISTING).unwrap_err();
    assert!(matches!(&error, OpenError::WrongType { found: "directory", .. }), "{error}");
    let error = FileStore::open("/dev/zero", &EXISTING).unwrap_err();
    assert!(matches!(&error, OpenError::WrongType { found: "character device", .. }), "{error}");
}

#[test]
fn a_length_to_create_that_is_no_number_of_blocks_is_refused() {
    let (_folder, path) = place();
    for len in [0, 511, 4097] {
        assert!(matches!(FileStore::open(&path, &create(len)), Err(OpenError::Length { .. })), "create {len}");
        assert!(!path.exists());
    }
    for len in [0, 511] {
        fs::write(&path, vec![0; len]).unwrap();
        let error = FileStore::open(&path, &EXISTING).unwrap_err();
        assert!(error.to_string().ends_with("use 512"), "open {len}: {error}");
    }
}

#[test]
fn a_permission_error_is_distinguished() {
    // A file that even root may not open for writing.
    let error = FileStore::open("/sys/kernel/uevent_seqnum", &EXISTING).unwrap_err();
    assert!(matches!(error, OpenError::Permission { .. }), "{error}");
}

#[test]
fn one_writer_at_a_time() {
    let (_folder, path) = place();
    let first = FileStore::open(&path, &create(LEN)).unwrap();
    let error = FileStore::open(&path, &EXISTING).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("stop"), "it says what to do: {error}");
    FileStore::open(&path, &READ_ONLY).unwrap();
    drop(first);
    FileStore::open(&path, &EXISTING).unwrap();
}

#[test]
fn read_only_refuses_changes() {
    let (_folder, path) = place();
    fs::write(&path, vec![5; 4096]).unwrap();
    let store = FileStore::open(&path, &READ_ONLY).unwrap();
    let capabilities = store.capabilities();
    assert!(capabilities.read_only && !capabilities.unmap && !capabilities.write_zeroes);
    for op in [
        write(1, 512, false),
        Op::WriteZeroes { offset: 0, len: 512, may_unmap: true, fua: false },
        Op::Unmap { offset: 0, len: 512 },
    ] {
        assert!(matches!(execute(&store, op).result, Err(StoreError::ReadOnly)));
    }
    assert!(execute(&store, Op::Flush).result.is_ok());
    assert!(fs::read(&path).unwrap().iter().all(|byte| *byte == 5));
}

#[test]
fn unmap_frees_space_where_it_says_so() {
    let (_folder, path) = place();
    let store = FileStore::open(&path, &create(LEN)).unwrap();
    execute(&store, write(1, LEN as usize, false)).result.unwrap();
    execute(&store, Op::Flush).result.unwrap();
    let before = fs::metadata(&path).unwrap();
    execute(&store, Op::Unmap { offset: 0, len: LEN / 2 }).result.unwrap();
    let after = fs::metadata(&path).unwrap();
    assert_eq!(after.len(), LEN);
    assert_eq!(after.blocks() < before.blocks(), store.capabilities().unmap);
}

#[test]
fn holes_are_unallocated_and_written_bytes_are_allocated() {
    let (_folder, path) = place();
    let store = FileStore::open(&path, &create(LEN)).unwrap();
    let allocated = || {
        let found = Arc::new(AllocationMap::default());
        execute(&store, Op::Allocation { offset: 0, len: LEN, found: Arc::clone(&found) }).result.unwrap();
        let runs = found.take();
        assert_eq!(runs.iter().map(|run| run.len).sum::<u64>(), LEN);
        runs.iter().filter(|run| run.allocated).map(|run| run.len).sum::<u64>()
    };
    assert_eq!(allocated(), 0);
    execute(&store, write(1, LEN as usize, true)).result.unwrap();
    assert_eq!(allocated(), LEN);
    execute(&store, Op::Unmap { offset: 0, len: LEN / 2 }).result.unwrap();
    assert_eq!(allocated() < LEN, store.capabilities().unmap);
}

#[test]
fn zeroing_without_unmap_keeps_the_space() {
    let (_folder, path) = place();
    let store = FileStore::open(&path, &create(LEN)).unwrap();
    execute(&store, write(1, LEN as usize, true)).result.unwrap();
    let before = fs::metadata(&path).unwrap().blocks();
    execute(&store, Op::WriteZeroes { offset: 0, len: LEN, may_unmap: false, fua: true }).result.unwrap();
    assert!(fs::metadata(&path).unwrap().blocks() >= before);
    assert!(fs::read(&path).unwrap().iter().all(|byte| *byte == 0));
}

#[test]
fn new_disks_are_for_their_owner_alone() {
    let dir = tempfile::tempdir().unwrap();
    for preallocate in [false, true] {
        let path = dir.path().join(format!("new-{preallocate}"));
        FileStore::open(&path, &OpenOptions { create: Some(1 << 20), preallocate, ..EXISTING }).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600, "preallocate = {preallocate}");
    }
}

#[test]
fn preallocated_space_is_taken_at_once_and_kept() {
    let (_folder, path) = place();
    let bytes = || fs::metadata(&path).unwrap().blocks() * 512;
    drop(FileStore::open(&path, &create(LEN)).unwrap());
    let store = FileStore::open(&path, &OpenOptions { preallocate: true, ..EXISTING }).unwrap();
    assert!(!store.capabilities().unmap && !store.capabilities().unmap_zeroes);
    assert_eq!(store.geometry().len_bytes, LEN);
    assert!(bytes() >= LEN);
    execute(&store, write(7, 4096, false)).result.unwrap();
    for op in [Op::Unmap { offset: 0, len: LEN }, Op::WriteZeroes { offset: 0, len: LEN, may_unmap: true, fua: false }]
    {
        execute(&store, op).result.unwrap();
        assert!(bytes() >= LEN);
    }
    let into = Pool::new(1 << 20).take(4096).unwrap();
    let read = execute(&store, Op::Read { offset: 0, into }).buffer.unwrap();
    assert!(read.iter().all(|byte| *byte == 0));
    store.make_room(2 * LEN).unwrap();
    store.refresh_len().unwrap();
    assert!(bytes() >= 2 * LEN, "what it grew by has space too");
}

#[test]
fn zeroing_a_hole_without_unmap_sets_space_aside_where_it_says_so() {
    let (_folder, path) = place();
    let store = FileStore::open(&path, &create(LEN)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().blocks(), 0);
    execute(&store, Op::WriteZeroes { offset: 0, len: LEN, may_unmap: false, fua: true }).result.unwrap();
    assert!(!store.capabilities().anchors || fs::metadata(&path).unwrap().blocks() * 512 >= LEN);
}

#[test]
fn a_grown_file_is_served_whole_after_a_refresh() {
    let (_folder, path) = place();
    let store = FileStore::open(&path, &create(LEN)).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(2 * LEN + 100).unwrap();
    let last = || Op::WriteZeroes { offset: 2 * LEN - 512, len: 512, may_unmap: false, fua: false };
    assert!(matches!(execute(&store, last()).result, Err(StoreError::OutOfRange { store_len: LEN, .. })));
    assert_eq!(store.refresh_len().unwrap(), 2 * LEN);
    assert!(execute(&store, last()).result.is_ok());
}

#[test]
fn an_error_of_the_system_comes_back_with_the_buffer() {
    let (_folder, path) = place();
    fs::write(&path, vec![0; 4096]).unwrap();
    let file = Arc::new(File::open(&path).unwrap());
    for dsync in [false, true] {
        let from = Pool::new(1 << 20).take(512).unwrap();
        let kind = FileOpKind::Write { offset: 0, from, dsync };
        let outcome = FileOp { file: Arc::clone(&file), kind }.run();
        assert!(outcome.result.is_err() && outcome.buffer.is_some(), "the file is open for reading alone");
    }
}

fn copy(from: &FileStore, source_offset: u64, offset: u64, len: u64, fua: bool) -> Op {
    Op::Copy { source: from.copy_source().unwrap(), source_offset, offset, len, fua }
}

#[test]
fn the_system_copies_between_files_and_within_one() {
    let (_folder, path) = place();
    let from = FileStore::open(&path, &create(LEN)).unwrap();
    let to = FileStore::open(path.with_extension("copy"), &create(2 * LEN)).unwrap();
    assert!(to.can_copy_from(&from.copy_source().unwrap()));
    assert!(execute(&from, write(7, 10_000, false)).result.is_ok());
    for (store, offset, fua) in [(&to, 512, false), (&to, LEN + 1, true), (&from, LEN / 2, false)] {
        assert!(execute(store, copy(&from, 100, offset, 10_000, fua)).result.is_ok());
        let into = Pool::new(1 << 20).take(10_000).unwrap();
        let bytes = execute(store, Op::Read { offset, into }).buffer.unwrap();
        assert!(bytes[..9900].iter().all(|byte| *byte == 7) && bytes[9900..].iter().all(|byte| *byte == 0));
    }
    let beyond = execute(&to, copy(&from, 0, 2 * LEN - 511, 512, false)).result;
    assert!(matches!(beyond, Err(StoreError::OutOfRange { .. })), "{beyond:?}");
}

#[test]
fn files_that_the_system_cannot_copy_are_read_and_written() {
    let (_folder, path) = place();
    let store = FileStore::open(&path, &create(LEN)).unwrap();
    assert!(execute(&store, write(7, 512, false)).result.is_ok());
    // The system refuses ranges that overlap.
    assert!(execute(&store, copy(&store, 0, 256, 8192, false)).result.is_ok());
    let bytes = fs::read(&path).unwrap();
    assert_eq!((&bytes[..768], &bytes[768..8192]), (&[7; 768][..], &[0; 8192 - 768][..]));
}

/// A disk whose next synchronisation fails and whose later ones succeed, as Linux reports it.
struct FailsOnce(RefCell<bool>);

impl FileIo for FailsOnce {
    fn submit(&self, op: FileOp, done: Completion) {
        let syncs = matches!(op.kind, FileOpKind::Sync | FileOpKind::Write { dsync: true, .. });
        if syncs && self.0.replace(false) {
            let error: io::Error = ErrorKind::Other.into();
            let buffer = if let FileOpKind::Write { from, .. } = op.kind { Some(from) } else { None };
            done.complete(Outcome::new(Err(StoreError::FlushFailed(Arc::new(error))), buffer));
        } else {
            done.complete(op.run());
        }
    }
}

fn submit(store: &FileStore, op: Op, io: &dyn FileIo) -> Outcome {
    let (tx, rx) = channel();
    store.submit(op, io, Completion::call(move |outcome| tx.send(outcome).unwrap()));
    rx.try_recv().unwrap()
}

#[test]
fn a_failed_flush_is_not_forgotten_until_the_store_is_opened_again() {
    for first in [Op::Flush, write(1, 512, true)] {
        let (_folder, path) = place();
        let store = FileStore::open(&path, &create(LEN)).unwrap();
        let io = FailsOnce(RefCell::new(true));
        assert!(matches!(submit(&store, first, &io).result, Err(StoreError::FlushFailed(_))));
        assert!(matches!(submit(&store, Op::Flush, &io).result, Err(StoreError::FlushFailed(_))));
        let outcome = submit(&store, write(1, 512, true), &io);
        assert!(matches!(outcome.result, Err(StoreError::FlushFailed(_))) && outcome.buffer.is_some());
        assert!(submit(&store, write(1, 512, false), &io).result.is_ok());
        drop(store);
        let store = FileStore::open(&path, &EXISTING).unwrap();
        assert!(submit(&store, Op::Flush, &InlineIo).result.is_ok());
    }
}

#[test]
fn a_file_is_extended_and_never_cut() {
    let (_folder, path) = place();
    let store = FileStore::open(&path, &create(LEN)).unwrap();
    assert_eq!(store.make_room(3 * LEN).unwrap(), 3 * LEN);
    assert_eq!((store.current_len().unwrap(), store.geometry().len_bytes), (3 * LEN, LEN));
    assert_eq!(store.make_room(2 * LEN).unwrap(), 3 * LEN);
    store.serve_len(3 * LEN);
    assert_eq!(store.geometry().len_bytes, 3 * LEN);
    assert!(!store.is_block_device().unwrap());
    assert_eq!(fs::metadata(&path).unwrap().blocks(), 0, "it stays sparse");
    let read_only = FileStore::open(&path, &READ_ONLY).unwrap();
    assert!(read_only.make_room(4 * LEN).is_err());
}

#[test]
fn a_read_at_once_is_from_the_page_cache_and_within_the_disk() {
    let (_folder, path) = place();
    let store = FileStore::open(&path, &create(LEN)).unwrap();
    execute(&store, write(7, 8192, false)).result.unwrap();
    let mut into = [0; 4096];
    // What was written is in the page cache, but not every file system can read from there alone.
    if store.read_at_once(4096, &mut into) {
        assert_eq!(into, [7; 4096]);
    }
    for offset in [LEN - 4095, LEN, u64::MAX] {
        assert!(!store.read_at_once(offset, &mut into));
    }
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(4096).unwrap();
    assert!(!store.read_at_once(2048, &mut into), "the file has become shorter than the disk");
    assert!(!store.answers_at_once(OpKind::Write));
}

#[test]
fn a_file_in_memory_answers_at_once() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("disk");
    let store = FileStore::open(&path, &create(LEN)).unwrap();
    assert!(store.answers_at_once(OpKind::Read) && store.answers_at_once(OpKind::Write));
    assert!(store.write_at_once(4096, &[7; 512], false));
    let mut into = [1; 1024];
    assert!(store.read_at_once(4096, &mut into));
    assert_eq!((&into[..512], &into[512..]), (&[7; 512][..], &[0; 512][..]));
    for (offset, len) in [(LEN - 511, 512), (u64::MAX, 512)] {
        assert!(!store.read_at_once(offset, &mut into[..len]) && !store.write_at_once(offset, &into[..len], false));
    }
    assert!(!store.write_at_once(0, &[9; 512], true), "a durable write is a request, whose failure is remembered");
    drop(store);
    let read_only = FileStore::open(&path, &READ_ONLY).unwrap();
    assert!(read_only.read_at_once(0, &mut into) && !read_only.write_at_once(0, &into, false));
    assert_eq!(into, [0; 1024]);
}
