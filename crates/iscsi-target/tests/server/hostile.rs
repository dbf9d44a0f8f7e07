//! Initiators that hold what others need. Each test abuses one thing that a peer can hold (docs/limits.md) and shows
//! that others are served meanwhile.

use std::sync::Arc;
use std::time::Duration;

use lunette_pdu::{TaskAttribute, TaskManagementFunction as Function, TaskManagementResponseCode as Answer};
use lunette_store::Store;

use crate::common::{Initiator, Port, TARGET, Target, blocks, cdb_10, device, memory};

const FENCED: &[(&str, &str)] = &[("TaskReporting", "ResponseFence"), ("MaxConnections", "2")];
const TASK_SET_FULL: u8 = 0x28;

/// A target that soon ends what makes no progress.
fn impatient(stores: Vec<Arc<dyn Store>>) -> Target {
    Target::of(vec![device(TARGET, stores)], |config| {
        (config.cores, config.timers.progress) = (1, Duration::from_millis(100));
    })
}

#[test]
fn a_task_given_up_behind_a_response_fence_is_given_up_once() {
    let target = Target::on_one_core(vec![memory(), memory()]);
    let mut other = Initiator::attach(&target, Port::B);
    let mut a = Initiator::log_in(&target, Port::A, FENCED);
    a.test_unit_ready(0).sense();
    a.answers_r2ts = false;
    let mut b = a.join(&target, Port::A, 1);
    b.cmd_sn = a.cmd_sn;
    // A response that is not acknowledged.
    b.round_trip();
    let abort = a.start_management(Function::ABORT_TASK_SET, 1, None);
    let collecting = a.start_write(0, 0, blocks(8, 1), 0);
    while a.r2ts.is_empty() {
        a.take_one();
    }
    a.attribute = TaskAttribute::ORDERED;
    let given_up = a.start_write(0, 0, blocks(8, 2), 4096);
    for seed in 0..10 {
        other.write(0, 64, blocks(8, seed)).good();
    }
    // The target's ping is answered, and the fence passes.
    b.round_trip();
    assert_eq!(a.finish_management(abort), Answer::FUNCTION_COMPLETE);
    assert_eq!(a.finish(given_up).status, TASK_SET_FULL);
    let r2t = a.r2ts.remove(0);
    a.answer_r2t(&r2t);
    a.finish(collecting).good();
}

#[test]
fn an_ordered_task_without_its_data_holds_up_its_own_initiator_alone() {
    for attribute in [TaskAttribute::ORDERED, TaskAttribute::HEAD_OF_QUEUE] {
        let target = Target::on_one_core(vec![memory()]);
        let mut other = Initiator::attach(&target, Port::B);
        let mut a = Initiator::attach(&target, Port::A);
        a.answers_r2ts = false;
        a.attribute = attribute;
        a.start_write(0, 0, blocks(8, 1), 0);
        while a.r2ts.is_empty() {
            a.take_one();
        }
        other.test_unit_ready(0).good();
        other.write(0, 64, blocks(8, 2)).good();
        assert_eq!(other.read(0, 64, 8).good(), blocks(8, 2));
    }
}

#[test]
fn a_fence_ends_with_the_connection_that_does_not_acknowledge() {
    let target = impatient(vec![memory()]);
    let mut a = Initiator::log_in(&target, Port::A, &[("MaxConnections", "2")]);
    a.test_unit_ready(0).sense();
    let mut b = a.join(&target, Port::A, 1);
    b.cmd_sn = a.cmd_sn;
    b.round_trip();
    let held = a.start_management(Function::ABORT_TASK_SET, 0, None);
    // The target's ping stays without an answer. At recovery level 0 the session is lost with the connection.
    b.skip_to_end();
    assert!(!a.has_answer(held));
    a.skip_to_end();
    target.wait_until("the end of the session", |now| now.sessions == 0);
}

#[test]
fn what_a_write_without_data_holds_is_taken_back() {
    let target = impatient(vec![memory()]);
    let mut a = Initiator::attach(&target, Port::A);
    a.answers_r2ts = false;
    a.start_write(0, 0, blocks(1024, 1), 0);
    target.wait_until("a buffer", |now| now.buffer_bytes > 0);
    target.wait_until("its return", |now| now.buffer_bytes == 0);
    a.skip_to_end();
    target.wait_until("the end of the session", |now| now.sessions == 0);
}

