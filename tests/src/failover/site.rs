//! A gateway on an island, which can be ended and started again at the same address.

use std::net::{SocketAddr, TcpListener};

use lunette_testkit::Relay;

use super::LIMIT;
use crate::ceph::{Ceph, Image};
use crate::configured::Configured;
use crate::island::Island;
use crate::process::wait_until;
use crate::server::Server;

/// How a gateway lets commands to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Active,
    Standby,
    /// Between them, or the gateway has not begun.
    Other,
}

pub(super) struct Site {
    /// The target port group.
    pub(super) group: u16,
    pub(super) island: Island,
    place: Configured,
    portal: TcpListener,
    server: Option<Server>,
    /// The way from clients to the portal.
    way: Relay,
}

impl Site {
    pub(super) fn start(ceph: &Ceph, image: &Image<'_>, group: u16) -> Self {
        let portal = TcpListener::bind("127.0.0.1:0").expect("a port on the loopback interface");
        let address = portal.local_addr().expect("a bound socket has an address");
        let place = Configured::new();
        place.write(&image.gateway(&address.to_string(), group));
        let island = Island::with_ways_to(ceph);
        let mut site = Self { group, island, place, portal, server: None, way: Relay::to(address) };
        site.restart();
        site
    }

    /// Starts the gateway, unless it is running.
    pub(super) fn restart(&mut self) {
        if self.server.is_some() {
            return;
        }
        let portal = self.portal.try_clone().expect("a descriptor");
        self.server = Some(self.island.serve(&self.place, portal));
        self.way.lead(Some(self.portal.local_addr().expect("a bound socket has an address")));
    }

    pub(super) fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs")
    }

    /// Takes the server out, to be ended. Clients are refused until [`restart`](Self::restart), as by a machine on
    /// which nothing listens.
    pub(super) fn take_server(&mut self) -> Server {
        self.way.lead(None);
        self.server.take().expect("it runs")
    }

    /// Where clients reach it.
    pub(super) fn address(&self) -> SocketAddr {
        self.way.address
    }

    /// Bytes that clients have sent to it.
    pub(super) fn bytes_of_clients(&self) -> usize {
        self.way.bytes_of_clients()
    }

    /// The access that the gateway has logged last.
    pub(super) fn access(&self) -> Access {
        let log = self.server().log();
        match log.rsplit_once("access=").map(|(_, rest)| rest) {
            Some(rest) if rest.starts_with("Active") => Access::Active,
            Some(rest) if rest.starts_with("Standby") => Access::Standby,
            _ => Access::Other,
        }
    }

    pub(super) fn await_access(&self, access: Access) {
        let has = wait_until(LIMIT, || (self.access() == access).then_some(()));
        assert!(
            has.is_some(),
            "the gateway of group {} does not become {access:?}:\n{}",
            self.group,
            self.server().log()
        );
    }

    pub(super) fn stop(mut self) {
        self.take_server().stop();
    }
}
