//! Bytes and PDUs that no honest initiator sends: no panic, no endless loop, no growth beyond the limits.

use std::time::Duration;

use lunette_pdu::TaskManagementResponseCode;
use lunette_session::iscsi_target::Response;
use lunette_session::limits::{MAX_OUTBOX_OWNED_BYTES, MAX_OUTBOX_PDUS};
use proptest::prelude::*;

use crate::harness::{Cut, INITIATOR, Peer, Setup, TARGET, login_request, pattern, text};

const DIGESTS: [(&str, &str); 2] = [("HeaderDigest", "CRC32C"), ("DataDigest", "CRC32C")];

fn any_cut() -> impl Strategy<Value = Cut> {
    (prop_oneof![Just(1_usize), 2..200_usize, Just(usize::MAX)], any::<bool>())
        .prop_map(|(piece, direct)| Cut { piece, direct })
}

/// A connection that may be treated badly.
fn victim(keys: &[(&'static str, &'static str)], cut: Cut) -> Peer {
    let mut peer = Peer::logged_in(Setup::keys(keys)).cut(cut);
    peer.checker.strict = false;
    peer
}

fn is_bounded(peer: &Peer) {
    let queued = peer.driver.ready_bytes();
    let pooled = peer.driver.pool.used_bytes();
    assert!(queued <= 2 * MAX_OUTBOX_OWNED_BYTES + 64 * MAX_OUTBOX_PDUS + pooled, "{queued} bytes wait");
}

/// A header that has a chance to mean something.
fn header() -> impl Strategy<Value = [u8; 48]> {
    let opcode = prop_oneof![
        8 => prop::sample::select(vec![0x00_u8, 0x01, 0x02, 0x04, 0x05, 0x41, 0x40, 0x42, 0x44, 0x10]),
        1 => Just(0x46),
        1 => any::<u8>(),
    ];
    let flags = prop_oneof![any::<u8>(), Just(0x80), Just(0xa0), Just(0xc0), Just(0x20), Just(0xa1), Just(0xe0)];
    let tag = || prop_oneof![0..4_u32, Just(u32::MAX), any::<u32>()];
    let number = || prop_oneof![4 => 0..6_u32, 1 => any::<u32>()];
    let length = prop_oneof![Just(0_u32), 0..2000_u32, any::<u32>()];
    (opcode, flags, tag(), tag(), length, number(), number(), number(), any::<[u8; 16]>()).prop_map(
        |(opcode, flags, itt, word20, length, cmd_sn, word36, word40, rest)| {
            let mut bhs = [0; 48];
            bhs[32..].copy_from_slice(&rest);
            (bhs[0], bhs[1]) = (opcode, flags);
            bhs[16..20].copy_from_slice(&itt.to_be_bytes());
            bhs[20..24].copy_from_slice(&word20.to_be_bytes());
            bhs[24..28].copy_from_slice(&cmd_sn.to_be_bytes());
            match opcode & 0x3f {
                0x01 => bhs[20..24].copy_from_slice(&length.to_be_bytes()),
                0x05 => {
                    bhs[36..40].copy_from_slice(&(word36 % 3).to_be_bytes());
                    bhs[40..44].copy_from_slice(&word40.wrapping_mul(256).to_be_bytes());
                }
                _ => {}
            }
            bhs
        },
    )
}

#[derive(Debug, Clone)]
enum Step {
    Pdu { bhs: [u8; 48], number: bool, data_len: usize },
    Want { index: usize, len: usize },
    Complete { index: usize, data_len: usize, status: u8 },
    Abort { index: usize },
    Managed,
    Pass(u64),
    Reads(bool),
    RequestLogout,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => (header(), any::<bool>(), prop_oneof![Just(0_usize), 1..600_usize, 1..3000_usize])
            .prop_map(|(bhs, number, data_len)| Step::Pdu { bhs, number, data_len }),
        3 => (0..8_usize, 0..5000_usize).prop_map(|(index, len)| Step::Want { index, len }),
        3 => (0..8_usize, 0..5000_usize, 0..3_u8)
            .prop_map(|(index, data_len, status)| Step::Complete { index, data_len, status }),
        2 => (0..8_usize).prop_map(|index| Step::Abort { index }),
        1 => Just(Step::Managed),
        1 => (0..40_u64).prop_map(Step::Pass),
        1 => any::<bool>().prop_map(Step::Reads),
        1 => prop::bool::weighted(0.1).prop_map(|yes| if yes { Step::RequestLogout } else { Step::Managed }),
    ]
}

