//! The console over a server that only remembers: its pages, its checks, and Chromium.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod browser;
mod fake;
mod front;
mod pages;
