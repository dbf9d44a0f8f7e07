//! A kernel's position in its bytes, and the one way it reads them.
//!
//! Every load of a message goes through here, is volatile, and is the only load of its bytes. So what is digested is
//! what is stored, even while another thread or process writes to the source.

use core::marker::PhantomData;

/// The destination of the bytes beside their digest. A type parameter of the kernels, so each form is compiled
/// separately.
pub(super) trait To: Copy {
    /// The vectors by which a part is copied [ahead](Ahead) of its digest.
    type Vector: Word;

    /// The destination of the bytes of a part that has been copied ahead.
    type Copied: To;

    /// Whether parts are copied ahead of their digest.
    const AHEAD: bool = false;

    /// Whether the bytes are stored.
    const STORES: bool = true;

    /// Stores a word, if the bytes are stored.
    ///
    /// # Safety
    ///
    /// `dst` is valid for writes of the word; for [`Memory`], the place of one of 8 bytes or more is aligned to its
    /// size.
    #[inline(always)]
    unsafe fn store<W: Word>(word: W, dst: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { dst.cast::<W>().write_unaligned(word) }
    }

    /// The bytes of a part as the digest finds them. When parts are copied ahead, all of this one has been.
    fn copied(part: Cursor<Self>) -> Cursor<Self::Copied>;
}

/// Only digests: the destination is not touched.
#[derive(Clone, Copy)]
pub(super) struct Nowhere;

impl To for Nowhere {
    type Vector = u64;
    type Copied = Self;
    const STORES: bool = false;

    #[inline(always)]
    fn copied(part: Cursor<Self>) -> Cursor<Self> {
        part
    }
}

/// Stores each word as it is digested.
#[derive(Clone, Copy)]
pub(super) struct Cache;

impl To for Cache {
    type Vector = u64;
    type Copied = Self;

    #[inline(always)]
    fn copied(part: Cursor<Self>) -> Cursor<Self> {
        part
    }
}

/// Stores each word as it is digested, past the cache where it has 8 bytes or more.
#[derive(Clone, Copy)]
pub(super) struct Memory;

impl To for Memory {
    type Vector = u64;
    type Copied = Self;

    #[inline(always)]
    unsafe fn store<W: Word>(word: W, dst: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { if size_of::<W>() >= 8 { word.store_past_cache(dst.cast()) } else { Cache::store(word, dst) } }
    }

    #[inline(always)]
    fn copied(part: Cursor<Self>) -> Cursor<Self> {
        part
    }
}

/// Copies a part by vectors `V` while the part before it is digested, and then digests the copy.
///
/// Vectors wider than the words of the digest make fewer loads and stores, and these go through memory in order,
/// whatever the order of the digest. The copy is in the nearest cache when the digest comes to it.
#[derive(Clone, Copy)]
pub(super) struct Ahead<V>(PhantomData<V>);

impl<V: Word> To for Ahead<V> {
    type Vector = V;
    type Copied = Nowhere;
    const AHEAD: bool = true;

    #[inline(always)]
    fn copied(part: Cursor<Self>) -> Cursor<Nowhere> {
        // The destination has no other user, so what is there is what was stored.
        Cursor { src: part.dst, dst: part.dst, left: part.left, to: PhantomData }
    }
}

/// A value at any address.
#[repr(C, packed)]
struct Unaligned<W>(W);

/// A value that a cursor can take in one load: an integer or a vector.
pub(super) trait Word: Copy {
    /// Stores to `dst`, which is aligned for `Self`, past the cache if there is such a store.
    ///
    /// # Safety
    ///
    /// The conditions of [`core::ptr::write`]; the CPU has the vectors of this size.
    #[inline(always)]
    unsafe fn store_past_cache(self, dst: *mut Self) {
        // SAFETY: the caller's promise.
        unsafe { dst.write(self) }
    }
}

impl Word for u8 {}
impl Word for u16 {}
impl Word for u32 {}
impl Word for u64 {
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn store_past_cache(self, dst: *mut Self) {
        // SAFETY: the caller's promise; every x86-64 CPU has SSE2.
        unsafe { core::arch::x86_64::_mm_stream_si64(dst.cast(), self.cast_signed()) }
    }
}
impl Word for u128 {}

/// The bytes that a kernel has yet to take.
#[derive(Clone, Copy)]
pub(super) struct Cursor<T: To> {
    src: *const u8,
    dst: *mut u8,
    left: usize,
    to: PhantomData<T>,
}

