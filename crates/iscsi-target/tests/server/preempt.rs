//! PREEMPT AND ABORT while tasks of the preempted nexus are under way.

use std::sync::{Arc, Mutex};

use lunette_device::{Answered, LogicalUnit, LogicalUnitConfig, TargetDevice};
use lunette_gateway::{Answer, Request, Value};
use lunette_pdu::InitiatorTaskTag;
use lunette_scsi::Lun;
use lunette_store::filters::Delay;

use crate::common::{Initiator, Outcome, Port, TARGET, Target, blocks, memory, start_held_write};

const REGISTER: u8 = 0;
const RESERVE: u8 = 1;
const PREEMPT_AND_ABORT: u8 = 5;
const WRITE_EXCLUSIVE: u8 = 1;

const KEY_A: u64 = 0xaaaa;
const KEY_B: u64 = 0xbbbb;

const RESERVATION_CONFLICT: u8 = 0x18;

/// PERSISTENT RESERVE OUT (SPC-5 6.17): CDB and parameter list.
fn reserve_out(action: u8, key: u64, action_key: u64) -> ([u8; 9], Vec<u8>) {
    let list = [key.to_be_bytes(), action_key.to_be_bytes(), [0; 8]].concat();
    ([0x5f, action, WRITE_EXCLUSIVE, 0, 0, 0, 0, 0, list.len() as u8], list)
}

fn reserve(initiator: &mut Initiator, action: u8, key: u64, action_key: u64) -> Outcome {
    let (cdb, list) = reserve_out(action, key, action_key);
    initiator.command(0, &cdb, list, 0)
}

/// A holds nothing, B the reservation; both are registered.
fn registered(target: &Target) -> (Initiator, Initiator) {
    let mut a = Initiator::attach(target, Port::A);
    let mut b = Initiator::attach(target, Port::B);
    reserve(&mut a, REGISTER, 0, KEY_A).good();
    reserve(&mut b, REGISTER, 0, KEY_B).good();
    reserve(&mut b, RESERVE, KEY_B, 0).good();
    (a, b)
}

/// Where commands are executed.
#[derive(Clone, Copy)]
struct Place {
    /// On two, the nexuses are apart.
    cores: usize,
    /// Several servers offer the unit: the preemption comes with what its gateway publishes.
    is_shared: bool,
}

const PLACES: [Place; 4] = [
    Place { cores: 1, is_shared: false },
    Place { cores: 2, is_shared: false },
    Place { cores: 1, is_shared: true },
    Place { cores: 2, is_shared: true },
];

/// A slow store under a target.
fn slow_on(Place { cores, is_shared }: Place) -> (Arc<Delay>, Target) {
    let delay = Arc::new(Delay::new(memory()));
    let config = LogicalUnitConfig { shared: is_shared, ..LogicalUnitConfig::new(delay.clone(), "slow") };
    let unit = Arc::new(LogicalUnit::new(config).unwrap());
    if is_shared {
        share(&unit);
    }
    let device = TargetDevice::new(TARGET);
    device.add(Lun::ZERO, unit).unwrap();
    let target = Target::of(vec![Arc::new(device)], |config| config.cores = cores);
    (delay, target)
}

/// Gives a unit a gateway that is the only one.
fn share(unit: &Arc<LogicalUnit>) {
    let value = Value { version: 1, members: [].into(), owner: None, wanted: None, entries: [].into() };
    unit.publish(&value, Box::new(|| ()));
    let (value, shared) = (Mutex::new(value), Arc::downgrade(unit));
    let ask = move |request, answered: Answered| {
        let (Some(unit), mut value) = (shared.upgrade(), value.lock().unwrap()) else { return };
        if let Request::Update { base, name, entry: Some(entry) } = request {
            if base != value.version {
                return answered(Answer::Changed);
            }
            value.version += 1;
            value.entries.insert(name, entry);
        }
        unit.publish(&value, Box::new(move || answered(Answer::Done)));
    };
    assert!(unit.set_gateway(Box::new(ask)));
}

/// Writes that wait for their data, and that are gone when tasks of the nexus have been aborted.
const WAITING: usize = 2;

fn start_waiting(initiator: &mut Initiator) {
    initiator.answers_r2ts = false;
    for _ in 0..WAITING {
        initiator.start_write(0, 32, blocks(8, 1), 0);
    }
    initiator.round_trip();
}

/// Starts a PREEMPT AND ABORT. It goes on when tasks have been aborted, of which stores still work on `held`.
fn start_preempting(target: &Target, by: &mut Initiator, held: usize) -> InitiatorTaskTag {
    let (cdb, list) = reserve_out(PREEMPT_AND_ABORT, KEY_A, KEY_B);
    let preempt = by.start(0, &cdb, list.clone(), 0, list.len());
    target.wait_until("the abort", |now| now.tasks == held + 1);
    preempt
}

#[test]
fn it_ends_when_the_store_is_done_with_what_it_aborted() {
    PLACES.into_iter().for_each(ends_when_the_store_is_done);
}

fn ends_when_the_store_is_done(place: Place) {
    let (delay, target) = slow_on(place);
    let (mut a, mut b) = registered(&target);
    delay.hold();
    let writes = [0, 8, 16].map(|lba| b.start_write(0, lba, blocks(8, 1), 4096));
    delay.wait_until_held(writes.len());
    start_waiting(&mut b);
    let preempt = start_preempting(&target, &mut a, writes.len());
    for _ in 0..2 {
        a.round_trip();
        b.round_trip();
    }
    assert!(!a.has_answer(preempt), "the store still works on the writes");
    delay.release();
    a.finish(preempt).good();
    a.write(0, 0, blocks(8, 9)).good();
    assert_eq!(a.read(0, 0, 8).good(), blocks(8, 9), "no old write comes after a new one");
    b.round_trip();
    assert!(writes.iter().all(|write| !b.has_answer(*write)), "an aborted task has no response");
    target.wait_until("the return of the buffers", |now| now.buffer_bytes == 0 && now.tasks == 0);
}

