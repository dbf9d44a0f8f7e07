//! Random actions on pools whose power fails, or whose file system is full, compared with an oracle.

mod model;
mod oracle;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::limits::{MAX_SNAPSHOTS, MAX_VOLUMES};
use model::{BLOCK, Model};
use oracle::{Action, Content, Oracle, VolumeState, check_changes, labels, later, serial};

/// The root of a modelled pool, which is no place.
const ROOT: &str = "/pool";

const MAX_BLOCKS: usize = 4;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn wanted(name: &Name, blocks: usize) -> NewVolume {
    NewVolume {
        len_bytes: blocks as u64 * BLOCK,
        is_full: false,
        is_filling: false,
        serial: serial(name),
        labels: labels(0),
    }
}

fn go_on(_: u64, _: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn open(model: &Model) -> Result<FolderPool<Model>, PoolError> {
    FolderPool::with(Path::new(ROOT), model.clone())
}

/// Does what an action says. Where it writes, the oracle knows that there is such a block.
fn act(pool: &FolderPool<Model>, action: &Action) -> Result<(), PoolError> {
    let of = |group: &BTreeSet<Name>, snapshot: &Name| -> Vec<SnapshotOf> {
        let of = |volume: &Name| SnapshotOf { volume: volume.clone(), snapshot: snapshot.clone() };
        group.iter().map(of).collect()
    };
    match action {
        Action::Create { name, blocks, is_full, is_filling } => {
            let new = NewVolume { is_full: *is_full, is_filling: *is_filling, ..wanted(name, *blocks) };
            pool.create(name, &new).map(drop)
        }
        Action::Filled { name } => pool.filled(name),
        Action::Resize { name, blocks } => pool.resize(name, *blocks as u64 * BLOCK),
        Action::Rename { from, to } => Pool::rename(pool, from, to),
        Action::SetLabels { name, value } => pool.set_labels(name, &labels(*value)),
        Action::Remove { name } => pool.remove(name),
        Action::Snapshot { group, snapshot, value } => {
            let mut prepared = pool.prepare(&of(group, snapshot), &labels(*value))?;
            if let Some(first) = group.first() {
                pool.files.user_writes(&layout::disk(first), 0, *value, false);
            }
            prepared.take()?;
            for (number, part) in prepared.parts().iter().enumerate() {
                for start in (0..part.len_bytes).step_by(BLOCK as usize) {
                    part.take(start..start + BLOCK)?;
                    if (number, start) == (0, 0) {
                        pool.files.user_writes(&layout::disk(part.volume), 0, later(*value), false);
                    }
                }
            }
            let kept = prepared.keep()?;
            assert!(kept.iter().all(|kept| kept.name == *snapshot && kept.labels == labels(*value)));
            Ok(())
        }
        Action::GiveUp { group, snapshot } => pool.prepare(&of(group, snapshot), &labels(0))?.take_whole(),
        Action::RemoveSnapshot { name, snapshot } => pool.remove_snapshot(name, snapshot),
        Action::RollBack { name, snapshot } => pool.roll_back(name, snapshot, &mut go_on),
        Action::Clone { origin, name } => pool.clone_of(origin, name, &wanted(name, 0)).map(drop),
        Action::Flatten { name } => {
            pool.flatten(name, &mut go_on)?;
            Ok(())
        }
        Action::Write { name, at, value, is_flushed } => {
            pool.files.user_writes(&layout::disk(name), *at, *value, *is_flushed);
            Ok(())
        }
    }
}

/// All that a pool has.
fn state(pool: &FolderPool<Model>) -> Oracle {
    let (volumes, unreadable) = pool.volumes().unwrap();
    assert!(unreadable.is_empty(), "{unreadable:?}");
    let state = |volume: Volume| {
        let Volume { name, len_bytes, serial, created: _, labels, origin, is_filling } = volume;
        let content = |path: &Path| {
            let content = pool.files.content(path);
            assert!(!content.is_empty());
            content
        };
        let snapshots = pool.snapshots(&name).unwrap().into_iter().map(|snapshot| {
            let blocks = content(&layout::snapshot(&name, &snapshot.name));
            assert_eq!(snapshot.len_bytes, blocks.len() as u64 * BLOCK);
            (snapshot.name, (blocks, snapshot.labels))
        });
        let snapshots = snapshots.collect();
        let blocks = content(&layout::disk(&name));
        assert_eq!(len_bytes, blocks.len() as u64 * BLOCK);
        (name, VolumeState { serial, labels, origin, is_filling, content: Content::new(blocks), snapshots })
    };
    Oracle(volumes.into_iter().map(state).collect())
}

/// Checks what a pool says of the differences between all states that it has.
fn check_differences(pool: &FolderPool<Model>, oracle: &Oracle) {
    for (name, volume) in &oracle.0 {
        let states = || {
            let snapshots = volume.snapshots.iter().map(|(name, (blocks, _))| (Some(name), blocks));
            snapshots.chain([(None, &volume.content.blocks)])
        };
        for (until, later) in states() {
            check_changes(&vec![0; later.len()], later, &pool.changes(name, None, until).unwrap());
            for (since, earlier) in states().filter(|(since, _)| since.is_some()) {
                check_changes(earlier, later, &pool.changes(name, since, until).unwrap());
            }
        }
    }
}

/// Checks that nothing is left of what was being made.
fn check_no_leftovers(model: &Model) {
    assert_eq!(model.names(Path::new(layout::WORK)).unwrap(), [""; 0]);
}

fn variant(error: &PoolError) -> String {
    format!("{error:?}").chars().take_while(char::is_ascii_alphanumeric).collect()
}

fn volume_name() -> impl Strategy<Value = Name> {
    select(vec!["a", "b", "c"]).prop_map(name)
}

fn snapshot_name() -> impl Strategy<Value = Name> {
    select(vec!["x", "y"]).prop_map(name)
}

fn action() -> impl Strategy<Value = Action> {
    let (volume, snapshot) = (volume_name, snapshot_name);
    let blocks = || 1..=MAX_BLOCKS;
    let group = || btree_set(volume(), 1..=3);
    let origin =
        (volume(), proptest::option::of(snapshot())).prop_map(|(volume, snapshot)| Origin { volume, snapshot });
    prop_oneof![
        3 => (volume(), blocks(), any::<bool>(), prop::bool::weighted(0.2))
            .prop_map(|(name, blocks, is_full, is_filling)| Action::Create { name, blocks, is_full, is_filling }),
        1 => volume().prop_map(|name| Action::Filled { name }),
        1 => (volume(), blocks()).prop_map(|(name, blocks)| Action::Resize { name, blocks }),
        1 => (volume(), volume()).prop_map(|(from, to)| Action::Rename { from, to }),
        1 => (volume(), 1..9_u8).prop_map(|(name, value)| Action::SetLabels { name, value }),
        1 => volume().prop_map(|name| Action::Remove { name }),
        4 => (group(), snapshot(), 1..9_u8)
            .prop_map(|(group, snapshot, value)| Action::Snapshot { group, snapshot, value }),
        1 => (group(), snapshot()).prop_map(|(group, snapshot)| Action::GiveUp { group, snapshot }),
        1 => (volume(), snapshot()).prop_map(|(name, snapshot)| Action::RemoveSnapshot { name, snapshot }),
        3 => (volume(), snapshot()).prop_map(|(name, snapshot)| Action::RollBack { name, snapshot }),
        3 => (origin, volume()).prop_map(|(origin, name)| Action::Clone { origin, name }),
        1 => volume().prop_map(|name| Action::Flatten { name }),
        5 => (volume(), 0..MAX_BLOCKS, 0..9_u8, any::<bool>())
            .prop_map(|(name, at, value, is_flushed)| Action::Write { name, at, value, is_flushed }),
    ]
}

/// Whether there is a block to write to, for an action of a user.
fn is_possible(oracle: &Oracle, action: &Action) -> bool {
    if let Action::Write { name, at, .. } = action { oracle.has_block(name, *at) } else { true }
}

/// States of which one is there after a power cut.
struct Doubt {
    possible: Vec<Oracle>,
    during: Option<Action>,
}

/// Does the actions, and cuts the power after each of these numbers of operations.
fn survives(actions: &[Action], cuts: &[usize], seed: u64) {
    let mut random = seed | 1;
    let mut coin = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random & 1 == 0
    };
    let mut model = Model::new();
    let mut doubt = Doubt { possible: vec![Oracle::default()], during: None };
    let mut actions = actions.iter();
    for cut in cuts.iter().copied().chain([usize::MAX]) {
        model.cut_after(cut);
        let opened = open(&model);
        if model.is_cut() {
            model = model.after_cut(&mut coin);
            continue;
        }
        let pool = opened.unwrap();
        check_no_leftovers(&model);
        let found = state(&pool);
        let is_possible_state = doubt.possible.iter_mut().any(|possible| {
            possible.open();
            *possible == found
        });
        assert!(
            is_possible_state,
            "{found:#?} after a cut in {:?}, and not one of {:#?}",
            doubt.during, doubt.possible
        );
        let mut oracle = found;
        loop {
            let Some(action) = actions.next() else { return };
            if !is_possible(&oracle, action) {
                continue;
            }
            let before = oracle.clone();
            let expected = oracle.apply(action);
            let done = act(&pool, action);
            if model.is_cut() {
                let failed = if done.is_ok() { Vec::new() } else { before.after_failure(action) };
                let possible = failed.into_iter().chain([oracle]).collect();
                doubt = Doubt { possible, during: Some(action.clone()) };
                break;
            }
            assert_eq!(
                done.as_ref().map_err(variant),
                expected.as_ref().map_err(|&error| error.to_owned()),
                "{action:?}"
            );
            check_no_leftovers(&model);
            assert_eq!(state(&pool), oracle.with_power(), "after {action:?}");
        }
        drop(pool);
        model = model.after_cut(&mut coin);
    }
}

