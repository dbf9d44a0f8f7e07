//! The handler above an endpoint.

use std::io;
use std::net::SocketAddr;

use lunette_ecl::association::Seal;
use lunette_ecl::protection::Binding;
use lunette_ecl::recovery::CongestionControl;
use lunette_pdu::BHS_LEN;
use lunette_reactor::{ConnectionId, Context, DatagramSocketId, EthernetAddress, Handler, Offloads};
use lunette_session::{OutgoingPdu, Unacknowledged};

/// How an association is to be carried that this side begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DatagramOptions {
    /// The offloads of the socket.
    pub offloads: Offloads,
    /// Which payloads are encrypted, unless the peer wants more; `None`: as the [`Config`](crate::Config) says.
    pub seal: Option<Seal>,
    /// How much of what this side sends may be in flight; `None`: as the [`Config`](crate::Config) says.
    pub congestion_control: Option<CongestionControl>,
}

/// A change to a datagram socket at which associations begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketChange {
    /// No more associations begin there ([`Upper::accepts_at`]). The endpoint closes it when those that there are have
    /// ended.
    Retired(DatagramSocketId),
    /// Another socket on an interface takes the place of the one before: associations follow, and the endpoint closes
    /// that one.
    Replaced {
        /// The socket before.
        before: DatagramSocketId,
        /// The socket from now on.
        socket: DatagramSocketId,
        /// The address of the portal: the interface may have another index.
        own: EthernetAddress,
    },
}

/// A handler whose connections may be carried in datagrams.
pub trait Upper: Handler {
    /// How it names a place for data.
    type Place: Copy;

    /// How a virtual connection is to be carried that this handler has asked for.
    fn datagram_options(&self, _: ConnectionId) -> DatagramOptions {
        DatagramOptions::default()
    }

    /// A peer has begun an association at a datagram socket that this handler has opened; as [`Handler::accepted`].
    fn accepted_datagrams(
        &mut self,
        cx: &mut Context<'_>,
        socket: DatagramSocketId,
        id: ConnectionId,
        peer: SocketAddr,
        local: SocketAddr,
    );

    /// The system has said that a datagram socket that this handler has opened does not work now.
    fn datagrams_failed(&mut self, cx: &mut Context<'_>, socket: DatagramSocketId, error: &io::Error) {
        let _ = (cx, socket, error);
    }

    /// Whether associations may begin at a datagram socket that this handler has opened.
    fn accepts_at(&self, socket: DatagramSocketId) -> bool {
        let _ = socket;
        true
    }

    /// A socket at which no more associations begin is closed.
    fn datagrams_closed(&mut self, socket: DatagramSocketId) {
        let _ = socket;
    }

    /// The next change to the datagram sockets that this handler has opened. It is asked for at the end of each batch.
    fn next_socket_change(&mut self) -> Option<SocketChange> {
        None
    }

    /// Whether a virtual connection takes bytes now: it is there, holds none back, and does not wait for this handler.
    fn takes(&self, id: ConnectionId) -> bool;

    /// The place of `len` bytes that stand `pdu_offset` behind the basic header segment of a PDU that is not due yet.
    fn place_early(
        &mut self,
        id: ConnectionId,
        bhs: &[u8; BHS_LEN],
        pdu_offset: u32,
        len: usize,
    ) -> Option<(Self::Place, &mut [u8])>;

    /// The next `len` bytes are in their place, `skipped` bytes behind its front. False when they are due elsewhere.
    fn placed(
        &mut self,
        cx: &mut Context<'_>,
        id: ConnectionId,
        place: Self::Place,
        skipped: usize,
        len: usize,
    ) -> bool;

    /// The next PDU to be sent on a virtual connection. It is kept until the peer has acknowledged it.
    fn take_pdu(&mut self, id: ConnectionId) -> Option<OutgoingPdu>;

    /// Whether this handler is about to end: peers that cannot be heard are not waited for.
    fn is_stopping(&self) -> bool {
        false
    }

    /// Tells how much of the [taken](Self::take_pdu) PDUs the peer of a virtual connection has not acknowledged. Until
    /// then they keep their buffers.
    fn set_unacknowledged(&mut self, id: ConnectionId, unacknowledged: Unacknowledged) {
        let _ = (id, unacknowledged);
    }

    /// The names and secrets that the login on a virtual connection has proven, once it has passed.
    fn binding(&mut self, id: ConnectionId) -> Option<Binding>;
}
