//! Sessions on several cores, and what crosses from one to another.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use lunette_device::{LogicalUnit, LogicalUnitConfig, TargetDevice};
use lunette_pdu::TaskManagementResponseCode as Answer;
use lunette_pdu::{LoginStatus, Stage, TaskAttribute, TaskManagementFunction as Function};
use lunette_scsi::Lun;
use lunette_session::Authentication;
use lunette_state::{StateError, StateStore};
use lunette_store::Store;
use lunette_store::filters::{Delay, PowerLoss};
use lunette_target::{BindError, IoBackend, MAX_CORES, PortalConfig, Server, ServerConfig};
use lunette_target::{SessionEvent, SessionObserver, TargetConfig, UnitChange, Update, UpdateError};

use crate::common::{Faulty, Initiator, Outcome, Port, TARGET, Target, blocks, device, memory, start_held_write, unit};

const RESET: (u8, u8, u8) = (6, 0x29, 3);

fn port(initiator: u8) -> Port {
    Port { initiator, ..Port::A }
}

fn on_cores(cores: usize, stores: Vec<Arc<dyn Store>>) -> Target {
    Target::of(vec![device(TARGET, stores)], |config| config.cores = cores)
}

fn sessions(target: &Target) -> Vec<usize> {
    target.monitor.read_cores().map(|core| core.sessions).collect()
}

/// Waits until each core has its number of sessions.
fn wait_for(target: &Target, wanted: &[usize]) {
    target.wait_until("sessions on their cores", |_| sessions(target) == wanted);
}

/// A slow store, and one initiator on each of two cores.
fn apart() -> (Arc<Delay>, Target, Initiator, Initiator) {
    let delay = Arc::new(Delay::new(memory()));
    let target = on_cores(2, vec![delay.clone(), memory()]);
    let a = Initiator::attach(&target, Port::A);
    let b = Initiator::attach(&target, Port::B);
    wait_for(&target, &[1, 1]);
    (delay, target, a, b)
}

#[test]
fn there_is_at_least_one_core_and_a_bound() {
    for cores in [0, MAX_CORES + 1] {
        let mut config = ServerConfig::new(Vec::new(), Vec::new());
        config.cores = cores;
        assert!(matches!(Server::bind(config), Err(BindError::Cores(asked)) if asked == cores));
    }
}

#[test]
fn sessions_are_spread_and_serve_the_same_blocks() {
    let target = on_cores(3, vec![memory()]);
    let mut all: Vec<_> = (b'a'..b'g').map(|name| Initiator::attach(&target, port(name))).collect();
    wait_for(&target, &[2, 2, 2]);
    for (number, initiator) in (0..).zip(&mut all) {
        initiator.write(0, 8 * u32::from(number), blocks(8, number)).good();
    }
    all.rotate_left(1);
    for (number, initiator) in (0..).zip(&mut all) {
        assert_eq!(initiator.read(0, 8 * u32::from(number), 8).good(), blocks(8, number));
    }
    all.remove(0).send_logout();
    all.retain_mut(|initiator| initiator.test_unit_ready(0).status == 0);
    target.wait_until("the end of one", |now| now.sessions == 5);
    drop(all);
    wait_for(&target, &[0, 0, 0]);
}

#[test]
fn a_connection_joins_its_session_wherever_that_is() {
    let target = on_cores(3, vec![memory()]);
    let _first = Initiator::attach(&target, port(b'x'));
    let mut a = Initiator::log_in(&target, Port::A, &[("MaxConnections", "4")]);
    a.test_unit_ready(0);
    let mut joined = a.join(&target, Port::A, 1);
    joined.cmd_sn = a.cmd_sn;
    joined.write(0, 0, blocks(8, 1)).good();
    a.cmd_sn = joined.cmd_sn;
    assert_eq!(a.read(0, 0, 8).good(), blocks(8, 1));
    wait_for(&target, &[1, 1, 0]);
    let connections: Vec<_> = target.monitor.read_cores().map(|core| core.connections).collect();
    assert_eq!(connections, [1, 2, 0]);
    // No session has that number on that core, nor on any other.
    let mut stray = Initiator::log_in(&target, port(b'y'), &[]);
    wait_for(&target, &[1, 1, 1]);
    let mut wrong = stray.send_join(&target, Port::B, 1, &[]);
    assert_eq!(wrong.login_status(), LoginStatus::SESSION_DOES_NOT_EXIST);
    assert_eq!(stray.test_unit_ready(0).sense().0, 6);
}

