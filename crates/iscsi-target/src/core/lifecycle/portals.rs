//! Where the target listens.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Instant;

use lunette_device::TargetDevice;
use lunette_reactor::{Context, DatagramConfig, DatagramSocketId, ListenerId, TlsSource};
use lunette_session::folded_name;
use lunette_session::iscsi_target::{Portal, Transport};

use super::datagram_portals::{DatagramPortal, DatagramPortals};
use crate::config::{BindError, DatagramPortalConfig, PortalConfig, PortalTls};

/// The portals that are open, in the order of the configuration.
#[derive(Default)]
pub(crate) struct Portals {
    open: Vec<OpenPortal>,
    given: Given,
    datagrams: DatagramPortals,
}

/// Sockets that listened before. They stay, so that a portal that was removed can come back.
#[derive(Default)]
struct Given(Vec<TcpListener>);

impl Given {
    /// Listens on `address`, with the socket that does so already if there is one.
    fn listen(&self, cx: &mut Context<'_>, address: SocketAddr) -> io::Result<(ListenerId, SocketAddr)> {
        match self.0.iter().find(|socket| socket.local_addr().is_ok_and(|own| own == address)) {
            Some(socket) => cx.adopt_listener(socket.try_clone()?),
            None => cx.listen(address),
        }
    }
}

#[derive(Clone)]
struct OpenPortal {
    listener: ListenerId,
    config: PortalConfig,
    /// With the port that the system chose, where it was to.
    address: SocketAddr,
    /// The TLS that it speaks, if any.
    tls: Option<TlsSource>,
}

impl OpenPortal {
    fn open(cx: &mut Context<'_>, given: &Given, config: PortalConfig) -> io::Result<Self> {
        let tls = tls_of(&config)?;
        let (listener, address) = given.listen(cx, config.address)?;
        cx.set_listener_tls(listener, tls.clone());
        Ok(Self { listener, config, address, tls })
    }

    /// Whether the system lets only one of both listen.
    fn keeps_out(&self, other: SocketAddr) -> bool {
        let (ours, theirs) = (self.address.ip(), other.ip());
        self.address.port() == other.port()
            && self.address.is_ipv4() == other.is_ipv4()
            && (ours == theirs || ours.is_unspecified() || theirs.is_unspecified())
    }
}

/// The TLS of a portal, if its connections speak it.
fn tls_of(config: &PortalConfig) -> io::Result<Option<TlsSource>> {
    let source = |tls: &PortalTls| tls.source.clone().map_err(io::Error::other);
    config.tls.as_ref().map(source).transpose()
}

impl Portals {
    /// No portals yet. Those at the addresses of `given` will use these sockets; those of associations will be opened
    /// as `datagrams` says.
    pub(crate) fn new(given: Vec<TcpListener>, datagrams: DatagramConfig) -> Self {
        Self { open: Vec::new(), given: Given(given), datagrams: DatagramPortals::new(datagrams) }
    }

    /// Lets go of the sockets that were given: portals that use one have it alone.
    pub(crate) fn let_go(&mut self) {
        self.given = Given::default();
    }

    pub(crate) fn first_listener(&self) -> Option<ListenerId> {
        self.open.first().map(|portal| portal.listener)
    }

    pub(crate) fn first_datagram_socket(&self) -> Option<DatagramSocketId> {
        self.datagrams.first_socket()
    }

    /// Opens and closes until there are the portals that are `wanted`, and for associations those of `datagrams`. Those
    /// that are open already stay open all the time. With a list of those that are `required`, gives the others that
    /// cannot be opened and are missing now; the next change tries them again.
    ///
    /// # Errors
    ///
    /// When one cannot be opened that is required, as all are without a list. Then the portals are those that were
    /// before.
    pub(crate) fn change(
        &mut self,
        cx: &mut Context<'_>,
        wanted: &[PortalConfig],
        datagrams: &[DatagramPortalConfig],
        required: Option<&[PortalConfig]>,
    ) -> Result<Vec<BindError>, BindError> {
        let mut closed = required.map(|_| Vec::new());
        let new = self.datagrams.prepare(cx, datagrams, closed.as_mut())?;
        let may_be_closed = |portal: &PortalConfig| required.is_some_and(|required| !required.contains(portal));
        if let Err(error) = self.change_listeners(cx, wanted, closed.as_mut(), may_be_closed) {
            new.give_up(cx);
            return Err(error);
        }
        self.datagrams.change(datagrams, new);
        Ok(closed.unwrap_or_default())
    }

    /// `closed` takes those that cannot be opened and may be missing.
    fn change_listeners(
        &mut self,
        cx: &mut Context<'_>,
        wanted: &[PortalConfig],
        mut closed: Option<&mut Vec<BindError>>,
        may_be_closed: impl Fn(&PortalConfig) -> bool,
    ) -> Result<(), BindError> {
        let mut gone = self.open.clone();
        let kept: Vec<Option<OpenPortal>> = wanted
            .iter()
            .map(|config| {
                let index = gone.iter().position(|portal| portal.config == *config)?;
                Some(gone.swap_remove(index))
            })
            .collect();
        let mut change = Change { given: &self.given, gone, closed: Vec::new(), new: Vec::new() };
        let mut open = Vec::new();
        for (config, kept) in wanted.iter().zip(kept) {
            match kept.map_or_else(|| change.open(cx, config.clone()), Ok) {
                Ok(portal) => open.push(portal),
                Err(source) => {
                    let error = BindError::Listen { address: config.address, source };
                    if let Some(closed) = closed.as_mut().filter(|_| may_be_closed(config)) {
                        closed.push(error);
                        continue;
                    }
                    let back = change.undo(cx);
                    // Listeners that were closed on the way have another name now.
                    for portal in &mut self.open {
                        let again = back.iter().find(|(before, _)| *before == portal.listener);
                        portal.listener = again.map_or(portal.listener, |(_, listener)| *listener);
                    }
                    return Err(error);
                }
            }
        }
        for portal in change.gone {
            cx.close_listener(portal.listener);
        }
        self.open = open;
        Ok(())
    }

