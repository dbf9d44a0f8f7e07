//! Bytes into a connection that has not finished its login.
//!
//! The first byte chooses what the target asks for. With its highest bit, the rest is what stands on the wire; without,
//! it describes login requests: flags, a length of two bytes and that number of bytes of text each.

use std::time::Duration;

use lunette_pdu::{BHS_LEN, InitiatorTaskTag, Isid, LoginRequest, SerialNumber, Tsih};
use lunette_session::keys::Offer;
use lunette_session::limits::LOGIN_TIMEOUT;
use lunette_session::{Authentication, ChapAlgorithms, Credentials, Secret};
use lunette_testkit::{Format, requests};

use crate::input::{Input, Random};
use crate::toy::Toy;

/// Bit of the first byte: the rest is not described, but is there as it is.
const RAW: u8 = 0x80;

/// The target.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let choice = input.byte();
    let mut toy = toy(choice);
    toy.chunk_len = [usize::MAX, 1, 47, 1000][usize::from(choice >> 4 & 3)];
    if choice & RAW != 0 {
        toy.feed(input.rest());
    } else {
        while !input.is_empty() && !toy.is_closed() {
            let request = request(&mut input);
            toy.feed(&request);
        }
    }
    toy.wait(LOGIN_TIMEOUT + Duration::from_secs(1));
    assert!(toy.is_closed() || toy.is_admitted(), "a login that does not end");
    toy.finish();
}

fn toy(choice: u8) -> Toy {
    let credentials = |user: &str, secret: &str| Credentials { user: user.into(), secret: Secret::new(secret.into()) };
    let chap = |target| Authentication::Chap {
        initiators: vec![credentials("user", "secret-of-user")],
        target,
        algorithms: ChapAlgorithms::ALL,
    };
    let authentication = match choice & 3 {
        0 | 1 => Authentication::None,
        2 => chap(None),
        _ => chap(Some(credentials("target", "secret-of-target"))),
    };
    let initiators = (choice & 4 != 0).then(|| vec!["iqn.2026-11.example:i".to_owned()]);
    Toy::new(authentication, initiators, choice & 8 != 0, Offer::default())
}

/// A login request as the input describes it, on the wire.
fn request(input: &mut Input<'_>) -> Vec<u8> {
    let flags = input.byte();
    let len = usize::from(input.u16());
    let text = input.bytes(len);
    wire(flags, text)
}

/// Byte 1 of the header is `flags`; bits 4 and 5, which it does not use, spoil the tag and the version.
fn wire(flags: u8, text: &[u8]) -> Vec<u8> {
    let request = LoginRequest {
        version_min: flags >> 5 & 1,
        isid: Isid([0x40, 0, 1, 0x37, 0, 1]),
        tsih: Tsih(u16::from(flags >> 4 & 1)),
        itt: InitiatorTaskTag(1),
        cmd_sn: SerialNumber(1),
        data_segment_len: text.len(),
        ..requests::login()
    };
    let mut header = request.emit();
    header[1] = flags & 0xcf;
    Format::PLAIN.encode(&header, &[], text)
}

/// One request in the form that [`request`] reads.
fn describe(flags: u8, text: &[u8]) -> Vec<u8> {
    let mut bytes = vec![flags];
    bytes.extend((text.len() as u16).to_be_bytes());
    bytes.extend_from_slice(text);
    bytes
}

/// Stages, current and next, with the T bit.
const TO_OPERATIONAL: u8 = 0x81;
const TO_FULL_FEATURE: u8 = 0x87;
const FROM_SECURITY_TO_FULL_FEATURE: u8 = 0x83;

