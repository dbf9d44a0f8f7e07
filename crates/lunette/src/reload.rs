//! Rereading the configuration while the server runs.
//!
//! A [`Plan`] opens everything that is new beside what is served; when all of it is open, the server switches over as a
//! whole. A disk that moves (to another LUN or target), or is reopened with other settings, keeps its store, because a
//! second store cannot be opened beside it.

mod notices;
mod plan;
mod spares;

use lunette_api::objects::FileChange;
use lunette_api::{Catalog, Cause, Event, Events, Health, Objects, Problem, Subject};
use lunette_target::{BindError, Control, UpdateError};

use crate::config::diff::{self, Change};
use crate::config::sources::{Files, Sources};
use crate::config::{Config, Listen};
use crate::failure::Failure;
use crate::metrics;
use crate::recovery::{Absent, Reopened};
use crate::serve::{bind_failure, closed_portal};
use crate::served::{Served, check_encrypted};
pub(crate) use notices::noticed;
use plan::{Plan, Refusal};
pub(crate) use spares::Spares;

/// The current configuration of a running server, and the handle that changes it.
pub(crate) struct Reloader {
    files: Files,
    sources: Sources,
    config: Config,
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
    files: Vec<FileChange>,
}

impl Reloader {
    /// A reloader for a server that serves what was opened from `config`, which `sources` make, which was read from `files`.
    /// It tells `events` what it changes, and `health` what is not served as configured.
    pub(crate) fn new(
        files: Files,
        (sources, config): (Sources, Config),
        served: Served,
        control: Control,
        (events, health): (Events, Health),
    ) -> Self {
        let reloader = Self { files, sources, config, served, spares: Spares::default(), control, events, health };
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
        let (sources, config) = self.files.read()?;
        let changes = diff::between(&self.config, &config).map_err(|all| Failure::Configuration(all.join("; ")))?;
        let refusal = Refusal::of_files(&config);
        self.apply(Wanted { sources, config, changes, files: Vec::new() }, refusal)
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
        let config = sources.config().map_err(Problem::invalid)?;
        let changes = diff::between(&self.config, &config).map_err(|all| Problem::conflict(all.join("; ")))?;
        check_encrypted(&config).map_err(problem)?;
        Ok(Wanted { sources, config, changes, files })
    }

    /// Lets `conf.d` hold what was planned since the last change, and serves it.
    pub(crate) fn change(&mut self, wanted: Wanted) -> Result<(), Problem> {
        let refusal = Refusal::of_client(&self.config, &wanted);
        self.apply(wanted, refusal).map(drop).map_err(problem)
    }

    /// The objects that could not be opened.
    pub(crate) fn absent(&self) -> Absent {
        Absent::of(&self.served, &self.spares, &self.config.targets)
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

    /// Serves what could not be served before, of which these disks are open now.
    pub(crate) fn recover(&mut self, reopened: Vec<Reopened>) {
        let recovered = Plan::recover(&self.served, &self.spares, &self.config, reopened).and_then(|mut plan| {
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
    fn settle(&self, unchanged: Option<&[(Subject, Cause, String)]>) {
        let owned = |subject: &Subject, cause| match cause {
            Cause::NotOpened => matches!(subject, Subject::Lun { .. }),
            Cause::Secret => true,
            Cause::NotChanged => unchanged.is_some(),
            // The files are looked at all the time.
            Cause::FileShorter | Cause::FileReplaced | Cause::FileDeleted | Cause::WritesLost => false,
        };
        let mut now = self.served.troubles();
        now.extend(unchanged.into_iter().flatten().cloned());
        self.health.settle(owned, now);
        self.health.retain(|subject| self.config.has(subject));
    }

    /// Switches over as a whole. Files are written down before, and hold when the server has switched.
    fn apply(&mut self, wanted: Wanted, refusal: Refusal) -> Result<Vec<Change>, Failure> {
        let Wanted { sources, config, changes, files } = wanted;
        check_encrypted(&config)?;
        let mut plan = Plan::new(&self.served, &self.spares, &config, changes, refusal)?;
        let unwritten =
            |error: std::io::Error| Failure::other(format!("conf.d cannot be written, nothing is changed: {error}"));
        let staged = match files {
            files if files.is_empty() => None,
            files => Some(self.files.conf_d().stage(files).map_err(unwritten)?),
        };
        let switched = if plan.is_empty() { Ok(()) } else { self.switch(&mut plan, &config) };
        plan.settle(switched.is_ok());
        if let Err(failure) = switched {
            if staged.is_some() {
                let _ = self.files.conf_d().unstage();
            }
            return Err(failure);
        }
        (self.served, self.spares, self.config, self.sources) = (plan.served, plan.spares, config, sources);
        self.settle(Some(&plan.unchanged));
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
            self.files.conf_d().commit(&staged).map_err(|error| {
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
