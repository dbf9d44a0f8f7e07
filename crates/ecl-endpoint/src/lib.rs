//! The Effective Cross Layer on sockets: associations as connections of a handler.
//!
//! Layer 3: over ecl, pdu, reactor, session; under iscsi-initiator, iscsi-target.
//!
//! An [`Endpoint`] is a [`Handler`](lunette_reactor::Handler) around another one, the [`Upper`] handler. It passes on
//! everything that concerns streams. It turns datagrams into associations, and each association into a [virtual
//! connection](lunette_reactor::Context::open_virtual) of the upper handler. The upper handler accepts, reads, writes
//! and closes virtual connections like all others, so its sessions and tasks are the same for both transports.
//!
//! The upper handler has four more duties for virtual connections. It gives [PDUs](Upper::take_pdu) instead of slices,
//! says when it [takes](Upper::takes) bytes, gives early data its [place](Upper::place_early), and says when a login
//! has [bound](Upper::binding) both sides.
//!
//! An endpoint answers Initial packets at the datagram sockets of the upper handler. It begins an association when the
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
