//! The address space of the process, where the system limits it (`RLIMIT_AS`, `ulimit -v`).
//!
//! An allocation that fails ends the process. So those that are long ask here before, and leave some room to the
//! others, which nothing can do without.

use std::fs::File;
use std::io::Read as _;
use std::sync::LazyLock;

use rustix::param::page_size;
use rustix::process::{Resource, getrlimit};

/// Bytes that are left to lists, tables and the stacks of threads.
const LEFT_BYTES: u64 = 8 << 20;

static LIMIT_BYTES: LazyLock<Option<u64>> = LazyLock::new(|| getrlimit(Resource::As).current);

/// Whether the system limits the address space of this process.
#[inline]
pub(crate) fn is_limited() -> bool {
    LIMIT_BYTES.is_some()
}

/// Whether `len` more bytes of memory leave enough address space for all else. Without a limit they do.
pub fn has_room(len: usize) -> bool {
    let Some(limit_bytes) = *LIMIT_BYTES else { return true };
    // A system that does not say how much is in use limits nothing either.
    used_bytes().is_none_or(|used| leaves_room(used, len as u64, limit_bytes))
}

fn leaves_room(used_bytes: u64, len: u64, limit_bytes: u64) -> bool {
    let sum = used_bytes.checked_add(len).and_then(|sum| sum.checked_add(LEFT_BYTES));
    sum.is_some_and(|sum| sum <= limit_bytes)
}

/// The address space that is in use: the first number of `/proc/self/statm`, in pages.
fn used_bytes() -> Option<u64> {
    let mut text = [0; 128];
    let len = File::open("/proc/self/statm").ok()?.read(&mut text).ok()?;
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
        assert!(used_bytes().unwrap() > page_size() as u64);
        assert!(has_room(1));
    }
}
