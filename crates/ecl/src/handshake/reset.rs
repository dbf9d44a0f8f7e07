//! Reset: how a server that has lost an association says so.

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::mac::mac;
use crate::header::{BHS_AT, CHECK_AT, CHECK_LEN, HEADER_LEN, Header, PacketType};
use crate::path::Address;

/// The secret by which a server that has lost an association resets it: a MAC of the association's number and of the
/// client's address in the handshake. So no other host can ask the server for it.
#[derive(Debug, Clone, Copy)]
pub struct ResetToken([u8; Self::LEN]);

/// The secret of a server's [reset tokens](ResetToken). A server that keeps it over a restart can tell its clients at
/// once that their associations are gone; with another one they wait for their timeout.
#[derive(Clone)]
pub struct ResetSecret(Zeroizing<[u8; 32]>);

impl ResetToken {
    /// The length of a token: a Reset has it in the place of the header check.
    pub const LEN: usize = CHECK_LEN;

    pub(super) const fn new(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    pub(super) const fn bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }

    /// Whether `packet` is the Reset of this association, whose number at the server is `peer_number`.
    pub fn matches(&self, peer_number: u32, packet: &[u8]) -> bool {
        // What it says it is tells nothing of the token, and spares every other packet the comparison.
        packet.len() == HEADER_LEN
            && packet[0] & 0x0f == PacketType::Reset as u8
            && self.packet(peer_number).ct_eq(packet).into()
    }

    fn packet(&self, association: u32) -> [u8; HEADER_LEN] {
        let mut packet = Header::new(PacketType::Reset, association, 0).emit();
        packet[CHECK_AT..BHS_AT].copy_from_slice(&self.0);
        packet
    }
}

impl PartialEq for ResetToken {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for ResetToken {}

impl ResetSecret {
    /// Takes 32 random bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The token of the association with that number at the server, whose client is at `client`.
    pub fn token(&self, association: u32, client: &Address) -> ResetToken {
        ResetToken(mac(&self.0, &[&association.to_be_bytes(), &client.to_bytes()]))
    }

    /// The Reset that answers a packet from `source` of an association that the server does not know. `None` when the
    /// packet is none that a client sends in an association.
    pub fn answer(&self, source: &Address, packet: &[u8]) -> Option<[u8; HEADER_LEN]> {
        let header = Header::parse(packet).ok()?;
        header.packet_type.is_protected().then(|| self.token(header.association, source).packet(header.association))
    }
}

impl std::fmt::Debug for ResetSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ResetSecret(..)")
    }
}
