//! Limits on what a peer can make this crate keep.

/// Bytes of a data segment that is rewritten: a Text Response, or a Login Response that redirects.
pub const MAX_SEGMENT_BYTES: usize = 1 << 20;

/// Bytes of text that one side sends before the other one answers, in a login.
pub const MAX_LOGIN_TEXT_BYTES: usize = 64 << 10;

/// The longest value of TargetAddress in bytes (RFC 7143, section 6.1: what is no number or list has up to 255).
pub const MAX_ADDRESS_BYTES: usize = 255;

/// Bytes of rewritten text that wait for the next PDU, because the one before was full. Beyond them addresses are left
/// out.
pub const MAX_WAITING_BYTES: usize = 64 << 10;
