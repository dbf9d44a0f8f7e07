//! The CPU's own division, on three interleaved streams.
//!
//! The instruction takes eight bytes, can start every cycle, and answers after three. So a message is cut into three
//! parts of one length, which are digested at the same time, the second and third from an empty register; then the
//! first register is carried over the second part and added to its register, and the sum likewise over the third.
//!
//! The functions are inlined into kernels that enable the instruction, and have no other callers.

use super::cursor::{Cursor, To};
use super::instructions::{crc_u8, crc_u16, crc_u32, crc_u64};
use crate::tables::{ByteTable, carry_over, skip};

/// Bytes of one of three streams in a long message.
const LONG: usize = 1360;

/// Bytes of one of three streams in a short message, and in the rest of a long one.
const SHORT: usize = 168;

/// The shortest message that is cut into streams.
pub(super) const FROM: usize = 3 * SHORT;

static SKIP_LONG: [ByteTable; 4] = skip(LONG as i64);
static SKIP_SHORT: [ByteTable; 4] = skip(SHORT as i64);

/// Advances the register over all bytes that are left.
///
/// # Safety
///
/// The CPU has the instruction.
#[inline(always)]
pub(super) unsafe fn run<T: To>(mut register: u32, mut rest: Cursor<T>) -> u32 {
    // SAFETY: each takes no more than is left.
    unsafe {
        while rest.left() >= 3 * LONG {
            register = three::<T, LONG>(register, rest.split(3 * LONG), &SKIP_LONG);
        }
        while rest.left() >= 3 * SHORT {
            register = three::<T, SHORT>(register, rest.split(3 * SHORT), &SKIP_SHORT);
        }
        one(register, rest)
    }
}

/// Three streams of `LENGTH` bytes each.
///
/// # Safety
///
/// Three times `LENGTH` bytes are left, a multiple of 8.
#[inline(always)]
unsafe fn three<T: To, const LENGTH: usize>(register: u32, part: Cursor<T>, skip: &[ByteTable; 4]) -> u32 {
    let mut registers = [u64::from(register), 0, 0];
    for offset in (0..LENGTH).step_by(8) {
        for (stream, register) in registers.iter_mut().enumerate() {
            // SAFETY: within the caller's three times LENGTH bytes.
            *register = unsafe { crc_u64(*register, part.take_at(stream * LENGTH + offset)) };
        }
    }
    let [first, second, third] = registers.map(|register| register as u32);
    carry_over(carry_over(first, skip) ^ second, skip) ^ third
}

/// Digests all bytes that are left as one stream.
///
/// # Safety
///
/// The CPU has the instruction.
#[inline(always)]
pub(super) unsafe fn one<T: To>(register: u32, mut rest: Cursor<T>) -> u32 {
    let mut wide = u64::from(register);
    // SAFETY: there is as much left as each step takes.
    unsafe {
        while rest.left() >= 32 {
            wide = crc_u64(wide, rest.take_at(0));
            wide = crc_u64(wide, rest.take_at(8));
            wide = crc_u64(wide, rest.take_at(16));
            wide = crc_u64(wide, rest.take_at(24));
            rest.pass(32);
        }
        if rest.left() & 16 != 0 {
            wide = crc_u64(wide, rest.take());
            wide = crc_u64(wide, rest.take());
        }
        if rest.left() & 8 != 0 {
            wide = crc_u64(wide, rest.take());
        }
        last_bytes(wide as u32, rest)
    }
}

/// The last bytes of a message, fewer than eight.
///
/// # Safety
///
/// Fewer than eight bytes are left, and the CPU has the instruction.
#[inline(always)]
pub(super) unsafe fn last_bytes<T: To>(mut register: u32, mut rest: Cursor<T>) -> u32 {
    // SAFETY: there is as much left as each step takes.
    unsafe {
        if rest.left() & 4 != 0 {
            register = crc_u32(register, rest.take());
        }
        if rest.left() & 2 != 0 {
            register = crc_u16(register, rest.take());
        }
        if rest.left() & 1 != 0 {
            register = crc_u8(register, rest.take());
        }
    }
    register
}
