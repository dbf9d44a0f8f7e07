//! The calls: each reads the configuration, or changes it and has all gateways follow.

mod change;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use lunette_api::Server;
use serde_json::{Value, json};

use crate::book::Book;
use crate::cluster::{Answered, Cluster};
use crate::follow::{Follower, Question, Reply, by_name};
use crate::limits::STATE_LIMIT;
use crate::refusal::Refusal;

/// The identity of a gateway.
#[derive(Debug, Clone)]
pub struct Options {
    /// The name by which the dashboard knows the gateway.
    pub name: String,
    /// The addresses that its portals may have.
    pub addresses: Vec<String>,
    /// The folder for what the API has no place for.
    pub folder: PathBuf,
}

/// One gateway of the dashboard.
#[derive(Clone)]
pub struct Adapter {
    me: Arc<Follower>,
    /// Locked by a call that changes something.
    changing: Arc<Mutex<()>>,
}

/// The answer to a call.
pub(crate) type Answer = Result<Value, Refusal>;

impl Adapter {
    /// A gateway that is not connected to the cluster yet.
    ///
    /// # Errors
    ///
    /// When the folder cannot be used, or the system has no random numbers.
    pub fn new(server: Arc<dyn Server>, options: Options) -> io::Result<Self> {
        let Options { name, addresses, folder } = options;
        let book = Mutex::new(Book::open(&folder)?);
        let mut instance = [0; 8];
        getrandom::fill(&mut instance).map_err(io::Error::other)?;
        let instance = u64::from_be_bytes(instance);
        let me = Arc::new(Follower {
            server,
            name,
            addresses,
            instance,
            cluster: OnceLock::new(),
            book,
            is_changing: AtomicBool::new(false),
            followed: AtomicU64::new(0),
            behind: Mutex::default(),
        });
        Ok(Self { me, changing: Arc::default() })
    }

    /// The answers of this gateway to questions of the others.
    pub fn answered(&self) -> Answered {
        let me = Arc::clone(&self.me);
        Box::new(move |question| me.answer(question))
    }

    /// Connects the gateway to the cluster, once and for all, and makes the objects of its configuration.
    pub fn connect(&self, cluster: Arc<dyn Cluster>) {
        if self.me.cluster.set(cluster).is_err() {
            return;
        }
        self.keep();
    }

    /// Takes a change back whose gateway has ended, and follows the configuration, if that is left to do. Called every
    /// now and then.
    pub fn keep(&self) {
        if let Err(Refusal { message, .. }) = self.settle_leftover() {
            tracing::warn!("dashboard: a change whose gateway has ended is not taken back: {message}");
        }
        // The log has what is wrong.
        self.me.answer(None);
    }

    /// The name of the gateway.
    pub(crate) fn name(&self) -> &str {
        &self.me.name
    }

    /// The addresses of the gateway.
    pub(crate) fn addresses(&self) -> &[String] {
        &self.me.addresses
    }

    /// `GET _ping`.
    pub(crate) fn ping(&self) -> Answer {
        self.me.cluster()?;
        self.me.server.ready().map_err(Refusal::unavailable)?;
        Ok(json!({ "message": "pong" }))
    }

    /// `GET config`.
    pub(crate) fn config(&self) -> Answer {
        let (version, stored) = self.me.read()?;
        Ok(stored.in_force().shown(version))
    }

    /// `GET gatewayinfo`: the sessions of this gateway.
    pub(crate) fn gateway_info(&self) -> Answer {
        let (name, (_, stored)) = (self.name(), self.me.read()?);
        let document = stored.in_force();
        if !document.gateways.contains_key(name) {
            return Err(Refusal::missing(format!("Gateway {name} does not exist in configuration")));
        }
        let mut count = 0;
        for target in document.targets.iter().filter(|(_, target)| target.portals.contains_key(name)) {
            count += self.me.sessions(target.0, None)?.len();
        }
        Ok(json!({ "num_sessions": count }))
    }

    /// `GET targetinfo/{target}`: the sessions of all its gateways.
    pub(crate) fn target_info(&self, target: &str) -> Answer {
        let replies = self.sessions(target, None)?;
        Ok(json!({ "num_sessions": replies.values().map(|reply| reply.sessions).sum::<usize>() }))
    }

    /// `GET clientinfo/{target}/{client}`.
    pub(crate) fn client_info(&self, target: &str, client: &str) -> Answer {
        let replies = self.sessions(target, Some(client))?;
        let logged_in: Vec<&String> =
            replies.iter().filter(|(_, reply)| reply.sessions > 0).map(|(name, _)| name).collect();
        let state = if logged_in.is_empty() { json!({}) } else { json!({ "LOGGED_IN": logged_in }) };
        let addresses: BTreeSet<&String> = replies.values().flat_map(|reply| &reply.peers).collect();
        Ok(json!({ "alias": "", "state": state, "ip_address": addresses }))
    }

    /// The replies of the gateways of a target about its sessions.
    fn sessions(&self, target: &str, client: Option<&str>) -> Result<BTreeMap<String, Reply>, Refusal> {
        let (_, stored) = self.me.read()?;
        let found = stored.in_force().target(target)?;
        if let Some(name) = client.filter(|name| !found.clients.contains_key(*name)) {
            return Err(Refusal::missing(format!("Client {name} does not exist")));
        }
        let (target, client) = (target.to_owned(), client.map(str::to_owned));
        let mut replies = self.ask(&Question::Sessions { target, client }, STATE_LIMIT)?;
        let gateways: BTreeSet<String> = found.portals.keys().cloned().collect();
        check_there(&gateways, &replies)?;
        replies.retain(|name, _| gateways.contains(name));
        match replies.values_mut().find_map(|reply| reply.refusal.take()) {
            Some(refusal) => Err(refusal),
            None => Ok(replies),
        }
    }

    /// The reply of a gateway to the question how it is.
    pub(crate) fn state_of(&self, gateway: &str) -> Result<Reply, Refusal> {
        let name = gateway.to_owned();
        let mut replies = self.ask(&Question::State, STATE_LIMIT)?;
        check_there(&BTreeSet::from([name]), &replies)?;
        replies.remove(gateway).ok_or_else(|| Refusal::missing(format!("Gateway {gateway} does not exist")))
    }

    /// Whether the cluster has an image.
    pub(crate) fn has_image(&self, pool: &str, image: &str) -> Result<bool, Refusal> {
        let failed = |error| Refusal::bad(format!("Image {pool}/{image} cannot be opened: {error}"));
        self.me.cluster()?.has_image(pool, image).map_err(failed)
    }

    /// Asks all gateways.
    fn ask(&self, question: &Question, limit: Duration) -> Result<BTreeMap<String, Reply>, Refusal> {
        let failed = |error: io::Error| Refusal::unavailable(format!("the other gateways cannot be asked: {error}"));
        // A structure of texts and numbers becomes JSON.
        let question = serde_json::to_vec(question).map_err(|error| failed(error.into()))?;
        by_name(&self.me.cluster()?.ask(&question, limit).map_err(failed)?)
    }
}

/// Checks that these gateways have answered.
fn check_there(gateways: &BTreeSet<String>, replies: &BTreeMap<String, Reply>) -> Result<(), Refusal> {
    let absent: Vec<String> = gateways
        .iter()
        .filter(|name| !replies.contains_key(*name))
        .map(|name| format!("{name}(iscsi Unknown, API down)"))
        .collect();
    if absent.is_empty() {
        return Ok(());
    }
    Err(Refusal::unavailable(format!("failed, gateway(s) unavailable:{}", absent.join(","))))
}

#[cfg(test)]
mod tests;
