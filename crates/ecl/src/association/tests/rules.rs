//! Every field of a header, in each state of an association: what is taken, what is dropped, and what ends it.
//! `docs/ecl-rules.md` is this as a table.

use super::*;
use crate::handshake::ResetSecret;
use crate::header::{Acknowledged, HEADER_LEN};
use crate::limits::MAX_PACKETS_PER_KEY;

/// The states of a server's association in which a packet may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The login runs.
    Login,
    /// The login has passed, and the client has shown the bound keys.
    Bound,
    /// The association is finishing: this end also waits for acknowledgements of its last packets.
    Finishing,
    /// The association has ended.
    Over,
}

const ALIVE: [Stage; 3] = [Stage::Login, Stage::Bound, Stage::Finishing];

/// The fate of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The packet's number counts as received.
    Taken,
    /// Nothing is left of it.
    Dropped,
    /// The association ends with that code.
    Ends(CloseCode),
}

use Fate::{Dropped, Ends, Taken};

const OWN: u32 = 7;
const NOW: Time = Time::new(Duration::from_secs(1));

fn secret() -> ExchangeSecret {
    ExchangeSecret::new(&[3; 64], b"rules")
}

fn binding() -> Binding {
    Binding::new("iqn.a", "iqn.b", None, None)
}

fn server(stage: Stage, seal: Seal) -> Association<(u32, u32)> {
    let reset_token = ResetSecret::new([5; 32]).token(OWN, &address(2));
    let established = Established {
        peer_seal: Seal::Headers,
        role: Role::Server,
        secret: secret(),
        own_number: OWN,
        peer_number: 9,
        reset_token,
        round_trip: None,
    };
    let config = Config { credit_bytes: 1 << 20, seal, ..Config::default() };
    let mut association = Association::new(established, address(2), config, NOW, &mut |bytes| bytes.fill(1));
    if stage != Stage::Login {
        association.bind(&binding());
        let mut first = packet(stage, &Header::new(PacketType::Probe, OWN, 0), &[]);
        receive(&mut association, &mut first);
    }
    // Something is in flight, so that there is something to acknowledge and to wait for.
    let pdu =
        OutgoingPdu { bhs: [0; BHS_LEN], ahs: Box::default(), data: Payload::Empty, more: Vec::new(), block_len: 0 };
    association.push(pdu);
    association.fill(NOW);
    match stage {
        Stage::Login | Stage::Bound => {}
        Stage::Finishing => association.finish(),
        Stage::Over => association.close(CloseCode::SHUTDOWN, ""),
    }
    association
}

/// A packet of the client with the keys of that stage, and its check.
fn packet(stage: Stage, header: &Header, payload: &[u8]) -> Vec<u8> {
    let mut header = *header;
    if stage != Stage::Login {
        header.flags = header.flags.with(Flags::BOUND);
    } else if header.packet_type == PacketType::Stream {
        header.flags = header.flags.with(Flags::SEALED);
    }
    let mut packet = [&header.emit()[..], payload].concat();
    seal(stage, &mut packet);
    packet
}

fn seal(stage: Stage, packet: &mut [u8]) {
    let secret = secret();
    let keys = if stage == Stage::Login {
        secret.login_keys(Role::Client)
    } else {
        secret.bound_keys(Role::Client, &binding())
    };
    keys.send.seal(packet);
}

fn receive(association: &mut Association<(u32, u32)>, packet: &mut [u8]) {
    let mut sink = Sink::default();
    let entropy: &mut Entropy<'_> = &mut |bytes| bytes.fill(1);
    if let Received::Stream(packet) = association.receive(packet, &address(2), false, NOW, entropy) {
        association.take(&packet, &mut sink);
    }
}

fn fate_of(association: &mut Association<(u32, u32)>, packet: &mut [u8]) -> Fate {
    let before = association.recovery.acknowledged(NOW);
    receive(association, packet);
    match association.why_over() {
        Some(why) if why.code != CloseCode::SHUTDOWN => Ends(why.code),
        _ if association.recovery.acknowledged(NOW) == before => Dropped,
        _ => Taken,
    }
}

/// A header of a stream packet that is next, or of another type.
fn next(packet_type: PacketType) -> Header {
    let mut header = Header::new(packet_type, OWN, 1);
    header.bhs[7] = 8;
    header
}

/// The payload that fits [`next`].
const PAYLOAD: [u8; 8] = [6; 8];

