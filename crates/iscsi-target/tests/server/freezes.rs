//! Freezes: the stores of units stand still, and everything else goes on.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lunette_device::{LogicalUnit, ScrubEnd, ScrubOwner, ScrubbedBlocks, TargetDevice, scrub_once};
use lunette_pdu::{LogoutResponseCode, TaskManagementFunction as Function, TaskManagementResponseCode as Answer};
use lunette_scsi::Lun;
use lunette_session::Authentication;
use lunette_store::filters::{Delay, Trace};
use lunette_store::{FileStore, OpKind, OpenOptions, Store};
use lunette_target::{FreezeError, Frozen, PortalConfig, TargetConfig, UnitChange, Update};

use crate::common::{BLOCK_LEN, Initiator, LIMIT, Port, TARGET, Target, blocks, device, memory, unit};

/// A server whose LUN 0 records its requests, which can be held back. LUN 1 is over memory.
struct Served {
    target: Target,
    device: Arc<TargetDevice>,
    units: Vec<Arc<LogicalUnit>>,
    trace: Arc<Trace>,
    delay: Arc<Delay>,
}

impl Served {
    fn new(cores: usize) -> Self {
        let delay = Arc::new(Delay::new(memory()));
        let trace = Arc::new(Trace::new(delay.clone()));
        let device = device(TARGET, vec![trace.clone(), memory()]);
        let units = device.units().into_iter().map(|(_, unit)| unit).collect();
        let target = Target::of(vec![device.clone()], |config| config.cores = cores);
        Self { target, device, units, trace, delay }
    }

    /// LUN 0 and the other one stand still.
    fn freeze(&self) -> Frozen {
        self.target.control.freeze(&self.units, LIMIT).expect("the stores are idle")
    }

    /// The requests to LUN 0 since the last call.
    fn requests(&self) -> Vec<(OpKind, u64)> {
        self.trace.take().iter().map(|record| (record.kind, record.offset)).collect()
    }

    /// Removes LUN 0.
    fn remove(&self) {
        let update = Update {
            portals: vec![PortalConfig::new("127.0.0.1:0".parse().unwrap(), 1)],
            datagram_portals: Vec::new(),
            leaves_closed: false,
            required_portals: Vec::new(),
            targets: vec![TargetConfig::open(self.device.clone())],
            discovery: Authentication::None,
            port_groups: Vec::new(),
            units: vec![UnitChange { device: self.device.clone(), lun: Lun::ZERO, unit: None }],
            growth: Vec::new(),
        };
        self.target.control.apply(update).unwrap();
    }

    /// An initiator that has taken the unit attentions of both units.
    fn attach(&self, port: Port) -> Initiator {
        let mut initiator = Initiator::attach(&self.target, port);
        assert_eq!(initiator.test_unit_ready(1).sense().0, 6);
        initiator
    }
}

/// Writes that have come to the server with their data, and wait.
fn waiting_writes(initiator: &mut Initiator, lbas: impl Iterator<Item = u32>) -> Vec<lunette_pdu::InitiatorTaskTag> {
    let writes = lbas.map(|lba| initiator.start_write(0, lba, blocks(8, 1), 4096)).collect();
    initiator.round_trip();
    writes
}

#[test]
fn commands_come_with_their_data_and_wait_before_the_store_in_their_order() {
    let served = Served::new(1);
    let mut initiator = served.attach(Port::A);
    let before = Instant::now();
    let frozen = served.freeze();
    assert!(before <= frozen.began() && frozen.began() <= Instant::now());
    let lbas = [72, 8, 64, 16, 56, 24];
    let writes = waiting_writes(&mut initiator, lbas.into_iter());
    // It is longer than the first burst, and the target asks for the rest.
    let long = initiator.start_write(0, 1024, blocks(1024, 3), 0);
    let read = initiator.start_read(1, 0, 8);
    // All data of the long one has come when it holds no other buffer up.
    served.target.wait_until("the tasks", |now| now.tasks == lbas.len() + 2);
    initiator.round_trip();
    assert!(served.requests().is_empty());
    assert!(writes.iter().chain([&long, &read]).all(|itt| !initiator.has_answer(*itt)));
    drop(frozen);
    for write in writes.into_iter().chain([long]) {
        initiator.finish(write).good();
    }
    initiator.finish(read).good();
    let offsets: Vec<u64> = served.requests().iter().map(|(_, offset)| *offset / BLOCK_LEN as u64).take(6).collect();
    assert_eq!(offsets, lbas.map(u64::from));
    assert_eq!(initiator.read(0, 1024, 1024).good(), blocks(1024, 3));
}

