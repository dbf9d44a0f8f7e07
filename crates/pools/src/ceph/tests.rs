//! The engine over a cluster in memory that fails after any step.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use proptest::prelude::*;

use super::CephPool;
use super::model::{Failure, Model, OBJECT};
use crate::error::PoolError;
use crate::name::Name;
use crate::pool::{Labels, NewVolume, Origin, Pool, SnapshotOf};

/// A step of a user.
#[derive(Debug, Clone)]
enum Act {
    Create { volume: u8, objects: u8, is_filling: bool },
    Filled { volume: u8 },
    Resize { volume: u8, objects: u8 },
    Rename { from: u8, to: u8 },
    Label { volume: u8, label: u8 },
    Remove { volume: u8 },
    Snapshot { volumes: Vec<u8>, snapshot: u8, label: u8, is_kept: bool },
    RemoveSnapshot { volume: u8, snapshot: u8 },
    RollBack { volume: u8, snapshot: u8 },
    Clone { volume: u8, snapshot: Option<u8>, clone: u8 },
    Flatten { volume: u8 },
    Write { volume: u8, object: u8, byte: u8 },
}

/// The visible state of a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Seen(BTreeMap<String, SeenVolume>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct SeenVolume {
    content: Vec<u8>,
    serial: String,
    labels: Labels,
    origin: Option<String>,
    is_filling: bool,
    /// Names, labels and contents, the oldest first.
    snapshots: Vec<(String, Labels, Vec<u8>)>,
}

fn volume(number: u8) -> Name {
    format!("v{number}").parse().unwrap()
}

fn snapshot(number: u8) -> Name {
    format!("s{number}").parse().unwrap()
}

fn labels(label: u8) -> Labels {
    [("label".to_owned(), label.to_string())].into()
}

fn new(objects: u8, is_filling: bool) -> NewVolume {
    let (len_bytes, serial) = (u64::from(objects) * OBJECT, format!("serial {objects}"));
    NewVolume { len_bytes, is_full: false, is_filling, serial, labels: labels(objects) }
}

fn over(model: &Model) -> CephPool {
    CephPool::over("rbd:pool".parse().unwrap(), Box::new(model.clone()))
}

/// Another process opens the pool after the end of the first one.
fn open_again(pool: CephPool, model: &Model) -> CephPool {
    drop(pool);
    model.fail(Failure::Never);
    let pool = over(model);
    pool.recover().unwrap();
    pool
}

fn act(pool: &CephPool, model: &Model, act: &Act) -> Result<(), PoolError> {
    match *act {
        Act::Create { volume: name, objects, is_filling } => {
            pool.create(&volume(name), &new(objects, is_filling)).map(|_| ())
        }
        Act::Filled { volume: name } => pool.filled(&volume(name)),
        Act::Resize { volume: name, objects } => pool.resize(&volume(name), u64::from(objects) * OBJECT),
        Act::Rename { from, to } => pool.rename(&volume(from), &volume(to)),
        Act::Label { volume: name, label } => pool.set_labels(&volume(name), &labels(label)),
        Act::Remove { volume: name } => pool.remove(&volume(name)),
        Act::Snapshot { ref volumes, snapshot: name, label, is_kept } => {
            let of = |number: &u8| SnapshotOf { volume: volume(*number), snapshot: snapshot(name) };
            let mut group = pool.prepare(&volumes.iter().map(of).collect::<Vec<_>>(), &labels(label))?;
            group.take_whole()?;
            if is_kept { group.keep().map(|_| ()) } else { Err(PoolError::Stopped) }
        }
        Act::RemoveSnapshot { volume: name, snapshot: taken } => pool.remove_snapshot(&volume(name), &snapshot(taken)),
        Act::RollBack { volume: name, snapshot: taken } => {
            pool.roll_back(&volume(name), &snapshot(taken), &mut |_, _| ControlFlow::Continue(()))
        }
        Act::Clone { volume: origin, snapshot: taken, clone } => {
            let origin = Origin { volume: volume(origin), snapshot: taken.map(snapshot) };
            pool.clone_of(&origin, &volume(clone), &new(9, false)).map(|_| ())
        }
        Act::Flatten { volume: name } => pool.flatten(&volume(name), &mut |_, _| ControlFlow::Continue(())),
        Act::Write { volume: name, object, byte } => {
            let name = volume(name);
            let len = pool.volume(&name)?.len_bytes / OBJECT;
            model.write(name.as_str(), usize::from(object) % len as usize, byte);
            Ok(())
        }
    }
}

