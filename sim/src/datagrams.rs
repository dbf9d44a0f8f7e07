//! Datagrams: lost, repeated, overtaken, damaged, forged, and of clients whose addresses change.
//!
//! The event loops of both sides have sockets through which nothing passes: what they send is taken here, travels under
//! the virtual clock, and is brought to the other side when it arrives. Addresses are those of 127.0.0.0/8, in which
//! the system connects sockets without a network.

mod attacker;
mod strike;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use lunette_ecl::header::Header;
use lunette_reactor::{Address, CarriedDatagram, DatagramFailure, DatagramPath, DatagramSocketId, Ecn};
use lunette_session::Time;

use self::attacker::Attacker;
use crate::clients::Clients;
use crate::env::{Env, Happening};
use crate::fault::{Fault, FaultKind};
use crate::server::Server;
use crate::wire::Side;

/// IP and UDP headers, as endpoints count them.
const IP_AND_UDP_LEN: usize = 48;

/// The least MTU that a path has.
const LEAST_MTU: usize = 1280;

/// Datagrams of the past that an attacker knows, of each direction.
const RECORDED: usize = 64;

/// The number of datagrams to which shares refer.
const MILLION: u64 = 1_000_000;

/// Where the target is.
pub(crate) fn target_address() -> SocketAddr {
    ([127, 0, 0, 7], 3260).into()
}

/// A datagram under way.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Flight {
    from: SocketAddr,
    to: SocketAddr,
    is_marked: bool,
    bytes: Vec<u8>,
}

/// The datagrams to one side.
struct Direction {
    /// The time before which datagrams are held.
    held_until: Time,
    /// The time before which datagrams are lost.
    blocked_until: Time,
    /// The number of next datagrams to be lost, or marked.
    losing: u64,
    marking: u64,
    /// The longest IP packet that the path carries, and the one that the sender's interface does.
    mtu: usize,
    interface_mtu: usize,
    bytes_in_flight: usize,
    recorded: VecDeque<Flight>,
}

impl Default for Direction {
    fn default() -> Self {
        Self {
            held_until: Time::default(),
            blocked_until: Time::default(),
            losing: 0,
            marking: 0,
            mtu: usize::MAX,
            interface_mtu: usize::MAX,
            bytes_in_flight: 0,
            recorded: VecDeque::new(),
        }
    }
}

/// The network of datagrams.
#[derive(Default)]
pub(crate) struct Datagrams {
    flights: BTreeMap<u64, (Side, Flight)>,
    last: u64,
    /// By the side that receives.
    directions: [Direction; 2],
    armed: Vec<Fault>,
    /// The sockets of initiators behind the addresses that the network knows them by.
    public: BTreeMap<DatagramSocketId, SocketAddr>,
    sockets: BTreeMap<SocketAddr, DatagramSocketId>,
    addresses: u16,
    /// Addresses of initiators whose datagrams to that side are lost for good.
    dead: BTreeSet<(SocketAddr, Side)>,
    attacker: Attacker,
    /// The failures that the system reports to senders.
    failures: Vec<(Side, SocketAddr, DatagramFailure)>,
}

impl Datagrams {
    pub(crate) fn arm(&mut self, fault: Fault) {
        self.armed.push(fault);
    }

    /// Whether nothing is under way.
    pub(crate) fn is_still(&self) -> bool {
        self.flights.is_empty()
    }

    // Sending.

    /// Takes what both sides have sent.
    pub(crate) fn take(&mut self, server: &mut Server, clients: &mut Clients, env: &mut Env) {
        for sent in server.take_datagrams() {
            if let Address::Udp(to) = sent.path.peer {
                self.send(
                    Side::Initiator,
                    Flight { from: target_address(), to, is_marked: false, bytes: sent.bytes },
                    env,
                );
            }
        }
        for CarriedDatagram { socket, bytes, .. } in clients.take_datagrams() {
            let from = self.public(socket);
            self.send(Side::Target, Flight { from, to: target_address(), is_marked: false, bytes }, env);
        }
        for (sender, address, failure) in std::mem::take(&mut self.failures) {
            match sender {
                Side::Target => server.fail_datagram(failure),
                Side::Initiator => {
                    if let Some(socket) = self.sockets.get(&address) {
                        clients.fail_datagram(*socket, failure);
                    }
                }
            }
        }
    }

    /// The address of a socket of an initiator.
    fn public(&mut self, socket: DatagramSocketId) -> SocketAddr {
        if let Some(address) = self.public.get(&socket) {
            return *address;
        }
        let address = self.new_address([127, 0, 1, 1]);
        self.name(socket, address);
        address
    }

    fn name(&mut self, socket: DatagramSocketId, address: SocketAddr) {
        if let Some(before) = self.public.insert(socket, address) {
            self.sockets.remove(&before);
        }
        self.sockets.insert(address, socket);
    }

    /// An address that was not used before.
    fn new_address(&mut self, host: [u8; 4]) -> SocketAddr {
        self.addresses += 1;
        (host, 1000 + self.addresses).into()
    }

