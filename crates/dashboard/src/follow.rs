//! The part of each gateway: it makes its own objects of the configuration, and tells others how it is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Instant;

use lunette_api::{Caller, Catalog, Key, Kind, Objects, Order, Problem, Server, Session};
use serde::{Deserialize, Serialize};

use crate::book::Book;
use crate::cluster::Cluster;
use crate::document::Document;
use crate::http::NAME;
use crate::limits::{REMAKE_LIMIT, REMAKE_PAUSE};
use crate::refusal::Refusal;
use crate::stored::Stored;
use crate::wanted::{self, Means, Wanted};

/// A question to all gateways.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Question {
    /// Asks how the gateway is.
    State,
    /// Has the gateway make its objects for the configuration of this version.
    Follow { version: u64 },
    /// Asks for the sessions of a target, of one initiator or of all.
    Sessions { target: String, client: Option<String> },
}

/// The answer of a gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Reply {
    /// The name of the gateway.
    pub(crate) name: String,
    /// A number of this process, which tells two gateways of one name apart.
    pub(crate) instance: u64,
    /// The addresses that portals may have.
    pub(crate) addresses: Vec<String>,
    /// Whether it changes the configuration.
    pub(crate) is_changing: bool,
    /// Why it has not followed.
    pub(crate) refusal: Option<Refusal>,
    /// The number of sessions that were asked for.
    pub(crate) sessions: usize,
    /// The addresses of their initiators.
    pub(crate) peers: BTreeSet<String>,
}

/// A gateway, as the others see it.
pub(crate) struct Follower {
    pub(crate) server: Arc<dyn Server>,
    pub(crate) name: String,
    pub(crate) addresses: Vec<String>,
    pub(crate) instance: u64,
    pub(crate) cluster: OnceLock<Arc<dyn Cluster>>,
    /// Locked while the objects are made.
    pub(crate) book: Mutex<Book>,
    /// Whether a call changes the configuration.
    pub(crate) is_changing: AtomicBool,
    /// Why the objects are not those of the configuration.
    pub(crate) behind: Mutex<Option<String>>,
    /// The version of the configuration that was followed last.
    pub(crate) followed: AtomicU64,
}

impl Follower {
    /// The cluster, once there is a connection.
    pub(crate) fn cluster(&self) -> Result<&Arc<dyn Cluster>, Refusal> {
        let absent = || Refusal::unavailable("the cluster has not answered yet; the log of this gateway says why");
        self.cluster.get().ok_or_else(absent)
    }

    /// The version of the configuration, and what the cluster has of it.
    pub(crate) fn read(&self) -> Result<(u64, Stored), Refusal> {
        let unreadable =
            |error| Refusal::unavailable(format!("the configuration in the cluster cannot be read: {error}"));
        let (version, value) = self.cluster()?.read().map_err(unreadable)?;
        Ok((version, Stored::decode(&value)?))
    }

    /// Answers a question of a gateway, which may be this one. Without a question, some may have been missed.
    pub(crate) fn answer(&self, question: Option<&[u8]>) -> Vec<u8> {
        let question = match question.map(serde_json::from_slice::<Question>) {
            Some(Ok(question)) => question,
            // A later version of this software may ask something else.
            Some(Err(_)) => Question::State,
            // A gateway that is not connected has nothing to follow yet.
            None if self.cluster.get().is_some() => {
                // The log has what is wrong.
                let _ = self.follow(None);
                return Vec::new();
            }
            None => return Vec::new(),
        };
        let mut reply = Reply {
            name: self.name.clone(),
            instance: self.instance,
            addresses: self.addresses.clone(),
            is_changing: self.is_changing.load(Ordering::SeqCst),
            ..Reply::default()
        };
        match question {
            Question::State => {}
            Question::Follow { version } => {
                reply.refusal = self.follow(Some(version)).err();
            }
            Question::Sessions { target, client } => match self.sessions(&target, client.as_deref()) {
                Ok(sessions) => {
                    reply.sessions = sessions.len();
                    let address = |peer: &String| Some(peer.rsplit_once(':')?.0.trim_matches(['[', ']']).to_owned());
                    reply.peers = sessions.iter().flat_map(|session| &session.peers).filter_map(address).collect();
                }
                Err(refusal) => reply.refusal = Some(refusal),
            },
        }
        // A structure of texts and numbers becomes JSON.
        serde_json::to_vec(&reply).unwrap_or_default()
    }

    /// The sessions of a target at this gateway.
    pub(crate) fn sessions(&self, target: &str, client: Option<&str>) -> Result<Vec<Session>, Refusal> {
        let mut sessions = self.server.sessions()?;
        sessions.retain(|session| {
            let is_client = client.is_none_or(|client| session.initiator.eq_ignore_ascii_case(client));
            session.target.as_deref() == Some(target) && is_client
        });
        Ok(sessions)
    }

