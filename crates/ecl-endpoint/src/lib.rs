//! The Effective Cross Layer on sockets: associations as connections of a handler.
//!
//! Floor 4 of the house, between `ecl` with `reactor` below, and the target and the initiator above. An [`Endpoint`] is a
//! [`Handler`](lunette_reactor::Handler) around another one, which it calls the [`Upper`] one. Everything that concerns streams it hands on. Datagrams it
//! makes into associations, and each association into a [virtual connection](lunette_reactor::Context::open_virtual) of the upper handler: accepted,
//! received from, sent to and closed like all others. So what the upper handler does with sessions and tasks is the same for both transports.
//!
//! The upper handler has four more things to do for virtual connections: it gives [PDUs](Upper::take_pdu) instead of slices, says when it
//! [takes](Upper::takes) bytes, gives data [places](Upper::place_early) ahead of its turn, and says when a login has
//! [bound](Upper::binding) both sides.
//!
//! An endpoint answers Initial packets at the datagram sockets that the upper handler has opened, and begins an association when the
//! upper handler asks for a virtual connection.

#![forbid(unsafe_code)]

mod above;
mod addresses;
mod dialing;
mod endpoint;
mod handler;
mod listening;
mod peers;
mod sending;
mod upper;

pub use endpoint::{Config, Endpoint, RandomBytes};
pub use upper::{DatagramOptions, SocketChange, Upper};

#[cfg(test)]
mod tests;
