//! Page-aligned byte buffers from a pool with a budget.
//!
//! Layer 0: over no other crate; under device, ecl, iscsi-initiator, iscsi-target, longhorn, lunette, nbd, rbd,
//! reactor, session, store, takeover, volume.
//!
//! Sessions, devices, stores and the reactor hand these buffers on instead of copying data.
//!
//! A [`Buffer`] has one owner, which may write to it. [`Buffer::share`] turns it into a [`SharedBuffer`], which is read
//! only and cheap to clone: several PDUs of one read carry pieces of the same bytes. When the last handle is dropped,
//! the memory returns to its [`Pool`].
//!
//! A store that keeps its bytes in memory may lend them instead of copying them into a buffer: [`Buffer::lend`] trades
//! the buffer for a [`Loan`]. The reader asks for that with [`Buffer::allow_loan`], so no access to a buffer ever
//! copies bytes unseen. A store in a file may name the place of the bytes there, a [`FileSlice`]. A [`Payload`] is what
//! a socket gets, wherever the bytes are.
//!
//! The pool bounds the data in flight, and never allocates beyond its budget. [`Pool::take`] returns `None` when the
//! budget is used up; the caller then waits until bytes return, and puts pressure on its peer. So it does where the
//! system limits the [`address_space`] and no more of it is left.
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

#![deny(unsafe_code)]

pub mod address_space;
mod buffer;
mod file_slice;
mod loan;
mod memory;
mod payload;
mod pool;
mod shared;
mod trimmer;
mod warm;

pub use buffer::Buffer;
pub use file_slice::FileSlice;
pub use loan::{Loan, MAX_LOAN_RUNS, Run};
pub use memory::{MAX_BUFFER_LEN, PAGE_LEN};
pub use payload::{Payload, PayloadRef};
pub use pool::Pool;
pub use shared::SharedBuffer;
pub use trimmer::{TRIM_INTERVAL, Trimmer};
pub use warm::KeepsWarm;
