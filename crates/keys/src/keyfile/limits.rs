//! Bounds of a key file.

/// The longest key file in bytes. The most holders and epochs take a fifth of it.
pub const MAX_KEY_FILE_BYTES: usize = 1 << 20;

/// The most holders of a volume key.
pub const MAX_HOLDERS: usize = 32;

/// The most epochs of a volume.
pub const MAX_EPOCHS: usize = 1024;

/// The longest name of a holder in bytes.
pub const MAX_NAME_BYTES: usize = 64;

/// The longest address of a key server, and the longest identifier of an object there, in bytes.
pub const MAX_LOCATION_BYTES: usize = 256;
