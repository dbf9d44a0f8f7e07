//! CRC32C kernels, and copies that digest on the way.
//!
//! Layer 0: over no other crate; under ecl, lunette, pools, quanta, session, testkit, tunnel.
//!
//! No other crate computes a CRC: header and data digests, and the checksums of quanta, all come from here.
//!
//! The value is the conventional CRC32C (Castagnoli polynomial, reflected, initial value and final complement all
//! ones): the check value of `"123456789"` is `0xE306_9283`. On the iSCSI wire the digest is this value in
//! little-endian order (RFC 7143, section 13.1 and appendix A.4). So 32 bytes of zero give `0x8A91_36AA`, sent as `aa
//! 36 91 8a`. [`to_wire`] and [`from_wire`] convert.
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
//!
//! # Choice
//!
//! The CPU's feature bits decide once which kernels exist. The message's length chooses among them each time: the CRC
//! instruction for headers and other short messages, the widest folding for the rest. [`choices`] lists them. The
//! environment variable `LUNETTE_CRC` or [`force`] makes one [`Kernel`] do everything, and any kernel can be called
//! directly. The variable `LUNETTE_CPU` names a [`Tier`] of CPUs and hides the extensions beyond it. So any machine can
//! test and measure the kernels of older ones.
//!
//! # Copies
//!
//! A copy reads each byte of its source exactly once, by a volatile access, and digests what it stores. A writer that
//! races with it may tear the data, but the digest always belongs to the copy. [`Crc32c::copy_raw`] is the form for
//! shared memory. Copies of 16 MiB or more bypass the cache; below that, bypassing was measured to be slower.
//!
//! Kernels whose words are narrower than the CPU's vectors *copy ahead*. They copy one block by vectors while they
//! digest the previous block's copy, which is in the nearest cache. So stores are wide and in order, whatever order the
//! digest takes the bytes in.
//!
//! # Algorithms
//!
//! A message is a polynomial over GF(2), whose highest power has the lowest bit of the first byte as its coefficient.
//! The CRC is the remainder of its division, shifted up by 32 places, by
//!
//! ```text
//! P = x^32 + x^28 + x^27 + x^26 + x^25 + x^23 + x^22 + x^20 + x^19 + x^18 + x^14 + x^13 + x^11 + x^10 + x^9 + x^8 + x^6 + 1
//! ```
//!
//! with the first 32 bits and the result complemented. Everything is *reflected*: the lowest bit of an integer is the
//! highest power, so `P` without `x^32` is the constant `0x82F6_3B78`, the only one that this crate states. All others
//! are powers of `x` modulo `P`, computed at compile time and verified by tests.
//!
//! All kernels rest on two principles (Kounavis and Berry; the FAST '05 paper's section 3.2).
//!
//! - **Bit slicing.** The CRC is linear: the CRC of a sum is the sum of the CRCs. So a message may be cut into slices,
//!   each with zeroes in the place of the others, and the remainders added.
//! - **Bit replacement.** A prefix may be replaced by anything congruent to it, above all by its remainder.
//!
//! *Sarwate* replaces one byte at a time: the sum of the byte and the register's low byte indexes a table of `b * x^8`.
//! Each lookup waits for the one before. *Slicing-by-8* cuts eight bytes (the first four with the register added) into
//! slices, and looks up `b * x^8`, `b * x^16` ... `b * x^64`, one table for each position, all at once; *slicing-by-16*
//! doubles that.
//!
//! *`crc32q`* (ARM: `crc32cx`) is the CPU's own division, eight bytes at a time. It can start every cycle and takes
//! three, so a message is cut into three streams. The register of an earlier stream is multiplied by `x^(8n)` for the
//! `n` bytes of the next, by four lookups, and added.
//!
//! *Folding* uses carry-less multiplication. A 128-bit lane of two words `a, b` that lies `d` bytes before another is
//! congruent to `a * (x^(8d + 64) mod P) + b * (x^(8d) mod P)`, whose products have 96 bits: they are added to the
//! later lane, and the earlier one is done with. With four vectors of 1, 2 or 4 lanes each, a step takes 64, 128 or 256
//! bytes. At the end, each remaining word, at distance `d` from the end, is multiplied by `x^(8d + 32) mod P`, from a
//! table, and the sum of the products, a polynomial of 96 bits, is *reduced*: one `crc32q` for its first 64 bits, one
//! addition for the others. There is no Barrett reduction, and no cascade from lane to lane.
//!
//! Folding leaves the `crc32q` unit idle, so blocks of a message are divided between both. One multiplication carries
//! each stream's register to the end. How much goes to which unit depends on how often the multiplier starts an
//! operation; a block is 1 KiB, so that messages of a power of two leave no rest.
#![cfg_attr(not(feature = "std"), no_std)]

mod algebra;
#[cfg(feature = "bench")]
pub mod bench;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod carry;
mod choice;
mod cpu;
mod gf2;
mod hasher;
mod kernel;
mod segments;
mod tables;
mod tier;

pub use algebra::{Combiner, combine, zeroes};
pub use choice::{Choice, choices, force, requested, unforce};
pub use cpu::Features;
pub use hasher::Crc32c;
pub use kernel::{Kernel, KernelError};
pub use segments::{Segment, SegmentMut};
pub use tier::{Tier, UnknownTier, requested_tier};

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

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
