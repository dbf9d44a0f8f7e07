//! Pools in folders of file systems that share blocks between files, and of one that does not.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use lunette_pools::{FolderPool, Labels, Name, NewVolume, Origin, Place, Pool, PoolError, SnapshotOf, VolumeSpace};
use lunette_tests::pools::keeps_the_contract;
use lunette_tests::{Mount, random_bytes, wait_until};

const MIB: u64 = 1 << 20;

/// The shortest file system that mkfs.xfs makes.
const XFS_BYTES: u64 = 320 * MIB;

fn xfs() -> Mount {
    Mount::new("mkfs.xfs", &["-q", "-m", "reflink=1"], XFS_BYTES)
}

fn btrfs() -> Mount {
    Mount::new("mkfs.btrfs", &["-q"], 256 * MIB)
}

fn ext4() -> Mount {
    Mount::new("mkfs.ext4", &["-q"], 64 * MIB)
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn wanted(len_bytes: u64) -> NewVolume {
    NewVolume { len_bytes, is_full: false, is_filling: false, serial: "serial".into(), labels: Labels::new() }
}

fn disk(pool: &dyn Pool, volume: &str) -> PathBuf {
    let Place::File(path) = pool.place(&name(volume), None) else { panic!("no file") };
    path
}

fn snapshot(pool: &dyn Pool, volume: &str, snapshot: &str) -> Result<(), PoolError> {
    let of = SnapshotOf { volume: name(volume), snapshot: name(snapshot) };
    let mut prepared = pool.prepare(&[of], &Labels::new())?;
    prepared.take_whole()?;
    prepared.keep().map(drop)
}

fn names_in(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[test]
fn pools_in_xfs_keep_the_contract() {
    let mount = xfs();
    let pool = FolderPool::open(&mount.path()).unwrap();
    assert!(pool.has_reflinks());
    keeps_the_contract(&pool);
    assert_eq!(names_in(&mount.path()), [".lunette"]);
    assert_eq!(names_in(&mount.path().join(".lunette")), ["lock"]);
}

#[test]
fn pools_in_btrfs_keep_the_contract() {
    let mount = btrfs();
    let pool = FolderPool::open(&mount.path()).unwrap();
    keeps_the_contract(&pool);
    assert_eq!(names_in(&mount.path().join(".lunette")), ["lock"]);
}

#[test]
fn a_volume_is_a_plain_file_and_its_snapshot_can_only_be_read() {
    let mount = xfs();
    let pool = FolderPool::open(&mount.path()).unwrap();
    pool.create(&name("db"), &wanted(MIB)).unwrap();
    File::options().write(true).open(disk(&pool, "db")).unwrap().write_all_at(b"content", 0).unwrap();
    snapshot(&pool, "db", "monday").unwrap();
    let folder = mount.path().join("db");
    assert_eq!(disk(&pool, "db"), folder.join("disk.img"));
    assert_eq!(names_in(&folder), ["disk.img", "snapshots", "volume.json"]);
    assert_eq!(names_in(&folder.join("snapshots")), ["monday.img", "monday.json"]);
    let image = folder.join("snapshots/monday.img");
    assert!(fs::read(&image).unwrap().starts_with(b"content"));
    assert_eq!(fs::metadata(&image).unwrap().permissions().mode() & 0o777, 0o440);
}

#[test]
fn without_reflinks_there_are_volumes_and_no_copies() {
    let mount = ext4();
    let pool = FolderPool::open(&mount.path()).unwrap();
    assert!(!pool.has_reflinks());
    let (db, origin) = (name("db"), Origin { volume: name("db"), snapshot: None });
    pool.create(&db, &wanted(MIB)).unwrap();
    pool.resize(&db, 2 * MIB).unwrap();
    assert!(matches!(snapshot(&pool, "db", "monday"), Err(PoolError::NoReflinks)));
    assert!(matches!(pool.clone_of(&origin, &name("copy"), &wanted(0)), Err(PoolError::NoReflinks)));
    let roll_back = pool.roll_back(&db, &name("monday"), &mut go_on);
    assert!(matches!(roll_back, Err(PoolError::NoReflinks)));
    pool.flatten(&db, &mut go_on).unwrap();
    assert_eq!(pool.changes(&db, None, None).unwrap(), []);
    pool.rename(&db, &name("other")).unwrap();
    pool.remove(&name("other")).unwrap();
    assert_eq!(names_in(&mount.path().join(".lunette")), ["lock"]);
}

#[test]
fn one_process_has_a_pool() {
    let folder = tempfile::tempdir().unwrap();
    let pool = FolderPool::open(folder.path()).unwrap();
    let refused = FolderPool::open(folder.path()).unwrap_err().to_string();
    assert!(refused.contains("another process uses this pool"), "{refused}");
    drop(pool);
    FolderPool::open(folder.path()).unwrap();
    let missing = FolderPool::open(&folder.path().join("missing")).unwrap_err().to_string();
    assert!(missing.contains("there is no such folder"), "{missing}");
    fs::write(folder.path().join("file"), "").unwrap();
    let below = FolderPool::open(&folder.path().join("file/pool")).unwrap_err().to_string();
    assert!(below.contains("correct the path"), "{below}");
}

#[test]
fn an_opening_removes_what_was_being_made_and_filled() {
    let mount = xfs();
    let pool = FolderPool::open(&mount.path()).unwrap();
    pool.create(&name("kept"), &wanted(MIB)).unwrap();
    pool.create(&name("filling"), &NewVolume { is_filling: true, ..wanted(MIB) }).unwrap();
    drop(pool);
    fs::create_dir(mount.path().join(".lunette/new-7")).unwrap();
    fs::write(mount.path().join(".lunette/new-7/disk.img"), "text").unwrap();
    FolderPool::open(&mount.path()).unwrap();
    assert_eq!(names_in(&mount.path()), [".lunette", "kept"]);
    assert_eq!(names_in(&mount.path().join(".lunette")), ["lock"]);
}

#[test]
fn a_full_file_system_refuses_and_keeps_nothing() {
    let mount = xfs();
    let pool = FolderPool::open(&mount.path()).unwrap();
    let full = NewVolume { is_full: true, ..wanted(2 * XFS_BYTES) };
    let free = || pool.space().unwrap().free_bytes;
    let before = free();
    assert!(matches!(pool.create(&name("big"), &full), Err(PoolError::Full)));
    assert_eq!(names_in(&mount.path()), [".lunette"]);
    assert_eq!(names_in(&mount.path().join(".lunette")), ["lock"]);

    pool.create(&name("small"), &NewVolume { is_full: true, ..wanted(MIB) }).unwrap();
    assert!(matches!(pool.resize(&name("small"), 2 * XFS_BYTES), Err(PoolError::Full)));
    assert_eq!(pool.volume(&name("small")).unwrap().len_bytes, MIB);
    assert_eq!(pool.volume_space(&name("small")).unwrap().own_bytes, MIB);
    pool.remove(&name("small")).unwrap();
    // The file system frees blocks in the background, and may keep a few of its own.
    let is_free = || (before - free() < MIB).then_some(());
    wait_until(Duration::from_mins(1), is_free).expect("the space comes back");
}

#[test]
fn a_clone_in_xfs_is_made_flat_while_it_is_written_to() {
    is_made_flat_while_it_is_written_to(&xfs());
}

#[test]
fn a_clone_in_btrfs_is_made_flat_while_it_is_written_to() {
    is_made_flat_while_it_is_written_to(&btrfs());
}

/// A clone keeps all that a user writes meanwhile, and shares nothing afterwards.
fn is_made_flat_while_it_is_written_to(mount: &Mount) {
    const PAGES: u64 = 2048;
    const PAGE: u64 = 4096;
    let pool = FolderPool::open(&mount.path()).unwrap();
    pool.create(&name("db"), &wanted(PAGES * PAGE)).unwrap();
    let content = random_bytes(1, (PAGES * PAGE) as usize);
    File::options().write(true).open(disk(&pool, "db")).unwrap().write_all_at(&content, 0).unwrap();
    let origin = Origin { volume: name("db"), snapshot: None };
    pool.clone_of(&origin, &name("copy"), &wanted(0)).unwrap();
    let VolumeSpace { own_bytes, shared_bytes } = pool.volume_space(&name("copy")).unwrap();
    assert_eq!((own_bytes, shared_bytes), (0, Some(PAGES * PAGE)));

    let mut written = BTreeMap::new();
    let path = disk(&pool, "copy");
    thread::scope(|scope| {
        let flat = scope.spawn(|| pool.flatten(&name("copy"), &mut go_on));
        let file = File::options().write(true).open(&path).unwrap();
        for seed in 2.. {
            let bytes = random_bytes(seed, PAGE as usize);
            let at = u64::from(u16::from_le_bytes([bytes[0], bytes[1]])) % PAGES * PAGE;
            file.write_all_at(&bytes, at).unwrap();
            written.insert(at, bytes);
            if flat.is_finished() {
                break;
            }
        }
        flat.join().unwrap().unwrap();
    });
    let mut expected = content.clone();
    for (at, bytes) in written {
        expected[at as usize..][..PAGE as usize].copy_from_slice(&bytes);
    }
    assert!(fs::read(&path).unwrap() == expected, "a write was lost");
    assert!(fs::read(disk(&pool, "db")).unwrap() == content, "the origin has changed");
    assert_eq!(pool.volume_space(&name("copy")).unwrap().shared_bytes, Some(0));
    assert_eq!(pool.volume(&name("copy")).unwrap().origin, None);
}

fn go_on(_: u64, _: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}
