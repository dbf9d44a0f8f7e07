//! The initiator's session, driven as a reactor would drive it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod harness;
mod pair;
