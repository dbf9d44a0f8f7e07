//! Rereading the configuration while the server runs.
//!
//! A [`Plan`] opens everything that is new beside what is served; when all of it is open, the server switches over as a
//! whole. A disk that moves (to another LUN or target), or is reopened with other settings, keeps its store, because a
//! second store cannot be opened beside it.

mod growing;
mod notices;
mod plan;
mod scope;
mod spares;
mod written;

use std::collections::{BTreeMap, BTreeSet};

use lunette_api::objects::FileChange;
use lunette_api::{Catalog, Cause, Event, Events, Health, Objects, Problem, Subject};
use lunette_target::{BindError, Control, UpdateError};

use crate::config::clones::Given;
use crate::config::diff::{self, Change, Refused};
use crate::config::left_out::LeftOut;
use crate::config::sources::{Files, Read, Sources};
use crate::config::{Config, Listen};
use crate::failure::Failure;
use crate::server::metrics;
use crate::server::opening::{Opening, Openings};
use crate::server::portals::{bind_failure, closed_portal};
use crate::server::served::Served;
pub(crate) use growing::Room;
pub(crate) use notices::{Effect, noticed};
use plan::Plan;
use scope::{Refusal, Scope};
pub(crate) use spares::Spares;
use written::Written;

/// The current configuration of a running server, and the handle that changes it.
pub(crate) struct Reloader {
    files: Files,
    sources: Sources,
    config: Config,
    /// The objects with mistakes.
    left_out: Vec<LeftOut>,
    /// The hosts and clones that initiators of templates were given.
    given: Vec<Given>,
    served: Served,
    spares: Spares,
    control: Control,
    events: Events,
    health: Health,
}

/// Changes that a running server can make, and the configuration that they lead to.
pub(crate) struct Wanted {
    sources: Sources,
    pub(crate) config: Config,
    pub(crate) changes: Vec<Change>,
    left_out: Vec<LeftOut>,
    files: Vec<FileChange>,
}

/// A subject that is not served as configured, the cause, and what to do.
type TroubleOf = (Subject, Cause, String);

impl Reloader {
    /// A reloader for a server that serves what was opened from what was `read` from `files`.
    /// It tells `events` what it changes, and `health` what is not served as configured.
    pub(crate) fn new(
        files: Files,
        read: Read,
        served: Served,
        control: Control,
        (events, health): (Events, Health),
    ) -> Self {
        let Read { sources, config, left_out } = read;
        let spares = Spares::default();
        let given = Vec::new();
        let reloader = Self { files, sources, config, left_out, given, served, spares, control, events, health };
        reloader.settle(None);
        reloader
    }

    /// Reads the files and applies them, or changes nothing; logs which.
    pub(crate) fn reload(&mut self) {
        let outcome = self.follow();
        metrics::note_reload(outcome.is_ok());
        let file = self.files.main().display();
        match outcome {
            Ok(changes) if changes.is_empty() => tracing::info!(%file, "configuration read again: nothing has changed"),
            Ok(_) => tracing::info!(%file, "configuration read again: changes applied"),
            Err(failure) => {
                let why = match self.files.mistakes().as_slice() {
                    [] => failure.to_string(),
                    [one] => one.clone(),
                    all => {
                        for mistake in all {
                            tracing::error!("{mistake}");
                        }
                        format!("{} mistakes", all.len())
                    }
                };
                tracing::error!(%file, "configuration refused, nothing is changed: {why}");
            }
        }
    }

    fn follow(&mut self) -> Result<Vec<Change>, Failure> {
        let read = self.files.read(Some((&self.sources, &self.config.without_given())))?;
        let (wanted, refused) = self.compare(read, Vec::new()).map_err(Failure::Configuration)?;
        if wanted.config.strict && !refused.is_empty() {
            return Err(Failure::Configuration(refused.join("; ")));
        }
        let refusal = Refusal::of_files(&wanted.config);
        self.apply(wanted, refusal, &Scope::All)
    }

