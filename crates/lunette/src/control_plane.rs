//! The server as the API sees it.

mod passwords;
mod schemas;
mod start;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use lunette_api::{
    Catalog, Changed, Disk, Edit, Event, Events, Health, Notice, Plan, PlannedChange, Problem, Server, Session, Trouble,
};
use lunette_target::{Control, Monitor, Parameters, SessionEvent, SessionObserver, SessionStatus, UpdateError};
use utoipa::openapi::{RefOr, Schema};

use crate::config::Config;
use crate::config::diff::Change;
use crate::metrics::{self, Snapshot};
use crate::reload::{Reloader, Wanted, noticed};
use passwords::{hidden, restored, told};
pub(crate) use start::{open, start};

/// What is served, and what changes it: on SIGHUP, and by the API.
#[derive(Clone)]
pub(crate) struct ControlPlane {
    reloader: Arc<Mutex<Reloader>>,
    /// The objects of the last change without passwords, for those who look while another one is made.
    catalog: Arc<RwLock<Arc<Catalog>>>,
    control: Control,
    monitor: Monitor,
    events: Events,
    health: Health,
}

impl ControlPlane {
    pub(crate) fn new(reloader: Reloader, control: Control, monitor: Monitor) -> Self {
        let catalog = Arc::new(RwLock::new(Arc::new(hidden(reloader.catalog()))));
        let (events, health) = (reloader.events().clone(), reloader.health().clone());
        Self { reloader: Arc::new(Mutex::new(reloader)), catalog, control, monitor, events, health }
    }

    /// Reads the files again, and applies them or changes nothing.
    pub(crate) fn reload(&self) {
        let mut reloader = self.reloader();
        reloader.reload();
        self.show(&reloader);
    }

    fn reloader(&self) -> MutexGuard<'_, Reloader> {
        self.reloader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self, reloader: &Reloader) {
        *self.catalog.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(hidden(reloader.catalog()));
    }

    /// What an edit asks for, which sees no passwords.
    fn wanted(&self, reloader: &Reloader, edit: Edit) -> Result<Wanted, Problem> {
        let objects = edit(&self.catalog())?;
        reloader.plan(restored(objects, &reloader.catalog())).map_err(told)
    }

    /// What initiators notice. Without an answer of the server's threads it is not known.
    fn explain(&self, wanted: &Wanted, old: &Config) -> Result<Plan, Problem> {
        let sessions = self.control.sessions().map_err(|error| stopping(&error))?;
        let notice = |change: &Change, session: &SessionStatus| {
            let notices = noticed(change, old, &wanted.config, session)?.to_owned();
            Some(Notice { session: session.tsih, initiator: session.initiator.clone(), notices })
        };
        let explained = wanted.changes.iter().map(|change| PlannedChange {
            change: change.to_string(),
            sessions: sessions.iter().filter_map(|session| notice(change, session)).collect(),
        });
        Ok(Plan { changes: explained.collect() })
    }
}

impl Server for ControlPlane {
    fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn plan(&self, edit: Edit) -> Result<Plan, Problem> {
        let reloader = self.reloader();
        let wanted = self.wanted(&reloader, edit)?;
        self.explain(&wanted, reloader.config())
    }

    fn change(&self, edit: Edit) -> Result<Changed, Problem> {
        let mut reloader = self.reloader();
        let wanted = self.wanted(&reloader, edit)?;
        let plan = self.explain(&wanted, reloader.config())?;
        let changed = reloader.change(wanted);
        self.show(&reloader);
        changed.map_err(told)?;
        Ok(Changed { plan, catalog: self.catalog() })
    }

    fn sessions(&self) -> Result<Vec<Session>, Problem> {
        Ok(self.control.sessions().map_err(|error| stopping(&error))?.into_iter().map(session).collect())
    }

    fn end_session(&self, id: u16) -> Result<bool, Problem> {
        let is_there = self.control.end_session(id).map_err(|error| stopping(&error))?;
        if is_there {
            tracing::info!(session = id, "API: asked to log out");
            let text = format!("session {id} was asked to log out");
            self.events.send(Event { kind: "session".into(), text, target: None, initiator: None });
        }
        Ok(is_there)
    }

    fn disks(&self) -> Vec<Disk> {
        let reloader = self.reloader();
        let targets = reloader.served().targets.iter();
        let disks =
            targets.flat_map(|(name, target)| target.disks.iter().map(move |(number, disk)| (name, number, disk)));
        disks
            .map(|(target, number, disk)| Disk {
                target: target.clone(),
                number: *number,
                size_bytes: disk.unit.blocks() * u64::from(disk.unit.block_size()),
                block_size: disk.unit.block_size(),
                serial: disk.unit.config().serial.clone(),
            })
            .collect()
    }

    fn ready(&self) -> Result<(), String> {
        if self.control.is_open() { Ok(()) } else { Err("the server is stopping".into()) }
    }

    fn troubles(&self) -> Vec<Trouble> {
        self.health.troubles_now()
    }

    fn metrics(&self) -> Option<String> {
        Some(metrics::render(&Snapshot::take(&self.monitor, &self.health, true)))
    }

    fn events(&self) -> &Events {
        &self.events
    }

    fn schemas(&self) -> Vec<(String, RefOr<Schema>)> {
        schemas::all()
    }
}

/// Tells `events` of sessions that begin and end.
pub(crate) fn observer(events: Events) -> SessionObserver {
    Arc::new(move |event: SessionEvent| {
        let SessionEvent { has_begun, tsih, initiator, target } = event;
        let what = if has_begun { "has begun" } else { "has ended" };
        let place = target.as_deref().unwrap_or("discovery");
        let text = format!("session {tsih} of {initiator} at {place} {what}");
        events.send(Event { kind: "session".into(), text, target, initiator: Some(initiator) });
    })
}

fn stopping(error: &UpdateError) -> Problem {
    Problem::unavailable(error.to_string())
}

fn session(status: SessionStatus) -> Session {
    let Parameters {
        header_digest,
        data_digest,
        recv_data_segment_len,
        max_connections,
        initial_r2t,
        immediate_data,
        max_burst_len,
        first_burst_len,
        error_recovery_level,
        ..
    } = status.parameters;
    Session {
        id: status.tsih,
        target: status.target,
        initiator: status.initiator,
        isid: status.isid,
        host: status.host,
        user: status.user,
        portal_group: status.portal_group,
        peers: status.peers.iter().map(ToString::to_string).collect(),
        commands: status.commands,
        header_digest: header_digest.value().into(),
        data_digest: data_digest.value().into(),
        error_recovery_level,
        max_connections,
        max_recv_data_segment_length: recv_data_segment_len,
        max_burst_length: max_burst_len,
        first_burst_length: first_burst_len,
        initial_r2t,
        immediate_data,
    }
}

#[cfg(test)]
mod tests;
