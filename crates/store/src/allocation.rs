//! The allocation of a store: which bytes have space of their own.

use std::sync::{Mutex, PoisonError};

/// A run of bytes that are either all allocated or all unallocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Length in bytes.
    pub len: u64,
    /// Whether the bytes have space. Unallocated bytes read as zero.
    pub allocated: bool,
}

/// The result of [`Op::Allocation`](crate::Op::Allocation). The submitter keeps a clone of the `Arc`.
///
/// The runs are consecutive, from the first byte of the request. They cover the request, or end earlier when there are
/// more than [`MAX_RUNS`](Self::MAX_RUNS), or when the request asks for more than the store looks at in one go.
#[derive(Debug, Default)]
pub struct AllocationMap(Mutex<Vec<Run>>);

impl AllocationMap {
    /// The maximum number of runs in one result.
    pub const MAX_RUNS: usize = 256;

    /// Appends a run; it extends the last one when both are of the same kind. False when there is no room.
    pub fn push(&self, run: Run) -> bool {
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = runs.len() < Self::MAX_RUNS;
        match runs.last_mut() {
            _ if run.len == 0 => {}
            Some(last) if last.allocated == run.allocated => last.len += run.len,
            _ if has_room => runs.push(run),
            _ => return false,
        }
        true
    }

    /// Takes the runs out of the map.
    pub fn take(&self) -> Vec<Run> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_one_kind_are_one_run_and_the_number_of_runs_is_bounded() {
        let map = AllocationMap::default();
        let run = |len, allocated| Run { len, allocated };
        assert!(map.push(run(1, true)) && map.push(run(0, false)) && map.push(run(2, true)));
        for at in 1..AllocationMap::MAX_RUNS {
            assert!(map.push(run(5, at % 2 == 0)));
        }
        assert!(!map.push(run(5, true)));
        assert!(map.push(run(5, false)), "the last one may still become longer");
        let runs = map.take();
        assert_eq!((runs.len(), runs[0], runs[255]), (256, run(3, true), run(10, false)));
    }
}