#[test]
fn a_session_on_another_core_is_reinstated_there() {
    let (delay, target, a, mut b) = apart();
    start_held_write(&mut b, &delay);
    // The other core has fewer.
    drop(a);
    wait_for(&target, &[0, 1]);
    let mut again = Initiator::connect(target.address);
    again.send_login(Port::B, &[]);
    assert!(b.receive().is_err(), "the old connection is closed");
    assert!(again.hears_nothing(), "the store still works on the write");
    delay.release();
    again.finish_login();
    wait_for(&target, &[0, 1]);
    assert_eq!(again.test_unit_ready(0).sense(), Outcome::NEXUS_LOSS);
    again.write(0, 0, blocks(8, 2)).good();
    assert_eq!(again.read(0, 0, 8).good(), blocks(8, 2));
}

#[test]
fn a_login_waits_for_what_stores_of_other_cores_do_for_its_initiator() {
    let delay = Arc::new(Delay::new(memory()));
    let target = on_cores(2, vec![delay.clone()]);
    let mut lost = Initiator::attach(&target, Port::A);
    let leaves = Initiator::attach(&target, port(b'x'));
    let mut witness = Initiator::attach(&target, port(b'y'));
    wait_for(&target, &[2, 1]);
    start_held_write(&mut lost, &delay);
    drop((lost, leaves));
    wait_for(&target, &[1, 0]);
    let mut again = Initiator::connect(target.address);
    again.send_login(Port { isid: 77, ..Port::A }, &[]);
    wait_for(&target, &[1, 1]);
    witness.round_trip();
    assert!(again.hears_nothing(), "the store still works on the write");
    delay.release();
    again.finish_login();
    assert_eq!(again.test_unit_ready(0).sense().0, 6);
    again.write(0, 0, blocks(8, 2)).good();
    assert_eq!(again.read(0, 0, 8).good(), blocks(8, 2));
}

fn resets_both(function: Function, attention: (u8, u8, u8)) {
    let (delay, target, mut a, mut b) = apart();
    delay.hold();
    let writes = [0, 8].map(|lba| b.start_write(0, lba, blocks(8, 1), 4096));
    b.answers_r2ts = false;
    let waits_for_data = b.start_write(1, 0, blocks(8, 1), 0);
    delay.wait_until_held(2);
    let reset = a.start_management(function, 0, None);
    // Its answer would come before these, were it sent at once.
    b.round_trip();
    a.round_trip();
    b.round_trip();
    a.round_trip();
    assert!(!a.has_answer(reset), "the store still works on the writes");
    target.wait_until("the abort", |now| now.tasks <= 3);
    assert!(delay.release_one());
    a.round_trip();
    assert!(!a.has_answer(reset), "the store still works on one of them");
    delay.release();
    assert_eq!(a.finish_management(reset), Answer::FUNCTION_COMPLETE);
    a.test_unit_ready(0);
    a.write(0, 0, blocks(8, 9)).good();
    assert_eq!(a.read(0, 0, 8).good(), blocks(8, 9), "no old write comes after a new one");
    assert_eq!(b.test_unit_ready(0).sense(), attention);
    assert!(writes.iter().all(|write| !b.has_answer(*write)), "an aborted task has no response");
    assert_eq!(b.read(0, 0, 8).good(), blocks(8, 9));
    drop((a, b, waits_for_data));
    target.wait_until("the return of the buffers", |now| now.buffer_bytes == 0 && now.tasks == 0);
}

#[test]
fn a_logical_unit_reset_reaches_the_tasks_of_all_cores() {
    resets_both(Function::LOGICAL_UNIT_RESET, RESET);
}

#[test]
fn a_target_warm_reset_reaches_the_tasks_of_all_cores() {
    resets_both(Function::TARGET_WARM_RESET, RESET);
}