#[test]
fn what_an_initiator_that_does_not_read_holds_is_taken_back() {
    let target = impatient(vec![memory()]);
    let mut a = Initiator::attach(&target, Port::A);
    for _ in 0..24 {
        a.start_read(0, 0, 2048);
    }
    target.wait_until("buffers", |now| now.buffer_bytes > 0);
    target.wait_until("their return", |now| now.buffer_bytes == 0 && now.sessions == 0);
}

/// Sessions of one initiator that want as many buffers as they can have: long writes without data, or long reads that
/// are not taken.
fn hoard(target: &Target, sessions: u16) -> Vec<Initiator> {
    let session = |isid| {
        let mut hoarder = Initiator::attach(target, Port { isid, ..Port::A });
        hoarder.answers_r2ts = false;
        for _ in 0..4 {
            if isid % 2 == 0 {
                hoarder.start_read(0, 0, 16384);
            } else {
                hoarder.start_write(0, 0, vec![0; 8 << 20], 0);
            }
        }
        hoarder.start_read(0, 0, 8);
        hoarder
    };
    (1..=sessions).map(session).collect()
}

#[test]
fn an_initiator_that_holds_all_the_buffers_it_can_leaves_others_theirs() {
    let elsewhere = "iqn.2026-11.org.example:elsewhere";
    for cores in [1, 2] {
        let devices = vec![device(TARGET, vec![memory()]), device(elsewhere, vec![memory()])];
        let target = Target::of(devices, |config| config.cores = cores);
        let hoarders = hoard(&target, 100);
        target.wait_until("a want of buffers", |now| now.buffer_waits > 100);
        for port in [Port::B, Port { target: elsewhere, ..Port::B }] {
            let mut other = Initiator::attach(&target, port);
            for seed in 0..20 {
                other.write(0, 64, blocks(8, seed)).good();
                assert_eq!(other.read(0, 64, 8).good(), blocks(8, seed));
            }
            // Long commands, too.
            assert_eq!(other.read(0, 0, 16384).good().len(), 8 << 20);
        }
        drop(hoarders);
    }
}

#[test]
fn short_commands_are_served_while_many_initiators_hold_all_that_they_can() {
    let target = Target::on_one_core(vec![memory()]);
    let hoarders: Vec<_> = (b'c'..=b'z')
        .map(|initiator| {
            let mut hoarder = Initiator::attach(&target, Port { initiator, ..Port::A });
            hoarder.answers_r2ts = false;
            hoarder.start_write(0, 0, vec![0; 8 << 20], 0);
            hoarder
        })
        .collect();
    target.wait_until("a want of buffers", |now| now.buffer_waits > 1);
    let mut other = Initiator::attach(&target, Port::B);
    for seed in 0..20 {
        other.write(0, 64, blocks(8, seed)).good();
        assert_eq!(other.read(0, 64, 8).good(), blocks(8, seed));
    }
    drop(hoarders);
}

/// The acts of one hostile session, and the offer of its login. It may give further connections that stay open.
struct Abuse {
    name: &'static str,
    keys: &'static [(&'static str, &'static str)],
    run: fn(&Target, Port, &mut Initiator) -> Vec<Initiator>,
}

/// A write of `len` bytes to LUN 0, whose data does not come.
fn start_write_without_data(a: &mut Initiator, len: usize) {
    a.start_write(0, 0, vec![0; len], 0);
}