#[test]
fn it_waits_for_what_stores_have_begun_on_all_cores() {
    let served = Served::new(2);
    let (mut a, mut b) = (served.attach(Port::A), served.attach(Port::B));
    served.delay.hold();
    let [of_a, of_b] = [&mut a, &mut b].map(|initiator| initiator.start_write(0, 0, blocks(8, 1), 4096));
    served.delay.wait_until_held(2);
    let sessions: Vec<_> = served.target.monitor.read_cores().map(|core| core.sessions).collect();
    assert_eq!(sessions, [1, 1]);
    let mut pending = served.target.control.begin_freeze(&served.units).unwrap();
    let late = a.start_write(0, 8, blocks(8, 2), 4096);
    a.round_trip();
    // The question has reached all cores when the next one is answered.
    served.target.control.sessions().unwrap();
    for _ in 0..2 {
        pending = pending.poll().unwrap_err().expect("the server runs");
        assert!(served.delay.release_one());
        a.round_trip();
        b.round_trip();
    }
    let frozen = pending.wait(LIMIT).unwrap();
    assert_eq!(served.requests().len(), 2, "those before the freeze");
    a.finish(of_a).good();
    b.finish(of_b).good();
    assert!(!a.has_answer(late));
    served.delay.release();
    drop(frozen);
    a.finish(late).good();
}

#[test]
fn what_stores_still_do_for_aborted_tasks_counts() {
    let served = Served::new(1);
    let mut initiator = served.attach(Port::A);
    served.delay.hold();
    let write = initiator.start_write(0, 0, blocks(8, 1), 4096);
    served.delay.wait_until_held(1);
    let abort = initiator.start_management(Function::ABORT_TASK, 0, Some(write));
    initiator.round_trip();
    let pending = served.target.control.begin_freeze(&served.units).unwrap();
    served.target.control.sessions().unwrap();
    let pending = pending.poll().unwrap_err().expect("the server runs");
    served.delay.release();
    let _frozen = pending.wait(LIMIT).unwrap();
    assert_eq!(initiator.finish_management(abort), Answer::FUNCTION_COMPLETE);
}

#[test]
fn a_store_that_hangs_is_named_and_everything_goes_on() {
    let served = Served::new(2);
    let (mut a, mut b) = (served.attach(Port::A), served.attach(Port::B));
    served.delay.hold();
    let write = a.start_write(0, 0, blocks(8, 1), 4096);
    served.delay.wait_until_held(1);
    for _ in 0..3 {
        let error = served.target.control.freeze(&served.units, Duration::from_millis(1)).unwrap_err();
        let FreezeError::Busy { serials, .. } = &error else { panic!("{error}") };
        // The other one may have had no time to answer.
        assert!(serials.contains(&format!("{TARGET}-0")), "{error}");
        b.write(1, 0, blocks(8, 2)).good();
    }
    let other = b.start_write(0, 8, blocks(8, 2), 4096);
    served.delay.wait_until_held(2);
    served.delay.release();
    a.finish(write).good();
    b.finish(other).good();
    drop(served.freeze());
    b.write(0, 8, blocks(8, 3)).good();
}

