//! Pools of volumes in Ceph: what the engine does beside what all engines do.
//!
//! Each test has a namespace of the pool `rbd` for itself.

use std::ops::ControlFlow;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use lunette_buffer::{Buffer, Pool as Buffers};
use lunette_pools::{CephPool, Labels, Name, NewVolume, Origin, Place, Pool, PoolError, Snapshot, SnapshotOf};
use lunette_rbd::limits::MANAGE_LIMIT;
use lunette_rbd::{Images, PoolUrl, RbdStore};
use lunette_store::{Op, Store, execute};
use lunette_tests::pools::keeps_the_contract;
use lunette_tests::{Ceph, Namespace, Server, random_bytes};
use rustix::process::Signal;

const LIMIT: Duration = Duration::from_mins(1);

const MIB: u64 = 1 << 20;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn open(namespace: &Namespace<'_>) -> CephPool {
    CephPool::open(&namespace.url().parse().unwrap(), MANAGE_LIMIT).unwrap()
}

fn images(namespace: &Namespace<'_>) -> Images {
    Images::connect(&namespace.url().parse().unwrap(), MANAGE_LIMIT).unwrap()
}

fn new(mebibytes: u64) -> NewVolume {
    let (serial, labels) = ("serial 1".into(), Labels::from([("tier".into(), "gold".into())]));
    NewVolume { len_bytes: mebibytes * MIB, is_full: false, is_filling: false, serial, labels }
}

fn create(pool: &CephPool, volume: &str, mebibytes: u64) -> Name {
    let volume = name(volume);
    pool.create(&volume, &new(mebibytes)).unwrap();
    volume
}

/// Takes a snapshot of this name of each volume.
fn snapshot(pool: &CephPool, volumes: &[&Name], snapshot: &str) -> Vec<Snapshot> {
    let of = |volume: &&Name| SnapshotOf { volume: (*volume).clone(), snapshot: name(snapshot) };
    let group: Vec<SnapshotOf> = volumes.iter().map(of).collect();
    let mut snapshots = pool.prepare(&group, &Labels::new()).unwrap();
    snapshots.take_whole().unwrap();
    snapshots.keep().unwrap()
}

fn store(pool: &CephPool, volume: &Name, snapshot: Option<&Name>) -> RbdStore {
    let Place::Image(url) = pool.place(volume, snapshot) else { panic!("volumes are images") };
    RbdStore::open(&url, false).unwrap()
}

fn write(store: &RbdStore, offset: u64, bytes: &[u8]) {
    let mut from = buffer(bytes.len());
    from.copy_from_slice(bytes);
    execute(store, Op::Write { offset, from, fua: false }).result.unwrap();
}

fn read(store: &RbdStore, offset: u64, len: usize) -> Vec<u8> {
    let outcome = execute(store, Op::Read { offset, into: buffer(len) });
    outcome.result.unwrap();
    outcome.buffer.unwrap().to_vec()
}

fn buffer(len: usize) -> Buffer {
    Buffers::new(8 << 20).take(len).unwrap()
}

fn close(store: &RbdStore) {
    store.close(LIMIT).unwrap();
}

/// Writes to a volume that nothing has open.
fn put(pool: &CephPool, volume: &Name, offset: u64, bytes: &[u8]) {
    let store = store(pool, volume, None);
    write(&store, offset, bytes);
    close(&store);
}

fn get(pool: &CephPool, volume: &Name, snapshot: Option<&Name>, offset: u64, len: usize) -> Vec<u8> {
    let store = store(pool, volume, snapshot);
    let bytes = read(&store, offset, len);
    close(&store);
    bytes
}

