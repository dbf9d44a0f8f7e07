//! The thread of a gateway, and those that wait for the cluster in its place.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lunette_gateway::limits::{NOTIFY_TIMEOUT, PING_INTERVAL, RETRY_INTERVAL};
use lunette_gateway::{
    Access, Action, Answer, Event, Failed, Machine, Member, Publication, Request, RequestId, Stored,
};

use super::GatewayStore;
use crate::librbd::{SharedObject, Watcher};
use crate::limits::CLOSE_LIMIT;
use crate::{OpenError, RbdStore, RbdUrl};

pub(super) type Publish = Box<dyn FnMut(&Publication, Box<dyn FnOnce() + Send>) + Send>;

pub(super) type Answered = Box<dyn FnOnce(Answer) + Send>;

/// The messages to the thread of a gateway.
pub(super) enum Told {
    Event(Event),
    Notified { id: u64, cookie: u64, version: u64, from: Option<Member> },
    Opened(Option<(Arc<RbdStore>, Arc<str>)>),
    Asked(Request, Answered),
    End,
}

/// Something that waits for the cluster.
type Work = Box<dyn FnOnce() + Send>;

/// A thread for one kind of work.
struct Worker(Sender<Work>);

impl Worker {
    /// Starts the thread, which has `alive` until it ends.
    fn start(name: &str, alive: &Sender<Infallible>) -> io::Result<Self> {
        let (sender, work) = channel::<Work>();
        let alive = alive.clone();
        let run = move || {
            for work in work {
                work();
            }
            drop(alive);
        };
        thread::Builder::new().name(format!("lunette-{name}")).spawn(run)?;
        Ok(Self(sender))
    }

    fn work(&self, work: impl FnOnce() + Send + 'static) {
        // The thread ends only when this sender is gone.
        let _ = self.0.send(Box::new(work));
    }
}

pub(super) struct Driver {
    machine: Machine,
    began: Instant,
    url: RbdUrl,
    object: Arc<SharedObject>,
    store: Arc<GatewayStore>,
    /// The image, when it is open: this gateway may not have its lock.
    image: Option<(Arc<RbdStore>, Arc<str>)>,
    /// The client that this gateway has put on the blocklist, until it has the image.
    fenced: Arc<Mutex<Option<Arc<str>>>>,
    has_told_loss: bool,
    told: Sender<Told>,
    publish: Publish,
    access: Option<Access>,
    answers: HashMap<RequestId, Answered>,
    next_request: RequestId,
    /// The watch by which each notify has come.
    cookies: HashMap<u64, u64>,
    watching: Worker,
    storing: Worker,
    notifying: Worker,
    acknowledging: Worker,
    fencing: Worker,
    opening: Worker,
}

impl Driver {
    pub(super) fn new(
        member: Member,
        object: Arc<SharedObject>,
        store: Arc<GatewayStore>,
        told: Sender<Told>,
        publish: Publish,
        alive: &Sender<Infallible>,
    ) -> io::Result<Self> {
        Ok(Self {
            machine: Machine::new(member),
            began: Instant::now(),
            url: store.url().clone(),
            object,
            store,
            image: None,
            fenced: Arc::default(),
            has_told_loss: false,
            told,
            publish,
            access: None,
            answers: HashMap::new(),
            next_request: 0,
            cookies: HashMap::new(),
            watching: Worker::start("watch", alive)?,
            storing: Worker::start("object", alive)?,
            notifying: Worker::start("notify", alive)?,
            acknowledging: Worker::start("ack", alive)?,
            fencing: Worker::start("fence", alive)?,
            opening: Worker::start("image", alive)?,
        })
    }

    /// How long to wait when nothing is told.
    pub(super) fn patience(&self) -> Duration {
        let timer = self.machine.next_timer().map(|at| at.saturating_sub(self.began.elapsed()));
        timer.unwrap_or(PING_INTERVAL).clamp(Duration::from_millis(1), PING_INTERVAL)
    }

