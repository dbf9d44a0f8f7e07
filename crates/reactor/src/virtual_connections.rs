//! Connections that the reactor does not carry.
//!
//! A transport over datagrams can stand between the reactor and a [`Handler`](crate::Handler), and carry connections
//! for it. Such a *virtual connection* has an id like all others, and the handler asks its [`Context`](crate::Context)
//! for the same things. What it asks for is kept here until the transport takes it.

use crate::datagram::Address;
use crate::slab::Slab;
use crate::sockets::ConnectionId;

/// The request of a handler for a virtual connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VirtualRequest {
    /// The connection begins, and leads there.
    Connect(Address),
    /// The connection may have something to send.
    Send,
    /// Nothing more is received until it is resumed.
    Pause,
    /// The connection receives again.
    Resume,
    /// The connection ends now.
    Close,
    /// The connection ends when everything is sent.
    CloseAfterSend,
}

#[derive(Default)]
pub(crate) struct VirtualConnections {
    places: Slab<()>,
    requests: Vec<(ConnectionId, VirtualRequest)>,
}

impl VirtualConnections {
    pub(crate) fn open(&mut self) -> ConnectionId {
        let key = self.places.next_key();
        self.places.insert(());
        ConnectionId::of_virtual(key)
    }

    /// The id is not used any more. Requests for it are dropped.
    pub(crate) fn remove(&mut self, id: ConnectionId) {
        self.places.remove(id.virtual_key());
        self.requests.retain(|(other, _)| *other != id);
    }

    pub(crate) fn request(&mut self, id: ConnectionId, request: VirtualRequest) {
        // Several sends are one.
        if self.places.get(id.virtual_key()).is_some() && self.requests.last() != Some(&(id, request)) {
            self.requests.push((id, request));
        }
    }

    /// Appends the requests to `into`, in the order in which they were made.
    pub(crate) fn take_requests(&mut self, into: &mut Vec<(ConnectionId, VirtualRequest)>) {
        into.append(&mut self.requests);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_kept_in_order_while_the_connection_is_there() {
        let mut connections = VirtualConnections::default();
        let (one, other) = (connections.open(), connections.open());
        assert_ne!(one.index(), other.index());
        for request in [VirtualRequest::Send, VirtualRequest::Send, VirtualRequest::Close] {
            connections.request(one, request);
        }
        connections.request(other, VirtualRequest::Send);
        connections.remove(other);
        connections.request(other, VirtualRequest::Pause);
        let mut requests = Vec::new();
        connections.take_requests(&mut requests);
        assert_eq!(requests, [(one, VirtualRequest::Send), (one, VirtualRequest::Close)]);
        assert_ne!(connections.open(), other, "an id is not given out again");
    }
}
