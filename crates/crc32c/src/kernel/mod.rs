//! The kernels: every way to compute a CRC32C that this crate knows, each callable by name.
//!
//! | kernel | what it does | needs |
//! |---|---|---|
//! | `bitwise` | long division bit by bit; the oracle | |
//! | `sarwate` | one table of 256 entries, one lookup a byte | |
//! | `slicing8` | eight tables, eight independent lookups for eight bytes | |
//! | `slicing16` | sixteen tables, sixteen lookups for sixteen bytes | |
//! | `crc32q` | the instruction, on three streams at once | SSE4.2 |
//! | `crc32q+pclmul` | three streams that take three quarters, and folding 64 bytes a step beside them | PCLMULQDQ, AVX2 |
//! | `pclmul+crc32q` | folding 64 bytes a step, and four streams that take half beside it | PCLMULQDQ, AVX2 |
//! | `vpclmul256` | folding 128 bytes a step, and four streams that take half beside it | VPCLMULQDQ, AVX2 |
//! | `vpclmul512` | folding 256 bytes a step, in digests with four streams beside it | VPCLMULQDQ, AVX-512F |
//! | `crc32cx` | ARM's instruction, on three streams at once | CRC32 |
//! | `pmull+crc32cx` | folding 64 bytes a step, and four streams that take half beside it | PMULL, CRC32 |
//! | `pmull+crc32cx+eor3` | the same, adding three vectors at once | SHA3, PMULL, CRC32 |

#![expect(
    clippy::inline_always,
    reason = "the parts of a kernel must become part of the one function that enables its instructions"
)]
#![allow(
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "intrinsics take words as signed, CRCs as unsigned integers"
)]

use core::fmt;

use crate::Crc32c;
use crate::cpu::Features;
use cursor::{Memory, Nowhere, To};

