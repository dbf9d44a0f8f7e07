//! Packet numbers: what was received, what is in flight, what is lost, and how much may be in flight.
//!
//! [`Recovery`] is one side of an association: it numbers what leaves, remembers what arrived, and decides from the
//! peer's acknowledgements what is lost and when the next packet may leave. What packets carry is the caller's: any
//! type `C`, which comes back once, as [acknowledged or lost](Outcome).
//!
//! The rules are those of RFC 9002 (loss, probes), RFC 9438 (CUBIC) and RFC 9406 (slow start), or BBR instead of these
//! two; `docs/ecl.md` has every timer.
//!
//! | module | what it knows |
//! |---|---|
//! | [`received`] | what arrived, and when the peer is told |
//! | [`ack_payload`] | the bytes of an Ack packet's payload |
//! | [`heard`] | what the peer's headers say |
//! | [`sent`] | what is in flight, and what is lost |
//! | [`reordering`] | how late a packet may be |
//! | [`rtt`] | the round-trip time |
//! | [`probes`] | when a silent peer is asked, and given up |
//! | [`numbers`] | the next packet number |
//! | [`congestion`], [`hystart`] | how much may be in flight: CUBIC |
//! | [`bbr`], [`delivery`], [`bound`] | the same from a model of the path |
//! | [`controller`] | which of both |
//! | [`pacer`] | when it may leave |
//! | [`ranges`] | sets of packet numbers |
//!
//! # What a peer can do
//!
//! A peer can acknowledge what was not sent: that is an [error](NeverSent), and the association ends. It can
//! acknowledge what was sent and not received, to get more than the path carries: numbers are skipped where it cannot
//! foresee them, and it is found out. It can acknowledge nothing: 30 s later the association ends
//! ([`Timeout::Silent`]). What it can make this side remember is bounded ([`limits`](crate::limits)).

pub mod ack_payload;
pub mod bbr;
pub mod bound;
pub mod congestion;
pub mod controller;
pub mod delivery;
pub mod heard;
pub mod hystart;
pub mod numbers;
pub mod pacer;
pub mod probes;
pub mod ranges;
pub mod received;
pub mod reordering;
pub mod rtt;
pub mod sent;

use std::time::Duration;

use lunette_session::Time;

use self::ack_payload::{AckRanges, MAX_ACK_PAYLOAD_LEN};
use self::congestion::initial_window;
pub use self::controller::CongestionControl;
use self::controller::{Controller, News};
use self::heard::{Heard, spans};
use self::numbers::Numbers;
use self::pacer::Pacer;
use self::probes::Probes;
use self::received::Received;
pub use self::received::{Arrival, Told};
use self::rtt::Rtt;
use self::sent::{Growth, LossTimes, Losses, Newly, Sent};
pub use self::sent::{Outcome, SentPacket};
use crate::header::{Acknowledged, NOTHING_ACKNOWLEDGED};

/// Persistent congestion takes as long as this many probe timeouts (RFC 9002 section 7.6.1).
const PERSISTENT_TIMEOUTS: u32 = 3;

/// Windows per round trip that the pacer lets out (RFC 9002 section 7.7), and in slow start, where the window doubles.
const PACING_GAIN: f64 = 1.25;
const SLOW_START_GAIN: f64 = 2.0;

/// The facts about its path that [`Recovery`] must know.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// The length of the path's datagrams, as far as it is known.
    pub datagram_len: usize,
    /// The number of connections as which the association uses a path whose queue is short ([`congestion`]). [`FLOWS`]
    /// by default.
    pub flows: u8,
    /// How much may be in flight.
    pub control: CongestionControl,
    /// A secret random number: which packet numbers are skipped.
    pub seed: u64,
}

/// An association uses a path that loses packets without a queue as two connections of TCP would.
pub const FLOWS: u8 = 2;

/// The peer has acknowledged a packet that was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("packet {0} was acknowledged and never sent")]
pub struct NeverSent(pub u64);

/// Whether packets may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowance {
    /// The number of bytes that may leave now.
    Bytes(usize),
    /// The pacer lets them out at this time.
    At(Time),
    /// The window is full: when packets have been acknowledged or lost.
    WindowFull,
}

/// The request of [`Recovery::on_timeout`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timeout {
    /// Nothing but what the outcomes say.
    Nothing,
    /// A packet that is acknowledged must leave now, with [`ACK_NOW`](crate::header::Flags::ACK_NOW), whatever
    /// [`allowance`](Recovery::allowance) says: new stream bytes, or those of [`oldest`](Recovery::oldest) once more,
    /// or a Probe.
    Probe,
    /// Packets have been in flight for 30 s without an answer: the association has ended.
    Silent,
}

