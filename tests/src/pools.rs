//! The contract of pools, as a test that runs over each engine.
//!
//! The medium decides whether a clone depends on its origin, and how much space something takes. Both are left open.

#![expect(clippy::unwrap_used, reason = "an unwrap is an assertion of these tests")]

mod blocks;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};
use std::thread;
use std::time::SystemTime;

use lunette_pools::{
    Change, Labels, Name, NewVolume, Origin, Pool, PoolError, Snapshot, SnapshotOf, Volume, VolumeSpace, limits,
};
use lunette_store::filters::{ClosedGate, Turns, WriteGate};

pub use blocks::Blocks;

use crate::random::random_bytes;

const MIB: u64 = 1 << 20;

/// Bytes of a volume of the tests.
const LEN: u64 = 12 * MIB;

/// Bytes that a test writes at once.
const PIECE: usize = 4096;

/// Tests that a pool keeps the contract. The pool may have volumes already, whose names do not begin with `c-`, and has
/// the same afterwards.
pub fn keeps_the_contract(pool: &dyn Pool) {
    let before = names(pool);
    for test in TESTS {
        test(pool);
        assert_eq!(names(pool), before, "a test has left something behind");
    }
}

const TESTS: [fn(&dyn Pool); 14] = [
    a_volume_is_created_listed_and_removed,
    names_are_taken_once,
    what_does_not_fit_is_refused,
    what_is_not_there_is_named,
    a_volume_grows_and_shrinks,
    a_volume_that_is_being_filled_waits,
    a_volume_is_renamed_with_its_snapshots,
    a_snapshot_keeps_what_the_volume_had,
    a_snapshot_that_is_given_up_is_none,
    a_group_has_one_instant,
    a_group_is_kept_as_a_whole_or_not_at_all,
    clones_do_not_influence_each_other,
    a_roll_back_brings_back_content_and_length,
    all_that_differs_is_among_the_changes,
];

fn a_volume_is_created_listed_and_removed(pool: &dyn Pool) {
    let begun = SystemTime::now();
    let a = name("c-a");
    match pool.space() {
        Ok(space) => assert!(space.total_bytes >= LEN && space.free_bytes <= space.total_bytes, "{space:?}"),
        Err(error) => assert!(error.to_string().contains("start ceph-mgr"), "only a cluster may not know: {error}"),
    }

    let created = create(pool, &a, LEN);
    let Volume { name: its_name, len_bytes, serial, created: at, labels, origin, is_filling } = created.clone();
    assert_eq!((&its_name, len_bytes, serial.as_str()), (&a, LEN, "serial of c-a"));
    assert_eq!((labels, origin, is_filling), (label("new"), None, false));
    // Clocks of clusters differ a little.
    assert!(at.duration_since(begun).unwrap_or_else(|early| early.duration()).as_secs() < 60, "{at:?}");
    assert_eq!(pool.volume(&a).unwrap(), created);
    let (volumes, _) = pool.volumes().unwrap();
    assert!(volumes.contains(&created));
    assert!(volumes.is_sorted_by(|a, b| a.name < b.name));

    let blocks = open(pool, &a);
    assert_eq!(blocks.len_bytes(), LEN);
    assert!(blocks.read(LEN - MIB, MIB as usize).iter().all(|byte| *byte == 0));
    let written = random_bytes(1, PIECE);
    blocks.write(LEN - PIECE as u64, &written);
    drop(blocks);
    assert_eq!(open(pool, &a).read(LEN - PIECE as u64, PIECE), written);
    let VolumeSpace { own_bytes, shared_bytes } = pool.volume_space(&a).unwrap();
    assert!(own_bytes + shared_bytes.unwrap_or_default() >= PIECE as u64, "{own_bytes}, {shared_bytes:?}");

    pool.set_labels(&a, &label("changed")).unwrap();
    assert_eq!(pool.volume(&a).unwrap(), Volume { labels: label("changed"), ..created });
    pool.remove(&a).unwrap();
    assert!(matches!(pool.volume(&a), Err(PoolError::NoVolume(of)) if of == a));

    let full = NewVolume { is_full: true, ..wanted(&a, MIB) };
    if pool.create(&a, &full).is_ok() {
        assert!(pool.volume_space(&a).unwrap().own_bytes >= MIB);
        pool.resize(&a, 2 * MIB).unwrap();
        assert!(pool.volume_space(&a).unwrap().own_bytes >= 2 * MIB);
        pool.remove(&a).unwrap();
    }
}

