//! The options of a datagram socket, and the system's answer to them.

use super::FrameWord;

/// How a datagram socket is opened. The default has the offloads on and the system's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DatagramConfig {
    /// Whether neighbours pass the system as one.
    pub offloads: Offloads,
    /// Bytes that wait to be received (`SO_RCVBUF` of socket(7)); `None`: as many as the system gives.
    pub receive_buffer_bytes: Option<u32>,
    /// Bytes that wait to leave (`SO_SNDBUF` of socket(7)); `None`: as many as the system gives.
    pub send_buffer_bytes: Option<u32>,
    /// The word that all frames have that an Ethernet socket is to receive; `None`: it receives all of its interface.
    /// Sockets of UDP take no notice.
    pub only: Option<FrameWord>,
}

/// Whether UDP joins datagrams of one length: `UDP_SEGMENT` and `UDP_GRO` of udp(7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Offloads {
    /// The offloads are on, as far as the system has them. Without them it costs more CPU time, and that is all.
    #[default]
    On,
    /// Each datagram passes the system by itself, for comparisons.
    Off,
}

/// The buffers of a datagram socket as the system made them. It may have cut them to `net.core.rmem_max` and
/// `net.core.wmem_max`, which bind all but those with `CAP_NET_ADMIN`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketBuffers {
    /// Bytes that may wait to be received. The system counts what it needs for itself, so they hold about half as many
    /// bytes of short datagrams.
    pub receive_bytes: usize,
    /// Bytes that may wait to leave.
    pub send_bytes: usize,
}
