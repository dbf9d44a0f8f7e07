//! Two associations and a network between them, under a virtual clock.

mod rules;

use std::collections::BTreeMap;

use lunette_buffer::Payload;
use lunette_pdu::BHS_LEN;
use lunette_quanta::QuantumSize;
use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

use super::*;
use crate::handshake::{Answer, Client, Listener, Received as Shaken, ResetSecret, Terms};
use crate::header::{Flags, Header, PacketType};

/// The faults of the network.
#[derive(Debug, Clone, Copy)]
struct Network {
    delay_us: u64,
    /// One in this number is lost, repeated, delayed by as much again, damaged; 0: none.
    lose: u32,
    repeat: u32,
    delay: u32,
    damage: u32,
    /// The longest datagram that passes.
    mtu: usize,
}

const CLEAN: Network = Network { delay_us: 1000, lose: 0, repeat: 0, delay: 0, damage: 0, mtu: 9000 };

/// A receiver of a stream. It takes bytes in order, and gives places for the data of some PDUs.
#[derive(Default)]
struct Sink {
    stream: Vec<u8>,
    /// By task tag, which stands in the header, and offset.
    places: BTreeMap<u32, Vec<u8>>,
    /// Whether the upper layer takes no bytes now.
    busy: bool,
    /// Whether the upper layer takes no bytes after a header that it was given alone, until it is asked to go on.
    pauses_after_headers: bool,
    /// Whether the upper layer finds that data was placed in the wrong place.
    refuses_places: bool,
    placed: usize,
}

/// Data of a PDU with an odd task tag has a place.
fn has_place(bhs: &[u8; BHS_LEN]) -> Option<u32> {
    let tag = u32::from_be_bytes(std::array::from_fn(|i| bhs[16 + i]));
    (tag % 2 == 1).then_some(tag)
}

impl Upper for Sink {
    type Place = (u32, u32);

    fn takes(&mut self) -> bool {
        !self.busy
    }

    fn deliver(&mut self, bytes: &[u8]) {
        self.stream.extend_from_slice(bytes);
        self.busy |= self.pauses_after_headers && bytes.len() == BHS_LEN;
    }

    fn place_early(&mut self, bhs: &[u8; BHS_LEN], pdu_offset: u32, len: usize) -> Option<(Self::Place, &mut [u8])> {
        let tag = has_place(bhs)?;
        let place = self.places.entry(tag).or_default();
        let end = pdu_offset as usize + len;
        place.resize(place.len().max(end), 0);
        Some(((tag, pdu_offset), &mut place[pdu_offset as usize..end]))
    }

    fn placed(&mut self, (tag, offset): Self::Place, skipped: usize, len: usize) -> bool {
        let start = offset as usize + skipped;
        self.placed += len;
        self.stream.extend_from_slice(&self.places[&tag][start..start + len]);
        !self.refuses_places
    }
}

struct End {
    association: Association<(u32, u32)>,
    sink: Sink,
    address: Address,
}

struct World {
    now: Time,
    random: Pcg32,
    network: Network,
    ends: [End; 2],
    /// Arrival, a counter, receiver, sender's address, bytes.
    under_way: BTreeMap<(Time, u64), (usize, Address, Vec<u8>)>,
    sent: u64,
    pushed: [Vec<u8>; 2],
    /// The block length of pushed PDUs.
    block_len: u16,
}

fn address(port: u16) -> Address {
    Address::Udp(([127, 0, 0, 1], port).into())
}

/// The two sides of a handshake without a network.
fn handshake(now: Time, random: &mut Pcg32) -> [Established; 2] {
    let entropy: &mut Entropy<'_> = &mut |bytes: &mut [u8]| random.fill_bytes(bytes);
    let mut client = Client::new(now, 7, entropy);
    let mut listener = Listener::new(now, ResetSecret::new([5; 32]), entropy);
    for _ in 0..2 {
        let initial = client.transmit(now).expect("there is time").expect("an Initial is due");
        match listener.answer(now, &address(1), Terms::default(), &initial, |_| false, entropy) {
            Answer::Retry(retry) => assert!(matches!(client.receive(now, &retry), Shaken::Retry)),
            Answer::Accept(accept) => {
                let Shaken::Established(established) = client.receive(now, &accept) else { panic!("no association") };
                let first = Header::new(PacketType::Ack, established.peer_number, 0);
                let mut packet = first.emit().to_vec();
                established.secret.login_keys(Role::Client).send.seal(&mut packet);
                let accepted = listener.claim(now, &packet).expect("it is the client's");
                return [established, accepted.established];
            }
            Answer::Drop => panic!("the Initial is dropped"),
        }
    }
    panic!("no Accept");
}