/// Packet numbers of both directions, as one side of an association sees them.
///
/// # Example
///
/// A packet leaves, arrives and is acknowledged:
///
/// ```
/// use std::time::Duration;
///
/// use lunette_ecl::recovery::ack_payload::AckRanges;
/// use lunette_ecl::recovery::{
///     Allowance, Arrival, Config, CongestionControl, FLOWS, Outcome, Recovery, SentPacket, Told,
/// };
/// use lunette_session::Time;
///
/// let config = Config { datagram_len: 1400, flows: FLOWS, control: CongestionControl::Cubic, seed: 4 };
/// let sent_at = Time::new(Duration::from_secs(1));
/// let (mut client, mut server) = (Recovery::new(config, sent_at), Recovery::<()>::new(config, sent_at));
///
/// // The client sends bytes of its stream.
/// assert_eq!(client.allowance(1000, sent_at), Allowance::Bytes(1000));
/// let packet_number = client.next_packet_number();
/// client.on_sent(SentPacket { packet_number, bytes: 1000, is_path_probe: false, content: "stream bytes" }, sent_at);
///
/// // The server has them 10 ms later, and has sent an acknowledgement when the batch is done and it is due.
/// let arrived_at = sent_at + Duration::from_millis(10);
/// let arrival = Arrival { packet_number, is_acknowledged: true, ack_now: true, is_marked: false };
/// assert!(server.on_received(arrival, arrived_at));
/// assert!(server.acknowledgement_is_due(arrived_at));
/// let acknowledged = server.acknowledged(arrived_at);
/// server.on_told(Told::InHeader);
///
/// // The client learns of it.
/// let mut arrived = Vec::new();
/// let now = arrived_at + Duration::from_millis(10);
/// client.on_acknowledged(&acknowledged, AckRanges::NONE, 0, now, &mut |outcome| arrived.push(outcome))?;
/// assert_eq!(arrived, [Outcome::Acknowledged("stream bytes")]);
/// assert_eq!(client.rtt().smoothed(), Duration::from_millis(20));
/// # Ok::<(), lunette_ecl::recovery::NeverSent>(())
/// ```
///
/// # How to call it
///
/// - **A packet arrived** and is authentic: [`on_received`](Self::on_received), and drop it when that is `false`. Then
///   [`on_acknowledged`](Self::on_acknowledged) with what its header and payload say.
/// - **Before packets leave** whose type is acknowledged: [`allowance`](Self::allowance), until it refuses or there is
///   no more to send. The window grows when it was found full, and not otherwise.
/// - **A packet leaves:** [`next_packet_number`](Self::next_packet_number) and [`acknowledged`](Self::acknowledged) for
///   its header; then [`on_sent`](Self::on_sent), or [`on_other_sent`](Self::on_other_sent) for types that are not
///   acknowledged; and [`on_told`](Self::on_told).
/// - **After a batch of arrivals**, when all was sent that there was to send: if
///   [`acknowledgement_is_due`](Self::acknowledgement_is_due), an Ack packet with the payload of
///   [`ack_payload`](Self::ack_payload).
/// - **At [`next_timeout`](Self::next_timeout):** [`on_timeout`](Self::on_timeout), and the point before this one.
#[derive(Debug)]
pub struct Recovery<C> {
    received: Received,
    numbers: Numbers,
    sent: Sent<C>,
    rtt: Rtt,
    congestion: Controller,
    pacer: Pacer,
    config: Config,
    /// Packets with smaller numbers were sent before the window was found full.
    full_below: u64,
    probes: Probes,
    heard: Heard,
    lost: u64,
}

impl<C> Recovery<C> {
    /// The state of an association that has neither sent nor received.
    pub fn new(config: Config, now: Time) -> Self {
        Self {
            received: Received::default(),
            numbers: Numbers::new(config.seed),
            sent: Sent::default(),
            rtt: Rtt::default(),
            congestion: Controller::new(&config),
            pacer: Pacer::new(initial_window(config.datagram_len as u64), now),
            config,
            full_below: 0,
            probes: Probes::new(now),
            heard: Heard::default(),
            lost: 0,
        }
    }

    // What arrives.

    /// An authentic packet has arrived. The answer is `false` when it came before: then it must be dropped.
    #[must_use = "a duplicate must be dropped"]
    pub fn on_received(&mut self, packet: Arrival, now: Time) -> bool {
        self.received.receive(packet, now)
    }

    /// The statement of the next header about received packets.
    pub fn acknowledged(&self, now: Time) -> Acknowledged {
        self.received.acknowledged(now)
    }

    /// The field *congestion count* of the next header.
    pub const fn congestion_count(&self) -> u32 {
        self.received.congestion_count()
    }

