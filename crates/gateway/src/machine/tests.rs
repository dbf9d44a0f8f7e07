//! Single steps. The simulator (`sim/src/gateways`) runs whole clusters of machines.

use super::*;
use crate::limits::NOTIFY_TIMEOUT;
use crate::{Entry, Value};

const ME: Member = Member { group: 1, incarnation: 7 };
const OTHER: Member = Member { group: 2, incarnation: 9 };

/// A machine, and its object.
struct Driven {
    machine: Machine,
    object: Option<Arc<Value>>,
    now: Duration,
    /// Actions that are not those of the object and of publications.
    rest: Vec<Action>,
    /// The next store is done, but the machine does not hear of it.
    store_is_not_known: bool,
}

impl Driven {
    fn new(object: Option<Value>) -> Self {
        let mut driven = Self {
            machine: Machine::new(ME),
            object: object.map(Arc::new),
            now: Duration::ZERO,
            rest: Vec::new(),
            store_is_not_known: false,
        };
        driven.tell(Event::Time);
        driven
    }

    /// Brings an event, and does at once what concerns the object and the device server.
    fn tell(&mut self, event: Event) {
        self.machine.handle(self.now, event);
        while let Some(action) = self.machine.next_action() {
            let event = match action {
                Action::Watch => Event::Watched,
                Action::Read => Event::Read(Ok(self.object.clone())),
                Action::Store { expected, value } => {
                    assert_eq!(expected, self.object.as_ref().map_or(0, |object| object.version));
                    self.object = Some(value);
                    let is_not_known = std::mem::take(&mut self.store_is_not_known);
                    Event::Stored(if is_not_known { Stored::Failed } else { Stored::Done })
                }
                Action::Publish(_) => Event::Published,
                other => {
                    self.rest.push(other);
                    continue;
                }
            };
            self.machine.handle(self.now, event);
        }
    }

    fn value(&self) -> &Value {
        self.object.as_ref().expect("there is an object")
    }

    fn rest(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.rest)
    }

    /// Lets these members acknowledge what there is to tell. Nothing is under way then.
    fn settle(&mut self, by: &[Member]) {
        while self.rest().iter().any(|action| matches!(action, Action::Notify { .. })) {
            self.tell(Event::Acknowledged(Some(by.to_vec())));
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.tell(Event::Time);
    }

    /// Lets the machine take the image that it has asked for.
    fn take_image(&mut self) {
        assert!(self.rest().contains(&Action::Open));
        self.tell(Event::Opened(Some("me".into())));
        assert!(self.rest().contains(&Action::Lock));
        assert_eq!(self.value().access(ME.group), Access::Transitioning);
        self.tell(Event::Locked(true));
        assert_eq!(self.value().access(ME.group), Access::Active);
    }
}

fn owned_by(member: Member, members: &[Member]) -> Value {
    let members = members.iter().map(|member| (member.group, member.incarnation)).collect();
    let owner = Some(Owner { member, client: "other".into(), is_active: true });
    Value { version: 5, members, owner, ..Value::empty() }
}

fn update(base: u64) -> Request {
    Request::Update { base, name: "a".into(), entry: Some(Entry { bytes: [1].into(), survives: true }) }
}

#[test]
fn the_first_gateway_takes_the_image() {
    let mut driven = Driven::new(None);
    driven.take_image();
    assert_eq!(driven.value().owner.as_ref().map(|owner| (owner.member, &*owner.client)), Some((ME, "me")));
}

#[test]
fn an_owner_that_is_gone_is_fenced_before_it_is_removed() {
    let mut driven = Driven::new(Some(owned_by(OTHER, &[OTHER])));
    assert!(matches!(driven.rest()[..], [Action::Notify { .. }]));
    driven.pass(NOTIFY_TIMEOUT);
    driven.tell(Event::Acknowledged(Some(vec![ME])));
    assert!(driven.rest().contains(&Action::Blocklist { client: "other".into() }));
    assert!(driven.value().has(OTHER));
    driven.tell(Event::Blocklisted(true));
    assert!(!driven.value().has(OTHER));
    driven.take_image();
}