fn names_are_taken_once(pool: &dyn Pool) {
    let (a, b, s) = (name("c-a"), name("c-b"), name("s"));
    create(pool, &a, LEN);
    create(pool, &b, LEN);
    let exists = |error: PoolError| matches!(error, PoolError::VolumeExists(of) if of == a);
    assert!(exists(pool.create(&a, &wanted(&a, LEN)).unwrap_err()));
    assert!(exists(pool.rename(&b, &a).unwrap_err()));
    let origin = Origin { volume: b.clone(), snapshot: None };
    assert!(exists(pool.clone_of(&origin, &a, &wanted(&a, LEN)).unwrap_err()));

    snapshot(pool, &[&a], &s);
    let Err(PoolError::SnapshotExists { volume, snapshot }) = try_snapshot(pool, &[&a], &s) else { panic!("twice") };
    assert_eq!((volume, snapshot), (a.clone(), s.clone()));
    // The other volume has names of its own.
    self::snapshot(pool, &[&b], &s);
    remove_with_snapshots(pool, [&a, &b]);
}

fn what_does_not_fit_is_refused(pool: &dyn Pool) {
    let a = name("c-a");
    let is_value = |result: Result<(), PoolError>| matches!(result, Err(PoolError::Value(_)));
    for len_bytes in [0, 511, LEN + 1, limits::MAX_VOLUME_BYTES + 512] {
        assert!(is_value(pool.create(&a, &wanted(&a, len_bytes)).map(drop)), "{len_bytes}");
    }
    let long: Labels = [("key".to_owned(), "x".repeat(limits::MAX_LABEL_BYTES + 1))].into();
    assert!(is_value(pool.create(&a, &NewVolume { labels: long.clone(), ..wanted(&a, LEN) }).map(drop)));
    assert!(is_value(pool.create(&a, &NewVolume { serial: String::new(), ..wanted(&a, LEN) }).map(drop)));
    let before = create(pool, &a, LEN);
    assert!(is_value(pool.resize(&a, LEN + 1)));
    assert!(is_value(pool.set_labels(&a, &long)));
    assert!(is_value(pool.prepare(&[of(&a, &name("s"))], &long).map(drop)));
    assert!(is_value(pool.prepare(&[], &Labels::new()).map(drop)));
    assert!(is_value(pool.prepare(&[of(&a, &name("s")), of(&a, &name("t"))], &Labels::new()).map(drop)));
    let origin = Origin { volume: a.clone(), snapshot: None };
    let full = NewVolume { is_full: true, ..wanted(&a, LEN) };
    assert!(is_value(pool.clone_of(&origin, &name("c-b"), &full).map(drop)));
    assert_eq!(pool.volume(&a).unwrap(), before);
    pool.remove(&a).unwrap();
}

