//! Changes to what is served, applied between two batches of events.

use std::sync::Arc;

use lunette_device::{LogicalUnit, NexusId, PortGroupsChange, TargetDevice};
use lunette_pdu::LunField;
use lunette_reactor::Context;
use lunette_scsi::{AdditionalSense, Lun, SenseData, SenseFormat};
use lunette_session::Authentication;
use lunette_session::iscsi_target::{ConnectionMut, Directory};

use super::Core;
use super::connections::Conn;
use super::leaving::Leaver;
use super::orders::{Order, Ticket};
use super::quiesced::OnQuiesced;
use super::tasks::BarrierKey;
use crate::control::{Asked, Growth, UnitChange, Update, UpdateError};
use crate::limits::NEGOTIATION_GRACE;
use crate::server::{TargetConfig, declare_ports, node};

/// What an update has changed, for the sessions of each core.
#[derive(Clone)]
pub(crate) struct News {
    directory: Arc<Directory>,
    devices: Vec<Arc<TargetDevice>>,
    /// Unit attentions that initiators are told of.
    attentions: Vec<(Arc<TargetDevice>, Lun, AdditionalSense)>,
    gone: Vec<Leaver>,
}

impl Core {
    pub(super) fn apply_updates(&mut self, cx: &mut Context<'_>) {
        for Asked { update, answer } in self.updates.take() {
            let outcome = if self.stopping.is_no() { self.apply(cx, update) } else { Err(UpdateError::Stopping) };
            match outcome {
                Ok(news) => {
                    let portals = self.portals.to_vec().iter().map(|portal| portal.address).collect();
                    let barrier = self.barriers.open(OnQuiesced::Update { answer, portals });
                    self.tell_others(barrier, &news);
                    self.take_news(cx, news);
                    self.barriers.close(barrier);
                }
                // Who asked may have gone.
                Err(error) => drop(answer.send(Err(error))),
            }
        }
    }

    /// What all cores share: first what can fail, then the rest.
    fn apply(&mut self, cx: &mut Context<'_>, update: Update) -> Result<News, UpdateError> {
        let Update { portals, targets, discovery, port_groups, units, growth } = update;
        let outcome = self.withdraw(&targets, &units).and_then(|()| Ok(self.portals.change(cx, &portals)?));
        if let Err(error) = outcome {
            come_back(&self.devices);
            return Err(error);
        }
        let mut news = self.replace_targets(targets, discovery);
        for change in port_groups {
            news.change_port_groups(change);
        }
        news.change_units(units);
        for Growth { unit, grow } in growth {
            grow();
            news.announce_growth(&unit);
        }
        come_back(&news.devices);
        Ok(news)
    }

    fn tell_others(&mut self, barrier: BarrierKey, news: &News) {
        for core in self.post.others() {
            self.barriers.one_more(barrier);
            let ticket = Ticket { core: self.post.me(), barrier };
            self.post.send(core, Order::News { ticket, news: news.clone() });
        }
    }

    /// Lets the sessions of this core know.
    pub(super) fn take_news(&mut self, cx: &mut Context<'_>, news: News) {
        (self.directory, self.devices) = (news.directory, news.devices);
        for (device, lun, code) in news.attentions {
            self.tell(&device, lun, code);
        }
        for leaver in news.gone {
            self.let_go(leaver);
        }
        self.resume_all_background();
        self.revise_sessions(cx);
    }

    /// A sanitize operation may have begun since the update was made, and on another core one may be about to: from now on none
    /// begins on what goes.
    fn withdraw(&self, targets: &[TargetConfig], units: &[UnitChange]) -> Result<(), UpdateError> {
        for device in &self.devices {
            let stays = targets.iter().any(|target| Arc::ptr_eq(&target.device, device));
            let goes = |lun: Lun| units.iter().any(|change| Arc::ptr_eq(&change.device, device) && change.lun == lun);
            let mut gone = device.units().into_iter().filter(|(lun, _)| !stays || goes(*lun));
            if let Some((lun, _)) = gone.find(|(_, unit)| !unit.prepare_removal()) {
                return Err(UpdateError::Sanitizing { target: device.name().into(), lun });
            }
        }
        Ok(())
    }

    /// A directory in place of the other one. Connections have it by reference: each knows the old one or the new one.
    fn replace_targets(&self, targets: Vec<TargetConfig>, discovery: Authentication) -> News {
        let portals = self.portals.to_vec();
        let devices: Vec<_> = targets.iter().map(|target| Arc::clone(&target.device)).collect();
        declare_ports(&devices, &portals);
        let targets = targets.into_iter().map(|target| Arc::new(node(target, &portals))).collect();
        let directory = Arc::new(Directory { targets, discovery });
        let stays = |device: &&Arc<TargetDevice>| devices.iter().any(|stays| Arc::ptr_eq(stays, device));
        let gone = self.devices.iter().filter(|device| !stays(device));
        let gone = gone.map(|device| Leaver::Target(Arc::clone(device))).collect();
        News { directory, devices, attentions: Vec::new(), gone }
    }

