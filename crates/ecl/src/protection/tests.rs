use std::time::Duration;

use lunette_crc32c::crc32c;
use proptest::prelude::*;

use super::*;
use crate::header::{BHS_AT, CHECK_AT, PacketType};
use crate::limits::MAX_PACKETS_PER_KEY;

fn secret(seed: u8) -> ExchangeSecret {
    ExchangeSecret::new(&[seed; 64], b"hash of a handshake")
}

/// The keys of both ends.
fn pair() -> (PacketKeys, PacketKeys) {
    (secret(1).login_keys(Role::Client), secret(1).login_keys(Role::Server))
}

fn binding(secret: &[u8]) -> Binding {
    Binding::new("iqn.2026-11.example:client", "iqn.2026-11.example:disk", Some(secret), None)
}

fn packet(flags: Flags, number: u64, payload: &[u8]) -> Vec<u8> {
    let mut header = Header::new(PacketType::Stream, 7, number);
    header.flags = flags;
    header.stream_offset = 0x0102_0304_0506;
    header.bhs = std::array::from_fn(|i| i as u8);
    [&header.emit()[..], payload].concat()
}

fn sealed(keys: &Keys, flags: Flags, number: u64, payload: &[u8]) -> Vec<u8> {
    let mut packet = packet(flags, number, payload);
    keys.seal(&mut packet);
    packet
}

/// The flags of a packet under each protection.
const BOTH: [Flags; 2] = [Flags(0), Flags::SEALED];

proptest! {
    #[test]
    fn what_is_sealed_is_opened(
        flags in 0..16_u8,
        number in 0..MAX_PACKETS_PER_KEY,
        payload in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let (client, server) = pair();
        let mut packet = packet(Flags(flags), number, &payload);
        let before = Header::parse(&packet).unwrap();
        client.send.seal(&mut packet);
        let header = server.receive.open(&mut packet).unwrap();
        let payload_check = if header.flags.contains(Flags::SEALED) { 0 } else { crc32c(&payload) };
        prop_assert_eq!(header, Header { payload_check, ..before });
        prop_assert_eq!(&packet[HEADER_LEN..], &payload[..]);
    }

    #[test]
    fn pieces_are_sealed_as_one(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..90), 0..6)) {
        let (client, _) = pair();
        let whole = sealed(&client.send, Flags::SEALED, 5, &pieces.concat());
        let mut header: [u8; HEADER_LEN] = *packet(Flags::SEALED, 5, &[]).first_chunk().unwrap();
        let mut payload = vec![0; pieces.concat().len()];
        client.send.seal_pieces(&mut header, pieces.iter().map(Vec::as_slice), &mut payload);
        prop_assert_eq!([&header[..], &payload].concat(), whole);
    }

    #[test]
    fn no_bytes_make_it_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), front in any::<[u8; 4]>()) {
        let mut protection = Protection::new(Role::Server, pair().1);
        prop_assert!(protection.open(Time::default(), &mut bytes).is_err());
        // A front that is a header's gets further.
        if bytes.len() >= HEADER_LEN {
            bytes[..4].copy_from_slice(&[0x14, front[1] & 1, 0, 0]);
            bytes[60..64].fill(0);
            prop_assert!(protection.open(Time::default(), &mut bytes).is_err());
        }
    }
}

#[test]
fn one_wrong_bit_anywhere_is_refused() {
    let (client, server) = pair();
    for flags in BOTH {
        let good = sealed(&client.send, flags, 9, &[0xa5; 70]);
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let result = server.receive.open(&mut bad);
            assert!(result.is_err(), "bit {bit} of a packet with {flags:?}");
            if flags == Flags(0) && bit >= HEADER_LEN * 8 {
                assert_eq!(result, Err(OpenError::Payload), "bit {bit}");
            }
        }
    }
}

/// A caller that digests payloads on the way to their place relies on this.
#[test]
fn the_header_alone_says_what_the_payload_must_be() {
    let (client, server) = pair();
    let mut packet = sealed(&client.send, Flags(0), 9, b"payload");
    packet[HEADER_LEN] ^= 1;
    let header = server.receive.open_header(&mut packet).unwrap();
    assert_eq!(header.payload_check, crc32c(b"payload"));
}

