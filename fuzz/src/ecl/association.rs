//! Datagrams to an association in any state: of a peer with the right keys, which may lie, and of others.
//!
//! The first byte says which end is tested and how; then come steps, each with a byte that says what it is.

use std::time::Duration;

use lunette_buffer::Payload;
use lunette_ecl::Role;
use lunette_ecl::association::{Association, Config, Received, Seal, Upper};
use lunette_ecl::close::CloseCode;
use lunette_ecl::header::{CREDIT_UNIT, HEADER_LEN, PacketType};
use lunette_ecl::limits::{MAX_DATAGRAM_LEN, MAX_READY_PACKETS};
use lunette_ecl::path::Address;
use lunette_ecl::recovery::CongestionControl;
use lunette_pdu::BHS_LEN;
use lunette_session::{OutgoingPdu, Time};

use super::peer::{Peer, binding, established};
use crate::input::{ENTROPY, Input, Random};

/// Bits of the first byte.
const CLIENT: u8 = 1;
const SEALED: u8 = 2;
const BOUND: u8 = 4;
const LITTLE_CREDIT: u8 = 8;
const BBR: u8 = 16;

/// Steps, modulo their number.
const STEPS: u8 = 12;
const RAW: u8 = 6;
const WAIT: u8 = 7;
const PUSH: u8 = 8;
const END: u8 = 9;
const UPPER: u8 = 10;
const ACKNOWLEDGE: u8 = 11;

/// More calls at one moment tell of an association that spins.
const MAX_CALLS: usize = 300;

/// Memory for the data of tasks with odd tags.
const PLACE_LEN: usize = 4096;

/// The layer above: it counts what it is given.
struct Above {
    place: Box<[u8; PLACE_LEN]>,
    takes: bool,
    delivered: u64,
}

impl Upper for Above {
    type Place = (usize, usize);

    fn takes(&mut self) -> bool {
        self.takes
    }

    fn deliver(&mut self, bytes: &[u8]) {
        self.delivered += bytes.len() as u64;
    }

    fn place_early(&mut self, bhs: &[u8; BHS_LEN], pdu_offset: u32, len: usize) -> Option<(Self::Place, &mut [u8])> {
        let start = pdu_offset as usize;
        let place = (bhs[19] % 2 == 1).then(|| self.place.get_mut(start..start.checked_add(len)?))??;
        Some(((start, len), place))
    }

    fn placed(&mut self, (_, len): Self::Place, skipped: usize, rest: usize) -> bool {
        assert_eq!(skipped + rest, len, "what was placed is delivered as a whole");
        self.delivered += rest as u64;
        rest % 16 != 4
    }
}

struct World {
    now: Time,
    association: Association<(usize, usize)>,
    peer: Peer,
    above: Above,
    /// Where the peer's stream may go to.
    credit: u64,
    told: u32,
}

/// The target.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut world = World::new(input.byte());
    for _ in 0..400 {
        if input.is_empty() {
            break;
        }
        world.step(&mut input);
        world.settle();
    }
    // With a peer that is silent from now on it comes to an end, when there is something to wait for.
    world.association.finish();
    world.settle();
    for _ in 0..MAX_CALLS {
        let Some(next) = world.association.next_timeout() else { break };
        world.now = world.now.max(next);
        world.settle();
    }
    assert!(world.association.is_done(), "an association that was asked to finish ends");
}

fn address(port: u16) -> Address {
    Address::Udp(([192, 0, 2, 1], port).into())
}

impl World {
    fn new(choice: u8) -> Self {
        let has = |bit: u8| choice & bit != 0;
        let role = if has(CLIENT) { Role::Client } else { Role::Server };
        let config = Config {
            credit_bytes: if has(LITTLE_CREDIT) { 1 } else { 16 << 20 },
            interface_len: 1472,
            seal: if has(SEALED) { Seal::Everything } else { Seal::Headers },
            congestion_control: if has(BBR) { CongestionControl::Bbr } else { CongestionControl::Cubic },
        };
        let now = Time::new(Duration::from_secs(1));
        let entropy = &mut |bytes: &mut [u8]| bytes.fill(ENTROPY);
        let mut association = Association::new(established(role), address(1), config, now, entropy);
        if has(BOUND) {
            association.bind(&binding());
        }
        let above = Above { place: Box::new([0; PLACE_LEN]), takes: true, delivered: 0 };
        // Without being told, each end takes 128 KiB.
        let credit = config.credit_bytes.max(128 << 10);
        Self { now, association, peer: Peer::of(role), above, credit, told: 0 }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let step = input.byte();
        let from = address(1 + u16::from(step / STEPS % 8 == 7));
        match step % STEPS {
            RAW => {
                let len = usize::from(input.u16()) % 2000;
                let bytes = input.bytes(len).to_vec();
                self.receive(bytes, &from);
            }
            WAIT => self.now = self.now + Duration::from_millis(u64::from(input.u16())),
            PUSH => self.push(usize::from(input.u16())),
            END => match input.byte() % 8 {
                0 => self.association.finish(),
                1 => self.association.close(CloseCode::SESSION, "an end"),
                2 => self.association.on_too_long(usize::from(input.u16()), self.now),
                _ => self.association.bind(&binding()),
            },
            UPPER => {
                self.above.takes = !self.above.takes;
                self.association.resume(&mut self.above);
            }
            ACKNOWLEDGE => {
                let packet = self.peer.acknowledgement(input.byte().is_multiple_of(2));
                self.receive(packet, &from);
            }
            _ => {
                let packet = self.peer.packet(input);
                self.receive(packet, &from);
            }
        }
    }