    /// A side has sent a datagram.
    fn send(&mut self, to: Side, flight: Flight, env: &mut Env) {
        env.tally.bytes += flight.bytes.len() as u64;
        if to == Side::Initiator && attacker::owns(flight.to) {
            let answer = self.attacker.hear(&flight, env.now);
            return self.launch_all(Side::Target, answer, env);
        }
        let direction = &mut self.directions[to as usize];
        if direction.recorded.len() == RECORDED {
            direction.recorded.pop_front();
        }
        direction.recorded.push_back(flight.clone());
        let len = flight.bytes.len() + IP_AND_UDP_LEN;
        if len > direction.interface_mtu {
            let path = DatagramPath { local: flight.from.into(), peer: flight.to.into() };
            let failure = DatagramFailure::TooLong { path, len: flight.bytes.len() };
            return self.failures.push((other(to), flight.from, failure));
        }
        let Some(flight) = self.strike(to, flight, env) else { return };
        self.travel(to, flight, env);
    }

    /// A datagram goes the way that all go.
    fn travel(&mut self, to: Side, mut flight: Flight, env: &mut Env) {
        let air = env.scenario.air;
        let direction = &mut self.directions[to as usize];
        let is_unlucky = env.dice.below(MILLION) < air.lost;
        if is_unlucky {
            env.tally.fault(FaultKind::Lost, to);
        }
        let is_lost = is_unlucky
            || env.now < direction.blocked_until
            || flight.bytes.len() + IP_AND_UDP_LEN > direction.mtu
            || direction.bytes_in_flight + flight.bytes.len() > env.scenario.weather.capacity
            || self.dead.contains(&(client_of(&flight), to));
        if counts_down(&mut direction.losing) || is_lost {
            env.tally.happening("datagrams lost");
            return note(&flight, to, "is lost", env);
        }
        flight.is_marked = counts_down(&mut direction.marking);
        if env.dice.below(MILLION) < air.marked {
            env.tally.fault(FaultKind::Marked, to);
            flight.is_marked = true;
        }
        if env.dice.below(MILLION) < air.damaged {
            env.tally.fault(FaultKind::Data, to);
            damage(&mut flight.bytes, env);
        }
        if env.dice.below(MILLION) < air.repeated {
            env.tally.fault(FaultKind::Repeated, to);
            self.launch(to, flight.clone(), env.dice.micros(0, 10_000), env);
        }
        self.launch(to, flight, Duration::ZERO, env);
    }

    /// A datagram is under way, and arrives so much later than others.
    fn launch(&mut self, to: Side, flight: Flight, late: Duration, env: &mut Env) {
        let weather = env.scenario.weather;
        let direction = &mut self.directions[to as usize];
        let span = Duration::from_micros(weather.latency_us) + env.dice.micros(0, weather.jitter_us) + late;
        let at = (env.now + span).max(direction.held_until);
        direction.bytes_in_flight += flight.bytes.len();
        self.last += 1;
        note(&flight, to, "is sent", env);
        env.enter(at, Happening::Land(self.last));
        self.flights.insert(self.last, (to, flight));
    }

    fn launch_all(&mut self, to: Side, flights: impl IntoIterator<Item = Flight>, env: &mut Env) {
        for flight in flights {
            self.launch(to, flight, Duration::ZERO, env);
        }
    }

    // Receiving.

    /// A datagram arrives.
    pub(crate) fn land(&mut self, id: u64, server: &mut Server, clients: &mut Clients, env: &mut Env) {
        let Some((to, flight)) = self.flights.remove(&id) else { return };
        self.directions[to as usize].bytes_in_flight -= flight.bytes.len();
        note(&flight, to, "arrives", env);
        env.tally.happening("datagrams arrived");
        let Flight { from, to: address, is_marked, bytes } = flight;
        let ecn = if is_marked { Ecn::Ce } else { Ecn::Ect0 };
        let path = DatagramPath { local: address.into(), peer: from.into() };
        match to {
            Side::Target if server.is_there() => server.arrive(path, ecn, bytes),
            Side::Target if env.scenario.air.refuses => {
                if let Some(socket) = self.sockets.get(&from) {
                    clients.fail_datagram(*socket, strike::refused());
                }
            }
            Side::Target => {}
            Side::Initiator => {
                if let Some(socket) = self.sockets.get(&address) {
                    clients.arrive(*socket, path, ecn, bytes);
                }
            }
        }
    }
}

/// The initiator's address of a datagram.
fn client_of(flight: &Flight) -> SocketAddr {
    if flight.to == target_address() { flight.from } else { flight.to }
}

fn other(side: Side) -> Side {
    match side {
        Side::Target => Side::Initiator,
        Side::Initiator => Side::Target,
    }
}

/// Whether one of a number is left, which is taken.
fn counts_down(left: &mut u64) -> bool {
    let any = *left > 0;
    *left -= u64::from(any);
    any
}

/// Changes a byte, or several.
fn damage(bytes: &mut [u8], env: &mut Env) {
    for _ in 0..=env.dice.below(3) {
        if !bytes.is_empty() {
            bytes[env.dice.place(bytes.len())] ^= env.dice.between(1, 255) as u8;
        }
    }
}

fn note(flight: &Flight, to: Side, what: &str, env: &mut Env) {
    env.note(|| {
        let Flight { from, to: address, bytes, .. } = flight;
        let header = Header::parse(bytes).map(|header| {
            let Header { packet_type, packet_number, stream_offset, acknowledged, .. } = header;
            format!("{packet_type:?} {packet_number} at {stream_offset}, acknowledges {}", acknowledged.largest)
        });
        let header = header.unwrap_or_else(|error| error.to_string());
        format!("datagram to the {to:?} {what}: {header}, {} bytes from {from} to {address}", bytes.len())
    });
}
