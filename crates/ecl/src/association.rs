//! One association: keys, packet numbers, the path and both streams together.
//!
//! # How to drive it
//!
//! - **A datagram came:** [`receive`](Association::receive). When it gives a [`StreamPacket`], hand it to
//!   [`take`](Association::take) with the [`Upper`] that the stream belongs to.
//! - **The upper layer can go on** after it could not: [`resume`](Association::resume).
//! - **There are PDUs to send:** [`push`](Association::push) them while [`wants_pdus`](Association::wants_pdus).
//! - **After a batch, and at [`next_timeout`](Association::next_timeout):** [`fill`](Association::fill), then send
//!   each [`packet`](Association::packet) and report with [`sent`](Association::sent).
//! - **The login has passed:** [`bind`](Association::bind).
//! - **The end:** [`finish`](Association::finish) or [`close`](Association::close); [`why_over`](Association::why_over)
//!   says that it has come, whichever side wanted it.

mod packet;
mod receiving;
mod sending;
mod time;
mod upper;

use std::collections::VecDeque;
use std::time::Duration;

use lunette_session::{OutgoingPdu, Time, Unacknowledged};

use self::packet::Packet;
pub use self::receiving::{Received, StreamPacket};
pub use self::upper::Upper;
use crate::close::{Close, CloseCode};
use crate::handshake::{Established, ResetToken};
use crate::incoming::Incoming;
use crate::limits::{MAX_CREDIT_BYTES, MAX_QUEUED_BYTES};
use crate::outgoing::{Cut, Outgoing};
use crate::path::address::CHALLENGE_LEN;
use crate::path::{Address, PathMtu, PeerAddress};
pub use crate::protection::Seal;
use crate::protection::{Binding, ExchangeSecret, Protection};
use crate::recovery::{Config as RecoveryConfig, CongestionControl, FLOWS, Recovery};
use crate::{Entropy, Role};

/// Bytes of PDUs that an association wants to have at hand, whatever its window.
const LEAST_QUEUED_BYTES: u64 = 256 * 1024;

/// The configuration of an association.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Bytes of the stream that the peer may send beyond what was delivered.
    pub credit_bytes: u64,
    /// The longest datagram that the interface takes, without IP and UDP headers.
    pub interface_len: usize,
    /// Which payloads are encrypted after the login, as far as this end goes: the stronger wish of both holds.
    pub seal: Seal,
    /// How much of what is sent may be in flight.
    pub congestion_control: CongestionControl,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            credit_bytes: 64 << 20,
            interface_len: 1472,
            seal: Seal::Headers,
            congestion_control: CongestionControl::Cubic,
        }
    }
}

/// The figures of the path, and the fate of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figures {
    /// The smoothed round-trip time.
    pub round_trip: Duration,
    /// Bytes that may be in flight.
    pub window: u64,
    /// Bytes in flight.
    pub bytes_in_flight: u64,
    /// Packets that were taken for lost, probes of the path's length not counted.
    pub lost: u64,
    /// Packets of these that came late.
    pub late: u64,
    /// The longest packet that the path carries, as far as it is known.
    pub datagram_len: usize,
}

/// The content of a packet in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    /// Bytes of the stream, in a datagram of that length.
    Stream { cut: Cut, packet_number: u64, len: u32 },
    /// A length that the path may carry.
    PathProbe(u32),
    /// Nothing that is sent again. That it arrives although longer ones do not tells of the path.
    Control { packet_number: u64, len: u32 },
}

/// Whether the association goes on.
#[derive(Debug)]
enum State {
    Open,
    /// The association ends when all that was pushed is acknowledged, or at that time.
    Finishing(Option<Time>),
    /// The association has ended. `told`: the peer knows, or is told by a packet that was built.
    Over {
        why: Close,
        told: bool,
    },
}

/// An association of two ends. `P` is how the upper layer names places.
pub struct Association<P> {
    role: Role,
    own_number: u32,
    peer_number: u32,
    reset_token: ResetToken,
    secret: ExchangeSecret,
    config: Config,
    protection: Protection,
    /// Up to where our stream may be under the login's keys, once there are others.
    login_end: Option<u64>,
    /// The first packet that was sent under the bound keys.
    first_bound_packet: Option<u64>,
    recovery: Recovery<Content>,
    outgoing: Outgoing,
    incoming: Incoming<P>,
    mtu: PathMtu,
    address: PeerAddress,
    /// Where the peer's stream may go to, as it was told last.
    told_credit: u64,
    /// Where ours may go to.
    peer_credit: u64,
    /// Built, and not yet taken by the socket.
    ready: VecDeque<Packet>,
    /// Bytes in their place whose header was delivered, and that the upper layer does not take yet: place, bytes before
    /// them, length.
    placed: Option<(P, usize, usize)>,
    /// A challenge of the peer that waits to be answered.
    response: Option<[u8; CHALLENGE_LEN]>,
    /// A packet must leave whatever the window says.
    probes: bool,
    /// When the pacer lets the next packet out.
    paced_until: Option<Time>,
    /// When a sender without credit asks for some.
    asks_credit_at: Option<Time>,
    largest_received: Option<u64>,
    /// Whether this end is about to leave.
    leaves_soon: bool,
    state: State,
}