#[test]
fn the_end_of_all_watches_makes_no_gateway_gone() {
    let mut driven = Driven::new(Some(owned_by(OTHER, &[OTHER])));
    assert!(matches!(driven.rest()[..], [Action::Notify { .. }]));
    // The notify ends at once, since nothing watches any more.
    driven.tell(Event::Acknowledged(Some(Vec::new())));
    driven.tell(Event::WatchLost);
    driven.pass(PING_INTERVAL);
    assert!(matches!(driven.rest()[..], [Action::Notify { .. }]));
    // This gateway watches again, and the other one does not yet.
    driven.tell(Event::Acknowledged(Some(vec![ME])));
    assert_eq!(driven.rest(), []);
    driven.pass(NOTIFY_TIMEOUT);
    driven.tell(Event::Acknowledged(Some(vec![ME])));
    assert!(driven.rest().contains(&Action::Blocklist { client: "other".into() }), "it had its time");
}

#[test]
fn a_blocklist_that_fails_is_tried_again_and_nothing_moves() {
    let mut driven = Driven::new(Some(owned_by(OTHER, &[OTHER])));
    driven.tell(Event::Acknowledged(Some(vec![ME])));
    driven.tell(Event::Blocklisted(false));
    driven.rest();
    assert!(driven.value().has(OTHER));
    driven.pass(RETRY_INTERVAL);
    assert!(driven.rest().contains(&Action::Blocklist { client: "other".into() }));
}

#[test]
fn the_owner_gives_up_when_another_one_is_wanted_and_nothing_is_under_way() {
    let mut driven = Driven::new(None);
    driven.take_image();
    let mut value = driven.value().clone();
    value.members.insert(OTHER.group, OTHER.incarnation);
    driven.object = Some(Arc::new(Value { version: value.version + 1, wanted: Some(OTHER.group), ..value }));
    let version = driven.value().version;
    driven.rest();
    driven.tell(Event::Notified { id: 3, version });
    assert!(driven.rest().contains(&Action::Close));
    assert_eq!(driven.value().access(ME.group), Access::Transitioning);
    driven.tell(Event::Closed);
    assert_eq!((driven.value().owner.as_ref(), driven.value().wanted), (None, Some(OTHER.group)));
}

#[test]
fn an_update_is_answered_when_all_have_acknowledged_it() {
    let mut driven = Driven::new(Some(owned_by(OTHER, &[OTHER])));
    driven.settle(&[OTHER]);
    driven.tell(Event::Asked(1, update(driven.value().version - 1)));
    assert_eq!(driven.rest(), [Action::Answer(1, Answer::Changed)]);
    driven.tell(Event::Asked(2, update(driven.value().version)));
    let version = driven.value().version;
    assert_eq!(driven.rest(), [Action::Notify { version }]);
    driven.tell(Event::Acknowledged(Some(vec![OTHER])));
    assert_eq!(driven.rest(), [Action::Answer(2, Answer::Done)]);
}

#[test]
fn an_update_of_whose_store_nothing_is_known_ends_and_is_not_made_again() {
    let mut driven = Driven::new(Some(owned_by(OTHER, &[OTHER])));
    driven.settle(&[OTHER]);
    let base = driven.value().version;
    driven.store_is_not_known = true;
    driven.tell(Event::Asked(1, update(base)));
    assert!(driven.rest().contains(&Action::Answer(1, Answer::Refused)));
    assert_eq!(driven.value().version, base + 1);
    driven.pass(crate::limits::RETRY_INTERVAL);
    driven.settle(&[OTHER]);
    assert_eq!(driven.value().version, base + 1);
}