    /// The portals of the Effective Cross Layer.
    pub(super) fn datagrams_mut(&mut self) -> &mut DatagramPortals {
        &mut self.datagrams
    }

    /// See [`DatagramPortals::next_look`].
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.datagrams.next_look()
    }

    /// Stops listening everywhere.
    pub(super) fn close(&mut self, cx: &mut Context<'_>) {
        for portal in self.open.drain(..) {
            cx.close_listener(portal.listener);
        }
    }

    /// Other descriptors of the sockets that listen.
    pub(in crate::core) fn duplicate_listeners(&self, cx: &Context<'_>) -> Vec<TcpListener> {
        self.open.iter().filter_map(|portal| cx.duplicate_listener(portal.listener).ok()).collect()
    }

    /// The portal group that a connection came in through.
    pub(in crate::core) fn group_of(&self, listener: ListenerId) -> Option<u16> {
        self.open.iter().find(|portal| portal.listener == listener).map(|portal| portal.config.group)
    }

    /// Whether the connections of a listener speak TLS.
    pub(in crate::core) fn speaks_tls(&self, listener: ListenerId) -> bool {
        self.open.iter().any(|portal| portal.listener == listener && portal.tls.is_some())
    }

    /// The portal group of a datagram socket.
    pub(in crate::core) fn group_of_datagrams(&self, socket: DatagramSocketId) -> Option<u16> {
        self.datagrams.group_of(socket)
    }

    /// Where associations begin, in the order of the configuration.
    pub(crate) fn datagram_portals(&self) -> Vec<DatagramPortal> {
        self.datagrams.iter().map(|(portal, _)| portal.clone()).collect()
    }

    /// All portals, whatever carries their sessions: each portal group is a target port.
    pub(crate) fn ports(&self) -> Vec<Portal> {
        let datagrams = self.datagrams.iter().map(|(portal, group)| {
            let (address, transport) = match portal {
                DatagramPortal::Udp(address) => (*address, Transport::Datagrams),
                DatagramPortal::Ethernet { .. } => ((Ipv4Addr::UNSPECIFIED, 0).into(), Transport::Frames),
            };
            Portal { address, group, transport }
        });
        self.to_vec().into_iter().chain(datagrams).collect()
    }

    /// The portals as initiators are told of them.
    pub(crate) fn to_vec(&self) -> Vec<Portal> {
        let portal = |portal: &OpenPortal| Portal {
            address: portal.address,
            group: portal.config.group,
            transport: if portal.config.tls.is_some() { Transport::Tls } else { Transport::Stream },
        };
        self.open.iter().map(portal).collect()
    }
}

/// A change on its way.
struct Change<'a> {
    given: &'a Given,
    /// To be closed at the end.
    gone: Vec<OpenPortal>,
    /// Closed already, to make room.
    closed: Vec<OpenPortal>,
    new: Vec<OpenPortal>,
}

impl Change<'_> {
    /// Opens one more portal. When a portal that goes is in its way, as the loopback address is in that of "any
    /// address", that one is closed first.
    fn open(&mut self, cx: &mut Context<'_>, config: PortalConfig) -> io::Result<OpenPortal> {
        let mut opened = OpenPortal::open(cx, self.given, config.clone());
        if matches!(&opened, Err(error) if error.kind() == io::ErrorKind::AddrInUse) {
            let in_its_way = self.gone.extract_if(.., |portal| portal.keeps_out(config.address));
            for portal in in_its_way {
                cx.close_listener(portal.listener);
                self.closed.push(portal);
            }
            opened = OpenPortal::open(cx, self.given, config);
        }
        let portal = opened?;
        self.new.push(portal.clone());
        Ok(portal)
    }

    /// Takes back what was done. Gives the new names of listeners that had to be opened again.
    fn undo(self, cx: &mut Context<'_>) -> Vec<(ListenerId, ListenerId)> {
        for portal in self.new {
            cx.close_listener(portal.listener);
        }
        let mut back = Vec::new();
        for portal in self.closed {
            match self.given.listen(cx, portal.address) {
                Ok((listener, _)) => {
                    cx.set_listener_tls(listener, portal.tls);
                    back.push((portal.listener, listener));
                }
                Err(error) => tracing::error!(address = %portal.address, %error, "a portal is lost"),
            }
        }
        back
    }
}

/// Lets each device know its target ports: one per portal group, here or at other servers of its units.
pub(crate) fn declare_ports(devices: &[Arc<TargetDevice>], portals: &[Portal]) {
    for device in devices {
        let target = folded_name(device.name());
        let groups = portals.iter().map(|portal| portal.group).chain(device.grouped_ports());
        let ports: Vec<_> = groups.map(|group| (port_name(&target, group), group)).collect();
        device.set_ports(ports.iter().map(|(name, group)| (name.as_str(), *group)));
    }
}

/// The name of a target port (RFC 7143 section 4.4.5).
pub(in crate::core) fn port_name(target: &str, portal_group: u16) -> String {
    format!("{target},t,0x{portal_group:04x}")
}
