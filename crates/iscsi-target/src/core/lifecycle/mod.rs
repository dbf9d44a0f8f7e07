//! The objects that a core serves, from the start over changes and removals to the stop.

mod change;
mod datagram_portals;
mod portals;
mod removals;
mod stop;

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use lunette_device::TargetDevice;
use lunette_ecl_endpoint::SocketChange;
use lunette_reactor::{Context, DatagramSocketId};
use lunette_session::is_same_name;
use lunette_session::iscsi_target::Directory;
use lunette_store::Store;

use crate::control::Updates;
use crate::monitor::SharedDevices;
pub(crate) use change::ConfigChange;
pub use datagram_portals::DatagramPortal;
pub(in crate::core) use portals::port_name;
pub(crate) use portals::{Portals, declare_ports};
use removals::Removals;
pub(crate) use removals::Removed;
pub(super) use stop::StopStep;
use stop::Stopping;

/// The objects that a core serves, and the endings: removed stores, and the core itself. The core asks at the end of
/// each batch what is to be done next.
pub(super) struct Lifecycle {
    portals: Portals,
    devices: Vec<Arc<TargetDevice>>,
    shared_devices: SharedDevices,
    directory: Arc<Directory>,
    updates: Arc<Updates>,
    removals: Removals,
    stop_asked: Arc<AtomicBool>,
    stopping: Stopping,
    /// Other cores that have nothing left to stop.
    quiet_cores: usize,
}

impl Lifecycle {
    pub(super) fn new(
        portals: Portals,
        devices: Vec<Arc<TargetDevice>>,
        shared_devices: SharedDevices,
        directory: Arc<Directory>,
        updates: Arc<Updates>,
        stop_asked: Arc<AtomicBool>,
    ) -> Self {
        Self {
            portals,
            devices,
            shared_devices,
            directory,
            updates,
            removals: Removals::default(),
            stop_asked,
            stopping: Stopping::No,
            quiet_cores: 0,
        }
    }

    pub(super) fn portals(&self) -> &Portals {
        &self.portals
    }

    pub(super) fn devices(&self) -> &[Arc<TargetDevice>] {
        &self.devices
    }

    /// Whether something that was removed has not been flushed.
    pub(super) fn is_removing(&self) -> bool {
        !self.removals.is_empty()
    }

    pub(super) fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// The system has said that a datagram socket does not work.
    pub(super) fn datagrams_failed(&mut self, socket: DatagramSocketId, error: &io::Error, now: Instant) {
        self.portals.datagrams_mut().failed(socket, error, now);
    }

    /// The endpoint has closed the socket of a portal that was removed.
    pub(super) fn datagrams_closed(&mut self, socket: DatagramSocketId) {
        self.portals.datagrams_mut().closed(socket);
    }

    /// When to look at interfaces that are down or gone.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.portals.next_look()
    }

    /// Opens the interfaces again that are back.
    pub(super) fn look_at_interfaces(&mut self, cx: &mut Context<'_>) {
        self.portals.datagrams_mut().look(cx);
    }

    /// The next change to datagram sockets that associations have to know of.
    pub(super) fn next_socket_change(&mut self) -> Option<SocketChange> {
        self.portals.datagrams_mut().next_change()
    }

    /// The device of this name.
    pub(super) fn device(&self, name: &str) -> Option<&Arc<TargetDevice>> {
        self.devices.iter().find(|device| is_same_name(device.name(), name))
    }

    /// The stores to flush at the end.
    fn stores(&self) -> Vec<Arc<dyn Store>> {
        let units = self.devices.iter().flat_map(|device| device.units());
        units.filter(|(_, unit)| removals::needs_flush(unit)).map(|(_, unit)| Arc::clone(unit.store())).collect()
    }
}
