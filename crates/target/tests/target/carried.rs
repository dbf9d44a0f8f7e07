//! One session on several cores: sockets of its further connections are those of other cores.

use std::sync::Arc;

use lunette_device::{LogicalUnit, LogicalUnitConfig, TargetDevice};
use lunette_pdu::{
    AsyncEvent, LogoutReason, LogoutResponseCode, TargetPdu, TaskManagementFunction as Function,
    TaskManagementResponseCode as Answer,
};
use lunette_scsi::Lun;
use lunette_store::filters::Delay;
use lunette_store::{FileStore, OpenOptions, Store};
use lunette_target::{DEFAULT_BUFFER_BYTES, IoBackend, MIN_BUFFER_BYTES, ServerConfig, Statistics};

use crate::common::{Faulty, Initiator, NEXUS_LOSS, POWER_ON, Port, TARGET, Target, blocks, device, memory};

/// 256 KiB.
const LONG: usize = 512;

const KEYS: [(&str, &str); 4] =
    [("ErrorRecoveryLevel", "2"), ("DefaultTime2Wait", "0"), ("DefaultTime2Retain", "3600"), ("MaxConnections", "8")];

fn on_cores(cores: usize, io: IoBackend, device: Arc<TargetDevice>) -> Target {
    with_buffers(DEFAULT_BUFFER_BYTES, cores, io, device)
}

fn with_buffers(bytes: usize, cores: usize, io: IoBackend, device: Arc<TargetDevice>) -> Target {
    Target::of(vec![device], |config: &mut ServerConfig| {
        (config.cores, config.event_loop, config.buffer_bytes) = (cores, io.into(), bytes);
        for target in &mut config.targets {
            target.willing.error_recovery_level = 2;
            target.willing.time2retain_s = 3600;
        }
    })
}

/// On each backend: one session with so many connections, the leading one first.
fn for_each_backend(
    cores: usize,
    connections: u16,
    stores: impl Fn() -> Vec<Arc<dyn Store>>,
    test: impl Fn(&Target, Vec<Initiator>),
) {
    for io in [IoBackend::Epoll, IoBackend::Auto] {
        let target = on_cores(cores, io, device(TARGET, stores()));
        let all = log_in(&target, connections, &KEYS[3..]);
        test(&target, all);
    }
}

fn log_in(target: &Target, connections: u16, keys: &[(&str, &str)]) -> Vec<Initiator> {
    let mut leading = Initiator::log_in(target, Port::A, keys);
    assert_eq!(leading.test_unit_ready(0).sense(), POWER_ON);
    let further: Vec<_> = (1..connections).map(|cid| leading.join(target, Port::A, cid)).collect();
    std::iter::once(leading).chain(further).collect()
}

/// Has one connection of a session do something with its next command numbers.
fn on<T>(all: &mut [Initiator], at: usize, does: impl FnOnce(&mut Initiator) -> T) -> T {
    let result = does(&mut all[at]);
    let next = all[at].cmd_sn;
    for one in all {
        one.cmd_sn = next;
    }
    result
}

#[test]
fn each_connection_reads_what_another_one_has_written() {
    for (cores, connections) in [(2, 2), (3, 8)] {
        for_each_backend(
            cores,
            connections,
            || vec![memory()],
            |target, mut all| {
                for at in 0..all.len() {
                    let data = blocks(LONG, at as u8);
                    on(&mut all, at, |one| one.write(0, (at * LONG) as u32, data)).good();
                }
                all.rotate_left(1);
                for at in 0..all.len() {
                    let read = on(&mut all, at, |one| one.read(0, (at * LONG) as u32, LONG as u16)).good();
                    assert!(read == blocks(LONG, at as u8));
                }
                let now: Vec<_> = target.monitor.read_cores().collect();
                assert_eq!(now.iter().map(|core| core.sessions).collect::<Vec<_>>()[..2], [1, 0]);
                assert_eq!(now[0].connections, all.len(), "the home has them all");
                // They count what has left a moment after it has.
                let sends = |core: Statistics| core.event_loop.sent_bytes > 256 << 10;
                target.wait_until("and others carry them", |_| target.monitor.read_cores().all(sends));
            },
        );
    }
}