fn what_is_not_there_is_named(pool: &dyn Pool) {
    let (a, none, s) = (name("c-a"), name("c-none"), name("s"));
    create(pool, &a, LEN);
    let origin =
        |volume: &Name, snapshot: Option<&Name>| Origin { volume: volume.clone(), snapshot: snapshot.cloned() };
    let new = wanted(&none, LEN);
    let without_volume = [
        pool.volume(&none).map(drop),
        pool.snapshots(&none).map(drop),
        pool.filled(&none),
        pool.resize(&none, LEN),
        pool.rename(&none, &name("c-other")),
        pool.set_labels(&none, &Labels::new()),
        pool.remove(&none),
        pool.prepare(&[of(&a, &s), of(&none, &s)], &Labels::new()).map(drop),
        pool.remove_snapshot(&none, &s),
        pool.roll_back(&none, &s, &mut go_on),
        pool.clone_of(&origin(&none, None), &name("c-other"), &new).map(drop),
        pool.flatten(&none, &mut go_on),
        pool.volume_space(&none).map(drop),
        pool.changes(&none, None, None).map(drop),
    ];
    for (number, result) in without_volume.into_iter().enumerate() {
        assert!(matches!(&result, Err(PoolError::NoVolume(of)) if *of == none), "call {number}: {result:?}");
    }
    let without_snapshot = [
        pool.remove_snapshot(&a, &s),
        pool.roll_back(&a, &s, &mut go_on),
        pool.clone_of(&origin(&a, Some(&s)), &name("c-other"), &new).map(drop),
        pool.changes(&a, Some(&s), None).map(drop),
        pool.changes(&a, None, Some(&s)).map(drop),
    ];
    for (number, result) in without_snapshot.into_iter().enumerate() {
        let Err(PoolError::NoSnapshot { volume, snapshot }) = result else { panic!("call {number}: {result:?}") };
        assert_eq!((volume, snapshot), (a.clone(), s.clone()));
    }
    pool.remove(&a).unwrap();
}

fn a_volume_grows_and_shrinks(pool: &dyn Pool) {
    let a = name("c-a");
    create(pool, &a, LEN);
    let written = random_bytes(2, PIECE);
    open(pool, &a).write(LEN - PIECE as u64, &written);
    for len_bytes in [LEN + 512, 3 * LEN] {
        pool.resize(&a, len_bytes).unwrap();
        assert_eq!(pool.volume(&a).unwrap().len_bytes, len_bytes);
        let blocks = open(pool, &a);
        assert_eq!(blocks.len_bytes(), len_bytes);
        assert_eq!(blocks.read(LEN - PIECE as u64, PIECE), written);
        assert!(blocks.read(LEN, 512).iter().all(|byte| *byte == 0));
    }
    pool.resize(&a, LEN - 512).unwrap();
    pool.resize(&a, LEN).unwrap();
    let blocks = open(pool, &a);
    assert_eq!(blocks.read(LEN - PIECE as u64, PIECE - 512), written[..PIECE - 512]);
    assert!(blocks.read(LEN - 512, 512).iter().all(|byte| *byte == 0), "what was cut off is back");
    drop(blocks);
    pool.remove(&a).unwrap();
}

fn a_volume_that_is_being_filled_waits(pool: &dyn Pool) {
    let (a, s) = (name("c-a"), name("s"));
    let volume = pool.create(&a, &NewVolume { is_filling: true, ..wanted(&a, LEN) }).unwrap();
    assert!(volume.is_filling && pool.volume(&a).unwrap().is_filling);
    let origin = Origin { volume: a.clone(), snapshot: None };
    let refused = [
        pool.resize(&a, 2 * LEN),
        pool.rename(&a, &name("c-b")),
        pool.prepare(&[of(&a, &s)], &Labels::new()).map(drop),
        pool.roll_back(&a, &s, &mut go_on),
        pool.clone_of(&origin, &name("c-b"), &wanted(&name("c-b"), LEN)).map(drop),
    ];
    for (number, result) in refused.into_iter().enumerate() {
        assert!(matches!(&result, Err(PoolError::Filling(of)) if *of == a), "call {number}: {result:?}");
    }
    let written = random_bytes(3, PIECE);
    open(pool, &a).write(0, &written);
    pool.filled(&a).unwrap();
    assert_eq!(pool.volume(&a).unwrap(), Volume { is_filling: false, ..volume });
    assert_eq!(open(pool, &a).read(0, PIECE), written);
    pool.remove(&a).unwrap();

    // One that is given up is removed.
    pool.create(&a, &NewVolume { is_filling: true, ..wanted(&a, LEN) }).unwrap();
    pool.remove(&a).unwrap();
}

