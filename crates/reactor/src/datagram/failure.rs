//! The system's reports on datagrams that did not leave or did not arrive.

use std::io;

use super::DatagramPath;

/// A datagram, or an earlier one, came to nothing. The socket goes on.
#[derive(Debug)]
#[non_exhaustive]
pub enum DatagramFailure {
    /// The datagram is longer than the MTU of the interface allows, or than UDP. A hint for the search of the path's
    /// MTU.
    TooLong {
        /// Where it should have gone.
        path: DatagramPath,
        /// The bytes that it had.
        len: usize,
    },
    /// The system did not send it: there is no route, a firewall forbids it, or memory ran short.
    NotSent {
        /// Where it should have gone.
        path: DatagramPath,
        /// The reason of the system.
        error: io::Error,
    },
    /// The network has answered to an earlier datagram of a connected socket ([`io::ErrorKind::ConnectionRefused`] for
    /// a port without a socket). Anyone on the way may say so.
    Network(io::Error),
}
