//! The packed placement: ciphertexts, slots and a journal in a unit of 512 or 4096-byte blocks, or in a file.
//!
//! Ciphertexts lie one behind the other, and so do slots; a quantum is read by reading both. They cannot be written at
//! once, and a ciphertext of several blocks can be torn. So a write is a [`record`] of the journal first: ciphertexts
//! and slots together. What has a record is read from there ([`Journal::live`]) until a *checkpoint* moves it to its
//! place.
//!
//! The driver keeps this order, and a power cut leaves every quantum old or new, and new when it was flushed:
//!
//! 1. Open: read the journal, then [`replay`] it. Flush, write the tails of [`Journal::take_over`], and flush after
//!    each.
//! 2. Write: [`Journal::reserve`], seal into the record's [`places`](record::places), [`finish`](record::finish) and
//!    write it, then [`Journal::written`].
//! 3. Flush: take [`Journal::written_through`], flush the unit, and say so to [`Journal::flushed`]. Some time after
//!    that, write [`Journal::note`].
//! 4. Checkpoint, when the journal is full: [`Journal::checkpoint`], **flush**, write ciphertexts and slots of its
//!    moves, **flush**, write the [`Journal::tail`], **flush**, then [`Journal::checkpointed`].
//!
//! One driver at a time writes to a packed volume: two journals would overwrite each other. So a driver takes the
//! journal over when it opens it ([`Journal::take_over`]), and looks before each checkpoint whether another one has
//! done so since ([`Journal::has_another_owner`]). `docs/quanta.md` says why this order is right.

mod journal;
mod layout;
pub mod record;
mod replay;
mod tail;

pub use journal::{Checkpoint, Journal, Live, ReserveError, Ticket};
pub use layout::{Layout, LayoutError, MAX_BLOCK_LEN};
pub use replay::{Move, ReplayError, replay, salvage};
pub use tail::{TAIL_LEN, TAILS_LEN, Tail};
