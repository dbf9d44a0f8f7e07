//! Which bytes of a store have space of their own.

use std::sync::{Mutex, PoisonError};

/// Bytes in a row that all have space, or all have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// How many bytes.
    pub len: u64,
    /// They have space. Those without read as zero.
    pub allocated: bool,
}

/// Where the answer to [`Op::Allocation`](crate::Op::Allocation) is found. Who asks keeps a clone of the `Arc`.
///
/// The runs follow each other without a gap, from the first byte that was asked for. They end with the last one, or
/// earlier when there are more than [`MAX_RUNS`](Self::MAX_RUNS).
#[derive(Debug, Default)]
pub struct AllocationMap(Mutex<Vec<Run>>);

impl AllocationMap {
    /// How many runs one answer has at most.
    pub const MAX_RUNS: usize = 256;

    /// Adds bytes behind those that are there; a run of the same kind becomes longer. False when there is no room.
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

    /// The answer; none is left.
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