fn see(pool: &CephPool, model: &Model) -> Seen {
    let (volumes, left_out) = pool.volumes().unwrap();
    assert!(left_out.is_empty(), "{left_out:?}");
    let see = |found: crate::pool::Volume| {
        assert_eq!(pool.volume(&found.name).unwrap(), found);
        let name = found.name.as_str();
        let content = model.content(name, None);
        assert_eq!(found.len_bytes, content.len() as u64 * OBJECT);
        let snapshots = pool.snapshots(&found.name).unwrap().into_iter().map(|taken| {
            let content = model.content(name, Some(taken.name.as_str()));
            assert_eq!(taken.len_bytes, content.len() as u64 * OBJECT);
            (taken.name.to_string(), taken.labels, content)
        });
        let seen = SeenVolume {
            content,
            snapshots: snapshots.collect(),
            origin: found.origin.map(|origin| origin.to_string()),
            serial: found.serial,
            labels: found.labels,
            is_filling: found.is_filling,
        };
        (name.to_owned(), seen)
    };
    Seen(volumes.into_iter().map(see).collect())
}

impl Seen {
    /// The state when another process opens the pool: volumes that were being filled are gone.
    fn opened_again(mut self) -> Self {
        self.0.retain(|_, volume| !volume.is_filling);
        self
    }
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let (volume, snapshot, objects) = (|| 0..4_u8, || 0..3_u8, || 1..5_u8);
    let act = prop_oneof![
        4 => (volume(), objects(), prop::bool::weighted(0.2))
            .prop_map(|(volume, objects, is_filling)| Act::Create { volume, objects, is_filling }),
        1 => volume().prop_map(|volume| Act::Filled { volume }),
        2 => (volume(), objects()).prop_map(|(volume, objects)| Act::Resize { volume, objects }),
        2 => (volume(), volume()).prop_map(|(from, to)| Act::Rename { from, to }),
        1 => (volume(), any::<u8>()).prop_map(|(volume, label)| Act::Label { volume, label }),
        3 => volume().prop_map(|volume| Act::Remove { volume }),
        4 => (prop::sample::subsequence(vec![0, 1, 2, 3], 1..4), snapshot(), any::<u8>(), prop::bool::weighted(0.9))
            .prop_map(|(volumes, snapshot, label, is_kept)| Act::Snapshot { volumes, snapshot, label, is_kept }),
        2 => (volume(), snapshot()).prop_map(|(volume, snapshot)| Act::RemoveSnapshot { volume, snapshot }),
        2 => (volume(), snapshot()).prop_map(|(volume, snapshot)| Act::RollBack { volume, snapshot }),
        4 => (volume(), prop::option::of(snapshot()), volume())
            .prop_map(|(volume, snapshot, clone)| Act::Clone { volume, snapshot, clone }),
        2 => volume().prop_map(|volume| Act::Flatten { volume }),
        4 => (volume(), objects(), any::<u8>()).prop_map(|(volume, object, byte)| Act::Write { volume, object, byte }),
    ];
    prop::collection::vec(act, 1..24)
}

/// Plays acts, of which the last one that succeeds is to fail, in a pool and then in another one without a failure.
/// `failure` has the number of the steps of the last act, and says how the cluster fails.
fn before_and_after(acts: &[Act]) -> (Model, CephPool, Seen, Seen, u64, Act) {
    let play = |acts: &[Act]| {
        let model = Model::default();
        let pool = over(&model);
        // Refusals are part of the play.
        for next in acts {
            drop(act(&pool, &model, next));
        }
        (model, pool)
    };
    let (last, first) = acts.split_last().unwrap();
    let (model, pool) = play(first);
    let before = see(&pool, &model);
    let (other, other_pool) = play(first);
    other.fail(Failure::Never);
    drop(act(&other_pool, &other, last));
    let (steps, after) = (other.steps(), see(&other_pool, &other));
    (model, pool, before, after, steps, last.clone())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_change_that_the_end_of_the_process_interrupts_is_whole_or_none(acts in acts(), at in 0_u64..60) {
        let (model, pool, before, after, steps, last) = before_and_after(&acts);
        let at = at % (steps + 1);
        model.fail(Failure::After(at));
        let result = act(&pool, &model, &last);
        let pool = open_again(pool, &model);
        let seen = see(&pool, &model);
        let (before, after) = (before.opened_again(), after.opened_again());
        if result.is_ok() {
            prop_assert_eq!(&seen, &after, "{:?} has succeeded", last);
        }
        prop_assert!(seen == before || seen == after, "{:?} after {} of {} steps: {:?}", last, at, steps, seen);
        model.assert_is_tidy();
    }

    #[test]
    fn a_change_that_the_cluster_interrupts_is_whole_or_none(acts in acts(), at in 0_u64..60, is_made: bool) {
        let (model, pool, before, after, steps, last) = before_and_after(&acts);
        model.fail(Failure::At(1 + at % steps.max(1), is_made));
        let result = act(&pool, &model, &last);
        model.fail(Failure::Never);
        // What is unfinished is ended before the next change, even one that is refused.
        pool.remove(&volume(9)).unwrap_err();
        let seen = see(&pool, &model);
        match result {
            Ok(()) => prop_assert_eq!(&seen, &after, "{:?}", last),
            Err(PoolError::Unfinished { .. } | PoolError::Io { .. }) => {
                prop_assert!(seen == before || seen == after, "{:?}: {:?}", last, seen);
            }
            Err(_) => prop_assert_eq!(&seen, &before, "{:?}", last),
        }
        let pool = open_again(pool, &model);
        prop_assert_eq!(see(&pool, &model), seen.opened_again());
        model.assert_is_tidy();
    }
}