fn take(peer: &mut Peer, step: &Step) {
    let task = |peer: &Peer, index: usize| peer.driver.commands.iter().rev().nth(index).map(|command| command.task);
    match *step {
        Step::Pdu { mut bhs, number, data_len } => {
            bhs[4] = 0;
            bhs[5..8].copy_from_slice(&(data_len as u32).to_be_bytes()[1..]);
            if number {
                bhs[24..28].copy_from_slice(&peer.cmd_sn.0.to_be_bytes());
                if bhs[0] & 0x40 == 0 && bhs[0] & 0x3f != 0x05 {
                    peer.cmd_sn = peer.cmd_sn.next();
                }
            }
            peer.send(bhs, &pattern(data_len));
        }
        Step::Want { index, len } => {
            if let Some(task) = task(peer, index) {
                peer.driver.want_data(task, len);
            }
        }
        Step::Complete { index, data_len, status } => {
            if let Some(task) = task(peer, index) {
                let response = Response { status, ..peer.driver.read_response(data_len) };
                peer.driver.complete(task, response);
            }
        }
        Step::Abort { index } => {
            if let Some(task) = task(peer, index) {
                peer.driver.act(|c| c.abort(task));
            }
        }
        Step::Managed => {
            for request in std::mem::take(&mut peer.driver.task_management) {
                let code = TaskManagementResponseCode::FUNCTION_COMPLETE;
                peer.driver.answer(request.itt, code);
            }
        }
        Step::Pass(seconds) => peer.pass(Duration::from_secs(seconds)),
        Step::Reads(reads) => peer.reads = reads,
        Step::RequestLogout => peer.driver.request_logout(Duration::from_secs(5)),
    }
    peer.collect();
    is_bounded(peer);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_before_the_login(bytes in prop::collection::vec(any::<u8>(), 0..2000), cut in any_cut()) {
        let mut peer = Peer::connect(Setup::default()).cut(cut);
        peer.checker.strict = false;
        peer.raw(&bytes);
        prop_assert!(peer.driver.closed.is_some() || bytes.len() < 48 + 8192 + 1024);
    }

    #[test]
    fn any_text_in_a_login(
        data in prop::collection::vec(any::<u8>(), 0..500),
        flags in any::<u8>(),
        cut in any_cut(),
    ) {
        let mut peer = Peer::connect(Setup::default()).cut(cut);
        peer.checker.strict = false;
        let mut bhs = lunette_pdu::LoginRequest { data_segment_len: data.len(), ..login_request() }.emit();
        bhs[1] = flags;
        peer.send(bhs, &data);
        peer.send(login_request().emit(), &[]);
        prop_assert!(peer.driver.session().is_none(), "no random input logs in");
    }

    #[test]
    fn any_keys_in_a_login(
        keys in prop::collection::vec(
            ("InitiatorName|TargetName|SessionType|AuthMethod|CHAP_[ACINR]|HeaderDigest|MaxBurstLength|X-[a-c]|[a-z]{1,5}",
             "Normal|Discovery|CHAP|None|5|Yes|No|0x[0-9a-f]{0,9}|0b[a-zA-Z]{0,9}|[0-9]{1,25}|[ -~]{0,40}"),
            0..12,
        ),
        security in any::<bool>(),
        again in 0..4_usize,
    ) {
        let mut peer = Peer::connect(Setup::default());
        peer.checker.strict = false;
        let csg = if security { lunette_pdu::Stage::SecurityNegotiation } else { login_request().csg };
        let keys: Vec<(&str, &str)> = keys.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let list = text(&[&[("InitiatorName", INITIATOR), ("TargetName", TARGET)], &keys[..]].concat());
        for _ in 0..=again {
            let request = lunette_pdu::LoginRequest { csg, transit: false, data_segment_len: list.len(), ..login_request() };
            peer.send(request.emit(), &list);
        }
        peer.rest();
    }

    #[test]
    fn any_bytes_after_the_login(
        bytes in prop::collection::vec(any::<u8>(), 0..3000),
        digests in any::<bool>(),
        cut in any_cut(),
    ) {
        let mut peer = victim(if digests { &DIGESTS } else { &[] }, cut);
        peer.raw(&bytes);
        is_bounded(&peer);
        if digests && bytes.len() >= 48 + 1024 {
            prop_assert!(peer.driver.closed.is_some(), "no digest is right by chance");
        }
    }

    #[test]
    fn any_pdus_in_any_order(
        steps in prop::collection::vec(step(), 1..80),
        digests in any::<bool>(),
        cut in any_cut(),
    ) {
        let mut keys = vec![("InitialR2T", "No"), ("MaxOutstandingR2T", "3"), ("MaxBurstLength", "1024"),
            ("FirstBurstLength", "512")];
        if digests {
            keys.extend(DIGESTS);
        }
        let mut peer = victim(&keys, cut).manual();
        for step in &steps {
            take(&mut peer, step);
        }
        drop(peer.rest());
        let pool = peer.driver.pool.clone();
        drop(peer);
        prop_assert_eq!(pool.used_bytes(), 0);
    }

    #[test]
    fn any_discovery(texts in prop::collection::vec((any::<u8>(), 0..3_u32, any::<bool>(), "[ -~]{0,30}"), 0..20)) {
        let mut peer = Peer::discovering(Setup::default());
        peer.checker.strict = false;
        for (flags, itt, fresh, value) in texts {
            let data = text(&[("SendTargets", &value)]);
            let mut request = lunette_pdu::TextRequest { cmd_sn: peer.cmd_sn, ..crate::harness::text_request(itt) };
            if !fresh {
                request.ttt.0 = 7;
            }
            request.data_segment_len = data.len();
            let mut bhs = request.emit();
            bhs[1] = flags & 0xc0;
            peer.cmd_sn = peer.cmd_sn.next();
            peer.send(bhs, &data);
        }
        peer.rest();
    }
}
