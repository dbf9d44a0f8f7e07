//! The answers to requests. Each mode of tgtadm has its file.

mod account;
mod connection;
mod portal;
mod system;
mod target;
mod unit;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use lunette_api::edits::{self, Precondition};
use lunette_api::{Caller, Catalog, Document, Key, Kind, Objects, Order, Problem, Server, Session};

use crate::book::Book;
use crate::limits::MAX_ENDED_SESSIONS;
use crate::params;
use crate::wire::{Fault, Mode, Op, Request};

/// The name of the adapter in the audit log.
const NAME: &str = "tgt";

/// An object that is there.
const THERE: &str = "*";

/// The state behind the answers, which are given one after the other.
pub(crate) struct Adapter {
    server: Arc<dyn Server>,
    book: Book,
    /// Sessions that a client has ended. Their initiators may take a moment to log out.
    ended: BTreeSet<Ended>,
    /// Sessions of targets that have lost a rule. They may be gone before a client ends them, as it would have to do
    /// with tgtd.
    unbound: BTreeSet<Ended>,
    caller: Caller,
}

/// A session, known again among later ones that have its number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Ended {
    target: String,
    id: u16,
    isid: String,
}

impl Ended {
    fn new(target: &str, session: &Session) -> Self {
        Self { target: target.to_owned(), id: session.id, isid: session.isid.clone() }
    }
}

impl Adapter {
    /// An adapter that keeps its book in a folder, and comes from a place.
    pub(crate) fn new(server: Arc<dyn Server>, folder: &Path, from: &str) -> io::Result<Self> {
        let book = Book::open(folder)?;
        Ok(Self { server, book, ended: BTreeSet::new(), unbound: BTreeSet::new(), caller: Caller::admin(NAME, from) })
    }

    /// Does what a request asks for. The text is for the standard output of tgtadm.
    pub(crate) fn answer(&mut self, request: &Request, parameters: &[u8]) -> Result<String, Fault> {
        let text = params::text(parameters)?;
        let done = |outcome: Result<(), Fault>| outcome.map(|()| String::new());
        match (request.mode, request.op) {
            (Mode::System, Op::Show) => Ok(system::show()),
            (Mode::System, Op::Update) => done(system::update(text)),
            (Mode::Target, Op::New) => done(self.new_target(request, text)),
            (Mode::Target, Op::Delete) => done(self.delete_target(request)),
            (Mode::Target, Op::Show) => self.show_targets(request),
            (Mode::Target, Op::Bind) => done(self.bind(request, text)),
            (Mode::Target, Op::Unbind) => done(self.unbind(request, text)),
            (Mode::Target, Op::Update) => done(self.update_target(request, text)),
            (Mode::LogicalUnit, Op::New) => done(self.new_unit(request, text)),
            (Mode::LogicalUnit, Op::Delete) => done(self.delete_unit(request)),
            (Mode::LogicalUnit, Op::Update) => done(self.update_unit(request, text)),
            (Mode::Portal, Op::New) => done(self.new_portal(text)),
            (Mode::Portal, Op::Delete) => done(self.delete_portal(text)),
            (Mode::Portal, Op::Show) => Ok(self.show_portals()),
            (Mode::Driver, Op::Show) => self.show_driver(),
            (Mode::Driver, Op::Start) => Ok(String::new()),
            (Mode::Driver, Op::Stop) => Err(Fault::DriverBusy),
            (Mode::Connection, Op::Show) => self.show_connections(request),
            (Mode::Connection, Op::Delete) => done(self.delete_connection(request)),
            (Mode::Account, Op::New) => done(self.new_account(text)),
            (Mode::Account, Op::Delete) => done(self.delete_account(text)),
            (Mode::Account, Op::Bind) => done(self.bind_account(request, text)),
            (Mode::Account, Op::Unbind) => done(self.unbind_account(request, text)),
            (Mode::Account, Op::Show) => Ok(self.show_accounts()),
            (_, Op::Stat) => Err(Fault::Unsupported),
            (mode, Op::New | Op::Delete | Op::Show | Op::Bind | Op::Unbind | Op::Update | Op::Start | Op::Stop) => {
                Err(mode.fault())
            }
        }
    }

