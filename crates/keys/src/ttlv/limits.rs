//! Bounds of a message.

/// The longest message in bytes, with its header.
pub const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// The deepest nesting of structures. The deepest message of KMIP 1.4 has nine.
pub const MAX_DEPTH: usize = 16;

/// The most items in a message, structures included.
pub const MAX_ITEMS: usize = 16384;
