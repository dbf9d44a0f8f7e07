//! Sessions that stand still, and that go on in another server.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lunette_handover::Handover;
use lunette_pdu::{BHS_LEN, LoginRequest, pad_len};
use lunette_store::Store;
use lunette_target::stepped::SteppedServer;
use lunette_target::{IoBackend, LeftSession, PortalConfig, ServerConfig, Standstill, StandstillError, TargetConfig};
use lunette_testkit::requests;

use crate::common::{Initiator, LIMIT, Port, TARGET, Target, blocks, device, memory, start_held_write};

fn port(initiator: u8) -> Port {
    Port { initiator, ..Port::A }
}

fn on_cores(cores: usize, stores: &[Arc<dyn Store>], inherited: Vec<LeftSession>) -> Target {
    Target::of(vec![device(TARGET, stores.to_vec())], |config| {
        config.cores = cores;
        // A ring keeps requests of sockets, so no other process can go on with them.
        config.event_loop = IoBackend::Epoll.into();
        config.inherited = inherited;
    })
}

/// The sessions as another process reads them.
fn left(standstill: &mut Standstill) -> Vec<LeftSession> {
    let (values, sockets): (Vec<_>, Vec<_>) =
        standstill.take_sessions().into_iter().map(|left| (left.value, left.sockets)).unzip();
    let bytes = Handover { sessions: values, ..Handover::default() }.encode().unwrap();
    let read = Handover::decode(&bytes).unwrap().sessions.into_iter();
    read.zip(sockets).map(|(value, sockets)| LeftSession { value, sockets }).collect()
}

#[test]
fn sessions_go_on_in_another_server() {
    for (before, after) in [(1, 1), (2, 3), (3, 1)] {
        let stores = [memory(), memory()];
        let old = on_cores(before, &stores, Vec::new());
        let mut initiators: Vec<_> = (b'a'..b'g').map(|name| Initiator::attach(&old, port(name))).collect();
        for (number, initiator) in (0..).zip(&mut initiators) {
            assert_eq!(initiator.test_unit_ready(1).sense().0, 6);
            initiator.write(0, 8 * u32::from(number), blocks(8, number)).good();
        }
        let mut standstill = old.control.stand_still(LIMIT).unwrap();
        let reads: Vec<_> =
            (0..).zip(&mut initiators).map(|(number, initiator)| initiator.start_read(0, 8 * number, 8)).collect();
        let new = on_cores(after, &stores, left(&mut standstill));
        assert_eq!(standstill.lost(), 0);
        standstill.taken();
        old.end().unwrap();
        for ((number, initiator), read) in (0..).zip(&mut initiators).zip(reads) {
            assert_eq!(initiator.finish(read).good(), blocks(8, number));
            initiator.write(1, 8 * u32::from(number), blocks(8, number + 1)).good();
            assert_eq!(initiator.read(1, 8 * u32::from(number), 8).good(), blocks(8, number + 1));
        }
        new.wait_until("all sessions", |now| now.sessions == 6 && now.tasks == 0);
        for mut initiator in initiators {
            initiator.send_logout();
        }
        new.wait_until("no session", |now| now.sessions == 0);
        new.stop().unwrap();
    }
}

#[test]
fn a_login_on_its_way_to_another_core_is_waited_for() {
    let target = on_cores(3, &[memory()], Vec::new());
    for _ in 0..40 {
        let begin = |name| {
            let mut initiator = Initiator::connect(&target);
            initiator.send_login(port(name), &[]);
            initiator
        };
        let initiators: Vec<_> = (b'a'..b'i').map(begin).collect();
        let mut standstill = target.control.stand_still(LIMIT).unwrap();
        let sessions = standstill.take_sessions();
        assert!(sessions.iter().all(|left| left.sockets.len() == 1), "the login into a session has ended");
        // Connections that were not accepted wait for the server that goes on.
        target.wait_until("each connection has its session", |now| now.connections == sessions.len());
        drop(standstill);
        for mut initiator in initiators {
            initiator.finish_login();
        }
        target.wait_until("no session", |now| now.sessions == 0);
    }
    target.stop().unwrap();
}

#[test]
fn requests_wait_while_sessions_stand_still_and_are_answered_when_they_go_on() {
    for cores in [1, 2] {
        let target = on_cores(cores, &[memory()], Vec::new());
        let mut initiator = Initiator::attach(&target, Port::A);
        for round in 0..3 {
            let standstill = target.control.stand_still(LIMIT).unwrap();
            let write = initiator.start_write(0, 8, blocks(8, round), 4096);
            drop(standstill);
            initiator.finish(write).good();
            assert_eq!(initiator.read(0, 8, 8).good(), blocks(8, round));
        }
        let late = Initiator::attach(&target, Port::B);
        drop(late);
    }
}

#[test]
fn tasks_that_have_begun_end_first() {
    let (target, delay) = Target::over_delay();
    let mut initiator = Initiator::attach(&target, Port::A);
    let write = start_held_write(&mut initiator, &delay);
    let pending = target.control.begin_standstill().unwrap();
    let pending = pending.poll().err().flatten().expect("the write has not ended");
    delay.release();
    let standstill = pending.wait(LIMIT).unwrap();
    initiator.finish(write).good();
    drop(standstill);
    initiator.read(0, 0, 8).good();
}

