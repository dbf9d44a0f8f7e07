//! TCP connections: how they are made, and what the system knows of them.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect as begin_to_connect, socket_with, sockopt};

use crate::sys;

/// The options of a TCP connection. What is `None` stays as the system has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TcpOptions {
    /// The congestion control of what is sent here (`TCP_CONGESTION` of tcp(7)); the peer chooses its own.
    pub congestion_control: Option<String>,
    /// Bytes of the send buffer (`SO_SNDBUF` of socket(7)), half of what the system sets aside. It does not grow any
    /// more.
    pub send_buffer_bytes: Option<u32>,
    /// Bytes of the receive buffer (`SO_RCVBUF` of socket(7)), half of what the system sets aside. It does not grow any
    /// more.
    pub receive_buffer_bytes: Option<u32>,
}

/// Connects to `address` within `timeout`. The stream is in non-blocking mode.
///
/// The connection ends with a reset (`SO_LINGER` of socket(7), zero seconds), whoever closes it and why: what the
/// system has not sent by then never leaves. So nothing that was given up reaches the peer later, and nothing may be
/// closed before the peer has answered it.
///
/// # Errors
///
/// The error of the system. For a congestion control that it does not have or does not allow, and for buffers that it
/// makes smaller than was asked, the error says which setting of the system decides that.
pub fn connect(address: SocketAddr, timeout: Duration, options: &TcpOptions) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let stream = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    let stream = TcpStream::from(stream);
    sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
    // The scale of the window is in the first packet, so the buffers come first.
    apply(&stream, options)?;
    match begin_to_connect(&stream, &address) {
        Ok(()) => return Ok(stream),
        Err(Errno::INPROGRESS | Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    wait_until_connected(&stream, timeout)?;
    match sockopt::socket_error(&stream) {
        Ok(Ok(())) => Ok(stream),
        Ok(Err(error)) | Err(error) => Err(error.into()),
    }
}

fn wait_until_connected(stream: &TcpStream, timeout: Duration) -> io::Result<()> {
    // A time that the clock cannot express is none.
    let until = Instant::now().checked_add(timeout);
    loop {
        let left = until.map(|until| Timespec::try_from(until.saturating_duration_since(Instant::now())));
        let left = left.transpose().map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(stream, PollFlags::OUT)], left.as_ref()) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn apply(stream: &TcpStream, options: &TcpOptions) -> io::Result<()> {
    let TcpOptions { congestion_control, send_buffer_bytes, receive_buffer_bytes } = options;
    if let Some(name) = congestion_control {
        sockopt::set_tcp_congestion(stream, name).map_err(|error| no_congestion_control(name, error))?;
    }
    if let Some(bytes) = *send_buffer_bytes {
        sockopt::set_socket_send_buffer_size(stream, bytes as usize)?;
        check_buffer(bytes, sockopt::socket_send_buffer_size(stream)?, "net.core.wmem_max")?;
    }
    if let Some(bytes) = *receive_buffer_bytes {
        sockopt::set_socket_recv_buffer_size(stream, bytes as usize)?;
        check_buffer(bytes, sockopt::socket_recv_buffer_size(stream)?, "net.core.rmem_max")?;
    }
    Ok(())
}

fn no_congestion_control(name: &str, error: Errno) -> io::Error {
    let why = match error {
        Errno::NOENT => "the system does not have it; net.ipv4.tcp_available_congestion_control lists what it has",
        Errno::PERM => "the system keeps it for root; net.ipv4.tcp_allowed_congestion_control lists what all may use",
        _ => return error.into(),
    };
    io::Error::other(format!("congestion control {name:?}: {why}"))
}

/// The system cuts what is asked for to its limit without a word, then doubles it, for its own bookkeeping (socket(7)).
fn check_buffer(asked: u32, doubled: usize, setting: &str) -> io::Result<()> {
    let got = doubled / 2;
    if got >= asked as usize {
        return Ok(());
    }
    Err(io::Error::other(format!("a socket buffer of {asked} bytes: the system gives {got}; raise {setting}")))
}

/// The system's information on a TCP connection (`TCP_INFO` of tcp(7)). What an older system does not tell is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpInfo {
    /// The smoothed round trip time.
    pub round_trip: Duration,
    /// The shortest round trip time.
    pub min_round_trip: Duration,
    /// Bytes of the longest IP packet to the peer.
    pub path_mtu: u32,
    /// Bytes that the congestion control lets be on the way.
    pub congestion_window_bytes: u64,
    /// Bytes that the peer lets be on the way to it.
    pub send_window_bytes: u64,
    /// Bytes that may be on the way from the peer.
    pub receive_window_bytes: u64,
    /// Segments with data that were sent, those that were sent again included.
    pub sent_data_segments: u64,
    /// Segments that were sent again.
    pub resent_segments: u64,
    /// Bytes that the peer has acknowledged, including one for our SYN.
    pub acknowledged_bytes: u64,
    /// Bytes that were received in order.
    pub received_bytes: u64,
    /// Segments with data that were received.
    pub received_data_segments: u64,
    /// Segments that came out of order: behind one that was lost or overtaken.
    pub out_of_order_segments: u64,
}