    pub(super) fn take(&mut self, told: Told) {
        match told {
            Told::Event(event) => self.handle(event),
            Told::Notified { id, cookie, from, .. } if from == Some(self.machine.me()) => {
                self.acknowledge(id, cookie, self.machine.me());
            }
            Told::Notified { id, cookie, version, .. } => {
                self.cookies.insert(id, cookie);
                self.handle(Event::Notified { id, version });
            }
            Told::Opened(image) => {
                let client = image.as_ref().map(|(_, client)| Arc::clone(client));
                self.image = image;
                self.has_told_loss = false;
                self.handle(Event::Opened(client));
            }
            Told::Asked(request, answered) => {
                self.next_request += 1;
                self.answers.insert(self.next_request, answered);
                self.handle(Event::Asked(self.next_request, request));
            }
            Told::End => (),
        }
    }

    /// Brings the machine an event, and does what it asks for.
    pub(super) fn handle(&mut self, event: Event) {
        self.machine.handle(self.began.elapsed(), event);
        let is_lost = self.image.as_ref().is_some_and(|(image, _)| image.is_shut_out());
        if is_lost && !self.has_told_loss {
            self.has_told_loss = true;
            tracing::warn!(image = %self.url, "this gateway was shut out of an image, by another one or by the administrator");
            self.machine.handle(self.began.elapsed(), Event::ImageLost);
        }
        while let Some(action) = self.machine.next_action() {
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Watch => self.watch(),
            Action::Read => {
                let (object, url) = (Arc::clone(&self.object), self.url.clone());
                self.work(&self.storing, move || {
                    let read = super::read(&object);
                    Event::Read(read.map_err(|error| {
                        tracing::warn!(image = %url, %error, "what the gateways have in common cannot be read");
                        Failed
                    }))
                });
            }
            Action::Store { expected, value } => {
                let (object, url) = (Arc::clone(&self.object), self.url.clone());
                self.work(&self.storing, move || {
                    Event::Stored(match super::store(&object, expected, &value) {
                        Ok(true) => Stored::Done,
                        Ok(false) => Stored::Outdated,
                        Err(error) => {
                            tracing::warn!(image = %url, %error, "what the gateways have in common cannot be written");
                            Stored::Failed
                        }
                    })
                });
            }
            Action::Notify { version } => {
                let (object, payload) = (Arc::clone(&self.object), payload(version, Some(self.machine.me())));
                self.work(&self.notifying, move || {
                    let acknowledged = object.notify(&payload, NOTIFY_TIMEOUT);
                    let members = |all: Vec<Vec<u8>>| all.iter().filter_map(|bytes| decode(bytes)?.1).collect();
                    Event::Acknowledged(acknowledged.ok().map(members))
                });
            }
            Action::Acknowledge { id, member } => {
                if let Some(cookie) = self.cookies.remove(&id) {
                    self.acknowledge(id, cookie, member);
                }
            }
            Action::Blocklist { client } => {
                tracing::warn!(image = %self.url, %client, "a gateway does not answer: its client goes on the blocklist");
                let (object, fenced) = (Arc::clone(&self.object), Arc::clone(&self.fenced));
                self.work(&self.fencing, move || {
                    let listed = object.blocklist(&client);
                    match &listed {
                        Ok(()) => *fenced.lock().unwrap_or_else(PoisonError::into_inner) = Some(client),
                        Err(error) => tracing::error!(%client, %error, "a client could not be put on the blocklist"),
                    }
                    Event::Blocklisted(listed.is_ok())
                });
            }
            Action::Open => self.open(),
            Action::Lock => self.lock(),
            Action::Close => self.close(),
            Action::Publish(publication) => self.publish(&publication),
            Action::Answer(id, answer) => {
                if let Some(answered) = self.answers.remove(&id) {
                    answered(answer);
                }
            }
        }
    }

    fn work(&self, worker: &Worker, work: impl FnOnce() -> Event + Send + 'static) {
        let told = self.told.clone();
        // A driver that has ended needs no result.
        worker.work(move || drop(told.send(Told::Event(work()))));
    }

    fn watch(&self) {
        let (object, told) = (Arc::clone(&self.object), self.told.clone());
        self.work(&self.watching, move || match object.watch(Box::new(Teller(told))) {
            Ok(()) => Event::Watched,
            Err(error) => {
                tracing::warn!(%error, "what the gateways have in common cannot be watched");
                thread::sleep(RETRY_INTERVAL);
                Event::WatchLost
            }
        });
    }

    fn acknowledge(&self, id: u64, cookie: u64, member: Member) {
        let object = Arc::clone(&self.object);
        self.acknowledging.work(move || {
            if let Err(error) = object.acknowledge(id, cookie, &payload(0, Some(member))) {
                tracing::debug!(%error, "a notify could not be acknowledged");
            }
        });
    }

