//! Two gateways to one disk in Ceph: who has it, handed over, killed, stopped and woken up.
//!
//! The cluster is that of `cargo xtask ceph up`, named in `LUNETTE_CEPH_CONF`. Run with `--nocapture` to see how long
//! each failover takes.

use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use lunette_pdu::TargetPdu;
use lunette_testkit::{Outcome, ScriptedInitiator, Sense};
use lunette_tests::{Ceph, Configured, Image, Island, Server, attach, lunette, run_at_most, wait_until};
use rustix::process::{Pid, Signal, kill_process};

const LIMIT: Duration = Duration::from_mins(1);

const STANDBY: Sense = (2, 4, 0x0b);
const INVALID_COMMAND: Sense = (5, 0x20, 0);

/// Statuses.
const GOOD: u8 = 0;
const CONFLICT: u8 = 0x18;

/// Service actions of PERSISTENT RESERVE OUT, and types of reservations.
const REGISTER: u8 = 0;
const RESERVE: u8 = 1;
const PREEMPT: u8 = 4;
const PREEMPT_AND_ABORT: u8 = 5;
const WRITE_EXCLUSIVE: u8 = 1;
const REGISTRANTS_ONLY: u8 = 5;
const APTPL: u8 = 1;

/// ASYMMETRIC ACCESS STATE of REPORT TARGET PORT GROUPS.
const ACTIVE_OPTIMIZED: u8 = 0;
const STANDBY_STATE: u8 = 2;

/// A gateway and a session with it.
struct Gateway {
    server: Server,
    initiator: ScriptedInitiator,
    _configured: Configured,
}

impl Gateway {
    fn start(image: &Image<'_>, group: u16) -> Self {
        let (configured, server) = Configured::serve(&image.gateway("127.0.0.1:0", group), 1);
        let initiator = attach(&server, &[]);
        Self { server, initiator, _configured: configured }
    }

    /// Starts one on an island. Initiators reach it all the same.
    fn start_on(island: &Island, image: &Image<'_>, group: u16) -> Self {
        let (configured, portal) = (Configured::new(), TcpListener::bind("127.0.0.1:0").unwrap());
        configured.write(&image.gateway(&portal.local_addr().unwrap().to_string(), group));
        let server = island.serve(&configured, portal);
        let initiator = attach(&server, &[]);
        Self { server, initiator, _configured: configured }
    }

    /// Repeats a command while it ends with a unit attention or because of the access state; the time until it is GOOD.
    fn until_good(&mut self, mut command: impl FnMut(&mut ScriptedInitiator) -> Outcome) -> (Outcome, Duration) {
        let began = Instant::now();
        let found = wait_until(LIMIT, || Some(command(&mut self.initiator)).filter(|outcome| outcome.status == 0));
        (found.expect("the gateway gets the disk"), began.elapsed())
    }

    fn write(&mut self, lba: u32, byte: u8) -> Duration {
        self.until_good(|initiator| initiator.write(0, lba, vec![byte; 512])).1
    }

    fn read(&mut self, lba: u32) -> Vec<u8> {
        self.until_good(|initiator| initiator.read(0, lba, 1)).0.good()
    }

    /// The access states of the groups, as the gateway reports them.
    fn groups(&mut self) -> Vec<(u16, u8)> {
        let cdb = [0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0];
        let (outcome, _) = self.until_good(|initiator| initiator.command(0, &cdb, Vec::new(), 64));
        let data = outcome.good();
        let len = 4 + u32::from_be_bytes(data[..4].try_into().unwrap()) as usize;
        let one = |group: &[u8]| (u16::from_be_bytes([group[2], group[3]]), group[0] & 0xf);
        data[4..len].chunks(12).map(one).collect()
    }

    /// Waits until the gateway reports that the group has the disk.
    fn await_owner(&mut self, group: u16) {
        let state = |of: u16| if of == group { ACTIVE_OPTIMIZED } else { STANDBY_STATE };
        let expected = [(1, state(1)), (2, state(2))];
        let seen = wait_until(LIMIT, || Some(self.groups()).filter(|groups| *groups == expected));
        assert!(seen.is_some(), "{:?}", self.groups());
    }