fn a_volume_is_renamed_with_its_snapshots(pool: &dyn Pool) {
    let (a, b, s) = (name("c-a"), name("c-b"), name("s"));
    let before = create(pool, &a, LEN);
    let written = random_bytes(4, PIECE);
    open(pool, &a).write(0, &written);
    let taken = snapshot(pool, &[&a], &s);
    pool.rename(&a, &b).unwrap();
    assert!(matches!(pool.volume(&a), Err(PoolError::NoVolume(_))));
    assert_eq!(pool.volume(&b).unwrap(), Volume { name: b.clone(), ..before });
    assert_eq!(pool.snapshots(&b).unwrap(), taken);
    assert_eq!(open(pool, &b).read(0, PIECE), written);
    assert_eq!(open_snapshot(pool, &b, &s).read(0, PIECE), written);
    // The old name is free.
    create(pool, &a, LEN);
    assert_eq!(pool.snapshots(&a).unwrap(), []);
    pool.remove(&a).unwrap();
    remove_with_snapshots(pool, [&b]);
}

fn a_snapshot_keeps_what_the_volume_had(pool: &dyn Pool) {
    let (a, first, second) = (name("c-a"), name("z-first"), name("a-second"));
    create(pool, &a, LEN);
    let written = [5, 6].map(|seed| random_bytes(seed, PIECE));
    let blocks = open(pool, &a);
    blocks.write(MIB, &written[0]);
    let taken = snapshot(pool, &[&a], &first);
    blocks.write(MIB, &written[1]);
    drop(blocks);
    pool.resize(&a, 2 * LEN).unwrap();
    let taken = [taken, snapshot(pool, &[&a], &second)].concat();
    pool.resize(&a, MIB).unwrap();

    assert_eq!(pool.snapshots(&a).unwrap(), taken, "the oldest first");
    let fields = |snapshot: &Snapshot| (snapshot.name.clone(), snapshot.len_bytes, snapshot.labels.clone());
    assert_eq!(fields(&taken[0]), (first.clone(), LEN, label("taken")));
    assert_eq!(fields(&taken[1]), (second.clone(), 2 * LEN, label("taken")));
    assert!(taken[0].created <= taken[1].created);
    for (snapshot, written) in [&first, &second].into_iter().zip(&written) {
        let blocks = open_snapshot(pool, &a, snapshot);
        assert_eq!(blocks.read(MIB, PIECE), *written);
        assert_eq!(blocks.read(0, PIECE), vec![0; PIECE]);
    }
    let Err(PoolError::HasSnapshots { volume, count }) = pool.remove(&a) else { panic!("it has snapshots") };
    assert_eq!((&volume, count), (&a, 2));
    pool.remove_snapshot(&a, &first).unwrap();
    assert_eq!(pool.snapshots(&a).unwrap(), taken[1..]);
    assert_eq!(open_snapshot(pool, &a, &second).read(MIB, PIECE), written[1]);
    remove_with_snapshots(pool, [&a]);
}

fn a_snapshot_that_is_given_up_is_none(pool: &dyn Pool) {
    let (a, s) = (name("c-a"), name("s"));
    create(pool, &a, LEN);
    drop(pool.prepare(&[of(&a, &s)], &Labels::new()).unwrap());
    let mut prepared = pool.prepare(&[of(&a, &s)], &Labels::new()).unwrap();
    prepared.take_whole().unwrap();
    drop(prepared);
    assert_eq!(pool.snapshots(&a).unwrap(), []);
    pool.remove(&a).unwrap();
}

