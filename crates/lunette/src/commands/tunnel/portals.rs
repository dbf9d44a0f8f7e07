//! The portals that the tunnel leads to, and the listener of each.

use std::io;
use std::net::{IpAddr, SocketAddr};

use lunette_initiator::Portal;
use lunette_reactor::{Context, ListenerId};

use super::limits::{MAX_ADDRESSES, MAX_PORTALS};

/// All portals, as long as the process lives: an address that was named once stays.
pub(super) struct Portals {
    /// Where the first one is reached.
    base: SocketAddr,
    entries: Vec<Entry>,
}

struct Entry {
    portal: Portal,
    listener: ListenerId,
    /// Our port.
    port: u16,
    /// The addresses by which it was reached, under which the server may name it, too.
    reached: Vec<SocketAddr>,
}

impl Portals {
    /// The portal of the arguments, reached at `base`.
    pub(super) fn new(base: SocketAddr, portal: Portal, listener: ListenerId) -> Self {
        Self { base, entries: vec![Entry { portal, listener, port: base.port(), reached: Vec::new() }] }
    }

    /// The place of the portal that a listener leads to.
    pub(super) fn of(&self, listener: ListenerId) -> Option<usize> {
        self.entries.iter().position(|entry| entry.listener == listener)
    }

    pub(super) fn portal(&self, index: usize) -> &Portal {
        &self.entries[index].portal
    }

    /// The portal was reached at an address.
    pub(super) fn reached(&mut self, index: usize, address: SocketAddr) {
        let reached = &mut self.entries[index].reached;
        if !reached.contains(&address) {
            reached.truncate(MAX_ADDRESSES - 1);
            reached.insert(0, address);
        }
    }

    /// Where initiators reach the portal that the one at `from` has named, by the address `local` of this machine.
    pub(super) fn way(&mut self, cx: &mut Context<'_>, told: &str, from: usize, local: IpAddr) -> Option<String> {
        let portal = match Portal::told(told, self.portal(from)) {
            Ok(portal) => portal,
            Err(error) => {
                tracing::warn!(target: "lunette_tunnel", address = told, %error, "the server names an address that cannot be used");
                return None;
            }
        };
        let index = match self.find(&portal) {
            Some(index) => index,
            None => self.open(cx, &portal)?,
        };
        // Zones mean nothing to initiators.
        Some(SocketAddr::new(local, self.entries[index].port).to_string())
    }

    /// Listens for a further portal. Gives the address.
    pub(super) fn add(&mut self, cx: &mut Context<'_>, portal: &Portal) -> io::Result<SocketAddr> {
        let (listener, address) = self.listen(cx)?;
        tracing::info!(target: "lunette_tunnel", %address, %portal, "carrying connections to a further portal");
        self.entries.push(Entry { portal: portal.clone(), listener, port: address.port(), reached: Vec::new() });
        Ok(address)
    }

    fn find(&self, portal: &Portal) -> Option<usize> {
        let address = portal.host.parse().ok().map(|ip: IpAddr| SocketAddr::new(ip, portal.port));
        let is_it =
            |entry: &Entry| entry.portal == *portal || address.is_some_and(|address| entry.reached.contains(&address));
        self.entries.iter().position(is_it)
    }

    fn open(&mut self, cx: &mut Context<'_>, portal: &Portal) -> Option<usize> {
        if self.entries.len() >= MAX_PORTALS {
            tracing::warn!(
                target: "lunette_tunnel", %portal,
                "the server names more than {MAX_PORTALS} portals; this one is left out: start a tunnel to it"
            );
            return None;
        }
        match self.add(cx, portal) {
            Ok(_) => Some(self.entries.len() - 1),
            Err(error) => {
                tracing::warn!(
                    target: "lunette_tunnel", %portal, %error,
                    "cannot listen for a portal that the server names; it is left out"
                );
                None
            }
        }
    }

    /// Listens at the next free port, or at one that the system chooses.
    fn listen(&self, cx: &mut Context<'_>) -> io::Result<(ListenerId, SocketAddr)> {
        let next = (1..=MAX_PORTALS as u16).filter_map(|step| self.base.port().checked_add(step));
        let is_free = |port: &u16| self.entries.iter().all(|entry| entry.port != *port);
        for port in next.filter(is_free).chain([0]) {
            let mut address = self.base;
            address.set_port(port);
            match cx.listen(address) {
                // In use, or below 1024 and not for us.
                Err(_) if port != 0 => {}
                opened => return opened,
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }
}

#[cfg(test)]
mod tests {
    use lunette_reactor::Reactor;

    use super::*;

    fn portals(reactor: &mut Reactor) -> Portals {
        let (listener, base) = reactor.context().listen("127.0.0.1:0".parse().unwrap()).unwrap();
        Portals::new(base, Portal::parse("san.example:3261").unwrap(), listener)
    }

    #[test]
    fn each_portal_keeps_its_port() {
        let mut reactor = Reactor::new().unwrap();
        let mut portals = portals(&mut reactor);
        let local = portals.base.ip();
        portals.reached(0, "192.0.2.1:3261".parse().unwrap());
        let mut way = |told: &str| portals.way(&mut reactor.context(), told, 0, local);
        let first = way("san.example:3261").unwrap();
        assert_eq!(way("192.0.2.1:3261"), Some(first.clone()), "the address by which it was reached");
        let other = way("192.0.2.2:3261").unwrap();
        assert_ne!(other, first);
        assert_eq!(way("192.0.2.2:3261"), Some(other));
        assert_eq!(way("0.0.0.0:3261"), None);
        assert_eq!(way("no address"), None);
    }

    #[test]
    fn a_server_cannot_make_the_tunnel_listen_without_end() {
        let mut reactor = Reactor::new().unwrap();
        let mut portals = portals(&mut reactor);
        let local = portals.base.ip();
        let way = |portals: &mut Portals, reactor: &mut Reactor, port: usize| {
            portals.way(&mut reactor.context(), &format!("192.0.2.9:{port}"), 0, local)
        };
        let opened = (1..=2 * MAX_PORTALS).filter(|port| way(&mut portals, &mut reactor, *port).is_some()).count();
        assert_eq!(opened, MAX_PORTALS - 1);
        for port in 1..=100 {
            portals.reached(0, SocketAddr::new(local, port));
        }
        assert_eq!(portals.entries[0].reached.len(), MAX_ADDRESSES);
    }
}
