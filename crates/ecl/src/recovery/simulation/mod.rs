//! A closed loop under a virtual clock: senders, a bottleneck, receivers. One seed is one run.

mod network;
mod tests;

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::time::Duration;

use lunette_session::Time;

use self::network::{Data, Event, Network, Path, Say};
use super::ack_payload::{AckRanges, MAX_ACK_PAYLOAD_LEN};
use super::pacer::MAX_BURST_BYTES;
use super::{Allowance, Arrival, Config, CongestionControl, Outcome, Recovery, SentPacket, Timeout, Told};

/// The task of one sender.
#[derive(Debug, Clone, Copy)]
struct Flow {
    /// The number of connections as which it shares the bottleneck.
    flows: u8,
    control: CongestionControl,
    /// Chunks to send. Each fills a datagram.
    chunks: u64,
    /// When it begins.
    begin: Duration,
    /// Once in this time it has this many chunks to send, and not as many as it can.
    every: Option<(Duration, u64)>,
}

impl Flow {
    const fn bulk(chunks: u64) -> Self {
        Self { flows: 2, control: CongestionControl::Cubic, chunks, begin: Duration::ZERO, every: None }
    }
}

/// One sender and its receiver.
struct Pair {
    flow: Flow,
    sender: Recovery<(u64, u64)>,
    receiver: Recovery<()>,
    /// Chunks that were lost, then the next new one.
    again: VecDeque<u64>,
    next_chunk: u64,
    /// Packets that were sent and have no outcome: each has one, once.
    open: HashSet<u64>,
    acknowledged: BTreeSet<u64>,
    received: BTreeSet<u64>,
    finished_at: Option<Time>,
    sender_wakes_at: Option<Time>,
    receiver_wakes_at: Option<Time>,
    /// Probes that must leave, and all that were asked for.
    probes: u64,
    probed: u64,
    is_silent: bool,
}

struct Simulation {
    network: Network,
    pairs: Vec<Pair>,
}

impl Simulation {
    fn new(path: Path, flows: &[Flow], seed: u64) -> Self {
        let pairs =
            flows.iter().zip(1..).map(|(flow, number)| Pair::new(*flow, path.datagram_len, seed + number)).collect();
        let mut simulation = Self { network: Network::new(path, seed), pairs };
        for (index, flow) in flows.iter().enumerate() {
            simulation.network.wake_sender(index, Time::new(flow.begin));
        }
        simulation
    }

    /// Runs until all flows have ended, or the clock reaches `limit`.
    fn run(&mut self, limit: Duration) {
        while !self.pairs.iter().all(Pair::has_ended)
            && let Some((now, event)) = self.network.next(Time::new(limit))
        {
            match event {
                Event::Arrives(data) => self.arrives(data, now),
                Event::Said(say) => self.said(&say, now),
                Event::SenderWakes(index) => self.pairs[index].sender_wakes(now),
                Event::ReceiverWakes => {}
            }
            for (index, pair) in self.pairs.iter_mut().enumerate() {
                pair.pump(index, now, &mut self.network);
                pair.answer(index, now, &mut self.network);
            }
        }
    }

    fn arrives(&mut self, data: Data, now: Time) {
        let pair = &mut self.pairs[data.pair];
        let arrival = Arrival {
            packet_number: data.packet_number,
            is_acknowledged: true,
            ack_now: data.ack_now,
            is_marked: data.is_marked,
        };
        if pair.receiver.on_received(arrival, now) {
            pair.received.insert(data.chunk);
        }
    }

    fn said(&mut self, say: &Say, now: Time) {
        let pair = &mut self.pairs[say.pair];
        let ranges = AckRanges::parse(&say.payload, say.acknowledged.largest).expect("a receiver's payload");
        let mut outcomes = Vec::new();
        let mut note = |outcome| outcomes.push(outcome);
        pair.sender
            .on_acknowledged(&say.acknowledged, ranges, say.congestion_count, now, &mut note)
            .expect("only what was sent is acknowledged");
        pair.take(outcomes, now);
    }
}

impl Pair {
    fn new(flow: Flow, datagram_len: usize, seed: u64) -> Self {
        let config = Config { datagram_len, flows: flow.flows, control: flow.control, seed };
        let begin = Time::new(flow.begin);
        Self {
            flow,
            sender: Recovery::new(config, begin),
            receiver: Recovery::new(config, begin),
            again: VecDeque::new(),
            next_chunk: 0,
            open: HashSet::new(),
            acknowledged: BTreeSet::new(),
            received: BTreeSet::new(),
            finished_at: None,
            sender_wakes_at: None,
            receiver_wakes_at: None,
            probes: 0,
            probed: 0,
            is_silent: false,
        }
    }

    fn has_ended(&self) -> bool {
        self.finished_at.is_some() && self.sender.bytes_in_flight() == 0 || self.is_silent
    }