impl World {
    fn new(seed: u64, network: Network, config: Config) -> Self {
        let mut random = Pcg32::new(seed, 1);
        let now = Time::new(Duration::from_secs(1));
        let [client, server] = handshake(now, &mut random);
        let mut end = |established, own: u16, peer: u16| {
            let entropy: &mut Entropy<'_> = &mut |bytes: &mut [u8]| random.fill_bytes(bytes);
            let association = Association::new(established, address(peer), config, now, entropy);
            End { association, sink: Sink::default(), address: address(own) }
        };
        let ends = [end(client, 1, 2), end(server, 2, 1)];
        Self {
            now,
            random,
            network,
            ends,
            under_way: BTreeMap::new(),
            sent: 0,
            pushed: Default::default(),
            block_len: 0,
        }
    }

    fn bind(&mut self) {
        // The client's login request and the server's response come before.
        self.push(0, 0, 20);
        self.run_until(|world| world.ends[1].sink.stream.len() == BHS_LEN + 20);
        self.push(1, 0, 40);
        let binding = Binding::new("iqn.a", "iqn.b", Some(b"secret"), None);
        self.ends[1].association.bind(&binding);
        self.run_until(|world| world.ends[0].sink.stream.len() == BHS_LEN + 40);
        self.ends[0].association.bind(&binding);
        self.run_until(|world| world.ends[1].association.protection.sends_bound());
    }

    fn chance(&mut self, one_in: u32) -> bool {
        one_in > 0 && self.random.next_u32().is_multiple_of(one_in)
    }

    fn push(&mut self, from: usize, tag: u32, len: usize) {
        let mut bhs = [0; BHS_LEN];
        bhs[5..8].copy_from_slice(&(len as u32).to_be_bytes()[1..]);
        bhs[16..20].copy_from_slice(&tag.to_be_bytes());
        let mut data = vec![0; len];
        self.random.fill_bytes(&mut data);
        self.pushed[from].extend(bhs.iter().chain(&data).copied());
        self.pushed[from].extend(vec![0; lunette_pdu::pad_len(len)]);
        let block_len = self.block_len;
        let pdu = OutgoingPdu { bhs, ahs: Box::default(), data: Payload::from(data), more: Vec::new(), block_len };
        self.ends[from].association.push(pdu);
    }

    /// Sends what is ready, and brings what is due next. False when nothing is.
    fn step(&mut self) -> bool {
        for end in 0..2 {
            self.send(end);
        }
        let timeouts = self.ends.iter().filter_map(|end| end.association.next_timeout());
        let arrival = self.under_way.first_key_value().map(|((at, _), _)| *at);
        let Some(next) = timeouts.chain(arrival).min() else { return false };
        self.now = self.now.max(next);
        while let Some(entry) = self.under_way.first_entry()
            && entry.key().0 <= self.now
        {
            let (to, from, mut bytes) = entry.remove();
            self.arrive(to, &from, &mut bytes);
        }
        true
    }

    fn arrive(&mut self, to: usize, from: &Address, bytes: &mut [u8]) {
        let Self { ends, random, now, .. } = self;
        let entropy: &mut Entropy<'_> = &mut |bytes: &mut [u8]| random.fill_bytes(bytes);
        let End { association, sink, .. } = &mut ends[to];
        if let Received::Stream(packet) = association.receive(bytes, from, false, *now, entropy) {
            association.take(&packet, sink);
        }
    }

    fn send(&mut self, from: usize) {
        let association = &mut self.ends[from].association;
        association.fill(self.now);
        let mut packets = Vec::new();
        for index in 0..association.ready_len() {
            packets.push(association.packet(index).flatten().copied().collect::<Vec<u8>>());
        }
        if association.config.seal == Seal::Everything {
            assert!(packets.iter().all(|packet| Flags(packet[1]).contains(Flags::SEALED)), "every type is sealed");
        }
        association.sent(packets.len());
        let to = *association.peer();
        for bytes in packets {
            self.transmit(from, &to, bytes);
        }
    }

