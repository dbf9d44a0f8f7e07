//! The management socket of tgtd: `tgtadm` and `tgt-admin` manage this target as if it were tgtd.
//!
//! Layer 2: over api, files; under lunette.
//!
//! A translation to the control plane, and nothing else: it keeps no disk, and knows no session. Targets, logical units
//! and rules are objects of the API, so other clients see and change the same ones. tgtd has a few things for which the
//! API has no place; a `book` keeps them.
//!
//! - `wire` is the format of requests, answers and errors; `params` are the texts in them.
//! - `document` reads and writes the document of a target as tgtd sees it.
//! - `adapter` answers requests, with one file for each mode of tgtadm beside it, and `show` prints as tgtd does.
//! - [`socket`] takes one connection after the other, as tgtd does.

#![forbid(unsafe_code)]

mod adapter;
mod book;
mod document;
pub mod limits;
mod params;
mod show;
pub mod socket;
mod wire;

pub use socket::Socket;
