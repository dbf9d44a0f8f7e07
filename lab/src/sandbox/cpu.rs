//! The time stamp counter and the caches, for which no safe wrapper exists.
#![allow(unsafe_code)]

use std::arch::x86_64::{__rdtscp, _mm_clflush, _mm_lfence, _mm_mfence, _rdtsc};
use std::fs::File;
use std::hint::black_box;
use std::io::Read as _;
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Bytes of a cache line of all x86-64 CPUs.
const LINE: usize = 64;
/// More than the second level of the cache that callgrind is told to simulate ([`super::count`]).
const WALK_LEN: usize = 4 << 20;
/// Bytes of the process's map that are read; its heap stands in one of the first ten lines.
const MAP_LEN: usize = 8 << 10;
/// How long the counter is compared with the clock.
const CALIBRATION: Duration = Duration::from_millis(20);

/// Addresses of bytes that a measurement touches. Nothing keeps them alive but the measurement itself.
pub(super) type Lines = Range<usize>;

/// The counter before a measurement: all that comes before has ended.
#[inline]
pub(super) fn begin() -> u64 {
    // SAFETY: all x86-64 CPUs have these instructions.
    unsafe {
        _mm_mfence();
        _mm_lfence();
        _rdtsc()
    }
}

/// The counter after a measurement: all of that has ended, and nothing that follows has begun.
#[inline]
pub(super) fn end() -> u64 {
    let mut processor = 0;
    // SAFETY: as above; RDTSCP is as old as the virtual machines that this runs in.
    unsafe {
        let cycles = __rdtscp(&raw mut processor);
        _mm_lfence();
        cycles
    }
}

/// The counts of the counter in a second.
pub(super) fn cycles_per_second() -> f64 {
    let (clock, first) = (Instant::now(), begin());
    while clock.elapsed() < CALIBRATION {}
    let (cycles, elapsed) = (end() - first, clock.elapsed());
    cycles as f64 / elapsed.as_secs_f64()
}

/// The core's cycles for each of the counter's, which goes at one rate whatever the core does: by additions that wait
/// for each other and so take one cycle each.
pub(super) fn core_cycles_per_cycle() -> f64 {
    const ADDITIONS: u64 = 100_000;
    let measure = || {
        let before = begin();
        let mut sum = black_box(1_u64);
        for _ in 0..ADDITIONS / 8 {
            // SAFETY: the instructions change nothing but the register that holds `sum`.
            unsafe {
                std::arch::asm!(
                    "add {0}, {0}", "add {0}, {0}", "add {0}, {0}", "add {0}, {0}",
                    "add {0}, {0}", "add {0}, {0}", "add {0}, {0}", "add {0}, {0}",
                    inout(reg) sum, options(nomem, nostack)
                );
            }
        }
        black_box(sum);
        end() - before
    };
    let shortest = (0..20).map(|_| measure()).min().unwrap_or(ADDITIONS);
    ADDITIONS as f64 / shortest as f64
}

/// The heap of this process, where the state of the sessions lies.
///
/// Nothing here allocates or frees: a `free` may give the end of the heap back to the kernel after the map was read,
/// and then those lines are no longer mapped.
pub(super) fn heap() -> Result<Lines> {
    let mut map = [0; MAP_LEN];
    let len = read_map(&mut map).context("cannot read the map of this process")?;
    let lines = map[..len].split(|&byte| byte == b'\n').filter_map(|line| str::from_utf8(line).ok());
    let line = lines.into_iter().find(|line| line.ends_with("[heap]")).context("this process has no heap")?;
    let (range, _) = line.split_once(' ').context("a line of the map without a range")?;
    let (from, to) = range.split_once('-').context("a range of the map without an end")?;
    Ok(usize::from_str_radix(from, 16)?..usize::from_str_radix(to, 16)?)
}

/// Reads the start of the map: the program's own lines and then the heap's.
fn read_map(map: &mut [u8; MAP_LEN]) -> std::io::Result<usize> {
    let mut file = File::open("/proc/self/maps")?;
    let mut len = 0;
    while len < map.len() {
        match file.read(&mut map[len..])? {
            0 => break,
            read => len += read,
        }
    }
    Ok(len)
}

/// Empties the caches of these bytes, down to memory.
///
/// # Safety
///
/// The bytes are mapped.
pub(super) unsafe fn flush(bytes: &Lines) {
    for line in bytes.clone().step_by(LINE) {
        // SAFETY: the line is mapped, and flushing changes no byte.
        unsafe { _mm_clflush(line as *const u8) }
    }
}

/// Reads these bytes into the caches.
///
/// # Safety
///
/// The bytes are mapped, and this thread alone works with them.
pub(super) unsafe fn warm(bytes: &Lines) {
    for line in bytes.clone().step_by(LINE) {
        // SAFETY: the line is mapped; what it holds is not looked at.
        black_box(unsafe { (line as *const u8).read_volatile() });
    }
}

/// Bytes whose reading empties the caches of all others: for valgrind, whose caches no instruction flushes.
pub(super) struct Walk(Vec<u8>);

impl Walk {
    pub(super) fn new() -> Self {
        Self(vec![1; WALK_LEN])
    }

    pub(super) fn empty_caches(&self) {
        let at = self.0.as_ptr() as usize;
        // SAFETY: these bytes are this vector's.
        unsafe { warm(&(at..at + self.0.len())) }
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::{GlobalAlloc, Layout, System};
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    }

    /// The system's allocator, which counts the allocations of each thread.
    struct Counting;

    // SAFETY: the system's allocator does the work.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            ALLOCATIONS.set(ALLOCATIONS.get() + 1);
            // SAFETY: as the caller promises.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            // SAFETY: as the caller promises.
            unsafe { System.dealloc(block, layout) }
        }
    }

    #[global_allocator]
    static COUNTING: Counting = Counting;

    #[test]
    fn the_heap_stays_as_it_is_found() {
        let before = ALLOCATIONS.get();
        assert!(heap().is_ok());
        assert_eq!(ALLOCATIONS.get(), before, "what allocates also frees, and may unmap the end of the heap");
    }

    #[test]
    fn the_heap_holds_small_values() {
        let value = Box::new(7_u64);
        // Threads of a test may have a heap of their own, so only its form is sure.
        let heap = heap().expect("a heap");
        assert!(heap.start < heap.end && heap.start.is_multiple_of(4096), "{heap:?} {:p}", value.as_ref());
    }

    #[test]
    fn bytes_survive_a_flush() {
        let bytes: Vec<u8> = (0..=255).collect();
        let at = bytes.as_ptr() as usize;
        // SAFETY: these bytes are this vector's.
        unsafe {
            flush(&(at..at + bytes.len()));
            warm(&(at..at + bytes.len()));
        }
        assert!(bytes.iter().copied().eq(0..=255));
    }

    #[test]
    fn the_counter_goes_on() {
        let before = begin();
        assert!(end() > before);
    }
}
