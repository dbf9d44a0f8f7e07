//! The packets of the handshake as bytes: the tables of [`handshake`](super).

use lunette_crc32c::crc32c;

use super::token::Token;
use super::{ResetToken, token::TOKEN_LEN};
use crate::header::{HEADER_LEN, Header, PacketType};
use crate::limits::MIN_DATAGRAM_LEN;
use crate::protection::Seal;

/// The length of a public key of X25519.
pub(super) const KEY_LEN: usize = 32;

/// The length of Poly1305's tag.
const TAG_LEN: usize = 16;

/// The length of the second message of the exchange.
pub(super) const ACCEPT_MESSAGE_LEN: usize = KEY_LEN + Parameters::LEN + TAG_LEN;

/// The length of an Initial packet. A path that does not carry it carries no association.
pub const INITIAL_LEN: usize = MIN_DATAGRAM_LEN;

/// The length of a Retry packet.
pub const RETRY_LEN: usize = HEADER_LEN + TOKEN_LEN + KEY_LEN;

/// The length of an Accept packet.
pub const ACCEPT_LEN: usize = HEADER_LEN + ACCEPT_MESSAGE_LEN;

// A server never answers with more than it got.
const _: () = assert!(RETRY_LEN <= INITIAL_LEN && ACCEPT_LEN <= INITIAL_LEN);

/// An ephemeral public key.
pub(super) type EphemeralKey = [u8; KEY_LEN];

/// The client's packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Initial {
    pub(super) key: EphemeralKey,
    /// The client's number for the association.
    pub(super) number: u32,
    /// The token of Retry, or zeroes.
    pub(super) token: Token,
    /// The encryption that the client wants.
    pub(super) seal: Seal,
}

/// The server's packet that asks for another Initial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Retry {
    /// The client's number.
    pub(super) number: u32,
    pub(super) token: Token,
    /// The key of the Initial.
    pub(super) key: EphemeralKey,
}

/// The server's packet that begins an association.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Accept {
    /// The client's number.
    pub(super) number: u32,
    pub(super) message: [u8; ACCEPT_MESSAGE_LEN],
}

/// The parameters of the server in the second message, encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parameters {
    /// The server's number for the association.
    pub(super) number: u32,
    pub(super) reset_token: ResetToken,
    /// The encryption that the server wants.
    pub(super) seal: Seal,
}

impl Initial {
    pub(super) fn emit(&self) -> [u8; INITIAL_LEN] {
        packet(PacketType::Initial, 0, &[&self.key, &self.number.to_be_bytes(), &self.token, &[self.seal as u8]])
    }

    /// `None` for anything but an Initial of this version, to the last bit.
    pub(super) fn parse(datagram: &[u8]) -> Option<Self> {
        let datagram: &[u8; INITIAL_LEN] = datagram.try_into().ok()?;
        let payload = &datagram[HEADER_LEN..];
        let initial = Self {
            key: take(payload, 0),
            number: u32::from_be_bytes(take(payload, 32)),
            token: take(payload, 36),
            seal: seal_of(payload[52])?,
        };
        (initial.number != 0 && *datagram == initial.emit()).then_some(initial)
    }
}

impl Retry {
    pub(super) fn emit(&self) -> [u8; RETRY_LEN] {
        packet(PacketType::Retry, self.number, &[&self.token, &self.key])
    }

    /// `None` for anything but a Retry of this version, to the last bit.
    pub(super) fn parse(datagram: &[u8]) -> Option<Self> {
        let datagram: &[u8; RETRY_LEN] = datagram.try_into().ok()?;
        let payload = &datagram[HEADER_LEN..];
        let retry = Self { number: association(datagram), token: take(payload, 0), key: take(payload, TOKEN_LEN) };
        (*datagram == retry.emit()).then_some(retry)
    }
}

impl Accept {
    pub(super) fn emit(&self) -> [u8; ACCEPT_LEN] {
        packet(PacketType::Accept, self.number, &[&self.message])
    }

    /// `None` for anything but an Accept of this version, to the last bit of its header.
    pub(super) fn parse(datagram: &[u8]) -> Option<Self> {
        let datagram: &[u8; ACCEPT_LEN] = datagram.try_into().ok()?;
        let accept = Self { number: association(datagram), message: take(datagram, HEADER_LEN) };
        (*datagram == accept.emit()).then_some(accept)
    }
}

impl Parameters {
    pub(super) const LEN: usize = 4 + ResetToken::LEN + 1;

    pub(super) fn emit(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&self.number.to_be_bytes());
        bytes[4..20].copy_from_slice(self.reset_token.bytes());
        bytes[20] = self.seal as u8;
        bytes
    }

    pub(super) fn parse(bytes: &[u8; Self::LEN]) -> Option<Self> {
        Some(Self {
            number: u32::from_be_bytes(take(bytes, 0)),
            reset_token: ResetToken::new(take(bytes, 4)),
            seal: seal_of(bytes[20])?,
        })
    }
}

/// The encryption that a peer wants; `None` for bytes that this version does not have.
fn seal_of(byte: u8) -> Option<Seal> {
    [Seal::Headers, Seal::Everything].into_iter().find(|seal| *seal as u8 == byte)
}

/// A packet of the handshake: header, the parts of the payload, zeroes up to its length.
fn packet<const LEN: usize>(packet_type: PacketType, association: u32, parts: &[&[u8]]) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    let mut at = HEADER_LEN;
    for part in parts {
        bytes[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    let header = Header { payload_check: crc32c(&bytes[HEADER_LEN..]), ..Header::new(packet_type, association, 0) };
    bytes[..HEADER_LEN].copy_from_slice(&header.emit());
    bytes
}

/// The receiver's number in the header.
fn association(datagram: &[u8]) -> u32 {
    u32::from_be_bytes(take(datagram, 4))
}

/// The `N` bytes at `at`, which the caller knows to be there.
fn take<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|i| bytes[at + i])
}