    fn transmit(&mut self, from: usize, to: &Address, mut bytes: Vec<u8>) {
        let receiver = 1 - from;
        if self.ends[receiver].address != *to || bytes.len() > self.network.mtu || self.chance(self.network.lose) {
            return;
        }
        if self.chance(self.network.damage) {
            let at = self.random.next_u32() as usize % bytes.len();
            bytes[at] ^= 1 << (self.random.next_u32() % 8);
        }
        let copies = if self.chance(self.network.repeat) { 2 } else { 1 };
        for _ in 0..copies {
            let more = if self.chance(self.network.delay) { self.network.delay_us } else { 0 };
            let at = self.now + Duration::from_micros(self.network.delay_us + more);
            self.sent += 1;
            self.under_way.insert((at, self.sent), (receiver, self.ends[from].address, bytes.clone()));
        }
    }

    fn run_until(&mut self, is_done: impl Fn(&Self) -> bool) {
        for _ in 0..200_000 {
            if is_done(self) {
                return;
            }
            if !self.step() {
                let why = self.ends.each_ref().map(|end| end.association.why_over());
                assert!(is_done(self), "it stands still at {:?}: {why:?}", self.now);
            }
        }
        panic!("no end in sight at {:?}", self.now);
    }

    fn run_until_all_has_come(&mut self) {
        self.run_until(|world| {
            world.ends.iter().zip(world.pushed.iter().rev()).all(|(end, pushed)| end.sink.stream.len() >= pushed.len())
        });
        for (end, pushed) in self.ends.iter().zip(self.pushed.iter().rev()) {
            assert!(end.sink.stream == *pushed, "the stream has come as it was sent");
        }
    }
}

#[test]
fn streams_of_both_directions_arrive_over_a_network_that_loses_repeats_delays_and_damages() {
    let network = Network { lose: 20, repeat: 30, delay: 10, damage: 50, ..CLEAN };
    let mut placed = 0;
    for seed in 0..20 {
        let mut world = World::new(seed, network, Config { interface_len: 9000, ..Config::default() });
        world.bind();
        for tag in 1..40 {
            for from in 0..2 {
                let len = world.random.next_u32() as usize % 60_000;
                world.push(from, tag, len * usize::from(tag % 3 > 0));
            }
        }
        world.run_until_all_has_come();
        placed += world.ends[0].sink.placed + world.ends[1].sink.placed;
    }
    assert!(placed > 0, "something came early and had a place");
}

#[test]
fn sealed_streams_arrive_too() {
    let network = Network { lose: 20, delay: 10, damage: 20, ..CLEAN };
    let mut world = World::new(3, network, Config { seal: Seal::Everything, ..Config::default() });
    world.bind();
    for tag in 1..20 {
        world.push(0, tag, 30_000);
        world.push(1, tag, 30_000);
    }
    world.run_until_all_has_come();
}

/// A path that becomes narrower, repeated and damaged packets, and an upper layer that pauses.
#[test]
fn no_byte_changes_whatever_the_network_does() {
    for seed in 0..20 {
        let network = Network { lose: 15, repeat: 30, delay: 10, damage: 40, ..CLEAN };
        let seal = if seed % 2 == 0 { Seal::Headers } else { Seal::Everything };
        let config = Config { interface_len: 9000, seal, ..Config::default() };
        let mut world = World::new(seed, network, config);
        world.bind();
        for tag in 1..60 {
            world.network.mtu = if tag == 30 { 1400 } else { world.network.mtu };
            world.block_len = if tag % 4 == 0 { 0 } else { QuantumSize::B1024.edu_len() as u16 };
            world.ends[1].sink.pauses_after_headers = tag % 5 == 0;
            for from in 0..2 {
                let len = world.random.next_u32() as usize % 60_000;
                world.push(from, tag, len * usize::from(tag % 3 > 0));
            }
            for _ in 0..world.random.next_u32() % 200 {
                world.step();
            }
            let End { association, sink, .. } = &mut world.ends[1];
            sink.busy = false;
            association.resume(sink);
        }
        let End { association, sink, .. } = &mut world.ends[1];
        (sink.pauses_after_headers, sink.busy) = (false, false);
        association.resume(sink);
        world.run_until_all_has_come();
    }
}

/// A packet that ends the association brings no bytes with it.
#[test]
fn a_packet_that_ends_the_association_brings_no_bytes() {
    let mut world = World::new(1, CLEAN, Config::default());
    world.bind();
    let came = world.ends[1].sink.stream.len();
    let [client, server] = world.ends.each_ref().map(|end| &end.association);
    let mut header = Header::new(PacketType::Stream, server.number(), 1_000_000);
    header.flags = Flags::BOUND;
    header.acknowledged.largest = 2_000_000;
    header.stream_offset = client.outgoing.end();
    let mut packet = header.emit().to_vec();
    client.protection.send_keys().seal(&mut packet);
    let from = world.ends[0].address;
    world.arrive(1, &from, &mut packet);
    let End { association, sink, .. } = &mut world.ends[1];
    association.resume(sink);
    assert_eq!(association.why_over().map(|why| why.code), Some(CloseCode::ACKNOWLEDGEMENT));
    assert_eq!(sink.stream.len(), came);
}