    /// The payload of the next Ack packet: its length, 0 when the header says everything.
    pub fn ack_payload(&self, payload: &mut [u8; MAX_ACK_PAYLOAD_LEN]) -> usize {
        self.received.ranges(payload)
    }

    /// Whether an Ack packet should leave. Ask after a batch, when everything else was sent: a header of any packet may
    /// have acknowledged already.
    pub fn acknowledgement_is_due(&self, now: Time) -> bool {
        self.received.is_due(now)
    }

    /// A packet with an acknowledgement has left.
    pub fn on_told(&mut self, told: Told) {
        self.received.told(told);
    }

    // What leaves.

    /// Whether up to `wanted` bytes may leave, in packets of types that are acknowledged. At least one whole datagram
    /// may, or all that is wanted.
    pub fn allowance(&mut self, wanted: usize, now: Time) -> Allowance {
        let wanted = wanted as u64;
        let least = wanted.min(self.config.datagram_len as u64);
        let room = self.congestion.window().saturating_sub(self.sent.bytes_in_flight());
        if room < least || self.sent.is_full() {
            self.full_below = self.numbers.next();
            return Allowance::WindowFull;
        }
        let rate = self.congestion.rate(self.rtt.smoothed(), self.config.datagram_len as u64);
        match self.pacer.allow(least, wanted.min(room), rate, now) {
            Ok(bytes) => Allowance::Bytes(usize::try_from(bytes).unwrap_or(usize::MAX)),
            Err(at) => Allowance::At(at),
        }
    }

    /// The number of the next packet of any type. Each number must be used, in the order in which they are given.
    pub fn next_packet_number(&mut self) -> u64 {
        self.numbers.take()
    }

    /// A packet has left whose type is acknowledged.
    pub fn on_sent(&mut self, packet: SentPacket<C>, now: Time) {
        if self.sent.packets_in_flight() == 0 {
            self.probes.on_first_in_flight(now);
            self.congestion.on_restart(now);
        }
        self.pacer.on_sent(packet.bytes as u64);
        self.sent.on_sent(packet, now);
    }

    /// Notes that nothing more is to be sent for now, though the window and the pacer would allow it.
    pub fn on_nothing_to_send(&mut self) {
        self.sent.on_nothing_to_send();
    }

    /// A packet has left whose type is not acknowledged.
    pub fn on_other_sent(&mut self, packet_number: u64, now: Time) {
        self.sent.on_other_sent(packet_number, now);
    }

    /// The peer says what it has received: the header's fields, and `ranges` of an Ack packet's payload. `outcome` is
    /// called for each packet that turns out to be acknowledged or lost.
    ///
    /// # Errors
    ///
    /// [`NeverSent`] when that cannot be. Nothing has changed then, and the association should end.
    pub fn on_acknowledged(
        &mut self,
        said: &Acknowledged,
        ranges: AckRanges<'_>,
        congestion_count: u32,
        now: Time,
        outcome: &mut impl FnMut(Outcome<C>),
    ) -> Result<(), NeverSent> {
        if said.largest == NOTHING_ACKNOWLEDGED || ranges.is_empty() && self.heard.is_known(said, congestion_count) {
            return Ok(());
        }
        if let Some(number) = spans(said).chain(ranges.iter()).find_map(|span| self.numbers.never_sent(span)) {
            return Err(NeverSent(number));
        }
        let growth = Growth { sent_after: self.congestion.decreased_at(), below: self.full_below };
        let mut newly = Newly::default();
        for span in spans(said).chain(ranges.iter()) {
            self.sent.on_acknowledged(span, growth, &mut newly, outcome);
        }
        let is_marked = self.heard.hear(said, congestion_count);
        self.on_newly(said, newly, is_marked, now, outcome);
        Ok(())
    }

    fn on_newly(
        &mut self,
        said: &Acknowledged,
        newly: Newly,
        is_marked: bool,
        now: Time,
        outcome: &mut impl FnMut(Outcome<C>),
    ) {
        if let Some(sent_at) = newly.late_sent_at {
            self.congestion.on_late(newly.late, sent_at);
        }
        let Some((newest, newest_sent_at)) = newly.newest else {
            return;
        };
        self.probes.on_answer(now);
        // RFC 9002 section 5.1: a sample when the largest number is new, and one of those that are new is acknowledged
        // for its own sake.
        let largest_sent_at =
            if newest == said.largest { Some(newest_sent_at) } else { self.sent.other_sent_at(said.largest) };
        // What took another path says nothing of this one (RFC 9000 section 9.4).
        if let Some(sent_at) = largest_sent_at.filter(|sent_at| self.sent.is_of_path(*sent_at)) {
            self.rtt.sample(now - sent_at, Duration::from_micros(u64::from(said.delay_us)), now);
            self.congestion.on_rtt(self.rtt.latest(), said.largest, self.numbers.next());
        }
        if is_marked {
            self.congestion.on_marked(newest_sent_at, &self.rtt, now);
        }
        self.detect_losses(now, outcome);
        let news = News {
            growth_bytes: newly.growth_bytes,
            sample: self.sent.sample(&newly, self.rtt.min(), now),
            rtt: &self.rtt,
            in_flight: self.sent.bytes_in_flight(),
        };
        self.congestion.on_acknowledged(&news, now);
    }

