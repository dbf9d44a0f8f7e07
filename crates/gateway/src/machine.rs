//! One gateway of a disk.

mod change;
mod event;
mod requests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::limits::{MAX_PENDING_NOTIFIES, NOTIFY_TIMEOUT, PING_INTERVAL, RETRY_INTERVAL};
use crate::{Member, Owner, Value};
pub use event::{Access, Action, Answer, Event, Failed, Publication, Request, RequestId, Stored};
use requests::Requests;

/// One gateway of a disk.
#[derive(Debug)]
pub struct Machine {
    me: Member,
    /// Whether the value that was known before had this gateway as a member.
    is_member: bool,
    now: Duration,
    actions: VecDeque<Action>,
    watch: Watch,
    /// Since when a member that does not acknowledge a notify is gone: a while after a watch that was lost is made
    /// again.
    absences_count_from: Duration,
    /// The value as it was last read or stored; `None` before the first time.
    value: Option<Arc<Value>>,
    /// The value may be another one by now, as far as this gateway knows.
    is_outdated: bool,
    /// Reads and stores, one at a time.
    object: Lane,
    /// The value that is being stored, and the request that it is for.
    storing: Option<(Arc<Value>, Option<RequestId>)>,
    notifier: Notifier,
    /// Notifies of others that wait until their version is published: their numbers and versions.
    notified: VecDeque<(u64, u64)>,
    /// Members that have not acknowledged a notify.
    gone: BTreeSet<Member>,
    blocklist: Lane,
    /// The last client that was put on the blocklist.
    blocklisted: Option<Arc<str>>,
    image: Image,
    image_lane: Lane,
    /// The image could not be opened or locked: another gateway may try.
    has_failed: bool,
    publisher: Publisher,
    requests: Requests,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watch {
    Lost,
    Asked,
    Held,
}

/// The image, as this gateway has it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Image {
    Closed,
    /// An action on it has not ended.
    Busy,
    /// Without its lock.
    Open(Arc<str>),
    Locked(Arc<str>),
}

/// Actions that are asked for one at a time.
#[derive(Debug, Default)]
struct Lane {
    is_busy: bool,
    not_before: Duration,
}

impl Lane {
    fn is_ready(&self, now: Duration) -> bool {
        !self.is_busy && now >= self.not_before
    }

    fn end(&mut self, now: Duration, is_well: bool) {
        self.is_busy = false;
        self.not_before = if is_well { now } else { now + RETRY_INTERVAL };
    }

    /// When it becomes ready by itself.
    fn timer(&self, now: Duration) -> Option<Duration> {
        Some(self.not_before).filter(|at| !self.is_busy && *at > now)
    }
}

/// The notifies of this gateway.
#[derive(Debug, Default)]
struct Notifier {
    lane: Lane,
    /// Whether this gateway has stored news that no other gateway knows.
    has_news: bool,
    asked: Option<Asked>,
    /// The newest version that each member has acknowledged.
    acknowledged: BTreeMap<Member, u64>,
}

/// The notify under way.
#[derive(Debug)]
struct Asked {
    version: u64,
    /// The others, which have to acknowledge it.
    members: BTreeSet<Member>,
    /// Whether a member that does not acknowledge it is gone. When an OSD stands still, all watches end, and each
    /// gateway makes its own again in its own time.
    tells_absence: bool,
}

/// The knowledge of the device server.
#[derive(Debug, Default)]
struct Publisher {
    asked: Option<(u64, Access)>,
    published: Option<(u64, Access)>,
}

impl Machine {
    /// A gateway that is not a member yet. Its first action follows its first event.
    pub fn new(me: Member) -> Self {
        Self {
            me,
            is_member: false,
            now: Duration::ZERO,
            actions: VecDeque::new(),
            watch: Watch::Lost,
            absences_count_from: Duration::ZERO,
            value: None,
            is_outdated: true,
            object: Lane::default(),
            storing: None,
            notifier: Notifier::default(),
            notified: VecDeque::new(),
            gone: BTreeSet::new(),
            blocklist: Lane::default(),
            blocklisted: None,
            image: Image::Closed,
            image_lane: Lane::default(),
            has_failed: false,
            publisher: Publisher::default(),
            requests: Requests::default(),
        }
    }

    /// The next action for the driver.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When an [`Event::Time`] is due.
    pub fn next_timer(&self) -> Option<Duration> {
        let lanes = [&self.object, &self.notifier.lane, &self.blocklist, &self.image_lane];
        lanes.iter().filter_map(|lane| lane.timer(self.now)).min()
    }

    /// The value as this gateway knows it.
    pub fn value(&self) -> Option<&Arc<Value>> {
        self.value.as_ref()
    }

    /// The member that this gateway is.
    pub fn me(&self) -> Member {
        self.me
    }