#[test]
fn the_paths_length_is_found_and_found_again_when_it_shrinks() {
    let mut world = World::new(1, CLEAN, Config { interface_len: 9000, ..Config::default() });
    world.bind();
    world.push(0, 1, 100_000);
    world.run_until_all_has_come();
    assert_eq!(world.ends[0].association.figures().datagram_len, 9000);
    world.network.mtu = 1400;
    world.push(0, 3, 500_000);
    world.push(1, 3, 500_000);
    world.run_until_all_has_come();
    for end in &world.ends {
        let len = end.association.figures().datagram_len;
        assert!((1232..=1400).contains(&len), "{len}");
    }
}

#[test]
fn a_client_may_change_its_address() {
    let mut world = World::new(1, CLEAN, Config::default());
    world.bind();
    world.push(0, 1, 50_000);
    world.push(1, 1, 500_000);
    for _ in 0..5 {
        world.step();
    }
    world.ends[0].address = address(77);
    world.push(0, 3, 50_000);
    world.run_until_all_has_come();
    assert_eq!(*world.ends[1].association.peer(), address(77));
}

#[test]
fn an_end_that_takes_nothing_stops_the_other_at_its_credit_and_goes_on_when_it_takes_again() {
    let config = Config { credit_bytes: 256 * 1024, interface_len: 9000, ..Config::default() };
    let mut world = World::new(1, CLEAN, config);
    world.bind();
    world.ends[1].sink.busy = true;
    world.push(0, 2, 1_000_000);
    for _ in 0..2000 {
        world.step();
    }
    // It keeps what has no place, up to a bound, and takes nothing.
    assert_eq!(world.ends[1].sink.stream.len(), BHS_LEN + 20);
    assert!(world.ends[1].association.why_over().is_none());
    world.ends[1].sink.busy = false;
    let End { association, sink, .. } = &mut world.ends[1];
    association.resume(sink);
    world.run_until_all_has_come();
}

#[test]
fn what_was_pushed_arrives_before_the_end() {
    let mut world = World::new(1, Network { lose: 10, ..CLEAN }, Config::default());
    world.bind();
    world.push(0, 1, 100_000);
    world.ends[0].association.finish();
    world.run_until(|world| world.ends[0].association.is_done());
    assert_eq!(world.ends[1].sink.stream, world.pushed[0]);
    assert_eq!(world.ends[0].association.why_over().map(|why| why.code), Some(CloseCode::FINISHED));
}

#[test]
fn data_that_was_placed_where_it_is_not_due_ends_the_association() {
    let mut world = World::new(1, Network { delay: 3, ..CLEAN }, Config::default());
    world.bind();
    world.ends[1].sink.refuses_places = true;
    world.push(0, 1, 100_000);
    world.run_until(|world| world.ends[1].association.why_over().is_some());
    assert_eq!(world.ends[1].association.why_over().map(|why| why.code), Some(CloseCode::PROTOCOL));
}

#[test]
fn a_close_reaches_the_peer() {
    let mut world = World::new(1, CLEAN, Config::default());
    world.bind();
    world.ends[1].association.close(CloseCode::REPLACED, "another one");
    world.run_until(|world| world.ends[0].association.why_over().is_some());
    let why = world.ends[0].association.why_over().expect("it is over");
    assert_eq!((why.code, why.text()), (CloseCode::REPLACED, "another one"));
}

#[test]
fn an_end_that_leaves_does_not_wait_for_a_peer_that_has_gone() {
    for finishes in [false, true] {
        let mut world = World::new(1, CLEAN, Config::default());
        world.bind();
        world.network.mtu = 0;
        world.push(0, 1, 100);
        let (began, association) = (world.now, &mut world.ends[0].association);
        if finishes {
            association.finish();
        } else {
            association.leave_soon();
        }
        world.run_until(|world| world.ends[0].association.why_over().is_some());
        assert_eq!(world.ends[0].association.why_over().map(|why| why.code), Some(CloseCode::TIMEOUT));
        assert!(world.now - began <= Duration::from_secs(1), "{:?}", world.now - began);
    }
}

