//! Bytes from a target into a session of the initiator that has not finished its login.
//!
//! The first byte chooses what the initiator wants. With its highest bit, the rest is what stands on the wire; without,
//! it describes login responses: flags, status class, a length of two bytes and that number of bytes of text each.

use std::time::Duration;

use lunette_pdu::BHS_LEN;
use lunette_session::limits::LOGIN_TIMEOUT;

use crate::initiator::{Chap, Host, login_response, offer, wire};
use crate::input::{Input, Random};

/// Bit of the first byte: the rest is not described, but is there as it is.
const RAW: u8 = 0x80;

/// Bit of the flags: T as in the request, whatever the other bits say.
const FOLLOW: u8 = 0x10;

/// The target.
pub fn run(data: &[u8]) {
    play(data);
}

fn play(data: &[u8]) -> Host {
    let mut input = Input::new(data);
    let choice = input.byte();
    let chap = [Chap::None, Chap::None, Chap::OneWay, Chap::Mutual][usize::from(choice & 3)];
    let mut host = Host::new(chap, choice & 4 != 0, offer());
    host.chunk_len = [usize::MAX, 1, 47, 1000][usize::from(choice >> 4 & 3)];
    if choice & RAW != 0 {
        host.feed(input.rest());
    } else {
        for stat_sn in 0.. {
            if input.is_empty() || host.closed || host.logged_in {
                break;
            }
            let response = response(&mut input, &mut host, stat_sn);
            host.feed(&response);
        }
    }
    if !host.logged_in {
        host.wait(LOGIN_TIMEOUT + Duration::from_secs(1));
    }
    assert!(host.closed || host.logged_in, "a login that does not end");
    host
}

/// A login response as the input describes it.
fn response(input: &mut Input<'_>, host: &mut Host, stat_sn: u32) -> Vec<u8> {
    let (flags, class) = (input.byte(), input.byte());
    let len = usize::from(input.u16());
    let text = input.bytes(len);
    let Some((request, _)) = host.login_request() else { return Vec::new() };
    let mut header: [u8; BHS_LEN] = login_response(&request, stat_sn).emit();
    if flags & FOLLOW == 0 {
        header[1] = flags & 0xcf;
    }
    // Most are successes.
    header[36] = if class < 0xf0 { 0 } else { class & 3 };
    wire(header, text)
}

fn describe(flags: u8, class: u8, text: &[u8]) -> Vec<u8> {
    let mut bytes = vec![flags, class];
    bytes.extend((text.len() as u16).to_be_bytes());
    bytes.extend_from_slice(text);
    bytes
}

const KEYS: [&str; 20] = [
    "AuthMethod=None\0",
    "AuthMethod=CHAP\0",
    "AuthMethod=Reject\0",
    "CHAP_A=5\0CHAP_I=7\0CHAP_C=0x00112233445566778899aabbccddeeff\0",
    "CHAP_A=8\0CHAP_I=300\0CHAP_C=0bAAAA\0",
    "CHAP_N=target\0CHAP_R=0x00112233445566778899aabbccddeeff\0",
    "TargetPortalGroupTag=1\0",
    "TargetAlias=attic\0",
    "TargetAddress=192.0.2.1:3260,1\0",
    "HeaderDigest=None\0DataDigest=None\0",
    "HeaderDigest=CRC32C\0",
    "MaxRecvDataSegmentLength=512\0",
    "MaxRecvDataSegmentLength=0\0",
    "MaxBurstLength=16777215\0",
    "MaxBurstLength=512\0FirstBurstLength=512\0",
    "InitialR2T=Yes\0ImmediateData=No\0",
    "InitialR2T=Maybe\0",
    "TaskReporting=FastAbort\0",
    "IFMarker=Yes\0",
    "X-example.key=1\0",
];

/// Logins of a few responses with keys that exist.
pub fn random(random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![random.byte() & !RAW];
    for _ in 0..1 + random.below(6) {
        let mut text = Vec::new();
        for _ in 0..random.below(5) {
            text.extend(random.choose(&KEYS).bytes());
        }
        if random.below(4) == 0 {
            random.disturb(&mut text);
        }
        let flags = *random.choose(&[FOLLOW, FOLLOW, FOLLOW, 0, 4, 0x40, 0x44, 0x81, 0x87]);
        let flags = if random.below(8) == 0 { random.byte() } else { flags };
        bytes.extend(describe(flags, random.byte(), &text));
    }
    bytes
}

/// Logins that succeed, and some that fail.
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let login = |choice: u8, responses: &[(u8, u8, &[u8])]| {
        let described = responses.iter().flat_map(|(flags, class, text)| describe(*flags, *class, text));
        std::iter::once(choice).chain(described).collect::<Vec<u8>>()
    };
    let none: (u8, u8, &[u8]) = (FOLLOW, 0, b"AuthMethod=None\0");
    let chap: (u8, u8, &[u8]) = (FOLLOW, 0, b"AuthMethod=CHAP\0");
    let challenge: (u8, u8, &[u8]) = (FOLLOW, 0, KEYS[3].as_bytes());
    vec![
        ("normal".into(), login(0, &[none, (FOLLOW, 0, b"MaxBurstLength=512\0")])),
        ("discovery".into(), login(0x14, &[none, (FOLLOW, 0, b"")])),
        ("chap".into(), login(2, &[chap, challenge, (FOLLOW, 0, b""), (FOLLOW, 0, b"")])),
        ("mutual_refused".into(), login(3, &[chap, challenge, (FOLLOW, 0, KEYS[5].as_bytes())])),
        ("continued".into(), login(0x20, &[none, (0x44, 0, b"MaxBur"), (4, 0, b"stLength=512\0"), (FOLLOW, 0, b"")])),
        ("redirected".into(), login(0, &[(0, 0xf1, KEYS[8].as_bytes())])),
        ("refused".into(), login(0, &[(0, 0xf2, b"")])),
        ("wire".into(), [vec![RAW], vec![0x23; BHS_LEN]].concat()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_that_should_get_through_do() {
        for (name, bytes) in seeds() {
            let through = matches!(name.as_str(), "normal" | "discovery" | "chap" | "continued");
            assert_eq!(play(&bytes).logged_in, through, "{name}");
        }
    }
}
