//! The resumable digest.

use crate::choice;
use crate::gf2::{multiply, x_to_bytes};

/// A CRC32C that can be fed in pieces: four bytes of state, no buffer.
///
/// Cutting the input differently never changes the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crc32c {
    /// The shift register: the complement of the CRC of the bytes so far.
    pub(crate) register: u32,
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
        // SAFETY: a slice is valid for reads.
        self.register = unsafe { choice::digest(self.register, bytes.as_ptr(), bytes.len()) };
    }

    /// Takes a run of zero bytes of any length into the digest, in logarithmic time.
    #[inline]
    pub const fn update_zeroes(&mut self, len: u64) {
        self.register = multiply(self.register, x_to_bytes(len));
    }

    /// Copies `src` to `dst` and takes the copied bytes into the digest, reading each byte of `src` exactly once.
    ///
    /// # Panics
    ///
    /// When the two slices differ in length: a mistake of the caller.
    #[inline]
    pub fn copy(&mut self, dst: &mut [u8], src: &[u8]) {
        assert_eq!(dst.len(), src.len(), "copy between slices of different lengths");
        // SAFETY: the slices are valid, of one length, and one of them is exclusive.
        unsafe { self.copy_raw(dst.as_mut_ptr(), src.as_ptr(), src.len()) };
    }

    /// Copies `len` bytes from memory that others may write to at the same time, such as a shared mapping, and takes
    /// the bytes that were copied into the digest.
    ///
    /// Each byte is read exactly once, by a volatile access, so the digest is that of the copy, whatever a racing
    /// writer does.
    ///
    /// # Safety
    ///
    /// `src` is valid for reads and `dst` for writes of `len` bytes; they do not overlap; `dst` has no other user
    /// meanwhile.
    #[inline]
    pub unsafe fn copy_raw(&mut self, dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: the caller's promise.
        self.register = unsafe { choice::copy(self.register, dst, src, len) };
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
