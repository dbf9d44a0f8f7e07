//! The datagrams to be sent, in order, by socket.

use std::collections::VecDeque;

use lunette_reactor::{DatagramList, DatagramPath, DatagramSocketId};

use crate::peers::{OwnMap, Peers};

/// Packets of handshakes that wait for one socket. When there are more, they are dropped: their senders come again.
const MAX_LOOSE: usize = 256;

/// The datagrams that wait for the sockets.
#[derive(Default)]
pub(crate) struct Outbox {
    sockets: OwnMap<DatagramSocketId, Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// Packets that belong to no association.
    loose: VecDeque<(DatagramPath, Box<[u8]>)>,
    /// Associations with packets, in the order in which they are sent.
    associations: VecDeque<u32>,
    /// The offers of the last list.
    offered: Vec<Offer>,
}

/// Packets that were offered one behind the other.
#[derive(Clone, Copy)]
struct Offer {
    /// The association that they are of; the others are of none.
    of: Option<u32>,
    packets: usize,
}

impl Outbox {
    pub(crate) fn add_loose(&mut self, socket: DatagramSocketId, path: DatagramPath, bytes: Box<[u8]>) {
        let waiting = self.sockets.entry(socket).or_default();
        if waiting.loose.len() < MAX_LOOSE {
            waiting.loose.push_back((path, bytes));
        }
    }

    /// A socket is closed.
    pub(crate) fn forget(&mut self, socket: DatagramSocketId) {
        self.sockets.remove(&socket);
    }

    /// An association has packets.
    pub(crate) fn add(&mut self, socket: DatagramSocketId, number: u32) {
        let waiting = self.sockets.entry(socket).or_default();
        if !waiting.associations.contains(&number) {
            waiting.associations.push_back(number);
        }
    }

    /// Lists what waits for a socket.
    pub(crate) fn gather<'a, P: Copy>(
        &'a mut self,
        socket: DatagramSocketId,
        peers: &'a Peers<P>,
        list: &mut DatagramList<'a>,
    ) {
        let Some(Waiting { loose, associations, offered }) = self.sockets.get_mut(&socket) else { return };
        offered.clear();
        for (path, bytes) in loose.iter() {
            if !list.push(path, [&**bytes]) {
                return;
            }
            offered.push(Offer { of: None, packets: 1 });
        }
        associations.retain(|number| peers.get(*number).is_some_and(|peer| peer.association.ready_len() > 0));
        for number in associations.iter() {
            let Some(peer) = peers.get(*number) else { continue };
            let ready = peer.association.ready_len();
            let taken = (0..ready).take_while(|index| list.push(&peer.path, peer.association.packet(*index))).count();
            offered.push(Offer { of: Some(*number), packets: taken });
            if taken < ready {
                return;
            }
        }
    }

    /// The first `count` of these have left.
    pub(crate) fn sent<P: Copy>(&mut self, socket: DatagramSocketId, count: usize, peers: &mut Peers<P>) {
        let Some(waiting) = self.sockets.get_mut(&socket) else { return };
        let mut left = count;
        for Offer { of, packets } in waiting.offered.drain(..) {
            let packets = packets.min(left);
            left -= packets;
            if packets == 0 {
                continue;
            }
            let Some(number) = of else {
                waiting.loose.drain(..packets);
                continue;
            };
            // Others come first in the next list.
            if waiting.associations.front() == Some(&number) {
                waiting.associations.rotate_left(1);
            }
            if let Some(peer) = peers.get_mut(number)
                && peer.association.sent(packets)
            {
                peers.touch(number);
            }
        }
    }
}
