//! The server as the API sees it.

mod clients;
mod foreign;
mod passwords;
mod paths;
mod schemas;
mod scrub;
mod start;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use lunette_api::audit::{AuditEntry, changes};
use lunette_api::jobs::{Job, JobKind, JobOrder, Jobs};
use lunette_api::volumes::Volumes;
use lunette_api::{
    AuditLog, Caller, Catalog, Changed, Disk, Edit, Event, Events, Health, Notice, Order, Plan, PlannedChange, Problem,
    Server, Session, Trouble,
};
use lunette_device::{InitiatorBytes, ScrubEnd, ScrubOwner, scrub_once};
use lunette_target::{Control, Monitor, Parameters, SessionEvent, SessionObserver, SessionStatus, UpdateError};
use utoipa::openapi::{RefOr, Schema};

use crate::config::check::machine;
use crate::config::clones::Given;
use crate::config::diff::{Change, LunChange};
use crate::config::pools::PoolEntry;
use crate::config::{Config, Listen};
use crate::disks::DiskName;
use crate::disks::volume::retain_pools;
use crate::failure::Failure;
use crate::server::metrics::{self, Snapshot};
use crate::server::opening::{Opening, Openings, retry_deadline};
use crate::server::reload::{Effect, Reloader, Wanted, noticed};
use crate::server::served::{Served, ServedTarget};
use crate::server::this_machine::ThisMachine;
use crate::server::volumes::{Look, ServedVolumes, Template};
use passwords::{hidden, restored, told};
use scrub::ScrubJob;
pub(crate) use start::{Door, Places, audit, credentials, files, open, open_door, start};

/// The served objects, and the ways to change them: SIGHUP and the API.
#[derive(Clone)]
pub(crate) struct ControlPlane {
    reloader: Arc<Mutex<Reloader>>,
    /// The result of the last change, for clients that read while another change is made. Nothing waits while this is
    /// locked.
    shown: Arc<RwLock<Shown>>,
    control: Control,
    monitor: Monitor,
    events: Events,
    health: Health,
    audit: Arc<AuditLog>,
    jobs: Jobs,
    volumes: ServedVolumes,
}

/// The state that clients see: replaced as a whole, never changed.
#[derive(Clone)]
struct Shown {
    /// All objects, without passwords.
    catalog: Arc<Catalog>,
    targets: Arc<BTreeMap<String, ServedTarget>>,
    pools: Arc<[PoolEntry]>,
    templates: Arc<[Template]>,
}

impl Shown {
    fn of(reloader: &Reloader) -> Self {
        Self {
            catalog: Arc::new(hidden(reloader.catalog())),
            targets: Arc::new(reloader.served().targets.clone()),
            pools: reloader.config().pools.as_slice().into(),
            templates: reloader.config().templates().map(Template::from).collect(),
        }
    }
}

impl ControlPlane {
    pub(crate) fn new(reloader: Reloader, control: Control, monitor: Monitor, audit: AuditLog) -> Self {
        let shown = Arc::new(RwLock::new(Shown::of(&reloader)));
        let (events, health) = (reloader.events().clone(), reloader.health().clone());
        let (audit, jobs) = (Arc::new(audit), Jobs::new(events.clone()));
        let look = {
            let shown = Arc::clone(&shown);
            move || {
                let shown = shown.read().unwrap_or_else(PoisonError::into_inner).clone();
                let Shown { targets, pools, templates, catalog: _ } = shown;
                Look { pools, targets, templates }
            }
        };
        let reloader = Arc::new(Mutex::new(reloader));
        let hold = {
            let reloader = Arc::clone(&reloader);
            move |work: &mut dyn FnMut()| {
                let _reloader = reloader.lock().unwrap_or_else(PoisonError::into_inner);
                work();
            }
        };
        let volumes = ServedVolumes::new(control.clone(), jobs.clone(), look, hold);
        volumes.keep_pools();
        Self { reloader, shown, control, monitor, events, health, audit, jobs, volumes }
    }