    /// The end of a command, behind the unit attentions before it.
    fn run(&mut self, mut command: impl FnMut(&mut ScriptedInitiator) -> Outcome) -> Outcome {
        const UNIT_ATTENTION: u8 = 6;
        loop {
            let outcome = command(&mut self.initiator);
            if outcome.status != 2 || outcome.sense().0 != UNIT_ATTENTION {
                return outcome;
            }
        }
    }

    /// PERSISTENT RESERVE OUT; its status.
    fn reserve_out(&mut self, action: u8, kind: u8, [key, action_key]: [u64; 2], flags: u8) -> u8 {
        let mut list = [key.to_be_bytes(), action_key.to_be_bytes(), [0; 8]].concat();
        list[20] = flags;
        let cdb = [0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0];
        self.run(|initiator| initiator.command(0, &cdb, list.clone(), 0)).status
    }

    fn write_status(&mut self, lba: u32) -> u8 {
        self.run(|initiator| initiator.write(0, lba, vec![9; 512])).status
    }

    /// READ KEYS.
    fn keys(&mut self) -> Vec<u64> {
        let cdb = [0x5e, 0, 0, 0, 0, 0, 0, 1, 0, 0];
        let data = self.run(|initiator| initiator.command(0, &cdb, Vec::new(), 256)).good();
        let len = u32::from_be_bytes(data[4..8].try_into().unwrap()) as usize;
        data[8..8 + len].chunks(8).map(|key| u64::from_be_bytes(key.try_into().unwrap())).collect()
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.server.process().id().try_into().unwrap());
        kill_process(pid.unwrap(), signal).unwrap();
    }
}

/// Two gateways; the first one has the disk.
fn two(image: &Image<'_>) -> (Gateway, Gateway) {
    let mut first = Gateway::start(image, 1);
    first.await_owner(1);
    let mut second = Gateway::start(image, 2);
    second.await_owner(1);
    await_list(image, "group 1: active\ngroup 2: standby\n");
    (first, second)
}

fn gateway(arguments: &[&str]) -> String {
    run_at_most(LIMIT, lunette().arg("gateway").args(arguments)).succeeded().to_owned()
}

/// Waits until exactly these gateways are members.
fn await_list(image: &Image<'_>, expected: &str) {
    let list = || gateway(&["list", &image.url()]);
    let seen = wait_until(LIMIT, || Some(list()).filter(|seen| *seen == expected));
    assert!(seen.is_some(), "{}", list());
}

#[test]
fn one_gateway_has_the_disk_and_both_say_which() {
    let ceph = Ceph::shared();
    let image = ceph.image(8);
    let (mut first, mut second) = two(&image);
    first.write(0, 1);
    assert_eq!(second.initiator.read(0, 0, 1).sense(), STANDBY);
    assert_eq!(second.initiator.write(0, 0, vec![9; 512]).sense(), STANDBY);
    assert_eq!(first.groups(), second.groups());
    // What gateways do not tell each other, they do not support.
    for initiator in [&mut first.initiator, &mut second.initiator] {
        assert_eq!(initiator.command(0, &[0x16, 0, 0, 0, 0, 0], Vec::new(), 0).sense(), INVALID_COMMAND);
    }
    assert_eq!(gateway(&["list", &image.url()]), "group 1: active\ngroup 2: standby\n");
    second.server.stop();
    first.server.stop();
}

#[test]
fn a_disk_is_handed_over() {
    let ceph = Ceph::shared();
    let image = ceph.image(8);
    let (mut first, mut second) = two(&image);
    for round in 1..=3_u8 {
        first.write(0, 2 * round);
        print!("handed over: {}", gateway(&["move", &image.url(), "--to", "2"]));
        assert_eq!(second.read(0), vec![2 * round; 512]);
        second.write(0, 2 * round + 1);
        first.await_owner(2);
        assert_eq!(first.initiator.write(0, 0, vec![9; 512]).sense(), STANDBY);
        print!("handed over: {}", gateway(&["move", &image.url(), "--to", "1"]));
        assert_eq!(first.read(0), vec![2 * round + 1; 512]);
        second.await_owner(1);
    }
    let none = run_at_most(LIMIT, lunette().args(["gateway", "move", &image.url(), "--to", "3"]));
    assert!(none.failed().contains("no gateway of group 3"), "{none}");
    // One that stops leaves the disk to the other.
    first.write(0, 7);
    first.server.stop();
    println!("left by a stop: {:.3} s", second.write(1, 8).as_secs_f64());
    assert_eq!(second.read(0), vec![7; 512]);
    second.server.stop();
}