    fn detect_losses(&mut self, now: Time, outcome: &mut impl FnMut(Outcome<C>)) {
        let times = LossTimes {
            round_trip: self.round_trip(),
            persistent: self.rtt.probe_timeout() * PERSISTENT_TIMEOUTS,
            measured_at: self.rtt.first_sample_at(),
        };
        let Losses { packets, bytes, newest_sent_at, is_persistent } = self.sent.detect_losses(times, now, outcome);
        self.lost = self.lost.saturating_add(u64::from(packets));
        if let Some(sent_at) = newest_sent_at
            && self.congestion.on_lost(sent_at, packets, bytes, &self.rtt, now)
        {
            self.sent.on_decrease();
        }
        if is_persistent {
            self.congestion.on_persistent_congestion();
        }
    }

    // Time.

    /// When [`on_timeout`](Self::on_timeout) or an acknowledgement is due.
    pub fn next_timeout(&self) -> Option<Time> {
        let in_flight = self.loss_or_probe_time().map(|time| time.min(self.probes.give_up_at()));
        [in_flight, self.received.next_timeout()].into_iter().flatten().min()
    }

    /// Takes packets for lost whose time has come, and says whether a probe must leave. It may be called at any time.
    pub fn on_timeout(&mut self, now: Time, outcome: &mut impl FnMut(Outcome<C>)) -> Timeout {
        let Some(due_at) = self.loss_or_probe_time() else {
            return Timeout::Nothing;
        };
        if now >= self.probes.give_up_at() {
            return Timeout::Silent;
        }
        if now < due_at {
            return Timeout::Nothing;
        }
        if self.sent.loss_time(self.round_trip()).is_some() {
            self.detect_losses(now, outcome);
            return Timeout::Nothing;
        }
        self.probes.on_probe(now);
        Timeout::Probe
    }

    fn loss_or_probe_time(&self) -> Option<Time> {
        if self.sent.packets_in_flight() == 0 {
            return None;
        }
        let loss_time = self.sent.loss_time(self.round_trip());
        Some(loss_time.unwrap_or_else(|| self.probes.next_at(self.sent.last_sent_at(), self.rtt.probe_timeout())))
    }

    // The path.

    /// The path's datagrams have another length.
    pub fn set_datagram_len(&mut self, datagram_len: usize) {
        self.config.datagram_len = datagram_len;
        self.congestion.set_datagram_len(datagram_len);
    }

    /// The round trip was measured by packets without numbers of this association (the handshake's).
    pub fn on_handshake(&mut self, round_trip: Duration, now: Time) {
        self.rtt.sample(round_trip, Duration::ZERO, now);
    }

    /// The peer has another address, or this side has: nothing is known of the path (RFC 9000 section 9.4). Packets in
    /// flight stay so.
    pub fn on_path_change(&mut self, now: Time) {
        self.rtt = Rtt::default();
        self.congestion = Controller::new(&self.config);
        self.congestion.ignore_losses_before(now);
        self.sent.on_path_change(now);
        self.pacer = Pacer::new(initial_window(self.config.datagram_len as u64), now);
        self.probes = Probes::new(now);
    }

    // Figures.

    /// The content of the oldest packet in flight, which a probe best carries once more.
    pub fn oldest(&self) -> Option<&C> {
        self.sent.oldest()
    }

    /// The round-trip time.
    pub const fn rtt(&self) -> &Rtt {
        &self.rtt
    }

    /// Bytes that may be in flight.
    pub const fn window(&self) -> u64 {
        self.congestion.window()
    }

    /// Bytes in flight.
    pub const fn bytes_in_flight(&self) -> u64 {
        self.sent.bytes_in_flight()
    }

    /// Whether a peer that is to be left at once, if it cannot be heard, is given up. A probe was due now.
    pub fn is_unheard(&self, now: Time) -> bool {
        self.probes.is_unheard(now)
    }

    /// Packets that were taken for lost, path probes not counted.
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// Packets that were taken for lost and came late.
    pub const fn late(&self) -> u64 {
        self.sent.reordering().late()
    }

    fn round_trip(&self) -> Duration {
        self.rtt.smoothed().max(self.rtt.latest())
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