#[test]
fn resets_of_two_cores_at_a_time_wait_for_each_other() {
    let (delay, _target, mut a, mut b) = apart();
    delay.hold();
    let writes = (a.start_write(0, 0, blocks(8, 1), 4096), b.start_write(0, 8, blocks(8, 1), 4096));
    delay.wait_until_held(2);
    let resets = [&mut a, &mut b].map(|one| one.start_management(Function::LOGICAL_UNIT_RESET, 0, None));
    a.round_trip();
    b.round_trip();
    assert!(!a.has_answer(resets[0]) && !b.has_answer(resets[1]));
    delay.release();
    assert_eq!(a.finish_management(resets[0]), Answer::FUNCTION_COMPLETE);
    assert_eq!(b.finish_management(resets[1]), Answer::FUNCTION_COMPLETE);
    assert!(!a.has_answer(writes.0) && !b.has_answer(writes.1));
}

#[test]
fn who_asks_for_a_reset_and_goes_holds_up_nobody() {
    let (delay, target, mut a, mut b) = apart();
    start_held_write(&mut b, &delay);
    a.start_management(Function::LOGICAL_UNIT_RESET, 0, None);
    drop(a);
    wait_for(&target, &[0, 1]);
    delay.release();
    target.wait_until("the end of the write", |now| now.tasks == 0);
    assert_eq!(b.test_unit_ready(0).sense(), RESET);
    b.write(0, 0, blocks(8, 2)).good();
}

#[test]
fn a_cold_reset_ends_the_sessions_of_all_cores() {
    let (delay, target, mut a, mut b) = apart();
    start_held_write(&mut b, &delay);
    let reset = a.start_management(Function::TARGET_COLD_RESET, 0, None);
    a.round_trip();
    assert!(!a.has_answer(reset));
    delay.release();
    assert_eq!(a.finish_management(reset), Answer::FUNCTION_COMPLETE);
    a.wait_for_end();
    b.wait_for_end();
    wait_for(&target, &[0, 0]);
    Initiator::log_in(&target, Port::A, &[]);
}

// Preemption across cores is in `preempt`.

#[test]
fn each_nexus_has_a_task_set_of_its_own() {
    let (delay, _target, mut a, mut b) = apart();
    // MODE SENSE(6) and MODE SELECT(6) of the control mode page: TST is there, also by default, and cannot be changed.
    for page_control in [0, 2] {
        let page = a.command(0, &[0x1a, 8, page_control << 6 | 0x0a, 0, 64, 0], Vec::new(), 64).good();
        assert_eq!(page[4 + 2] >> 5, 1, "page control {page_control}");
    }
    let mut list = a.command(0, &[0x1a, 8, 0x0a, 0, 64, 0], Vec::new(), 64).good();
    list[0] = 0;
    list[2] = 0;
    list[4] &= 0x3f;
    a.command(0, &[0x15, 0x10, 0, 0, list.len() as u8, 0], list.clone(), 0).good();
    list[4 + 2] &= 0x1f;
    assert_eq!(a.command(0, &[0x15, 0x10, 0, 0, list.len() as u8, 0], list, 0).sense(), (5, 0x26, 0));
    delay.hold();
    let other = b.start_read(0, 0, 8);
    delay.wait_until_held(1);
    // An ORDERED task is older than none of its own nexus.
    a.attribute = TaskAttribute::ORDERED;
    let ordered = a.start_read(0, 0, 8);
    delay.wait_until_held(2);
    a.attribute = TaskAttribute::SIMPLE;
    let held = a.start_read(0, 8, 8);
    a.round_trip();
    assert_eq!(delay.held(), 2, "the younger one of the same nexus waits");
    let clear = a.start_management(Function::CLEAR_TASK_SET, 0, None);
    a.round_trip();
    delay.release();
    assert_eq!(a.finish_management(clear), Answer::FUNCTION_COMPLETE);
    assert!(!a.has_answer(ordered) && !a.has_answer(held));
    b.finish(other).good();
    assert!(b.test_unit_ready(0).good().is_empty(), "it lost nothing");
}

