//! One event loop per core over sockets, timers and threads.
//!
//! Layer 2: over buffer, tls; under ecl-endpoint, iscsi-initiator, iscsi-target, lunette, nbd, volume.
//!
//! The reactor knows nothing of iSCSI. It moves bytes between sockets and a [`Handler`], and calls the handler for
//! timeouts and for messages of other threads.
//!
//! # The contract
//!
//! The seam is completions, not readiness: the handler says where bytes should go and which bytes may leave, and learns
//! how many did. Behind it runs epoll or io_uring ([`IoBackend`]); a handler cannot tell which.
//!
//! A [`Reactor`] turns in *batches*. One batch is:
//!
//! 1. wait for events, a [`Waker`] or the next timeout; nothing wakes an idle reactor;
//! 2. accept connections, receive bytes and datagrams, and end requests on files: [`Handler::accepted`],
//!    [`Handler::direct`], [`Handler::received`], [`Handler::datagrams`], [`Handler::file_done`];
//! 3. [`Handler::woken`] when a waker was used, [`Handler::timeout`] when one is due;
//! 4. [`Handler::batch_end`];
//! 5. for each connection marked by [`Context::send`]: [`Handler::gather`], one vectored send, [`Handler::sent`], until
//!    nothing is left or the socket is full. A full socket is tried again by itself once it has room;
//! 6. for each datagram socket marked by [`Context::send_datagrams`] the same with [`Handler::gather_datagrams`] and
//!    [`Handler::datagrams_sent`].
//!
//! A handler that takes only a part of what was received has steps 4 and 5 in between, as often as it likes.
//!
//! What one socket may receive or send per batch is bounded, so none starves another. An idle socket
//! holds no memory: bytes are received into buffers of the reactor, or where [`Handler::direct`] says.
//!
//! A [`ConnectionId`] or [`DatagramSocketId`] is never given out twice. Calls with the id of a socket that is gone do
//! nothing.
//!
//! # Datagrams
//!
//! [`Context::bind_udp`] and [`Context::connect_udp`] open sockets of UDP, [`Context::bind_ethernet`] opens one on an
//! interface, below IP. All have the same calls:
//!
//! - [`Handler::datagrams`] gets all that one call into the system brought, in the order in which it came. The bytes
//!   lie in a buffer of the reactor and may be changed there, to be decrypted in place. Each datagram has its
//!   [`DatagramPath`], on which an answer takes the same way back.
//! - [`Handler::gather_datagrams`] appends datagrams to a [`DatagramList`], each as slices that are not copied.
//!   Neighbours of equal length on one path pass the system as one, if it can ([`Offloads`]).
//! - A datagram is sent or it has [failed](DatagramFailure). A failure ends neither the socket nor the list.
//!
//! UDP is sent with "don't fragment", regardless of the system's idea of the path's MTU (`IP_PMTUDISC_PROBE` of ip(7)),
//! and with ECT(0) in the ECN field. The handler finds the MTU, beginning with [`interface_mtu`], and reacts to
//! congestion.
//!
//! On Ethernet a datagram is the payload of one frame of EtherType 0x88B5. There are no ports, so every such socket of
//! an interface gets every frame for it; there are no offloads and no ECN. A frame that is shorter than Ethernet allows
//! comes with the padding that a network card has added.
//!
//! # An echo server
//!
//! ```no_run
//! use std::collections::HashMap;
//! use std::net::SocketAddr;
//!
//! use lunette_reactor::{Closed, ConnectionId, Context, Gather, Handler, ListenerId, Reactor};
//!
//! #[derive(Default)]
//! struct Echo(HashMap<ConnectionId, Vec<u8>>);
//!
//! impl Handler for Echo {
//!     fn accepted(&mut self, _: &mut Context<'_>, _: ListenerId, id: ConnectionId, _: SocketAddr, _: SocketAddr) {
//!         self.0.insert(id, Vec::new());
//!     }
//!     fn received(&mut self, cx: &mut Context<'_>, id: ConnectionId, bytes: &[u8]) -> usize {
//!         self.0.entry(id).or_default().extend_from_slice(bytes);
//!         cx.send(id);
//!         bytes.len()
//!     }
//!     fn gather<'a>(&'a self, id: ConnectionId, list: &mut Gather<'a>) {
//!         list.push(&self.0[&id]);
//!     }
//!     fn sent(&mut self, _: &mut Context<'_>, id: ConnectionId, len: usize) {
//!         self.0.entry(id).or_default().drain(..len);
//!     }
//!     fn closed(&mut self, _: &mut Context<'_>, id: ConnectionId, _: Closed) {
//!         self.0.remove(&id);
//!     }
//! }
//!
//! # fn main() -> std::io::Result<()> {
//! let mut reactor = Reactor::new()?;
//! let (_, address) = reactor.context().listen("127.0.0.1:0".parse().unwrap())?;
//! println!("listening on {address}");
//! reactor.run(&mut Echo::default())
//! # }
//! ```

#![deny(unsafe_code)]

mod backend;
mod context;
mod counters;
mod datagram;
mod files;
mod gather;
mod handler;
mod lists;
mod mailbox;
mod pool;
mod protected;
mod reactor;
mod receive;
mod send;
mod slab;
mod sockets;
mod stream;
mod sync;
mod sys;
mod tcp;
mod turn;
mod virtual_connections;
mod waker;

pub use backend::IoBackend;
pub use context::Context;
pub use counters::{Counts, CountsView};
pub use datagram::{
    Address, CarriedDatagram, Datagram, DatagramConfig, DatagramFailure, DatagramList, DatagramPath, DatagramSocketId,
    Datagrams, Ecn, EthernetAddress, FrameWord, InterfaceClaim, MAX_LIST_DATAGRAMS, MAX_LIST_SLICES, Mac, Offloads,
    SocketBuffers, interface_index, interface_is_up, interface_mtu,
};
pub use files::{FileCall, FileRequest};
pub use gather::{Gather, MAX_GATHER_BYTES, MAX_GATHER_SLICES};
pub use handler::{Closed, Handler};
pub use mailbox::Mailbox;
pub use pool::{Flow, Job, ThreadPool, Work};
pub use reactor::{LoopConfig, RECEIVE_BUFFER_BYTES, Reactor, Step};
pub use slab::{Key, Slab};
pub use sockets::{ConnectionId, LINGER_TIMEOUT, ListenerId};
pub use stream::{Stream, TlsSource};
pub use sys::is_in_page_cache;
pub use tcp::{TcpInfo, TcpOptions, connect};
pub use turn::{Turn, TurnEnd, at_turn_end};
pub use virtual_connections::VirtualRequest;
pub use waker::Waker;
