//! The server as a client of some targets sees it: what belongs to them, and nothing else.

use std::sync::Arc;

use axum::http::Extensions;
use utoipa::openapi::{RefOr, Schema};

use crate::audit::AuditLog;
use crate::callers::Caller;
use crate::health::Trouble;
use crate::jobs::{Job, Jobs};
use crate::objects::{Key, Kind, Objects};
use crate::problem::Problem;
use crate::server::{Catalog, Changed, Disk, Events, Order, Plan, Server, Session};

/// The server as the client of a request sees it. The extensions of the request name the client.
pub fn seen_by(server: &Arc<dyn Server>, extensions: &Extensions) -> Arc<dyn Server> {
    match extensions.get::<Arc<Caller>>() {
        Some(caller) if caller.targets.is_some() => {
            Arc::new(Seen { server: Arc::clone(server), caller: Arc::clone(caller) })
        }
        _ => Arc::clone(server),
    }
}

struct Seen {
    server: Arc<dyn Server>,
    caller: Arc<Caller>,
}

impl Seen {
    fn objects(&self, all: &Objects) -> Objects {
        let mut seen = Objects::default();
        for (name, document) in all.of(Kind::Target).filter(|(name, _)| self.caller.sees(Some(name))) {
            if let Ok(key) = Key::new(Kind::Target, name) {
                // They are fewer than there were.
                let _ = seen.put(key, document.clone());
            }
        }
        seen
    }
}

impl Server for Seen {
    fn catalog(&self) -> Arc<Catalog> {
        let all = self.server.catalog();
        let (main, objects) = (self.objects(&all.main), self.objects(&all.objects));
        Arc::new(Catalog { main_file: all.main_file.clone(), main, objects })
    }

    fn plan(&self, order: Order) -> Result<Plan, Problem> {
        self.server.plan(order)
    }

    fn change(&self, order: Order) -> Result<Changed, Problem> {
        self.server.change(order)
    }

    fn sessions(&self) -> Result<Vec<Session>, Problem> {
        let mut sessions = self.server.sessions()?;
        sessions.retain(|session| self.caller.sees(session.target.as_deref()));
        Ok(sessions)
    }

    fn end_session(&self, id: u16, caller: &Caller) -> Result<bool, Problem> {
        Ok(self.sessions()?.iter().any(|session| session.id == id) && self.server.end_session(id, caller)?)
    }

    fn disks(&self) -> Vec<Disk> {
        let mut disks = self.server.disks();
        disks.retain(|disk| self.caller.sees(Some(&disk.target)));
        disks
    }

    fn ready(&self) -> Result<(), String> {
        self.server.ready()
    }

    fn troubles(&self) -> Vec<Trouble> {
        let mut troubles = self.server.troubles();
        troubles.retain(|trouble| self.caller.sees(trouble.of_target()));
        troubles
    }

    fn metrics(&self) -> Option<String> {
        self.server.metrics().map(|text| lines_of(&text, &self.caller))
    }

    fn scrub(&self, target: &str, lun: u16, caller: &Caller) -> Result<Arc<Job>, Problem> {
        self.caller.check_target(Some(target))?;
        self.server.scrub(target, lun, caller)
    }

    fn jobs(&self) -> &Jobs {
        self.server.jobs()
    }

    fn seen_jobs(&self) -> Vec<Arc<Job>> {
        let mut jobs = self.server.seen_jobs();
        jobs.retain(|job| self.caller.sees(job.target.as_deref()));
        jobs
    }

    fn events(&self) -> &Events {
        self.server.events()
    }

    fn audit(&self) -> &AuditLog {
        self.server.audit()
    }

    fn schemas(&self) -> Vec<(String, RefOr<Schema>)> {
        self.server.schemas()
    }
}

/// The numbers of the targets that a client sees, with the descriptions of their names.
fn lines_of(text: &str, caller: &Caller) -> String {
    let (mut kept, mut heads, mut is_described) = (String::new(), Vec::new(), false);
    for line in text.lines() {
        if line.starts_with('#') {
            if std::mem::take(&mut is_described) {
                heads.clear();
            }
            heads.push(line);
            continue;
        }
        is_described = true;
        if caller.sees(target_of(line)) {
            for line in heads.drain(..).chain([line]) {
                kept.push_str(line);
                kept.push('\n');
            }
        }
    }
    kept
}

/// The target that a number is of. Quotation marks within labels have a backslash before them, so none of them begins
/// here.
fn target_of(line: &str) -> Option<&str> {
    let begins = ["{target=\"", ",target=\""];
    let (_, rest) = begins.iter().find_map(|begin| line.split_once(begin))?;
    rest.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_targets_of_the_client() {
        let caller = Caller { targets: Some(vec!["iqn.a".into()]), ..Caller::admin("t", "here") };
        let text = "# HELP up Whether.\n# TYPE up gauge\nup 1\n# HELP bytes Read.\n# TYPE bytes counter\n\
                    bytes{target=\"iqn.ab\",lun=\"0\"} 1\nbytes{target=\"iqn.a\",lun=\"0\"} 2\nbytes{lun=\"1\",target=\"iqn.a\"} 3\n\
                    # HELP of Others.\nof{initiator=\"x,target=\\\"iqn.a\\\"\",target=\"iqn.b\"} 4\n";
        let expected = "# HELP bytes Read.\n# TYPE bytes counter\nbytes{target=\"iqn.a\",lun=\"0\"} 2\nbytes{lun=\"1\",target=\"iqn.a\"} 3\n";
        assert_eq!(lines_of(text, &caller), expected);
    }
}
