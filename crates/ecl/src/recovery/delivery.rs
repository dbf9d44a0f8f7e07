//! How fast the peer gets packets: a sample with each acknowledgement (draft-ietf-ccwg-bbr, section "Delivery Rate
//! Samples").

use std::time::Duration;

use lunette_session::Time;

/// The amount that has arrived so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Delivery {
    /// Bytes that were acknowledged.
    delivered: u64,
    delivered_at: Time,
    /// When the packet was sent with which the last sample ends.
    first_sent_at: Time,
    /// The sender had too little to send: samples of packets that were sent before so much has arrived say nothing of
    /// the path.
    limited_until: Option<u64>,
    /// The time of the change of path: earlier packets took another one.
    path_since: Option<Time>,
}

/// The state when a packet left.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Departure {
    delivered: u64,
    delivered_at: Time,
    first_sent_at: Time,
    is_limited: bool,
}

/// The newest packet that an acknowledgement brings news of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived {
    departure: Departure,
    sent_at: Time,
}

/// The statement of an acknowledgement about the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// The rate at which packets arrived, where it could be measured.
    pub bytes_per_second: Option<u64>,
    /// Whether the sender had too little to send: the path may carry more.
    pub is_limited: bool,
    /// Bytes that had arrived when the packet left.
    pub delivered_before: u64,
    /// Bytes that have arrived by now.
    pub delivered: u64,
    /// Bytes that this acknowledgement brings.
    pub bytes: u64,
}

impl Delivery {
    /// A packet leaves.
    pub fn on_sent(&mut self, is_first_in_flight: bool, now: Time) -> Departure {
        if is_first_in_flight {
            (self.first_sent_at, self.delivered_at) = (now, now);
        }
        Departure {
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            is_limited: self.limited_until.is_some(),
        }
    }

    /// A packet has arrived. `newest` is kept for the [`sample`](Self::sample) of the acknowledgement.
    pub fn on_arrived(&mut self, departure: Departure, sent_at: Time, bytes: u64, newest: &mut Option<Arrived>) {
        if !self.is_of_path(sent_at) {
            return;
        }
        self.delivered += bytes;
        // Of those that left between the same two acknowledgements, too: they are told in any order.
        let age = |departure: Departure, sent_at| (departure.delivered, sent_at);
        if newest.is_none_or(|newest| age(departure, sent_at) >= age(newest.departure, newest.sent_at)) {
            *newest = Some(Arrived { departure, sent_at });
        }
    }

    /// Packets that were sent before `now` say nothing of the path.
    pub fn on_path_change(&mut self, now: Time) {
        self.path_since = Some(now);
    }

    /// Whether a packet took the path of now.
    pub fn is_of_path(&self, sent_at: Time) -> bool {
        self.path_since.is_none_or(|since| sent_at >= since)
    }

    /// The sender has nothing more to send for now, with this many bytes in flight.
    pub fn on_nothing_to_send(&mut self, bytes_in_flight: u64) {
        self.limited_until = Some(self.delivered + bytes_in_flight);
    }

    /// The sample of an acknowledgement that brought `bytes` of which `newest` left last. A rate over less than the
    /// shortest round trip says nothing.
    pub fn sample(&mut self, newest: Arrived, bytes: u64, shortest: Duration, now: Time) -> Sample {
        let Arrived { departure, sent_at } = newest;
        self.delivered_at = now;
        self.first_sent_at = sent_at;
        self.limited_until = self.limited_until.filter(|until| self.delivered <= *until);
        // What was sent in a burst arrives slowly, and acknowledgements may come in bursts: the longer time is the
        // truth.
        let interval = (sent_at - departure.first_sent_at).max(now - departure.delivered_at);
        let arrived = u128::from(self.delivered - departure.delivered);
        let rate = (arrived * 1_000_000_000).checked_div(interval.as_nanos()).filter(|_| interval >= shortest);
        Sample {
            bytes_per_second: rate.and_then(|rate| u64::try_from(rate).ok()),
            is_limited: departure.is_limited,
            delivered_before: departure.delivered,
            delivered: self.delivered,
            bytes,
        }
    }
}
