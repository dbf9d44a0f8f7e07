//! Bounds of a message.

/// The most requests in one message.
pub const MAX_BATCH_ITEMS: usize = 16;

/// The longest text in a message, such as a name, in bytes.
pub const MAX_TEXT_BYTES: usize = 256;

/// The most attributes in a request, and of an object.
pub const MAX_ATTRIBUTES: usize = 64;

/// The longest key material of an object in bytes.
pub const MAX_MATERIAL_BYTES: usize = 16 << 10;
