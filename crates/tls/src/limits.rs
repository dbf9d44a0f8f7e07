//! Limits on what a peer can make this crate keep or do.

use std::time::Duration;

/// Bytes of the records of a peer's handshake: a chain of certificates is most of it.
pub const MAX_HANDSHAKE_BYTES: usize = 64 << 10;

/// Bytes of a message after the handshake: a ticket.
pub const MAX_MESSAGE_BYTES: usize = 32 << 10;

/// Key updates and empty records without data between them.
pub const MAX_IDLE_RECORDS: u32 = 32;

/// Records that one key seals. AES-GCM is good for 2^24.5 of full length (RFC 8446 section 5.5).
pub const MAX_RECORDS_OF_A_KEY: u64 = 1 << 23;

/// The longest common name in bytes.
pub const MAX_COMMON_NAME_BYTES: usize = 128;

/// The most names of each kind in a certificate.
pub const MAX_NAMES: usize = 16;

/// The longest DNS name in bytes (RFC 1035, section 2.3.4, as text).
pub const MAX_DNS_NAME_BYTES: usize = 253;

/// The longest URI in bytes, which is the longest iSCSI name (RFC 7143, section 4.2.7.1).
pub const MAX_URI_BYTES: usize = 223;

/// The time between two handshakes of TLS that one address begins, in the long run.
pub const HANDSHAKE_INTERVAL: Duration = Duration::from_millis(4);

/// Handshakes of TLS that one address may begin at once.
pub const MAX_HANDSHAKE_BURST: u32 = 64;

/// Addresses whose handshakes of TLS are counted at a time. An address is forgotten when it keeps to its interval.
pub const MAX_HANDSHAKE_SOURCES: usize = 4096;
