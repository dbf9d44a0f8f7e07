//! The path between an initiator and a target, and the target's contribution.

use std::time::Duration;

/// Bytes of the headers of IPv4 and TCP with time stamps.
pub(crate) const TCP_IP_HEADER_LEN: f64 = 52.0;

/// The part of TCP that decides how much may be on the way under loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CongestionControl {
    /// Loss-based, RFC 9438; the default of Linux.
    #[default]
    Cubic,
    /// Loss-based, RFC 5681.
    Reno,
    /// Rate-based: takes losses below some percent for noise.
    Bbr,
}

impl CongestionControl {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Cubic, Self::Reno, Self::Bbr];

    /// The name that Linux has for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::Reno => "reno",
            Self::Bbr => "bbr",
        }
    }
}

/// The network between an initiator and a target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Path {
    /// Bytes of IP packets that the bottleneck carries in a second.
    pub rate: f64,
    /// The round trip time of an idle path.
    pub round_trip: Duration,
    /// The share of packets that are lost at random, from 0 to 1; not those that a full queue drops.
    pub loss: f64,
    /// Bytes of the largest IP packet.
    pub mtu: u32,
    /// Bytes that one connection may have on the way: the smaller one of send and receive buffer.
    pub tcp_window: u64,
    /// How the senders react to loss.
    pub congestion: CongestionControl,
}

impl Default for Path {
    /// A Gigabit Ethernet without distance or loss, with the largest windows that Linux chooses by itself
    /// (`net.ipv4.tcp_rmem`, 6 MiB).
    fn default() -> Self {
        Self {
            rate: 1e9 / 8.0,
            round_trip: Duration::ZERO,
            loss: 0.0,
            mtu: 1500,
            tcp_window: 6 << 20,
            congestion: CongestionControl::Cubic,
        }
    }
}

impl Path {
    /// Bytes of TCP payload in a full packet.
    pub(crate) fn segment_len(&self) -> f64 {
        (f64::from(self.mtu) - TCP_IP_HEADER_LEN).max(1.0)
    }

    /// Bytes of TCP payload that the line carries in a second.
    pub fn payload_rate(&self) -> f64 {
        self.rate * self.segment_len() / (self.segment_len() + TCP_IP_HEADER_LEN)
    }

    /// The delay-bandwidth product: bytes that fill the path.
    pub fn delay_bandwidth_bytes(&self) -> f64 {
        self.payload_rate() * self.round_trip.as_secs_f64()
    }
}

/// The contribution of a target to the time of a command, and its limits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    /// Commands that a session may have in flight (MaxCmdSN - ExpCmdSN + 1).
    pub command_window: u32,
    /// From the arrival of a command to its response, without the network.
    pub latency: Duration,
    /// The time in which both sides can do nothing else: a session has no more commands in a second than one by this.
    pub command_cost: Duration,
}

impl Default for Target {
    fn default() -> Self {
        Self { command_window: 128, latency: Duration::from_micros(50), command_cost: Duration::from_micros(5) }
    }
}
