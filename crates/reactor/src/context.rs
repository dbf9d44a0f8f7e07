//! The calls of a handler to its reactor.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use rustls::pki_types::CertificateDer;

use crate::datagram::{Address, DatagramConfig, DatagramSocketId, EthernetAddress, SocketBuffers, ethernet};
use crate::files::FileRequest;
use crate::sockets::{ConnectionId, ListenerId, Sockets};
use crate::stream::{Stream, TlsSource};
use crate::tcp::TcpInfo;
use crate::virtual_connections::VirtualRequest;

/// The reactor, as its handler sees it. Calls with ids that are dead do nothing.
pub struct Context<'a> {
    sockets: &'a mut Sockets,
}

impl<'a> Context<'a> {
    pub(crate) fn new(sockets: &'a mut Sockets) -> Self {
        Self { sockets }
    }

    /// When this batch began. All calls of one batch see the same moment.
    pub fn now(&self) -> Instant {
        self.sockets.now()
    }

    /// Listens on `address`; port 0 lets the system choose. Gives the actual address.
    ///
    /// Reuses addresses in time wait; an IPv6 socket serves IPv6 alone.
    ///
    /// # Errors
    ///
    /// The error of the system: the address is in use, not ours, or not permitted.
    pub fn listen(&mut self, address: SocketAddr) -> io::Result<(ListenerId, SocketAddr)> {
        self.sockets.listen(address)
    }

    /// Accepts at a socket that listens already. Whoever else holds it goes on listening after
    /// [`close_listener`](Self::close_listener).
    ///
    /// # Errors
    ///
    /// When the system cannot watch the socket.
    pub fn adopt_listener(&mut self, listener: TcpListener) -> io::Result<(ListenerId, SocketAddr)> {
        self.sockets.adopt_listener(listener)
    }

    /// Has connections that come at `listener` from now on speak TLS, or not any more. A handler sees nothing of the
    /// handshake: bytes come when it has passed, and leave then. Time limits for it are the handler's.
    pub fn set_listener_tls(&mut self, listener: ListenerId, tls: Option<TlsSource>) {
        self.sockets.set_listener_tls(listener, tls);
    }

