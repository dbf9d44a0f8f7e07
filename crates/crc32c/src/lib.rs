//! CRC32C kernels, and copies that digest on the way.
//!
//! Place in the house: floor 0. Nothing is below this crate; `pdu` and `session` use it for header and data digests, and nothing else in the
//! tree computes a CRC.
//!
//! The value is the conventional CRC32C (Castagnoli polynomial, reflected, initial value and final complement all ones): the check value of
//! `"123456789"` is `0xE306_9283`. On the iSCSI wire the digest is this value in little-endian order (RFC 7143, section 13.1 and appendix A.4):
//! 32 bytes of zero give `0x8A91_36AA`, sent as `aa 36 91 8a`. [`to_wire`] and [`from_wire`] convert.
//!
//! ```
//! use lunette_crc32c::{Crc32c, copy, crc32c, to_wire};
//!
//! assert_eq!(crc32c(b"123456789"), 0xE306_9283);
//! assert_eq!(to_wire(crc32c(&[0; 32])), [0xaa, 0x36, 0x91, 0x8a]);
//!
//! let mut place = [0; 9];
//! assert_eq!(copy(&mut place, b"123456789"), 0xE306_9283);
//! assert_eq!(&place, b"123456789");
//!
//! let mut digest = Crc32c::new();
//! digest.update(b"1234");
//! digest.update(b"56789");
//! assert_eq!(digest.finish(), 0xE306_9283);
//! ```
#![cfg_attr(not(feature = "std"), no_std)]

mod algebra;
#[cfg(feature = "bench")]
pub mod bench;
mod choice;
mod cpu;
mod gf2;
mod hasher;
mod kernel;
mod segments;
mod tables;

pub use algebra::{combine, zeroes};
pub use choice::{Choice, choices, force, requested, unforce};
pub use cpu::Features;
pub use hasher::Crc32c;
pub use kernel::{Kernel, KernelError};
pub use segments::{Segment, SegmentMut};

/// Returns the CRC32C of `bytes`.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    let mut digest = Crc32c::new();
    digest.update(bytes);
    digest.finish()
}

/// Copies `src` to `dst` and returns the CRC32C of the bytes that were copied.
///
/// Each byte of `src` is read exactly once.
///
/// # Panics
///
/// When the two slices differ in length: a mistake of the caller.
#[inline]
pub fn copy(dst: &mut [u8], src: &[u8]) -> u32 {
    let mut digest = Crc32c::new();
    digest.copy(dst, src);
    digest.finish()
}

/// Returns the four bytes of a digest as iSCSI sends them (RFC 7143, appendix A.4).
#[inline]
pub const fn to_wire(crc: u32) -> [u8; 4] {
    crc.to_le_bytes()
}

/// Reads a digest from the four bytes that iSCSI sent.
#[inline]
pub const fn from_wire(bytes: [u8; 4]) -> u32 {
    u32::from_le_bytes(bytes)
}
