//! Every bound on what a peer can make an association keep or do.

/// The largest datagram: what IPv4 and UDP leave of 65,535 bytes.
pub const MAX_DATAGRAM_LEN: usize = 65_507;

/// The datagram that every path must carry: IPv6's least MTU of 1,280 bytes without IP and UDP headers.
pub const MIN_DATAGRAM_LEN: usize = 1232;

/// Packets of a stream that came early. Each costs about 100 bytes, whether its data is in its place or kept.
pub const MAX_EARLY_PACKETS: usize = 32_768;

/// Bytes that came early and have no place: commands with immediate data, and text.
pub const MAX_EARLY_BYTES: usize = 1 << 20;

/// The ranges of packet numbers that each side remembers. 4 KiB, and at a loss of 1% the last 25,000 packets.
pub const MAX_RANGES: usize = 256;

/// The ranges in the payload of an Ack packet: it fits the smallest datagram.
pub const MAX_ACK_RANGES: usize = 64;
const _: () = assert!(crate::header::HEADER_LEN + MAX_ACK_RANGES * 16 <= MIN_DATAGRAM_LEN);

/// The packets that may be in flight: with 1,400 bytes each, what 58 Gbit/s have under way in 50 ms.
pub const MAX_PACKETS_IN_FLIGHT: usize = 1 << 18;

/// The congestion window.
pub const MAX_WINDOW_BYTES: u64 = 1 << 32;

/// How long packets may be in flight without an answer. Then the association has ended.
pub const MAX_SILENCE: std::time::Duration = std::time::Duration::from_secs(30);

/// Probes without an answer after which a leaving end gives up, at the earliest after [`LEAST_FAREWELL`].
pub const FAREWELL_PROBES: u32 = 3;

/// See [`FAREWELL_PROBES`]. A peer on a short path may be busy for as long.
pub const LEAST_FAREWELL: std::time::Duration = std::time::Duration::from_millis(500);

/// Packets under one key: packet numbers stay below it. RFC 10032 allows 2⁴⁸ messages even with random nonces; ours are
/// counted. At ten million packets a second it is reached after 325 days, and the association ends.
pub const MAX_PACKETS_PER_KEY: u64 = 1 << 48;

/// Handshakes that a server has accepted and that no packet of the client has completed. One takes about 400 bytes.
/// When there is another, the oldest is forgotten.
pub const MAX_UNFINISHED_HANDSHAKES: usize = 1024;

/// Unfinished handshakes of one host: an IPv4 or Ethernet address, or an IPv6 network of 64 bits. When it has another,
/// its own oldest is forgotten.
pub const MAX_UNFINISHED_HANDSHAKES_OF_HOST: usize = 64;

/// Bytes that may be sent to an address that is not validated, for each byte that came from it (RFC 9000 section 8.1).
pub const AMPLIFICATION: u64 = 3;

/// UTF-8 bytes of the text in a Close packet.
pub const MAX_CLOSE_TEXT_LEN: usize = 256;

/// Early packets before the login has passed, when the peer may be anyone.
pub const MAX_EARLY_PACKETS_OF_LOGIN: usize = 64;
/// Early bytes before the login has passed: see [`MAX_EARLY_PACKETS_OF_LOGIN`].
pub const MAX_EARLY_BYTES_OF_LOGIN: usize = 64 * 1024;

/// Credit that one end gives: twice as much could not be told apart in 32 bits of
/// [`CREDIT_UNIT`](crate::header::CREDIT_UNIT)s.
pub const MAX_CREDIT_BYTES: u64 = 1 << 41;

/// Packets that are built and wait for the socket.
pub const MAX_READY_PACKETS: usize = 128;

/// Bytes of PDUs that an association takes before the peer has those before them: twice what 10 Gbit/s have under way
/// in 50 ms.
pub const MAX_QUEUED_BYTES: u64 = 128 << 20;