    /// The certificate by which the peer of `connection` has proven itself. There is none before the first bytes come.
    pub fn peer_certificate(&self, connection: ConnectionId) -> Option<&Arc<CertificateDer<'static>>> {
        self.sockets.peer_certificate(connection)
    }

    /// Stops listening. Connections that were accepted stay.
    pub fn close_listener(&mut self, listener: ListenerId) {
        self.sockets.close_listener(listener);
    }

    /// Takes over a connected socket. [`Handler::accepted`](crate::Handler::accepted) is not called for it.
    ///
    /// # Errors
    ///
    /// When the system cannot watch the socket.
    pub fn adopt(&mut self, stream: impl Into<Stream>) -> io::Result<ConnectionId> {
        self.sockets.adopt(stream.into())
    }

    /// Gives up a connection without closing it, so that another reactor can adopt it. Nothing more is received, and
    /// when nothing is under way to the handler any more, [`Handler::released`](crate::Handler::released) gets the
    /// stream. What was received before comes to [`Handler::received`](crate::Handler::received) first, also when the
    /// connection was paused.
    ///
    /// Until then the connection sends as always, and may end: then [`Handler::closed`](crate::Handler::closed) is
    /// called instead. [`close`](Self::close) and [`close_after_send`](Self::close_after_send) take the wish back.
    pub fn release(&mut self, connection: ConnectionId) {
        self.sockets.release(connection);
    }

    /// Says that [`Handler::gather`](crate::Handler::gather) has something for `connection`. It is asked after the
    /// batch.
    pub fn send(&mut self, connection: ConnectionId) {
        if connection.is_virtual() {
            return self.sockets.virtuals.request(connection, VirtualRequest::Send);
        }
        self.sockets.send(connection);
    }

    /// Receives nothing more from `connection` until [`resume`](Self::resume). The peer feels it once its window is
    /// full.
    ///
    /// A paused connection still ends when it fails; that the peer closed it is noticed after it is resumed.
    pub fn pause(&mut self, connection: ConnectionId) {
        if connection.is_virtual() {
            return self.sockets.virtuals.request(connection, VirtualRequest::Pause);
        }
        self.sockets.set_paused(connection, true);
    }

    /// Receives again from `connection`.
    pub fn resume(&mut self, connection: ConnectionId) {
        if connection.is_virtual() {
            return self.sockets.virtuals.request(connection, VirtualRequest::Resume);
        }
        self.sockets.set_paused(connection, false);
    }

    /// Hears of what `connection` has received only when `bytes` lie ready: a wish, to be woken less often. The end of
    /// the connection, and memory that runs short, are told at once. It holds until it is changed; 1 is how connections
    /// begin. What lies ready when it is lowered is heard of.
    ///
    /// The handler sees to it that it never waits for bytes that do not come.
    pub fn set_low_water(&mut self, connection: ConnectionId, bytes: u32) {
        self.sockets.set_low_water(connection, bytes);
    }

    /// Leaves connections that come to any listener in the system's queue, or accepts them again.
    pub fn hold_accepting(&mut self, holds: bool) {
        self.sockets.hold_accepting(holds);
    }

    /// Another descriptor of the socket of a plain `connection`, for a process that goes on with it. With it go the
    /// bytes of [`unseen`](Self::unseen).
    ///
    /// # Errors
    ///
    /// The error of the system, or that the connection is gone or is protected by TLS.
    pub fn duplicate(&self, connection: ConnectionId) -> io::Result<TcpStream> {
        if connection.is_virtual() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.sockets.duplicate(connection)
    }

    /// The bytes of a plain `connection` that were received, and that its handler has not seen.
    pub fn unseen(&self, connection: ConnectionId) -> &[u8] {
        if connection.is_virtual() { &[] } else { self.sockets.unseen(connection) }
    }

    /// Another descriptor of the socket of `listener`.
    ///
    /// # Errors
    ///
    /// The error of the system, or that the listener is closed.
    pub fn duplicate_listener(&self, listener: ListenerId) -> io::Result<TcpListener> {
        self.sockets.duplicate_listener(listener)
    }

    /// The system's information on `connection`. `None` when it is gone, or when its stream is not TCP.
    pub fn tcp_info(&self, connection: ConnectionId) -> Option<TcpInfo> {
        self.sockets.tcp_info(connection)
    }

    /// Closes `connection` now. What was not yet sent is lost, and what was may be, when bytes of the peer lie unread.
    pub fn close(&mut self, connection: ConnectionId) {
        if connection.is_virtual() {
            return self.sockets.virtuals.request(connection, VirtualRequest::Close);
        }
        self.sockets.close(connection);
    }

    /// Closes `connection` when everything that [`Handler::gather`](crate::Handler::gather) has is sent.
    ///
    /// From now on nothing more is received. Ends with [`Handler::closed`](crate::Handler::closed), at the latest after
    /// [`LINGER_TIMEOUT`](crate::LINGER_TIMEOUT).
    pub fn close_after_send(&mut self, connection: ConnectionId) {
        if connection.is_virtual() {
            return self.sockets.virtuals.request(connection, VirtualRequest::CloseAfterSend);
        }
        self.sockets.close_after_send(connection);
    }

    /// A connection that the reactor does not carry, for a transport that stands between it and the handler. What the
    /// handler asks for it is what [`take_virtual_requests`](Self::take_virtual_requests) gives.
    pub fn open_virtual(&mut self) -> ConnectionId {
        self.sockets.virtuals.open()
    }

    /// Begins a virtual connection to `peer`: the transport between the reactor and the handler makes it, or closes it.
    pub fn connect_virtual(&mut self, peer: Address) -> ConnectionId {
        let id = self.open_virtual();
        self.sockets.virtuals.request(id, VirtualRequest::Connect(peer));
        id
    }

    /// The virtual connection is gone.
    pub fn remove_virtual(&mut self, connection: ConnectionId) {
        self.sockets.virtuals.remove(connection);
    }

    /// Appends what was asked for virtual connections to `into`, in the order in which it was asked.
    pub fn take_virtual_requests(&mut self, into: &mut Vec<(ConnectionId, VirtualRequest)>) {
        self.sockets.virtuals.take_requests(into);
    }

    /// Opens a UDP socket at `address`; port 0 lets the system choose. An IPv6 socket serves IPv6 alone. Gives the
    /// actual address.
    ///
    /// # Errors
    ///
    /// The error of the system: the address is in use, not ours, or not permitted.
    pub fn bind_udp(
        &mut self,
        address: SocketAddr,
        config: &DatagramConfig,
    ) -> io::Result<(DatagramSocketId, SocketAddr)> {
        let (backend, datagrams) = self.sockets.split_datagrams();
        datagrams.open_udp(backend, Some(address), None, config)
    }

    /// Opens a UDP socket that is connected to `peer`, at an address and a port that the system chooses. It receives
    /// from `peer` alone, and hears of ports there that no socket is bound to. Gives its own address.
    ///
    /// # Errors
    ///
    /// The error of the system: there is no way to `peer`, or it is not permitted.
    pub fn connect_udp(
        &mut self,
        peer: SocketAddr,
        config: &DatagramConfig,
    ) -> io::Result<(DatagramSocketId, SocketAddr)> {
        let (backend, datagrams) = self.sockets.split_datagrams();
        datagrams.open_udp(backend, None, Some(peer), config)
    }

    /// Opens a socket for frames of EtherType 0x88B5 on `interface`, below IP. Its datagrams are the payloads of
    /// frames. Gives its own address. Needs `CAP_NET_RAW`.
    ///
    /// # Errors
    ///
    /// The error of the system: there is no such interface, or it is not permitted.
    pub fn bind_ethernet(
        &mut self,
        interface: &str,
        config: &DatagramConfig,
    ) -> io::Result<(DatagramSocketId, EthernetAddress)> {
        let (backend, datagrams) = self.sockets.split_datagrams();
        datagrams.open_ethernet(backend, ethernet::interface_index(interface)?, config)
    }

    /// Opens a socket for frames of EtherType 0x88B5 on the interface that reaches `peer`. It receives from all
    /// stations. Gives its own address. Needs `CAP_NET_RAW`.
    ///
    /// # Errors
    ///
    /// The error of the system: the interface is gone, or it is not permitted.
    pub fn connect_ethernet(
        &mut self,
        peer: EthernetAddress,
        config: &DatagramConfig,
    ) -> io::Result<(DatagramSocketId, EthernetAddress)> {
        let (backend, datagrams) = self.sockets.split_datagrams();
        datagrams.open_ethernet(backend, peer.interface, config)
    }

    /// Says that [`Handler::gather_datagrams`](crate::Handler::gather_datagrams) has something for `socket`. It is
    /// asked after the batch.
    pub fn send_datagrams(&mut self, socket: DatagramSocketId) {
        self.sockets.datagrams.send(socket);
    }

    /// The buffers that the system has given to `socket`. `None` when it is gone.
    pub fn datagram_buffers(&self, socket: DatagramSocketId) -> Option<SocketBuffers> {
        self.sockets.datagrams.buffers(socket)
    }

    /// Closes `socket` now. What the system took still leaves. A ring lets go of its port in the next turn.
    pub fn close_datagrams(&mut self, socket: DatagramSocketId) {
        let (backend, datagrams) = self.sockets.split_datagrams();
        datagrams.close(backend, socket);
    }

    /// Has the system work on a file, without a thread of ours; it is handed in with the sends of this batch. Ends with
    /// [`Handler::file_done`](crate::Handler::file_done) under `tag`.
    ///
    /// # Errors
    ///
    /// The request itself: there is no ring, or the system has no such offset.
    pub fn submit_file(&mut self, tag: u64, request: FileRequest) -> Result<(), FileRequest> {
        self.sockets.backend().submit_file(tag, request)
    }

    /// Ends [`Reactor::run`](crate::Reactor::run) after this batch and its sends.
    pub fn stop(&mut self) {
        self.sockets.stop();
    }
}