#[test]
fn a_killed_gateway_is_fenced_and_what_it_answered_is_there() {
    const YEAR_S: u64 = 31_556_952;
    let ceph = Ceph::shared();
    let image = ceph.image(8);
    let (mut first, mut second) = two(&image);
    for lba in 0..64 {
        first.write(lba, lba as u8 + 1);
    }
    let client = ceph.locker(&image);
    first.server.kill();
    println!("after a kill: {:.3} s", second.write(64, 65).as_secs_f64());
    let year = ceph.blocklisted_until(&client).expect("the client of the dead gateway is on the blocklist");
    let this_year = 1970 + SystemTime::UNIX_EPOCH.elapsed().expect("a clock").as_secs() / YEAR_S;
    assert!(u64::from(year) >= this_year + 9, "it stays there for ten years, and until {year}");
    for lba in 0..=64 {
        assert_eq!(second.read(lba), vec![lba as u8 + 1; 512], "block {lba}");
    }
    // It comes back, in standby.
    let mut again = Gateway::start(&image, 1);
    again.await_owner(2);
    again.server.stop();
    second.server.stop();
}

#[test]
fn a_gateway_that_was_stopped_and_wakes_up_writes_nothing() {
    let ceph = Ceph::shared();
    let image = ceph.image(8);
    let (mut first, mut second) = two(&image);
    first.write(0, 1);
    first.signal(Signal::STOP);
    let late: Vec<_> = (0..8).map(|lba| first.initiator.start_write(0, lba, vec![0xbb; 512], 512)).collect();
    println!("after a stop: {:.3} s", second.write(0, 2).as_secs_f64());
    for lba in 1..8 {
        second.write(lba, 2);
    }
    first.signal(Signal::CONT);
    for write in late {
        assert_ne!(first.initiator.finish(write).status, 0, "a write of the fenced gateway was answered GOOD");
    }
    first.await_owner(2);
    for lba in 0..8 {
        assert_eq!(second.read(lba), vec![2; 512], "block {lba}");
    }
    // It is a gateway again. While it is not, it calls itself standby as well.
    await_list(&image, "group 1: standby\ngroup 2: active\n");
    gateway(&["move", &image.url(), "--to", "1"]);
    assert_eq!(first.read(0), vec![2; 512]);
    first.server.stop();
    second.server.stop();
}

/// The initiators of the gateway still reach it, and its late writes arrive when another gateway has long had the disk.
#[test]
fn a_gateway_that_loses_the_cluster_writes_nothing_late() {
    let ceph = Ceph::shared();
    let (image, island) = (ceph.image(8), Island::with_ways_to(&ceph));
    let mut first = Gateway::start_on(&island, &image, 1);
    first.await_owner(1);
    let mut second = Gateway::start(&image, 2);
    second.await_owner(1);
    first.write(0, 1);
    island.cut_off();
    let late: Vec<_> = (0..8).map(|lba| first.initiator.start_write(0, lba, vec![0xbb; 512], 512)).collect();
    println!("after a loss of the cluster: {:.3} s", second.write(0, 2).as_secs_f64());
    for lba in 1..8 {
        second.write(lba, 2);
    }
    island.join_again();
    for write in late {
        assert_ne!(first.initiator.finish(write).status, 0, "a write of the fenced gateway was answered GOOD");
    }
    first.await_owner(2);
    for lba in 0..8 {
        assert_eq!(second.read(lba), vec![2; 512], "block {lba}");
    }
    // It is a gateway again. While it is not, it calls itself standby as well.
    await_list(&image, "group 1: standby\ngroup 2: active\n");
    gateway(&["move", &image.url(), "--to", "1"]);
    assert_eq!(first.read(0), vec![2; 512]);
    first.server.stop();
    second.server.stop();
}

