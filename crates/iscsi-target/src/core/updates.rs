//! Changes to what is served, applied between two batches of events.

use std::sync::Arc;

use lunette_buffer::Payload;
use lunette_device::{NexusId, Response, TargetDevice};
use lunette_pdu::LunField;
use lunette_reactor::Context;
use lunette_scsi::{AdditionalSense, Lun, SenseData, SenseFormat, Status};
use lunette_session::iscsi_target::{Directory, TargetNode};

use super::Core;
use super::connections::Conn;
use super::lifecycle::{ConfigChange, Removed};
use super::mesh::{CoreMessage, FIRST};
use super::quiesced::OnQuiesced;
use crate::config::BindError;
use crate::control::{Asked, Listening, UpdateAnswer, UpdateError};
use crate::limits::NEGOTIATION_GRACE;

/// The tag of flushes of what was removed. No slab key has this index.
pub(super) const REMOVAL_FLUSH_TAG: u64 = u64::MAX - 1;

impl Core {
    pub(super) fn apply_updates(&mut self, cx: &mut Context<'_>) {
        for asked in self.lifecycle.take_updates(self.stands_still()) {
            match asked {
                Asked::Update { update, answer } => {
                    let applied = self.lifecycle.apply(cx, *update);
                    self.spread(cx, applied, answer);
                }
                Asked::Growth { growth, answer } => {
                    let applied = self.lifecycle.grow(growth).map(|change| (change, Vec::new()));
                    self.spread(cx, applied, answer);
                }
                Asked::Sessions(query) => self.ask_all(cx, query),
                Asked::RefuseHost(request) => {
                    self.mesh.send_to_others(|| CoreMessage::RefuseHost(request.clone()));
                    self.refuse_host(&request);
                }
                Asked::Freeze(question) => self.ask_for_quiet(question),
                // A caller that has stopped waiting misses nothing.
                Asked::View { viewer, answer } => drop(answer.send(self.view(viewer))),
                Asked::ComeToRest(mark, told) => self.bring_to_rest(cx, mark, told),
                Asked::HandOver(answer) => self.hand_over_all(cx, &answer),
                Asked::GoOn(mark, reasons) => self.go_on_all(cx, &mark, reasons.as_ref()),
                Asked::Leave(mark) => self.leave_to_another(cx, &mark),
                Asked::Adopt(connection) => self.adopt(cx, connection),
                Asked::Background(task) => self.tasks.begin_background(task, &self.buffers),
            }
        }
    }

    /// Lets the sessions of all cores know of a change, and answers when they do.
    fn spread(
        &mut self,
        cx: &mut Context<'_>,
        applied: Result<(ConfigChange, Vec<BindError>), UpdateError>,
        answer: UpdateAnswer,
    ) {
        let (change, closed) = match applied {
            Ok(applied) => applied,
            // The caller of `Control::begin` may have dropped its end.
            Err(error) => return drop(answer.send(Err(error))),
        };
        let portals = self.lifecycle.portals().to_vec().iter().map(|portal| portal.address).collect();
        let barrier = self.barriers.open(OnQuiesced::Update { answer, listening: Listening { portals, closed } });
        for core in self.mesh.others() {
            self.barriers.one_more(barrier);
            let answer_to = self.mesh.remote(barrier);
            self.mesh.send(core, CoreMessage::Change { answer_to, change: change.clone() });
        }
        self.take_change(cx, change);
        self.barriers.close(barrier);
    }

    /// Lets the sessions of this core know.
    pub(super) fn take_change(&mut self, cx: &mut Context<'_>, change: ConfigChange) {
        self.lifecycle.adopt(&change);
        for (device, lun, code) in change.attentions {
            self.announce_attention(&device, lun, code);
        }
        self.announce_lun_map(&change.remapped);
        for removed in change.removed {
            self.remove_served(removed);
        }
        self.resume_all_background();
        self.revise_sessions(cx);
        self.take_hosts(cx);
    }

    /// Tells the initiators of a target at once of a unit attention that their next command would find.
    fn announce_attention(&mut self, device: &Arc<TargetDevice>, lun: Lun, code: AdditionalSense) {
        let sense = SenseData::unit_attention(code).encode(SenseFormat::Fixed).to_vec();
        // By the number that each of them uses, if it sees the unit.
        let place = |conn: &Conn| conn.nexus.as_ref().filter(|_| conn.is_of(device))?.place_of(lun);
        for (key, lun) in self.connections.sessions_with(place) {
            self.connections.change_session(key, |session| session.scsi_event(LunField(lun.encode()), &sense));
        }
    }

