//! Models of the API and of the cluster, for tests.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lunette_api::jobs::{Job, Jobs};
use lunette_api::{AuditLog, Caller, Catalog, Changed, Disk, Events, Order, Plan, Problem, Server, Session};
use utoipa::openapi::{RefOr, Schema};

use crate::cluster::{Answered, Cluster};
use crate::document::Document;
use crate::stored::Stored;

/// A server that keeps objects and serves nothing.
#[derive(Default)]
pub(crate) struct Model {
    pub(crate) catalog: Mutex<Arc<Catalog>>,
    pub(crate) sessions: Mutex<Vec<Session>>,
    /// The number of its changes.
    pub(crate) changes: Mutex<usize>,
    pub(crate) refuses: AtomicBool,
    jobs: Jobs,
    events: Events,
    audit: AuditLog,
}

impl Server for Model {
    fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.lock().unwrap())
    }

    fn plan(&self, _: Order) -> Result<Plan, Problem> {
        unreachable!("no plan is asked for")
    }

    fn change(&self, order: Order) -> Result<Changed, Problem> {
        assert_eq!((&*order.caller.name, order.force), ("dashboard", false));
        if self.refuses.load(Ordering::Relaxed) {
            return Err(Problem::conflict("the disk cannot be opened"));
        }
        let mut catalog = self.catalog.lock().unwrap();
        let objects = (order.edit)(&catalog)?;
        *catalog = Arc::new(Catalog { objects, ..Catalog::clone(&catalog) });
        *self.changes.lock().unwrap() += 1;
        Ok(Changed::default())
    }

    fn sessions(&self) -> Result<Vec<Session>, Problem> {
        Ok(self.sessions.lock().unwrap().clone())
    }

    fn end_session(&self, _: u16, _: &Caller) -> Result<bool, Problem> {
        unreachable!("no session is ended")
    }

    fn disks(&self) -> Vec<Disk> {
        Vec::new()
    }

    fn ready(&self) -> Result<(), String> {
        Ok(())
    }

    fn scrub(&self, _: &str, _: u16, _: &Caller) -> Result<Arc<Job>, Problem> {
        unreachable!("no disk is read")
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
        Vec::new()
    }
}

/// A cluster in memory.
#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) value: Mutex<(u64, Vec<u8>)>,
    /// The gateways that hear questions.
    pub(crate) hearing: Mutex<BTreeMap<String, Answered>>,
    /// The configuration that another gateway writes before the next change.
    pub(crate) rival: Mutex<Option<Document>>,
    /// Whether the answer to the next replacement is lost, though it is made.
    pub(crate) loses_an_answer: AtomicBool,
    /// The number of replacements before which another gateway writes.
    pub(crate) rivals: AtomicUsize,
}

impl Cluster for Memory {
    fn read(&self) -> io::Result<(u64, Vec<u8>)> {
        Ok(self.value.lock().unwrap().clone())
    }

    fn replace(&self, version: u64, value: &[u8]) -> io::Result<bool> {
        let mut now = self.value.lock().unwrap();
        if let Some(rival) = self.rival.lock().unwrap().take() {
            *now = (now.0 + 1, Stored::settled(rival).encode().unwrap());
        }
        if self.rivals.load(Ordering::Relaxed) > 0 {
            self.rivals.fetch_sub(1, Ordering::Relaxed);
            now.0 += 1;
        }
        let fits = now.0 == version;
        if fits {
            *now = (version + 1, value.to_vec());
        }
        if self.loses_an_answer.swap(false, Ordering::Relaxed) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(fits)
    }

    fn ask(&self, question: &[u8], _: Duration) -> io::Result<Vec<Vec<u8>>> {
        Ok(self.hearing.lock().unwrap().values().map(|answered| answered(Some(question))).collect())
    }

    fn disk(&self, pool: &str, image: &str) -> String {
        format!("rbd:{pool}/{image}?user=lunette")
    }

    fn has_image(&self, _: &str, image: &str) -> io::Result<bool> {
        match image {
            "unlockable" => Err(io::Error::other("rbd feature enable rbd/unlockable exclusive-lock")),
            _ => Ok(image != "missing"),
        }
    }
}