/// A header is checked without its payload, as for a packet that is sent from several places.
#[test]
fn a_header_is_checked_without_its_payload() {
    let (client, server) = pair();
    let mut header = Header::parse(&packet(Flags(0), 3, &[])).unwrap();
    header.payload_check = crc32c(b"elsewhere");
    let mut bytes = header.emit();
    client.send.check_header(&mut bytes);
    let mut packet = [&bytes[..], b"elsewhere"].concat();
    assert_eq!(server.receive.open(&mut packet), Ok(header));
}

#[test]
fn every_other_length_is_refused() {
    let (client, server) = pair();
    for flags in BOTH {
        let good = sealed(&client.send, flags, 9, &[0xa5; 40]);
        for len in 0..good.len() {
            assert!(server.receive.open(&mut good[..len].to_vec()).is_err(), "{len} bytes of {}", good.len());
        }
        let mut longer = [&good[..], &[0]].concat();
        assert!(server.receive.open(&mut longer).is_err());
    }
}

#[test]
fn each_rule_of_a_packet_is_checked() {
    let (client, server) = pair();
    let open = |mut packet: Vec<u8>| server.receive.open(&mut packet);
    let header_of = |packet_type| {
        let mut packet = Header::new(packet_type, 7, 1).emit().to_vec();
        client.send.seal(&mut packet);
        packet
    };
    for packet_type in PacketType::ALL {
        let expected = if packet_type.is_protected() { Ok(()) } else { Err(OpenError::Handshake) };
        assert_eq!(open(header_of(packet_type)).map(|_| ()), expected, "{packet_type:?}");
    }
    let beyond = MAX_PACKETS_PER_KEY;
    assert!(open(sealed(&client.send, Flags(0), beyond - 1, &[])).is_ok());
    assert_eq!(open(sealed(&client.send, Flags(0), beyond, &[])), Err(OpenError::Exhausted(beyond)));

    // Sealed, and yet a payload check: as an end would write that seals by other rules.
    let mut odd = sealed(&client.send, Flags::SEALED, 1, &[]);
    odd[47] = 1;
    assert_eq!(open(odd), Err(OpenError::Header(HeaderError::Reserved(44))));
    assert_eq!(open(vec![0x14; 127]), Err(OpenError::Header(HeaderError::Short(127))));
}

#[test]
fn packets_of_others_are_refused() {
    let (client, server) = pair();
    for flags in BOTH {
        let good = sealed(&client.send, flags, 9, b"data");
        assert!(server.receive.open(&mut good.clone()).is_ok());
        let reflected = client.receive.open(&mut good.clone());
        assert_eq!(reflected, Err(OpenError::Check), "the client's own packet comes back");
        let other = secret(2).login_keys(Role::Server).receive.open(&mut good.clone());
        assert_eq!(other, Err(OpenError::Check), "a packet of another association");
        // The check of one packet on another.
        let mut mixed = sealed(&client.send, flags, 10, b"data");
        mixed[CHECK_AT..BHS_AT].copy_from_slice(&good[CHECK_AT..BHS_AT]);
        assert_eq!(server.receive.open(&mut mixed), Err(OpenError::Check));
    }
}

/// A packet that was not opened leaves no plain text behind that nothing vouches for.
#[test]
fn a_forged_sealed_packet_is_erased() {
    let (client, server) = pair();
    let mut packet = sealed(&client.send, Flags::SEALED, 9, &[0xa5; 64]);
    packet[HEADER_LEN + 63] ^= 1;
    assert_eq!(server.receive.open(&mut packet), Err(OpenError::Check));
    assert!(packet[BHS_AT..].iter().all(|&byte| byte == 0));
}

