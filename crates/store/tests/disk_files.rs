//! Events of files and devices below a disk: lengths, locks, full file systems, and the rest of a refused opening.

#![expect(clippy::unwrap_used, reason = "a test ends with the first surprise")]

mod machine;

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use lunette_buffer::Pool;
use lunette_store::{
    FileIdentity, FileStore, Op, OpenError, OpenOptions, Outcome, Store, StoreError, execute, left_files,
    own_left_files,
};
use machine::{FaultyFile, LoopDevice, Mount, Swap};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;
use tempfile::TempDir;

const LEN: u64 = 1 << 20;
const MIB: u64 = 1 << 20;

const EXISTING: OpenOptions =
    OpenOptions { create: None, read_only: false, preallocate: false, any_length: false, tentative: false };
const READ_ONLY: OpenOptions = OpenOptions { read_only: true, ..EXISTING };
const FULL: OpenOptions = OpenOptions { preallocate: true, ..EXISTING };

fn create(len: u64, options: OpenOptions) -> OpenOptions {
    OpenOptions { create: Some(len), ..options }
}

fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    (folder, path)
}

fn read(store: &FileStore, offset: u64, len: usize) -> Outcome {
    execute(store, Op::Read { offset, into: Pool::new(16 << 20).take(len).unwrap() })
}

fn write(store: &FileStore, offset: u64, fua: bool) -> Result<(), StoreError> {
    let mut from = Pool::new(16 << 20).take(4096).unwrap();
    from.fill(7);
    execute(store, Op::Write { offset, from, fua }).result
}

fn cut(path: &Path, len: u64) {
    File::options().write(true).open(path).unwrap().set_len(len).unwrap();
}

#[test]
fn a_file_has_its_whole_blocks_at_the_start_and_later() {
    let (_folder, path) = place();
    fs::write(&path, vec![5; 1_500_000]).unwrap();
    let store = FileStore::open(&path, &EXISTING).unwrap();
    assert_eq!((store.geometry().len_bytes, store.file_len().unwrap()), (1_499_648, 1_500_000));
    assert_eq!(store.current_len().unwrap(), 1_499_648);
    cut(&path, 2_000_001);
    assert_eq!(store.refresh_len().unwrap(), 2_000_001 / 512 * 512);
}

#[test]
fn a_read_that_meets_the_end_of_a_file_fails() {
    let (_folder, path) = place();
    let store = FileStore::open(&path, &create(LEN, EXISTING)).unwrap();
    write(&store, 0, false).unwrap();
    cut(&path, 1000);
    for (offset, len) in [(0, 4096), (512, 512), (8192, 512)] {
        let outcome = read(&store, offset, len);
        assert!(matches!(outcome.result, Err(StoreError::OutOfRange { .. })), "{offset}: {:?}", outcome.result);
        let mut into = vec![0; len];
        assert!(!store.read_at_once(offset, &mut into), "no zeroes at once either");
    }
    assert!(read(&store, 0, 512).result.is_ok());
    store.serve_len(store.current_len().unwrap());
    assert!(matches!(write(&store, 4096, false), Err(StoreError::OutOfRange { .. })));
    assert_eq!(fs::metadata(&path).unwrap().len(), 1000, "a write makes it no longer");
}

#[test]
fn a_copy_that_meets_the_end_of_its_source_fails() {
    let (_folder, path) = place();
    let from = FileStore::open(&path, &create(LEN, EXISTING)).unwrap();
    let to = FileStore::open(path.with_extension("copy"), &create(LEN, EXISTING)).unwrap();
    cut(&path, 4096);
    let copy = |source_offset, len| Op::Copy {
        source: from.copy_source().unwrap(),
        source_offset,
        offset: 0,
        len,
        fua: false,
    };
    for (offset, len) in [(0, 8192), (8192, 512)] {
        let result = execute(&to, copy(offset, len)).result;
        assert!(matches!(result, Err(StoreError::OutOfRange { .. })), "{result:?}");
    }
    assert!(execute(&to, copy(0, 4096)).result.is_ok());
}