    fn open(&self) {
        let (url, told, is_exact) = (self.url.clone(), self.told.clone(), self.store.is_exact());
        self.opening.work(move || {
            let opened = RbdStore::open_unlocked(&url).and_then(|image| {
                let client = image.client().map_err(OpenError::Image)?;
                Ok((Arc::new(if is_exact { image.exact() } else { image }), Arc::from(client)))
            });
            let opened = opened.inspect_err(|error| tracing::error!(image = %url, %error, "an image cannot be opened"));
            drop(told.send(Told::Opened(opened.ok())));
        });
    }

    fn lock(&self) {
        let Some((image, _)) = self.image.clone() else { return };
        let (store, fenced) = (Arc::clone(&self.store), Arc::clone(&self.fenced));
        self.work(&self.opening, move || {
            let client = fenced.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let locked = image.take_over(client.as_deref());
            match &locked {
                Ok(()) => {
                    // Another client that was fenced meanwhile stays.
                    fenced
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .take_if(|fenced| client.as_ref() == Some(fenced));
                    store.give(&image);
                }
                Err(error) => tracing::error!(image = %image.url(), %error, "an image cannot be locked"),
            }
            Event::Locked(locked.is_ok())
        });
    }

    fn close(&mut self) {
        let (image, object) = (self.image.take(), Arc::clone(&self.object));
        self.store.take();
        self.work(&self.opening, move || {
            if let Some((image, client)) = image {
                let closer = image.closer();
                drop(image);
                if let Err(error) = closer.close(CLOSE_LIMIT) {
                    tracing::warn!(%error, "an image does not close: its own client goes on the blocklist");
                    while let Err(error) = object.blocklist(&client) {
                        tracing::error!(%error, "a client could not be put on the blocklist");
                        thread::sleep(RETRY_INTERVAL);
                    }
                    // In librbd 16.2 a request may never end that came in the moment of the blocklisting. Its initiator
                    // could not log in again.
                    closer.abandon();
                }
            }
            Event::Closed
        });
    }

    fn publish(&mut self, publication: &Publication) {
        if self.access.replace(publication.access) != Some(publication.access) {
            let version = publication.value.version;
            tracing::info!(image = %self.url, access = ?publication.access, version, "this gateway has changed its access");
        }
        let told = self.told.clone();
        // A driver that has ended needs no answer.
        let published = Box::new(move || drop(told.send(Told::Event(Event::Published))));
        (self.publish)(publication, published);
    }
}

/// Tells the thread of a gateway what a watch tells.
struct Teller(Sender<Told>);

impl Watcher for Teller {
    fn notified(&self, id: u64, cookie: u64, payload: &[u8]) {
        // What is not of a gateway is acknowledged as a notify that knows nothing.
        let (version, from) = decode(payload).unwrap_or((0, None));
        let _ = self.0.send(Told::Notified { id, cookie, version, from });
    }

    fn lost(&self) {
        let _ = self.0.send(Told::Event(Event::WatchLost));
    }
}

/// The payload of a notify and of its acknowledgement: version, group and incarnation, big-endian; group 0 for none.
pub(super) fn payload(version: u64, member: Option<Member>) -> Vec<u8> {
    let Member { group, incarnation } = member.unwrap_or(Member { group: 0, incarnation: 0 });
    [&version.to_be_bytes()[..], &group.to_be_bytes(), &incarnation.to_be_bytes()].concat()
}

fn decode(bytes: &[u8]) -> Option<(u64, Option<Member>)> {
    let (version, rest) = bytes.split_first_chunk()?;
    let (group, rest) = rest.split_first_chunk()?;
    let (group, incarnation) = (u16::from_be_bytes(*group), u64::from_be_bytes(rest.try_into().ok()?));
    Some((u64::from_be_bytes(*version), (group != 0).then_some(Member { group, incarnation })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_notify_carries_is_read_again() {
        let member = Member { group: 2, incarnation: u64::MAX };
        for member in [None, Some(member)] {
            assert_eq!(decode(&payload(7, member)), Some((7, member)));
        }
        assert_eq!(decode(&[0; 17]), None);
        assert_eq!(decode(&[0; 19]), None);
    }
}
