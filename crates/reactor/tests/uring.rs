//! The tests over real sockets, on io_uring.

#![expect(clippy::unwrap_used, reason = "a test ends with the first surprise")]

mod loopback;

const IO: lunette_reactor::IoBackend = lunette_reactor::IoBackend::Uring;