#[test]
fn sealed_packets_do_not_show_what_they_carry() {
    let (client, _) = pair();
    let [clear, hidden] = BOTH.map(|flags| sealed(&client.send, flags, 9, b"a secret of the login"));
    assert!(clear.windows(6).any(|bytes| bytes == b"secret"));
    assert!(!hidden.windows(3).any(|bytes| b"a secret of the login".windows(3).any(|plain| plain == bytes)));
    assert!(!hidden[BHS_AT..].windows(4).any(|bytes| bytes == [0, 1, 2, 3]), "the basic header segment");
    assert_eq!(hidden.len(), clear.len());
}

/// Each part of a binding changes the keys; what is absent is not what is empty, and no part runs into the next.
#[test]
fn keys_are_bound_to_each_part() {
    let bindings = [
        Binding::new("client", "disk", None, None),
        Binding::new("clien", "tdisk", None, None),
        Binding::new("client", "disk", Some(b""), None),
        Binding::new("client", "disk", None, Some(b"")),
        Binding::new("client", "disk", Some(b"one"), None),
        Binding::new("client", "disk", None, Some(b"one")),
        Binding::new("client", "disk", Some(b"one"), Some(b"two")),
        Binding::new("client", "disk", Some(b"onetwo"), Some(b"")),
        Binding::new("client", "", None, None),
    ];
    let mut seen = vec![sealed(&secret(1).login_keys(Role::Client).send, Flags(0), 0, &[])];
    for binding in &bindings {
        seen.push(sealed(&secret(1).bound_keys(Role::Client, binding).send, Flags(0), 0, &[]));
        seen.push(sealed(&secret(2).bound_keys(Role::Client, binding).send, Flags(0), 0, &[]));
        seen.push(sealed(&secret(1).bound_keys(Role::Server, binding).send, Flags(0), 0, &[]));
    }
    let checks: std::collections::BTreeSet<_> = seen.iter().map(|packet| packet[CHECK_AT..BHS_AT].to_vec()).collect();
    assert_eq!(checks.len(), seen.len(), "no two of the keys are the same");
}

fn at(ms: u64) -> Time {
    Time::new(Duration::from_millis(ms))
}

/// The two ends of an association whose login has just passed.
struct Ends {
    client: Protection,
    server: Protection,
}

impl Ends {
    fn new() -> Self {
        let (client, server) = pair();
        Self { client: Protection::new(Role::Client, client), server: Protection::new(Role::Server, server) }
    }

    fn bind(&mut self) {
        self.server.bind(secret(1).bound_keys(Role::Server, &binding(b"secret")));
        self.client.bind(secret(1).bound_keys(Role::Client, &binding(b"secret")));
    }

    fn by_client(&self, number: u64) -> Vec<u8> {
        sealed(self.client.send_keys(), self.client.flags(), number, b"request")
    }

    fn by_server(&self, number: u64) -> Vec<u8> {
        sealed(self.server.send_keys(), self.server.flags(), number, b"answer")
    }
}

#[test]
fn the_server_changes_keys_when_the_client_has_shown_that_it_has_them() {
    let mut ends = Ends::new();
    let (early, mut response) = (ends.by_client(0), ends.by_server(0));
    ends.bind();
    assert!(ends.client.sends_bound());
    assert!(!ends.server.sends_bound(), "the client may not have the final response yet");
    // The final response comes again, under the keys that the client has.
    assert!(ends.client.open(at(1), &mut response).is_ok());
    assert!(ends.client.open(at(1), &mut ends.by_server(1)).is_ok());

    assert!(ends.server.open(at(2), &mut ends.by_client(1)).unwrap().flags.contains(Flags::BOUND));
    assert!(ends.server.sends_bound());
    assert!(ends.client.open(at(3), &mut ends.by_server(2)).unwrap().flags.contains(Flags::BOUND));
    // What was overtaken is taken for a while.
    assert!(ends.server.open(at(3002), &mut early.clone()).is_ok());
    assert_eq!(ends.server.open(at(3003), &mut early.clone()), Err(OpenError::NoKeys { bound: false }));
    assert_eq!(ends.server.open(at(1), &mut early.clone()), Err(OpenError::NoKeys { bound: false }), "they are erased");
}

