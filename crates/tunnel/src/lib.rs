//! The addresses that a target names, rewritten on their way to an initiator, as a state machine without I/O.
//!
//! Layer 1: over crc32c, pdu; under lunette.
//!
//! A tunnel carries the connections of initiators to a target that they cannot reach themselves. A target names its own
//! portals in two places: in answers to SendTargets (RFC 7143, Appendix C), and where it redirects a login (section
//! 11.13.5). A [`Follower`] sees both directions of one connection, and puts the addresses of the tunnel in their place
//! ([`Ways`]). All else passes as it came.
//!
//! It looks no longer than it must: once a normal session has logged in, [`Follower::is_done`]. A discovery session is
//! followed to its end, with the digests that its login has agreed on.
//!
//! ```
//! use lunette_tunnel::Follower;
//!
//! let mut follower = Follower::new();
//! follower.request(b"what the initiator sends")?;
//! let mut to_initiator = Vec::new();
//! let mut ways = |address: &str| (address == "192.0.2.1:3260").then(|| "127.0.0.1:3260".to_owned());
//! follower.response(&[0x23, 0x80, 0, 0], &mut to_initiator, &mut ways)?;
//! assert!(to_initiator.is_empty(), "the header of a Login Response has begun");
//! # Ok::<_, lunette_tunnel::Broken>(())
//! ```

#![forbid(unsafe_code)]

mod addresses;
mod follower;
mod framing;
pub mod limits;
mod login;

pub use follower::{Broken, Follower};

/// Where an address that a target names, `HOST:PORT`, is reached through the tunnel. `None` leaves it out.
pub type Ways<'a> = dyn FnMut(&str) -> Option<String> + 'a;