/// A writer counts in one volume after the other. So no later volume may be ahead of an earlier one. It goes on while
/// volumes are taken in parts, the last of which it writes to.
fn a_group_has_one_instant(pool: &dyn Pool) {
    let volumes = ["c-a", "c-b", "c-c"].map(name);
    let snapshots = ["s1", "s2", "s3", "s4"].map(name);
    for volume in &volumes {
        create(pool, volume, LEN);
    }
    let gates = [(); 3].map(|()| Arc::<WriteGate>::default());
    let standstill = RwLock::new(());
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let blocks: Vec<Blocks> =
                volumes.iter().zip(&gates).map(|(volume, gate)| open(pool, volume).behind(gate)).collect();
            for count in 1_u64.. {
                for blocks in &blocks {
                    let _writing = standstill.read().unwrap();
                    blocks.write(LEN - 512, &count.to_le_bytes().repeat(512 / 8));
                }
                if has_ended.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let _ending = Ending(&has_ended);
        for snapshot in &snapshots {
            let group: Vec<SnapshotOf> = volumes.iter().map(|volume| of(volume, snapshot)).collect();
            let mut prepared = pool.prepare(&group, &Labels::new()).unwrap();
            let is_in_parts = !prepared.parts().is_empty();
            let closed: Vec<ClosedGate> = {
                let _alone = (!is_in_parts).then(|| standstill.write().unwrap());
                let closed = gates.iter().filter(|_| is_in_parts).map(|gate| gate.close(LEN).unwrap()).collect();
                prepared.take().unwrap();
                closed
            };
            let turns = &Turns::default();
            thread::scope(|scope| {
                for (gate, part) in closed.into_iter().zip(prepared.parts()) {
                    scope.spawn(move || gate.see_to_all(turns, |bytes| part.take(bytes)).unwrap());
                }
            });
            prepared.keep().unwrap();
        }
    });
    for snapshot in &snapshots {
        let counts = volumes.each_ref().map(|volume| {
            let read = open_snapshot(pool, volume, snapshot).read(LEN - 512, 8);
            u64::from_le_bytes(read.try_into().unwrap())
        });
        assert!(counts.is_sorted_by(|a, b| a >= b) && counts[0] - counts[2] <= 1, "{snapshot}: {counts:?}");
    }
    assert_eq!(volumes.each_ref().map(|volume| pool.snapshots(volume).unwrap().len()), [snapshots.len(); 3]);
    remove_with_snapshots(pool, volumes.each_ref());
}

/// Lets a thread end, also after a panic.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn a_group_is_kept_as_a_whole_or_not_at_all(pool: &dyn Pool) {
    let (a, b, s) = (name("c-a"), name("c-b"), name("s"));
    create(pool, &a, LEN);
    create(pool, &b, LEN);
    snapshot(pool, &[&b], &s);
    assert!(matches!(try_snapshot(pool, &[&a, &b], &s), Err(PoolError::SnapshotExists { .. })));
    assert_eq!(pool.snapshots(&a).unwrap(), []);
    assert_eq!(pool.snapshots(&b).unwrap().len(), 1);
    remove_with_snapshots(pool, [&a, &b]);
}

fn clones_do_not_influence_each_other(pool: &dyn Pool) {
    let (a, s) = (name("c-a"), name("s"));
    let clones = ["c-of-snapshot", "c-of-clone", "c-of-volume"].map(name);
    create(pool, &a, LEN);
    let written: Vec<Vec<u8>> = (10..15).map(|seed| random_bytes(seed, PIECE)).collect();
    open(pool, &a).write(0, &written[0]);
    snapshot(pool, &[&a], &s);
    open(pool, &a).write(0, &written[1]);
    let origins = [
        Origin { volume: a.clone(), snapshot: Some(s.clone()) },
        Origin { volume: clones[0].clone(), snapshot: None },
        Origin { volume: a.clone(), snapshot: None },
    ];
    for (clone, origin) in clones.iter().zip(&origins) {
        let volume = pool.clone_of(origin, clone, &wanted(clone, 512)).unwrap();
        assert_eq!((volume.len_bytes, volume.origin.as_ref()), (LEN, Some(origin)));
        assert_eq!((volume.serial, volume.labels), (format!("serial of {clone}"), label("new")));
    }
    let content = |volume| open(pool, volume).read(0, PIECE);
    assert_eq!(clones.each_ref().map(content), [&written[0], &written[0], &written[1]].map(Clone::clone));
    for (clone, written) in clones.iter().zip(&written[2..]) {
        open(pool, clone).write(0, written);
    }
    open(pool, &a).write(PIECE as u64, &written[0]);
    assert_eq!(clones.each_ref().map(content), [&written[2], &written[3], &written[4]].map(Clone::clone));
    assert_eq!(content(&a), written[1]);
    assert_eq!(open_snapshot(pool, &a, &s).read(0, PIECE), written[0]);
    assert!(clones.iter().all(|clone| open(pool, clone).read(PIECE as u64, PIECE) == vec![0; PIECE]));

    for (clone, origin) in clones.iter().zip(&origins) {
        match pool.flatten(clone, &mut |_, _| ControlFlow::Break(())) {
            Err(PoolError::Stopped) => assert_eq!(pool.volume(clone).unwrap().origin.as_ref(), Some(origin)),
            flat => flat.unwrap(),
        }
        let mut told = Vec::new();
        let flat = pool.flatten(clone, &mut |done, all| {
            told.push((done, all));
            ControlFlow::Continue(())
        });
        flat.unwrap();
        assert!(told.iter().all(|(done, all)| done <= all), "{told:?}");
        assert_eq!(pool.volume(clone).unwrap().origin, None);
    }
    // Nothing of the origins is needed any more.
    remove_with_snapshots(pool, [&a]);
    assert_eq!(clones.each_ref().map(content), [&written[2], &written[3], &written[4]].map(Clone::clone));
    remove_with_snapshots(pool, clones.each_ref());
}