#[test]
fn a_replaced_or_deleted_file_is_another_one() {
    let (_folder, path) = place();
    let store = FileStore::open(&path, &create(LEN, EXISTING)).unwrap();
    assert_eq!(FileIdentity::at(&path).unwrap(), store.identity());
    let link = path.with_extension("link");
    fs::hard_link(&path, &link).unwrap();
    assert_eq!(FileIdentity::at(&link).unwrap(), store.identity(), "one file under two names");
    fs::write(path.with_extension("new"), vec![0; 4096]).unwrap();
    fs::rename(path.with_extension("new"), &path).unwrap();
    assert_ne!(FileIdentity::at(&path).unwrap(), store.identity());
    fs::remove_file(&path).unwrap();
    assert_eq!(FileIdentity::at(&path).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn what_was_made_is_taken_back_or_kept() {
    let (_folder, path) = place();
    FileStore::open(&path, &create(LEN, FULL)).unwrap().take_back();
    assert!(!path.exists(), "a created file is removed");

    let tentative = OpenOptions { tentative: true, ..EXISTING };
    drop(FileStore::open(&path, &create(LEN, tentative)).unwrap());
    assert!(!path.exists(), "nothing was kept");

    let store = FileStore::open(&path, &create(LEN, tentative)).unwrap();
    store.keep();
    drop(store);
    let store = FileStore::open(&path, &EXISTING).unwrap();
    write(&store, 0, true).unwrap();
    store.make_room(4 * LEN).unwrap();
    store.take_back();
    assert_eq!(fs::metadata(&path).unwrap().len(), LEN, "a file that was made longer gets its length");
    drop(store);

    let blocks = fs::metadata(&path).unwrap().blocks();
    let store = FileStore::open(&path, &FULL).unwrap();
    assert!(fs::metadata(&path).unwrap().blocks() > blocks);
    store.take_back();
    assert_eq!(fs::metadata(&path).unwrap().blocks(), blocks, "space for its holes is given back");
    assert!(fs::read(&path).unwrap()[..4096].iter().all(|byte| *byte == 7));
}

/// Space that was never written reads as a hole, like a range without space.
#[test]
fn space_that_a_file_had_before_is_not_given_back() {
    let (_folder, path) = place();
    let file = File::create(&path).unwrap();
    file.set_len(4 * MIB).unwrap();
    for (offset, len) in [(0, MIB), (2 * MIB, MIB / 2)] {
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::KEEP_SIZE, offset, len).unwrap();
    }
    let blocks = || fs::metadata(&path).unwrap().blocks();
    let before = blocks();
    let store = FileStore::open(&path, &FULL).unwrap();
    assert!(blocks() * 512 >= 4 * MIB);
    store.take_back();
    assert_eq!(blocks(), before);
}

#[test]
fn a_file_that_another_program_has_put_in_its_place_stays() {
    let (_folder, path) = place();
    let store = FileStore::open(&path, &create(LEN, EXISTING)).unwrap();
    fs::write(path.with_extension("new"), "theirs").unwrap();
    fs::rename(path.with_extension("new"), &path).unwrap();
    store.take_back();
    assert_eq!(fs::read(&path).unwrap(), b"theirs");
}

/// Each file system has its own way to fail half way.
#[test]
fn a_full_file_system_is_as_before_after_a_refusal() {
    for mount in [Mount::tmpfs(16 * MIB), Mount::ext4(16 * MIB)] {
        let path = mount.path().join("new");
        // The file system may keep some records of its own.
        let free = || mount.free_bytes().next_multiple_of(MIB / 4);
        let before = free();
        let last_change = || fs::metadata(mount.path()).unwrap().modified().unwrap();
        let unchanged = last_change();
        let error = FileStore::open(&path, &create(200 * MIB, FULL)).unwrap_err();
        assert!(matches!(error, OpenError::Io { .. }), "{error}");
        assert!(!path.exists());
        assert_eq!(last_change(), unchanged, "{mount:?}: it was never there");
        assert_eq!(free(), before, "{mount:?}: a file that was to be created");

        let store = FileStore::open(&path, &create(2 * MIB, FULL)).unwrap();
        store.keep();
        write(&store, 0, true).unwrap();
        let before = free();
        assert!(store.make_room(200 * MIB).is_err());
        assert_eq!((fs::metadata(&path).unwrap().len(), free()), (2 * MIB, before), "{mount:?}: to be extended");
        assert!(fs::metadata(&path).unwrap().blocks() * 512 >= 2 * MIB, "its own space stays");
        drop(store);
        FileStore::open(&path, &FULL).unwrap();

        let sparse = mount.path().join("sparse");
        drop(FileStore::open(&sparse, &create(200 * MIB, EXISTING)).unwrap());
        let before = free();
        FileStore::open(&sparse, &FULL).unwrap_err();
        assert_eq!(free(), before, "{mount:?}: to be filled");
    }
}

#[test]
fn a_file_grows_only_where_there_is_space() {
    let mount = Mount::ext4(16 * MIB);
    let path = mount.path().join("disk");
    let len = mount.free_bytes() / MIB * MIB * 3 / 4;
    let store = FileStore::open(&path, &create(len, FULL)).unwrap();
    store.keep();
    File::options().write(true).open(&path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    store.make_room(2 * len).unwrap_err();
    let changed = fs::metadata(&path).unwrap().modified().unwrap();
    assert_eq!(changed, SystemTime::UNIX_EPOCH, "it was never longer");
    // Space that it has is not asked for again.
    assert_eq!(store.make_room(len + MIB).unwrap(), len + MIB);
    drop(store);
    FileStore::open(&path, &FULL).unwrap();
}

#[test]
fn a_full_file_system_refuses_writes_and_takes_them_again() {
    let mount = Mount::ext4(16 * MIB);
    let store = FileStore::open(mount.path().join("disk"), &create(64 * MIB, EXISTING)).unwrap();
    write(&store, 0, true).unwrap();
    let filler = mount.path().join("filler");
    let free = mount.free_bytes();
    drop(FileStore::open(&filler, &create(free / 4096 * 4096, FULL)).ok());
    machine::fill(&filler);
    for fua in [false, true] {
        let result = write(&store, MIB, fua);
        assert!(matches!(result, Err(StoreError::NoSpace)), "{result:?}");
    }
    assert!(!store.has_lost_writes(), "refused is not lost");
    assert!(read(&store, 0, 4096).result.is_ok() && write(&store, 0, true).is_ok());
    fs::remove_file(&filler).unwrap();
    // ext4 gives the blocks of a removed file to others when its journal has the removal.
    File::open(mount.path()).unwrap().sync_all().unwrap();
    write(&store, MIB, true).unwrap();
}

/// The server tries it again and again, and another program that watches the folder finds no file that comes and goes.
#[test]
fn a_file_beyond_a_quota_is_never_there() {
    let mount = Mount::btrfs(128 * MIB);
    mount.limit("8M");
    let last_change = || fs::metadata(mount.path()).unwrap().modified().unwrap();
    let unchanged = last_change();
    let error = FileStore::open(mount.path().join("disk"), &create(16 * MIB, FULL)).unwrap_err();
    assert!(matches!(error, OpenError::Io { .. }), "{error}");
    assert_eq!(last_change(), unchanged);
    mount.limit("none");
    FileStore::open(mount.path().join("disk"), &create(16 * MIB, FULL)).unwrap();
}

#[test]
fn a_quota_refuses_writes_until_it_is_raised() {
    let mount = Mount::btrfs(128 * MIB);
    let store = FileStore::open(mount.path().join("disk"), &create(64 * MIB, EXISTING)).unwrap();
    write(&store, 0, true).unwrap();
    mount.limit("8M");
    let refused = (0..).map(|page| write(&store, page * 4096, false)).find_map(Result::err);
    assert!(matches!(refused, Some(StoreError::NoSpace)), "{refused:?}");
    assert!(read(&store, 0, 4096).result.is_ok() && !store.has_lost_writes());
    mount.limit("none");
    write(&store, 32 * MIB, true).unwrap();
}

/// The answer of a file system reaches the caller, and each request asks it again.
#[test]
fn each_error_of_a_file_system_has_its_kind_until_it_is_mended() {
    let file = FaultyFile::new(MIB);
    let store = FileStore::open(file.path(), &EXISTING).unwrap();
    let kind = |result: Result<(), StoreError>| match result {
        Ok(()) => "none",
        Err(StoreError::NoSpace) => "no space",
        Err(StoreError::ReadOnly) => "read only",
        Err(StoreError::Gone(_)) => "gone",
        Err(StoreError::Io(_) | StoreError::Unreadable { offset: 0, .. }) => "io",
        Err(other) => panic!("{other}"),
    };
    let table = [
        ("io", Errno::IO),
        ("io", Errno::TIMEDOUT),
        ("no space", Errno::DQUOT),
        ("no space", Errno::FBIG),
        ("read only", Errno::ROFS),
        ("gone", Errno::NXIO),
        ("gone", Errno::NODEV),
        ("gone", Errno::STALE),
        // A file system whose server has ended. To end this one would be a trap: a child of another test that is just
        // starting has the descriptors of the server, and waits for it.
        ("gone", Errno::NOTCONN),
    ];
    for (expected, errno) in table {
        file.fail_with(errno);
        for _ in 0..2 {
            assert_eq!(kind(read(&store, 0, 4096).result), expected, "{errno}");
            assert_eq!(kind(write(&store, 0, false)), expected, "{errno}");
        }
        file.mend();
        assert_eq!((kind(read(&store, 0, 4096).result), kind(write(&store, 0, false))), ("none", "none"), "{errno}");
    }
    file.fail_with(Errno::IO);
    assert!(matches!(execute(&store, Op::Flush).result, Err(StoreError::FlushFailed(_))));
    file.mend();
    assert!(matches!(execute(&store, Op::Flush).result, Err(StoreError::FlushFailed(_))), "the system says it once");
    store.accept_loss();
    assert!(execute(&store, Op::Flush).result.is_ok());
}

/// A loop device has no medium where its file has become shorter.
#[test]
fn a_block_that_cannot_be_read_fails_alone() {
    let folder = tempfile::tempdir().unwrap();
    let backing = folder.path().join("backing");
    let device = LoopDevice::over(&backing, 2 * MIB);
    let store = FileStore::open(device.path(), &EXISTING).unwrap();
    cut(&backing, MIB);
    for _ in 0..2 {
        for (offset, len) in [(MIB, 4096), (MIB - 8192, 16_384)] {
            let result = read(&store, offset, len).result;
            assert!(matches!(result, Err(StoreError::Unreadable { offset: MIB, .. })), "{offset}+{len}: {result:?}");
        }
        assert!(read(&store, 0, 4096).result.is_ok());
    }
    cut(&backing, 2 * MIB);
    assert!(read(&store, MIB, 4096).result.is_ok(), "each request asks the medium again");
}

/// A block device may lose its end, too.
#[test]
fn a_device_that_becomes_smaller_is_a_shorter_disk() {
    let folder = tempfile::tempdir().unwrap();
    let backing = folder.path().join("backing");
    let device = LoopDevice::over(&backing, 2 * MIB);
    let store = FileStore::open(device.path(), &EXISTING).unwrap();
    for len in [MIB, 0] {
        cut(&backing, len);
        device.follow_length();
        assert_eq!(store.current_len().unwrap(), len);
        let result = read(&store, MIB, 4096).result;
        assert!(matches!(result, Err(StoreError::OutOfRange { .. })), "{result:?}");
    }
}

#[test]
fn what_is_no_file_or_cannot_be_read_is_not_opened() {
    let mount = Mount::ext4(16 * MIB);
    let path = |name: &str| mount.path().join(name);
    fs::create_dir(path("folder")).unwrap();
    assert!(machine::command("mkfifo").arg(path("pipe")).status().unwrap().success());
    let _listener = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
    fs::write(path("empty"), "").unwrap();
    for (name, attribute) in [("locked", "+i"), ("growing", "+a")] {
        fs::write(path(name), vec![0; 4096]).unwrap();
        assert!(machine::command("chattr").arg(attribute).arg(path(name)).status().unwrap().success());
    }
    std::os::unix::fs::symlink("loop", path("loop")).unwrap();
    let table = [
        ("none", "no such file or device; check the path, or give a size to create the file"),
        ("none/disk", "there is no folder"),
        ("folder", "is a directory, not"),
        ("pipe", "is a pipe, not"),
        ("socket", "is a socket, not"),
        ("empty", "0 bytes are not one or more whole blocks of 512 bytes"),
        ("locked", "immutable or append-only (lsattr"),
        ("growing", "immutable or append-only (lsattr"),
        ("loop", "Too many levels of symbolic links"),
    ];
    for (name, expected) in table {
        let error = FileStore::open(path(name), &EXISTING).unwrap_err().to_string();
        assert!(error.starts_with(path(name).to_str().unwrap()) && error.contains(expected), "{error}");
    }
    let error = FileStore::open("/dev/null", &EXISTING).unwrap_err();
    assert!(matches!(error, OpenError::WrongType { found: "character device", .. }), "{error}");

    let without = LoopDevice::over(&path("empty"), 0);
    let error = FileStore::open(without.path(), &EXISTING).unwrap_err().to_string();
    assert!(error.contains("the device has nothing in it"), "{error}");
    drop(without);

    fs::write(path("good"), vec![0; 4096]).unwrap();
    mount.remount("ro");
    let error = FileStore::open(path("good"), &EXISTING).unwrap_err();
    assert!(matches!(error, OpenError::ReadOnlyFileSystem { .. }), "{error}");
    assert!(FileStore::open(path("good"), &READ_ONLY).is_ok());
    mount.remount("rw");
    assert!(FileStore::open(path("good"), &EXISTING).is_ok());
}

#[test]
fn a_file_system_that_cannot_set_space_aside_is_named_with_the_remedy() {
    let mount = Mount::ext2(8 * MIB);
    let path = mount.path().join("disk");
    for options in [create(MIB, FULL), create(MIB, EXISTING), FULL] {
        match FileStore::open(&path, &options) {
            Ok(_) => assert!(!options.preallocate),
            Err(error) => assert!(error.to_string().contains("write provisioning = \"thin\""), "{error}"),
        }
    }
    assert!(path.exists());
}

#[test]
fn a_file_system_that_turns_read_only_refuses_writes() {
    let mount = Mount::ext4(16 * MIB);
    let store = FileStore::open(mount.path().join("disk"), &create(MIB, EXISTING)).unwrap();
    write(&store, 0, true).unwrap();
    mount.fail();
    for fua in [false, true] {
        let result = write(&store, MIB / 2, fua);
        assert!(matches!(result, Err(StoreError::ReadOnly)), "{result:?}");
    }
    assert_eq!(read(&store, 0, 4096).buffer.unwrap()[..], [7; 4096]);
}

#[test]
fn a_device_that_was_set_read_only_refuses_writes_until_it_is_set_back() {
    let device = LoopDevice::of_len(2 * MIB);
    let store = FileStore::open(device.path(), &EXISTING).unwrap();
    write(&store, 0, true).unwrap();
    device.set_read_only(true);
    assert!(matches!(write(&store, 0, false), Err(StoreError::ReadOnly)));
    device.set_read_only(false);
    write(&store, 0, true).unwrap();
}

#[test]
fn a_device_without_a_medium_fails_and_a_failed_flush_is_remembered_until_it_is_accepted() {
    // A loop device over a file on a full file system fails what it cannot write.
    let mount = Mount::tmpfs(MIB);
    let device = LoopDevice::over(&mount.path().join("backing"), 4 * MIB);
    let store = FileStore::open(device.path(), &EXISTING).unwrap();
    for offset in (0..2 * MIB).step_by(4096) {
        write(&store, offset, false).unwrap();
    }
    assert!(matches!(execute(&store, Op::Flush).result, Err(StoreError::FlushFailed(_))));
    assert!(store.has_lost_writes());
    assert!(matches!(execute(&store, Op::Flush).result, Err(StoreError::FlushFailed(_))), "it does not forget");
    store.accept_loss();
    write(&store, 0, true).unwrap();
    assert!(execute(&store, Op::Flush).result.is_ok());
}

/// A program that has the file, as a child of this test.
struct Holder(std::process::Child);

impl Holder {
    /// QEMU's programs lock like its machines.
    fn qemu(path: &Path, mode: &str) -> Self {
        let mut qemu = machine::command("qemu-io");
        qemu.args(["-f", "raw", mode]).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = qemu.spawn().unwrap();
        machine::wait_for_prompt(&mut child);
        Self(child)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn in_use(path: &Path) -> String {
    match FileStore::open(path, &EXISTING) {
        Err(OpenError::InUse { holder, .. }) => holder.unwrap_or_default(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn qemu_and_a_disk_exclude_each_other() {
    let (_folder, path) = place();
    fs::write(&path, vec![5; LEN as usize]).unwrap();
    let qemu = Holder::qemu(&path, "-n");
    let pid = qemu.0.id();
    assert_eq!(in_use(&path), format!("process {pid} (qemu-io)"));
    assert!(FileStore::open(&path, &READ_ONLY).is_ok(), "a disk that only reads shares");
    drop(qemu);
    let store = FileStore::open(&path, &EXISTING).unwrap();
    let mut info = machine::command("qemu-img");
    let output = info.args(["bench", "-f", "raw", "-w", "-c", "1"]).arg(&path).output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("lock"), "{output:?}");
    drop(store);
    assert!(FileStore::open(&path, &EXISTING).is_ok());
}

#[test]
fn a_lock_of_a_record_is_seen_and_its_process_named() {
    let (_folder, path) = place();
    fs::write(&path, vec![5; LEN as usize]).unwrap();
    let script = "import fcntl, sys\nfile = open(sys.argv[1], 'r+')\nfcntl.lockf(file, fcntl.LOCK_EX, 512, 4096)\nprint('> ', end='', flush=True)\nsys.stdin.read()";
    let mut python = machine::command("python3");
    python.args(["-c", script]).arg(&path).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = Holder(python.spawn().unwrap());
    machine::wait_for_prompt(&mut holder.0);
    assert!(in_use(&path).starts_with(&format!("process {} ", holder.0.id())));
    drop(holder);
    assert!(FileStore::open(&path, &EXISTING).is_ok());
}

#[test]
fn a_closed_disk_is_free_though_a_starting_process_has_its_file() {
    let (_folder, path) = place();
    let disk = FileStore::open(&path, &create(LEN, EXISTING)).unwrap();
    // As between fork and exec.
    let inherited = disk.as_fd().try_clone_to_owned().unwrap();
    drop(disk);
    assert!(FileStore::open(&path, &EXISTING).is_ok());
    drop(inherited);
}

#[test]
fn a_second_disk_on_a_file_is_refused_and_the_first_is_named() {
    let (_folder, path) = place();
    let first = FileStore::open(&path, &create(LEN, EXISTING)).unwrap();
    let link = path.with_extension("link");
    fs::hard_link(&path, &link).unwrap();
    for path in [&path, &link] {
        assert!(in_use(path).contains("another disk of this process"));
    }
    drop(first);
    assert!(FileStore::open(&path, &EXISTING).is_ok());
}

#[test]
fn a_file_that_a_loop_device_shows_is_in_use() {
    let (_folder, path) = place();
    let device = LoopDevice::over(&path, LEN);
    assert_eq!(in_use(&path), format!("the loop device {}", device.path().display()));
    assert!(FileStore::open(&path, &READ_ONLY).is_ok());
    // The loop device has the file, whatever its names are.
    let link = path.with_extension("link");
    fs::hard_link(&path, &link).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(in_use(&link), format!("the loop device {}", device.path().display()));
    drop(device);
    assert!(FileStore::open(&link, &EXISTING).is_ok());
}

#[test]
fn swap_space_is_in_use() {
    let mount = Mount::ext4(16 * MIB);
    let path = mount.path().join("swap");
    fs::write(&path, vec![0; LEN as usize]).unwrap();
    let device = LoopDevice::of_len(LEN);
    for path in [path.as_path(), device.path()] {
        let swap = Swap::on(path);
        assert_eq!(in_use(path), "the system, which swaps to it (swapoff ends that)");
        assert!(FileStore::open(path, &READ_ONLY).is_ok());
        drop(swap);
        assert!(FileStore::open(path, &EXISTING).is_ok());
    }
}

#[test]
fn a_program_that_runs_is_in_use() {
    let (_folder, path) = place();
    // Copied by another process: a file that this one has open for writing could not be started.
    assert!(machine::command("cp").arg("/bin/sleep").arg(&path).status().unwrap().success());
    let program = Holder(std::process::Command::new(&path).arg("600").spawn().unwrap());
    assert_eq!(in_use(&path), format!("process {} (disk)", program.0.id()));
}

/// Another process is asked to give up its lease, and opening does not wait for it.
#[test]
fn a_file_with_a_lease_is_in_use() {
    let script = "import fcntl, signal, sys\nsignal.signal(signal.SIGIO, signal.SIG_IGN)\nfile = open(sys.argv[1], sys.argv[2])\nfcntl.fcntl(file, fcntl.F_SETLEASE, getattr(fcntl, sys.argv[3]))\nprint('> ', end='', flush=True)\nsys.stdin.read()";
    for (mode, lease, options) in
        [("r", "F_RDLCK", EXISTING), ("r+", "F_WRLCK", EXISTING), ("r+", "F_WRLCK", READ_ONLY)]
    {
        let (_folder, path) = place();
        fs::write(&path, vec![5; LEN as usize]).unwrap();
        let mut python = machine::command("python3");
        python.args(["-c", script]).arg(&path).args([mode, lease]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = Holder(python.spawn().unwrap());
        machine::wait_for_prompt(&mut holder.0);
        let error = FileStore::open(&path, &options).unwrap_err().to_string();
        assert!(error.contains(&format!("in use by process {} ", holder.0.id())), "{lease}: {error}");
        drop(holder);
        let store = FileStore::open(&path, &options).unwrap();
        assert!(!fcntl_getfl(&store).unwrap().contains(OFlags::NONBLOCK), "requests wait for the medium");
    }
}

#[test]
fn a_device_that_is_mounted_or_opened_for_itself_is_in_use() {
    let mount = Mount::ext4(16 * MIB);
    let device = mount.device().unwrap();
    assert_eq!(in_use(&device), format!("the file system mounted at {}", mount.path().display()));
    assert!(FileStore::open(&device, &READ_ONLY).is_ok());
    drop(mount);
    let device = LoopDevice::of_len(LEN);
    let first = FileStore::open(device.path(), &EXISTING).unwrap();
    assert!(in_use(device.path()).contains("another disk of this process"));
    drop(first);
    // Linux keeps the claim for the last copy of the file, and a process that another test is just starting has one.
    let give_up = Instant::now() + Duration::from_mins(1);
    while let Err(error) = FileStore::open(device.path(), &EXISTING) {
        assert!(Instant::now() < give_up, "{error}");
        thread::yield_now();
    }
}

#[test]
fn a_device_that_an_earlier_process_has_left_open_keeps_its_claim() {
    let device = LoopDevice::of_len(LEN);
    let before = FileStore::open(device.path(), &EXISTING).unwrap();
    left_files(vec![before.leave().try_clone_to_owned().unwrap()]);
    let after = FileStore::open(device.path(), &EXISTING).unwrap();
    assert_eq!(after.geometry(), before.geometry());
    assert!(in_use(device.path()).contains("another disk of this process"));
    own_left_files();
    drop(before);
    assert!(in_use(device.path()).contains("another disk of this process"));
    let bytes = execute(&after, Op::Write { offset: 0, from: Pool::new(1 << 20).take(4096).unwrap(), fua: true });
    bytes.result.unwrap();
}

#[test]
fn a_loop_device_over_another_file_is_another_disk() {
    let device = LoopDevice::of_len(LEN);
    let before = FileIdentity::at(device.path()).unwrap();
    assert_eq!(FileIdentity::at(device.path()).unwrap(), before);
    let other = tempfile::NamedTempFile::new().unwrap();
    other.as_file().set_len(LEN).unwrap();
    device.show(other.path());
    assert_ne!(FileIdentity::at(device.path()).unwrap(), before);
}