/// A host that has lost its connection is the one that is most often preempted.
#[test]
fn it_ends_when_the_store_is_done_with_what_a_lost_nexus_has_left() {
    PLACES.into_iter().for_each(ends_when_the_store_is_done_for_a_lost_nexus);
}

fn ends_when_the_store_is_done_for_a_lost_nexus(place: Place) {
    let (delay, target) = slow_on(place);
    let (mut a, mut b) = registered(&target);
    start_held_write(&mut b, &delay);
    drop(b);
    target.wait_until("the loss of the nexus", |now| now.sessions == 1);
    let (cdb, list) = reserve_out(PREEMPT_AND_ABORT, KEY_A, KEY_B);
    let preempt = a.start(0, &cdb, list.clone(), 0, list.len());
    for _ in 0..3 {
        a.round_trip();
    }
    assert!(!a.has_answer(preempt), "the store still works on the write");
    delay.release();
    a.finish(preempt).good();
}

#[test]
fn a_stop_does_not_wait_for_preemptions() {
    let (_, target) = slow_on(Place { cores: 2, is_shared: true });
    target.stop().unwrap();
}

#[test]
fn the_preempted_nexus_learns_of_it_and_may_not_write() {
    PLACES.into_iter().for_each(preempted_nexus_learns_of_it);
}

fn preempted_nexus_learns_of_it(place: Place) {
    let (delay, target) = slow_on(place);
    let (mut a, mut b) = registered(&target);
    start_held_write(&mut b, &delay);
    start_waiting(&mut b);
    let preempt = start_preempting(&target, &mut a, 1);
    delay.release();
    a.finish(preempt).good();
    let mut attentions = [b.test_unit_ready(0).sense(), b.test_unit_ready(0).sense()];
    attentions.sort_unstable();
    assert_eq!(attentions, [(6, 0x2a, 5), (6, 0x2f, 0)], "registrations preempted, commands cleared");
    assert_eq!(b.write(0, 0, blocks(8, 2)).status, RESERVATION_CONFLICT);
}

#[test]
fn tasks_that_still_wait_for_data_are_aborted_too() {
    let target = Target::over(vec![memory()]);
    let (mut a, mut b) = registered(&target);
    b.answers_r2ts = false;
    let write = b.start_write(0, 0, blocks(8, 1), 0);
    b.round_trip();
    reserve(&mut a, PREEMPT_AND_ABORT, KEY_A, KEY_B).good();
    // The data that comes too late is for no task.
    for r2t in std::mem::take(&mut b.r2ts) {
        b.answer_r2t(&r2t);
    }
    b.round_trip();
    assert!(!b.has_answer(write));
    assert_eq!(a.read(0, 0, 8).good(), vec![0; 4096]);
}

#[test]
fn others_keep_their_tasks() {
    let (target, delay) = Target::over_delay();
    let (mut a, mut b) = registered(&target);
    let mut bystander = Initiator::attach(&target, Port { initiator: b'c', ..Port::A });
    delay.hold();
    let read = bystander.start_read(0, 0, 8);
    let own = a.start_read(0, 0, 8);
    delay.wait_until_held(2);
    reserve(&mut a, PREEMPT_AND_ABORT, KEY_A, KEY_B).good();
    delay.release();
    bystander.finish(read).good();
    a.finish(own).good();
    assert_eq!(b.test_unit_ready(0).sense(), (6, 0x2a, 5), "it had no tasks to lose");
    assert!(b.test_unit_ready(0).good().is_empty());
}

/// A copy is a task of the unit that it was sent to, but the write is not the less one of the preempted nexus.
#[test]
fn copies_that_write_from_another_unit_are_aborted_too() {
    let delay = Arc::new(Delay::new(memory()));
    let target = Target::over(vec![delay.clone(), memory()]);
    let (mut a, mut b) = registered(&target);
    assert_eq!(b.test_unit_ready(1).sense(), (6, 0x29, 0));
    let name = b.command(0, &[0x12, 1, 0x83, 1, 0, 0], Vec::new(), 256).good()[4..16].to_vec();
    let mut list = vec![0; 16];
    (list[3], list[11]) = (32, 28);
    list.extend([&[0xe4, 0, 0, 0][..], &name, &[0; 16]].concat());
    // Eight blocks of the unit that gets the command go to the one of the descriptor.
    list.extend([&[0x02, 0, 0, 24, 0xff, 0xff, 0, 0, 0, 0, 0, 8][..], &[0; 16]].concat());
    let mut cdb = [0; 16];
    (cdb[0], cdb[13]) = (0x83, list.len() as u8);
    delay.hold();
    let len = list.len();
    let copy = b.start(1, &cdb, list, 0, len);
    delay.wait_until_held(1);
    let (cdb, list) = reserve_out(PREEMPT_AND_ABORT, KEY_A, KEY_B);
    let preempt = a.start(0, &cdb, list.clone(), 0, list.len());
    for _ in 0..2 {
        a.round_trip();
        b.round_trip();
    }
    assert!(!a.has_answer(preempt), "the store still works on the copy");
    delay.release();
    a.finish(preempt).good();
    b.round_trip();
    assert!(!b.has_answer(copy), "an aborted task has no response");
    target.wait_until("the return of the buffers", |now| now.buffer_bytes == 0 && now.tasks == 0);
}
