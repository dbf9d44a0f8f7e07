//! Any bytes of a target, followed by a tunnel that rewrites the addresses in them.

use lunette_crc32c::{crc32c, to_wire};
use lunette_pdu::{BHS_LEN, pad_len};
use lunette_tunnel::{Broken, Follower};

use crate::input::Random;

/// Bits of the first byte: the login has passed, as one of discovery; it has agreed on digests.
const LOGGED_IN: u8 = 1;
const DIGESTS: u8 = 2;

/// More than a rewritten address is longer than the shortest one.
const GROWTH: usize = 64;

/// The target. A stream that is cut becomes what a whole one does, and is not much longer than it came.
pub fn run(data: &[u8]) {
    let Some((&mode, stream)) = data.split_first() else { return };
    let whole = follow(mode, stream, stream.len());
    assert_eq!(follow(mode, stream, 1 + usize::from(mode >> 2)), whole, "cut");
    let (_, out) = whole;
    assert!(out.len() <= stream.len() * (1 + GROWTH));
}

/// The end of a stream that comes in pieces, and what the initiator gets of it.
fn follow(mode: u8, stream: &[u8], piece_len: usize) -> (Option<Broken>, Vec<u8>) {
    let mut follower = Follower::new();
    let mut ways = |address: &str| (!address.len().is_multiple_of(5)).then(|| format!("127.0.0.1:{}", address.len()));
    if mode & LOGGED_IN != 0 {
        let digests = mode & DIGESTS != 0;
        let passed = follower.request(&request(digests)).and_then(|()| {
            let mut out = Vec::new();
            follower.response(&passed(digests), &mut out, &mut ways)
        });
        passed.expect("a login as the standard has it");
    } else {
        // They may be an initiator's, too; how that ends is its fault.
        let mut requests = Follower::new();
        let _ = stream.chunks(piece_len.max(1)).try_for_each(|piece| requests.request(piece));
    }
    let mut out = Vec::new();
    let broken = stream.chunks(piece_len.max(1)).find_map(|piece| follower.response(piece, &mut out, &mut ways).err());
    (broken, out)
}

/// A PDU with these first two bytes.
fn pdu(start: [u8; 2], data: &[u8], digests: bool) -> Vec<u8> {
    let mut bytes = vec![0; BHS_LEN];
    bytes[..2].copy_from_slice(&start);
    bytes[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
    if digests {
        bytes.extend(to_wire(crc32c(&bytes)));
    }
    let start = bytes.len();
    bytes.extend(data);
    bytes.resize(bytes.len() + pad_len(data.len()), 0);
    if digests && !data.is_empty() {
        bytes.extend(to_wire(crc32c(&bytes[start..])));
    }
    bytes
}

fn request(digests: bool) -> Vec<u8> {
    let offer: &[u8] = if digests { b"HeaderDigest=CRC32C,None\0DataDigest=CRC32C,None\0" } else { b"" };
    pdu([0x43, 0x87], &[b"SessionType=Discovery\0", offer].concat(), false)
}

fn passed(digests: bool) -> Vec<u8> {
    pdu([0x23, 0x87], if digests { b"HeaderDigest=CRC32C\0DataDigest=CRC32C\0" } else { b"" }, false)
}

fn redirected(text: &[u8]) -> Vec<u8> {
    let mut bytes = pdu([0x23, 0], text, false);
    bytes[36..38].copy_from_slice(&[1, 1]);
    bytes
}

const WORDS: [&str; 8] =
    ["TargetAddress=192.0.2.1:3260,1\0", "TargetAddress=", "TargetA", "TargetName=iqn.a\0", "\0", "=", ",2\0", "[::1]"];

/// PDUs of the kinds that are looked at, and others; a few bytes changed.
pub fn random(random: &mut Random) -> Vec<u8> {
    let mode = random.below(256) as u8;
    let digests = mode & DIGESTS != 0 && mode & LOGGED_IN != 0;
    let mut bytes = vec![mode];
    for _ in 0..random.below(6) {
        let mut text = Vec::new();
        for _ in 0..random.below(6) {
            text.extend(random.choose(&WORDS).bytes());
        }
        bytes.extend(match random.below(5) {
            0 => pdu([0x24, 0x40], &text, digests),
            1 => pdu([0x20, 0x80], &random.some_bytes(40), digests),
            2 => redirected(&text),
            3 => passed(digests),
            _ => pdu([0x24, 0x80], &text, digests),
        });
    }
    if random.below(2) == 0 {
        random.disturb(&mut bytes);
    }
    bytes
}

/// A discovery, whole and in parts, and a redirection.
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let text = b"TargetName=iqn.2026-11.example:t\0TargetAddress=192.0.2.1:3260,1\0TargetAddress=[2001:db8::1]:860,2\0";
    let (front, back) = text.split_at(60);
    let parts = |digests| [pdu([0x24, 0x40], front, digests), pdu([0x24, 0x80], back, digests)].concat();
    let seed = |mode: u8, stream: Vec<u8>| [vec![mode], stream].concat();
    vec![
        ("discovery".into(), seed(LOGGED_IN | 28, pdu([0x24, 0x80], text, false))),
        ("parts".into(), seed(LOGGED_IN | 12, parts(false))),
        ("digests".into(), seed(LOGGED_IN | DIGESTS | 100, [pdu([0x20, 0x80], b"ping", true), parts(true)].concat())),
        ("redirection".into(), seed(40, redirected(b"TargetAddress=192.0.2.1:3260\0"))),
        ("normal".into(), seed(8, [passed(false), vec![0xff; 60]].concat())),
    ]
}
