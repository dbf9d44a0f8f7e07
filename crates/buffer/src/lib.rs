//! Page-aligned byte buffers from a pool with a budget.
//!
//! Floor 0 of the house: everything that carries data (sessions, devices, stores, the reactor) hands these buffers on
//! instead of copying them.
//!
//! A [`Buffer`] has one owner, who may write to it. [`Buffer::share`] turns it into a [`SharedBuffer`], which is read only
//! and cheap to clone: several PDUs of one read carry pieces of the same bytes. When the last handle goes, the memory
//! returns to its [`Pool`].
//!
//! A buffer may also be filled without a copy: a store that keeps its bytes in memory lends them ([`Buffer::lend`]), and who
//! sends them takes them as a [`Loan`]. For everybody else such a buffer is like any other.
//!
//! The pool is the process's bound on data in flight. [`Pool::take`] answers `None` when the budget is used up; the caller
//! then waits for a buffer to come back and puts pressure on its peer. It never allocates beyond the budget.
//!
//! ```
//! use lunette_buffer::Pool;
//!
//! let pool = Pool::new(1 << 20);
//! let mut buffer = pool.take(512).expect("within the budget");
//! buffer.fill(0xa5);
//! let shared = buffer.share();
//! let tail = shared.slice(500..512);
//! assert_eq!(&tail[..], &[0xa5; 12]);
//! ```

#![forbid(unsafe_code)]

mod file_slice;
mod loan;
mod pool;
mod trimmer;

pub use file_slice::FileSlice;
pub use loan::{Loan, MAX_LOAN_RUNS, Run};
pub use pool::{Buffer, MAX_BUFFER_LEN, PAGE_LEN, Pool, SharedBuffer};
pub use trimmer::{TRIM_INTERVAL, Trimmer};