    /// The changes to what was read, and why some cannot be made. The objects that these concern stay as they are.
    fn compare(&self, read: Read, files: Vec<FileChange>) -> Result<(Wanted, Vec<String>), String> {
        let Read { sources, mut config, mut left_out } = read;
        config.give(&self.given);
        let joined = |refused: &[Refused]| refused.iter().map(ToString::to_string).collect::<Vec<_>>();
        let mut refused = Vec::new();
        let changes = match diff::between(&self.config, &config) {
            Err(all) if all.iter().all(|refused| refused.subject.is_some()) => {
                refused = joined(&all);
                for Refused { subject, why } in all {
                    let Some(subject) = subject else { continue };
                    config.restore(&self.config, &subject);
                    left_out.push(LeftOut::new(subject, &why));
                }
                diff::between(&self.config, &config)
            }
            changes => changes,
        };
        let changes = changes.map_err(|all| joined(&all).join("; "))?;
        Ok((Wanted { sources, config, changes, left_out, files }, refused))
    }

    /// All objects that are served.
    pub(crate) fn catalog(&self) -> Catalog {
        self.sources.catalog(&self.files, &self.config)
    }

    /// The served objects.
    pub(crate) fn served(&self) -> &Served {
        &self.served
    }

    /// The configuration that is served.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// The objects with mistakes.
    pub(crate) fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// Where changes are told.
    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    /// The objects that are not served as configured.
    pub(crate) fn health(&self) -> &Health {
        &self.health
    }

    /// The changes if `conf.d` held these objects. Opens nothing.
    pub(crate) fn plan(&self, objects: Objects) -> Result<Wanted, Problem> {
        let files = self.sources.objects().file_changes(&objects)?;
        let sources = self.sources.with(objects);
        if let Some(broken) = files.iter().find_map(|change| sources.broken(&change.file)) {
            return Err(Problem::conflict(format!(
                "the file {} of conf.d stands in the way, because it cannot be read: {}; mend it or remove it, and let the server read its files again \
                 (SIGHUP)",
                broken.file, broken.why
            )));
        }
        if !files.is_empty() {
            self.files.check_change(&self.sources, &files).map_err(Problem::conflict)?;
        }
        let (config, left_out) = sources.config(Some(&self.config.without_given())).map_err(Problem::invalid)?;
        let written = Written::of(self.sources.objects(), sources.objects());
        self.refuse_mistakes(&left_out, &written, Problem::invalid)?;
        let (wanted, _) = self.compare(Read { sources, config, left_out }, files).map_err(Problem::conflict)?;
        self.refuse_mistakes(&wanted.left_out, &written, Problem::conflict)?;
        let known = unknown_names(&self.config);
        if let Some((portal, why)) =
            wanted.config.unknown_portals().find(|(portal, _)| !known.contains(&portal.to_string()))
        {
            return Err(Problem::conflict(format!("portal {portal}: {why}")));
        }
        Ok(wanted)
    }

    /// Refuses mistakes that a client makes, and those that it leaves in what it has `written`. Others are known.
    fn refuse_mistakes(
        &self,
        left_out: &[LeftOut],
        written: &Written,
        problem: fn(String) -> Problem,
    ) -> Result<(), Problem> {
        let is_known = |one: &LeftOut| self.left_out.iter().any(|known| known.is(one));
        let refused = left_out.iter().filter(|one| !is_known(one) || written.has(&one.subject));
        let refused: Vec<_> = refused.map(ToString::to_string).collect();
        if refused.is_empty() { Ok(()) } else { Err(problem(refused.join("; "))) }
    }

    /// Lets `conf.d` hold what was planned since the last change, and serves it.
    pub(crate) fn change(&mut self, wanted: Wanted) -> Result<(), Problem> {
        let scope = Scope::of_client(&wanted);
        let refusal = Refusal::of_client(&wanted, &scope);
        self.apply(wanted, refusal, &scope).map(drop).map_err(problem)
    }

    /// The hosts and clones that initiators of templates were given.
    pub(crate) fn given(&self) -> &[Given] {
        &self.given
    }

    /// Serves these hosts and clones from now on, and no others. A clone that cannot be opened in time is not ready.
    pub(crate) fn give(&mut self, given: Vec<Given>) -> Result<(), Failure> {
        let before = std::mem::replace(&mut self.given, given);
        let config = self.config.without_given();
        let read = Read { sources: self.sources.clone(), config, left_out: self.left_out.clone() };
        let compared = self.compare(read, Vec::new()).map_err(Failure::Configuration);
        let applied = compared.and_then(|(wanted, _)| {
            let scope = Scope::of_client(&wanted);
            self.apply(wanted, Refusal::None, &scope)
        });
        if applied.is_err() {
            self.given = before;
        }
        applied.map(drop)
    }

