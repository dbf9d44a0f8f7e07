//! A gateway: its machine, and the part of the device server that matters here.

use std::collections::BTreeMap;
use std::sync::Arc;

use lunette_gateway::{Access, Entry, Machine, Member, Publication, RequestId, Value};

use super::cluster::MapEpoch;
use super::history::Written;

/// The name of the entry with the reservation.
pub(super) const RESERVATION: &str = "reservation";

pub(super) struct Gateway {
    pub(super) machine: Machine,
    /// Counts the starts: answers to an earlier process are dropped.
    pub(super) life: u64,
    pub(super) is_dead: bool,
    /// SIGSTOP: what comes waits.
    pub(super) is_stopped: bool,
    pub(super) is_cut_off: bool,
    pub(super) device: Device,
    pub(super) clients: u64,
}

/// The state that commands find.
#[derive(Default)]
pub(super) struct Device {
    pub(super) published: Option<Publication>,
    /// The image, while it takes requests.
    pub(super) image: Option<Image>,
    /// Requests to the image under way.
    pub(super) under_way: u64,
    /// The client whose image closes when nothing is under way.
    pub(super) closing: Option<Arc<str>>,
    /// Commands that wait for a request to the machine, which has the command's number: whether it is an update.
    pub(super) waiting: BTreeMap<RequestId, bool>,
}

#[derive(Clone)]
pub(super) struct Image {
    pub(super) client: Arc<str>,
    /// The newest map that its client knows.
    pub(super) map: MapEpoch,
}

/// The entry with the reservation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Reservation {
    /// The initiator that may write; 0: all.
    pub(super) lets: u64,
    /// The number of the write that has made it.
    pub(super) number: Written,
    /// The number of the one that was known when this one was decided on.
    pub(super) follows: Written,
}

impl Reservation {
    pub(super) fn of(value: &Value) -> Self {
        let Some(entry) = value.entries.get(RESERVATION) else { return Self::default() };
        let number = |at: usize| u64::from_be_bytes(entry.bytes[at..at + 8].try_into().expect("eight bytes"));
        Self { lets: number(0), number: number(8), follows: number(16) }
    }

    pub(super) fn entry(self) -> Entry {
        let bytes = [self.lets, self.number, self.follows].map(u64::to_be_bytes).concat().into();
        Entry { bytes, survives: true }
    }
}

impl Gateway {
    pub(super) fn new(group: u16, incarnation: u64, life: u64) -> Self {
        Self {
            machine: Machine::new(Member { group, incarnation }),
            life,
            is_dead: false,
            is_stopped: false,
            is_cut_off: false,
            device: Device::default(),
            clients: 0,
        }
    }

    /// The client with which it has opened the image last.
    pub(super) fn client(&self, at: usize) -> Arc<str> {
        format!("{}/{}/{}", at + 1, self.life, self.clients).into()
    }

    pub(super) fn is_well(&self) -> bool {
        !self.is_dead && !self.is_stopped && !self.is_cut_off
    }
}

impl Device {
    pub(super) fn is_active(&self) -> bool {
        self.published.as_ref().is_some_and(|published| published.access == Access::Active)
    }

    pub(super) fn version(&self) -> u64 {
        self.published.as_ref().map_or(0, |published| published.value.version)
    }

    pub(super) fn reservation(&self) -> Reservation {
        self.published.as_ref().map_or_else(Reservation::default, |published| Reservation::of(&published.value))
    }
}
