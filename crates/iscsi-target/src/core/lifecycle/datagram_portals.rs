//! Where associations of the Effective Cross Layer begin.
//!
//! A socket on an interface hears nothing more when the interface goes down or away, and no call fails for it. The
//! system says so once ([`failed`](DatagramPortals::failed)). From then on the interface is looked at every
//! [`RETRY_INTERVAL`], and opened again when it is there and up, under whatever index it has then. Associations follow
//! to the other socket ([`SocketChange`]).
//!
//! A socket carries the sessions that began at it. So that of a portal which a [change](DatagramPortals::change)
//! removes stays until the last of them has ended, and only begins no more.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use lunette_ecl_endpoint::SocketChange;
use lunette_reactor::{
    Context, DatagramConfig, DatagramSocketId, EthernetAddress, InterfaceClaim, Mac, interface_index, interface_is_up,
};

use crate::config::{BindError, DatagramPlace, DatagramPortalConfig};

/// How often an interface that is down or gone is looked at.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The portals that are open, in the order of the configuration.
#[derive(Default)]
pub(super) struct DatagramPortals {
    open: Vec<OpenPortal>,
    /// Portals that were removed, and whose sessions go on.
    retired: Vec<OpenPortal>,
    /// How sockets are opened.
    sockets: DatagramConfig,
    /// The changes that the endpoint does not know yet.
    changes: VecDeque<SocketChange>,
    /// The next look at interfaces that are down or gone.
    look_at: Option<Instant>,
}

struct OpenPortal {
    socket: DatagramSocketId,
    /// The place as it was configured.
    place: DatagramPlace,
    group: u16,
    portal: DatagramPortal,
    /// To the interface.
    claim: Option<InterfaceClaim>,
    deaf: Option<Deaf>,
}

/// A portal that hears nothing: its interface is down or gone.
#[derive(Debug, Default)]
struct Deaf {
    /// Why it could not be opened again, as it was logged last.
    why: Option<String>,
}

/// A place at which associations of the Effective Cross Layer begin, as it was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatagramPortal {
    /// The UDP port.
    Udp(SocketAddr),
    /// The interface, and its MAC address.
    Ethernet {
        /// The name of the interface.
        interface: String,
        /// The address by which peers reach it.
        mac: Mac,
    },
}

impl OpenPortal {
    fn open(cx: &mut Context<'_>, config: &DatagramPortalConfig, sockets: &DatagramConfig) -> Result<Self, BindError> {
        let (socket, portal, claim) = match &config.place {
            DatagramPlace::Udp(address) => {
                let failed = |source| BindError::Listen { address: *address, source };
                let (socket, address) = cx.bind_udp(*address, sockets).map_err(failed)?;
                (socket, DatagramPortal::Udp(address), None)
            }
            DatagramPlace::Ethernet(interface) => {
                let failed = |source| BindError::Interface { interface: interface.clone(), source };
                let (socket, own, claim) = bind_claimed(cx, interface, None, sockets).map_err(failed)?;
                (socket, DatagramPortal::Ethernet { interface: interface.clone(), mac: own.mac }, claim)
            }
        };
        Ok(Self { socket, place: config.place.clone(), group: config.group, portal, claim, deaf: None })
    }

    /// Opens the interface of a deaf portal again. Gives what associations have to know.
    fn reopen(&mut self, cx: &mut Context<'_>, sockets: &DatagramConfig) -> Option<SocketChange> {
        let DatagramPortal::Ethernet { interface, mac } = &mut self.portal else { return None };
        let deaf = self.deaf.as_mut()?;
        if !interface_is_up(interface) {
            return None;
        }
        match bind_claimed(cx, interface, self.claim.take(), sockets) {
            Ok((socket, own, claim)) => {
                self.claim = claim;
                tracing::info!(interface, mac = %own.mac, "the interface is back: its clients are heard again");
                if *mac != own.mac {
                    tracing::warn!(interface, before = %mac, now = %own.mac, "its MAC address, and so the URL, is another one");
                }
                *mac = own.mac;
                self.deaf = None;
                let before = std::mem::replace(&mut self.socket, socket);
                Some(SocketChange::Replaced { before, socket, own })
            }
            Err(error) => {
                let why = error.to_string();
                if deaf.why.as_ref() != Some(&why) {
                    tracing::warn!(
                        interface,
                        error = why,
                        "the interface cannot be opened again; it is tried every second"
                    );
                    deaf.why = Some(why);
                }
                None
            }
        }
    }
}

/// Opens a socket on an interface that no other server has. `claim`: one that this portal has already, perhaps to an
/// interface of the same name that is gone.
fn bind_claimed(
    cx: &mut Context<'_>,
    interface: &str,
    claim: Option<InterfaceClaim>,
    sockets: &DatagramConfig,
) -> io::Result<(DatagramSocketId, EthernetAddress, Option<InterfaceClaim>)> {
    let index = interface_index(interface)?;
    let claim = match claim.filter(|claim| claim.interface() == index) {
        None => InterfaceClaim::take(index)?,
        claim => claim,
    };
    let (socket, own) = cx.bind_ethernet(interface, sockets)?;
    Ok((socket, own, claim))
}