#[test]
fn commands_of_all_connections_in_flight_are_answered() {
    for_each_backend(
        2,
        4,
        || vec![memory()],
        |_, mut all| {
            for round in 0..20 {
                let tasks: Vec<_> = (0..all.len() * 4)
                    .map(|at| {
                        let (which, lba) = (at % all.len(), (at * 16) as u32);
                        let data = blocks(16, (at + round) as u8);
                        (which, on(&mut all, which, |one| one.start_write(0, lba, data, 4096)))
                    })
                    .collect();
                for (which, task) in tasks {
                    all[which].finish(task).good();
                }
                for at in 0..all.len() * 4 {
                    let read = on(&mut all, at % 3, |one| one.read(0, (at * 16) as u32, 16)).good();
                    assert!(read == blocks(16, (at + round) as u8));
                }
            }
        },
    );
}

#[test]
fn a_peer_that_does_not_read_holds_up_only_its_connection() {
    for_each_backend(
        2,
        2,
        || vec![memory()],
        |target, mut all| {
            let data = blocks(2048, 7);
            on(&mut all, 0, |one| one.write(0, 0, data)).good();
            let asleep: Vec<_> = (0..50).map(|_| on(&mut all, 1, |one| one.start_read(0, 0, 2048))).collect();
            for _ in 0..50 {
                assert_eq!(on(&mut all, 0, |one| one.read(0, 0, 2048)).good().len(), 1 << 20);
            }
            for read in asleep {
                assert!(all[1].finish(read).good() == blocks(2048, 7));
            }
            target.wait_until("the return of the buffers", |now| now.buffer_bytes == 0);
        },
    );
}

#[test]
fn buffers_that_a_carrier_gives_back_go_to_those_who_wait() {
    for io in [IoBackend::Epoll, IoBackend::Auto] {
        let delay = Arc::new(Delay::new(memory()));
        let target = with_buffers(2 * MIN_BUFFER_BYTES, 2, io, device(TARGET, vec![memory(), delay.clone()]));
        let mut all = log_in(&target, 8, &KEYS[3..]);
        assert_eq!(on(&mut all, 0, |one| one.test_unit_ready(1)).sense(), POWER_ON);
        // Every second socket is on the other core. One peer there does not read, until some of its data stays in a buffer.
        let (asleep, awake) = (1, 3);
        let mut reads = Vec::new();
        while target.monitor.read().buffer_bytes == 0 {
            reads.push(on(&mut all, asleep, |one| one.start_read(0, 0, 64)));
            for _ in 0..3 {
                on(&mut all, awake, |one| one.command(0, &[0; 6], Vec::new(), 0));
            }
        }
        // With all that the initiator may hold less that rest.
        delay.hold();
        let held = [8192, 4096];
        for (at, blocks) in held.into_iter().enumerate() {
            on(&mut all, 2 * at, |one| one.start_read(1, 0, blocks));
        }
        delay.wait_until_held(held.len());
        on(&mut all, 5, |one| one.start_read(1, 0, 1024));
        target.wait_until("a wait for a buffer", |now| now.buffer_waits == 1);
        all[5].round_trip();
        for read in reads {
            all[asleep].finish(read).good();
        }
        delay.wait_until_held(held.len() + 1);
        delay.release();
    }
}

#[test]
fn long_writes_come_in_pieces() {
    for_each_backend(
        2,
        2,
        || vec![memory()],
        |_, mut all| {
            let write = |at: u32, one: &mut Initiator| one.start_write(0, 1024 * at, blocks(1024, at as u8), 4096);
            let writes: Vec<_> = (0..16).map(|at| on(&mut all, 1, |one| write(at, one))).collect();
            for write in writes {
                all[1].finish(write).good();
            }
            for at in 0..16 {
                let read = on(&mut all, 0, |one| one.read(0, 1024 * at, 1024)).good();
                assert!(read == blocks(1024, at as u8));
            }
        },
    );
}