    /// Reads the files again, and applies them or changes nothing.
    pub(crate) fn reload(&self) {
        let mut reloader = self.reloader();
        let before = self.catalog();
        reloader.reload();
        self.show(&reloader);
        drop(reloader);
        let changes = changes(&before, &self.catalog());
        if !changes.is_empty() {
            self.audit.record(AuditEntry::new(&Caller::admin("the files", "SIGHUP"), "reload", Ok(()), changes));
        }
        self.recover();
    }

    /// The objects that are not served as configured.
    pub(crate) fn health(&self) -> &Health {
        &self.health
    }

    /// The configuration that is served.
    pub(crate) fn config(&self) -> Config {
        self.reloader().config().clone()
    }

    /// Does something with what is served, while no change is made.
    pub(crate) fn while_nothing_changes<T>(&self, act: impl FnOnce(&Reloader) -> T) -> T {
        act(&self.reloader())
    }

    /// The volumes of the pools.
    pub(crate) fn own_volumes(&self) -> &ServedVolumes {
        &self.volumes
    }

    /// The way to change what the target serves.
    pub(crate) fn control(&self) -> &Control {
        &self.control
    }

    /// The hosts and clones that initiators of templates are given.
    pub(crate) fn given(&self) -> Vec<Given> {
        self.reloader().given().to_vec()
    }

    /// Changes what initiators of templates are given, and serves that.
    pub(crate) fn give(&self, change: impl FnOnce(&Config, &mut Vec<Given>)) -> Result<(), Failure> {
        let mut reloader = self.reloader();
        let mut given = reloader.given().to_vec();
        change(reloader.config(), &mut given);
        if given == reloader.given() {
            return Ok(());
        }
        let changed = reloader.give(given);
        self.show(&reloader);
        changed
    }

    /// The attempts to open disks.
    pub(crate) fn openings(&self) -> Openings {
        self.reloader().openings().clone()
    }

    /// Tries what could not be served before, and serves what comes soon.
    pub(crate) fn recover(&self) {
        let begun = self.retry();
        // Without the lock: it may take long.
        let until = Some(retry_deadline());
        for attempt in begun {
            attempt.wait(until);
        }
        self.settle();
    }

    /// Begins to open the disks that are not open, and looks up the names of portals that were not known. Gives the
    /// attempts.
    pub(crate) fn retry(&self) -> Vec<Opening> {
        let (begun, mut portals) = {
            let mut reloader = self.reloader();
            (reloader.retry(), reloader.unknown_portals())
        };
        if !portals.is_empty() {
            // Without the lock: it may take long.
            portals.iter_mut().for_each(Listen::look_up);
            self.reloader().take_found(&portals);
        }
        begun
    }

    /// Serves what could not be served before and can be now.
    pub(crate) fn settle(&self) {
        let mut reloader = self.reloader();
        reloader.recover();
        self.show(&reloader);
    }

    fn shown(&self) -> Shown {
        self.shown.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn reloader(&self) -> MutexGuard<'_, Reloader> {
        self.reloader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self, reloader: &Reloader) {
        let shown = Shown::of(reloader);
        retain_pools(shown.pools.iter().map(|pool| &pool.place));
        *self.shown.write().unwrap_or_else(PoisonError::into_inner) = shown;
        self.volumes.keep_pools();
    }

    /// Makes a change. Other changes wait until it is made or refused, so nothing comes between the check of what is in
    /// use and the change.
    fn make(&self, reloader: &mut Reloader, edit: Edit, caller: &Caller, force: bool) -> Result<Plan, Problem> {
        let wanted = self.wanted(reloader, edit, caller)?;
        let plan = self.explain(&wanted, reloader)?;
        if !force {
            plan.check_use()?;
        }
        let changed = reloader.change(wanted);
        self.show(reloader);
        changed.map_err(told)?;
        Ok(plan)
    }