#[test]
fn a_cluster_that_does_not_answer_moves_no_disk() {
    let ceph = Ceph::alone();
    let image = ceph.image(8);
    let (mut first, mut second) = two(&image);
    first.write(0, 1);
    ceph.signal_osd(Signal::STOP);
    let held = first.initiator.start_write(0, 1, vec![2; 512], 512);
    // Longer than a gateway may be silent, and so long that the watches of both end.
    let limit = Duration::from_secs(12);
    let fenced = |server: &Server| server.log().contains("blocklist");
    assert_eq!(wait_until(limit, || (fenced(&first.server) || fenced(&second.server)).then_some(())), None);
    ceph.signal_osd(Signal::CONT);
    assert_eq!(first.initiator.finish(held).status, GOOD);
    first.await_owner(1);
    second.await_owner(1);
    assert_eq!(first.read(1), vec![2; 512]);
    // By now each gateway would have missed the other one's acknowledgements.
    assert_eq!(
        wait_until(Duration::from_secs(4), || (fenced(&first.server) || fenced(&second.server)).then_some(())),
        None
    );
    second.server.stop();
    first.server.stop();
}

#[test]
fn a_reservation_through_one_gateway_holds_at_both() {
    const CHANGES: u32 = 50;
    let ceph = Ceph::shared();
    let image = ceph.image(8);
    let (mut first, mut second) = two(&image);
    assert_eq!(first.reserve_out(REGISTER, 0, [0, 7], 0), GOOD);
    assert_eq!(second.reserve_out(REGISTER, 0, [0, 8], 0), GOOD);
    assert_eq!(second.reserve_out(RESERVE, WRITE_EXCLUSIVE, [8, 0], 0), GOOD);
    assert_eq!((first.keys(), second.keys()), (vec![7, 8], vec![7, 8]));
    assert_eq!(first.write_status(0), CONFLICT);
    assert_eq!(first.reserve_out(RESERVE, WRITE_EXCLUSIVE, [7, 0], 0), CONFLICT);
    let began = Instant::now();
    (0..CHANGES).for_each(|_| assert_eq!(first.reserve_out(REGISTER, 0, [7, 7], 0), GOOD));
    println!("a change that both gateways know: {:.1} ms", (began.elapsed() / CHANGES).as_secs_f64() * 1e3);
    // The holder has the disk where its gateway has it.
    gateway(&["move", &image.url(), "--to", "2"]);
    second.write(0, 1);
    first.server.stop();
    second.server.stop();
}

#[test]
fn changes_through_both_gateways_at_one_time_all_take_effect() {
    const CHANGES: u32 = 40;
    const REGISTER_AND_IGNORE_EXISTING_KEY: u8 = 6;
    let ceph = Ceph::shared();
    let image = ceph.image(8);
    let (mut first, mut second) = two(&image);
    let change = |gateway: &mut Gateway| {
        for key in 1..=u64::from(CHANGES) {
            assert_eq!(gateway.reserve_out(REGISTER_AND_IGNORE_EXISTING_KEY, 0, [0, key], 0), GOOD);
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| change(&mut first));
        change(&mut second);
    });
    for gateway in [&mut first, &mut second] {
        let cdb = [0x5e, 0, 0, 0, 0, 0, 0, 1, 0, 0];
        let data = gateway.run(|initiator| initiator.command(0, &cdb, Vec::new(), 256)).good();
        assert_eq!(data[..4], (2 * CHANGES).to_be_bytes(), "PRGENERATION");
        assert_eq!(gateway.keys(), [u64::from(CHANGES); 2]);
    }
    first.server.stop();
    second.server.stop();
}