/// Does the actions, in one of which the file system is full after this number of operations that need space.
fn leaves_nothing_when_full(actions: &[Action], until_full: usize) {
    let model = Model::new();
    let mut pool = open(&model).unwrap();
    model.be_full_after(until_full);
    let mut oracle = Oracle::default();
    for action in actions {
        if !is_possible(&oracle, action) {
            continue;
        }
        let was_to_come = model.will_be_full();
        let before = oracle.clone();
        let expected = oracle.apply(action).map_err(str::to_owned);
        let done = act(&pool, action).map_err(|error| variant(&error));
        match &done {
            Err(error) if was_to_come && !model.will_be_full() && error == "Full" => {
                let found = state(&pool);
                assert!(
                    before.after_failure(action).iter().any(|possible| possible.with_power() == found),
                    "after {action:?}: {found:#?}"
                );
                oracle = found;
            }
            Err(error) if was_to_come && !model.will_be_full() && error == "Unfinished" => {
                assert!(matches!(action, Action::RollBack { .. }), "{action:?} is unfinished");
                // Another opening ends it, as the next change would.
                pool = open(&model).unwrap();
                oracle.open();
            }
            done => assert_eq!(*done, expected, "{action:?}"),
        }
        check_no_leftovers(&model);
        assert_eq!(state(&pool), oracle.with_power(), "after {action:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_power_cut_leaves_each_change_as_a_whole_or_not_at_all(
        actions in vec(action(), 1..25), cuts in vec(0..60_usize, 0..6), seed in any::<u64>()
    ) {
        survives(&actions, &cuts, seed);
    }

    #[test]
    fn a_full_file_system_leaves_everything_as_it_was(actions in vec(action(), 1..25), until_full in 0..120_usize) {
        leaves_nothing_when_full(&actions, until_full);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn all_that_differs_is_among_the_changes(actions in vec(action(), 1..40)) {
        let model = Model::new();
        let pool = open(&model).unwrap();
        let mut oracle = Oracle::default();
        for action in actions.iter().filter(|action| !matches!(action, Action::GiveUp { .. })) {
            if is_possible(&oracle, action) {
                let _ = (oracle.apply(action), act(&pool, action));
                check_differences(&pool, &oracle);
            }
        }
    }
}

/// A pool with volume `a` of four blocks, of which it shares two with its snapshot `x`.
fn pool_with_snapshot() -> FolderPool<Model> {
    let pool = open(&Model::new()).unwrap();
    let actions = [
        Action::Create { name: name("a"), blocks: 4, is_full: false, is_filling: false },
        Action::Write { name: name("a"), at: 1, value: 1, is_flushed: true },
        Action::Write { name: name("a"), at: 2, value: 2, is_flushed: true },
        Action::Snapshot { group: [name("a")].into(), snapshot: name("x"), value: 3 },
    ];
    for action in actions {
        act(&pool, &action).unwrap();
    }
    pool
}

#[test]
fn changes_are_no_more_than_what_has_changed() {
    let pool = pool_with_snapshot();
    let (a, x) = (name("a"), name("x"));
    let change =
        |blocks: std::ops::Range<u64>, is_zero| Change { range: blocks.start * BLOCK..blocks.end * BLOCK, is_zero };
    assert_eq!(pool.changes(&a, Some(&x), None).unwrap(), [change(0..1, false)]);
    assert_eq!(pool.changes(&a, None, Some(&x)).unwrap(), [change(0..3, false)]);

    pool.files.user_writes(&layout::disk(&a), 2, 9, false);
    pool.resize(&a, 6 * BLOCK).unwrap();
    assert_eq!(
        pool.changes(&a, Some(&x), None).unwrap(),
        [change(0..1, false), change(2..3, false), change(4..6, true)]
    );
    assert_eq!(pool.changes(&a, None, None).unwrap(), [change(0..3, false)]);

    pool.resize(&a, BLOCK).unwrap();
    pool.resize(&a, 4 * BLOCK).unwrap();
    assert_eq!(pool.changes(&a, Some(&x), None).unwrap(), [change(0..1, false), change(1..3, true)]);
}

#[test]
fn a_flat_clone_shares_no_blocks_and_has_no_origin() {
    let pool = pool_with_snapshot();
    let (b, x) = (name("b"), name("x"));
    let origin = Origin { volume: name("a"), snapshot: Some(x) };
    assert_eq!(pool.clone_of(&origin, &b, &wanted(&b, 0)).unwrap().origin, Some(origin.clone()));
    assert_eq!(pool.volume_space(&b).unwrap(), VolumeSpace { own_bytes: 0, shared_bytes: Some(3 * BLOCK) });
    assert!(pool.files.shares(&layout::disk(&b)));

    let stopped = pool.flatten(&b, &mut |_, _| ControlFlow::Break(()));
    assert!(matches!(stopped, Err(PoolError::Stopped)));
    assert_eq!(pool.volume(&b).unwrap().origin, Some(origin));

    let mut told = Vec::new();
    pool.flatten(&b, &mut |done, all| {
        told.push((done, all));
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(told.last(), Some(&(4 * BLOCK, 4 * BLOCK)));
    assert!(told.is_sorted());
    assert_eq!(pool.volume(&b).unwrap().origin, None);
    assert!(!pool.files.shares(&layout::disk(&b)));
    assert_eq!(pool.volume_space(&b).unwrap(), VolumeSpace { own_bytes: 3 * BLOCK, shared_bytes: Some(0) });
}

#[test]
fn a_roll_back_that_is_stopped_changes_nothing() {
    let pool = pool_with_snapshot();
    let (a, x) = (name("a"), name("x"));
    pool.files.user_writes(&layout::disk(&a), 2, 9, true);
    let before = state(&pool);
    let stopped = pool.roll_back(&a, &x, &mut |_, _| ControlFlow::Break(()));
    assert!(matches!(stopped, Err(PoolError::Stopped)));
    assert_eq!(state(&pool), before);
}

#[test]
fn a_roll_back_that_fails_takes_nothing_that_is_written_after_it() {
    for operations in 0.. {
        let pool = pool_with_snapshot();
        let (a, x) = (name("a"), name("x"));
        pool.files.user_writes(&layout::disk(&a), 2, 9, true);
        pool.files.fail_after(operations);
        let rolled_back = pool.roll_back(&a, &x, &mut go_on);
        let has_failed = !pool.files.will_fail();
        pool.files.fail_after(usize::MAX);
        assert!(rolled_back.is_ok() || has_failed, "operation {operations}: {rolled_back:?}");

        pool.volume(&a).unwrap();
        let expected = match rolled_back {
            Ok(()) | Err(PoolError::Unfinished { .. }) => 2,
            Err(_) => 9,
        };
        assert_eq!(pool.files.content(&layout::disk(&a))[2], expected, "operation {operations}");
        pool.files.user_writes(&layout::disk(&a), 2, 7, true);
        for has_reached in [true, false] {
            let model = pool.files.after_cut(|| has_reached);
            drop(open(&model).unwrap());
            assert_eq!(model.content(&layout::disk(&a))[2], 7, "operation {operations}");
        }
        if !has_failed {
            return;
        }
    }
}

#[test]
fn snapshots_are_kept_only_after_they_were_taken() {
    let pool = pool_with_snapshot();
    let of = [SnapshotOf { volume: name("a"), snapshot: name("y") }];
    for (is_begun, taken_blocks) in [(false, 0), (false, 4), (true, 0), (true, 1)] {
        let mut prepared = pool.prepare(&of, &labels(0)).unwrap();
        if is_begun {
            prepared.take().unwrap();
        }
        prepared.parts()[0].take(0..taken_blocks * BLOCK).unwrap();
        assert!(matches!(prepared.keep(), Err(PoolError::Value(_))));
        check_no_leftovers(&pool.files);
    }
}

/// A user that has the volume open goes on writing to what was opened.
#[test]
fn a_volume_keeps_its_place_while_its_snapshot_is_taken() {
    let pool = pool_with_snapshot();
    let (a, x) = (name("a"), name("x"));
    let prepared = pool.prepare(&[SnapshotOf { volume: a.clone(), snapshot: name("y") }], &labels(0)).unwrap();
    let refused = |done: Result<(), PoolError>| assert!(matches!(done, Err(PoolError::BeingTaken(_))), "{done:?}");
    refused(pool.resize(&a, 9 * BLOCK));
    refused(Pool::rename(&pool, &a, &name("b")));
    refused(pool.roll_back(&a, &x, &mut go_on));
    pool.remove_snapshot(&a, &x).unwrap();
    refused(pool.remove(&a));
    drop(prepared);
    pool.remove(&a).unwrap();
}

/// ZFS has long ones.
#[test]
fn an_image_of_long_blocks_is_taken_as_a_whole() {
    for (block_bytes, is_in_parts) in [(4096, true), (64 << 10, true), (128 << 10, false), (3 << 12, false)] {
        let pool = pool_with_snapshot();
        let (a, y) = (name("a"), name("y"));
        pool.files.have_blocks_of(block_bytes);
        let mut prepared = pool.prepare(&[SnapshotOf { volume: a.clone(), snapshot: y.clone() }], &labels(0)).unwrap();
        assert_eq!(prepared.parts().len(), usize::from(is_in_parts));
        prepared.take_whole().unwrap();
        prepared.keep().unwrap();
        assert_eq!(pool.files.content(&layout::snapshot(&a, &y)), pool.files.content(&layout::disk(&a)));
    }
}

#[test]
fn a_damaged_journal_keeps_the_pool_closed() {
    let pool = pool_with_snapshot();
    pool.files.write(&layout::journal(), "{}").unwrap();
    let Err(PoolError::Unusable { place, why }) = open(&pool.files) else { panic!("it was opened") };
    assert_eq!(place, ROOT);
    assert!(why.contains(".lunette/journal") && why.contains("then remove it"), "{why}");
}

/// A folder of another user has the name of a volume, but no record.
#[test]
fn folders_without_a_record_are_left_alone() {
    let pool = pool_with_snapshot();
    let foreign = Path::new("c");
    pool.files.make_folder(foreign).unwrap();
    pool.files.write(&foreign.join("disk.img"), "text").unwrap();
    assert_eq!(pool.volumes().unwrap().0.len(), 1);
    assert!(matches!(pool.volume(&name("c")), Err(PoolError::NoVolume(_))));
    assert!(matches!(pool.remove(&name("c")), Err(PoolError::NoVolume(_))));
    assert!(matches!(pool.create(&name("c"), &wanted(&name("c"), 1)), Err(PoolError::VolumeExists(_))));
    assert!(matches!(Pool::rename(&pool, &name("a"), &name("c")), Err(PoolError::VolumeExists(_))));
    open(&pool.files).unwrap();
    assert_eq!(pool.files.read(&foreign.join("disk.img")).unwrap().unwrap(), "text");
}

#[test]
fn a_volume_whose_folder_holds_something_else_is_not_removed() {
    let pool = pool_with_snapshot();
    let (a, x) = (name("a"), name("x"));
    pool.remove_snapshot(&a, &x).unwrap();
    for file in ["a/notes", "a/snapshots/notes"] {
        pool.files.write(Path::new(file), "text").unwrap();
        let refused = pool.remove(&a).unwrap_err().to_string();
        assert!(refused.contains(&format!("{ROOT}/{file} is no part of it")), "{refused}");
        pool.files.remove_file(Path::new(file)).unwrap();
    }
    pool.remove(&a).unwrap();
}

#[test]
fn volumes_and_snapshots_are_limited() {
    let pool = pool_with_snapshot();
    for number in 1..MAX_VOLUMES {
        let volume = name(&format!("v{number}"));
        pool.files.make_folder(&layout::volume(&volume)).unwrap();
        pool.files.write(&layout::record(&volume), "").unwrap();
    }
    let b = name("b");
    assert!(matches!(pool.create(&b, &wanted(&b, 1)), Err(PoolError::TooManyVolumes)));
    let origin = Origin { volume: name("a"), snapshot: None };
    assert!(matches!(pool.clone_of(&origin, &b, &wanted(&b, 1)), Err(PoolError::TooManyVolumes)));
    check_no_leftovers(&pool.files);

    for number in 1..MAX_SNAPSHOTS {
        pool.files.write(&layout::snapshot_record(&name("a"), &name(&format!("s{number}"))), "").unwrap();
    }
    let of = [SnapshotOf { volume: name("a"), snapshot: name("y") }];
    assert!(matches!(pool.prepare(&of, &labels(0)), Err(PoolError::TooManySnapshots(_))));
}

/// Volumes that can be read are listed all the same.
#[test]
fn a_record_that_cannot_be_read_is_told_with_the_volumes() {
    let pool = pool_with_snapshot();
    pool.files.make_folder(Path::new("b")).unwrap();
    pool.files.write(&layout::record(&name("b")), r#"{"version":2}"#).unwrap();
    let (volumes, unreadable) = pool.volumes().unwrap();
    assert_eq!(volumes.into_iter().map(|volume| volume.name).collect::<Vec<_>>(), [name("a")]);
    let [why] = unreadable.as_slice() else { panic!("{unreadable:?}") };
    assert!(why.to_string().contains("/pool/b/volume.json") && why.to_string().contains("newer version"), "{why}");
    assert!(pool.remove(&name("b")).is_err(), "a volume of a newer version is not removed");
}
