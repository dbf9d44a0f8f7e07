//! The tests over real sockets, on epoll, with connections that another reactor carries.

#![expect(clippy::unwrap_used, reason = "a test ends with the first surprise")]

mod loopback;

const IO: lunette_reactor::IoBackend = lunette_reactor::IoBackend::Epoll;
const CARRIED: bool = true;