    /// The objects that an edit asks for, which sees no passwords.
    fn wanted(&self, reloader: &Reloader, edit: Edit, caller: &Caller) -> Result<Wanted, Problem> {
        let objects = edit(&self.catalog())?;
        let stored = reloader.catalog();
        let objects = restored(objects, &stored, caller);
        paths::check(&stored.objects, &objects).map_err(told)?;
        reloader.plan(objects).map_err(told)
    }

    /// The effects on initiators. Without an answer of the server's threads it is not known.
    fn explain(&self, wanted: &Wanted, reloader: &Reloader) -> Result<Plan, Problem> {
        let old = reloader.config();
        let sessions = self.control.sessions().map_err(|error| stopping(&error))?;
        let explained = |change: &Change| {
            let effects = sessions.iter().filter_map(|session| {
                let effect = noticed(change, old, &wanted.config, session)?;
                Some((effect, session))
            });
            let effects: Vec<(Effect, &SessionStatus)> = effects.collect();
            let ends = ends_reservations(change, reloader.served());
            let notice = |(effect, session): &(Effect, &SessionStatus)| Notice {
                session: session.tsih,
                initiator: session.initiator.clone(),
                notices: effect.notice.to_owned(),
            };
            PlannedChange {
                change: if ends {
                    format!("{change}, and loses its persistent reservations")
                } else {
                    change.to_string()
                },
                sessions: effects.iter().map(notice).collect(),
                takes_away: ends || change.takes_away() || effects.iter().any(|(effect, _)| effect.is_loss),
                obstacle: None,
            }
        };
        let changes: Vec<PlannedChange> = wanted.changes.iter().map(explained).collect();
        let needs_force = changes.iter().any(|change| change.takes_away && !change.sessions.is_empty());
        Ok(Plan { changes, needs_force })
    }
}

/// Whether a change opens a logical unit again that has registrations, which are lost. Of a removal that is clear.
fn ends_reservations(change: &Change, served: &Served) -> bool {
    let Change::Lun { target, number, change: LunChange::Replaced } = change else { return false };
    let disk = served.targets.get(target).and_then(|target| target.disks.get(number));
    disk.is_some_and(|disk| disk.unit.has_volatile_registrations())
}

impl Server for ControlPlane {
    fn catalog(&self) -> Arc<Catalog> {
        self.shown().catalog
    }

    fn plan(&self, Order { edit, caller, .. }: Order) -> Result<Plan, Problem> {
        let reloader = self.reloader();
        let wanted = self.wanted(&reloader, edit, &caller);
        let wanted = wanted.map_err(|problem| foreign::told(problem, &caller, &self.catalog()))?;
        let mut plan = self.explain(&wanted, &reloader)?;
        let targets = reloader.served().targets.values();
        let open: Vec<DiskName> = targets
            .flat_map(|target| target.disks.values().filter(|disk| disk.is_open()).map(|disk| disk.entry.disk.clone()))
            .collect();
        // Without the lock: the machine may be slow to answer.
        drop(reloader);
        let is_open = |name: &DiskName| open.contains(name);
        let obstacles = machine::obstacles(&wanted.changes, &wanted.config, &is_open, &ThisMachine);
        for (planned, obstacle) in plan.changes.iter_mut().zip(obstacles) {
            planned.obstacle = obstacle;
        }
        Ok(plan)
    }

    fn change(&self, Order { edit, caller, force }: Order) -> Result<Changed, Problem> {
        let mut reloader = self.reloader();
        let before = self.catalog();
        let made = self.make(&mut reloader, edit, &caller, force);
        let catalog = self.catalog();
        drop(reloader);
        let changes = changes(&before, &catalog);
        let outcome = made.as_ref().map(drop).map_err(ToString::to_string);
        self.audit.record(AuditEntry::new(&caller, "change", outcome, changes));
        let plan = made.map_err(|problem| foreign::told(problem, &caller, &before))?;
        Ok(Changed { plan, catalog })
    }