impl<T: To> Cursor<T> {
    /// A cursor at the start of `len` bytes.
    ///
    /// # Safety
    ///
    /// `src` is valid for reads of `len` bytes; if `T` stores them, `dst` is valid for writes of as many; they do not
    /// overlap. Another thread or process may write to `src`; `dst` has no other user. This holds as long as the cursor
    /// is used.
    #[inline(always)]
    pub(super) unsafe fn new(dst: *mut u8, src: *const u8, len: usize) -> Self {
        Self { src, dst, left: len, to: PhantomData }
    }

    /// The number of bytes not yet taken.
    #[inline(always)]
    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// Prefetches the line `offset` bytes ahead, which may lie behind the end, where there is a stable intrinsic for
    /// that.
    #[inline(always)]
    pub(super) fn prefetch(&self, offset: usize) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch may be of any address.
        unsafe {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(self.src.wrapping_add(offset).cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = offset;
    }

    /// Takes the next word.
    ///
    /// # Safety
    ///
    /// At least the word's size is left.
    #[inline(always)]
    pub(super) unsafe fn take<W: Word>(&mut self) -> W {
        // SAFETY: the caller's promise.
        unsafe {
            let word = self.take_at(0);
            self.pass(size_of::<W>());
            word
        }
    }

    /// Takes the word `offset` bytes ahead, without moving the cursor. No byte may be taken twice.
    ///
    /// # Safety
    ///
    /// At least `offset` bytes and the word's size are left. For [`Memory`], the place of one of 8 bytes or more is
    /// aligned to its size.
    #[inline(always)]
    pub(super) unsafe fn take_at<W: Word>(&self, offset: usize) -> W {
        debug_assert!(offset + size_of::<W>() <= self.left);
        // SAFETY: the caller promises that both sides are valid there.
        unsafe {
            let word = self.src.add(offset).cast::<Unaligned<W>>().read_volatile().0;
            if T::STORES {
                T::store(word, self.dst.add(offset));
            }
            word
        }
    }

    /// Copies `bytes` that begin `offset` bytes ahead, for a digest of the [copy](To::copied). No byte may be copied
    /// twice, or copied and taken.
    ///
    /// # Safety
    ///
    /// `T` copies parts ahead. At least `offset + bytes` are left, and `bytes` is a multiple of 8.
    #[inline(always)]
    pub(super) unsafe fn copy_ahead(&self, offset: usize, bytes: usize) {
        debug_assert!(T::AHEAD && bytes.is_multiple_of(8));
        let in_vectors = bytes / size_of::<T::Vector>() * size_of::<T::Vector>();
        // SAFETY: the caller's promise.
        unsafe {
            for vector in (0..in_vectors).step_by(size_of::<T::Vector>()) {
                self.take_at::<T::Vector>(offset + vector);
            }
            for word in (in_vectors..bytes).step_by(8) {
                self.take_at::<u64>(offset + word);
            }
        }
    }

    /// Moves the cursor over bytes that have been taken.
    ///
    /// # Safety
    ///
    /// At least `bytes` are left.
    #[inline(always)]
    pub(super) unsafe fn pass(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.left);
        // SAFETY: the cursor stays within the bytes or at their end. A destination that is never used may be any
        // pointer.
        self.src = unsafe { self.src.add(bytes) };
        self.dst = self.dst.wrapping_add(bytes);
        self.left -= bytes;
    }

    /// Splits off the next `bytes`, a part, and moves the cursor behind it.
    ///
    /// # Safety
    ///
    /// At least `bytes` are left.
    #[inline(always)]
    pub(super) unsafe fn split(&mut self, bytes: usize) -> Self {
        let head = Self { left: bytes, ..*self };
        // SAFETY: the caller's promise.
        unsafe { self.pass(bytes) };
        head
    }
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use core::arch::x86_64::{__m128i, __m256i, __m512i, _mm_stream_si128, _mm256_stream_si256, _mm512_stream_si512};

    use super::Word;

    impl Word for __m128i {
        #[inline(always)]
        unsafe fn store_past_cache(self, dst: *mut Self) {
            // SAFETY: the caller's promise.
            unsafe { _mm_stream_si128(dst, self) }
        }
    }

    impl Word for __m256i {
        #[inline(always)]
        unsafe fn store_past_cache(self, dst: *mut Self) {
            // SAFETY: the caller's promise.
            unsafe { _mm256_stream_si256(dst, self) }
        }
    }

    impl Word for __m512i {
        #[inline(always)]
        unsafe fn store_past_cache(self, dst: *mut Self) {
            // SAFETY: the caller's promise.
            unsafe { _mm512_stream_si512(dst, self) }
        }
    }
}

#[cfg(target_arch = "aarch64")]
impl Word for core::arch::aarch64::uint64x2_t {}