fn fate(stage: Stage, change: impl Fn(&mut Header)) -> Fate {
    let mut header = next(PacketType::Stream);
    change(&mut header);
    fate_of(&mut server(stage, Seal::Headers), &mut packet(stage, &header, &PAYLOAD))
}

/// The fate of a header that no words describe: its bytes are changed before the check is made.
fn fate_of_bytes(stage: Stage, change: impl Fn(&mut [u8])) -> Fate {
    let mut packet = packet(stage, &next(PacketType::Probe), &[]);
    change(&mut packet);
    seal(stage, &mut packet);
    fate_of(&mut server(stage, Seal::Headers), &mut packet)
}

#[test]
fn a_packet_that_keeps_the_rules_is_taken_until_the_end() {
    for stage in ALIVE {
        assert_eq!(fate(stage, |_| {}), Taken, "{stage:?}");
    }
    assert_eq!(fate(Stage::Over, |_| {}), Dropped);
}

#[test]
fn versions_types_flags_and_reserved_bytes_are_checked_in_every_stage() {
    for stage in ALIVE {
        for (at, mask) in [
            (0, 0x30),
            (0, PacketType::Probe as u8),
            (0, 0x0f ^ 6),
            (1, 0x10),
            (1, 0x80),
            (2, 8),
            (3, 1),
            (60, 1),
            (63, 1),
        ] {
            assert_eq!(fate_of_bytes(stage, |bytes| bytes[at] ^= mask), Dropped, "{stage:?}, byte {at}");
        }
        assert_eq!(fate_of_bytes(stage, |bytes| bytes[2] = 12), Taken, "a quantum's length says nothing yet");
    }
}

#[test]
fn packets_of_the_handshake_do_nothing_in_an_association() {
    for stage in ALIVE {
        for packet_type in [PacketType::Initial, PacketType::Retry, PacketType::Accept, PacketType::Reset] {
            assert_eq!(fate(stage, |header| header.packet_type = packet_type), Dropped, "{stage:?}, {packet_type:?}");
        }
    }
}

#[test]
fn keys_are_those_that_the_flag_names() {
    // Bound keys before there are any; the login's keys after it.
    for (stage, keys) in [(Stage::Login, Stage::Bound), (Stage::Bound, Stage::Login), (Stage::Finishing, Stage::Login)]
    {
        let mut packet = packet(keys, &next(PacketType::Stream), &PAYLOAD);
        assert_eq!(fate_of(&mut server(stage, Seal::Headers), &mut packet), Dropped, "{stage:?}");
    }
    // The flag says one thing, and the check another.
    for stage in ALIVE {
        let mut packet = packet(stage, &next(PacketType::Probe), &[]);
        packet[1] ^= Flags::BOUND.0;
        assert_eq!(fate_of(&mut server(stage, Seal::Headers), &mut packet), Dropped, "{stage:?}");
    }
}

#[test]
fn the_login_is_sealed_and_so_is_all_where_it_is_asked_for() {
    let mut packet_of_login = next(PacketType::Stream).emit().to_vec();
    packet_of_login.extend_from_slice(&PAYLOAD);
    seal(Stage::Login, &mut packet_of_login);
    assert_eq!(fate_of(&mut server(Stage::Login, Seal::Headers), &mut packet_of_login), Dropped);
    for packet_type in [PacketType::Stream, PacketType::Ack, PacketType::Probe, PacketType::Close] {
        for flags in [Flags(0), Flags::SEALED] {
            let mut header = next(packet_type);
            header.flags = flags;
            let payload: &[u8] = if packet_type == PacketType::Stream { &PAYLOAD } else { &[] };
            let mut packet = packet(Stage::Bound, &header, payload);
            let fate = fate_of(&mut server(Stage::Bound, Seal::Everything), &mut packet);
            assert_eq!(fate == Dropped, flags == Flags(0), "{packet_type:?}: {fate:?}");
        }
    }
}

#[test]
fn packet_numbers_are_used_once_and_have_an_end() {
    for stage in ALIVE {
        assert_eq!(fate(stage, |header| header.packet_number = MAX_PACKETS_PER_KEY - 1), Taken, "{stage:?}");
        assert_eq!(fate(stage, |header| header.packet_number = MAX_PACKETS_PER_KEY), Dropped, "{stage:?}");
        let mut association = server(stage, Seal::Headers);
        let whole = packet(stage, &next(PacketType::Probe), &[]);
        assert_eq!(fate_of(&mut association, &mut whole.clone()), Taken);
        assert_eq!(fate_of(&mut association, &mut whole.clone()), Dropped, "{stage:?}: replayed");
    }
}

