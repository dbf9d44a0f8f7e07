//! The associations of an endpoint.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use lunette_ecl::Role;
use lunette_ecl::association::Association;
use lunette_reactor::{ConnectionId, DatagramPath, DatagramSocketId};
use lunette_session::Time;

/// An association, and the connection that the upper handler sees.
pub(crate) struct Peer<P> {
    pub(crate) association: Association<P>,
    pub(crate) role: Role,
    pub(crate) id: ConnectionId,
    pub(crate) socket: DatagramSocketId,
    pub(crate) path: DatagramPath,
    /// Bytes that the upper handler was offered and left for later, and those that were collected to be offered
    /// together.
    pub(crate) rest: Vec<u8>,
    /// The upper handler has left the first of these in this batch.
    pub(crate) leaves: bool,
    pub(crate) is_bound: bool,
    /// The upper handler has asked for its end, after all that is to be sent.
    pub(crate) is_finishing: bool,
    /// The upper handler has let go of it, or was told of its end.
    pub(crate) is_closed: bool,
    pub(crate) touched: bool,
    pub(crate) watched_for: Option<Time>,
}

/// A map whose keys are numbers that this side has chosen: no peer can make them collide, so they need no keyed hash.
pub(crate) type OwnMap<K, V> = HashMap<K, V, BuildHasherDefault<OwnHasher>>;

/// Multiplies: the map looks at the high bits and at the low ones.
#[derive(Default)]
pub(crate) struct OwnHasher(u64);

impl OwnHasher {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
}

impl Hasher for OwnHasher {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0.rotate_left(32) ^ u64::from(number)).wrapping_mul(Self::FACTOR);
    }
}

/// Associations, by the number that packets to this side have.
pub(crate) struct Peers<P> {
    by_number: OwnMap<u32, Peer<P>>,
    by_id: OwnMap<ConnectionId, u32>,
    touched: Vec<u32>,
}

impl<P> Default for Peers<P> {
    fn default() -> Self {
        Self { by_number: OwnMap::default(), by_id: OwnMap::default(), touched: Vec::new() }
    }
}

impl<P> Peers<P> {
    pub(crate) fn insert(&mut self, number: u32, peer: Peer<P>) {
        self.by_id.insert(peer.id, number);
        self.by_number.insert(number, peer);
        self.touch(number);
    }

    pub(crate) fn len(&self) -> usize {
        self.by_number.len()
    }

    pub(crate) fn contains(&self, number: u32) -> bool {
        self.by_number.contains_key(&number)
    }

    pub(crate) fn get(&self, number: u32) -> Option<&Peer<P>> {
        self.by_number.get(&number)
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut Peer<P>> {
        self.by_number.get_mut(&number)
    }

    pub(crate) fn number_of(&self, id: ConnectionId) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<Peer<P>> {
        let peer = self.by_number.remove(&number)?;
        self.by_id.remove(&peer.id);
        Some(peer)
    }

    /// The association that this side has begun at a socket of its own.
    pub(crate) fn begun_at(&self, socket: DatagramSocketId) -> Option<u32> {
        let mut peers = self.by_number.iter();
        peers.find(|(_, peer)| peer.role == Role::Client && peer.socket == socket).map(|(number, _)| *number)
    }

    /// The peers whose packets take this path: one host, and on Ethernet one station, may have several associations
    /// with this side.
    pub(crate) fn on_path(
        &mut self,
        socket: DatagramSocketId,
        path: &DatagramPath,
    ) -> impl Iterator<Item = &mut Peer<P>> {
        let peers = self.by_number.values_mut();
        peers.filter(move |peer| peer.socket == socket && peer.path.peer == path.peer)
    }

    /// The associations of a socket.
    pub(crate) fn at_socket(&self, socket: DatagramSocketId) -> Vec<u32> {
        self.by_number.iter().filter(|(_, peer)| peer.socket == socket).map(|(number, _)| *number).collect()
    }

    /// Looks at an association after the batch.
    pub(crate) fn touch(&mut self, number: u32) {
        self.get_touched(number);
    }

    /// The association, which is looked at after the batch.
    pub(crate) fn get_touched(&mut self, number: u32) -> Option<&mut Peer<P>> {
        let peer = self.by_number.get_mut(&number)?;
        if !std::mem::replace(&mut peer.touched, true) {
            self.touched.push(number);
        }
        Some(peer)
    }

    pub(crate) fn are_touched(&self) -> bool {
        !self.touched.is_empty()
    }

    /// Moves the numbers of those to look at to the end of `into`.
    pub(crate) fn take_touched(&mut self, into: &mut Vec<u32>) {
        for number in &self.touched {
            if let Some(peer) = self.by_number.get_mut(number) {
                peer.touched = false;
            }
        }
        into.append(&mut self.touched);
    }
}