#[test]
fn login_keys_stay_until_bound_ones_are_in_use() {
    let mut ends = Ends::new();
    let early = ends.by_client(0);
    ends.bind();
    assert!(ends.server.open(at(60_000), &mut early.clone()).is_ok());
    assert!(ends.server.open(at(120_000), &mut early.clone()).is_ok());
}

#[test]
fn packets_under_bound_keys_need_the_secret() {
    let mut ends = Ends::new();
    assert_eq!(
        ends.server.open(at(0), &mut sealed(ends.client.send_keys(), Flags::BOUND, 0, b"early")),
        Err(OpenError::NoKeys { bound: true }),
        "the login has not passed"
    );
    ends.bind();
    // A machine in the middle that has relayed CHAP knows the exchange, and not the secret.
    let guess = secret(1).bound_keys(Role::Client, &binding(b"guess"));
    let forged = sealed(&guess.send, Flags::BOUND, 1, b"forged");
    assert_eq!(ends.server.open(at(0), &mut forged.clone()), Err(OpenError::Check));
    assert!(!ends.server.sends_bound(), "a forged packet changes nothing");
    // A flag says which keys: login keys under the flag do not pass, nor bound ones without it.
    let (client, _) = pair();
    assert_eq!(ends.server.open(at(0), &mut sealed(&client.send, Flags::BOUND, 1, &[])), Err(OpenError::Check));
    let bound = sealed(ends.client.send_keys(), Flags(0), 1, &[]);
    assert_eq!(ends.server.open(at(0), &mut bound.clone()), Err(OpenError::Check));
}

#[test]
fn a_second_binding_changes_nothing() {
    let mut ends = Ends::new();
    ends.bind();
    ends.server.bind(secret(1).bound_keys(Role::Server, &binding(b"another")));
    assert!(ends.server.open(at(0), &mut ends.by_client(0)).is_ok());
}

#[test]
fn secrets_are_not_printed() {
    let keys = pair().0;
    let printed = format!("{keys:?} {:?} {:?}", secret(1), binding(b"secret"));
    assert_eq!(printed, "PacketKeys { send: Keys(..), receive: Keys(..) } ExchangeSecret(..) Binding(..)");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}

/// Vector 1 of AEGIS-128L in RFC 10032, appendix A: the crate's cipher is the one that the specification names.
#[test]
fn the_cipher_is_aegis_128l() {
    let (mut key, mut nonce) = ([0; 16], [0; 16]);
    key[..2].copy_from_slice(&[0x10, 0x01]);
    nonce[..3].copy_from_slice(&[0x10, 0x00, 0x02]);
    let mut message = [0; 16];
    let tag = aegis::aegis128l::Aegis128L::<16>::new(&key, &nonce).encrypt_in_place(&mut message, &[]);
    assert_eq!(hex(&message), "c1c0e58bd913006feba00f4b3cc3594e");
    assert_eq!(hex(&tag), "abe0ece80c24868a226a35d16bdae37a");
}

/// Packets equal those of a program that shares no code with this crate: AEGIS-128L, HKDF and the tables of
/// `docs/ecl.md` in plain Python.
#[test]
fn packets_are_those_of_the_specification() {
    let payload = b"a payload of 23 bytes..";
    let clear = sealed(&secret(1).login_keys(Role::Client).send, Flags(0), 0x11_2233_4455, payload);
    assert_eq!(hex(&clear[CHECK_AT..BHS_AT]), "59d69b2147423ea617a6d10bb9f4b182");

    let keys = secret(1).bound_keys(Role::Server, &binding(b"secret"));
    let hidden = sealed(&keys.send, Flags::SEALED.with(Flags::BOUND), 9, payload);
    assert_eq!(hex(&hidden[CHECK_AT..BHS_AT]), "b42682957cc287ee27631504ec950a14");
    let ciphertext = "b6d776117243cb6a66243e3c8959a803e1f8ed732614806e77ef13c5184c55627bb755faecba283a16058f5913c1bd47\
                      1d6ae99378b91cd193cfe5a4445e3efd422c9fd1989f13";
    assert_eq!(hex(&hidden[BHS_AT..]), ciphertext);
}
