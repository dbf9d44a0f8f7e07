//! The address space of the process, where the system limits it (`RLIMIT_AS`, `ulimit -v`).
//!
//! An allocation that fails ends the process. So those that are long [`claim`] their bytes here, and leave some
//! room to the others, which nothing can do without.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::{LazyLock, Mutex, PoisonError};

use rustix::param::page_size;
use rustix::process::{Resource, getrlimit};

/// Bytes that are left to lists, tables and the stacks of threads.
const LEFT_BYTES: u64 = 8 << 20;

/// Freed memory that is longer goes back to the system at once.
#[cfg(target_env = "gnu")]
const KEPT_BYTES: libc::c_int = 128 << 10;

static PROCESS: LazyLock<AddressSpace> = LazyLock::new(|| AddressSpace {
    limit_bytes: getrlimit(Resource::As).current,
    used_bytes: used_by_process,
    claims: Mutex::new(()),
});

/// Opened once, because a process without descriptors needs memory too.
static STATM: LazyLock<Option<File>> = LazyLock::new(|| File::open("/proc/self/statm").ok());

/// Has the C library's allocator reserve no address space ahead, where the system limits it. To be called before there
/// are threads.
///
/// Otherwise glibc maps 64 to 128 MiB for each of the first threads, and keeps what is freed below its end.
pub fn keep_small() {
    #[cfg(target_env = "gnu")]
    if PROCESS.is_limited() {
        for (parameter, value) in [(libc::M_ARENA_MAX, 1), (libc::M_MMAP_THRESHOLD, KEPT_BYTES)] {
            // SAFETY: no other thread allocates at this time, and every value of these parameters is sound.
            #[expect(unsafe_code, reason = "there is no wrapper for this function")]
            let _ = unsafe { libc::mallopt(parameter, value) };
        }
    }
}

/// Makes something of `len` bytes in the address space of this process, or nothing where it would leave too little to
/// all else. Without a limit there is always room.
pub fn claim<T>(len: usize, make: impl FnOnce() -> Option<T>) -> Option<T> {
    PROCESS.claim(len, make)
}

/// A bound on addresses, and how much of it is in use.
pub(crate) struct AddressSpace {
    pub(crate) limit_bytes: Option<u64>,
    pub(crate) used_bytes: fn() -> Option<u64>,
    /// Held from the question to the allocation, so that two do not get the same room.
    pub(crate) claims: Mutex<()>,
}

impl AddressSpace {
    pub(crate) fn of_process() -> &'static Self {
        &PROCESS
    }

    pub(crate) fn is_limited(&self) -> bool {
        self.limit_bytes.is_some()
    }

    pub(crate) fn claim<T>(&self, len: usize, make: impl FnOnce() -> Option<T>) -> Option<T> {
        let Some(limit_bytes) = self.limit_bytes else { return make() };
        let _claim = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        // A system that does not say how much is in use limits nothing either.
        let has_room = (self.used_bytes)().is_none_or(|used| leaves_room(used, len as u64, limit_bytes));
        if has_room { make() } else { None }
    }
}

fn leaves_room(used_bytes: u64, len: u64, limit_bytes: u64) -> bool {
    let sum = used_bytes.checked_add(len).and_then(|sum| sum.checked_add(LEFT_BYTES));
    sum.is_some_and(|sum| sum <= limit_bytes)
}

/// The first number of `/proc/self/statm`, in pages.
fn used_by_process() -> Option<u64> {
    let mut text = [0; 128];
    let len = STATM.as_ref()?.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(text.get(..len)?).ok()?;
    let pages: u64 = text.split_whitespace().next()?.parse().ok()?;
    pages.checked_mul(page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_ends_before_the_limit_does() {
        let limit = 100 << 20;
        assert!(leaves_room(limit - LEFT_BYTES - 10, 10, limit));
        assert!(!leaves_room(limit - LEFT_BYTES - 10, 11, limit));
        assert!(!leaves_room(u64::MAX, 1, limit));
    }

    #[test]
    fn the_system_says_how_much_is_in_use() {
        // This program is longer than a page, and shorter than what any limit allows.
        assert!(used_by_process().unwrap() > page_size() as u64);
        assert_eq!(claim(1, || Some(2)), Some(2));
    }
}