    /// Tells the initiators of a target at once of a unit attention that their next command would find.
    fn tell(&mut self, device: &Arc<TargetDevice>, lun: Lun, code: AdditionalSense) {
        let sense = SenseData::unit_attention(code).encode(SenseFormat::Fixed).to_vec();
        // One connection of each session.
        let mut nexuses: Vec<NexusId> = Vec::new();
        for id in self.connections.ids_where(|conn| conn.is_of(device)) {
            if let Some((conn, mut protocol)) = self.connections.link(id)
                && let Some(nexus) = conn.nexus.as_ref().map(|nexus| nexus.id())
                && protocol.session().is_some()
                && !protocol.is_suspended()
                && !nexuses.contains(&nexus)
            {
                protocol.scsi_event(LunField(lun.encode()), &sense);
                nexuses.push(nexus);
                self.touch(id);
            }
        }
    }

    /// Lets sessions know the new directory and what it declares, and asks those to log out that have no place in it.
    fn revise_sessions(&mut self, cx: &mut Context<'_>) {
        let (directory, devices) = (Arc::clone(&self.directory), self.devices.clone());
        self.end_suspended(cx, |conn| !conn.may_stay(&directory, &devices));
        for id in self.connections.ids_where(|_| true) {
            if let Some((conn, mut protocol)) = self.connections.link(id) {
                protocol.set_directory(&directory);
                if conn.renegotiate(&mut protocol, &directory) {
                    self.touch(id);
                }
            }
            if let Some(conn) = self.connections.get(id).filter(|conn| !conn.may_stay(&directory, &devices)) {
                tracing::info!(peer = %conn.peer, initiator = conn.initiator(), "asked to log out");
                self.request_logout(cx, id);
            }
        }
    }
}

/// What is served may be sanitized.
fn come_back(devices: &[Arc<TargetDevice>]) {
    for (_, unit) in devices.iter().flat_map(|device| device.units()) {
        unit.cancel_removal();
    }
}

impl News {
    fn change_port_groups(&mut self, change: PortGroupsChange) {
        let device = Arc::clone(change.device());
        let changed = change.apply().into_iter();
        self.attentions.extend(changed.map(|lun| (Arc::clone(&device), lun, AdditionalSense::ACCESS_STATE_CHANGED)));
    }

    fn change_units(&mut self, changes: Vec<UnitChange>) {
        let mut luns_changed: Vec<Arc<TargetDevice>> = Vec::new();
        for UnitChange { device, lun, unit } in changes {
            let comes = unit.is_some();
            let old = device.assign(lun, unit);
            if comes && old.is_some() {
                self.attentions.push((device, lun, AdditionalSense::INQUIRY_DATA_CHANGED));
            } else if !luns_changed.iter().any(|known| Arc::ptr_eq(known, &device)) {
                luns_changed.push(device);
            }
            self.gone.extend(old.map(Leaver::Unit));
        }
        for device in luns_changed {
            let first = device.units().first().map_or(Lun::ZERO, |(lun, _)| *lun);
            self.attentions.push((device, first, AdditionalSense::REPORTED_LUNS_DATA_CHANGED));
        }
    }

    fn announce_growth(&mut self, unit: &Arc<LogicalUnit>) {
        unit.capacity_changed();
        for device in &self.devices {
            for (lun, _) in device.units().iter().filter(|(_, known)| Arc::ptr_eq(known, unit)) {
                self.attentions.push((Arc::clone(device), *lun, AdditionalSense::CAPACITY_DATA_CHANGED));
            }
        }
    }
}

impl Conn {
    /// Whether it belongs to a session of that target.
    pub(super) fn is_of(&self, device: &Arc<TargetDevice>) -> bool {
        self.device.as_ref().is_some_and(|own| Arc::ptr_eq(own, device))
    }

    /// Declares the longest data segment that its target takes now, when it is another one.
    fn renegotiate(&self, protocol: &mut ConnectionMut<'_>, directory: &Directory) -> bool {
        let Some(target) = self.session.as_ref().and_then(|session| session.target.as_ref()) else { return false };
        let Some(now) = directory.find(&target.name) else { return false };
        protocol.renegotiate(now.offer.recv_data_segment_len, NEGOTIATION_GRACE)
    }

    /// Whether its target is still served here and admits it. Who has no session yet is looked at when it asks for one.
    pub(super) fn may_stay(&self, directory: &Directory, devices: &[Arc<TargetDevice>]) -> bool {
        let Some(target) = self.session.as_ref().and_then(|session| session.target.as_ref()) else { return true };
        devices.iter().any(|device| self.is_of(device))
            && directory
                .find(&target.name)
                .is_some_and(|target| target.admits(self.initiator()) && target.moved.is_none())
    }
}