    /// Something has happened at `now`, which never goes back.
    pub fn handle(&mut self, now: Duration, event: Event) {
        self.now = self.now.max(now);
        self.take(event);
        self.learn();
        self.publish();
        self.acknowledge();
        self.answer();
        self.keep_watch();
        self.use_object();
        self.fence();
        self.use_image();
        self.notify();
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Time => (),
            Event::Watched => {
                self.watch = Watch::Held;
                if self.absences_count_from == Duration::MAX {
                    self.absences_count_from = self.now + NOTIFY_TIMEOUT;
                }
            }
            Event::WatchLost => {
                self.watch = Watch::Lost;
                self.absences_count_from = Duration::MAX;
                self.is_outdated = true;
            }
            Event::Read(read) => self.read(read),
            Event::Stored(stored) => self.stored(stored),
            Event::Notified { id, version } => {
                if self.notified.len() < MAX_PENDING_NOTIFIES {
                    self.notified.push_back((id, version));
                }
                self.is_outdated |= self.value.as_ref().is_none_or(|value| value.version < version);
            }
            Event::Acknowledged(by) => self.notifier_ended(by),
            Event::Blocklisted(is_well) => {
                self.blocklist.end(self.now, is_well);
                if !is_well {
                    self.blocklisted = None;
                }
            }
            Event::Opened(client) => {
                self.image_ended(client.is_some());
                self.image = client.map_or(Image::Closed, Image::Open);
            }
            Event::Locked(is_well) => {
                self.image_ended(is_well);
                self.image = match (is_well, self.owner_of_mine()) {
                    (true, Some(owner)) => Image::Locked(Arc::clone(&owner.client)),
                    // It stays open, and is closed because it is of no use.
                    (_, owner) => Image::Open(owner.map_or_else(|| "".into(), |owner| Arc::clone(&owner.client))),
                };
            }
            Event::Closed => {
                self.image_lane.is_busy = false;
                self.image = Image::Closed;
            }
            Event::ImageLost => {
                self.is_outdated = true;
                self.has_failed = true;
                self.image_lane.not_before = self.now + RETRY_INTERVAL;
            }
            Event::Published => {
                if let Some(published) = self.publisher.asked.take() {
                    self.publisher.published = Some(published);
                }
            }
            Event::Asked(id, request) => self.ask(id, request),
        }
    }

    fn image_ended(&mut self, is_well: bool) {
        self.image_lane.end(self.now, is_well);
        self.has_failed |= !is_well;
    }

    fn read(&mut self, read: Result<Option<Arc<Value>>, Failed>) {
        self.object.end(self.now, read.is_ok());
        let Ok(value) = read else {
            self.is_outdated = true;
            return;
        };
        let value = value.unwrap_or_else(|| Arc::new(Value::empty()));
        self.requests.read_ended(&value, self.me);
        self.value = Some(value);
    }

    fn stored(&mut self, stored: Stored) {
        self.object.end(self.now, stored != Stored::Failed);
        let Some((value, request)) = self.storing.take() else { return };
        if stored != Stored::Done {
            self.is_outdated = true;
            if let (Stored::Failed, Some(id)) = (stored, request) {
                self.requests.is_unknown(id, &mut self.actions);
            }
            return;
        }
        if let Some(id) = request {
            self.requests.stored(id, &value, self.me);
        }
        self.value = Some(value);
        self.notifier.has_news = true;
    }

    fn notifier_ended(&mut self, by: Option<Vec<Member>>) {
        let notifier = &mut self.notifier;
        notifier.lane.is_busy = false;
        notifier.lane.not_before = self.now + PING_INTERVAL;
        let (Some(Asked { version, members, tells_absence }), Some(by)) = (notifier.asked.take(), by) else { return };
        // Without this gateway's own acknowledgement its watch has ended meanwhile, and perhaps those of all others.
        let tells_absence = tells_absence && self.now >= self.absences_count_from && by.contains(&self.me);
        for member in members {
            if by.contains(&member) {
                self.gone.remove(&member);
                let newest = notifier.acknowledged.entry(member).or_default();
                *newest = version.max(*newest);
            } else if tells_absence {
                self.gone.insert(member);
            }
        }
    }

    /// Forgets what the value has made worthless.
    fn learn(&mut self) {
        let Some(value) = &self.value else { return };
        let was_member = std::mem::replace(&mut self.is_member, value.has(self.me));
        if was_member && !self.is_member {
            // It has been removed. What others still wait for or hear of the member that it was is of no use to the one
            // that it becomes.
            self.me.incarnation = self.me.incarnation.wrapping_add(1);
        }
        let holds = |wanted: Option<u16>, owner: Option<&Owner>| {
            owner.is_some_and(|owner| owner.member == self.me) || owner.is_none() && wanted == Some(self.me.group)
        };
        if self.image == Image::Closed && self.now >= self.image_lane.not_before {
            self.has_failed &= holds(value.wanted, value.owner.as_ref());
        }
        self.gone.retain(|member| value.has(*member));
        self.notifier.acknowledged.retain(|member, _| value.has(*member));
        self.requests.learn(value, &self.notifier.acknowledged);
    }

    /// The entry of the owner, when it is this gateway.
    fn owner_of_mine(&self) -> Option<&Owner> {
        self.value.as_ref()?.owner.as_ref().filter(|owner| owner.member == self.me)
    }

    /// How commands may use the disk through this gateway.
    fn access(&self, value: &Value) -> Access {
        let is_mine = matches!(&self.image, Image::Locked(client) if value.is_owned(self.me, client));
        match value.access(self.me.group) {
            _ if !value.has(self.me) => Access::Standby,
            Access::Active if !is_mine || self.has_failed || self.requests.is_leaving() => Access::Transitioning,
            access => access,
        }
    }

    fn publish(&mut self) {
        let Some(value) = &self.value else { return };
        let (value, access) = (Arc::clone(value), self.access(value));
        let now = Some((value.version, access));
        if self.publisher.asked.is_some() || self.publisher.published == now {
            return;
        }
        self.publisher.asked = now;
        self.actions.push_back(Action::Publish(Publication { value, access }));
    }

    /// The version that the device server knows.
    fn published(&self) -> u64 {
        self.publisher.published.map_or(0, |(version, _)| version)
    }

    fn acknowledge(&mut self) {
        let published = self.published();
        let actions = &mut self.actions;
        let me = self.me;
        self.notified.retain(|(id, version)| {
            let is_known = *version <= published;
            if is_known {
                actions.push_back(Action::Acknowledge { id: *id, member: me });
            }
            !is_known
        });
    }

    fn answer(&mut self) {
        let Some(value) = &self.value else { return };
        let has_left = self.requests.is_leaving()
            && !value.has(self.me)
            && !self.notifier.has_news
            && self.notifier.asked.is_none();
        let published = self.published();
        self.requests.answer(value, published, has_left, &mut self.actions);
    }

    fn keep_watch(&mut self) {
        if self.watch == Watch::Lost {
            self.watch = Watch::Asked;
            self.actions.push_back(Action::Watch);
        }
    }

    /// Reads, or stores the next change. Both only under watch, so that no later change is missed.
    fn use_object(&mut self) {
        if self.watch != Watch::Held || !self.object.is_ready(self.now) {
            return;
        }
        let is_member = self.value.as_ref().is_some_and(|value| value.has(self.me));
        if self.is_outdated || is_member && self.requests.wants_read() {
            self.object.is_busy = true;
            // A notify that comes from now on may tell of something that the read does not find.
            self.is_outdated = false;
            self.requests.read_begins();
            return self.actions.push_back(Action::Read);
        }
        let Some((next, request)) = self.next_value() else { return };
        let (next, expected) = (Arc::new(next), self.value.as_ref().map_or(0, |value| value.version));
        self.object.is_busy = true;
        self.storing = Some((Arc::clone(&next), request));
        self.actions.push_back(Action::Store { expected, value: next });
    }

    /// The owner, when it has to be kept from writing before anything else can go on.
    fn owner_to_fence(&self) -> Option<&Owner> {
        let value = self.value.as_ref()?;
        let owner = value.owner.as_ref()?;
        let is_gone = self.gone.contains(&owner.member) || !value.has(owner.member);
        let is_fenced = self.blocklisted.as_ref() == Some(&owner.client) && !self.blocklist.is_busy;
        Some(owner).filter(|_| is_gone && !is_fenced)
    }

    fn fence(&mut self) {
        if self.blocklist.is_ready(self.now)
            && let Some(client) = self.owner_to_fence().map(|owner| Arc::clone(&owner.client))
        {
            self.blocklist.is_busy = true;
            self.blocklisted = Some(Arc::clone(&client));
            self.actions.push_back(Action::Blocklist { client });
        }
    }

    fn use_image(&mut self) {
        let Some(value) = &self.value else { return };
        let is_called = value.has(self.me) && !self.has_failed && !self.requests.is_leaving();
        let is_wanted = is_called && value.wanted.is_none_or(|wanted| wanted == self.me.group);
        let is_free = value.owner.is_none() && value.wanted == Some(self.me.group);
        let action = match &self.image {
            Image::Closed if is_wanted && is_free && self.image_lane.is_ready(self.now) => Action::Open,
            Image::Open(client) if is_wanted && value.takes(self.me, client) => Action::Lock,
            Image::Open(_) if is_wanted && is_free => return,
            Image::Locked(client) if is_wanted && value.takes(self.me, client) => return,
            Image::Open(_) | Image::Locked(_) => Action::Close,
            Image::Closed | Image::Busy => return,
        };
        self.image = Image::Busy;
        self.image_lane.is_busy = true;
        self.actions.push_back(action);
    }

    fn notify(&mut self) {
        let Some(value) = &self.value else { return };
        let is_due = self.notifier.has_news && !self.notifier.lane.is_busy;
        if self.watch != Watch::Held || !is_due && !self.notifier.lane.is_ready(self.now) {
            return;
        }
        let others: BTreeSet<Member> = value.members().filter(|member| *member != self.me).collect();
        self.notifier.has_news = false;
        if others.is_empty() {
            self.notifier.lane.not_before = self.now + PING_INTERVAL;
            return self.answer();
        }
        self.notifier.lane.is_busy = true;
        let tells_absence = self.now >= self.absences_count_from;
        self.notifier.asked = Some(Asked { version: value.version, members: others, tells_absence });
        self.actions.push_back(Action::Notify { version: value.version });
    }
}