mod bitwise;
mod cursor;
mod sarwate;
mod slicing16;
mod slicing8;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod division;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod fold;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[cfg_attr(target_arch = "x86_64", path = "instructions/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "instructions/aarch64.rs")]
mod instructions;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod streams;

#[cfg(target_arch = "x86_64")]
mod pclmul;
#[cfg(target_arch = "x86_64")]
mod vpclmul256;
#[cfg(target_arch = "x86_64")]
mod vpclmul512;

#[cfg(target_arch = "aarch64")]
mod pmull;

/// The functions of a kernel's module.
trait Algorithm {
    /// The name that users call it by.
    const NAME: &'static str;

    /// The features that the CPU must have.
    const NEEDS: Features;

    /// How its copies within the cache store the bytes.
    type Copy: To;

    /// Advances the register over `len` bytes. The arguments are those of [`cursor::Cursor::new`], which would be
    /// passed in memory, not in registers.
    ///
    /// # Safety
    ///
    /// The conditions of [`cursor::Cursor::new`]. The CPU has what the kernel needs. For [`Memory`], the destination is
    /// aligned to [`LINE`].
    unsafe fn run<T: To>(register: u32, dst: *mut u8, src: *const u8, len: usize) -> u32;
}

/// Bytes of a cache line, and of the largest vector.
const LINE: usize = 64;

/// A kernel as this crate's tables hold it, whether or not this CPU can run it.
pub(crate) struct Entry {
    name: &'static str,
    needs: Features,
    digest: unsafe fn(u32, *const u8, usize) -> u32,
    copy: unsafe fn(u32, *mut u8, *const u8, usize) -> u32,
    copy_past_cache: unsafe fn(u32, *mut u8, *const u8, usize) -> u32,
}

/// All kernels, the plainest first.
#[cfg(target_arch = "x86_64")]
pub(crate) static ENTRIES: [Entry; 9] = [
    Entry::of::<bitwise::Bitwise>(),
    Entry::of::<sarwate::Sarwate>(),
    Entry::of::<slicing8::Slicing8>(),
    Entry::of::<slicing16::Slicing16>(),
    Entry::of::<division::Division>(),
    Entry::of::<pclmul::Crc32qPclmul>(),
    Entry::of::<pclmul::PclmulCrc32q>(),
    Entry::of::<vpclmul256::Vpclmul256>(),
    Entry::of::<vpclmul512::Vpclmul512>(),
];

/// All kernels, the plainest first.
#[cfg(target_arch = "aarch64")]
pub(crate) static ENTRIES: [Entry; 7] = [
    Entry::of::<bitwise::Bitwise>(),
    Entry::of::<sarwate::Sarwate>(),
    Entry::of::<slicing8::Slicing8>(),
    Entry::of::<slicing16::Slicing16>(),
    Entry::of::<division::Division>(),
    Entry::of::<pmull::Pmull>(),
    Entry::of::<pmull::PmullEor3>(),
];

/// All kernels, the plainest first.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) static ENTRIES: [Entry; 4] = [
    Entry::of::<bitwise::Bitwise>(),
    Entry::of::<sarwate::Sarwate>(),
    Entry::of::<slicing8::Slicing8>(),
    Entry::of::<slicing16::Slicing16>(),
];

impl Entry {
    const fn of<A: Algorithm>() -> Self {
        Self {
            name: A::NAME,
            needs: A::NEEDS,
            digest: digest::<A>,
            copy: copy::<A>,
            copy_past_cache: copy_past_cache::<A>,
        }
    }

    /// The features that the kernel needs.
    pub(crate) fn needs(&self) -> Features {
        self.needs
    }

    /// The features that the kernel needs and this CPU lacks.
    pub(crate) fn lacks(&self) -> Features {
        self.needs.without(Features::of_this_cpu())
    }

    /// # Safety
    ///
    /// The CPU lacks nothing that the kernel needs; `src` is valid for reads of `len` bytes, which other threads or
    /// processes may write at the same time.
    #[inline]
    pub(crate) unsafe fn digest(&self, register: u32, src: *const u8, len: usize) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { (self.digest)(register, src, len) }
    }

    /// # Safety
    ///
    /// The conditions of [`Entry::digest`]; `dst` is valid for writes of `len` bytes, does not overlap `src`, and has
    /// no other user.
    #[inline]
    pub(crate) unsafe fn copy(&self, register: u32, dst: *mut u8, src: *const u8, len: usize) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { (self.copy)(register, dst, src, len) }
    }

    /// Copies like [`Entry::copy`], but past the cache.
    ///
    /// # Safety
    ///
    /// The conditions of [`Entry::copy`].
    #[inline]
    pub(crate) unsafe fn copy_past_cache(&self, register: u32, dst: *mut u8, src: *const u8, len: usize) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { (self.copy_past_cache)(register, dst, src, len) }
    }
}

unsafe fn digest<A: Algorithm>(register: u32, src: *const u8, len: usize) -> u32 {
    // SAFETY: the caller's promise. A digest does not use its destination.
    unsafe { A::run::<Nowhere>(register, core::ptr::null_mut(), src, len) }
}

unsafe fn copy<A: Algorithm>(register: u32, dst: *mut u8, src: *const u8, len: usize) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { A::run::<A::Copy>(register, dst, src, len) }
}

unsafe fn copy_past_cache<A: Algorithm>(register: u32, dst: *mut u8, src: *const u8, len: usize) -> u32 {
    let head = dst.align_offset(LINE).min(len);
    // SAFETY: the caller's promise; the rest begins where the destination is aligned.
    let register = unsafe {
        let register = A::run::<A::Copy>(register, dst, src, head);
        A::run::<Memory>(register, dst.add(head), src.add(head), len - head)
    };
    // Stores past the cache are not ordered with any others, not even with a later store that tells another thread that
    // the bytes are there.
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 CPU has SSE.
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
    register
}