fn a_roll_back_brings_back_content_and_length(pool: &dyn Pool) {
    let (a, s, t) = (name("c-a"), name("s"), name("t"));
    create(pool, &a, LEN);
    let written = [20, 21].map(|seed| random_bytes(seed, PIECE));
    open(pool, &a).write(MIB, &written[0]);
    snapshot(pool, &[&a], &s);
    for len_bytes in [LEN / 2, LEN * 2] {
        let blocks = open(pool, &a);
        blocks.write(MIB, &written[1]);
        blocks.write(0, &written[1]);
        drop(blocks);
        pool.resize(&a, len_bytes).unwrap();
        let stopped = pool.roll_back(&a, &s, &mut |_, _| ControlFlow::Break(()));
        if matches!(stopped, Err(PoolError::Stopped)) {
            assert_eq!(open(pool, &a).read(0, PIECE), written[1], "it was stopped, and has changed something");
            pool.roll_back(&a, &s, &mut go_on).unwrap();
        }
        assert_eq!(pool.volume(&a).unwrap().len_bytes, LEN);
        let blocks = open(pool, &a);
        assert_eq!(blocks.read(MIB, PIECE), written[0]);
        assert_eq!(blocks.read(0, PIECE), vec![0; PIECE]);
        assert_eq!(blocks.read(LEN - PIECE as u64, PIECE), vec![0; PIECE]);
    }
    // What has the volume open sees the change.
    let blocks = open(pool, &a);
    blocks.write(MIB, &written[1]);
    snapshot(pool, &[&a], &t);
    pool.roll_back(&a, &s, &mut go_on).unwrap();
    assert_eq!(blocks.read(MIB, PIECE), written[0]);
    // Later snapshots stay, and one can roll forth.
    pool.roll_back(&a, &t, &mut go_on).unwrap();
    assert_eq!(blocks.read(MIB, PIECE), written[1]);
    drop(blocks);
    remove_with_snapshots(pool, [&a]);
}

