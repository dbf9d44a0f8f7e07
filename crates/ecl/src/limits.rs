//! Every bound on what a peer can make an association keep or do.

/// The largest datagram: what IPv4 and UDP leave of 65,535 bytes.
pub const MAX_DATAGRAM_LEN: usize = 65_507;

/// The datagram that every path must carry: IPv6's least MTU of 1,280 bytes without IP and UDP headers.
pub const MIN_DATAGRAM_LEN: usize = 1232;

/// Packets of a stream that came early. Each costs about 100 bytes, whether its data is in its place or kept.
pub const MAX_EARLY_PACKETS: usize = 32_768;

/// Bytes that came early and have no place: commands with immediate data, and text.
pub const MAX_EARLY_BYTES: usize = 1 << 20;