#[test]
fn a_unit_that_goes_is_flushed_when_no_core_works_with_it() {
    let disk = Arc::new(PowerLoss::new(1 << 20).unwrap());
    let delay = Arc::new(Delay::new(disk.clone() as Arc<dyn Store>));
    let devices = vec![device(TARGET, vec![delay.clone(), memory()])];
    let target = Target::of(devices.clone(), |config| config.cores = 3);
    let mut all: Vec<_> = (b'a'..b'd').map(|name| Initiator::attach(&target, port(name))).collect();
    wait_for(&target, &[1, 1, 1]);
    for initiator in &mut all {
        assert_eq!(initiator.test_unit_ready(1).sense().0, 6);
    }
    delay.hold();
    let writes: Vec<_> = (0..).zip(&mut all[1..]).map(|(at, b)| b.start_write(0, 8 * at, blocks(8, 1), 4096)).collect();
    delay.wait_until_held(2);
    let units = vec![UnitChange { device: Arc::clone(&devices[0]), lun: Lun::ZERO, unit: None }];
    target.control.apply(update(&devices, units)).unwrap();
    // The sessions of all cores have been told.
    for initiator in &mut all {
        assert_eq!(initiator.news(), (1, (6, 0x3f, 0x0e)));
        assert_eq!(initiator.test_unit_ready(1).sense(), (6, 0x3f, 0x0e));
        assert_eq!(initiator.test_unit_ready(0).sense(), (5, 0x25, 0));
    }
    assert!(delay.release_one());
    target.wait_until("the end of one write", |now| now.tasks == 1);
    assert_eq!(delay.held(), 1, "no flush yet");
    assert!(disk.unflushed() > 0);
    delay.release();
    for (write, initiator) in writes.into_iter().zip(&mut all[1..]) {
        initiator.finish(write).good();
    }
    target.wait_until("the flush", |_| disk.unflushed() == 0);
    let weak = Arc::downgrade(&{ delay });
    target.wait_until("the end of the store", |_| weak.strong_count() == 0);
}

fn update(devices: &[Arc<lunette_device::TargetDevice>], units: Vec<UnitChange>) -> Update {
    Update {
        portals: vec![PortalConfig::new("127.0.0.1:0".parse().unwrap(), 1)],
        datagram_portals: Vec::new(),
        leaves_closed: false,
        required_portals: Vec::new(),
        targets: devices.iter().cloned().map(TargetConfig::open).collect(),
        discovery: Authentication::None,
        port_groups: Vec::new(),
        units,
        growth: Vec::new(),
    }
}

#[test]
fn a_target_that_goes_takes_its_sessions_of_all_cores_along() {
    let disk = Arc::new(PowerLoss::new(1 << 20).unwrap());
    let target = on_cores(2, vec![disk.clone()]);
    let a = Initiator::attach(&target, Port::A);
    let mut b = Initiator::attach(&target, Port::B);
    wait_for(&target, &[1, 1]);
    b.write(0, 0, blocks(8, 1)).good();
    let other = [device("iqn.2026-11.org.example:other", vec![memory()])];
    target.control.apply(update(&other, Vec::new())).unwrap();
    b.wait_for_logout_request();
    assert!(disk.unflushed() > 0, "its session is there");
    b.send_logout();
    drop(b);
    wait_for(&target, &[1, 0]);
    assert!(disk.unflushed() > 0, "one is left on the other core");
    drop(a);
    target.wait_until("the flush", |_| disk.unflushed() == 0);
    // A unit that comes later has the task sets of this server too.
    let there = Port { target: "iqn.2026-11.org.example:other", ..Port::A };
    let mut there = Initiator::attach(&target, there);
    let page = there.command(0, &[0x1a, 8, 0x0a, 0, 64, 0], Vec::new(), 64).good();
    assert_eq!(page[4 + 2] >> 5, 1);
    let units =
        vec![UnitChange { device: other[0].clone(), lun: Lun::new(1).unwrap(), unit: Some(unit(memory(), "1")) }];
    target.control.apply(update(&other, units)).unwrap();
    there.news();
    assert_eq!(there.test_unit_ready(1).sense().0, 6);
    let page = there.command(1, &[0x1a, 8, 0x0a, 0, 64, 0], Vec::new(), 64).good();
    assert_eq!(page[4 + 2] >> 5, 1);
}

