//! The Effective Cross Layer: iSCSI PDUs in datagrams, placed as they come, without I/O.
//!
//! Layer 2: over buffer, crc32c, pdu, quanta, session; under ecl-endpoint, iscsi-initiator, iscsi-target.
//!
//! The layer does for iSCSI what TCP does: it carries the PDUs of one session in each direction, in order, once, and
//! undamaged. It differs in three ways:
//!
//! - **One header.** Each packet begins with 128 bytes ([`header`]), of which the last 48 are the basic header segment
//!   of the PDU whose bytes it carries. So transport, placement and storage speak in one header, and a packet says by
//!   itself where its bytes belong.
//! - **Placement before delivery.** The bytes of data PDUs go to their place in whatever order packets come; only
//!   headers wait for their turn. These are the two words of RFC 5041: data is *placed* out of order, and PDUs are
//!   *delivered* in order.
//! - **Security is not a layer below.** The first packets agree on keys, and each later header is authenticated. See
//!   [`protection`].
//!
//! Sequencing, loss detection and congestion control are those of RFC 9000, 9002 and 9438 where iSCSI has no need of
//! its own. `docs/ecl.md` has the header as a table, and every state and timer.
//!
//! # The contract
//!
//! An [`Association`](association::Association) takes datagrams and gives stream bytes in order; it takes PDUs and
//! gives datagrams; it says when it wants to be called. It has no socket, clock, thread or randomness of its own.
//!
//! # The modules
//!
//! | module | subject |
//! |---|---|
//! | [`header`] | the bytes of a packet's header |
//! | [`protection`] | keys, and what they do to a packet |
//! | [`handshake`] | how two sides agree on keys, and how a server spends nothing on addresses that were not proven |
//! | [`recovery`] | packet numbers: what was received, what is in flight, what is lost, and how much may be in flight |
//! | [`path`] | the length of datagrams that a path carries, and where the peer is |
//! | [`outgoing`], [`incoming`] | the stream of each direction, cut into packets and put together again |
//! | [`close`] | why an association has ended |
//! | [`association`] | all of these together |

#![forbid(unsafe_code)]

pub mod association;
pub mod close;
pub mod handshake;
pub mod header;
pub mod incoming;
pub mod limits;
pub mod outgoing;
pub mod path;
pub mod protection;
pub mod recovery;

/// The random bytes that a driver brings: fills the slice. The system's random source, or in a simulator a generator
/// with a seed.
pub type Entropy<'a> = dyn FnMut(&mut [u8]) + 'a;

/// Which end of an association this is. The client begins it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The initiator's end.
    Client,
    /// The target's end.
    Server,
}