    /// Makes the objects of this version of the configuration, or of a later one that counts. Without a version, it is
    /// the one that counts now.
    fn follow(&self, version: Option<u64>) -> Result<(), Refusal> {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        let (found, stored) = self.read()?;
        if version.is_some_and(|version| found < version) {
            return Err(Refusal::failed("the cluster has an older configuration than the one to follow; try again"));
        }
        if (found, version) == (0, None) {
            // A value that was lost is no reason to take all disks away.
            return Ok(());
        }
        let is_asked = version == Some(found);
        if stored.pending.is_some() && !is_asked && self.followed.load(Ordering::SeqCst) == found {
            // Its own gateway says when it goes back.
            return Ok(());
        }
        let document = if is_asked { &stored.document } else { stored.in_force() };
        let made = self.make_all(&mut book, document);
        if made.is_ok() {
            self.followed.store(found, Ordering::SeqCst);
        }
        self.note_behind(made.as_ref().err());
        made
    }

    /// Makes all objects of a configuration.
    fn make_all(&self, book: &mut Book, document: &Document) -> Result<(), Refusal> {
        let cluster = self.cluster()?;
        let mut secrets = BTreeSet::new();
        let wanted = wanted::of(
            document,
            &mut Means {
                gateway: &self.name,
                disk: &|pool, image| cluster.disk(pool, image),
                secret: &mut |secret| {
                    let path: PathBuf = book.secret(secret)?;
                    secrets.insert(path.clone());
                    Ok(path)
                },
            },
        )?;
        let made = book.made();
        let unwritten = |error| Refusal::failed(format!("a file of the adapter cannot be written: {error}"));
        // An object of others must not be noted: it would be removed as one that was made.
        objects(&self.server.catalog(), &wanted, &made)?;
        // One that was made and not noted would be one of others.
        book.note(made.iter().chain(wanted.keys())).map_err(unwritten)?;
        let remade = remade(&self.server.catalog(), &wanted, &made);
        if !remade.is_empty() {
            let first = wanted.iter().filter(|(key, _)| !remade.contains(key));
            self.make(first.map(|(key, object)| (key.clone(), object.clone())).collect(), &made)?;
        }
        let begun = Instant::now();
        while let Err(refusal) = self.make(wanted.clone(), &made) {
            // The gateways of a target that was taken away need a moment to let go of its images.
            if remade.is_empty() || begun.elapsed() >= REMAKE_LIMIT {
                return Err(refusal);
            }
            thread::sleep(REMAKE_PAUSE);
        }
        book.note(wanted.keys()).map_err(unwritten)?;
        book.forget_others(&secrets);
        Ok(())
    }

    /// Notes why the configuration was not followed, and tells the log once.
    fn note_behind(&self, refusal: Option<&Refusal>) {
        let why = refusal.map(|refusal| refusal.message.clone());
        let mut behind = self.behind.lock().unwrap_or_else(PoisonError::into_inner);
        if *behind != why {
            let what = why.as_ref().map_or("is followed again".into(), |why| format!("is not followed: {why}"));
            tracing::warn!("dashboard: the configuration {what}");
        }
        *behind = why;
    }

    /// Has the server serve these objects, and not the others of `made`.
    fn make(&self, wanted: Wanted, made: &[Key]) -> Result<(), Refusal> {
        let catalog = self.server.catalog();
        if objects(&catalog, &wanted, made)? == catalog.objects {
            return Ok(());
        }
        let made = made.to_vec();
        let edit = Box::new(move |catalog: &Catalog| objects(catalog, &wanted, &made));
        let order = Order { edit, caller: Caller::admin(NAME, "the configuration in the cluster"), force: false };
        self.server.change(order).map(drop).map_err(Refusal::from)
    }
}

/// The objects of a server that has these for the configuration.
fn objects(catalog: &Catalog, wanted: &Wanted, made: &[Key]) -> Result<Objects, Problem> {
    let mut objects = catalog.objects.clone();
    for key in made.iter().filter(|key| !wanted.contains_key(key)) {
        objects.remove(key);
    }
    for (key, object) in wanted {
        if catalog.main.get(key).is_some() {
            return Err(Problem::conflict(format!("{key} stands in {}; remove it there", catalog.main_file)));
        }
        if catalog.objects.get(key).is_some() && !made.contains(key) {
            return Err(Problem::conflict(format!(
                "{key} is there, and was not made by the dashboard; remove it first"
            )));
        }
        objects.put(key.clone(), object.clone())?;
    }
    Ok(objects)
}

/// The targets whose gateways change. These have to go before they come.
fn remade(catalog: &Catalog, wanted: &Wanted, made: &[Key]) -> BTreeSet<Key> {
    let differs = |(key, object): &(&Key, &lunette_api::Document)| {
        // One that was made and is not there was taken away before, and could not be made again yet.
        let is_other = |there: &lunette_api::Document| there.get("gateways") != object.get("gateways");
        key.kind == Kind::Target && made.contains(key) && catalog.objects.get(key).is_none_or(is_other)
    };
    wanted.iter().filter(differs).map(|(key, _)| key.clone()).collect()
}

/// The replies by the names of gateways.
pub(crate) fn by_name(replies: &[Vec<u8>]) -> Result<BTreeMap<String, Reply>, Refusal> {
    let mut all = BTreeMap::<String, Reply>::new();
    for reply in replies {
        // A gateway that is not ready has said nothing.
        let Ok(reply) = serde_json::from_slice::<Reply>(reply) else { continue };
        let name = reply.name.clone();
        let twin = all.insert(name.clone(), reply.clone());
        if twin.is_some_and(|twin| twin.instance != reply.instance) {
            return Err(Refusal::failed(format!("two gateways are called {name}; give one of them another name")));
        }
    }
    Ok(all)
}