impl<P> Association<P> {
    /// Begins with what the handshake gave. `peer` is the address that it has used.
    pub fn new(established: Established, peer: Address, config: Config, now: Time, entropy: &mut Entropy<'_>) -> Self {
        let Established { role, secret, own_number, peer_number, reset_token, peer_seal, round_trip } = established;
        let mtu = PathMtu::new(now, config.interface_len);
        let mut seed = [0; 8];
        entropy(&mut seed);
        let recovery = RecoveryConfig {
            datagram_len: mtu.datagram_len(),
            flows: FLOWS,
            control: config.congestion_control,
            seed: u64::from_ne_bytes(seed),
        };
        let credit_bytes = config.credit_bytes.clamp(INITIAL_CREDIT, MAX_CREDIT_BYTES);
        let mut recovery = Recovery::new(recovery, now);
        // Of none, the clock has not moved.
        if let Some(round_trip) = round_trip.filter(|round_trip| !round_trip.is_zero()) {
            recovery.on_handshake(round_trip, now);
        }
        Self {
            role,
            own_number,
            peer_number,
            reset_token,
            protection: Protection::new(role, secret.login_keys(role)),
            secret,
            config: Config { credit_bytes, seal: config.seal.max(peer_seal), ..config },
            login_end: None,
            first_bound_packet: None,
            recovery,
            outgoing: Outgoing::default(),
            incoming: Incoming::default(),
            mtu,
            address: PeerAddress::new(role, peer),
            told_credit: credit_bytes,
            // Until the peer says how much, a login fits.
            peer_credit: INITIAL_CREDIT,
            ready: VecDeque::new(),
            placed: None,
            response: None,
            probes: false,
            paced_until: None,
            asks_credit_at: None,
            largest_received: None,
            leaves_soon: false,
            state: State::Open,
        }
    }

    /// The number by which packets to this end name the association.
    pub fn number(&self) -> u32 {
        self.own_number
    }

    /// Where the peer is.
    pub fn peer(&self) -> &Address {
        self.address.current()
    }

    /// The figures of the path, and the fate of packets.
    pub fn figures(&self) -> Figures {
        Figures {
            round_trip: self.recovery.rtt().smoothed(),
            window: self.recovery.window(),
            bytes_in_flight: self.recovery.bytes_in_flight(),
            lost: self.recovery.lost(),
            late: self.recovery.late(),
            datagram_len: self.mtu.datagram_len(),
        }
    }

    /// Appends a PDU to the stream. Its data does not lie in files.
    pub fn push(&mut self, pdu: OutgoingPdu) {
        if matches!(self.state, State::Open) {
            self.outgoing.push(pdu);
        }
    }

    /// Whether more PDUs should be pushed: enough are at hand to keep the window full, and no more.
    pub fn wants_pdus(&self) -> bool {
        let wanted = self.recovery.window().saturating_mul(2).clamp(LEAST_QUEUED_BYTES, MAX_QUEUED_BYTES);
        matches!(self.state, State::Open) && (self.outgoing.queued_bytes() as u64) < wanted
    }

    /// The pushed bytes and PDUs that the peer has not acknowledged.
    pub fn unacknowledged(&self) -> Unacknowledged {
        self.outgoing.unacknowledged()
    }

    /// Bytes of PDUs that are kept until the peer has them.
    pub fn queued_bytes(&self) -> usize {
        self.outgoing.queued_bytes()
    }

    /// The login has passed: both sides know the same of each other, and derive their keys again. The server calls this
    /// when it has pushed its last login response, and the client when it has delivered it.
    pub fn bind(&mut self, binding: &Binding) {
        if self.login_end.is_none() {
            if self.incoming.has_gaps() {
                // Keys that a machine in the middle may know have brought bytes that do not belong to the login.
                return self.close(CloseCode::PROTOCOL, "bytes from beyond the login came before its end");
            }
            self.incoming.trust();
            self.login_end = Some(self.outgoing.end());
            self.protection.bind(self.secret.bound_keys(self.role, binding));
            // The server speaks under these keys when it has heard the client do so.
            self.probes = self.role == Role::Client;
        }
    }

    // The end.

    /// Ends the association when all that was pushed has arrived.
    pub fn finish(&mut self) {
        if matches!(self.state, State::Open) {
            self.state = State::Finishing(None);
        }
        self.leave_soon();
    }

    /// Announces that this end is about to leave: from now on a peer that cannot be heard is given up after a few
    /// probes, not after the time for outages of the network.
    pub fn leave_soon(&mut self) {
        self.leaves_soon = true;
    }

    /// Ends the association at once, and tells the peer.
    pub fn close(&mut self, code: CloseCode, text: &str) {
        if self.why_over().is_none() {
            self.state = State::Over { why: Close::new(code, text), told: false };
            self.ready.clear();
        }
    }

    /// The peer has ended it, or it cannot be reached.
    fn lost(&mut self, why: Close) {
        if self.why_over().is_none() {
            self.state = State::Over { why, told: true };
            self.ready.clear();
        }
    }

    /// Why the association has ended, once it has.
    pub fn why_over(&self) -> Option<&Close> {
        if let State::Over { why, .. } = &self.state { Some(why) } else { None }
    }

    /// Whether nothing more is to be sent or received: it can be forgotten.
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Over { told: true, .. }) && self.ready.is_empty()
    }
}

/// Credit that each side has without being told.
const INITIAL_CREDIT: u64 = 128 * 1024;

#[cfg(test)]
mod tests;
