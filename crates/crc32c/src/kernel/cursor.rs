//! A kernel's position in its bytes, and the one way it reads them.
//!
//! Every load of a message goes through here, is volatile, and is the only load of its bytes. So what is digested is what is stored, even while
//! another thread or process writes to the source.

/// What happens to the bytes beside their digest. A constant parameter of the kernels, so each form is compiled separately.
pub(super) type To = u8;

/// Only digests: the destination is not touched.
pub(super) const NOWHERE: To = 0;

/// Stores the bytes.
pub(super) const CACHE: To = 1;

/// Stores the bytes past the cache, where the store is a whole, aligned vector.
pub(super) const MEMORY: To = 2;

/// A value at any address.
#[repr(C, packed)]
struct Unaligned<T>(T);

/// A value that a cursor can take in one load: an integer or a vector.
pub(super) trait Word: Copy {
    /// Stores to `dst`, which is aligned for `Self`, past the cache if there is such a store.
    ///
    /// # Safety
    ///
    /// As for [`core::ptr::write`]; the CPU has the vectors of this size.
    #[inline(always)]
    unsafe fn store_past_cache(self, dst: *mut Self) {
        // SAFETY: the caller's promise.
        unsafe { dst.write(self) }
    }
}

impl Word for u8 {}
impl Word for u16 {}
impl Word for u32 {}
impl Word for u64 {}
impl Word for u128 {}

/// The bytes that a kernel has yet to take.
#[derive(Clone, Copy)]
pub(super) struct Cursor<const TO: To> {
    src: *const u8,
    dst: *mut u8,
    left: usize,
}

impl<const TO: To> Cursor<TO> {
    /// A cursor at the start of `len` bytes.
    ///
    /// # Safety
    ///
    /// `src` is valid for reads of `len` bytes; unless `TO` is [`NOWHERE`], `dst` is valid for writes of as many; they do not overlap. Another
    /// thread or process may write to `src`; `dst` has no other user. This holds as long as the cursor is used.
    #[inline(always)]
    pub(super) unsafe fn new(dst: *mut u8, src: *const u8, len: usize) -> Self {
        Self { src, dst, left: len }
    }

    /// The number of bytes not yet taken.
    #[inline(always)]
    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// Prefetches the line `offset` bytes ahead, which may lie behind the end.
    #[inline(always)]
    #[cfg(target_arch = "x86_64")]
    pub(super) fn prefetch(&self, offset: usize) {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch may be of any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(self.src.wrapping_add(offset).cast()) }
    }

    /// Takes the next word.
    ///
    /// # Safety
    ///
    /// At least the word's size is left.
    #[inline(always)]
    pub(super) unsafe fn take<T: Word>(&mut self) -> T {
        // SAFETY: the caller's promise.
        unsafe {
            let word = self.take_at(0);
            self.pass(size_of::<T>());
            word
        }
    }

    /// Takes the word `offset` bytes ahead, without moving the cursor. No byte may be taken twice.
    ///
    /// # Safety
    ///
    /// At least `offset` bytes and the word's size are left. For [`MEMORY`], the word's place is aligned to its size.
    #[inline(always)]
    pub(super) unsafe fn take_at<T: Word>(&self, offset: usize) -> T {
        debug_assert!(offset + size_of::<T>() <= self.left);
        // SAFETY: the caller promises that both sides are valid there. Only the last access needs alignment, and has it.
        unsafe {
            let word = self.src.add(offset).cast::<Unaligned<T>>().read_volatile().0;
            match TO {
                NOWHERE => {}
                MEMORY if size_of::<T>() >= 16 => word.store_past_cache(self.dst.add(offset).cast()),
                _ => self.dst.add(offset).cast::<T>().write_unaligned(word),
            }
            word
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
        // SAFETY: the cursor stays within the bytes or at their end. A destination that is never used may be any pointer.
        self.src = unsafe { self.src.add(bytes) };
        self.dst = self.dst.wrapping_add(bytes);
        self.left -= bytes;
    }

    /// Splits off the next `bytes`, and moves the cursor behind them.
    ///
    /// # Safety
    ///
    /// At least `bytes` are left.
    #[inline(always)]
    #[cfg(target_arch = "x86_64")]
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