#[test]
fn a_disk_that_is_write_protected_through_one_gateway_is_so_at_both() {
    const MODE_PARAMETERS_CHANGED: Sense = (6, 0x2a, 0x01);
    const SOFTWARE_WRITE_PROTECTED: Sense = (7, 0x27, 0x02);
    /// SWP, in the control mode page behind the header of MODE SENSE(6).
    const SWP: (usize, u8) = (4 + 4, 0x08);
    let ceph = Ceph::shared();
    let image = ceph.image(8);
    let (mut first, mut second) = two(&image);
    first.write(0, 1);
    let mut list = second.run(|initiator| initiator.command(0, &[0x1a, 8, 0x0a, 0, 64, 0], Vec::new(), 64)).good();
    list.truncate(usize::from(list[0]) + 1);
    list[..4].fill(0);
    // PS is reserved in MODE SELECT.
    list[4] &= 0x3f;
    for (protect, expected) in [(SWP.1, Some(SOFTWARE_WRITE_PROTECTED)), (0, None)] {
        list[SWP.0] = list[SWP.0] & !SWP.1 | protect;
        let cdb = [0x15, 0x10, 0, 0, list.len() as u8, 0];
        assert_eq!(second.run(|initiator| initiator.command(0, &cdb, list.clone(), 0)).status, GOOD);
        assert_eq!(first.initiator.test_unit_ready(0).sense(), MODE_PARAMETERS_CHANGED);
        let written = first.initiator.write(0, 0, vec![2; 512]);
        assert_eq!((written.status != GOOD).then(|| written.sense()), expected);
    }
    first.server.stop();
    second.server.stop();
}

#[test]
fn a_preemption_through_one_gateway_ends_writes_through_the_other() {
    let ceph = Ceph::shared();
    let image = ceph.image(8);
    let (mut first, mut second) = two(&image);
    first.write(0, 1);
    assert_eq!(first.reserve_out(REGISTER, 0, [0, 7], 0), GOOD);
    assert_eq!(first.reserve_out(RESERVE, REGISTRANTS_ONLY, [7, 0], 0), GOOD);
    assert_eq!(second.reserve_out(REGISTER, 0, [0, 8], 0), GOOD);
    // It is admitted, and waits for its data.
    let late = first.initiator.start_write(0, 0, vec![0xbb; 512], 0);
    let (TargetPdu::R2t(r2t), _) = first.initiator.receive().unwrap() else { panic!("it asks for the data") };
    assert_eq!(second.reserve_out(PREEMPT_AND_ABORT, REGISTRANTS_ONLY, [8, 7], 0), GOOD);
    for expected in [(6, 0x2a, 0x05), (6, 0x2f, 0)] {
        assert_eq!(first.initiator.test_unit_ready(0).sense(), expected);
    }
    // Data that comes now is of no use to it.
    first.initiator.answer_r2t(&r2t);
    assert_eq!(first.write_status(0), CONFLICT);
    assert_eq!(first.read(0), vec![1; 512]);
    assert!(!first.initiator.has_answer(late), "the preempted write was answered");
    gateway(&["move", &image.url(), "--to", "2"]);
    assert_eq!(second.read(0), vec![1; 512]);
    second.write(0, 2);
    first.server.stop();
    second.server.stop();
}

#[test]
fn a_reservation_outlives_the_gateway_through_which_it_was_made() {
    let ceph = Ceph::shared();
    let image = ceph.image(8);
    let (mut first, mut second) = two(&image);
    first.write(0, 1);
    assert_eq!(first.reserve_out(REGISTER, 0, [0, 7], 0), GOOD);
    assert_eq!(first.reserve_out(RESERVE, WRITE_EXCLUSIVE, [7, 0], 0), GOOD);
    first.server.kill();
    assert_eq!(second.read(0), vec![1; 512]);
    assert_eq!(second.write_status(0), CONFLICT);
    assert_eq!(second.keys(), [7]);
    assert_eq!(second.reserve_out(REGISTER, 0, [0, 8], 0), GOOD);
    assert_eq!(second.reserve_out(PREEMPT, WRITE_EXCLUSIVE, [8, 7], 0), GOOD);
    second.write(0, 2);
    second.server.stop();
}

#[test]
fn aptpl_decides_what_outlives_all_gateways() {
    let ceph = Ceph::shared();
    for (flags, expected) in [(APTPL, vec![7, 8]), (0, Vec::new())] {
        let image = ceph.image(8);
        let (mut first, mut second) = two(&image);
        assert_eq!(first.reserve_out(REGISTER, 0, [0, 7], flags), GOOD);
        assert_eq!(second.reserve_out(REGISTER, 0, [0, 8], flags), GOOD);
        first.server.stop();
        second.server.stop();
        let mut again = Gateway::start(&image, 2);
        again.await_owner(2);
        assert_eq!(again.keys(), expected);
        again.server.stop();
    }
}