#[test]
fn an_end_that_leaves_waits_for_a_peer_on_a_long_path() {
    let mut world = World::new(1, Network { delay_us: 400_000, lose: 10, ..CLEAN }, Config::default());
    world.bind();
    world.ends[0].association.leave_soon();
    world.push(0, 1, 20_000);
    world.run_until(|world| world.ends[1].sink.stream == world.pushed[0]);
    assert_eq!(world.ends[0].association.why_over().map(|why| why.code), None);
}

#[test]
fn a_peer_that_has_gone_is_given_up() {
    let mut world = World::new(1, CLEAN, Config::default());
    world.bind();
    world.network.mtu = 0;
    world.push(0, 1, 100);
    let began = world.now;
    world.run_until(|world| world.ends[0].association.why_over().is_some());
    assert_eq!(world.ends[0].association.why_over().map(|why| why.code), Some(CloseCode::TIMEOUT));
    assert!(world.now - began <= Duration::from_secs(40));
}

/// An upper layer may stop behind the header of data that came early: answers leave first.
#[test]
fn data_in_its_place_waits_for_an_upper_layer_that_pauses_behind_its_header() {
    let network = Network { lose: 7, ..CLEAN };
    let mut world = World::new(2, network, Config { interface_len: 9000, ..Config::default() });
    world.bind();
    world.ends[1].sink.pauses_after_headers = true;
    for tag in 0..200 {
        world.push(0, 2 * tag + 1, 5000);
    }
    let mut pauses = 0;
    for _ in 0..100_000 {
        if world.ends[1].sink.stream.len() == world.pushed[0].len() {
            break;
        }
        assert!(world.step());
        let End { association, sink, .. } = &mut world.ends[1];
        while std::mem::take(&mut sink.busy) {
            pauses += 1;
            association.resume(sink);
        }
    }
    assert!(pauses > 0 && world.ends[1].sink.placed > 0, "data was placed, and delivered in two steps");
    world.run_until_all_has_come();
}

#[test]
fn bytes_from_beyond_the_login_that_came_before_its_end_are_not_delivered() {
    let mut world = World::new(1, CLEAN, Config::default());
    world.push(0, 0, 20);
    world.run_until(|world| world.ends[1].sink.stream.len() == BHS_LEN + 20);
    // The client, or one that relays its login, sends under the login's keys what the server must not take: the packet
    // before it is lost.
    world.network.mtu = 0;
    world.push(0, 2, 100);
    world.send(0);
    world.network.mtu = CLEAN.mtu;
    world.push(0, 4, 100);
    world.send(0);
    while let Some(((at, _), (to, from, mut bytes))) = world.under_way.pop_first() {
        world.now = world.now.max(at);
        world.arrive(to, &from, &mut bytes);
    }
    world.ends[1].association.bind(&Binding::new("iqn.a", "iqn.b", Some(b"secret"), None));
    let End { association, sink, .. } = &mut world.ends[1];
    association.resume(sink);
    assert_eq!(sink.stream.len(), BHS_LEN + 20);
    assert_eq!(association.why_over().map(|why| why.code), Some(CloseCode::PROTOCOL));
}

/// A machine in the middle that has relayed the login knows its keys.
#[test]
fn the_logins_keys_use_up_no_numbers_once_there_are_others() {
    for packet_type in [PacketType::Ack, PacketType::Stream] {
        let mut world = World::new(1, CLEAN, Config::default());
        world.bind();
        for number in 0..200 {
            let mut header = Header::new(packet_type, world.ends[1].association.own_number, number);
            if packet_type == PacketType::Stream {
                header.flags = Flags::SEALED;
                header.bhs.copy_from_slice(&world.pushed[0][..BHS_LEN]);
            }
            let payload = if packet_type == PacketType::Stream { &world.pushed[0][BHS_LEN..] } else { &[] };
            let mut packet = [&header.emit()[..], payload].concat();
            world.ends[0].association.secret.login_keys(Role::Client).send.seal(&mut packet);
            world.arrive(1, &address(66), &mut packet);
        }
        world.push(0, 1, 50_000);
        world.run_until_all_has_come();
        assert_eq!(*world.ends[1].association.peer(), address(1));
    }
}

#[test]
fn a_black_hole_is_found_in_seconds() {
    for mtu in [1232, 1400, 4000] {
        let mut world = World::new(1, CLEAN, Config { interface_len: 9000, ..Config::default() });
        world.bind();
        world.push(0, 1, 100_000);
        world.run_until_all_has_come();
        world.network.mtu = mtu;
        let began = world.now;
        world.push(0, 3, 200_000);
        world.run_until_all_has_come();
        let took = world.now - began;
        assert!(took < Duration::from_secs(3), "{mtu}: {took:?}");
    }
}
