//! Encrypted volumes: a disk of plain text as a store over a store of quanta.
//!
//! Layer 3: over buffer, files, quanta, reactor, store; under iscsi-initiator, lunette.
//!
//! `quanta` has the format and its rules; this crate does the I/O. It finds, formats, reads, writes and maintains
//! volumes. The caller brings the keys as a [`KeyRing`](lunette_quanta::KeyRing). `docs/quanta.md` describes the
//! format.
//!
//! [`find`] tells what a unit holds, [`format`](fn@format) makes a volume on it, and [`Volume`] is the open volume, a
//! [`Store`](lunette_store::Store) whose granularity is the quantum. [`verify`], [`rekey`] and [`recover`] look after
//! volumes. All functions of this crate wait for the unit, so none of them is called on the thread of an event loop.
//! The requests to an open volume do not wait.
//!
//! ```
//! use std::sync::Arc;
//!
//! use lunette_buffer::Pool;
//! use lunette_quanta::{Cipher, DataKey, KeyRing, VolumeId};
//! use lunette_store::{MemoryStore, Op, Store, execute};
//! use lunette_volume::{FormatOptions, OpenOptions, Volume, find, format};
//!
//! let unit: Arc<dyn Store> = Arc::new(MemoryStore::new(1 << 20).expect("short enough"));
//! // Volume and key come from random generators in earnest, and from the volume's key file later.
//! let keys = KeyRing::new(Cipher::Aegis256, 1, &DataKey::new([7; 32]))?;
//! format(&unit, VolumeId([1; 16]), &keys, &FormatOptions::default(), &mut |_| {})?;
//!
//! let found = find(&unit)?;
//! assert_eq!(found.header().volume, VolumeId([1; 16]));
//! let disk = Volume::open(unit, &found, keys, OpenOptions::default())?;
//!
//! let mut from = Pool::new(1 << 20).take(4096).expect("room in the pool");
//! from.fill(0x5a);
//! execute(&disk, Op::Write { offset: 8192, from, fua: true }).result?;
//! disk.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What a reader of an open volume can rely on
//!
//! - What it reads was written to that place of this volume by an owner of its keys. A quantum that cannot be opened
//!   ends the request with [`StoreError::Refused`](lunette_store::StoreError::Refused), which names its offset; the
//!   buffer is zeroed then. The contract of `docs/quanta.md` says what is not noticed: deletion (unless the volume has
//!   no holes) and rollback. With an [`Anchor`] ([`OpenOptions::anchor`]) both are.
//! - A volume keeps the promises of the unit below it: with a volatile cache there, acknowledged writes are safe after
//!   a flush.
//! - Reads are never answered with loans.
#![forbid(unsafe_code)]

mod anchor;
mod awaited;
mod buffers;
mod claims;
mod counts;
mod error;
mod failure;
mod find;
mod format;
mod header;
pub mod limits;
mod mailbox;
mod native;
mod open;
mod owners;
mod packed;
mod parity;
mod progress;
mod ranges;
mod recover;
mod rekey;
mod request;
mod scrub;
mod seals;
mod shared;
mod together;
mod unit;
mod verify;
mod versions;
mod worker;

pub use anchor::{Anchor, AnchorError};
pub use counts::Counts;
pub use error::VolumeError;
pub use find::{Found, find};
pub use format::{FormatOptions, format};
pub use open::{OpenOptions, Volume};
pub use progress::Progress;
pub use recover::{Recovered, TailLoss, recover};
pub use rekey::{Rekeyed, rekey};
pub use scrub::{Scrubbed, scrub};
pub use verify::{Bad, JournalState, MAX_BAD, Report, Verdict, verify};