    fn sessions(&self) -> Result<Vec<Session>, Problem> {
        let all = self.control.sessions().map_err(|error| stopping(&error))?;
        let targets = self.shown().targets;
        let bytes = |target: &ServedTarget| target.device.initiator_bytes();
        let moved: BTreeMap<&str, _> = targets.iter().map(|(name, target)| (name.as_str(), bytes(target))).collect();
        let of = |status: &SessionStatus| {
            let of_target = moved.get(status.target.as_deref()?)?;
            of_target.get(status.initiator.as_str()).copied()
        };
        Ok(all.into_iter().map(|status| session(of(&status).unwrap_or_default(), status)).collect())
    }

    fn end_session(&self, id: u16, caller: &Caller) -> Result<bool, Problem> {
        let is_there = self.control.end_session(id).map_err(|error| stopping(&error))?;
        if is_there {
            tracing::info!(session = id, "API: asked to log out");
            let action = format!("end session {id}");
            self.audit.record(AuditEntry::new(caller, &action, Ok(()), Vec::new()));
            let text = format!("session {id} was asked to log out");
            self.events.send(Event { kind: "session".into(), text, target: None, initiator: None });
        }
        Ok(is_there)
    }

    fn disks(&self) -> Vec<Disk> {
        let targets = self.shown().targets;
        let disks = targets
            .iter()
            .flat_map(|(name, target)| target.disks.iter().map(move |(number, disk)| (name, number, disk)));
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

    fn health(&self) -> Option<&Health> {
        Some(&self.health)
    }

    fn metrics(&self) -> Option<String> {
        let numbers = Snapshot::take(&self.monitor, &self.health, true);
        Some(metrics::render(&numbers.with_jobs(self.jobs.list()).with_volumes(self.volumes.counts())))
    }

    fn scrub(&self, target: &str, lun: u16, caller: &Caller) -> Result<Arc<Job>, Problem> {
        let targets = self.shown().targets;
        let disk = targets.get(target).and_then(|served| served.disks.get(&lun));
        let disk = disk.ok_or_else(|| Problem::not_found(&format!("LUN {lun} of target {target}")))?;
        if !disk.is_open() {
            return Err(Problem::conflict(format!("LUN {lun} of {target}: its disk is not open; /v1/health says why")));
        }
        let unit = Arc::clone(&disk.unit);
        let order = JobOrder {
            kind: JobKind::Scrub,
            object: format!("targets/{target}/luns/{lun}"),
            target: Some(target.into()),
            started_by: caller.name.clone(),
            total_bytes: unit.blocks() * u64::from(unit.block_size()),
        };
        let (control, block_size) = (self.control.clone(), unit.block_size());
        // A job that waits does not keep a disk open that is removed meanwhile.
        let unit = Arc::downgrade(&unit);
        self.jobs.order(order, move |run| {
            let job = ScrubJob::new(run, block_size);
            match unit.upgrade() {
                // A server that stops drops the job, which has failed then.
                Some(unit) => drop(control.run_background(scrub_once(&unit, job))),
                None => job.ended(Err(ScrubEnd::Removed)),
            }
        })
    }

    fn volumes(&self) -> Option<&dyn Volumes> {
        (!self.shown().pools.is_empty()).then_some(&self.volumes)
    }

    fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    fn events(&self) -> &Events {
        &self.events
    }

    fn audit(&self) -> &AuditLog {
        &self.audit
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

fn session(InitiatorBytes { read_bytes, written_bytes }: InitiatorBytes, status: SessionStatus) -> Session {
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
        certificate: status.identities.first().cloned(),
        chap_algorithm: status.chap_algorithm.map(|algorithm| algorithm.name().to_owned()),
        portal_group: status.portal_group,
        peers: status.peers.iter().map(ToString::to_string).collect(),
        portals: status.portals.iter().map(ToString::to_string).collect(),
        age_seconds: status.age.as_secs(),
        read_bytes,
        written_bytes,
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
