//! The kernels' accesses to memory: nothing outside their buffers, and one read for each byte.

#![cfg(target_os = "linux")]

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lunette_crc32c::{Crc32c, Kernel, crc32c};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

const PAGE: usize = 4096;

/// Accessible pages between two protected ones.
struct Guarded {
    map: *mut u8,
    len: usize,
}

impl Guarded {
    fn new(pages: usize) -> Self {
        let len = pages * PAGE;
        // SAFETY: a new anonymous map, whose first and last page are then made inaccessible.
        let map = unsafe {
            let map =
                mmap_anonymous(ptr::null_mut(), len + 2 * PAGE, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
                    .expect("map pages");
            mprotect(map, PAGE, MprotectFlags::empty()).expect("protect the page before");
            mprotect(map.byte_add(PAGE + len), PAGE, MprotectFlags::empty()).expect("protect the page behind");
            map.cast::<u8>()
        };
        Self { map, len }
    }

    /// The accessible bytes.
    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: mapped, initialised to zero, and borrowed from `self`.
        unsafe { std::slice::from_raw_parts_mut(self.map.add(PAGE), self.len) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: this is the map of `new`, and no borrow of it is left.
        unsafe { munmap(self.map.cast(), self.len + 2 * PAGE).expect("unmap the pages") };
    }
}

/// Every length up to some steps of the widest kernel, and some blocks: each before the protected page behind it and
/// behind the one before it.
#[test]
fn nothing_outside_the_buffers_is_touched() {
    let (mut source, mut place) = (Guarded::new(3), Guarded::new(3));
    let (source, place) = (source.bytes(), place.bytes());
    for (index, byte) in source.iter_mut().enumerate() {
        *byte = (index * 31 % 251) as u8;
    }
    let lengths = (0..1100).chain([3928, 3936, 4000, 4064, 4096, 4097, 4100, 8191, 8192, 12000, 12288]);
    for len in lengths {
        let last = source.len() - len;
        for (from, to) in [(0, 0), (0, last), (last, 0), (last, last)] {
            let message = &source[from..from + len];
            let expected = crc32c(message);
            for kernel in Kernel::all() {
                assert_eq!(kernel.crc32c(message), expected, "{kernel:?}, {len} bytes");
                for past_cache in [false, true] {
                    let mut digest = Crc32c::new();
                    let place = &mut place[to..to + len];
                    if past_cache {
                        kernel.copy_past_cache(&mut digest, place, message);
                    } else {
                        kernel.copy(&mut digest, place, message);
                    }
                    assert_eq!(digest.finish(), expected, "{kernel:?}, copy of {len} bytes");
                }
            }
        }
    }
}

/// A writer never stops changing the source while it is copied. The digest must be that of the copy, whatever was
/// copied; a kernel that read a byte once for the copy and again for the digest would fail.
#[test]
fn a_racing_writer_cannot_part_copy_and_digest() {
    const WORDS: usize = 1024;
    const COPIES: usize = 400;
    let shared: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    let (mut torn, mut parted) = (0, Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut value = 1_u64;
            while !stop.load(Ordering::Relaxed) {
                for word in &shared {
                    word.store(value, Ordering::Relaxed);
                }
                value = value.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            }
        });
        while shared[0].load(Ordering::Relaxed) == 0 {
            std::hint::spin_loop();
        }
        for kernel in Kernel::all() {
            for copy in 0..COPIES {
                let len = WORDS * 8 - copy % 97;
                let mut place = vec![0; len];
                let mut digest = Crc32c::new();
                // SAFETY: `shared` has this many bytes; its writer uses atomic stores, and the copy reads them once and
                // as volatile.
                unsafe { kernel.copy_raw(&mut digest, place.as_mut_ptr(), shared.as_ptr().cast(), len) };
                if digest.finish() != crc32c(&place) {
                    parted.push(kernel);
                }
                torn += usize::from(place.chunks_exact(8).any(|word| word != &place[..8]));
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(parted, [], "the digest is not that of the copy");
    // Unless at least one copy caught the writer at work, the test has shown nothing.
    assert!(torn > 0, "the writer never raced a copy");
}
