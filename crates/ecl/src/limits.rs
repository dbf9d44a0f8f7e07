//! Every bound on what a peer can make an association keep or do.

/// The largest datagram: what IPv4 and UDP leave of 65,535 bytes.
pub const MAX_DATAGRAM_LEN: usize = 65_507;

/// The datagram that every path must carry: IPv6's least MTU of 1,280 bytes without IP and UDP headers.
pub const MIN_DATAGRAM_LEN: usize = 1232;