#[test]
fn files_are_sent_without_a_copy() {
    let folder = tempfile::tempdir().unwrap();
    for (number, io) in [IoBackend::Epoll, IoBackend::Auto].into_iter().enumerate() {
        let path = folder.path().join(number.to_string());
        let options = OpenOptions { create: Some(8 << 20), ..OpenOptions::default() };
        let store: Arc<dyn Store> = Arc::new(FileStore::open(&path, &options).unwrap());
        let config = LogicalUnitConfig { zero_copy: true, ..LogicalUnitConfig::new(store, "zero") };
        let device = TargetDevice::new(TARGET);
        device.add(Lun::ZERO, Arc::new(LogicalUnit::new(config).unwrap())).unwrap();
        let target = on_cores(2, io, Arc::new(device));
        let mut all = log_in(&target, 2, &KEYS[3..]);
        on(&mut all, 1, |one| one.write(0, 0, blocks(LONG, 3))).good();
        for at in [1, 0, 1] {
            assert!(on(&mut all, at, |one| one.read(0, 0, LONG as u16)).good() == blocks(LONG, 3));
        }
        let sent = || target.monitor.read_cores().map(|core| core.event_loop.file_bytes);
        target.wait_until("sends by both", |_| sent().eq([(LONG * 512) as u64, 2 * (LONG * 512) as u64]));
    }
}

#[test]
fn tasks_of_all_connections_are_aborted() {
    let delay = Arc::new(Delay::new(memory()));
    let target = on_cores(2, IoBackend::Epoll, device(TARGET, vec![delay.clone()]));
    let mut all = log_in(&target, 2, &KEYS[3..]);
    delay.hold();
    let held = on(&mut all, 1, |one| one.start_write(0, 0, blocks(8, 1), 4096));
    delay.wait_until_held(1);
    let reset = on(&mut all, 0, |one| one.start_management(Function::LOGICAL_UNIT_RESET, 0, None));
    on(&mut all, 0, Initiator::round_trip);
    on(&mut all, 1, Initiator::round_trip);
    assert!(!all[0].has_answer(reset), "the store still works on the write");
    delay.release();
    target.wait_until("the end of the write", |now| now.tasks == 0);
    // The answer waits until this connection has acknowledged what was sent to it.
    on(&mut all, 1, Initiator::round_trip);
    assert_eq!(all[0].finish_management(reset), Answer::FUNCTION_COMPLETE);
    assert!(!all[1].has_answer(held));
}

#[test]
fn a_connection_logs_out_and_another_one_takes_its_place() {
    for_each_backend(
        2,
        2,
        || vec![memory()],
        |target, mut all| {
            for _ in 0..10 {
                let mut leaving = all.remove(1);
                leaving.send_logout_of(LogoutReason::CLOSE_CONNECTION, 1);
                // What it has to send is sent though the peer has nothing more to say.
                leaving.close_sending_side();
                assert_eq!(leaving.logout_response(), LogoutResponseCode::CLOSED);
                assert!(leaving.receive().is_err());
                let joined = all[0].join(target, Port::A, 1);
                all.push(joined);
                on(&mut all, 1, |one| one.write(0, 0, blocks(8, 1))).good();
            }
        },
    );
}

#[test]
fn a_lost_connection_ends_its_session() {
    for (lost, left) in [(1, 0), (0, 0)] {
        for_each_backend(
            2,
            2,
            || vec![memory()],
            |target, mut all| {
                drop(all.remove(lost));
                let mut left = all.remove(left);
                let (pdu, _) = left.receive().unwrap();
                assert!(matches!(pdu, TargetPdu::AsyncMessage(message) if message.event == AsyncEvent::SESSION_DROP));
                assert!(left.receive().is_err());
                target.wait_until("the end", |now| now.sessions == 0 && now.connections == 0);
            },
        );
    }
}

#[test]
fn a_lost_connection_is_recovered() {
    for io in [IoBackend::Epoll, IoBackend::Auto] {
        let delay = Arc::new(Delay::new(memory()));
        let target = on_cores(2, io, device(TARGET, vec![delay.clone()]));
        let mut all = log_in(&target, 2, &KEYS);
        delay.hold();
        let write = on(&mut all, 1, |one| one.start_write(0, 0, blocks(8, 1), 4096));
        delay.wait_until_held(1);
        all[1].cut();
        assert_eq!(all[0].hear_of_loss().0, 1);
        let mut lost = all.remove(1);
        let again = all[0].join(&target, Port::A, 1).with_tags_after(&lost);
        all.push(again);
        assert_eq!(on(&mut all, 1, |one| one.reassign(&mut lost, write)), Answer::FUNCTION_COMPLETE);
        delay.release();
        all[1].finish(write).good();
        assert_eq!(on(&mut all, 0, |one| one.read(0, 0, 8)).good(), blocks(8, 1));
    }
}