    fn push(&mut self, len: usize) {
        let mut bhs = [0; BHS_LEN];
        bhs[5..8].copy_from_slice(&(len as u32).to_be_bytes()[1..]);
        let data = Payload::from(vec![7; len]);
        if self.association.wants_pdus() {
            self.association.push(OutgoingPdu { bhs, ahs: Box::default(), data, more: Vec::new(), block_len: 0 });
        }
    }

    fn receive(&mut self, mut bytes: Vec<u8>, from: &Address) {
        let entropy = &mut |bytes: &mut [u8]| bytes.fill(ENTROPY);
        let Self { association, above, now, .. } = self;
        let is_marked = bytes.len().is_multiple_of(7);
        if let Received::Stream(packet) = association.receive(&mut bytes, from, is_marked, *now, entropy) {
            association.take(&packet, above);
        }
    }

    /// Everything leaves that may leave now.
    fn settle(&mut self) {
        for _ in 0..MAX_CALLS {
            self.association.fill(self.now);
            let ready = self.association.ready_len();
            assert!(ready <= MAX_READY_PACKETS + 8, "{ready} packets wait");
            for index in 0..ready {
                let mut packet: Vec<u8> = self.association.packet(index).flatten().copied().collect();
                self.check(&mut packet);
            }
            self.association.sent(ready);
            assert!(self.above.delivered <= self.credit, "more is delivered than was allowed");
            if ready == 0 && self.association.next_timeout().is_none_or(|next| next > self.now) {
                return;
            }
        }
        panic!("it spins: {:?} at {:?}", self.association.next_timeout(), self.now);
    }

    fn check(&mut self, packet: &mut [u8]) {
        assert!((HEADER_LEN..=MAX_DATAGRAM_LEN).contains(&packet.len()), "{} bytes", packet.len());
        let header = self.peer.hear(packet);
        assert!(header.packet_type.is_protected());
        let more = header.credit.wrapping_sub(self.told);
        assert!(more < 1 << 31, "credit counts up");
        self.told = header.credit;
        self.credit = self.credit.max(u64::from(header.credit) * CREDIT_UNIT);
    }
}

/// Packets of all types by a peer that mostly keeps the rules, and what the association is asked for between them.
pub fn random(random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![random.byte() & 63];
    for _ in 0..random.below(40) {
        let step = random.byte();
        bytes.push(step);
        match step % STEPS {
            RAW => {
                let noise = random.some_bytes(300);
                bytes.extend((noise.len() as u16).to_be_bytes());
                bytes.extend(noise);
            }
            WAIT | PUSH => bytes.extend((random.number() as u16 >> random.below(16)).to_be_bytes()),
            END | ACKNOWLEDGE => bytes.push(random.byte()),
            UPPER => {}
            _ => bytes.extend(described(random)),
        }
    }
    bytes
}

/// A packet in the form that [`Peer::packet`] reads.
fn described(random: &mut Random) -> Vec<u8> {
    let bound = *random.choose(&[0, 2, 2, 3, 3, 1, 6]);
    // Stream packets, more often than others.
    let kind = if random.below(2) == 0 { PacketType::Stream as u8 - 1 } else { random.byte() };
    let changes = if random.below(3) == 0 { 1 << random.below(8) | 1 << random.below(8) } else { 0 };
    let payload = random.some_bytes(200);
    let mut bytes = vec![kind, bound, changes];
    bytes.extend((payload.len() as u16).to_be_bytes());
    bytes.extend(payload);
    if changes != 0 {
        bytes.extend(random.bytes(22));
    }
    bytes
}

/// A login, the change of keys and data behind it, for both ends.
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let stream = |flags: u8, payload: &[u8]| {
        let len = (payload.len() as u16).to_be_bytes();
        [&[0, PacketType::Stream as u8 - 1, flags, 0][..], &len, payload].concat()
    };
    let other = |kind: PacketType, flags: u8, payload: &[u8]| {
        let len = (payload.len() as u16).to_be_bytes();
        [&[0, kind as u8 - 1, flags, 0][..], &len, payload].concat()
    };
    let bind = vec![END, 7];
    let push = |len: u16| [&[PUSH][..], &len.to_be_bytes()].concat();
    let wait = |ms: u16| [&[WAIT][..], &ms.to_be_bytes()].concat();
    let session = |role: u8| {
        let parts = [
            vec![role],
            stream(1, b"login request or its answer, "),
            push(40),
            vec![ACKNOWLEDGE, 1],
            bind.clone(),
            stream(3, &[7; 400]),
            push(5000),
            wait(3),
            vec![ACKNOWLEDGE, 0],
            other(PacketType::Probe, 6, &[]),
            other(PacketType::PathChallenge, 2, b"8 bytes."),
            other(PacketType::Ack, 2, &[0; 16]),
            vec![UPPER],
            stream(3, &[8; 100]),
            vec![UPPER],
            wait(500),
            other(PacketType::Close, 2, &[0, 3, 0, 2, b'o', b'k']),
        ];
        parts.concat()
    };
    vec![
        ("server".into(), session(0)),
        ("client".into(), session(CLIENT)),
        ("bound_server".into(), session(BOUND | SEALED)),
        ("bound_client".into(), session(BOUND | CLIENT | LITTLE_CREDIT | BBR)),
        ("noise".into(), [&[0, RAW, 0, 128][..], &[0x14; 128]].concat()),
    ]
}
