//! The effect of a fault on datagrams.

use std::io;
use std::time::Duration;

use lunette_ecl::header::HEADER_LEN;
use lunette_reactor::DatagramFailure;

use super::{Datagrams, Flight, IP_AND_UDP_LEN, LEAST_MTU, attacker, client_of, damage, other};
use crate::env::Env;
use crate::fault::{Fault, FaultKind};
use crate::wire::Side;

/// The system's report on a port that does not exist.
pub(super) fn refused() -> DatagramFailure {
    DatagramFailure::Network(io::ErrorKind::ConnectionRefused.into())
}

impl Datagrams {
    /// The faults that have waited for this datagram. Gives what is left of it to go its way.
    pub(super) fn strike(&mut self, to: Side, flight: Flight, env: &mut Env) -> Option<Flight> {
        let mut struck = Vec::new();
        self.armed.retain_mut(|fault| {
            let is_due = fault.to == to && fault.skip == 0;
            if is_due {
                struck.push(*fault);
            } else if fault.to == to {
                fault.skip -= 1;
            }
            !is_due
        });
        struck.into_iter().try_fold(flight, |flight, fault| self.strike_with(fault, flight, env))
    }

    fn strike_with(&mut self, Fault { kind, to, .. }: Fault, mut flight: Flight, env: &mut Env) -> Option<Flight> {
        env.tally.fault(kind, to);
        env.note(|| format!("datagrams to the {to:?}: {}", kind.name()));
        match kind {
            FaultKind::Silence | FaultKind::Vanished => {
                let client = client_of(&flight);
                self.dead.insert((client, to));
                if kind == FaultKind::Vanished {
                    self.dead.insert((client, other(to)));
                }
            }
            FaultKind::Repeated => {
                for _ in 0..env.dice.between(1, 8) {
                    let late = env.dice.micros(0, 1_000_000);
                    self.launch(to, flight.clone(), late, env);
                }
            }
            FaultKind::Overtaken => {
                let late = env.dice.micros(1000, 2_000_000);
                self.launch(to, flight, late, env);
                return None;
            }
            FaultKind::Header | FaultKind::Data => {
                let header_len = HEADER_LEN.min(flight.bytes.len());
                let (header, payload) = flight.bytes.split_at_mut(header_len);
                damage(if kind == FaultKind::Header || payload.is_empty() { header } else { payload }, env);
            }
            FaultKind::Length => {
                let len = env.dice.place(flight.bytes.len() + 40);
                flight.bytes.resize(len, 0);
            }
            FaultKind::Moved => self.move_client(&mut flight, env),
            FaultKind::Stolen => {
                let stolen = Flight { from: attacker::address(&mut env.dice), ..flight.clone() };
                self.launch(to, stolen, Duration::ZERO, env);
                if env.dice.coin() {
                    let late = env.dice.micros(0, 500_000);
                    self.launch(to, flight, late, env);
                }
                return None;
            }
            FaultKind::Reflected => {
                let back = Flight { from: flight.to, to: flight.from, ..flight.clone() };
                self.launch(other(to), back, Duration::ZERO, env);
            }
            FaultKind::Unreachable => self.failures.push((Side::Initiator, flight.from, refused())),
            FaultKind::Replayed | FaultKind::Forged | FaultKind::Flood | FaultKind::HalfOpen => {
                self.attack(kind, to, &flight, env);
            }
            kind => self.change_direction(kind, to, env),
        }
        Some(flight)
    }

    fn attack(&mut self, kind: FaultKind, to: Side, seen: &Flight, env: &mut Env) {
        match kind {
            FaultKind::Replayed => self.replay(to, env),
            FaultKind::Forged => {
                for _ in 0..env.dice.between(1, 40) {
                    let forged = attacker::forge(to, seen, env);
                    let late = env.dice.micros(0, 100_000);
                    self.launch(to, forged, late, env);
                }
            }
            FaultKind::Flood => self.launch_all(to, attacker::flood(env), env),
            _ => {
                let begun = self.attacker.begin(env);
                self.launch_all(to, begun, env);
            }
        }
    }

    fn change_direction(&mut self, kind: FaultKind, to: Side, env: &mut Env) {
        let direction = &mut self.directions[to as usize];
        match kind {
            FaultKind::Lost => direction.losing = env.dice.between(1, 30),
            FaultKind::Marked => direction.marking = env.dice.between(1, 20),
            FaultKind::Lag => direction.held_until = env.now + env.dice.micros(1000, 500_000),
            FaultKind::Stall => direction.held_until = env.now + env.dice.micros(500_000, 90_000_000),
            FaultKind::Blocked => direction.blocked_until = env.now + env.dice.micros(50_000, 60_000_000),
            FaultKind::Wide => (direction.mtu, direction.interface_mtu) = (usize::MAX, usize::MAX),
            FaultKind::Narrow | FaultKind::NarrowInterface => {
                let most = (env.scenario.air.mtu as usize).min(direction.mtu).min(direction.interface_mtu);
                let mtu = env.dice.between(LEAST_MTU as u64, most as u64) as usize;
                if kind == FaultKind::Narrow {
                    direction.mtu = mtu;
                } else {
                    direction.interface_mtu = mtu;
                }
            }
            // The others are of streams.
            _ => {}
        }
    }

    /// The initiator behind a datagram has another address from now on; what goes to the one before is lost.
    fn move_client(&mut self, flight: &mut Flight, env: &mut Env) {
        let Some(socket) = self.sockets.get(&flight.from).copied() else { return };
        let host = if env.dice.coin() { [127, 0, 1, 1] } else { [127, 0, 2, env.dice.between(1, 250) as u8] };
        let address = self.new_address(host);
        for side in [Side::Target, Side::Initiator] {
            if self.dead.contains(&(flight.from, side)) {
                self.dead.insert((address, side));
            }
        }
        self.name(socket, address);
        flight.from = address;
    }

    /// Datagrams of the past come again.
    fn replay(&mut self, to: Side, env: &mut Env) {
        for _ in 0..env.dice.between(1, 40) {
            let recorded = &self.directions[to as usize].recorded;
            let mut flight = recorded[env.dice.place(recorded.len())].clone();
            // Sockets of initiators hear the target's address alone.
            if to == Side::Target && env.dice.coin() {
                flight.from = attacker::address(&mut env.dice);
            }
            let longest = env.dice.pick(&[100_000, 100_000, 100_000, 30_000_000]);
            let late = env.dice.micros(0, longest);
            self.launch(to, flight, late, env);
        }
    }
}

const _: () = assert!(LEAST_MTU - IP_AND_UDP_LEN == lunette_ecl::limits::MIN_DATAGRAM_LEN);