#[test]
fn an_initiator_moves_the_disk() {
    let ceph = Ceph::shared();
    let image = ceph.image(8);
    let (mut first, mut second) = two(&image);
    first.write(0, 1);
    let set = |states: &[(u8, u8)]| {
        let descriptors = states.iter().flat_map(|(group, state)| [*state, 0, 0, *group]);
        [0; 4].into_iter().chain(descriptors).collect::<Vec<u8>>()
    };
    let ask = |server: &mut Gateway, states: &[(u8, u8)]| {
        let list = set(states);
        let cdb = [0xa4, 0x0a, 0, 0, 0, 0, 0, 0, 0, list.len() as u8, 0, 0];
        server.run(|initiator| initiator.command(0, &cdb, list.clone(), 0))
    };
    // TPGS: initiators and gateways.
    let inquiry = second.run(|initiator| initiator.command(0, &[0x12, 0, 0, 0, 36, 0], Vec::new(), 36)).good();
    assert_eq!(inquiry[5] >> 4 & 0b11, 0b11);
    let began = Instant::now();
    assert_eq!(ask(&mut second, &[(2, ACTIVE_OPTIMIZED)]).status, GOOD);
    println!("moved by an initiator: {:.3} s", began.elapsed().as_secs_f64());
    assert_eq!(second.groups(), [(1, STANDBY_STATE), (2, ACTIVE_OPTIMIZED)]);
    assert_eq!(second.run(|initiator| initiator.read(0, 0, 1)).good(), vec![1; 512]);
    assert_eq!(ask(&mut second, &[(1, STANDBY_STATE), (2, ACTIVE_OPTIMIZED)]).status, GOOD);
    // So does Lunette's own.
    for gateway in [&first, &second] {
        let portal = gateway.server.address().to_string();
        let ran = run_at_most(LIMIT, lunette().args(["activate", gateway.server.url(0), &portal]));
        assert!(ran.succeeded().contains("active/optimized"), "{ran}");
    }
    second.await_owner(2);
    // States that do not come of a move, and a group without a gateway.
    assert_eq!(ask(&mut second, &[(1, 1)]).sense(), (5, 0x26, 0));
    assert_eq!(ask(&mut second, &[(2, STANDBY_STATE)]).sense(), (5, 0x26, 0));
    first.server.stop();
    let gone =
        wait_until(LIMIT, || Some(ask(&mut second, &[(1, ACTIVE_OPTIMIZED)])).filter(|outcome| outcome.status == 2));
    assert_eq!(gone.unwrap().sense(), (4, 0x67, 0x0a));
    second.server.stop();
}

#[test]
fn the_suite_finds_reservations_of_one_server_over_one_gateway_of_two() {
    let ceph = Ceph::shared();
    let image = ceph.image(64);
    let (first, second) = two(&image);
    for pattern in ["ALL.Prin*", "ALL.Prout*"] {
        let url = first.server.url(0);
        let ran =
            run_at_most(LIMIT, std::process::Command::new("iscsi-test-cu").args(["--dataloss", "-t", pattern, url]));
        println!("{}", ran.succeeded());
    }
    first.server.stop();
    second.server.stop();
}

/// A thread that closes the image in the background must not meet the destructors of librados: one call in fifty or a
/// hundred crashed.
#[test]
fn no_command_crashes_at_its_end() {
    const CALLS: usize = 120;
    let ceph = Ceph::shared();
    let image = ceph.image(8);
    thread::scope(|scope| {
        let calls = || {
            for _ in 0..CALLS / 2 {
                assert_eq!(gateway(&["list", &image.url()]), "");
                let none = run_at_most(LIMIT, lunette().args(["gateway", "move", &image.url(), "--to", "3"]));
                assert!(none.failed().contains("no gateway of group 3") && none.code.is_some(), "{none}");
            }
        };
        for _ in 0..2 {
            scope.spawn(calls);
        }
    });
}