fn all_that_differs_is_among_the_changes(pool: &dyn Pool) {
    let a = name("c-a");
    let snapshots = ["s0", "s1", "s2", "s3"].map(name);
    create(pool, &a, LEN);
    // Unlike any other number of the test, so that no two states are equal by chance.
    let mut seed = 1000;
    for (round, snapshot) in snapshots.iter().enumerate() {
        let blocks = open(pool, &a);
        let pages = blocks.len_bytes() / PIECE as u64;
        for _ in 0..round * 40 {
            seed += 1;
            let random = random_bytes(seed, PIECE);
            let page = u64::from_le_bytes(random[..8].try_into().unwrap()) % pages;
            if random[8].is_multiple_of(4) {
                blocks.unmap(page * PIECE as u64, PIECE as u64);
            } else {
                blocks.write(page * PIECE as u64, &random);
            }
        }
        drop(blocks);
        self::snapshot(pool, &[&a], snapshot);
        pool.resize(&a, [LEN, LEN + MIB, LEN - MIB, LEN][round]).unwrap();
    }
    let states: Vec<(Option<&Name>, Vec<u8>)> = snapshots
        .iter()
        .map(Some)
        .chain([None])
        .map(|snapshot| {
            let blocks = Blocks::open_to_read(&pool.place(&a, snapshot));
            (snapshot, blocks.read(0, blocks.len_bytes() as usize))
        })
        .collect();
    for (number, (until, later)) in states.iter().enumerate() {
        check_changes(&vec![0; later.len()], later, &pool.changes(&a, None, *until).unwrap());
        for (since, earlier) in &states[..number] {
            check_changes(earlier, later, &pool.changes(&a, *since, *until).unwrap());
        }
    }
    assert_eq!(pool.changes(&a, None, Some(&snapshots[0])).unwrap(), [], "it was empty");
    remove_with_snapshots(pool, [&a]);
}

/// Checks that all that differs between two contents is among the changes, and that what is called zero is.
fn check_changes(earlier: &[u8], later: &[u8], changes: &[Change]) {
    let is_unchanged = |start: usize, end: usize| start == end || earlier.get(start..end) == Some(&later[start..end]);
    let mut behind = 0;
    for Change { range, is_zero } in changes {
        let (start, end) = (range.start as usize, range.end as usize);
        assert!(behind <= start && start < end && end <= later.len(), "{range:?} of {}", later.len());
        assert!(is_unchanged(behind, start), "{behind}..{start} has changed");
        assert!(!is_zero || later[start..end].iter().all(|byte| *byte == 0), "{range:?} is not zero");
        behind = end;
    }
    assert!(is_unchanged(behind, later.len()), "{behind}.. has changed");
}

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn names(pool: &dyn Pool) -> BTreeSet<Name> {
    pool.volumes().unwrap().0.into_iter().map(|volume| volume.name).collect()
}

fn label(value: &str) -> Labels {
    [("state".to_owned(), value.to_owned())].into()
}

fn wanted(name: &Name, len_bytes: u64) -> NewVolume {
    let serial = format!("serial of {name}");
    NewVolume { len_bytes, is_full: false, is_filling: false, serial, labels: label("new") }
}

fn create(pool: &dyn Pool, name: &Name, len_bytes: u64) -> Volume {
    pool.create(name, &wanted(name, len_bytes)).unwrap()
}

fn of(volume: &Name, snapshot: &Name) -> SnapshotOf {
    SnapshotOf { volume: volume.clone(), snapshot: snapshot.clone() }
}

fn snapshot(pool: &dyn Pool, volumes: &[&Name], snapshot: &Name) -> Vec<Snapshot> {
    try_snapshot(pool, volumes, snapshot).unwrap()
}

fn try_snapshot(pool: &dyn Pool, volumes: &[&Name], snapshot: &Name) -> Result<Vec<Snapshot>, PoolError> {
    let group: Vec<SnapshotOf> = volumes.iter().map(|volume| of(volume, snapshot)).collect();
    let mut prepared = pool.prepare(&group, &label("taken"))?;
    prepared.take_whole()?;
    prepared.keep()
}

fn open(pool: &dyn Pool, volume: &Name) -> Blocks {
    Blocks::open(&pool.place(volume, None))
}

fn open_snapshot(pool: &dyn Pool, volume: &Name, snapshot: &Name) -> Blocks {
    Blocks::open_to_read(&pool.place(volume, Some(snapshot)))
}

fn remove_with_snapshots<'n>(pool: &dyn Pool, volumes: impl IntoIterator<Item = &'n Name>) {
    for volume in volumes {
        for snapshot in pool.snapshots(volume).unwrap() {
            pool.remove_snapshot(volume, &snapshot.name).unwrap();
        }
        pool.remove(volume).unwrap();
    }
}

fn go_on(_: u64, _: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}