#[test]
fn what_does_not_end_in_time_is_told_and_everything_goes_on() {
    let (target, delay) = Target::over_delay();
    let mut initiator = Initiator::attach(&target, Port::A);
    let write = start_held_write(&mut initiator, &delay);
    let Err(StandstillError::Busy { reasons, .. }) = target.control.stand_still(Duration::ZERO) else {
        panic!("the write has not ended")
    };
    assert!(reasons.iter().any(|reason| reason.starts_with("a task has not ended")), "{reasons:?}");
    delay.release();
    initiator.finish(write).good();
    initiator.read(0, 0, 8).good();
    drop(target.control.stand_still(LIMIT).unwrap());
}

#[test]
fn there_is_one_standstill_at_a_time() {
    let target = on_cores(2, &[memory()], Vec::new());
    let first = target.control.stand_still(LIMIT).unwrap();
    // A server that stands still takes no questions.
    let second = target.control.begin_standstill().unwrap();
    assert!(second.poll().is_err());
    drop(first);
    let mut initiator = Initiator::attach(&target, Port::A);
    initiator.read(0, 0, 8).good();
}

#[test]
fn initiators_that_do_not_bring_what_they_owe_keep_no_other_from_going_on() {
    let stores = [memory()];
    let old = on_cores(1, &stores, Vec::new());
    let mut honest = Initiator::attach(&old, Port::A);
    let mut owes_data = Initiator::attach(&old, Port::B);
    // Longer than what comes unasked.
    owes_data.start_write(0, 0, blocks(1024, 1), 0);
    owes_data.round_trip();
    let mut standstill = old.control.stand_still(LIMIT).unwrap();
    let left = left(&mut standstill);
    assert_eq!((left.len(), standstill.lost()), (1, 1));
    let new = on_cores(1, &stores, left);
    standstill.taken();
    old.end().unwrap();
    honest.read(0, 0, 8).good();
    new.stop().unwrap();
}

/// Waits until the server has dealt with all that it was told so far, as far as it does while its sessions stand still.
fn wait_for_a_look(target: &Target) {
    let refused = target.control.begin_standstill().unwrap().wait(LIMIT);
    assert!(matches!(refused, Err(StandstillError::Unavailable)), "there is one already");
}

#[test]
fn what_is_asked_for_during_a_standstill_is_done_after_it() {
    for cores in [1, 2] {
        let device = device(TARGET, vec![memory()]);
        let units: Vec<_> = device.units().into_iter().map(|(_, unit)| unit).collect();
        let target = Target::of(vec![device], |config| config.cores = cores);
        let standstill = target.control.stand_still(LIMIT).unwrap();
        let freeze = target.control.begin_freeze(&units).unwrap();
        wait_for_a_look(&target);
        drop(standstill);
        drop(freeze.wait(LIMIT).expect("the unit is idle"));
        let standstill = target.control.stand_still(LIMIT).unwrap();
        target.begin_stop();
        wait_for_a_look(&target);
        drop(standstill);
        target.end().unwrap();
    }
}

/// A login that wants nothing but to get in.
fn login(initiator: &str) -> Vec<u8> {
    let mut text = format!("InitiatorName={initiator}\0TargetName={TARGET}\0").into_bytes();
    let request = LoginRequest { data_segment_len: text.len(), ..requests::login() };
    text.resize(text.len() + pad_len(text.len()), 0);
    [&request.emit()[..], &text].concat()
}

#[test]
fn a_core_that_has_nothing_to_end_waits_for_logins_of_the_others() {
    let now = Instant::now();
    let portal = PortalConfig::new("127.0.0.1:0".parse().unwrap(), 1);
    let mut config = ServerConfig::new(vec![portal], vec![TargetConfig::open(device(TARGET, vec![memory()]))]);
    config.cores = 2;
    let entropy = Arc::new(|bytes: &mut [u8]| {
        bytes.fill(7);
        Ok(())
    });
    let mut server = SteppedServer::bind(config, now, entropy).unwrap();
    let mut streams: Vec<UnixStream> = (0..2)
        .map(|_| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            server.accept(TcpStream::from(OwnedFd::from(theirs)), [address_of(1), address_of(2)]);
            ours
        })
        .collect();
    let mut pending = server.control().begin_standstill().unwrap();
    // The second core has nothing to end. Each of the sessions is to live on a core of its own.
    for core in 0..2 {
        server.step(core, now);
    }
    for (stream, name) in streams.iter_mut().zip(["iqn.2026-11.example:one", "iqn.2026-11.example:two"]) {
        stream.write_all(&login(name)).unwrap();
    }
    let mut standstill = loop {
        for core in 0..2 {
            server.step(core, now);
        }
        match pending.poll() {
            Ok(standstill) => break standstill,
            Err(still) => pending = still.expect("the server runs"),
        }
    };
    let left = standstill.take_sessions();
    assert_eq!((left.len(), standstill.lost()), (2, 0));
    assert!(left.iter().all(|left| left.value.connections.len() == 1));
    drop(standstill);
    for step in 0..4 {
        server.step(step % 2, now);
    }
    for stream in &mut streams {
        stream.read_exact(&mut [0; BHS_LEN]).expect("an answer to the login");
    }
}

fn address_of(host: u8) -> SocketAddr {
    ([192, 0, 2, host], 3260).into()
}
