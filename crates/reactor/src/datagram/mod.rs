//! Datagram sockets: UDP, and Ethernet below it. The [crate] has their contract.
//!
//! Two words are kept apart here: a *datagram* is what the peers exchange, and a *message* is what one entry of
//! recvmmsg(2) or sendmmsg(2) moves. With the offloads of UDP a message is up to 64 datagrams of one length (the last
//! may be shorter) that pass the system as one.
//!
//! | module | what it knows |
//! |---|---|
//! | [`list`], [`received`] | which datagrams are which message, without any call |
//! | [`names`], [`control`] | addresses and control messages as the system has them |
//! | [`calls`] | the two calls |
//! | [`open`], [`ethernet`], [`route`] | how sockets are made, and the MTU of the interface that leads to a peer |
//! | [`frames`] | which frames of an interface a socket receives |
//! | [`claim`] | that an interface has one server |
//! | [`socket`] | one socket, and what errors of it mean |
//! | [`sockets`], [`turn`] | all of a reactor, and what a turn of the loop does for them |
//! | [`carried`] | datagrams that the caller of a stepped reactor carries in the place of the system |

mod address;
mod calls;
mod carried;
mod claim;
mod config;
mod control;
pub(crate) mod ethernet;
mod failure;
mod frames;
mod list;
mod names;
mod open;
mod received;
mod route;
mod socket;
mod sockets;
mod turn;

pub use address::{Address, DatagramPath, EthernetAddress, Mac};
pub(crate) use carried::Carried;
pub use carried::CarriedDatagram;
pub use claim::InterfaceClaim;
pub use config::{DatagramConfig, Offloads, SocketBuffers};
pub use ethernet::{interface_index, interface_is_up};
pub use failure::DatagramFailure;
pub use frames::FrameWord;
pub use list::{DatagramList, MAX_LIST_DATAGRAMS, MAX_LIST_SLICES};
pub use open::interface_mtu;
pub use received::{Datagram, Datagrams, Ecn};
pub(crate) use socket::DatagramSocket;
pub(crate) use sockets::DatagramSockets;
pub(crate) use turn::{DatagramMemory, Ready};

use crate::slab::Key;

/// Names one datagram socket of one reactor, for ever: it is not given out again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DatagramSocketId(pub(crate) Key);