/// Portals that were opened for a change.
#[derive(Default)]
pub(super) struct NewPortals(Vec<OpenPortal>);

impl NewPortals {
    /// The change does not come about.
    pub(super) fn give_up(self, cx: &mut Context<'_>) {
        for portal in self.0 {
            cx.close_datagrams(portal.socket);
        }
    }
}

impl DatagramPortals {
    /// No portals yet, whose sockets will be opened so.
    pub(super) fn new(sockets: DatagramConfig) -> Self {
        Self { sockets, ..Self::default() }
    }

    /// Opens what of `wanted` is not open yet. [`change`](Self::change) to them or [give them up](NewPortals::give_up).
    /// `closed` takes those that cannot be opened, if they may be missing.
    ///
    /// # Errors
    ///
    /// When one cannot be opened that may not be missing. Then none of them is.
    pub(super) fn prepare(
        &self,
        cx: &mut Context<'_>,
        wanted: &[DatagramPortalConfig],
        mut closed: Option<&mut Vec<BindError>>,
    ) -> Result<NewPortals, BindError> {
        let mut known: Vec<&DatagramPlace> = self.open.iter().chain(&self.retired).map(|open| &open.place).collect();
        let mut new = NewPortals(Vec::new());
        for config in wanted {
            if let Some(at) = known.iter().position(|place| **place == config.place) {
                known.swap_remove(at);
                continue;
            }
            match (OpenPortal::open(cx, config, &self.sockets), closed.as_mut()) {
                (Ok(portal), _) => new.0.push(portal),
                (Err(error), Some(closed)) => closed.push(error),
                (Err(error), None) => {
                    new.give_up(cx);
                    return Err(error);
                }
            }
        }
        Ok(new)
    }

    /// From now on there are the portals that are `wanted`, of which `new` were [opened](Self::prepare) for it. Those
    /// that are open already stay open.
    pub(super) fn change(&mut self, wanted: &[DatagramPortalConfig], new: NewPortals) {
        let NewPortals(mut before) = new;
        before.append(&mut self.open);
        before.append(&mut self.retired);
        let mut find = |config: &DatagramPortalConfig| {
            let at = before.iter().position(|open| open.place == config.place)?;
            Some(OpenPortal { group: config.group, ..before.remove(at) })
        };
        self.open = wanted.iter().filter_map(&mut find).collect();
        self.changes.extend(before.iter().map(|gone| SocketChange::Retired(gone.socket)));
        self.retired = before;
    }

    /// The last session of a portal that was removed has ended, and its socket is closed.
    pub(super) fn closed(&mut self, socket: DatagramSocketId) {
        self.retired.retain(|open| open.socket != socket);
    }

    pub(super) fn first_socket(&self) -> Option<DatagramSocketId> {
        self.open.first().map(|open| open.socket)
    }

    /// The portal group of a socket.
    pub(super) fn group_of(&self, socket: DatagramSocketId) -> Option<u16> {
        self.open.iter().find(|open| open.socket == socket).map(|open| open.group)
    }

    /// Where associations begin, in the order of the configuration, with their portal groups.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&DatagramPortal, u16)> {
        self.open.iter().map(|open| (&open.portal, open.group))
    }

    // Interfaces that go and come.

    /// The system has said that a socket does not work. UDP ports go on all the same.
    pub(super) fn failed(&mut self, socket: DatagramSocketId, error: &io::Error, now: Instant) {
        let Some(open) = self.open.iter_mut().find(|open| open.socket == socket) else { return };
        let DatagramPortal::Ethernet { interface, .. } = &open.portal else { return };
        if open.deaf.is_none() {
            tracing::warn!(
                interface,
                %error,
                "no client is heard on the interface, which is down or gone: bring it up (ip link set {interface} up); \
                 it is tried again every second"
            );
            open.deaf = Some(Deaf::default());
        }
        self.look_at.get_or_insert(now + RETRY_INTERVAL);
    }

    /// When to [look](Self::look) at interfaces.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.look_at
    }

    /// Opens the interfaces again that are back.
    pub(super) fn look(&mut self, cx: &mut Context<'_>) {
        let now = cx.now();
        if self.look_at.take_if(|at| *at <= now).is_none() {
            return;
        }
        let sockets = &self.sockets;
        self.changes.extend(self.open.iter_mut().filter_map(|open| open.reopen(cx, sockets)));
        self.look_at = self.open.iter().any(|open| open.deaf.is_some()).then(|| now + RETRY_INTERVAL);
    }

    /// The next change that associations have to know of.
    pub(super) fn next_change(&mut self) -> Option<SocketChange> {
        self.changes.pop_front()
    }
}