    /// The attempts to open disks.
    pub(crate) fn openings(&self) -> &Openings {
        &self.served.openings
    }

    /// Begins to open the disks that are not open, but for those that are being opened. Gives all attempts for them.
    pub(crate) fn retry(&mut self) -> Vec<Opening> {
        let is_closed = |target: &str, number| {
            self.served.targets.get(target).and_then(|open| open.disks.get(&number)).is_some_and(|disk| !disk.is_open())
        };
        let closed = self
            .config
            .targets
            .iter()
            .flat_map(|target| target.luns.iter().filter(move |entry| is_closed(&target.name, entry.number)));
        let mut spares = self.spares.clone();
        spares.look_at(closed);
        let mut begun = Vec::new();
        for target in &self.config.targets {
            for entry in &target.luns {
                match self.served.retry(target, entry, &mut spares) {
                    Ok(attempt) => begun.extend(attempt),
                    Err(failure) => {
                        tracing::debug!("LUN {} of {} is not tried again: {failure}", entry.number, target.name);
                    }
                }
            }
        }
        begun
    }

    /// Portals whose names or zones the system did not know.
    pub(crate) fn unknown_portals(&self) -> Vec<Listen> {
        self.config.unknown_portals().map(|(listen, _)| listen.clone()).collect()
    }

    /// Takes over what was found for them. The next change opens the portals.
    pub(crate) fn take_found(&mut self, found: &[Listen]) {
        self.config.take_found(found);
        self.sources.take_found(found);
    }

    /// Serves what could not be served before and can be now.
    pub(crate) fn recover(&mut self) {
        let recovered = Plan::recover(&self.served, &self.spares, &self.config).and_then(|mut plan| {
            let has_closed = self.health.any(|subject, _| matches!(subject, Subject::Portal(_)));
            if !plan.is_empty() || has_closed {
                let config = self.config.clone();
                let switched = self.switch(&mut plan, &config);
                plan.settle(switched.is_ok());
                switched?;
            }
            Ok(plan)
        });
        match recovered {
            Ok(plan) => {
                self.served = plan.served;
                self.settle(None);
            }
            Err(failure) => tracing::debug!("what is not served stays so: {failure}"),
        }
    }

    /// Tells what is not served, and what is again.
    ///
    /// `unchanged`: what a plan could not change of the objects in its scope.
    fn settle(&self, unchanged: Option<(&[TroubleOf], &Scope)>) {
        let owned = |subject: &Subject, cause| match cause {
            Cause::NotOpened => matches!(subject, Subject::Lun { .. }),
            Cause::Secret | Cause::Mistake => true,
            Cause::NotChanged => {
                unchanged.is_some_and(|(_, scope)| subject.target().is_none_or(|name| scope.has(name)))
            }
            // The files are looked at all the time.
            Cause::FileShorter | Cause::FileReplaced | Cause::FileDeleted | Cause::WritesLost | Cause::Ended => false,
        };
        let mut now = self.served.troubles();
        now.extend(merged(&self.left_out));
        now.extend(unchanged.into_iter().flat_map(|(unchanged, _)| unchanged).cloned());
        let is_left_out = |subject: &Subject| self.left_out.iter().any(|one| one.subject == *subject);
        self.health.retain(|subject| self.config.has(subject) || is_left_out(subject));
        self.health.settle(owned, now);
    }

