//! Keys, and what they do to a packet.
//!
//! Each packet of an association but those of the [handshake](crate::handshake) is authenticated by the 16 bytes of its
//! header check, with AEGIS-128L (RFC 10032). The nonce is the packet number under the direction's initialization
//! vector, so it is never used twice.
//!
//! | | associated data | message | payload check |
//! |---|---|---|---|
//! | not sealed | bytes 0–63 and 80–127 of the header | none | CRC32C of the payload, which is authenticated as a part of the header |
//! | [sealed](crate::header::Flags::SEALED) | bytes 0–63 of the header | BHS and payload, encrypted | 0 |
//!
//! A direction has two sets of keys in its life. The *login keys* come from the exchange of the handshake alone. The
//! *bound keys* come from the exchange and a [`Binding`], which both sides compute when the login has passed;
//! [`Protection`] says which packets use which.
//!
//! Nothing here allocates.

use std::time::Duration;

use lunette_session::Time;

use crate::Role;
use crate::header::{Flags, HEADER_LEN, Header, HeaderError};

mod keys;
mod secret;

pub use keys::Keys;
pub use secret::{Binding, ExchangeSecret};

/// How long packets under the login keys are taken after the first one under bound keys came: packets that others have
/// overtaken.
pub const LOGIN_KEYS_KEPT: Duration = Duration::from_secs(3);

/// Which payloads are encrypted after the login, in which all are. Each end says in the handshake what it wants, and
/// the stronger holds for both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Seal {
    /// None: headers are authenticated, and the payload check is a part of the header. For quanta, which have tags of
    /// their own, and for networks that are trusted.
    #[default]
    Headers,
    /// All. Nothing else is taken from the peer.
    Everything,
}

/// Why a packet was not opened. It is dropped, and nothing of it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The front of the packet is no header.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// Packets of that type are not protected by these keys: they belong to the handshake.
    #[error("a packet of the handshake in an association")]
    Handshake,
    /// No keys for this packet exist: not yet the bound ones, or no longer those of the login.
    #[error("no keys for the packet: bound = {bound}")]
    NoKeys {
        /// Whether it is under the bound keys.
        bound: bool,
    },
    /// The packet's number is beyond the limit of one key.
    #[error("packet number {0} is beyond what one key protects")]
    Exhausted(u64),
    /// The header check does not fit: damaged, forged, or meant for another association.
    #[error("the header check does not fit")]
    Check,
    /// The payload is not the one that was sent: damaged on the way.
    #[error("the payload check does not fit")]
    Payload,
}

/// The keys of both directions of an association.
#[derive(Debug)]
pub struct PacketKeys {
    /// For the packets that this end sends.
    pub send: Keys,
    /// For the packets that the peer sends.
    pub receive: Keys,
}

/// The keys that an association has at a time, and the change from login keys to bound keys.
///
/// The server computes the bound keys before it sends the final response of the login, and the client when it has that
/// response. So the client can use them at once ([`Protection::bind`]); the server first receives a packet under them,
/// which shows that the client has them, and sends under the login keys until then. What it sends in the meantime must
/// belong to the login: [`Protection::sends_bound`] says when other stream bytes may go.
///
/// Login keys are known to a machine in the middle that relays CHAP. So from a packet under them that comes after
/// [`Protection::bind`] the association takes nothing but what an Ack packet says of packets that were sent under them.
#[derive(Debug)]
pub struct Protection {
    role: Role,
    login: Option<PacketKeys>,
    bound: Option<PacketKeys>,
    /// When the first packet under bound keys came.
    confirmed: Option<Time>,
}

impl Protection {
    /// Begins with the keys of the handshake.
    pub const fn new(role: Role, login: PacketKeys) -> Self {
        Self { role, login: Some(login), bound: None, confirmed: None }
    }

    /// Takes the bound keys: the login has passed. The second call of an association changes nothing.
    pub fn bind(&mut self, bound: PacketKeys) {
        self.bound.get_or_insert(bound);
    }

    /// Whether packets are sent under the bound keys from now on.
    pub const fn sends_bound(&self) -> bool {
        match self.role {
            Role::Client => self.bound.is_some(),
            Role::Server => self.confirmed.is_some(),
        }
    }

    /// The flags that name the keys of a packet to be sent: they must be in its header.
    pub const fn flags(&self) -> Flags {
        if self.sends_bound() { Flags::BOUND } else { Flags(0) }
    }

    /// The keys of packets to be sent with these [flags](Self::flags).
    pub fn send_keys(&self) -> &Keys {
        let keys = if self.sends_bound() { &self.bound } else { &self.login };
        &keys.as_ref().expect("login keys are kept until bound keys are in use").send
    }

    /// Verifies a packet and decrypts it in place, with the keys that its flags name; see [`Keys::open`].
    ///
    /// # Errors
    ///
    /// [`OpenError`]. The packet's bytes are then undefined.
    pub fn open(&mut self, now: Time, packet: &mut [u8]) -> Result<Header, OpenError> {
        self.open_with(now, packet, Keys::open)
    }

    /// [`open`](Self::open) without a look at the payload check; see [`Keys::open_header`].
    ///
    /// # Errors
    ///
    /// [`OpenError`], but never [`OpenError::Payload`].
    pub fn open_header(&mut self, now: Time, packet: &mut [u8]) -> Result<Header, OpenError> {
        self.open_with(now, packet, Keys::open_header)
    }

    fn open_with(
        &mut self,
        now: Time,
        packet: &mut [u8],
        open: fn(&Keys, &mut [u8]) -> Result<Header, OpenError>,
    ) -> Result<Header, OpenError> {
        if packet.len() < HEADER_LEN {
            return Err(HeaderError::Short(packet.len()).into());
        }
        self.retire_login_keys(now);
        let bound = Flags(packet[1]).contains(Flags::BOUND);
        let keys = if bound { &self.bound } else { &self.login };
        let header = open(&keys.as_ref().ok_or(OpenError::NoKeys { bound })?.receive, packet)?;
        if bound {
            self.confirmed.get_or_insert(now);
        }
        Ok(header)
    }

    /// Erases the login keys when their time is over.
    fn retire_login_keys(&mut self, now: Time) {
        if self.confirmed.is_some_and(|confirmed| now - confirmed > LOGIN_KEYS_KEPT) {
            self.login = None;
        }
    }
}

#[cfg(test)]
mod tests;
