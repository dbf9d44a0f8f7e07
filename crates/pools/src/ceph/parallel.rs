//! Work on many images at once, since each waits for the cluster most of the time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Does `work` for each item, on up to `threads` threads, this one among them. The results are in the order of the
/// items.
pub(super) fn each<T: Sync, R: Send>(items: &[T], threads: usize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(items.len())));
    let run = || {
        while let Some((number, item)) = take(items, &next) {
            let result = work(item);
            done.lock().unwrap_or_else(PoisonError::into_inner).push((number, result));
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.min(items.len()) {
            let worker = thread::Builder::new().name("lunette-pool".into()).spawn_scoped(scope, run);
            if let Err(error) = worker {
                tracing::warn!(%error, "fewer threads than wanted work on a pool");
                break;
            }
        }
        run();
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}

fn take<'a, T>(items: &'a [T], next: &AtomicUsize) -> Option<(usize, &'a T)> {
    let number = next.fetch_add(1, Ordering::Relaxed);
    Some((number, items.get(number)?))
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<usize> = (0..1000).collect();
        assert_eq!(each(&items, 8, |number| number * 2), (0..1000).map(|number| number * 2).collect::<Vec<_>>());
        assert_eq!(each(&[] as &[u8], 8, |_| ()), []);
    }

    #[test]
    fn as_many_run_at_once_as_there_are_threads() {
        // With fewer threads nothing would get past the barrier.
        let barrier = Barrier::new(4);
        each(&[(); 4], 4, |()| barrier.wait().is_leader());
    }
}
