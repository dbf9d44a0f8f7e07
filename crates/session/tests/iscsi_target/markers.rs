//! Damaged headers in a stream with markers (RFC 3720 appendix A, RFC 7143 section 7.8).

use lunette_pdu::{InitiatorTaskTag, ScsiCommand, pad_len};
use lunette_session::keys::Offer;

use crate::harness::{INITIATOR, Peer, Setup, TARGET, login_request, pattern, read, text};

const INTERVAL: usize = 4 * 64;
const MARKER_LEN: usize = 8;

/// A session with header digests, in which the initiator sends markers. Gives the length of its login, too.
fn marked(level: &'static str) -> (Peer, usize) {
    let offer = Offer { error_recovery_level: 1, marker_interval: Some(64), ..Offer::default() };
    let mut peer = Peer::connect(Setup { offer, ..Setup::default() });
    let keys = text(&[
        ("InitiatorName", INITIATOR),
        ("TargetName", TARGET),
        ("HeaderDigest", "CRC32C"),
        ("ErrorRecoveryLevel", level),
        ("OFMarker", "Yes"),
        ("OFMarkInt", "64"),
    ]);
    peer.login(login_request(), &keys);
    assert!(peer.login_response().0.transit);
    (peer, 48 + keys.len() + pad_len(keys.len()))
}

/// PDUs with markers between their words, behind `sent` bytes.
fn weave(sent: &mut usize, pdus: &[Vec<u8>]) -> Vec<u8> {
    let start = *sent;
    let mut wire = Vec::new();
    for pdu in pdus {
        for at in (0..pdu.len()).step_by(4) {
            if (start + wire.len()) % (INTERVAL + MARKER_LEN) == INTERVAL {
                let pointer = if at == 0 { 0 } else { (pdu.len() - at) as u32 };
                wire.extend([pointer.to_be_bytes(), pointer.to_be_bytes()].concat());
            }
            wire.extend(&pdu[at..at + 4]);
        }
    }
    *sent += wire.len();
    wire
}

/// Reads of a kilobyte each, as they stand on the wire.
fn reads(peer: &mut Peer, count: u32) -> Vec<Vec<u8>> {
    (0..count)
        .map(|n| {
            peer.checker.task_sent(InitiatorTaskTag(n), false);
            let command = ScsiCommand { cmd_sn: peer.cmd_sn.add(n), ..read(n, 1024) };
            peer.frame(command.emit(), &[], &[])
        })
        .collect()
}

#[test]
fn a_damaged_header_costs_the_commands_up_to_a_marker_and_they_come_again() {
    let (mut peer, mut sent) = marked("1");
    let pdus = reads(&mut peer, 20);
    peer.cmd_sn = peer.cmd_sn.add(20);
    let mut damaged = pdus.clone();
    damaged[3][20] ^= 1;
    let wire = weave(&mut sent, &damaged);
    peer.raw(&wire);
    for _ in 0..3 {
        assert_eq!(peer.data_in().1, pattern(1024));
    }
    peer.silence();
    // Those that were received meanwhile are not taken twice.
    let again = weave(&mut sent, &pdus[3..]);
    peer.raw(&again);
    for _ in 3..20 {
        assert_eq!(peer.data_in().1, pattern(1024));
    }
    peer.silence();
    assert_eq!(peer.driver.commands.len(), 20);
}

#[test]
fn at_recovery_level_0_a_damaged_header_costs_the_connection() {
    let (mut peer, mut sent) = marked("0");
    let mut pdus = reads(&mut peer, 3);
    pdus[0][20] ^= 1;
    let wire = weave(&mut sent, &pdus);
    peer.raw(&wire);
    assert!(peer.broken().contains("header digest"));
}

#[test]
fn commands_that_were_kept_on_the_way_to_a_standstill_are_dealt_with_afterwards() {
    let len = marked("1").0.frame(read(0, 1024).emit(), &[], &[]).len();
    for cut in [0, 1, len / 2, len, 7 * len + 30] {
        let (mut peer, mut sent) = marked("1");
        let pdus = reads(&mut peer, 20);
        peer.cmd_sn = peer.cmd_sn.add(20);
        let wire = weave(&mut sent, &pdus);
        peer.driver.come_to_rest();
        peer.raw(&wire[..cut]);
        assert_eq!(peer.driver.commands.len(), 0, "all are kept");
        peer.driver.go_on();
        // Nothing has gone on yet when the session is to stand still again.
        peer.driver.come_to_rest();
        peer.driver.go_on();
        peer.raw(&wire[cut..]);
        for _ in 0..20 {
            assert_eq!(peer.data_in().1, pattern(1024), "cut at {cut}");
        }
        peer.silence();
        assert_eq!(peer.driver.commands.len(), 20);
    }
}
