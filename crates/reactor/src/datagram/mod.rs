//! Datagram sockets: UDP, and Ethernet below it.
//!
//! A socket receives from any peer, unless it is connected. Two words are kept apart here: a *datagram* is what the peers
//! exchange, and a *message* is what one entry of recvmmsg(2) or sendmmsg(2) moves. With the offloads of UDP a message is up to 64
//! datagrams of one length (the last may be shorter) that pass the system as one.
//!
//! # Received datagrams
//!
//! [`Handler::datagrams`](crate::Handler::datagrams) gets all that one call into the system brought, datagram by datagram, in the
//! order in which they came. Their bytes lie in a buffer of the reactor and may be changed there, to be decrypted in place.
//!
//! # Sent datagrams
//!
//! [`Handler::gather_datagrams`](crate::Handler::gather_datagrams) appends datagrams to a [`DatagramList`], each as slices that are
//! not copied. Neighbours of equal length on one path leave as one message. A datagram is sent or it has
//! [failed](DatagramFailure): a failure ends neither the socket nor the list.
//!
//! UDP sockets send with "don't fragment" and without the system's own idea of the path's MTU (`IP_PMTUDISC_PROBE` of ip(7)), and
//! with ECT(0) in the ECN field, for their users find the MTU and answer to congestion themselves.
//!
//! # Ethernet
//!
//! A socket may be opened on an interface, below IP: a datagram is the payload of one frame of EtherType 0x88B5. There are no ports, so
//! every such socket of an interface gets every frame; no offloads, and no ECN. A frame that is shorter than Ethernet allows comes
//! with the padding that a network card has added.

mod address;
mod calls;
mod config;
mod control;
mod ethernet;
mod failure;
mod list;
mod names;
mod open;
mod received;
mod socket;
mod sockets;
mod turn;

pub use address::{Address, DatagramPath, EthernetAddress};
pub use config::{DatagramConfig, Offloads, SocketBuffers};
pub use failure::DatagramFailure;
pub use list::{DatagramList, MAX_LIST_DATAGRAMS, MAX_LIST_SLICES};
pub use open::path_mtu;
pub use received::{Datagram, Datagrams, Ecn};
pub(crate) use socket::DatagramSocket;
pub(crate) use sockets::DatagramSockets;
pub(crate) use turn::{DatagramMemory, Ready};

use crate::slab::Key;

/// Names one datagram socket of one reactor, for ever: it is not given out again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DatagramSocketId(pub(crate) Key);
