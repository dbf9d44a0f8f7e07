//! Clones for the initiators of templates: made when they log in. Ephemeral ones are removed when they are not used any
//! more.
//!
//! A login of such an initiator waits in the target until the configuration has a host for it. One thread makes the
//! clones and the hosts of all logins that wait, and changes the configuration once for all of them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lunette_api::Problem;
use lunette_pools::Name;
use lunette_session::{folded_name, is_same_name};
use lunette_target::{HostMaker, HostRequest, SessionStatus};

use super::control_plane::ControlPlane;
use super::volumes::{CloneKey, ServedVolumes};
use crate::config::Config;
use crate::config::clones::{Ephemeral, Given, host_name};
use crate::failure::Failure;

/// The interval at which clones are looked for that are not used any more.
const INTERVAL: Duration = Duration::from_secs(5);

/// The time for which a clone without a session is still served. After it, an administrator can remove the volume.
const GIVEN_LIMIT: Duration = Duration::from_mins(1);

/// The logins that wait for hosts, on their way to the thread that makes them.
#[derive(Default)]
pub(crate) struct HostRequests {
    waiting: Mutex<Vec<HostRequest>>,
    came: Condvar,
}

impl HostRequests {
    /// The callback by which the target asks.
    pub(crate) fn maker(self: &Arc<Self>) -> HostMaker {
        let requests = Arc::clone(self);
        Arc::new(move |request| {
            let mut waiting = requests.waiting();
            if !waiting.contains(&request) {
                waiting.push(request);
            }
            drop(waiting);
            requests.came.notify_one();
        })
    }