#[test]
fn what_was_never_sent_cannot_be_acknowledged_in_any_stage() {
    for stage in ALIVE {
        let said = |largest, bits| {
            move |header: &mut Header| header.acknowledged = Acknowledged { largest, bits, delay_us: 7 }
        };
        assert_eq!(fate(stage, said(0, 0)), Taken, "{stage:?}");
        assert_eq!(fate(stage, said(1 << 30, 0)), Ends(CloseCode::ACKNOWLEDGEMENT), "{stage:?}");
        assert_eq!(fate(stage, said(0, 1)), Dropped, "{stage:?}: before packet 0");
    }
}

#[test]
fn any_credit_delay_and_congestion_count_is_taken() {
    for stage in ALIVE {
        for value in [0, 1, u32::MAX / 2, u32::MAX] {
            let fate = fate(stage, |header| {
                (header.credit, header.acknowledged.delay_us, header.congestion_count) = (value, value, value);
            });
            assert_eq!(fate, Taken, "{stage:?}");
        }
    }
}

#[test]
fn a_payload_other_than_the_one_that_was_sent_is_dropped() {
    for stage in ALIVE {
        let mut packet = packet(stage, &next(PacketType::Stream), &PAYLOAD);
        packet[HEADER_LEN] ^= 1;
        assert_eq!(fate_of(&mut server(stage, Seal::Headers), &mut packet), Dropped, "{stage:?}");
    }
}

#[test]
fn stream_bytes_stay_within_the_credit() {
    for stage in ALIVE {
        for offset in [1 << 20, 1 << 40, u64::MAX] {
            let fate = fate(stage, |header| header.stream_offset = offset);
            assert_eq!(fate, Ends(CloseCode::CREDIT), "{stage:?}, {offset}");
        }
    }
}

#[test]
fn a_packet_says_the_truth_about_its_pdu() {
    for stage in ALIVE {
        assert_eq!(
            fate(stage, |header| header.pdu_offset = 4),
            Ends(CloseCode::PROTOCOL),
            "{stage:?}: no PDU has begun"
        );
        assert_eq!(fate(stage, |header| header.pdu_offset = u32::MAX), Ends(CloseCode::PROTOCOL), "{stage:?}");
        assert_eq!(
            fate(stage, |header| header.bhs[7] = 4),
            Ends(CloseCode::PROTOCOL),
            "{stage:?}: longer than its PDU"
        );
    }
}

#[test]
fn payloads_of_control_packets_are_checked() {
    let of = |stage, packet_type, payload: &[u8]| {
        fate_of(&mut server(stage, Seal::Headers), &mut packet(stage, &next(packet_type), payload))
    };
    for stage in ALIVE {
        assert_eq!(of(stage, PacketType::Close, &[0, 2, 0, 0]), Ends(CloseCode::REPLACED), "{stage:?}");
        assert_eq!(of(stage, PacketType::Close, &[0, 2, 9, 9]), Ends(CloseCode::PROTOCOL), "{stage:?}");
        assert_eq!(of(stage, PacketType::Close, &[]), Ends(CloseCode::PROTOCOL), "{stage:?}");
        assert_eq!(of(stage, PacketType::Ack, &[]), Taken, "{stage:?}");
        assert_eq!(of(stage, PacketType::Ack, &[0; 15]), Ends(CloseCode::PROTOCOL), "{stage:?}");
        assert_eq!(of(stage, PacketType::PathChallenge, &[1; 8]), Taken, "{stage:?}");
        assert_eq!(of(stage, PacketType::PathChallenge, &[1; 7]), Taken, "{stage:?}: it is not answered");
        assert_eq!(of(stage, PacketType::PathResponse, &[1; 8]), Taken, "{stage:?}: it answers nothing");
    }
}

#[test]
fn a_datagram_that_is_no_packet_is_dropped() {
    for stage in ALIVE {
        for len in [0, 1, HEADER_LEN - 1, HEADER_LEN, 1400] {
            assert_eq!(fate_of(&mut server(stage, Seal::Headers), &mut vec![0x16; len]), Dropped, "{stage:?}");
        }
        // What this end has sent comes back.
        let mut association = server(stage, Seal::Headers);
        let mut reflected: Vec<u8> = association.packet(0).flatten().copied().collect();
        assert_eq!(fate_of(&mut association, &mut reflected), Dropped, "{stage:?}");
    }
}