/// A kernel that this CPU can run.
#[derive(Clone, Copy)]
pub struct Kernel(&'static Entry);

impl Kernel {
    /// The kernels that this CPU can run, the plainest first.
    pub fn all() -> impl Iterator<Item = Self> {
        ENTRIES.iter().filter(|entry| entry.lacks().is_none()).map(Self)
    }

    /// The names of all kernels of this crate on this architecture, whether or not this CPU can run them, the plainest
    /// first.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ENTRIES.iter().map(|entry| entry.name)
    }

    /// The kernel with this name.
    ///
    /// ```
    /// use lunette_crc32c::Kernel;
    ///
    /// let slicing = Kernel::named("slicing8")?;
    /// assert_eq!(slicing.crc32c(b"123456789"), 0xE306_9283);
    /// # Ok::<(), lunette_crc32c::KernelError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When there is no kernel with this name, or this CPU cannot run it.
    pub fn named(name: &str) -> Result<Self, KernelError> {
        let entry = ENTRIES.iter().find(|entry| entry.name == name).ok_or(KernelError::Unknown)?;
        let lacks = entry.lacks();
        if lacks.is_none() { Ok(Self(entry)) } else { Err(KernelError::Lacks(lacks)) }
    }

    pub(crate) fn entry(self) -> &'static Entry {
        self.0
    }

    /// The kernel of a table's entry, if this CPU can run it.
    pub(crate) fn of_entry(entry: &'static Entry) -> Option<Self> {
        entry.lacks().is_none().then_some(Self(entry))
    }

    /// The kernel's name.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// The features that the kernel needs of the CPU.
    pub fn needs(self) -> Features {
        self.0.needs
    }

    /// Returns the CRC32C of `bytes`.
    pub fn crc32c(self, bytes: &[u8]) -> u32 {
        let mut digest = Crc32c::new();
        self.update(&mut digest, bytes);
        digest.finish()
    }

    /// Takes the next bytes into a digest.
    pub fn update(self, digest: &mut Crc32c, bytes: &[u8]) {
        // SAFETY: the CPU can run the kernel, and a slice is valid for reads.
        digest.register = unsafe { self.0.digest(digest.register, bytes.as_ptr(), bytes.len()) };
    }

    /// Copies `src` to `dst` and takes the copied bytes into a digest. Each byte of `src` is read exactly once.
    ///
    /// # Panics
    ///
    /// When the two slices differ in length: a mistake of the caller.
    pub fn copy(self, digest: &mut Crc32c, dst: &mut [u8], src: &[u8]) {
        assert_eq!(dst.len(), src.len(), "copy between slices of different lengths");
        // SAFETY: the slices are valid, of one length, and one of them is exclusive.
        unsafe { self.copy_raw(digest, dst.as_mut_ptr(), src.as_ptr(), src.len()) };
    }

    /// Copies `len` bytes from memory that others may write to at the same time; see [`Crc32c::copy_raw`].
    ///
    /// # Safety
    ///
    /// `src` is valid for reads and `dst` for writes of `len` bytes; they do not overlap; `dst` has no other user
    /// meanwhile.
    pub unsafe fn copy_raw(self, digest: &mut Crc32c, dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: the CPU can run the kernel; the rest is the caller's promise.
        digest.register = unsafe { self.0.copy(digest.register, dst, src, len) };
    }

    /// Like [`Kernel::copy`], but the copy does not displace what the cache holds, if the kernel has stores for that.
    /// This pays only for copies larger than the cache.
    ///
    /// # Panics
    ///
    /// When the two slices differ in length: a mistake of the caller.
    pub fn copy_past_cache(self, digest: &mut Crc32c, dst: &mut [u8], src: &[u8]) {
        assert_eq!(dst.len(), src.len(), "copy between slices of different lengths");
        // SAFETY: as for `copy`.
        digest.register = unsafe { self.0.copy_past_cache(digest.register, dst.as_mut_ptr(), src.as_ptr(), src.len()) };
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kernel").field(&self.name()).finish()
    }
}

impl PartialEq for Kernel {
    fn eq(&self, other: &Self) -> bool {
        core::ptr::eq(self.0, other.0)
    }
}

impl Eq for Kernel {}

/// The reason why a kernel is not available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelError {
    /// No kernel of this architecture has this name.
    Unknown,
    /// The CPU, or the operating system, lacks these features.
    Lacks(Features),
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => {
                f.write_str("no CRC32C kernel has this name; there are")?;
                Kernel::names().try_for_each(|name| write!(f, " {name}"))
            }
            Self::Lacks(features) => write!(f, "this CPU cannot run the CRC32C kernel: it lacks {features}"),
        }
    }
}

impl core::error::Error for KernelError {}
