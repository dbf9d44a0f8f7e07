//! Events of a gateway, and the actions that it asks for.

use std::sync::Arc;

use crate::{Entry, Member, Value};

/// The number of a request, which the driver chooses.
pub type RequestId = u64;

/// Something that has happened. The crate's documentation says which action each one ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Time has passed.
    Time,
    /// The object is watched.
    Watched,
    /// The object is not watched, or not any more: notifies may have been missed.
    WatchLost,
    /// The value of the object; `None` when there is no object.
    Read(Result<Option<Arc<Value>>, Failed>),
    /// The end of a store.
    Stored(Stored),
    /// A notify of another gateway, which waits for an [`Action::Acknowledge`] with this number.
    Notified {
        /// The number of the request.
        id: u64,
        /// The version of the value that the other one knows.
        version: u64,
    },
    /// A notify of this gateway has ended: which members have acknowledged it, this one among them. `None` when nothing
    /// is known.
    Acknowledged(Option<Vec<Member>>),
    /// A client is on the blocklist, or could not be put there.
    Blocklisted(bool),
    /// The image is open, without its lock: the address of the client that has it. `None` when it could not be opened.
    Opened(Option<Arc<str>>),
    /// The image has its lock, or could not get it.
    Locked(bool),
    /// The image is closed.
    Closed,
    /// The image takes nothing from this gateway any more: its client is on the blocklist.
    ImageLost,
    /// The commands find the published value.
    Published,
    /// A request of the device server or of the administrator.
    Asked(RequestId, Request),
}

/// The object could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed;

/// The end of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// The value is that of the object.
    Done,
    /// The object had another version, and keeps its value.
    Outdated,
    /// Nothing is known.
    Failed,
}

/// A request to a gateway, which ends with one [`Answer`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Let the device server know everything that was answered before this request, by any gateway.
    Confirm,
    /// Replace an entry, or remove it. It ends when every gateway knows it.
    Update {
        /// The version that was published when the entry was made.
        base: u64,
        /// The name of the entry.
        name: Arc<str>,
        /// The new entry.
        entry: Option<Entry>,
    },
    /// Make the gateway of this group the owner.
    Move {
        /// The group.
        to: u16,
    },
    /// End: give up the image and the membership.
    Leave,
}

/// The end of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The request is done.
    Done,
    /// The value has changed since the update was made; make it again.
    Changed,
    /// The value would become too long.
    TooLong,
    /// The request cannot be done: no gateway of this group is running, it cannot open the image, or this gateway is
    /// ending. An update of whose store nothing is known ends so too: it may be done all the same.
    Refused,
}

/// How commands may use the disk through a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Active/optimized.
    Active,
    /// Standby: another gateway has the disk, or none has it.
    Standby,
    /// On the way from one to the other.
    Transitioning,
}

/// The value that the device server has to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publication {
    /// The common value.
    pub value: Arc<Value>,
    /// How commands may use the disk through this gateway. [`Value::access`] says it of the other ones.
    pub access: Access,
}

/// Something to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Watch the object, which is made when it is missing.
    Watch,
    /// Read the object.
    Read,
    /// Replace the value of the object, if it has this version; 0: if it has no value.
    Store {
        /// The version that it must have.
        expected: u64,
        /// The new value.
        value: Arc<Value>,
    },
    /// Notify all that watch the object.
    Notify {
        /// The version of the value that this gateway knows.
        version: u64,
    },
    /// Acknowledge a notify of another gateway.
    Acknowledge {
        /// The number of the notify.
        id: u64,
        /// The member that acknowledges it.
        member: Member,
    },
    /// Put a client on the blocklist.
    Blocklist {
        /// The address of the client.
        client: Arc<str>,
    },
    /// Open the image, without its lock.
    Open,
    /// Take the lock of the image.
    Lock,
    /// Take no more requests to the image, wait for those under way, and close it.
    Close,
    /// Let commands find this.
    Publish(Publication),
    /// End a request.
    Answer(RequestId, Answer),
}
