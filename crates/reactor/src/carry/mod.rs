//! Connections whose sockets another reactor has.
//!
//! Most of the time of a connection goes into its socket: the system's copies and TCP. A handler that wants its connections
//! side by side, and all that they mean in one place, keeps them on its reactor and has others *carry* them:
//!
//! - The **owner** is the reactor whose handler the connection belongs to. The handler sees a connection like any other.
//! - The **carrier** is the reactor that has the socket. It receives into [`Block`]s and sends out of [`Parcel`]s, and does not
//!   look at the bytes. Its handler knows nothing of the connection.
//!
//! Both turn into [`Letter`]s what a local connection does by calls:
//!
//! | the owner's handler | letter | at the carrier |
//! |---|---|---|
//! | [`Context::adopt_carried`](crate::Context::adopt_carried) | [`Letter::Carry`] | it adopts the socket, and answers [`Letter::Adopted`] |
//! | [`Handler::gather`](crate::Handler::gather) | [`Letter::Send`] | it sends, and gives the parcel back ([`Letter::Sent`]) |
//! | [`Handler::received`](crate::Handler::received) | [`Letter::Received`] | it received; the block goes back ([`Letter::Read`]) |
//! | [`Context::close`](crate::Context::close) and its like | [`Letter::Close`], [`Letter::CloseAfterSend`] | the same call |
//! | [`Handler::closed`](crate::Handler::closed) | [`Letter::PeerClosed`], [`Letter::Ended`] | that happened |
//!
//! Letters from one to the other keep their order, and both name connections by ids that are never given out twice, so a letter
//! to a connection that has ended does nothing.
//!
//! **Bounds.** Of each connection at most [`MAX_BLOCKS`] blocks and less than [`MAX_UNDERWAY_BYTES`] and one send are under way.
//! With a ring, what it had received when its connection was paused comes on top: what one batch brought into the ring's own buffers.
//! An owner that pauses a connection gives no blocks back, so its carrier stops receiving, and the peer feels it. A
//! carrier whose socket is full gives no parcels back, and the owner asks the handler for no more.
//!
//! **Wake-ups.** Bytes wake the other side, once for all that comes before it looks, and so do parcels that go back: the handler
//! may wait for their buffers. Blocks that go back do so only when more than half of those allowed were under way: else nobody
//! waits for them. In steady state nothing is allocated, for both are used again.
//!
//! **What [`Handler::sent`](crate::Handler::sent) means** is what it means for a socket at home: the bytes are the system's. Until a
//! parcel has come back the handler keeps what is in it, and is told to leave that out when it gathers
//! ([`Gather::behind`](crate::Gather)); so what a carrier holds counts as what waits at home.

mod carried;
mod letters;
mod line;
mod parcel;

pub use letters::Carrier;

pub(crate) use carried::Carried;
pub(crate) use letters::{Inbox, Letter};
pub(crate) use line::{Carrying, Lines};
pub(crate) use parcel::{Block, Parcel, Spares};

/// Length of a block: the most that one receive for another reactor brings.
pub const BLOCK_BYTES: usize = 64 << 10;

/// Blocks of one connection that its owner has not yet read.
pub const MAX_BLOCKS: usize = 8;

/// Bytes of one connection that its carrier has not yet sent, beyond which it is given no more.
pub const MAX_UNDERWAY_BYTES: usize = 1 << 20;

/// Blocks, and parcels, that a reactor keeps for the next bytes when none are under way.
const MAX_SPARES: usize = 16;

/// Data in buffers is copied when it is shorter than this: that costs less than another handle on the buffer, which two cores
/// have to count.
const MIN_SHARED_BYTES: usize = 2048;