    /// Each packet has one outcome, and what is acknowledged was received.
    fn take(&mut self, outcomes: Vec<Outcome<(u64, u64)>>, now: Time) {
        for outcome in outcomes {
            let (Outcome::Acknowledged((id, chunk)) | Outcome::Lost((id, chunk))) = outcome;
            assert!(self.open.remove(&id), "packet {id} has a second outcome");
            match outcome {
                Outcome::Acknowledged(_) => {
                    assert!(self.received.contains(&chunk), "chunk {chunk} was acknowledged and not received");
                    self.acknowledged.insert(chunk);
                }
                Outcome::Lost(_) => self.again.push_back(chunk),
            }
        }
        if self.acknowledged.len() as u64 == self.flow.chunks && self.finished_at.is_none() {
            self.finished_at = Some(now);
        }
    }

    fn sender_wakes(&mut self, now: Time) {
        let mut outcomes = Vec::new();
        let timeout = self.sender.on_timeout(now, &mut |outcome| outcomes.push(outcome));
        self.take(outcomes, now);
        match timeout {
            Timeout::Nothing => {}
            Timeout::Probe => {
                self.probes += 1;
                self.probed += 1;
                let oldest = self.sender.oldest().expect("a probe is for packets in flight").1;
                self.again.push_front(oldest);
            }
            Timeout::Silent => self.is_silent = true,
        }
    }

    /// Chunks that may be sent for the first time.
    fn offered(&self, now: Time) -> u64 {
        let offered = self.flow.every.map_or(u64::MAX, |(every, chunks)| {
            let times = (now - Time::new(self.flow.begin)).as_nanos() / every.as_nanos() + 1;
            u64::try_from(times).expect("a short run") * chunks
        });
        offered.min(self.flow.chunks)
    }

    fn pump(&mut self, index: usize, now: Time, network: &mut Network) {
        if now < Time::new(self.flow.begin) || self.is_silent {
            return;
        }
        let mut wake_at = None;
        let mut probes = std::mem::take(&mut self.probes);
        loop {
            let left = self.again.len() as u64 + self.offered(now).saturating_sub(self.next_chunk);
            if left == 0 {
                self.sender.on_nothing_to_send();
                break;
            }
            let datagram_len = network.path().datagram_len;
            let wanted = (left * datagram_len as u64).min(MAX_BURST_BYTES.max(datagram_len as u64));
            let allowed = match self.sender.allowance(usize::try_from(wanted).expect("a batch"), now) {
                _ if probes > 0 => {
                    probes -= 1;
                    datagram_len
                }
                Allowance::Bytes(bytes) => bytes,
                Allowance::At(at) => {
                    assert!(at > now, "the pacer names a time to come");
                    wake_at = Some(at);
                    break;
                }
                Allowance::WindowFull => break,
            };
            for _ in 0..allowed / datagram_len {
                self.send_one(index, now, network);
            }
        }
        if let Some((every, _)) = self.flow.every
            && self.next_chunk < self.flow.chunks
        {
            let begin = Time::new(self.flow.begin);
            let turns = (now - begin).as_nanos() / every.as_nanos() + 1;
            let next = begin + every * u32::try_from(turns).expect("a short run");
            wake_at = Some(wake_at.map_or(next, |at: Time| at.min(next)));
        }
        let timeout = self.sender.next_timeout();
        let wake_at = [wake_at, timeout].into_iter().flatten().min().map(|at| at.max(now));
        if wake_at != self.sender_wakes_at || wake_at.is_some_and(|at| at <= now) {
            self.sender_wakes_at = wake_at;
            if let Some(at) = wake_at {
                network.wake_sender(index, at);
            }
        }
    }

    fn send_one(&mut self, index: usize, now: Time, network: &mut Network) {
        let chunk = self.again.pop_front().unwrap_or_else(|| {
            self.next_chunk += 1;
            self.next_chunk - 1
        });
        let packet_number = self.sender.next_packet_number();
        let bytes = network.path().datagram_len;
        self.open.insert(packet_number);
        self.sender
            .on_sent(SentPacket { packet_number, bytes, is_path_probe: false, content: (packet_number, chunk) }, now);
        let ack_now = self.again.is_empty() && self.next_chunk == self.flow.chunks;
        network.send(Data { pair: index, packet_number, chunk, ack_now, is_marked: false }, now);
    }

    /// One acknowledgement after a batch, if it is due.
    fn answer(&mut self, index: usize, now: Time, network: &mut Network) {
        if self.receiver.acknowledgement_is_due(now) {
            let mut payload = [0; MAX_ACK_PAYLOAD_LEN];
            let len = self.receiver.ack_payload(&mut payload);
            let say = Say {
                pair: index,
                acknowledged: self.receiver.acknowledged(now),
                payload: payload[..len].to_vec(),
                congestion_count: self.receiver.congestion_count(),
            };
            self.receiver.on_told(Told::WithRanges);
            network.say(say, now);
        }
        let wake_at = self.receiver.next_timeout();
        if wake_at != self.receiver_wakes_at {
            self.receiver_wakes_at = wake_at;
            if let Some(at) = wake_at {
                network.wake_receiver(at.max(now));
            }
        }
    }

    /// Bytes per second from the beginning to the end.
    #[allow(clippy::cast_precision_loss)]
    fn throughput(&self, datagram_len: usize) -> f64 {
        let end = self.finished_at.expect("the flow has ended");
        (self.flow.chunks * datagram_len as u64) as f64 / (end - Time::new(self.flow.begin)).as_secs_f64()
    }
}
