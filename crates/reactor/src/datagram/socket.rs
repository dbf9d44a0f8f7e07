//! One datagram socket, and how its datagrams leave.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use super::DatagramFailure;
use super::calls::{self, Ends, RECEIVED_MESSAGES, SLOT_BYTES, Sent};
use super::list::DatagramList;
use super::open::Opened;
use crate::backend::Armed;
use crate::counters::Counters;

pub(crate) struct DatagramSocket {
    fd: OwnedFd,
    ends: Ends,
    /// Neighbours are sent as one.
    joins: bool,
    /// The handler may have something to send.
    pub(super) wants_send: bool,
    /// The socket was full at the last send.
    pub(crate) blocked: bool,
    /// Has its place in the list of sockets to look at after the batch.
    pub(super) touched: bool,
    /// How many messages the last receive has brought, and how long they were on average.
    last_messages: usize,
    last_len: usize,
    /// The events for which epoll watches.
    pub(crate) interest: EventFlags,
    /// The requests that a ring has of the socket.
    pub(crate) armed: Armed,
}

/// The result of a list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Datagrams that left or have failed.
    pub(super) done: usize,
    pub(super) bytes: usize,
}

impl DatagramSocket {
    pub(super) fn new(opened: Opened) -> Self {
        let Opened { fd, ends, joins } = opened;
        Self {
            fd,
            ends,
            joins,
            wants_send: false,
            blocked: false,
            touched: false,
            last_messages: 1,
            last_len: SLOT_BYTES,
            interest: EventFlags::empty(),
            armed: Armed::default(),
        }
    }

    pub(super) fn descriptor(&self) -> &OwnedFd {
        &self.fd
    }

    pub(super) fn ends(&self) -> Ends {
        self.ends
    }

    /// The handler may have something to send, and the socket has room for it.
    pub(super) fn sends(&self) -> bool {
        self.wants_send && !self.blocked
    }

    /// How many messages to receive, when no more than `bytes` should come: as many as fit when they are as long as the
    /// last ones, and no more than twice as many.
    pub(super) fn messages_within(&self, bytes: usize) -> usize {
        let most = (2 * self.last_messages).clamp(2, RECEIVED_MESSAGES);
        (bytes / self.last_len.max(1)).clamp(1, most)
    }

    /// A receive has brought that.
    pub(super) fn note_received(&mut self, messages: usize, bytes: usize) {
        self.last_messages = messages;
        self.last_len = bytes / messages.max(1);
    }

    /// Sends `list` until the socket is full, and appends what failed to `failures`.
    pub(super) fn send(
        &mut self,
        list: &DatagramList<'_>,
        counters: &Counters,
        failures: &mut Vec<DatagramFailure>,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        // Datagrams that the system refused as one message, to be sent one by one.
        let mut apart = 0..0;
        // An error that may be an earlier datagram's: only the same error again is this one's.
        let mut doubted = None;
        while outcome.done < list.len() {
            let joined = self.joins && outcome.done >= apart.end;
            counters.system_calls.add(1);
            match calls::send(self.fd.as_fd(), self.ends, list, outcome.done, joined) {
                Ok(sent) => {
                    failures.extend(doubted.take().map(network));
                    if outcome.done == apart.start && !apart.is_empty() {
                        tracing::debug!("the way of a datagram socket has no UDP_SEGMENT");
                        self.joins = false;
                    }
                    count(counters, sent);
                    outcome.done += sent.datagrams;
                    outcome.bytes += sent.bytes;
                }
                Err(Errno::AGAIN) => {
                    failures.extend(doubted.take().map(network));
                    self.blocked = true;
                    break;
                }
                Err(error) if self.ends.peer.is_some() && doubted.is_none() => doubted = Some(error),
                Err(error) => {
                    doubted = None;
                    let datagrams = list.message(outcome.done, joined).datagrams;
                    if datagrams.len() > 1 {
                        apart = datagrams;
                    } else {
                        failures.push(failure(list, outcome.done, error));
                        outcome.done += 1;
                    }
                }
            }
        }
        outcome
    }
}

impl AsFd for DatagramSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn count(counters: &Counters, sent: Sent) {
    counters.sent_bytes.add(sent.bytes as u64);
    counters.sent_datagrams.add(sent.datagrams as u64);
    counters.sent_messages.add(sent.messages as u64);
}

fn network(error: Errno) -> DatagramFailure {
    DatagramFailure::Network(error.into())
}

/// Why the datagram at `index` did not leave.
fn failure(list: &DatagramList<'_>, index: usize, error: Errno) -> DatagramFailure {
    let path = *list.path(index);
    match error {
        Errno::MSGSIZE => DatagramFailure::TooLong { path, len: list.len_of(index) },
        error => DatagramFailure::NotSent { path, error: error.into() },
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, UdpSocket};

    use super::super::open::{open_udp, set_option};
    use super::super::{Address, DatagramConfig, DatagramPath};
    use super::*;

    const LENS: [usize; 9] = [100, 100, 100, 40, 200, 200, 200, 200, 1];

    fn receiver() -> (UdpSocket, SocketAddr) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        let address = socket.local_addr().unwrap();
        (socket, address)
    }

    #[test]
    fn a_socket_that_cannot_join_sends_one_by_one_from_then_on() {
        for connected in [false, true] {
            let (far, address) = receiver();
            let local = (!connected).then_some("127.0.0.1:0".parse().unwrap());
            let (opened, _) = open_udp(local, connected.then_some(address), &DatagramConfig::default()).unwrap();
            let mut near = DatagramSocket::new(opened);
            assert!(near.joins, "this system has no UDP_SEGMENT");
            // The system refuses segments without checksums, as it does on some ways.
            set_option(&near.fd, libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).unwrap();
            let bytes = [7; 200];
            let mut list = DatagramList::new();
            for len in LENS {
                assert!(list.push(&DatagramPath::to(Address::Udp(address)), [&bytes[..len]]));
            }
            let (counters, mut failures) = (Counters::default(), Vec::new());
            let outcome = near.send(&list, &counters, &mut failures);
            assert_eq!(outcome, Outcome { done: LENS.len(), bytes: LENS.iter().sum() });
            assert!(failures.is_empty() && !near.joins, "{failures:?}");
            for len in LENS {
                assert_eq!(far.recv(&mut [0; 300]).unwrap(), len);
            }
        }
    }

    #[test]
    fn the_failure_of_an_earlier_datagram_costs_no_other_one() {
        let (far, address) = receiver();
        drop(far);
        let (opened, _) = open_udp(None, Some(address), &DatagramConfig::default()).unwrap();
        let mut near = DatagramSocket::new(opened);
        let mut list = DatagramList::new();
        assert!(list.push(&DatagramPath::to(Address::Udp(address)), [&b"x"[..]]));
        let (counters, mut failures) = (Counters::default(), Vec::new());
        assert_eq!(near.send(&list, &counters, &mut failures).done, 1);
        assert!(failures.is_empty(), "{failures:?}");
        // The answer to the first is there now, and is told by the second.
        let far = UdpSocket::bind(address).unwrap();
        assert_eq!(near.send(&list, &counters, &mut failures).done, 1);
        assert!(matches!(&failures[..], [DatagramFailure::Network(_)]), "{failures:?}");
        assert_eq!(far.recv(&mut [0; 2]).unwrap(), 1);
    }
}
