//! The makers of connections.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use lunette_session::iscsi_target::{
    ConnectionConfig, Directory, Entropy, Host, LoginConnection, Moved, Portal, TargetNode, Timers, Transport,
};
use lunette_session::keys::Offer;
use lunette_session::{Authentication, Time};

pub(crate) const TARGET: &str = "iqn.2026-11.example:disk";
pub(crate) const INITIATOR: &str = "iqn.2026-11.example:host";

/// Where the initiator is.
pub(crate) const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 77));

pub(crate) struct Setup {
    pub(crate) offer: Offer,
    pub(crate) authentication: Authentication,
    pub(crate) discovery: Authentication,
    pub(crate) hosts: Vec<Host>,
    pub(crate) alias: Option<String>,
    pub(crate) portals: Vec<Portal>,
    pub(crate) moved: Option<Moved>,
    /// Further targets of the directory.
    pub(crate) others: Vec<TargetNode>,
    pub(crate) local: SocketAddr,
    pub(crate) peer: IpAddr,
    pub(crate) timers: Timers,
    pub(crate) first_cmd_sn: u32,
    /// The offer of the initiator when [`Peer::logged_in`](super::Peer::logged_in) logs in for the test.
    pub(crate) keys: Vec<(&'static str, &'static str)>,
}

impl Default for Setup {
    fn default() -> Self {
        let local: SocketAddr = "192.0.2.7:3260".parse().unwrap();
        Self {
            offer: Offer::default(),
            authentication: Authentication::None,
            discovery: Authentication::None,
            hosts: vec![Host::everyone()],
            alias: None,
            portals: vec![Portal { address: local, group: 1, transport: Transport::Stream }],
            moved: None,
            others: Vec::new(),
            local,
            peer: PEER,
            timers: Timers {
                login: Duration::from_secs(15),
                ping_after: Duration::from_secs(30),
                ping_answer: Duration::from_secs(20),
                ..Timers::default()
            },
            first_cmd_sn: 1,
            keys: Vec::new(),
        }
    }
}

/// The host of one initiator name.
pub(crate) fn only(initiator: &str) -> Host {
    Host::of_initiators(Some(vec![initiator.into()]))
}

/// A target that anyone may use.
pub(crate) fn node(name: &str, portals: Vec<Portal>) -> TargetNode {
    TargetNode {
        name: name.into(),
        alias: None,
        authentication: Authentication::None,
        hosts: vec![Arc::new(Host::everyone())],
        portals,
        offer: Offer::default(),
        moved: None,
    }
}

impl Setup {
    /// With these keys in the login.
    pub(crate) fn keys(keys: &[(&'static str, &'static str)]) -> Self {
        Self { keys: keys.to_vec(), ..Self::default() }
    }

    pub(crate) fn connection(self, now: Time) -> LoginConnection {
        let first = TargetNode {
            alias: self.alias,
            authentication: self.authentication,
            hosts: self.hosts.into_iter().map(Arc::new).collect(),
            offer: self.offer,
            moved: self.moved,
            ..node(TARGET, self.portals)
        };
        let targets = std::iter::once(first).chain(self.others).map(Arc::new).collect();
        let config = ConnectionConfig {
            directory: Arc::new(Directory { targets, discovery: self.discovery }),
            local: self.local,
            peer: self.peer,
            portal_group: 1,
            timers: self.timers,
            entropy: Entropy(std::array::from_fn(|n| 0xf0_u8.wrapping_add(n as u8))),
        };
        LoginConnection::new(config, now)
    }
}