    /// Tells the initiators of these nexuses that they see other logical units than before, or may not write to them
    /// any more.
    fn announce_lun_map(&mut self, remapped: &[NexusId]) {
        let sense = SenseData::unit_attention(AdditionalSense::REPORTED_LUNS_DATA_CHANGED);
        let sense = sense.encode(SenseFormat::Fixed).to_vec();
        let place = |conn: &Conn| {
            let nexus = conn.nexus.as_ref().filter(|nexus| remapped.contains(&nexus.id()))?;
            Some(nexus.first_lun().unwrap_or(Lun::ZERO))
        };
        for (key, lun) in self.connections.sessions_with(place) {
            self.connections.change_session(key, |session| session.scsi_event(LunField(lun.encode()), &sense));
        }
    }

    /// Lets sessions know the new directory and what it declares, and asks those to log out that have no place in it.
    fn revise_sessions(&mut self, cx: &mut Context<'_>) {
        let (directory, devices) = (Arc::clone(self.lifecycle.directory()), self.lifecycle.devices().to_vec());
        for key in self.connections.sessions_where(|_| true) {
            self.connections.change_session(key, |session| session.set_directory(&directory, NEGOTIATION_GRACE));
        }
        for id in self.connections.ids_where(|conn| !conn.may_stay(&directory, &devices)) {
            if let Some(conn) = self.connections.get(id) {
                tracing::info!(peer = %conn.peer, initiator = conn.initiator(), "asked to log out");
            }
            self.request_logout(cx, id);
        }
    }

    // What is removed.

    /// A target is gone when its last session is, a unit when its last command is. Those that wait for their initiator
    /// end now.
    fn remove_served(&mut self, removed: Removed) {
        if let Removed::Unit(unit) = &removed {
            for key in self.tasks.tasks_where(|task| task.uses(unit) && task.waits_for_initiator()) {
                self.end_task(key, not_supported());
            }
        }
        let others = if self.mesh.is_first() { self.mesh.others().count() } else { 0 };
        self.lifecycle.remove(removed, others);
    }

    /// Flushes the stores of what no connection or task works with any more.
    pub(super) fn finish_removals(&mut self) {
        let (connections, tasks) = (&self.connections, &self.tasks);
        let unused = self.lifecycle.take_unused(|removed| match removed {
            Removed::Target(device) => {
                tasks.any(|task| task.is_of_device(device)) || connections.any(|conn| conn.is_of(device))
            }
            Removed::Unit(unit) => tasks.any(|task| task.uses(unit)),
        });
        if unused.is_empty() {
            return;
        }
        if !self.mesh.is_first() {
            return unused.into_iter().for_each(|removed| self.mesh.send(FIRST, CoreMessage::Unused(removed)));
        }
        for store in self.lifecycle.begin_flushes(unused) {
            self.tasks.flush(&store, REMOVAL_FLUSH_TAG);
        }
        self.take_completions();
    }
}

fn not_supported() -> Response {
    let sense = SenseData::illegal_request(AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED);
    Response {
        status: Status::CHECK_CONDITION,
        status_qualifier: 0,
        sense: Some(sense.encode(SenseFormat::Fixed)),
        data_in: Payload::Empty,
        digests: None,
        edu_len: 0,
        data_out_transfer_len: 0,
    }
}

impl Conn {
    /// Whether it belongs to a session of that target.
    pub(super) fn is_of(&self, device: &Arc<TargetDevice>) -> bool {
        self.device.as_ref().is_some_and(|own| Arc::ptr_eq(own, device))
    }

    /// Whether its target is still served here and admits it. A connection without a session is checked when it logs
    /// in.
    pub(super) fn may_stay(&self, directory: &Directory, devices: &[Arc<TargetDevice>]) -> bool {
        let Some(target) = self.session.as_ref().and_then(|session| session.target.as_ref()) else { return true };
        devices.iter().any(|device| self.is_of(device))
            && directory.find(&target.name).is_some_and(|target| self.belongs_to(target) && target.moved.is_none())
    }

    /// Whether the target still lets it in, as the same host.
    fn belongs_to(&self, target: &TargetNode) -> bool {
        let host = target.host_of(self.initiator(), &self.origin()).map(|host| &host.name);
        host.is_some() && host == self.session.as_ref().and_then(|session| session.host.as_ref())
    }
}