const ABUSES: &[Abuse] = &[
    Abuse {
        name: "places in the command window, by writes without data",
        keys: &[],
        run: |_, _, a| {
            (0..127).for_each(|_| start_write_without_data(a, 4096));
            Vec::new()
        },
    },
    Abuse {
        name: "places in the command window, by unsolicited data that stops",
        keys: &[("InitialR2T", "No")],
        run: |_, _, a| {
            a.announces_data = true;
            (0..127).for_each(|_| start_write_without_data(a, 65536));
            Vec::new()
        },
    },
    Abuse {
        name: "the order of tasks, by an ORDERED and a HEAD OF QUEUE task without data",
        keys: &[],
        run: |_, _, a| {
            for attribute in [TaskAttribute::ORDERED, TaskAttribute::HEAD_OF_QUEUE, TaskAttribute::ORDERED] {
                a.attribute = attribute;
                start_write_without_data(a, 4096);
            }
            Vec::new()
        },
    },
    Abuse {
        name: "commands before their turn, by numbers that are left out",
        keys: &[("MaxConnections", "2")],
        run: |_, _, a| {
            a.cmd_sn = a.cmd_sn.next();
            (0..100).for_each(|_| start_write_without_data(a, 4096));
            Vec::new()
        },
    },
    Abuse {
        name: "response fences, by answers that are not acknowledged",
        keys: FENCED,
        run: |target, port, a| {
            let mut b = a.join(target, port, 1);
            b.cmd_sn = a.cmd_sn;
            b.round_trip();
            for _ in 0..16 {
                a.start_management(Function::ABORT_TASK_SET, 0, None);
                a.start_read(0, 0, 8);
            }
            vec![b]
        },
    },
    Abuse {
        name: "answers, by long reads that are not taken",
        keys: &[],
        run: |_, _, a| {
            for _ in 0..100 {
                a.start_read(0, 0, 16384);
            }
            Vec::new()
        },
    },
    Abuse {
        name: "tasks of lost connections",
        keys: &[("ErrorRecoveryLevel", "2"), ("DefaultTime2Wait", "3600"), ("DefaultTime2Retain", "3600")],
        run: |_, _, a| {
            (0..8).for_each(|_| start_write_without_data(a, 8 << 20));
            a.cut();
            Vec::new()
        },
    },
    Abuse {
        name: "echoes that are not taken",
        keys: &[],
        run: |_, _, a| {
            // As much as fits the socket and what the target keeps; the rest stays with the peer.
            (0..16).for_each(|_| a.send_ping(&[7; 8192]));
            Vec::new()
        },
    },
];

#[test]
fn others_are_served_while_a_hundred_sessions_hold_each_thing_that_can_be_held() {
    for Abuse { name, keys, run } in ABUSES {
        let target = Target::of(vec![device(TARGET, vec![memory()])], |config| {
            config.cores = 1;
            config.targets[0].offer.error_recovery_level = 2;
            config.targets[0].offer.time2retain_s = 3600;
        });
        let mut held = Vec::new();
        for isid in 1..=100 {
            let port = Port { isid, ..Port::A };
            let mut hostile = Initiator::log_in(&target, port, keys);
            hostile.test_unit_ready(0).sense();
            hostile.answers_r2ts = false;
            held.extend(run(&target, port, &mut hostile));
            held.push(hostile);
        }
        let mut other = Initiator::attach(&target, Port::B);
        for seed in 0..20 {
            assert!(other.write(0, 64, blocks(8, seed)).status == 0, "{name}");
            assert_eq!(other.read(0, 64, 8).good(), blocks(8, seed), "{name}");
        }
    }
}

#[test]
fn answers_that_wait_for_the_rest_of_their_data_count_for_their_connection() {
    let target = Target::on_one_core(vec![memory()]);
    let mut a = Initiator::log_in(&target, Port::A, &[("InitialR2T", "No")]);
    a.test_unit_ready(0).sense();
    // Reads that announce data, which does not come: their answers wait for it (RFC 7143 section 11.4.2).
    a.announces_data = true;
    for _ in 0..120 {
        a.start(0, &cdb_10(0x28, 0, 2048), vec![0; 4096], 0, 0);
    }
    target.wait_until("a want of buffers", |now| now.buffer_waits > 0);
    a.announces_data = false;
    a.round_trip();
    a.round_trip();
    let held = target.monitor.read().buffer_bytes;
    assert!(held <= 65 << 20, "{held} bytes are held by one connection");
}

#[test]
fn a_task_without_a_buffer_does_not_stand_before_the_data_of_others() {
    let target = Target::of(vec![device(TARGET, vec![memory()])], |config| {
        (config.cores, config.buffer_bytes) = (1, 16 << 20);
    });
    let mut a = Initiator::attach(&target, Port::A);
    a.answers_r2ts = false;
    let writes: Vec<_> = (0..4).map(|at| a.start_write(0, at * 2048, blocks(2048, 1), 0)).collect();
    while a.r2ts.len() < 4 {
        a.take_one();
    }
    // Its immediate data is next in the stream, and the connection's share of the buffers is used up.
    let read = a.start(0, &cdb_10(0x28, 0, 2048), vec![0; 512], 0, 512);
    a.answers_r2ts = true;
    for r2t in std::mem::take(&mut a.r2ts) {
        a.answer_r2t(&r2t);
    }
    assert_eq!(a.finish(read).status, TASK_SET_FULL);
    for write in writes {
        a.finish(write).good();
    }
}
