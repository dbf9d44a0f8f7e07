//! The kernels, and the choice between them.

mod slicing8;
#[cfg(target_arch = "x86_64")]
mod sse42;

/// Advances the register over `bytes`.
pub(crate) fn update(register: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if sse42::is_available() {
        // SAFETY: the CPU has SSE4.2.
        return unsafe { sse42::update(register, bytes) };
    }
    slicing8::update(register, bytes)
}

/// Copies `src` to `dst`, which are of one length, and advances the register over the copied bytes.
pub(crate) fn copy(register: u32, dst: &mut [u8], src: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if sse42::is_available() {
        // SAFETY: the CPU has SSE4.2.
        return unsafe { sse42::copy(register, dst, src) };
    }
    slicing8::copy(register, dst, src)
}