#[test]
fn a_stop_waits_for_the_logout_on_a_carried_connection() {
    for_each_backend(
        2,
        2,
        || vec![memory()],
        |target, mut all| {
            target.begin_stop();
            all.iter_mut().for_each(Initiator::wait_for_logout_request);
            let mut carried = all.remove(1);
            carried.send_logout();
            assert_eq!(carried.logout_response(), LogoutResponseCode::CLOSED);
            carried.wait_for_end();
            all.remove(0).wait_for_end();
            target.end().unwrap();
        },
    );
}

#[test]
fn connections_that_come_and_go_at_any_time_leave_nothing() {
    for io in [IoBackend::Epoll, IoBackend::Auto] {
        let target = on_cores(3, io, device(TARGET, vec![memory()]));
        for round in 0..30_u32 {
            let port = Port { isid: 1 + round as u16 % 2, ..Port::A };
            let mut leading = Initiator::log_in(&target, port, &KEYS[3..]);
            assert!([POWER_ON, NEXUS_LOSS].contains(&leading.test_unit_ready(0).sense()));
            let mut further: Vec<_> = (1..4).map(|cid| leading.send_join(&target, port, cid, &[])).collect();
            // Some end in the login, some with all that they have asked for unread.
            if round % 3 != 0 {
                further.iter_mut().for_each(Initiator::finish_login);
                for one in &mut further {
                    one.start_read(0, 0, 2048);
                    one.start_write(0, 0, blocks(64, 1), 4096);
                }
            }
            if round % 2 == 0 {
                drop(leading);
            }
        }
        target.wait_until("the end of all", |now| {
            now.connections == 0 && now.sessions == 0 && now.tasks == 0 && now.buffer_bytes == 0
        });
        target.stop().unwrap();
    }
}

#[test]
fn a_login_waits_for_a_carried_connection_that_was_closed_before_it_and_whose_carrier_does_not_know_yet() {
    let (delay, (busy, is_busy, go_on)) = (Arc::new(Delay::new(memory())), Faulty::new());
    let target = on_cores(2, IoBackend::Epoll, device(TARGET, vec![delay.clone(), Arc::new(busy)]));
    let other = |initiator| Port { initiator, ..Port::A };
    let mut leading = Initiator::log_in(&target, Port::A, &KEYS[3..]);
    let mut carrier = Initiator::attach(&target, other(b'x'));
    carrier.test_unit_ready(1);
    let mut home = Initiator::attach(&target, other(b'y'));
    // This one's socket goes to the other core, and the next session, too; so the new session comes here.
    leading.test_unit_ready(0);
    let mut lost = leading.join(&target, Port::A, 1);
    let _even = Initiator::attach(&target, other(b'z'));
    let sessions = || target.monitor.read_cores().map(|core| core.sessions).collect::<Vec<_>>();
    target.wait_until("sessions on their cores", |_| sessions() == [2, 2]);
    lost.start_held_write(&delay);
    carrier.start_write(1, 0, blocks(8, 1), 4096);
    is_busy.recv().unwrap();
    drop(lost);
    let mut again = Initiator::connect(target.address);
    again.send_login(Port { isid: 77, ..Port::A }, &[]);
    target.wait_until("the login at its home", |now| now.connections == 6);
    (0..3).for_each(|_| home.round_trip());
    go_on.send(()).unwrap();
    for _ in 0..3 {
        carrier.round_trip();
        home.round_trip();
    }
    assert!(again.hears_nothing(), "the store still works on the write");
    delay.release();
    again.finish_login();
    again.test_unit_ready(0);
    again.write(0, 0, blocks(8, 2)).good();
    assert_eq!(again.read(0, 0, 8).good(), blocks(8, 2));
}
