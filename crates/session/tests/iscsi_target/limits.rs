//! A peer that asks and does not read, and other ways to make a target keep things.

use std::time::Duration;

use lunette_pdu::ScsiCommand;
use lunette_session::iscsi_target::{CloseReason, Response};
use lunette_session::limits::{COMMAND_WINDOW, MAX_OUTBOX_OWNED_BYTES, MAX_OUTBOX_PDUS};

use crate::harness::{Cut, Peer, Setup, command, nop_out, pattern, read, write};

/// Bytes that wait in the outbox.
fn queued(peer: &Peer) -> usize {
    peer.driver.ready_bytes()
}

#[test]
fn a_peer_that_reads_nothing_is_not_listened_to() {
    for (len, cut) in [(0, Cut::WHOLE), (4000, Cut::WHOLE), (4000, Cut { piece: 777, direct: false })] {
        let mut peer = Peer::logged_in(Setup::default()).cut(cut);
        peer.reads = false;
        let mut asked = 0;
        while peer.driver.wants_input() {
            assert!(queued(&peer) <= 2 * MAX_OUTBOX_OWNED_BYTES);
            assert!(asked <= MAX_OUTBOX_PDUS + 1);
            peer.nop_out(nop_out(asked as u32), &pattern(len));
            asked += 1;
        }
        let (before, unread) = (queued(&peer), peer.driver.unread());
        for _ in 0..100 {
            peer.nop_out(nop_out(asked as u32), &pattern(len));
            asked += 1;
        }
        assert_eq!(queued(&peer), before, "what is not read is not answered");
        assert!(peer.driver.unread() > unread);
        peer.reads = true;
        for itt in 0..asked {
            assert_eq!(peer.nop_in().0.itt.0 as usize, itt);
        }
        peer.silence();
        assert_eq!(peer.driver.unread(), 0);
    }
}

#[test]
fn rejects_count_too() {
    let mut peer = Peer::logged_in(Setup::default());
    peer.reads = false;
    let mut bhs = [0; 48];
    bhs[0] = 0x5f;
    let mut sent = 0;
    while peer.driver.wants_input() {
        peer.send(bhs, &[]);
        sent += 1;
        assert!(sent <= MAX_OUTBOX_PDUS + 1);
    }
    peer.reads = true;
    assert_eq!(peer.rest().len(), sent);
    assert!(peer.driver.wants_input());
}

#[test]
fn answers_of_the_device_come_out_whatever_waits() {
    let mut peer = Peer::logged_in(Setup::keys(&[("MaxRecvDataSegmentLength", "512")]));
    peer.reads = false;
    for itt in 0..COMMAND_WINDOW {
        peer.command(read(itt, 65_536), &[]);
    }
    assert!(!peer.driver.wants_input());
    assert!(peer.driver.unread() > 0);
    peer.reads = true;
    let bytes: usize = peer.rest().iter().map(|got| got.data.len()).sum();
    assert_eq!(bytes, 65_536 * COMMAND_WINDOW as usize);
    assert_eq!(peer.driver.pool.used_bytes(), 0);
    peer.silence();
}

#[test]
fn memory_returns_when_a_connection_ends() {
    let mut peer = Peer::logged_in(Setup::default()).manual();
    for itt in 0..10 {
        peer.command(write(itt, 4096), &[]);
        let task = peer.driver.commands[itt as usize].task;
        peer.driver.want_data(task, 4096);
    }
    assert!(peer.driver.pool.used_bytes() > 0);
    let mut response = [0; 48];
    response[0] = 0x3f;
    peer.send(response, &[]);
    assert!(peer.driver.closed.is_some());
    assert_eq!(peer.driver.pool.used_bytes(), 0);
}

#[test]
fn bytes_that_are_held_are_kept_once() {
    // A driver that is slow to answer and reads on all the same: order is kept.
    let mut peer = Peer::logged_in(Setup::default()).manual();
    let mut expected = Vec::new();
    for round in 0..50 {
        peer.command(write(round, 512), &[round as u8; 512]);
        peer.nop_out(nop_out(1000 + round), &[]);
        expected.push(1000 + round);
        let task = peer.driver.commands[round as usize].task;
        peer.driver.want_data(task, 512);
        peer.collect();
        assert_eq!(peer.driver.data_out[round as usize].1, vec![round as u8; 512]);
        peer.driver.complete(task, Response::default());
    }
    let itts: Vec<u32> = peer
        .rest()
        .into_iter()
        .filter_map(|got| match got.pdu {
            lunette_pdu::TargetPdu::NopIn(nop) => Some(nop.itt.0),
            _ => None,
        })
        .collect();
    assert_eq!(itts, expected);
    peer.command(command(9999), &[]);
}

#[test]
fn a_connection_may_end_while_bytes_are_held() {
    let mut peer = Peer::logged_in(Setup::default()).manual();
    let mut bytes = Vec::new();
    for itt in 0..3 {
        let request = ScsiCommand { cmd_sn: peer.cmd_sn, data_segment_len: 512, ..write(itt, 512) };
        peer.cmd_sn = peer.cmd_sn.next();
        bytes.extend(peer.frame(request.emit(), &[], &[itt as u8; 512]));
    }
    peer.raw(&bytes);
    let first = peer.driver.commands[0].task;
    peer.driver.want_data(first, 512);
    peer.collect();
    assert_eq!(peer.driver.commands.len(), 2, "the second command waits in the middle of what is held");
    peer.driver.request_logout(Duration::from_secs(1));
    peer.async_message();
    peer.pass(Duration::from_secs(1));
    assert_eq!(peer.driver.closed, Some(CloseReason::LogoutTimeout));
    peer.nop_out(nop_out(1), &[]);
    assert_eq!(peer.rest(), []);
}