#[test]
fn a_stop_waits_for_the_tasks_of_all_cores_and_flushes_what_they_wrote() {
    let disk = Arc::new(PowerLoss::new(1 << 20).unwrap());
    let delay = Arc::new(Delay::new(disk.clone() as Arc<dyn Store>));
    let target = on_cores(3, vec![delay.clone()]);
    let mut all: Vec<_> = (b'a'..b'd').map(|name| Initiator::attach(&target, port(name))).collect();
    wait_for(&target, &[1, 1, 1]);
    delay.hold();
    let writes: Vec<_> = (0..).zip(&mut all).map(|(at, one)| one.start_write(0, 8 * at, blocks(8, 1), 4096)).collect();
    delay.wait_until_held(3);
    target.begin_stop();
    for initiator in &mut all {
        initiator.wait_for_logout_request();
    }
    delay.release();
    for (write, mut initiator) in writes.into_iter().zip(all) {
        initiator.finish(write).good();
        initiator.send_logout();
    }
    target.end().unwrap();
    assert_eq!(disk.unflushed(), 0);
}

#[test]
fn a_stop_that_a_store_of_another_core_holds_up_ends_all_the_same() {
    let (delay, target, _a, mut b) = apart();
    start_held_write(&mut b, &delay);
    assert_eq!(target.stop().unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    delay.release();
}

/// A connection is lost while its core is busy, and its initiator comes again by another port, whose session is to live
/// on the core `home`.
fn a_login_waits_for_what_a_busy_core_has_not_heard(home: usize) {
    let (delay, (busy, is_busy, go_on)) = (Arc::new(Delay::new(memory())), Faulty::new());
    let target = on_cores(2, vec![delay.clone(), Arc::new(busy)]);
    let mut witness = Initiator::attach(&target, Port::A);
    let mut lost = Initiator::attach(&target, Port::B);
    let _more = Initiator::attach(&target, port(b'x'));
    let mut busy_too = Initiator::attach(&target, port(b'y'));
    let _most = (home == 1).then(|| Initiator::attach(&target, port(b'z')));
    let here = 2 + home;
    wait_for(&target, &[here, 2]);
    lost.test_unit_ready(1);
    start_held_write(&mut lost, &delay);
    lost.start_write(1, 0, blocks(8, 1), 4096);
    is_busy.recv().unwrap();
    drop(lost);
    let first_core = || target.monitor.read_cores().next().unwrap();
    let before = first_core().event_loop.received_bytes;
    let mut again = Initiator::connect(target.address);
    again.send_login(Port { isid: 77, ..Port::B }, &[]);
    target.wait_until("the login on its way", |_| {
        let now = first_core();
        now.event_loop.received_bytes > before && now.connections == here + usize::from(home == 0)
    });
    go_on.send(()).unwrap();
    busy_too.round_trip();
    witness.round_trip();
    assert!(again.hears_nothing(), "the store still works on the write");
    delay.release();
    again.finish_login();
    again.test_unit_ready(0);
    again.write(0, 0, blocks(8, 2)).good();
    assert_eq!(again.read(0, 0, 8).good(), blocks(8, 2));
}

#[test]
fn a_login_waits_for_a_connection_that_was_closed_before_it_on_another_core() {
    a_login_waits_for_what_a_busy_core_has_not_heard(0);
}

#[test]
fn a_login_waits_for_a_connection_that_was_closed_before_it_on_its_own_core() {
    a_login_waits_for_what_a_busy_core_has_not_heard(1);
}

#[test]
fn a_unit_that_goes_is_not_sanitized_by_a_command_that_its_core_goes_on_with() {
    const OVERWRITE: [u8; 10] = [0x48, 0x81, 0, 0, 0, 0, 0, 0, 5, 0];
    const NOT_SUPPORTED: (u8, u8, u8) = (5, 0x25, 0);
    let (disk, (busy, is_busy, go_on)) = (memory(), Faulty::new());
    let devices = vec![device(TARGET, vec![disk, memory(), Arc::new(busy)])];
    let (device, unit) = (Arc::clone(&devices[0]), Arc::clone(&devices[0].units()[0].1));
    let target = Target::of(devices.clone(), |config| config.cores = 2);
    let _first = Initiator::attach(&target, Port::A);
    let mut b = Initiator::attach(&target, Port::B);
    wait_for(&target, &[1, 1]);
    b.test_unit_ready(2);
    b.answers_r2ts = false;
    let sanitize = b.start(0, &OVERWRITE, vec![1, 0, 0, 1, 7], 0, 0);
    b.round_trip();
    let r2t = b.r2ts.remove(0);
    // The core takes up the second write and what is behind it at one time, and so before it hears of the change.
    b.start_write(2, 0, blocks(8, 1), 4096);
    is_busy.recv().unwrap();
    b.start_write(2, 0, blocks(8, 1), 4096);
    b.answer_r2t(&r2t);
    go_on.send(()).unwrap();
    is_busy.recv().unwrap();
    let change = UnitChange { device: Arc::clone(&device), lun: Lun::ZERO, unit: None };
    let control = target.control.clone();
    let applies = thread::spawn(move || control.apply(update(&devices, vec![change])));
    target.wait_until("the removal of the unit", |_| device.units().len() == 2);
    go_on.send(()).unwrap();
    assert_eq!(b.finish(sanitize).sense(), NOT_SUPPORTED);
    applies.join().unwrap().unwrap();
    assert!(!unit.is_being_sanitized());
}

#[test]
fn who_changes_a_server_is_answered_when_a_core_fails_meanwhile() {
    let (faulty, is_asked, tell) = Faulty::new();
    let devices = vec![device(TARGET, vec![memory(), Arc::new(faulty)])];
    let target = Target::of(devices.clone(), |config| config.cores = 2);
    let mut a = Initiator::attach(&target, Port::A);
    let mut b = Initiator::attach(&target, Port::B);
    wait_for(&target, &[1, 1]);
    for lun in [0, 1] {
        b.test_unit_ready(lun);
    }
    b.start_write(1, 0, blocks(8, 1), 4096);
    is_asked.recv().unwrap();
    let (answer, answered) = channel();
    let control = target.control.clone();
    let units = vec![UnitChange { device: Arc::clone(&devices[0]), lun: Lun::ZERO, unit: None }];
    let asks = move || answer.send(control.apply(update(&devices, units))).unwrap();
    thread::spawn(asks);
    // The first core has told the other one, which hears nothing any more.
    a.news();
    drop(tell);
    assert!(matches!(answered.recv_timeout(crate::common::LIMIT), Ok(Err(UpdateError::Stopping))));
}

/// A state store whose writes hang until the test lets them end.
struct Hanging {
    asked: Sender<()>,
    told: Mutex<Receiver<()>>,
}

impl StateStore for Hanging {
    fn load(&self, _: &str) -> Result<Option<Vec<u8>>, StateError> {
        Ok(None)
    }

    fn save(&self, _: &str, _: Option<&[u8]>) -> Result<(), StateError> {
        self.asked.send(()).unwrap();
        let _ = self.told.lock().unwrap().recv();
        Ok(())
    }
}

#[test]
fn a_core_that_fails_ends_the_server_though_a_thread_hangs() {
    const REGISTER: [u8; 10] = [0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0];
    let mut list = vec![0; 24];
    // A key, and the wish that it outlives the server.
    (list[15], list[20]) = (1, 1);
    for port in [Port::A, Port::B] {
        let ((asked, is_asked), (_tell, told)) = (channel(), channel());
        let state: Arc<dyn StateStore> = Arc::new(Hanging { asked, told: Mutex::new(told) });
        let (faulty, is_busy, go_on) = Faulty::new();
        let config = LogicalUnitConfig { state: Some(state), ..LogicalUnitConfig::new(Arc::new(faulty), "faulty") };
        let device = TargetDevice::new(TARGET);
        device.add(Lun::ZERO, Arc::new(LogicalUnit::new(config).unwrap())).unwrap();
        let target = Target::of(vec![Arc::new(device)], |config| config.cores = 2);
        let mut both = [Port::A, Port::B].map(|port| Initiator::attach(&target, port));
        wait_for(&target, &[1, 1]);
        let fails = &mut both[usize::from(port.initiator - b'a')];
        fails.start(0, &REGISTER, list.clone(), 0, 24);
        is_asked.recv().unwrap();
        fails.start_write(0, 0, blocks(8, 1), 4096);
        is_busy.recv().unwrap();
        drop(go_on);
        target.wait_for_panic();
    }
}

#[test]
fn bytes_behind_the_last_login_request_reach_the_other_core() {
    for io in [IoBackend::Epoll, IoBackend::Auto] {
        let change = |config: &mut ServerConfig| (config.cores, config.event_loop) = (2, io.into());
        let target = Target::of(vec![device(TARGET, vec![memory()])], change);
        let _first = Initiator::attach(&target, Port::A);
        for (at, name) in (b'b'..b'z').enumerate() {
            let mut initiator = Initiator::connect(target.address);
            if at % 2 == 0 {
                // Two steps, so that nothing lies behind the first request.
                let (operational, full) = (Stage::LoginOperationalNegotiation, Stage::FullFeaturePhase);
                initiator.send_login_step(Stage::SecurityNegotiation, operational, port(name), &[]);
                assert!(initiator.login_status().is_success());
                initiator.send_login_step(operational, full, port(name), &[]);
            } else {
                initiator.send_login(port(name), &[]);
            }
            // The target answers the login after it has these, or before.
            let first = initiator.start(0, &[0; 6], Vec::new(), 0, 0);
            let writes: Vec<_> =
                (0..8).map(|block| initiator.start_write(0, 8 * block, blocks(8, block as u8), 4096)).collect();
            initiator.finish_login();
            assert_eq!(initiator.finish(first).sense().0, 6);
            for write in writes {
                initiator.finish(write).good();
            }
            assert_eq!(initiator.read(0, 0, 64).good().len(), 64 * 512);
        }
    }
}

#[test]
fn many_come_and_go_on_all_cores_at_a_time() {
    let target = on_cores(3, vec![memory()]);
    thread::scope(|scope| {
        for thread in 0..4 {
            let target = &target;
            scope.spawn(move || {
                for round in 0..40_u8 {
                    // The next one takes the place of this one, or joins in with others.
                    let isid = u16::from(round % 3 + 1);
                    let mut one = Initiator::log_in(target, Port { isid, ..port(b'a' + thread) }, &[]);
                    one.test_unit_ready(0).sense();
                    let lba = 64 * u32::from(thread);
                    one.write(0, lba, blocks(8, round)).good();
                    assert_eq!(one.read(0, lba, 8).good(), blocks(8, round));
                    if round % 4 == 0 {
                        one.send_logout();
                        one.wait_for_end();
                    }
                }
            });
        }
    });
    target.wait_until("the end of all", |now| now.sessions == 0 && now.tasks == 0 && now.buffer_bytes == 0);
    let spread = target.monitor.read_cores().filter(|core| core.event_loop.sent_bytes > 0).count();
    assert_eq!(spread, 3);
    target.stop().unwrap();
}

#[test]
fn an_administrator_sees_the_sessions_of_all_cores_and_ends_one() {
    let (_delay, target, mut a, mut b) = apart();
    let listed = target.control.sessions().unwrap();
    let names: Vec<_> = listed.iter().map(|session| session.target.as_deref()).collect();
    assert_eq!(names, [Some(TARGET); 2]);
    assert_ne!(listed[0].tsih, listed[1].tsih);
    assert_eq!(listed[0].peers.len(), 1);
    assert!(!target.control.end_session(listed[0].tsih.max(listed[1].tsih) + 2).unwrap(), "there is none");
    let of_a = listed.iter().find(|session| session.initiator.ends_with(":a")).unwrap();
    assert!(target.control.end_session(of_a.tsih).unwrap());
    a.wait_for_logout_request();
    a.send_logout();
    a.wait_for_end();
    target.wait_until("the end of the session", |statistics| statistics.sessions == 1);
    b.is_undisturbed();
    assert_eq!(target.control.sessions().unwrap().len(), 1);
}

#[test]
fn an_observer_hears_of_each_session_once() {
    let heard: Arc<Mutex<Vec<(bool, u16, bool)>>> = Arc::default();
    let list = Arc::clone(&heard);
    let observer: SessionObserver = Arc::new(move |event: SessionEvent| {
        list.lock().unwrap().push((event.has_begun, event.tsih, event.initiator.ends_with(":a")));
    });
    let target = Target::of(vec![device(TARGET, vec![memory()])], |config| {
        (config.cores, config.observer) = (2, Some(observer));
    });
    let a = Initiator::attach(&target, Port::A);
    let b = Initiator::attach(&target, Port::B);
    drop(a);
    wait_for(&target, &[0, 1]);
    drop(b);
    wait_for(&target, &[0, 0]);
    drop(target);
    let heard = heard.lock().unwrap();
    let of = |is_a: bool| heard.iter().filter(|event| event.2 == is_a).map(|event| event.0).collect::<Vec<_>>();
    assert_eq!((of(true), of(false)), (vec![true, false], vec![true, false]), "{heard:?}");
}