#[test]
fn a_unit_is_frozen_by_one_caller_at_a_time_and_may_be_named_twice() {
    let served = Served::new(1);
    let control = &served.target.control;
    let twice = [&served.units[0]; 2].map(Arc::clone);
    let frozen = control.freeze(&twice, LIMIT).unwrap();
    let error = control.freeze(&served.units, LIMIT).unwrap_err();
    assert!(matches!(&error, FreezeError::Frozen { serial } if *serial == format!("{TARGET}-0")), "{error}");
    let other = control.freeze(&served.units[1..], LIMIT).expect("the refused freeze has left nothing behind");
    drop((frozen, other));
    drop(served.freeze());
}

#[test]
fn it_ends_on_any_thread_and_in_a_panic() {
    let served = Served::new(2);
    let (mut a, mut b) = (served.attach(Port::A), served.attach(Port::B));
    let frozen = served.freeze();
    let of_a = waiting_writes(&mut a, [0].into_iter());
    let of_b = waiting_writes(&mut b, [8].into_iter());
    let panics = thread::spawn(move || {
        let _frozen = frozen;
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    assert!(panics.join().is_err());
    a.finish(of_a[0]).good();
    b.finish(of_b[0]).good();
}

#[test]
fn an_abort_or_reset_takes_effect_at_once_and_no_request_comes_after_it() {
    for function in [Function::ABORT_TASK, Function::ABORT_TASK_SET, Function::LOGICAL_UNIT_RESET] {
        let served = Served::new(1);
        let mut initiator = served.attach(Port::A);
        let frozen = served.freeze();
        let write = waiting_writes(&mut initiator, [0].into_iter())[0];
        let request = initiator.start_management(function, 0, Some(write));
        assert_eq!(initiator.finish_management(request), Answer::FUNCTION_COMPLETE);
        served.target.wait_until("the end of the task", |now| now.tasks == 0 && now.buffer_bytes == 0);
        drop(frozen);
        initiator.test_unit_ready(0);
        initiator.read(0, 8, 8).good();
        assert_eq!(served.requests(), [(OpKind::Read, 8 * BLOCK_LEN as u64)], "{function}");
    }
}

#[test]
fn logouts_lost_sessions_and_logins_do_not_wait() {
    let served = Served::new(2);
    let (mut leaves, mut lost) = (served.attach(Port::A), served.attach(Port::B));
    let frozen = served.freeze();
    waiting_writes(&mut leaves, [0].into_iter());
    waiting_writes(&mut lost, [8].into_iter());
    leaves.send_logout();
    assert_eq!(leaves.logout_response(), LogoutResponseCode::CLOSED);
    leaves.wait_for_end();
    drop(lost);
    served.target.wait_until("the end of both", |now| now.sessions == 0 && now.tasks == 0 && now.buffer_bytes == 0);
    let mut again = Initiator::attach_again(&served.target, Port::B);
    again.test_unit_ready(0);
    let read = again.start_read(0, 0, 8);
    again.round_trip();
    assert!(served.requests().is_empty());
    drop(frozen);
    again.finish(read).good();
    assert_eq!(served.requests(), [(OpKind::Read, 0)]);
}

#[test]
fn a_frozen_unit_can_be_removed_and_its_commands_end_after_the_thaw() {
    let served = Served::new(2);
    let mut initiator = served.attach(Port::A);
    let frozen = served.freeze();
    let write = waiting_writes(&mut initiator, [0].into_iter())[0];
    served.remove();
    initiator.news();
    assert!(!initiator.has_answer(write));
    let Served { target, device, units, trace, delay } = served;
    drop(units);
    drop(frozen);
    initiator.finish(write).good();
    let store = Arc::downgrade(&trace);
    drop((trace, delay, device));
    target.wait_until("the end of the store", |_| store.strong_count() == 0);
}

#[test]
fn the_thaw_of_a_unit_that_is_gone_is_nothing() {
    let served = Served::new(2);
    let frozen = served.freeze();
    served.remove();
    served.target.stop().unwrap();
    drop(frozen);
    let error = served.target.control.freeze(&served.units, LIMIT).unwrap_err();
    assert!(matches!(error, FreezeError::Stopping), "{error}");
    assert!(served.units[0].freeze().is_some(), "the refused freeze has left nothing behind");
}

#[test]
fn a_server_stops_while_its_units_are_frozen() {
    let served = Served::new(2);
    let mut initiator = served.attach(Port::A);
    let _frozen = served.freeze();
    waiting_writes(&mut initiator, [0].into_iter());
    served.target.begin_stop();
    initiator.wait_for_logout_request();
    initiator.send_logout();
    initiator.wait_for_end();
    served.target.end().unwrap();
    let kinds: Vec<OpKind> = served.requests().iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [OpKind::Flush]);
}

#[test]
fn a_freeze_of_nothing_is_one() {
    let served = Served::new(2);
    drop(served.target.control.freeze(&[], Duration::ZERO).unwrap());
}

struct Owner;

impl ScrubOwner for Owner {
    fn scrubbed(&mut self, _: ScrubbedBlocks) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn ended(self, _: Result<(), ScrubEnd>) {}
}

#[test]
fn the_request_of_background_work_counts_and_its_next_one_waits() {
    let served = Served::new(2);
    let mut initiator = served.attach(Port::A);
    served.delay.hold();
    served.target.control.run_background(scrub_once(&served.units[0], Owner)).unwrap();
    served.delay.wait_until_held(1);
    let pending = served.target.control.begin_freeze(&served.units).unwrap();
    served.target.control.sessions().unwrap();
    let pending = pending.poll().unwrap_err().expect("the server runs");
    served.delay.release();
    let frozen = pending.wait(LIMIT).unwrap();
    served.target.control.sessions().unwrap();
    assert_eq!(served.requests(), [(OpKind::Read, 0)]);
    drop(frozen);
    served.target.wait_until("the second request", |_| served.trace.records().len() >= 2);
    initiator.write(0, 0, blocks(8, 1)).good();
}

/// The byte of a block says which round has written it.
#[test]
fn a_copy_in_a_freeze_has_no_change_of_a_later_round_on_any_core() {
    const ROUND_BLOCKS: u32 = 64;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let options = OpenOptions { create: Some(1 << 20), ..OpenOptions::default() };
    let store: Arc<dyn Store> = Arc::new(FileStore::open(&path, &options).unwrap());
    let unit = unit(store, "file");
    let device = Arc::new(TargetDevice::new(TARGET));
    device.add(Lun::ZERO, unit.clone()).unwrap();
    let target = Target::of(vec![device], |config| config.cores = 2);
    let mut writers = [Port::A, Port::B].map(|port| Initiator::attach(&target, port));
    for writer in &mut writers {
        writer.test_unit_ready(0);
    }
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        for (mut writer, first) in writers.into_iter().zip([0, 1024]) {
            let ends = &ends;
            // Each write follows the end of the one before.
            scope.spawn(move || {
                for round in (1..=255).cycle() {
                    for block in 0..ROUND_BLOCKS {
                        writer.write(0, first + block, vec![round; BLOCK_LEN]).good();
                    }
                    if ends.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        for _ in 0..50 {
            let _frozen = target.control.freeze(std::slice::from_ref(&unit), LIMIT).unwrap();
            let [one, two] = [(); 2].map(|()| std::fs::read(&path).unwrap());
            assert!(one == two, "the medium has changed");
            for first in [0, 1024] {
                let rounds: Vec<u8> = (0..ROUND_BLOCKS).map(|at| one[(first + at) as usize * BLOCK_LEN]).collect();
                let steps = rounds.windows(2).filter(|pair| pair[0] != pair[1]).count();
                assert!(steps <= 1, "a write is there, and one that ended before it is not: {rounds:?}");
            }
        }
        ends.store(true, Ordering::Relaxed);
    });
}
