//! Bytes that are not PDUs, and connections that end without a logout.

use std::net::Shutdown;

use lunette_pdu::{Cid, NopOut, SerialNumber, Stage, Tsih};
use lunette_testkit::{keys as text, requests};

use super::initiator::Walk;
use super::login::{self, Port};
use super::session::SEND_LIMIT;
use super::wire::Wire;

/// Opcodes of initiators, with and without the immediate bit, and some of targets.
const OPCODES: [u8; 14] = [0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x10, 0x40, 0x41, 0x42, 0x43, 0x20, 0x3f];

/// Opens a connection that never completes its login, and closes it or leaves it open.
pub(super) fn half_a_login(walk: &mut Walk) -> String {
    let (address, names) = (walk.address(), walk.names());
    let (session, dice) = walk.session();
    let port = Port { isid: session.isid, tsih: Tsih(dice.word() as u16 % 40), cid: Cid(77), cmd_sn: SerialNumber(1) };
    let stages = match dice.below(4) {
        0 => (Stage::SecurityNegotiation, None),
        1 => (Stage::SecurityNegotiation, Some(Stage::LoginOperationalNegotiation)),
        2 => (Stage::LoginOperationalNegotiation, None),
        _ => (Stage::FullFeaturePhase, None),
    };
    let keys = text(&names[..dice.below(4)]) + &login::draw_keys(dice, true);
    let request = login::request(port, stages, stages.1.is_none() && dice.one_in(3), &keys);
    let Ok(mut wire) = Wire::connect(address) else { return "no connection".into() };
    let mut bytes = wire.encode(&request.emit(), keys.as_bytes());
    if dice.one_in(3) {
        bytes.truncate(dice.below(bytes.len()));
    }
    for _ in 0..dice.pick(&[1, 1, 2, 70]) {
        wire.send(&bytes, SEND_LIMIT);
    }
    format!("{} bytes of {request:?}", bytes.len())
}

/// Ends a connection in one of the possible ways.
pub(super) fn cut(walk: &mut Walk) -> String {
    let Some((session, at, dice)) = walk.connection() else { return "no connection".into() };
    let cid = session.connections[at].cid;
    let how = dice.below(4);
    let wire = &session.connections[at].wire;
    match how {
        0 => wire.shut_down(Shutdown::Write),
        1 => wire.shut_down(Shutdown::Read),
        2 => wire.reset_on_close(),
        _ => {}
    }
    if how >= 2 {
        session.connections.remove(at);
    }
    let words = ["half closed", "closed for what comes", "reset", "closed"];
    format!("{cid} is {}", words[how])
}

/// Sends noise, a random header, a wrong digest, a header that announces too much, or half a header.
pub(super) fn garbage(walk: &mut Walk) -> String {
    let Some((session, at, dice)) = walk.connection() else { return "no connection".into() };
    let kind = dice.below(5);
    let bytes = match kind {
        0 => {
            let len = 1 + dice.below(2000);
            dice.bytes(len)
        }
        1 => {
            let mut header = dice.bytes(48);
            header[0] = dice.pick(&OPCODES);
            header[4..8].fill(0);
            header
        }
        2 => {
            let exp_stat_sn = session.connections[at].exp_stat_sn(dice);
            let ping = NopOut { cmd_sn: session.cmd_sn, exp_stat_sn, data_segment_len: 8, ..requests::nop_out(5) };
            let mut bytes = session.connections[at].wire.encode(&ping.emit(), &[1; 8]);
            let damaged = dice.below(bytes.len());
            bytes[damaged] ^= 1 << dice.below(8);
            bytes
        }
        3 => {
            let mut header = vec![0; 48];
            (header[0], header[1]) = (dice.pick(&OPCODES), 0x80);
            header[4..8].copy_from_slice(&dice.word().to_be_bytes());
            header
        }
        _ => vec![0x40; 1 + dice.below(47)],
    };
    let cid = session.connections[at].cid;
    let sent = session.send_bytes(at, &bytes);
    let words = ["noise", "a header at random", "a damaged ping", "a length at random", "half a header"];
    format!("on {cid}: {} {sent:?}", words[kind])
}
