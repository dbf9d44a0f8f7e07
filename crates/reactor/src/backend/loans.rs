//! Memory that sends without a copy have lent to the system.
//!
//! Such a send has two completions: the first tells how many bytes have left, the second, a notification, that the system does
//! not look at them any more. In between, which may be long when the peer is slow, they must stay as they are: they are read when
//! they are sent again. So the ring keeps handles on what owns them and copies of slices without an owner, whatever
//! becomes of the connection; and what is lent when the ring is dropped is never freed.

use io_uring::cqueue;
use lunette_buffer::SharedBuffer;

use crate::slab::{Key, Slab};
use crate::{Gather, Owner};

/// `IORING_SEND_ZC_REPORT_USAGE`: the notification shall say whether bytes were copied.
pub(super) const REPORT_USAGE: u16 = 1 << 3;
/// `IORING_NOTIF_USAGE_ZC_COPIED`: they were, or not sent at all.
const COPIED: u32 = 1 << 31;

/// What one send has lent.
#[derive(Default)]
struct Loan {
    /// Whose bytes they are, and the send's place among those that were handed in together.
    connection: Option<Key>,
    place: u32,
    /// The slices of the list in their order; those without an owner lie in `copies` one behind the other.
    slices: Slices,
    buffers: Vec<SharedBuffer>,
    /// Of stores, which write elsewhere meanwhile.
    memory: Vec<lunette_buffer::Loan>,
    copies: Vec<u8>,
    /// What it counts for.
    bytes: usize,
    /// What has left.
    sent: usize,
}

/// Slices of the other fields of a loan.
#[derive(Default)]
struct Slices(Vec<libc::iovec>);

#[expect(unsafe_code, reason = "addresses of memory that may change its thread")]
// SAFETY: they are never read here, and the bytes that they name belong to the same loan and may change their thread.
unsafe impl Send for Slices {}

impl Loan {
    /// Takes all of `list` on.
    fn fill(&mut self, list: &Gather<'_>) {
        self.bytes = list.len_bytes();
        for (slice, owner) in list.parts() {
            match owner {
                Some(Owner::Buffer(buffer)) => self.buffers.push(buffer.clone()),
                // One for each run, and there are few: a chunk of a store has many pages.
                Some(Owner::Loan(loan)) => self.memory.push(loan.clone()),
                None => self.copies.extend_from_slice(slice),
            }
        }
        // Now they stay where they are.
        let mut copies = &self.copies[..];
        self.slices.0.extend(list.parts().map(|(slice, owner)| {
            let mut bytes: &[u8] = slice;
            if owner.is_none() {
                (bytes, copies) = copies.split_at(slice.len());
            }
            libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
        }));
    }

    /// Lets go of everything but room for another one.
    fn clear(&mut self) {
        self.connection = None;
        self.slices.0.clear();
        self.buffers.clear();
        self.memory.clear();
        self.copies.clear();
        (self.bytes, self.sent) = (0, 0);
    }
}

/// The system has given back what a send has lent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Returned {
    pub(super) connection: Key,
    /// How many bytes had left.
    pub(super) bytes: usize,
    /// The system has copied them all the same.
    pub(super) copied: bool,
}

/// All that the system has.
pub(super) struct Loans {
    lent: Slab<Loan>,
    /// Loans that have ended. As many as there were at one time, which `max_bytes` bounds; a send without a copy so allocates nothing.
    spare: Vec<Loan>,
    bytes: usize,
    max_bytes: usize,
}

impl Loans {
    /// Lends up to `max_bytes` at one time.
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { lent: Slab::new(), spare: Vec::new(), bytes: 0, max_bytes }
    }

    /// The most that is lent at one time.
    pub(super) fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    /// Lends the slices of `list`; `None` when too much is lent.
    pub(super) fn lend(&mut self, connection: Key, place: u32, list: &Gather<'_>) -> Option<Key> {
        let bytes = self.bytes.checked_add(list.len_bytes()).filter(|bytes| *bytes <= self.max_bytes)?;
        self.bytes = bytes;
        let mut loan = self.spare.pop().unwrap_or_default();
        (loan.connection, loan.place) = (Some(connection), place);
        loan.fill(list);
        Some(self.lent.insert(loan))
    }

    /// The slices of a loan, which stay where they are and as they are until it ends.
    pub(super) fn slices(&self, key: Key) -> &[libc::iovec] {
        self.lent.get(key).map_or(&[], |loan| &loan.slices.0)
    }

    /// The place of the send.
    pub(super) fn place(&self, key: Key) -> Option<u32> {
        self.lent.get(key).map(|loan| loan.place)
    }

    /// A completion was told. Tells of the last, if bytes had left.
    pub(super) fn completed(&mut self, key: Key, result: i32, flags: u32) -> Option<Returned> {
        let loan = self.lent.get_mut(key)?;
        if !cqueue::notif(flags) {
            loan.sent = usize::try_from(result).unwrap_or(0);
        }
        // Another will follow.
        if cqueue::more(flags) {
            return None;
        }
        let mut loan = self.lent.remove(key)?;
        self.bytes -= loan.bytes;
        let returned = loan.connection.filter(|_| cqueue::notif(flags) && loan.sent > 0).map(|connection| Returned {
            connection,
            bytes: loan.sent,
            copied: result.cast_unsigned() & COPIED != 0,
        });
        loan.clear();
        self.spare.push(loan);
        returned
    }
}

impl Drop for Loans {
    fn drop(&mut self) {
        for loan in self.lent.drain() {
            tracing::debug!(bytes = loan.bytes, "the system still sends from memory, which is given up");
            std::mem::forget(loan);
        }
    }
}