const KEYS: [&str; 22] = [
    "InitiatorName=iqn.2026-11.example:i\0",
    "InitiatorName=iqn.2026-11.example:j\0",
    "TargetName=iqn.2026-11.lunette:disk\0",
    "TargetName=iqn.2026-11.lunette:none\0",
    "SessionType=Normal\0",
    "SessionType=Discovery\0",
    "AuthMethod=CHAP,None\0",
    "AuthMethod=CHAP\0",
    "CHAP_A=7,5\0",
    "CHAP_N=user\0CHAP_R=0x00112233445566778899aabbccddeeff\0",
    CHAP_ANSWER,
    "CHAP_I=1\0CHAP_C=0xffffffffffffffffffffffffffffffff\0",
    "HeaderDigest=CRC32C,None\0",
    "DataDigest=CRC32C\0",
    "MaxRecvDataSegmentLength=512\0",
    "MaxRecvDataSegmentLength=0\0",
    "MaxBurstLength=16777215\0",
    "MaxConnections=99999\0",
    "IFMarker=Yes\0OFMarkInt=1~65535\0",
    "ErrorRecoveryLevel=2\0",
    "X-example.key=1\0",
    "InitialR2T=Maybe\0",
];

/// The answer of `user` to the challenge that follows from the fixed entropy, with MD5.
const CHAP_ANSWER: &str = "CHAP_N=user\0CHAP_R=0x69e7f2f2f0825ef5ea47e742d8993f28\0";

/// Logins of a few requests with keys that exist.
pub fn random(random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![random.byte() & !RAW];
    for _ in 0..1 + random.below(5) {
        let mut text = Vec::new();
        for _ in 0..random.below(6) {
            text.extend(random.choose(&KEYS).bytes());
        }
        if random.below(4) == 0 {
            random.disturb(&mut text);
        }
        let flags = *random.choose(&[0, 4, 0x40, 0x44, TO_OPERATIONAL, TO_FULL_FEATURE, FROM_SECURITY_TO_FULL_FEATURE]);
        let flags = if random.below(8) == 0 { random.byte() } else { flags };
        bytes.extend(describe(flags, &text));
    }
    if random.below(16) == 0 {
        bytes[0] |= RAW;
        bytes.resize(1 + BHS_LEN * 2, 0);
        bytes[1] = 0x43;
    }
    bytes
}

/// Logins that succeed, and one of each that fails.
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let normal = b"InitiatorName=iqn.2026-11.example:i\0TargetName=iqn.2026-11.lunette:disk\0SessionType=Normal\0";
    let discovery = b"InitiatorName=iqn.2026-11.example:i\0SessionType=Discovery\0";
    let login = |choice: u8, requests: &[(u8, &[u8])]| {
        let described = requests.iter().flat_map(|(flags, text)| describe(*flags, text));
        std::iter::once(choice).chain(described).collect::<Vec<u8>>()
    };
    let offer_chap = [&normal[..], b"AuthMethod=CHAP,None\0"].concat();
    let raw = [vec![RAW], wire(TO_FULL_FEATURE, normal)].concat();
    let nop_out = [vec![RAW], vec![0; BHS_LEN]].concat();
    vec![
        ("normal".into(), login(0, &[(TO_FULL_FEATURE, normal)])),
        ("discovery".into(), login(0, &[(FROM_SECURITY_TO_FULL_FEATURE, discovery)])),
        ("two_stages".into(), login(0x10, &[(TO_OPERATIONAL, normal), (TO_FULL_FEATURE, b"DataDigest=CRC32C\0")])),
        ("continued".into(), login(0, &[(0x44, &normal[..20]), (TO_FULL_FEATURE, &normal[20..])])),
        (
            "chap".into(),
            login(
                2,
                &[
                    (0, &offer_chap),
                    (0, b"CHAP_A=5\0"),
                    (TO_OPERATIONAL, CHAP_ANSWER.as_bytes()),
                    (TO_FULL_FEATURE, b""),
                ],
            ),
        ),
        ("chap_refused".into(), login(2, &[(TO_OPERATIONAL, normal)])),
        ("not_admitted".into(), login(8, &[(TO_FULL_FEATURE, normal)])),
        ("wire".into(), raw),
        ("nop_out_first".into(), nop_out),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_that_should_get_through_do_and_no_others() {
        for (name, bytes) in seeds() {
            let mut input = Input::new(&bytes);
            let mut toy = toy(input.byte());
            if matches!(name.as_str(), "wire" | "nop_out_first") {
                continue;
            }
            let expected = !matches!(name.as_str(), "chap_refused" | "not_admitted");
            while !input.is_empty() {
                let request = request(&mut input);
                toy.feed(&request);
            }
            assert_eq!(toy.is_admitted(), expected, "{name}");
        }
    }
}
