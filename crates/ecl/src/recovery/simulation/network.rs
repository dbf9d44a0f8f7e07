//! A bottleneck with a droptail queue, and a way back.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use lunette_session::Time;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

use crate::header::Acknowledged;

/// The path that the packets of all pairs take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Path {
    pub(super) datagram_len: usize,
    pub(super) bytes_per_second: u64,
    /// One way.
    pub(super) delay: Duration,
    pub(super) queue_bytes: u64,
    /// The losses among a million packets, in each direction.
    pub(super) lost: u64,
    pub(super) reordered: u64,
    pub(super) duplicated: u64,
    /// How much later a reordered one arrives at most.
    pub(super) jitter: Duration,
    /// With more in the queue, packets are marked "congestion experienced".
    pub(super) mark_bytes: Option<u64>,
    /// From and until when nothing passes.
    pub(super) blackout: Option<(Duration, Duration)>,
}

impl Path {
    /// A path without faults, and with a queue of one bandwidth-delay product.
    pub(super) fn new(megabits_per_second: u64, round_trip: Duration) -> Self {
        let bytes_per_second = megabits_per_second * 125_000;
        let product = u128::from(bytes_per_second) * round_trip.as_nanos() / 1_000_000_000;
        Self {
            datagram_len: 1400,
            bytes_per_second,
            delay: round_trip / 2,
            queue_bytes: u64::try_from(product).expect("a path of this world").max(1 << 16),
            lost: 0,
            reordered: 0,
            duplicated: 0,
            jitter: Duration::ZERO,
            mark_bytes: None,
            blackout: None,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Data {
    pub(super) pair: usize,
    pub(super) packet_number: u64,
    pub(super) chunk: u64,
    pub(super) ack_now: bool,
    pub(super) is_marked: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Say {
    pub(super) pair: usize,
    pub(super) acknowledged: Acknowledged,
    pub(super) payload: Vec<u8>,
    pub(super) congestion_count: u32,
}

#[derive(Debug, Clone)]
pub(super) enum Event {
    Arrives(Data),
    Said(Say),
    SenderWakes(usize),
    ReceiverWakes,
}

pub(super) struct Network {
    path: Path,
    random: Pcg64,
    busy_until: Time,
    /// Times, then places in `events`.
    agenda: BinaryHeap<Reverse<(Time, usize)>>,
    events: Vec<Option<Event>>,
    free: Vec<usize>,
    pub(super) dropped: u64,
}

impl Network {
    pub(super) fn new(path: Path, seed: u64) -> Self {
        Self {
            path,
            random: Pcg64::new(u128::from(seed), 0),
            busy_until: Time::default(),
            agenda: BinaryHeap::new(),
            events: Vec::new(),
            free: Vec::new(),
            dropped: 0,
        }
    }

    pub(super) const fn path(&self) -> &Path {
        &self.path
    }

    /// The next event until `limit`.
    pub(super) fn next(&mut self, limit: Time) -> Option<(Time, Event)> {
        self.agenda.peek().filter(|Reverse((time, _))| *time <= limit)?;
        let Reverse((time, place)) = self.agenda.pop()?;
        self.free.push(place);
        Some((time, self.events[place].take().expect("an event is on the agenda once")))
    }

    pub(super) fn wake_sender(&mut self, pair: usize, at: Time) {
        self.add(at, Event::SenderWakes(pair));
    }

    pub(super) fn wake_receiver(&mut self, at: Time) {
        self.add(at, Event::ReceiverWakes);
    }

    pub(super) fn send(&mut self, mut data: Data, now: Time) {
        let queued_nanos = (self.busy_until - now).as_nanos();
        let queued = queued_nanos * u128::from(self.path.bytes_per_second) / 1_000_000_000;
        let bytes = self.path.datagram_len as u64;
        if queued + u128::from(bytes) > u128::from(self.path.queue_bytes) {
            self.dropped += 1;
            return;
        }
        data.is_marked = self.path.mark_bytes.is_some_and(|mark| queued > u128::from(mark));
        let takes = Duration::from_nanos(bytes * 1_000_000_000 / self.path.bytes_per_second);
        self.busy_until = self.busy_until.max(now) + takes;
        self.deliver(self.busy_until, &Event::Arrives(data));
    }

    pub(super) fn say(&mut self, say: Say, now: Time) {
        self.deliver(now, &Event::Said(say));
    }

    fn deliver(&mut self, leaves: Time, event: &Event) {
        let is_dark = |(begin, end)| (begin..end).contains(&leaves.since_epoch());
        if self.happens(self.path.lost) || self.path.blackout.is_some_and(is_dark) {
            self.dropped += 1;
            return;
        }
        let copies = if self.happens(self.path.duplicated) { 2 } else { 1 };
        for _ in 0..copies {
            let mut at = leaves + self.path.delay;
            if self.happens(self.path.reordered) {
                let jitter = self.path.jitter.as_nanos().max(1);
                let late = u128::from(self.random.next_u64()) % jitter;
                at = at + Duration::from_nanos(u64::try_from(late).expect("below the jitter"));
            }
            self.add(at, event.clone());
        }
    }

    fn happens(&mut self, of_a_million: u64) -> bool {
        of_a_million > 0 && self.random.next_u64() % 1_000_000 < of_a_million
    }

    fn add(&mut self, at: Time, event: Event) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.events.push(None);
            self.events.len() - 1
        });
        self.events[place] = Some(event);
        self.agenda.push(Reverse((at, place)));
    }
}
