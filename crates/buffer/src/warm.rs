//! Memory that a thread keeps at hand.
//!
//! An event loop that gives one buffer back and needs the next one has no use for the pool's lock in between.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::Pool;
use crate::memory::{Memory, class_len};

/// The longest memory that a thread keeps.
pub(crate) const MAX_WARM_BYTES: usize = 64 << 10;

thread_local! {
    static WARM: RefCell<Option<Warm>> = const { RefCell::new(None) };
}

struct Warm {
    pool: Pool,
    memory: Option<Arc<Memory>>,
}

/// While it lives, its thread keeps the memory that was given back there last, up to 64 KiB of one pool, for the buffer
/// that is taken there next.
#[must_use = "the thread keeps memory until this is dropped"]
pub struct KeepsWarm {
    /// The mark that binds this value to a thread.
    _thread: PhantomData<*const ()>,
}

impl KeepsWarm {
    pub(crate) fn begin(pool: Pool) -> Self {
        WARM.set(Some(Warm { pool, memory: None }));
        Self { _thread: PhantomData }
    }
}

impl Drop for KeepsWarm {
    fn drop(&mut self) {
        // What another thread-local value outlives is gone by itself.
        let _ = WARM.try_with(RefCell::take);
    }
}

/// Memory of a class that this thread has kept.
#[inline]
pub(crate) fn take(pool: &Pool, class: usize) -> Option<Arc<Memory>> {
    let take = |warm: &RefCell<Option<Warm>>| {
        let mut warm = warm.borrow_mut();
        let warm = warm.as_mut().filter(|warm| warm.pool.is(pool))?;
        warm.memory.take_if(|memory| memory.class == class)
    };
    WARM.try_with(take).ok().flatten()
}

/// Keeps memory, if this thread has room for it, or gives it back.
#[inline]
pub(crate) fn keep(pool: &Pool, memory: Arc<Memory>) -> Option<Arc<Memory>> {
    let mut memory = Some(memory);
    let keep = |warm: &RefCell<Option<Warm>>| {
        if let Some(warm) = warm.borrow_mut().as_mut()
            && warm.memory.is_none()
            && warm.pool.is(pool)
            && memory.as_ref().is_some_and(|memory| class_len(memory.class) <= MAX_WARM_BYTES)
        {
            warm.memory = memory.take();
        }
    };
    // Without a place of this thread, which is ending, it is not kept.
    let _ = WARM.try_with(keep);
    memory
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAGE_LEN;

    #[test]
    fn what_was_given_back_last_is_taken_next_and_counts_as_ever() {
        let pool = Pool::new(3 * MAX_WARM_BYTES);
        let other = Pool::new(3 * MAX_WARM_BYTES);
        let warm = pool.keep_warm();
        let buffers = [PAGE_LEN, PAGE_LEN, 2 * PAGE_LEN].map(|len| pool.take(len).unwrap());
        let places = buffers.each_ref().map(|buffer| buffer.as_ptr());
        drop(buffers);
        assert_eq!((pool.used_bytes(), pool.idle_bytes()), (0, 3 * PAGE_LEN), "one is kept");
        assert!(other.take(PAGE_LEN).unwrap().as_ptr() != places[0], "of its own pool");
        let long = pool.take(2 * PAGE_LEN).unwrap();
        assert_eq!((long.as_ptr(), pool.idle_bytes()), (places[2], PAGE_LEN), "of its own length");
        let first = pool.reserve(PAGE_LEN).unwrap();
        assert_eq!((first.as_ptr(), pool.idle_bytes()), (places[0], PAGE_LEN));
        assert_eq!(pool.used_bytes(), 3 * PAGE_LEN);
        drop((long, first));
        drop(warm);
        drop(pool.take(PAGE_LEN));
        assert_eq!(pool.idle_bytes(), 2 * PAGE_LEN, "nothing is kept any more");
    }

    #[test]
    fn no_more_than_the_limit_is_kept() {
        let pool = Pool::new(8 * MAX_WARM_BYTES);
        let _warm = pool.keep_warm();
        drop(pool.take(MAX_WARM_BYTES + 1));
        assert_eq!(pool.idle_bytes(), 2 * MAX_WARM_BYTES);
        drop(pool.take(MAX_WARM_BYTES));
        drop(pool.take(PAGE_LEN));
        assert_eq!(pool.idle_bytes(), 2 * MAX_WARM_BYTES + PAGE_LEN, "one of 64 KiB is kept");
    }

    #[test]
    fn other_threads_keep_nothing() {
        let pool = Pool::new(MAX_WARM_BYTES);
        let _warm = pool.keep_warm();
        let buffer = pool.take(PAGE_LEN).unwrap();
        let giver = std::thread::spawn(move || drop(buffer));
        giver.join().unwrap();
        assert_eq!(pool.idle_bytes(), PAGE_LEN);
    }
}