/// Progress that is not stopped.
fn go_on(_: u64, _: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[test]
fn pools_in_ceph_keep_the_contract() {
    let ceph = Ceph::shared();
    let namespace = ceph.namespace();
    keeps_the_contract(&open(&namespace));
    assert!(images(&namespace).metadata("lunette.").unwrap().is_empty());
}

#[test]
fn a_volume_that_is_served_is_managed_through_its_store() {
    let ceph = Ceph::shared();
    let namespace = ceph.namespace();
    let pool = open(&namespace);
    let volume = create(&pool, "served", 16);
    let served = store(&pool, &volume, None);
    let (resized, lengths) = channel();
    assert!(served.on_resize(move |len_bytes| resized.send(len_bytes).unwrap()));
    write(&served, 0, &[1; 4096]);
    snapshot(&pool, &[&volume], "first");
    write(&served, 0, &[2; 4096]);
    pool.resize(&volume, 24 * MIB).unwrap();
    assert_eq!(lengths.recv_timeout(LIMIT), Ok(24 * MIB));
    served.serve_len(24 * MIB);
    write(&served, 20 * MIB, &[3; 4096]);
    assert!(matches!(pool.remove(&volume), Err(PoolError::HasSnapshots { count: 1, .. })));

    let mut told = Vec::new();
    let mut progress = |done, total| {
        told.push((done, total));
        ControlFlow::Continue(())
    };
    pool.roll_back(&volume, &name("first"), &mut progress).unwrap();
    assert_eq!(told[0], (0, 16 * MIB));
    assert_eq!(lengths.recv_timeout(LIMIT), Ok(16 * MIB));
    served.serve_len(16 * MIB);
    assert_eq!(read(&served, 0, 4096), [1; 4096]);
    write(&served, 4096, &[4; 4096]);

    pool.remove_snapshot(&volume, &name("first")).unwrap();
    assert!(matches!(pool.remove(&volume), Err(PoolError::Busy(..))), "it is open");
    assert_eq!(pool.volume(&volume).unwrap().len_bytes, 16 * MIB, "nothing of it is gone");
    close(&served);
    pool.remove(&volume).unwrap();
    assert!(matches!(pool.volume(&volume), Err(PoolError::NoVolume(_))));
}

#[test]
fn a_roll_back_needs_the_lock_that_another_client_may_have() {
    let ceph = Ceph::shared();
    let namespace = ceph.namespace();
    let pool = open(&namespace);
    let volume = create(&pool, "volume", 16);
    snapshot(&pool, &[&volume], "first");
    let served = Server::start(&[&namespace.image_url("volume")]);
    let refused = pool.roll_back(&volume, &name("first"), &mut go_on);
    assert!(matches!(refused, Err(PoolError::Busy(..))), "{refused:?}");
    pool.volume(&volume).unwrap();
    snapshot(&pool, &[&volume], "second");
    served.stop();
    pool.roll_back(&volume, &name("first"), &mut go_on).unwrap();
}

#[test]
fn clones_keep_their_origin_until_they_are_flattened() {
    let ceph = Ceph::shared();
    let namespace = ceph.namespace();
    let pool = open(&namespace);
    let [golden, first, second] = [create(&pool, "golden", 16), name("first"), name("second")];
    put(&pool, &golden, 5 * MIB, &[1; 4096]);
    snapshot(&pool, &[&golden], "base");
    let base = name("base");
    let of_snapshot = Origin { volume: golden.clone(), snapshot: Some(base.clone()) };
    let of_volume = Origin { volume: golden.clone(), snapshot: None };
    let clone = |origin: &Origin, clone: &Name, serial: &str| {
        let made = pool.clone_of(origin, clone, &NewVolume { serial: serial.into(), ..new(0) }).unwrap();
        assert_eq!((&made.origin.as_ref(), &*made.serial, made.len_bytes), (&Some(origin), serial, 16 * MIB));
    };
    clone(&of_snapshot, &first, "clone 1");
    put(&pool, &golden, 5 * MIB, &[2; 4096]);
    clone(&of_volume, &second, "clone 2");
    put(&pool, &golden, 5 * MIB, &[3; 4096]);
    assert_eq!(get(&pool, &first, None, 5 * MIB, 4096), [1; 4096]);
    assert_eq!(get(&pool, &second, None, 5 * MIB, 4096), [2; 4096]);
    assert_eq!(pool.snapshots(&golden).unwrap().len(), 1, "the clone of the present has left none");

    let clones_of = |refused: Result<(), PoolError>| match refused {
        Err(PoolError::HasClones { what, clones }) => (what, clones),
        other => panic!("it has clones: {other:?}"),
    };
    assert_eq!(clones_of(pool.remove_snapshot(&golden, &base)), ("golden@base".into(), vec!["first".into()]));
    let stopped = pool.flatten(&first, &mut |_, _| ControlFlow::Break(()));
    assert!(matches!(stopped, Err(PoolError::Stopped)), "{stopped:?}");
    let served = store(&pool, &first, None);
    pool.flatten(&first, &mut go_on).unwrap();
    assert_eq!(read(&served, 5 * MIB, 4096), [1; 4096]);
    close(&served);
    assert_eq!(pool.volume(&first).unwrap().origin, None);
    pool.remove_snapshot(&golden, &base).unwrap();
    assert_eq!(clones_of(pool.remove(&golden)), ("golden".into(), vec!["second".into()]));
    pool.remove(&second).unwrap();
    pool.remove(&golden).unwrap();
    assert_eq!(get(&pool, &first, None, 5 * MIB, 4096), [1; 4096]);
}

#[test]
fn images_of_other_programs_are_volumes_too() {
    let ceph = Ceph::shared();
    let namespace = ceph.namespace();
    let pool = open(&namespace);
    namespace.rbd(&["create", "foreign", "--size", "16M"]).succeeded();
    namespace.rbd(&["create", "no name", "--size", "16M"]).succeeded();
    let ours = create(&pool, "ours", 16);
    namespace.rbd(&["cp", "ours", "copy", "--dest-pool", "rbd", "--dest-namespace", namespace.name()]).succeeded();
    let (volumes, left_out) = pool.volumes().unwrap();
    let names: Vec<&str> = volumes.iter().map(|volume| volume.name.as_str()).collect();
    assert_eq!(names, ["copy", "foreign", "ours"]);
    assert!(left_out.len() == 1 && left_out[0].to_string().contains("\"no name\""), "{left_out:?}");
    let [copy, foreign, first] = &volumes[..] else { panic!("three volumes") };
    assert_eq!((&*first.serial, &first.labels), ("serial 1", &new(0).labels));
    assert!(copy.serial != first.serial && copy.labels.is_empty(), "a copy is another volume: {copy:?}");
    assert!(!foreign.serial.is_empty() && foreign.created.elapsed().unwrap() < LIMIT);

    let labels = Labels::from([("key".into(), "ä value".into())]);
    pool.set_labels(&foreign.name, &labels).unwrap();
    let labelled = pool.volume(&foreign.name).unwrap();
    assert_eq!((&labelled.serial, &labelled.labels), (&foreign.serial, &labels));
    pool.rename(&foreign.name, &name("renamed")).unwrap();
    assert_eq!(pool.volume(&name("renamed")).unwrap().serial, foreign.serial);
    assert!(matches!(pool.rename(&ours, &name("renamed")), Err(PoolError::VolumeExists(_))));
    pool.volume(&ours).unwrap();
}

#[test]
fn what_was_interrupted_is_ended_or_undone_when_the_pool_is_opened() {
    let ceph = Ceph::shared();
    let namespace = ceph.namespace();
    let images = images(&namespace);
    let change = |volume: &str, change: &str| images.set_metadata(&format!("lunette.change.{volume}"), change).unwrap();
    {
        let pool = open(&namespace);
        let mut volumes = ["torn", "grouped", "short", "gone", "named"].map(|volume| create(&pool, volume, 16));
        pool.create(&name("filling"), &NewVolume { is_filling: true, ..new(16) }).unwrap();
        assert!(pool.volume(&name("filling")).unwrap().is_filling);
        volumes.sort();
        put(&pool, &name("torn"), 0, &[1; 4096]);
        snapshot(&pool, &[&name("torn"), &name("grouped")], "kept");
        put(&pool, &name("torn"), 0, &[2; 4096]);
    }
    change("torn", r#"{"change":"roll-back","snapshot":"kept"}"#);
    images.open_to_change("grouped").unwrap().create_snapshot("not-kept").unwrap();
    change(
        "grouped",
        r#"{"change":"snapshots","group":[{"volume":"grouped","snapshot":"not-kept"},{"volume":"short","snapshot":"s"}]}"#,
    );
    change("short", &format!(r#"{{"change":"shrink","len_bytes":{}}}"#, 4 * MIB));
    let id = |image: &str| images.open(image, None).unwrap().id().unwrap();
    change("gone", &format!(r#"{{"change":"remove","image":"{}"}}"#, id("gone")));
    // An image without a record that has nothing in it, and one that has.
    images.create("empty", 16 * MIB).unwrap();
    change("empty", r#"{"change":"make","origin":null}"#);
    namespace.rbd(&["create", "data", "--size", "16M"]).succeeded();
    let bench = ["bench", "data", "--io-type", "write", "--io-size", "4K", "--io-total", "4K"];
    namespace.rbd(&bench).succeeded();
    change("data", r#"{"change":"make","origin":null}"#);

    let pool = open(&namespace);
    let (volumes, left_out) = pool.volumes().unwrap();
    assert!(left_out.is_empty(), "{left_out:?}");
    let names: Vec<&str> = volumes.iter().map(|volume| volume.name.as_str()).collect();
    assert_eq!(names, ["data", "grouped", "named", "short", "torn"]);
    assert_eq!(get(&pool, &name("torn"), None, 0, 4096), [1; 4096]);
    assert_eq!(pool.volume(&name("short")).unwrap().len_bytes, 4 * MIB);
    assert_eq!(pool.snapshots(&name("grouped")).unwrap().len(), 1);
    assert!(images.metadata("lunette.change.").unwrap().is_empty());
}

#[test]
fn a_name_that_an_interrupted_renaming_keeps_taken_is_freed() {
    let ceph = Ceph::shared();
    let namespace = ceph.namespace();
    let (pool, images) = (open(&namespace), images(&namespace));
    let volume = create(&pool, "before", 16);
    let id = images.open("before", None).unwrap().id().unwrap();
    // The first step of librbd: the new name gets the id of the image.
    let rados = |arguments: &[&str]| namespace.rados(arguments).succeeded().to_owned();
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    rados(&["get", "rbd_id.before", path]);
    rados(&["put", "rbd_id.after", path]);
    images
        .set_metadata("lunette.change.before", &format!(r#"{{"change":"rename","image":"{id}","to":"after"}}"#))
        .unwrap();
    images.create("after", MIB).unwrap_err();
    pool.rename(&volume, &name("after")).unwrap();
    // The last step: the old name still has it.
    rados(&["put", "rbd_id.before", path]);
    images
        .set_metadata("lunette.change.before", &format!(r#"{{"change":"rename","image":"{id}","to":"after"}}"#))
        .unwrap();
    create(&pool, "before", 16);
    assert_eq!(pool.volumes().unwrap().0.len(), 2);
}

#[test]
fn changes_cover_what_differs() {
    let ceph = Ceph::shared();
    let namespace = ceph.namespace();
    let pool = open(&namespace);
    let volume = create(&pool, "volume", 32);
    let random =
        |seed: u64, below: u64| random_bytes(seed, 8).iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)) % below;
    let write_some = |seed: u64, len_bytes: u64| {
        let store = store(&pool, &volume, None);
        for number in 0..12 {
            let seed = seed * 1000 + number * 3;
            let (offset, len) = (random(seed, len_bytes / 512) * 512, (1 + random(seed + 1, 600)) * 512);
            let len = len.min(len_bytes - offset);
            match number % 3 {
                0 => {
                    let len = len * 8 % (len_bytes - offset + 1) / 512 * 512;
                    execute(&store, Op::Unmap { offset, len }).result.unwrap();
                }
                _ => write(&store, offset, &random_bytes(seed, len as usize)),
            }
        }
        close(&store);
    };
    write_some(1, 32 * MIB);
    snapshot(&pool, &[&volume], "a");
    write_some(2, 32 * MIB);
    pool.resize(&volume, 20 * MIB).unwrap();
    snapshot(&pool, &[&volume], "b");
    pool.resize(&volume, 40 * MIB).unwrap();
    write_some(3, 40 * MIB);
    let contents = |snapshot: Option<&Name>| {
        let store = store(&pool, &volume, snapshot);
        let len = store.geometry().len_bytes;
        let bytes = (0..len / MIB).flat_map(|part| read(&store, part * MIB, MIB as usize)).collect::<Vec<u8>>();
        close(&store);
        bytes
    };
    let (a, b) = (name("a"), name("b"));
    for (since, until) in [(None, Some(&a)), (Some(&a), Some(&b)), (Some(&a), None), (Some(&b), None), (None, None)] {
        let changes = pool.changes(&volume, since, until).unwrap();
        let (before, after) = (since.map(|since| contents(Some(since))).unwrap_or_default(), contents(until));
        assert!(changes.windows(2).all(|pair| pair[0].range.end <= pair[1].range.start), "{changes:?}");
        let mut rest = 0;
        let end = after.len()..after.len();
        let ranges =
            changes.iter().map(|change| (change.range.start as usize..change.range.end as usize, change.is_zero));
        for (range, is_zero) in ranges.chain([(end, false)]) {
            let same = rest..range.start;
            let (old, new) = (before.get(same.clone()), &after[same.clone()]);
            let is_same = if same.is_empty() {
                true
            } else if since.is_none() {
                new.iter().all(|byte| *byte == 0)
            } else {
                old == Some(new)
            };
            assert!(is_same, "{since:?} {until:?}: {same:?} is not among {changes:?}");
            assert!(!is_zero || after[range.clone()].iter().all(|byte| *byte == 0), "{range:?}");
            rest = range.end;
        }
        assert_eq!(pool.changes(&volume, Some(&a), Some(&a)).unwrap(), []);
    }
    assert!(matches!(pool.changes(&volume, Some(&b), Some(&a)), Err(PoolError::Value(_))));
    let fine: u64 = pool
        .changes(&volume, Some(&b), None)
        .unwrap()
        .iter()
        .filter(|change| change.range.end <= 20 * MIB)
        .map(|change| change.range.end - change.range.start)
        .sum();
    assert!(fine < 12 * MIB, "objects are looked into");
    let space = pool.volume_space(&volume).unwrap();
    assert!(space.own_bytes > 0 && space.own_bytes <= 40 * MIB, "{space:?}");
}

#[test]
fn a_cluster_that_does_not_answer_is_given_up() {
    let ceph = Ceph::alone();
    let namespace = ceph.namespace();
    let url: PoolUrl = namespace.url().parse().unwrap();
    let pool = CephPool::open(&url, Duration::from_secs(1)).unwrap();
    let volume = create(&pool, "volume", 16);
    ceph.signal_osd(Signal::STOP);
    let began = Instant::now();
    let (listed, taken) = (
        pool.volumes(),
        pool.prepare(&[SnapshotOf { volume: volume.clone(), snapshot: name("s") }], &Labels::new()).map(drop),
    );
    let waited = began.elapsed();
    ceph.signal_osd(Signal::CONT);
    assert!(matches!(listed, Err(PoolError::Io { .. })), "{listed:?}");
    assert!(matches!(taken, Err(PoolError::Io { .. })), "{taken:?}");
    assert!(waited < LIMIT, "{waited:?}");
    snapshot(&pool, &[&volume], "s");
    let unknown = pool.space().unwrap_err().to_string();
    assert!(unknown.contains("start ceph-mgr"), "{unknown}");
}
