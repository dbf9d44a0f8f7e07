//! A machine that sees datagrams, sends what it likes from any address, and has addresses of its own. It has no keys.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use lunette_ecl::handshake::{Client, Received};
use lunette_ecl::header::{BHS_AT, CHECK_AT, HEADER_LEN, Header, PacketType, association_of};
use lunette_session::Time;

use super::{Flight, target_address};
use crate::dice::Dice;
use crate::env::Env;
use crate::wire::Side;

/// Initial packets of one flood, and handshakes that are begun at once.
const MAX_FLOOD: u64 = 100;
const MAX_BEGUN: u64 = 20;

/// The network of the attacker's own addresses: 127.66.0.0/16.
const NETWORK: u8 = 66;

/// The attacker.
#[derive(Default)]
pub(super) struct Attacker {
    /// Handshakes that were begun, by the address that they are begun from.
    begun: BTreeMap<SocketAddr, Client>,
}

impl Attacker {
    /// Begins handshakes.
    pub(super) fn begin(&mut self, env: &mut Env) -> Vec<Flight> {
        let count = env.dice.between(1, MAX_BEGUN);
        let now = env.now;
        let mut one = || {
            let from = address(&mut env.dice);
            let (client, bytes) = initial(now, &mut env.dice);
            self.begun.insert(from, client);
            Flight { from, to: target_address(), is_marked: false, bytes }
        };
        (0..count).map(|_| one()).collect()
    }

    /// The target has sent something to it: the next packet of a handshake, if it has a next one.
    pub(super) fn hear(&mut self, flight: &Flight, now: Time) -> Option<Flight> {
        let client = self.begun.get_mut(&flight.to)?;
        match client.receive(now, &flight.bytes) {
            Received::Retry => {
                let bytes = client.transmit(now).ok()??.to_vec();
                Some(Flight { from: flight.to, to: flight.from, is_marked: false, bytes })
            }
            Received::Foreign | Received::Established(_) => None,
        }
    }
}

/// An address of the attacker's own.
pub(super) fn address(dice: &mut Dice) -> SocketAddr {
    ([127, NETWORK, 0, dice.between(1, 3) as u8], dice.between(1, 60_000) as u16).into()
}

/// Whether what goes there comes to the attacker.
pub(super) fn owns(address: SocketAddr) -> bool {
    matches!(address, SocketAddr::V4(address) if address.ip().octets()[1] == NETWORK)
}

/// Initial packets without a token, from addresses that are not the attacker's.
pub(super) fn flood(env: &mut Env) -> Vec<Flight> {
    let count = env.dice.between(1, MAX_FLOOD);
    let (_, bytes) = initial(env.now, &mut env.dice);
    let mut one = || {
        let [host, port] = env.dice.bytes();
        let from = ([127, 55, 0, host], 7000 + u16::from(port)).into();
        Flight { from, to: target_address(), is_marked: false, bytes: bytes.clone() }
    };
    (0..count).map(|_| one()).collect()
}

/// A datagram that resembles one that the attacker has seen.
pub(super) fn forge(to: Side, seen: &Flight, env: &mut Env) -> Flight {
    let from = match to {
        // Sockets of initiators hear the target's address alone.
        Side::Initiator => target_address(),
        Side::Target if env.dice.coin() => address(&mut env.dice),
        Side::Target => seen.from,
    };
    Flight { from, bytes: forged(&seen.bytes, &mut env.dice), ..seen.clone() }
}

fn forged(seen: &[u8], dice: &mut Dice) -> Vec<u8> {
    match dice.below(4) {
        0 => {
            let mut noise = vec![0; dice.place(2000)];
            dice.fill(&mut noise);
            noise
        }
        // A packet of some type for the right association.
        1 => {
            let association = association_of(seen).unwrap_or_default();
            let header = Header::new(dice.pick(&PacketType::ALL), association, dice.below(1 << 20));
            let mut bytes = header.emit().to_vec();
            dice.fill(&mut bytes[CHECK_AT..BHS_AT]);
            bytes.resize(HEADER_LEN + dice.pick(&[0, 0, 8, 36, 48, 68, 1104]), 0);
            bytes
        }
        // A true one, a little changed.
        _ => {
            let mut bytes = seen.to_vec();
            for _ in 0..dice.between(1, 8) {
                let at = dice.place(bytes.len());
                bytes[at] ^= dice.between(1, 255) as u8;
            }
            bytes
        }
    }
}

/// A handshake, and its first packet.
fn initial(now: Time, dice: &mut Dice) -> (Client, Vec<u8>) {
    let number = dice.between(1, u64::from(u32::MAX)) as u32;
    let mut client = Client::new(now, number, &mut |bytes| dice.fill(bytes));
    let bytes = client.transmit(now).ok().flatten().map(|bytes| bytes.to_vec());
    (client, bytes.unwrap_or_default())
}
