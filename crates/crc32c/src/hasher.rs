//! The resumable digest.

use crate::kernel;

/// A CRC32C that can be fed in pieces: four bytes of state, no buffer.
///
/// Cutting the input differently never changes the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crc32c {
    /// The shift register: the complement of the CRC of the bytes so far.
    register: u32,
}

impl Crc32c {
    /// Starts a digest of no bytes.
    #[inline]
    pub const fn new() -> Self {
        Self { register: u32::MAX }
    }

    /// Takes the next bytes into the digest.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.register = kernel::update(self.register, bytes);
    }

    /// Copies `src` to `dst` and takes the copied bytes into the digest, reading each byte of `src` exactly once.
    ///
    /// # Panics
    ///
    /// When the two slices differ in length: a mistake of the caller.
    #[inline]
    pub fn copy(&mut self, dst: &mut [u8], src: &[u8]) {
        assert_eq!(dst.len(), src.len(), "copy between slices of different lengths");
        self.register = kernel::copy(self.register, dst, src);
    }

    /// Returns the CRC32C of all bytes so far. The digest can go on afterwards.
    #[inline]
    pub const fn finish(&self) -> u32 {
        !self.register
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}