    /// The requests since the last call. Waits for one, but not longer than until `until`.
    fn take(&self, until: Instant) -> Vec<HostRequest> {
        let left = until.saturating_duration_since(Instant::now());
        let waited = self.came.wait_timeout_while(self.waiting(), left, |waiting| waiting.is_empty());
        std::mem::take(&mut *waited.unwrap_or_else(PoisonError::into_inner).0)
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<HostRequest>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes what is asked for, until the process ends.
pub(crate) fn follow(control_plane: ControlPlane, requests: Arc<HostRequests>) -> Result<(), Failure> {
    let run = move || {
        let mut clones = Clones { control_plane, idle: BTreeMap::new() };
        let mut next = Instant::now();
        loop {
            let asked = requests.take(next);
            if !asked.is_empty() {
                clones.answer(asked);
            }
            if Instant::now() >= next {
                clones.take_back();
                next = Instant::now() + INTERVAL;
            }
        }
    };
    thread::Builder::new().name("lunette-clones".into()).spawn(run).map(drop).map_err(Failure::no_thread)
}

struct Clones {
    control_plane: ControlPlane,
    /// The clones that no session uses, and since when.
    idle: BTreeMap<Place, Instant>,
}

/// The clones of pools, as they were looked up.
type Known = BTreeMap<Name, BTreeMap<CloneKey, Name>>;

impl Clones {
    /// Gives each initiator its clone and its host, or refuses its logins.
    fn answer(&self, asked: Vec<HostRequest>) {
        let config = self.control_plane.config();
        let (mut known, mut made, mut refused) = (Known::new(), Vec::new(), Vec::new());
        for request in asked {
            match self.make(&config, &request, &mut known) {
                Ok(given) => made.push((request, given)),
                Err(problem) => refused.push((request, problem.detail)),
            }
        }
        let new: Vec<Given> = made.iter().map(|(_, given)| given.clone()).collect();
        if let Err(failure) = self.control_plane.give(|config, given| add(config, given, new)) {
            let why = failure.to_string();
            refused.extend(made.into_iter().map(|(request, _)| (request, why.clone())));
        }
        self.refuse(refused);
    }

    /// Finds or makes the clone of an initiator.
    fn make(&self, config: &Config, request: &HostRequest, known: &mut Known) -> Result<Given, Problem> {
        let HostRequest { target, template, initiator } = request;
        let is_it = |name: &str, host: &str| is_same_name(name, target) && host == template;
        let found = config.templates().find(|(target, host, _)| is_it(&target.name, &host.name));
        let (target, host, of) = found.ok_or_else(|| Problem::not_found("template"))?;
        let volumes = self.control_plane.own_volumes();
        let clones = look_up(known, volumes, &of.pool)?;
        let (target, template) = (target.name.clone(), host.name.clone());
        let key = CloneKey { target, template, initiator: folded_name(initiator) };
        if !clones.contains_key(&key) {
            check_room(clones, &key, host.most_clones())?;
            let volume = volumes.make_clone(of, &key)?;
            tracing::info!(target = key.target, initiator = key.initiator, %volume, "cloned {of}");
            clones.insert(key.clone(), volume);
        }
        let volume = clones[&key].clone();
        let CloneKey { target, template, initiator } = key;
        Ok(Given { target, template, initiator, pool: of.pool.clone(), volume, number: 0 })
    }

    /// Refuses logins. The log has one line for all of them: they may come without end.
    fn refuse(&self, refused: Vec<(HostRequest, String)>) {
        if let Some((HostRequest { target, template, initiator }, why)) = refused.first() {
            let logins = refused.len();
            tracing::error!(target, host = template, initiator, logins, "refused, because there is no clone: {why}");
        }
        for (request, _) in refused {
            // A server that stops has no logins.
            let _ = self.control_plane.control().refuse_host(request);
        }
    }

    /// Takes back what no session uses any more, and removes the ephemeral clones whose time is over.
    fn take_back(&mut self) {
        let config = self.control_plane.config();
        let clones = self.clones(&config);
        if clones.is_empty() {
            return self.idle.clear();
        }
        let Ok(sessions) = self.control_plane.control().sessions() else { return };
        let now = Instant::now();
        let mut idle = BTreeMap::new();
        for (place, _) in clones.iter().filter(|(_, clone)| !sessions.iter().any(|session| clone.is_used(session))) {
            idle.insert(place.clone(), self.idle.get(place).copied().unwrap_or(now));
        }
        let is_over =
            |place: &Place, limit: Duration| idle.get(place).is_some_and(|since| now.duration_since(*since) >= limit);
        let has_gone = |given: &Given| {
            let place = (given.pool.clone(), given.volume.clone());
            // What a template that is gone has given is served no more.
            let limit = |clone: &Clone| clone.limit.map_or(GIVEN_LIMIT, |limit| limit.min(GIVEN_LIMIT));
            clones.get(&place).is_none_or(|clone| is_over(&place, limit(clone)))
        };
        if let Err(failure) = self.control_plane.give(|_, given| given.retain(|given| !has_gone(given))) {
            tracing::warn!("clones that no initiator uses are still served: {failure}");
        }
        let is_removed = |(place, clone): &(&Place, &Clone)| clone.limit.is_some_and(|limit| is_over(place, limit));
        for ((pool, volume), _) in clones.iter().filter(is_removed) {
            match self.control_plane.own_volumes().remove_clone(pool, volume) {
                Ok(()) => tracing::info!(%pool, %volume, "the clone is removed, because its initiator is gone"),
                // Its last command may not have ended; the next look tries again.
                Err(problem) => tracing::debug!(%pool, %volume, "the clone stays: {problem}"),
            }
        }
        self.idle = idle;
    }

    /// The clones that were given to initiators, and all ephemeral ones.
    fn clones(&self, config: &Config) -> BTreeMap<Place, Clone> {
        let given = self.control_plane.given();
        let (mut known, mut found) = (Known::new(), BTreeMap::new());
        for (target, host, of) in config.templates() {
            let limit = host.ephemeral.map(|Ephemeral(limit)| limit);
            let clone =
                |volume: &Name| Clone { target: target.name.clone(), host: host_name(&host.name, volume), limit };
            let own = given.iter().filter(|given| (&given.target, &given.template) == (&target.name, &host.name));
            found.extend(own.map(|given| ((given.pool.clone(), given.volume.clone()), clone(&given.volume))));
            if limit.is_none() {
                continue;
            }
            match look_up(&mut known, self.control_plane.own_volumes(), &of.pool) {
                Ok(clones) => {
                    let is_own = |key: &CloneKey| (&key.target, &key.template) == (&target.name, &host.name);
                    let own = clones.iter().filter(|(key, _)| is_own(key));
                    found.extend(own.map(|(_, volume)| ((of.pool.clone(), volume.clone()), clone(volume))));
                }
                Err(problem) => tracing::debug!(pool = %of.pool, "ephemeral clones are not looked for: {problem}"),
            }
        }
        found
    }
}

/// The pool and the name of a clone.
type Place = (Name, Name);

/// A clone, and the host that serves it.
struct Clone {
    target: String,
    host: String,
    /// The time for which it outlives its last session; `None` for one that is kept.
    limit: Option<Duration>,
}

impl Clone {
    fn is_used(&self, session: &SessionStatus) -> bool {
        session.host.as_ref() == Some(&self.host) && session.target.as_ref() == Some(&self.target)
    }
}

/// The clones of a pool, which is asked once.
fn look_up<'k>(
    known: &'k mut Known,
    volumes: &ServedVolumes,
    pool: &Name,
) -> Result<&'k mut BTreeMap<CloneKey, Name>, Problem> {
    match known.entry(pool.clone()) {
        Entry::Occupied(known) => Ok(known.into_mut()),
        Entry::Vacant(unknown) => Ok(unknown.insert(volumes.clones(pool)?)),
    }
}

/// Refuses one clone more of a template than there may be.
fn check_room(clones: &BTreeMap<CloneKey, Name>, key: &CloneKey, most: u32) -> Result<(), Problem> {
    let is_sibling = |other: &&CloneKey| (&other.target, &other.template) == (&key.target, &key.template);
    if clones.keys().filter(is_sibling).count() < most as usize {
        return Ok(());
    }
    let why = format!("the host has {most} clones already; raise its max_clones, or remove clones that are not needed");
    Err(Problem::conflict(why))
}

/// Adds what is new, each with a number of its own.
fn add(config: &Config, given: &mut Vec<Given>, new: Vec<Given>) {
    for one in new {
        let is_it =
            |other: &Given| (&other.target, &other.volume, &other.pool) == (&one.target, &one.volume, &one.pool);
        let Some(target) = config.target(&one.target).filter(|_| !given.iter().any(is_it)) else { continue };
        if let Some(number) = target.free_number(given) {
            given.push(Given { number, ..one });
        }
    }
}