fn make(pool: &CephPool, number: u8, objects: u8) -> Name {
    pool.create(&volume(number), &new(objects, false)).unwrap();
    volume(number)
}

#[test]
fn a_volume_that_a_roll_back_has_left_torn_is_not_shown_as_whole() {
    let model = Model::default();
    let pool = over(&model);
    let name = make(&pool, 0, 4);
    act(&pool, &model, &Act::Snapshot { volumes: vec![0], snapshot: 0, label: 0, is_kept: true }).unwrap();
    (0..4).for_each(|object| model.write("v0", object, 7));
    // The step that writes it down, the length, and two objects.
    model.fail(Failure::After(4));
    let failed = act(&pool, &model, &Act::RollBack { volume: 0, snapshot: 0 });
    assert!(matches!(failed, Err(PoolError::Unfinished { .. })), "{failed:?}");
    model.fail(Failure::Never);
    assert_eq!(model.content("v0", None), [0, 0, 7, 7]);
    assert!(matches!(pool.volume(&name), Err(PoolError::Unfinished { .. })));
    let (volumes, left_out) = pool.volumes().unwrap();
    assert!(volumes.is_empty() && left_out[0].to_string().contains("v0 is rolled back to s0"), "{left_out:?}");
    pool.set_labels(&name, &labels(1)).unwrap();
    assert_eq!(model.content("v0", None), [0; 4]);
    pool.volume(&name).unwrap();
}

#[test]
fn an_image_that_another_program_makes_meanwhile_is_left_alone() {
    let model = Model::default();
    let pool = over(&model);
    make(&pool, 0, 4);
    model.write("v0", 0, 7);
    // It looks like one that this program has begun to make, but for its data.
    super::pending::begin(&model, &volume(0), &super::pending::Pending::Make { origin: None }).unwrap();
    super::Image::remove_metadata(&*super::Cluster::open_to_change(&model, "v0").unwrap(), super::record::VOLUME)
        .unwrap();
    let pool = open_again(pool, &model);
    assert_eq!(pool.volumes().unwrap().0.len(), 1);
    model.assert_is_tidy();
}

#[test]
fn two_changes_of_a_volume_exclude_each_other() {
    let model = Model::default();
    let pool = over(&model);
    let name = make(&pool, 0, 4);
    let group = pool.prepare(&[SnapshotOf { volume: name.clone(), snapshot: snapshot(0) }], &Labels::new()).unwrap();
    assert!(matches!(pool.set_labels(&name, &labels(1)), Err(PoolError::Busy(..))));
    assert!(matches!(pool.remove(&name), Err(PoolError::Busy(..))));
    drop(group);
    pool.set_labels(&name, &labels(1)).unwrap();
    model.assert_is_tidy();
}

#[test]
fn a_record_of_a_later_version_is_refused_with_a_remedy() {
    let model = Model::default();
    let pool = over(&model);
    let name = make(&pool, 0, 4);
    let image = super::Cluster::open_to_change(&model, "v0").unwrap();
    image.set_metadata(super::record::VOLUME, r#"{"version": 2, "more": []}"#).unwrap();
    let refused = pool.volume(&name).unwrap_err().to_string();
    assert!(refused.contains("has version 2") && refused.contains("v0"), "{refused}");
    let (volumes, left_out) = pool.volumes().unwrap();
    assert!(volumes.is_empty() && left_out.len() == 1);
}