impl TcpInfo {
    /// Reads `struct tcp_info` of `linux/tcp.h`, which only ever grows at its end.
    fn read(bytes: &[u8]) -> Self {
        let u32_at = |at: usize| {
            let field = bytes.get(at..at + 4).and_then(|field| field.try_into().ok());
            field.map_or(0, u32::from_ne_bytes)
        };
        let u64_at = |at: usize| {
            let field = bytes.get(at..at + 8).and_then(|field| field.try_into().ok());
            field.map_or(0, u64::from_ne_bytes)
        };
        let us_at = |at| Duration::from_micros(u32_at(at).into());
        let (segment_len, window_segments) = (u64::from(u32_at(16)), u64::from(u32_at(80)));
        Self {
            path_mtu: u32_at(60),
            round_trip: us_at(68),
            congestion_window_bytes: window_segments.saturating_mul(segment_len),
            resent_segments: u32_at(100).into(),
            acknowledged_bytes: u64_at(120),
            received_bytes: u64_at(128),
            // It is all ones as long as there was no round trip.
            min_round_trip: if u32_at(148) == u32::MAX { Duration::ZERO } else { us_at(148) },
            received_data_segments: u32_at(152).into(),
            sent_data_segments: u32_at(156).into(),
            out_of_order_segments: u32_at(224).into(),
            send_window_bytes: u32_at(228).into(),
            receive_window_bytes: u32_at(232).into(),
        }
    }

    pub(crate) fn of(stream: &TcpStream) -> io::Result<Self> {
        let mut bytes = [0; TCP_INFO_LEN];
        let len = sys::tcp_info(stream, &mut bytes)?;
        Ok(Self::read(&bytes[..len]))
    }
}

/// Bytes of `struct tcp_info` up to the last field that is read, `tcpi_rcv_wnd` (Linux 6.2).
pub(crate) const TCP_INFO_LEN: usize = 236;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    #[test]
    fn what_was_not_sent_when_a_connection_is_closed_never_leaves() {
        let (listener, address) = listener();
        let mut near = connect(address, LIMIT, &TcpOptions::default()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let mut written = 0;
        let full = loop {
            match near.write(&[1; 4 << 10]) {
                Ok(len) => written += len,
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        drop(near);
        let mut read = Vec::new();
        let end = far.read_to_end(&mut read).unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::ConnectionReset);
        assert!(read.len() < written, "{} of {written} bytes", read.len());
    }

    #[test]
    fn a_connection_carries_bytes_and_counts_them() {
        let (listener, address) = listener();
        let options = TcpOptions {
            congestion_control: Some("reno".into()),
            send_buffer_bytes: Some(64 << 10),
            receive_buffer_bytes: Some(32 << 10),
        };
        let mut near = connect(address, LIMIT, &options).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.set_nonblocking(false).unwrap();
        near.write_all(&[1; 1000]).unwrap();
        far.read_exact(&mut [0; 1000]).unwrap();
        far.write_all(&[2; 300]).unwrap();
        near.read_exact(&mut [0; 300]).unwrap();
        let info = TcpInfo::of(&near).unwrap();
        // The answer carried the acknowledgement. The system counts the SYN as a byte.
        assert_eq!((info.acknowledged_bytes, info.received_bytes), (1001, 300));
        // A busy system may send a segment twice.
        assert!(info.sent_data_segments >= 1 && info.received_data_segments >= 1, "{info:?}");
        assert!(info.round_trip > Duration::ZERO && info.min_round_trip > Duration::ZERO, "{info:?}");
        assert!(info.path_mtu >= 576 && info.congestion_window_bytes > 0, "{info:?}");
        assert_eq!(sockopt::tcp_congestion(&near).unwrap(), "reno");
        assert_eq!(sockopt::socket_send_buffer_size(&near).unwrap(), 128 << 10);
    }

    fn limit(name: &str) -> u32 {
        std::fs::read_to_string(format!("/proc/sys/net/core/{name}")).unwrap().trim().parse().unwrap()
    }

    #[test]
    fn a_timeout_that_the_clock_cannot_express_is_none() {
        let (_listener, address) = listener();
        connect(address, Duration::MAX, &TcpOptions::default()).unwrap();
    }

    #[test]
    fn what_the_system_does_not_give_is_named_with_its_setting() {
        let (_listener, address) = listener();
        for (options, words) in [
            (
                TcpOptions { congestion_control: Some("none-such".into()), ..TcpOptions::default() },
                ["none-such", "net.ipv4.tcp_"],
            ),
            (
                TcpOptions { receive_buffer_bytes: Some(1 << 30), ..TcpOptions::default() },
                ["1073741824", "net.core.rmem_max"],
            ),
            (
                // The system's limit doubled is more than this.
                TcpOptions { send_buffer_bytes: Some(limit("wmem_max") / 2 * 3), ..TcpOptions::default() },
                ["a socket buffer of", "net.core.wmem_max"],
            ),
        ] {
            let error = connect(address, LIMIT, &options).unwrap_err().to_string();
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        }
    }

    #[test]
    fn a_port_without_a_listener_refuses() {
        let (listener, address) = listener();
        drop(listener);
        let error = connect(address, LIMIT, &TcpOptions::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn what_an_older_system_does_not_tell_is_zero() {
        let mut bytes = [0xff; TCP_INFO_LEN];
        assert_eq!(TcpInfo::read(&bytes).receive_window_bytes, u64::from(u32::MAX));
        let old = TcpInfo::read(&bytes[..104]);
        assert_eq!((old.resent_segments, old.received_bytes, old.receive_window_bytes), (u64::from(u32::MAX), 0, 0));
        bytes[68..72].copy_from_slice(&1500_u32.to_ne_bytes());
        let info = TcpInfo::read(&bytes);
        assert_eq!((info.round_trip, info.min_round_trip), (Duration::from_micros(1500), Duration::ZERO));
    }
}