#[test]
fn an_update_waits_for_the_fence_of_an_owner_that_does_not_acknowledge_it() {
    let mut driven = Driven::new(Some(owned_by(OTHER, &[OTHER])));
    driven.settle(&[ME, OTHER]);
    driven.tell(Event::Asked(1, update(driven.value().version)));
    driven.rest();
    driven.tell(Event::Acknowledged(Some(vec![ME])));
    let rest = driven.rest();
    assert!(rest.contains(&Action::Blocklist { client: "other".into() }));
    assert!(!rest.contains(&Action::Answer(1, Answer::Done)));
    driven.tell(Event::Blocklisted(true));
    assert!(driven.rest().contains(&Action::Answer(1, Answer::Done)));
}

#[test]
fn a_confirm_needs_a_read_that_began_after_it() {
    let mut driven = Driven::new(None);
    driven.rest();
    driven.machine.handle(driven.now, Event::Notified { id: 1, version: 99 });
    assert_eq!(driven.machine.next_action(), Some(Action::Read));
    driven.machine.handle(driven.now, Event::Asked(4, Request::Confirm));
    driven.machine.handle(driven.now, Event::Read(Ok(driven.object.clone())));
    assert_eq!(driven.machine.next_action(), Some(Action::Read), "the first read began before the request");
    driven.tell(Event::Read(Ok(driven.object.clone())));
    assert!(driven.rest().contains(&Action::Answer(4, Answer::Done)));
}

#[test]
fn the_first_member_drops_what_does_not_survive() {
    let entry = |survives| Entry { bytes: [1].into(), survives };
    let entries = [("gone".into(), entry(false)), ("kept".into(), entry(true))].into();
    let driven = Driven::new(Some(Value { version: 3, entries, ..Value::empty() }));
    assert_eq!(driven.value().entries.keys().map(|name| &**name).collect::<Vec<_>>(), ["kept"]);
}

#[test]
fn a_removed_gateway_joins_as_another_member() {
    let mut driven = Driven::new(None);
    driven.take_image();
    let value = driven.value().clone();
    let members = [(OTHER.group, OTHER.incarnation)].into();
    driven.object = Some(Arc::new(Value { version: value.version + 1, members, owner: None, ..value }));
    driven.rest();
    driven.tell(Event::Notified { id: 3, version: driven.value().version });
    assert!(driven.rest().contains(&Action::Close));
    driven.tell(Event::Closed);
    assert!(!driven.value().has(ME) && driven.value().has(driven.machine.me()));
    assert_eq!(driven.machine.me().group, ME.group);
}

#[test]
fn a_group_that_answers_is_not_taken_over() {
    let twin = Member { group: ME.group, incarnation: 1 };
    let mut driven = Driven::new(Some(owned_by(twin, &[twin])));
    driven.tell(Event::Acknowledged(Some(vec![twin])));
    driven.pass(Duration::from_secs(1));
    driven.tell(Event::Acknowledged(Some(vec![twin])));
    assert!(driven.value().has(twin));
}

#[test]
fn a_gateway_that_leaves_frees_the_image_first() {
    let mut driven = Driven::new(None);
    driven.take_image();
    driven.rest();
    driven.tell(Event::Asked(1, Request::Leave));
    assert_eq!(driven.rest(), [Action::Close]);
    driven.tell(Event::Closed);
    assert!(driven.value().members.is_empty() && driven.value().owner.is_none());
    assert_eq!(driven.rest(), [Action::Answer(1, Answer::Done)]);
}

#[test]
fn what_is_beyond_a_limit_is_refused() {
    let mut driven = Driven::new(None);
    let entry = Some(Entry { bytes: vec![0; crate::limits::MAX_VALUE_BYTES].into(), survives: true });
    driven.rest();
    driven.tell(Event::Asked(1, Request::Update { base: driven.value().version, name: "a".into(), entry }));
    assert_eq!(driven.rest(), [Action::Answer(1, Answer::TooLong)]);
    driven.tell(Event::Asked(2, Request::Move { to: 9 }));
    assert_eq!(driven.rest(), [Action::Answer(2, Answer::Refused)]);
    for id in 0..=1_000_u64 {
        driven.machine.handle(driven.now, Event::Notified { id, version: u64::MAX });
    }
    assert!(driven.machine.notified.len() <= MAX_PENDING_NOTIFIES);
}
