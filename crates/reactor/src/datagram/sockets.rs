//! The datagram sockets of one reactor.

use std::io;
use std::net::SocketAddr;

use super::open::{self, Opened};
use super::socket::DatagramSocket;
use super::{DatagramConfig, DatagramSocketId, EthernetAddress, SocketBuffers, ethernet};
use crate::backend::Backend;
use crate::slab::{Key, Slab};

#[derive(Default)]
pub(crate) struct DatagramSockets {
    sockets: Slab<DatagramSocket>,
    /// To be looked at after the batch.
    touched: Vec<Key>,
}

impl DatagramSockets {
    /// Opens a UDP socket; gives its own address, too.
    pub(crate) fn open_udp(
        &mut self,
        backend: &Backend,
        local: Option<SocketAddr>,
        peer: Option<SocketAddr>,
        config: &DatagramConfig,
    ) -> io::Result<(DatagramSocketId, SocketAddr)> {
        let (opened, address) = open::open_udp(local, peer, config)?;
        Ok((self.add(backend, opened)?, address))
    }

    /// Opens a socket on an interface; gives its own address, too.
    pub(crate) fn open_ethernet(
        &mut self,
        backend: &Backend,
        interface: u32,
        config: &DatagramConfig,
    ) -> io::Result<(DatagramSocketId, EthernetAddress)> {
        let (opened, address) = ethernet::open(interface, config)?;
        Ok((self.add(backend, opened)?, address))
    }

    fn add(&mut self, backend: &Backend, opened: Opened) -> io::Result<DatagramSocketId> {
        let mut socket = DatagramSocket::new(opened);
        let key = self.sockets.next_key();
        backend.add_datagrams(key, &mut socket)?;
        self.sockets.insert(socket);
        // A ring is told of it before the next wait.
        self.touch(key);
        Ok(DatagramSocketId(key))
    }

    pub(crate) fn get(&self, key: Key) -> Option<&DatagramSocket> {
        self.sockets.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut DatagramSocket> {
        self.sockets.get_mut(key)
    }

    pub(crate) fn buffers(&self, id: DatagramSocketId) -> Option<SocketBuffers> {
        open::buffers(self.sockets.get(id.0)?.descriptor()).ok()
    }

    pub(crate) fn send(&mut self, id: DatagramSocketId) {
        let Some(socket) = self.sockets.get_mut(id.0) else { return };
        socket.wants_send = true;
        if !socket.blocked {
            self.touch(id.0);
        }
    }

    pub(crate) fn close(&mut self, backend: &mut Backend, id: DatagramSocketId) {
        if let Some(socket) = self.sockets.remove(id.0) {
            backend.remove_datagrams(id.0, &socket);
        }
    }

    /// Has the socket looked at after the batch.
    pub(crate) fn touch(&mut self, key: Key) {
        if let Some(socket) = self.sockets.get_mut(key)
            && !socket.touched
        {
            socket.touched = true;
            self.touched.push(key);
        }
    }

    pub(crate) fn has_touched(&self) -> bool {
        !self.touched.is_empty()
    }

    /// Moves the list of touched sockets to the end of `into`.
    pub(crate) fn take_touched(&mut self, into: &mut Vec<Key>) {
        for key in &self.touched {
            if let Some(socket) = self.sockets.get_mut(*key) {
                socket.touched = false;
            }
        }
        into.append(&mut self.touched);
    }
}