    /// The targets by their numbers.
    fn targets(&mut self) -> Result<BTreeMap<u32, (String, Document)>, Fault> {
        let catalog = self.server.catalog();
        let documents: BTreeMap<&str, &Document> =
            catalog.of(Kind::Target).map(|(name, document, _)| (name, document)).collect();
        let numbers = self.book.number(&documents.keys().copied().collect())?;
        let with_document = |(tid, name): (u32, String)| {
            let document = (*documents.get(name.as_str())?).clone();
            Some((tid, (name, document)))
        };
        Ok(numbers.into_iter().filter_map(with_document).collect())
    }

    /// The target that a request names.
    fn target(&mut self, request: &Request) -> Result<(String, Document), Fault> {
        let tid = request.tid.ok_or(Fault::NoTarget)?;
        self.targets()?.remove(&tid).ok_or(Fault::NoTarget)
    }

    /// The sessions of all targets, in the order of their numbers.
    fn sessions(&mut self) -> Result<BTreeMap<String, Vec<Session>>, Fault> {
        let mut sessions = self.server.sessions().map_err(|problem| refused("sessions", &problem))?;
        sessions.sort_unstable_by_key(|session| session.id);
        let mut all: BTreeMap<String, Vec<Session>> = BTreeMap::new();
        for session in sessions {
            if let Some(target) = &session.target {
                all.entry(target.clone()).or_default().push(session);
            }
        }
        let is_there = |ended: &Ended| {
            let of_target = all.get(&ended.target).into_iter().flatten();
            of_target.into_iter().any(|session| session.id == ended.id && session.isid == ended.isid)
        };
        self.ended.retain(is_there);
        if self.unbound.len() > MAX_ENDED_SESSIONS {
            self.unbound.clear();
        }
        Ok(all)
    }

    /// The sessions of a target, in the order of their numbers.
    fn sessions_of(&mut self, target: &str) -> Result<Vec<Session>, Fault> {
        Ok(self.sessions()?.remove(target).unwrap_or_default())
    }

    /// Changes the document of a target. `edit` is tried before, for the fault that it finds.
    fn change_target(
        &self,
        name: &str,
        force: bool,
        edit: impl Fn(&mut Document) -> Result<(), Fault> + Send + 'static,
    ) -> Result<(), Fault> {
        let key = Key::new(Kind::Target, name).map_err(|_| Fault::Invalid)?;
        edit(&mut self.server.catalog().find(&key).ok_or(Fault::NoTarget)?.clone())?;
        self.change(name, force, move |catalog| {
            let mut document = catalog.find(&key).ok_or_else(|| Problem::not_found(&key.to_string()))?.clone();
            edit(&mut document).map_err(|fault| Problem::conflict(fault.to_string()))?;
            edits::put(catalog, &key, document, &there())
        })
    }

    /// Makes a change, as a whole or not at all.
    fn change(
        &self,
        what: &str,
        force: bool,
        edit: impl FnOnce(&Catalog) -> Result<Objects, Problem> + Send + 'static,
    ) -> Result<(), Fault> {
        let order = Order { edit: Box::new(edit), caller: self.caller.clone(), force };
        self.server.change(order).map(drop).map_err(|problem| refused(what, &problem))
    }
}

/// The condition that an object is there.
fn there() -> Precondition {
    Precondition { matches: Some(THERE.into()), is_new: false }
}

/// The fault of a problem. The log has its reason, for which tgtadm has no words.
fn refused(what: &str, problem: &Problem) -> Fault {
    tracing::warn!(what, "tgt: refused: {problem}");
    match problem.status {
        404 => Fault::NoTarget,
        409 if problem.title == Problem::IN_USE => Fault::TargetActive,
        500.. => Fault::Unknown,
        _ => Fault::Invalid,
    }
}