    /// Switches over as a whole. Files are written down before, and hold when the server has switched.
    fn apply(&mut self, wanted: Wanted, refusal: Refusal, scope: &Scope) -> Result<Vec<Change>, Failure> {
        let Wanted { sources, config, changes, mut left_out, files } = wanted;
        let mut plan = Plan::new(&self.served, &self.spares, &config, changes, refusal, scope)?;
        let folder = self.files.folder();
        let unwritten = |error: std::io::Error| {
            let remedy = lunette_files::remedy(&error);
            Failure::other(format!("{}: cannot be written, nothing is changed: {error}{remedy}", folder.display()))
        };
        let staged = match files {
            files if files.is_empty() => None,
            files => {
                // It may have been changed by hand while disks were opened.
                self.files.check_change(&self.sources, &files).map_err(Failure::Configuration)?;
                Some(self.files.conf_d().stage(files).map_err(unwritten)?)
            }
        };
        // A portal without an address is no change, but a trouble to be told of.
        let is_same = plan.is_empty() && unknown_names(&config) == unknown_names(&self.config);
        let switched = if is_same { Ok(()) } else { self.switch(&mut plan, &config) };
        plan.settle(switched.is_ok());
        if let Err(failure) = switched {
            if staged.is_some() {
                let _ = self.files.conf_d().unstage();
            }
            return Err(failure);
        }
        // A change by a client reads no lines.
        for one in left_out.iter_mut().filter(|one| one.place.is_none()) {
            one.place = self.left_out.iter().find(|known| known.is(one)).and_then(|known| known.place.clone());
        }
        (self.served, self.spares, self.config, self.sources) = (plan.served, plan.spares, config, sources);
        self.left_out = left_out;
        self.settle(Some((&plan.unchanged, scope)));
        for change in &plan.changes {
            tracing::info!("{change}");
            self.events.send(Event {
                kind: "change".into(),
                text: change.to_string(),
                target: change.target(),
                initiator: None,
            });
        }
        if let Some(staged) = staged {
            let committed = self.files.conf_d().commit(&staged);
            match &committed {
                Ok(()) => self.sources.seen_mut().follow(&staged),
                Err(_) => self.sources.seen_mut().forget(&staged),
            }
            committed.map_err(|error| {
                let what = "the change is served, but whether it outlasts a restart is not known, because conf.d cannot be written";
                tracing::error!(%error, "{what}");
                Failure::other(format!("{what}: {error}; mend that, then send the change again with another, or SIGHUP to return to the files"))
            })?;
        }
        Ok(plan.changes)
    }

    fn switch(&self, plan: &mut Plan, config: &Config) -> Result<(), Failure> {
        let update = plan.update(config)?;
        let applied = self.control.apply(update).map_err(|error| match error {
            UpdateError::Refused(error) => bind_failure(error),
            UpdateError::Sanitizing { .. } => Failure::configuration(error),
            UpdateError::Stopping => Failure::other(error),
        });
        report_portals(&self.health, &applied?.closed, config);
        Ok(())
    }
}

/// The objects with mistakes as troubles: one for each object.
fn merged(left_out: &[LeftOut]) -> Vec<TroubleOf> {
    let mut texts: BTreeMap<&Subject, Vec<&str>> = BTreeMap::new();
    for one in left_out {
        let texts = texts.entry(&one.subject).or_default();
        if !texts.contains(&one.text()) {
            texts.push(one.text());
        }
    }
    texts.into_iter().map(|(subject, texts)| (subject.clone(), Cause::Mistake, texts.join("; "))).collect()
}

/// The texts of portals that mean no address now.
fn unknown_names(config: &Config) -> BTreeSet<String> {
    config.unknown_portals().map(|(listen, _)| listen.to_string()).collect()
}

/// Tells which portals are closed, and which are open again.
pub(crate) fn report_portals(health: &Health, closed: &[BindError], config: &Config) {
    let trouble = |error: &BindError| {
        let (name, failure) = closed_portal(error);
        (Subject::Portal(name), Cause::NotOpened, failure.to_string())
    };
    let is_portal = |subject: &Subject, cause| cause == Cause::NotOpened && matches!(subject, Subject::Portal(_));
    let unknown = config.unknown_portals();
    let unknown = unknown.map(|(listen, why)| (Subject::Portal(listen.to_string()), Cause::NotOpened, why.to_owned()));
    health.settle(is_portal, closed.iter().map(trouble).chain(unknown).collect());
}

/// A failure as clients of the API see it.
fn problem(failure: Failure) -> Problem {
    match failure {
        Failure::Usage(why) | Failure::Configuration(why) => Problem::invalid(why),
        Failure::Address(why) | Failure::Disk(why) => Problem::conflict(why),
        other => Problem::internal(other.to_string()),
    }
}
