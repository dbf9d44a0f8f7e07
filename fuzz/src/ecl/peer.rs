//! The other end of an association: it has the right keys, and says what the input wants.

use lunette_ecl::Role;
use lunette_ecl::handshake::{Established, ResetSecret};
use lunette_ecl::header::{Acknowledged, Flags, HEADER_LEN, Header, PacketType};
use lunette_ecl::limits::MIN_DATAGRAM_LEN;
use lunette_ecl::path::Address;
use lunette_ecl::protection::{Binding, ExchangeSecret, Keys, PacketKeys, Seal};
use lunette_pdu::BHS_LEN;

use crate::input::Input;

/// How each end calls the association.
const ITS_NUMBER: u32 = 7;
const OUR_NUMBER: u32 = 9;

/// The changes of an input to a packet: bits of a byte. Without, the fields are those of an honest peer.
mod changes {
    pub(super) const NUMBER: u8 = 1;
    pub(super) const ACKNOWLEDGED: u8 = 2;
    pub(super) const COUNTS: u8 = 4;
    pub(super) const STREAM_OFFSET: u8 = 8;
    pub(super) const PDU_OFFSET: u8 = 16;
    pub(super) const BHS: u8 = 32;
    pub(super) const ASSOCIATION: u8 = 64;
    pub(super) const AFTER_THE_CHECK: u8 = 128;
}

/// The peer.
pub(super) struct Peer {
    login: PacketKeys,
    bound: PacketKeys,
    next_number: u64,
    /// Where its honest stream goes on.
    stream_end: u64,
    /// The largest number it has heard of.
    largest: u64,
    /// The last number and credit of the association.
    numbers: Option<u64>,
}

fn other(role: Role) -> Role {
    match role {
        Role::Client => Role::Server,
        Role::Server => Role::Client,
    }
}

fn secret() -> ExchangeSecret {
    ExchangeSecret::new(&[3; 64], b"of a fuzzer")
}

/// The common knowledge of both sides after the login.
pub(super) fn binding() -> Binding {
    Binding::new("iqn.2026-11.example:i", "iqn.2026-11.lunette:disk", None, None)
}

/// The result of the handshake for the end under test.
pub(super) fn established(role: Role) -> Established {
    Established {
        peer_seal: Seal::Headers,
        role,
        secret: secret(),
        own_number: ITS_NUMBER,
        peer_number: OUR_NUMBER,
        reset_token: ResetSecret::new([5; 32]).token(OUR_NUMBER, &Address::Ethernet([1; 6])),
        round_trip: None,
    }
}

impl Peer {
    /// The peer of an end with that role.
    pub(super) fn of(role: Role) -> Self {
        let secret = secret();
        Self {
            login: secret.login_keys(other(role)),
            bound: secret.bound_keys(other(role), &binding()),
            next_number: 0,
            stream_end: 0,
            largest: u64::MAX,
            numbers: None,
        }
    }

    fn keys(&self, flags: Flags) -> &PacketKeys {
        if flags.contains(Flags::BOUND) { &self.bound } else { &self.login }
    }

    /// A packet as the input describes it, with a right check.
    pub(super) fn packet(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        let [kind, flags, wants] = input.array();
        let changes = |change: u8| wants & change != 0;
        let packet_type = PacketType::ALL[usize::from(kind) % PacketType::ALL.len()];
        let payload_len = usize::from(input.u16()) % (MIN_DATAGRAM_LEN - HEADER_LEN + 64);
        let payload = input.bytes(payload_len);
        let mut header = Header::new(packet_type, ITS_NUMBER, self.next_number);
        // Bits that do not exist are seldom wanted.
        header.flags = Flags(if flags & 0xf0 == 0xf0 { flags } else { flags & 7 });
        header.acknowledged = Acknowledged { largest: self.largest, bits: 0, delay_us: 0 };
        header.stream_offset = self.stream_end;
        header.credit = 64;
        let len = payload.len() - payload.len() % 4;
        let payload = if packet_type == PacketType::Stream { &payload[..len] } else { payload };
        header.bhs[5..8].copy_from_slice(&(len as u32).to_be_bytes()[1..]);
        if changes(changes::NUMBER) {
            header.packet_number = u64::from_be_bytes(input.array()) >> (input.byte() % 64);
        }
        if changes(changes::ACKNOWLEDGED) {
            let largest = u64::from_be_bytes(input.array()) >> (input.byte() % 64);
            header.acknowledged =
                Acknowledged { largest, bits: u64::from_be_bytes(input.array()), delay_us: input.u32() };
        }
        if changes(changes::COUNTS) {
            (header.credit, header.congestion_count) = (input.u32(), input.u32());
        }
        if changes(changes::STREAM_OFFSET) {
            header.stream_offset = u64::from_be_bytes(input.array()) >> (input.byte() % 64);
        }
        if changes(changes::PDU_OFFSET) {
            header.pdu_offset = input.u32() >> (input.byte() % 32);
        }
        if changes(changes::BHS) {
            let bytes = input.bytes(BHS_LEN);
            header.bhs[..bytes.len()].copy_from_slice(bytes);
        }
        if changes(changes::ASSOCIATION) {
            (header.association, header.log2_quantum) = (input.u32(), input.byte());
        }
        self.next_number = self.next_number.max(header.packet_number.saturating_add(1));
        if packet_type == PacketType::Stream && !changes(changes::STREAM_OFFSET) {
            let bhs_len = if header.begins_pdu() { BHS_LEN as u64 } else { 0 };
            self.stream_end += bhs_len + payload.len() as u64;
        }
        let mut packet = header.emit().to_vec();
        packet.extend_from_slice(payload);
        self.keys(header.flags).send.seal(&mut packet);
        if changes(changes::AFTER_THE_CHECK) {
            let at = usize::from(input.u16()) % packet.len();
            packet[at] ^= input.byte();
        }
        packet
    }

    /// An acknowledgement of all that has come.
    pub(super) fn acknowledgement(&mut self, bound: bool) -> Vec<u8> {
        let mut header = Header::new(PacketType::Ack, ITS_NUMBER, self.next_number);
        header.flags = if bound { Flags::BOUND } else { Flags(0) };
        header.acknowledged = Acknowledged { largest: self.largest, bits: 0, delay_us: 0 };
        header.credit = 1 << 20;
        self.next_number += 1;
        let mut packet = header.emit().to_vec();
        self.keys(header.flags).send.seal(&mut packet);
        packet
    }

    /// The association has sent a packet: it must be in order. Gives its header.
    pub(super) fn hear(&mut self, packet: &mut [u8]) -> Header {
        let flags = Flags(packet[1]);
        let header = open(&self.keys(flags).receive, packet);
        assert_eq!(header.association, OUR_NUMBER, "it is for the peer");
        assert!(self.numbers.is_none_or(|last| header.packet_number > last), "a number is used once");
        self.numbers = Some(header.packet_number);
        self.largest = header.packet_number;
        header
    }
}

fn open(keys: &Keys, packet: &mut [u8]) -> Header {
    keys.open(packet).unwrap_or_else(|error| panic!("the association sends what its peer cannot open: {error}"))
}
