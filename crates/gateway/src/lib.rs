//! Several gateways to one disk, as a state machine without I/O: which of them owns the disk, and the state that they
//! share.
//!
//! Layer 0: over no other crate; under device, rbd.
//!
//! The machine knows nothing of SCSI and of Ceph. A driver passes each [`Event`] to a [`Machine`] and carries out the
//! [`Action`]s that it returns. `docs/gateways.md` states the invariants and their reasons.
//!
//! The gateways share one *object*. Its [`Value`] is replaced as a whole by compare and swap, and can be watched. A
//! *notify* of one gateway reaches all watchers; it ends when all have acknowledged it, or after its timeout. The disk
//! is an *image* with an exclusive lock. A *blocklist* keeps a client of the cluster away from the image permanently.
//!
//! ```
//! use std::time::Duration;
//! use lunette_gateway::{Action, Event, Machine, Member};
//!
//! let mut machine = Machine::new(Member { group: 1, incarnation: 7 });
//! machine.handle(Duration::ZERO, Event::Time);
//! assert_eq!(machine.next_action(), Some(Action::Watch));
//! machine.handle(Duration::ZERO, Event::Watched);
//! assert_eq!(machine.next_action(), Some(Action::Read));
//! machine.handle(Duration::ZERO, Event::Read(Ok(None)));
//! // There is no object yet: it becomes the first member.
//! let stored = std::iter::from_fn(|| machine.next_action()).find_map(|action| match action {
//!     Action::Store { expected: 0, value } => Some(value),
//!     _ => None,
//! });
//! assert!(stored.is_some_and(|value| value.version == 1 && value.wanted == Some(1)));
//! ```
//!
//! # Contract with the driver
//!
//! Each action of a line is ended by one event of that line, and none is asked for before the one before it has ended.
//! Answers and acknowledgements need none.
//!
//! | action | ends with |
//! |---|---|
//! | [`Action::Watch`] | [`Event::Watched`] or [`Event::WatchLost`], which may also come later |
//! | [`Action::Read`] | [`Event::Read`] |
//! | [`Action::Store`] | [`Event::Stored`] |
//! | [`Action::Notify`] | [`Event::Acknowledged`], after [`limits::NOTIFY_TIMEOUT`] at the latest |
//! | [`Action::Blocklist`] | [`Event::Blocklisted`] when all later requests of other clients are behind it |
//! | [`Action::Open`] | [`Event::Opened`]: the image, without its lock |
//! | [`Action::Lock`] | [`Event::Locked`] |
//! | [`Action::Close`] | [`Event::Closed`] when no write of this gateway is under way, and the lock is free |
//! | [`Action::Publish`] | [`Event::Published`] when commands find the new state |

#![forbid(unsafe_code)]

pub mod limits;
mod machine;
mod value;

pub use machine::{Access, Action, Answer, Event, Failed, Machine, Publication, Request, RequestId, Stored};
pub use value::{Entry, HEADER_LEN, Member, Owner, Value, ValueError};
