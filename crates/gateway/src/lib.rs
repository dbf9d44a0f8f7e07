//! Several gateways to one disk, as a state machine without I/O: which of them owns the disk, and the state that they share.
//!
//! # Place
//!
//! Floor 2: nothing of SCSI, nothing of Ceph. A driver brings a [`Machine`] what happens ([`Event`]) and does what it asks for ([`Action`]). `docs/gateways.md`
//! says what holds, and why.
//!
//! The gateways share one *object*, with a [`Value`] that is replaced as a whole if nobody else has replaced it (compare and swap), and that can be watched:
//! a *notify* of one gateway reaches all that watch, and ends when they have acknowledged it or its time is over. The disk itself is an *image* with an exclusive
//! lock, and a *blocklist* keeps a client of the cluster from doing anything to it, for good.
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
//! Each action of a line is ended by one event of that line, and none is asked for before the one before it has ended. Answers and acknowledgements need none.
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
