//! The thread that moves packets between the two devices as their links say.

use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::process;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::time::{ClockId, clock_gettime};

use crate::link::{Counts, Link, Nanos, Settings};
use crate::units::EachWay;

use super::pair::Pair;
use super::sys;
use super::tun::Tun;

/// Packets that are read from one device before the other has its turn.
const MOST_PER_TURN: usize = 64;
/// A CPU that slept for long wakes up late, so long sleeps end earlier and the rest is spent awake.
const LONG_SLEEP: Nanos = 1_000_000;
const WAKES_EARLIER: Nanos = 150_000;
/// A short sleep costs more CPU time than it lasts, so packets that follow each other closely are handed over in
/// groups...
const SHORTEST_SLEEP: Nanos = 50_000;
/// ...unless these are the last ones: the end of a request or an answer, which something waits for. The last part of
/// their time is waited for awake.
const FEW_PACKETS: usize = 8;
/// The longest lateness that is told apart: a minute.
const MAX_LATENESS: Nanos = 60_000_000_000;

/// A link between the two ends of a pair, in operation until this is stopped or dropped.
pub(crate) struct Relay {
    stop: OwnedFd,
    /// Until it is joined.
    thread: Option<JoinHandle<Relayed>>,
}

/// The report of a relay.
pub(crate) struct Relayed {
    pub(crate) ways: EachWay<OneWay>,
    /// CPU time, with that of the system for it: packets are received by the other end within the relay's writes.
    pub(crate) cpu: Duration,
    pub(crate) elapsed: Duration,
}

/// The report of a relay on one direction.
pub(crate) struct OneWay {
    pub(crate) counts: Counts,
    /// Packets that arrived, and that the system at their end refused.
    pub(crate) refused: u64,
    /// By how many nanoseconds packets were handed over later than the link says.
    pub(crate) lateness: Histogram<u64>,
}

impl Relay {
    /// Begins to relay packets. What the devices have kept from before is thrown away.
    pub(crate) fn start(pair: &Pair, links: EachWay<Settings>, mtu: u16) -> Result<Self> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
        let stopped = stop.try_clone()?;
        let devices = pair.near.device.as_ref().zip(pair.far.device.as_ref());
        let (near, far) = devices.context("these ends have no emulated link")?;
        let mut directions = [Direction::new(links.there, near, far, mtu), Direction::new(links.back, far, near, mtu)];
        for direction in &mut directions {
            direction.discard()?;
        }
        let thread = thread::Builder::new().name("relay".into()).spawn(move || {
            relay(directions, &stopped).unwrap_or_else(|error| {
                // Without the relay the link would be a black hole for the command.
                eprintln!("error: the link has failed: {error:#}");
                process::exit(crate::run::FAILED.into())
            })
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Ends it. Packets that are on their way are gone.
    pub(crate) fn stop(mut self) -> Result<Relayed> {
        self.end()?.context("the relay has been stopped before")
    }

    /// Ends the thread, if that has not been done.
    fn end(&mut self) -> Result<Option<Relayed>> {
        let Some(thread) = self.thread.take() else { return Ok(None) };
        rustix::io::write(&self.stop, &1_u64.to_ne_bytes()).context("cannot stop the relay")?;
        Ok(Some(thread.join().expect("the relay does not panic")))
    }
}

/// Without it the thread would live on, at real-time priority, and keep the namespaces and devices.
impl Drop for Relay {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("error: {error:#}");
        }
    }
}

fn relay(mut directions: [Direction; 2], stop: &OwnedFd) -> Result<Relayed> {
    // Timers of threads that are not urgent may fire 50 µs late.
    rustix::thread::set_current_timer_slack(NonZero::new(1)).context("cannot ask for exact timers")?;
    // Containers may forbid it. The check shows what that costs.
    let _ = sys::run_first(sys::Urgency::Instrument);
    let start = Instant::now();
    let mut sleeper = Sleeper::default();
    loop {
        let due = directions.iter().filter_map(|direction| direction.link.next_due()).min();
        let packets = directions.iter().map(|direction| direction.link.packets()).sum();
        let timeout = due.map(|due| timespec(sleeper.time(due, nanos_since(start), packets)));
        let mut ready = [
            PollFd::new(&*directions[0].from, PollFlags::IN),
            PollFd::new(&*directions[1].from, PollFlags::IN),
            PollFd::new(stop, PollFlags::IN),
        ];
        match poll(&mut ready, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for packets"),
        }
        let events = ready.map(|device| device.revents());
        if !events[2].is_empty() {
            break;
        }
        for (direction, events) in directions.iter_mut().zip(events) {
            if events.intersects(PollFlags::ERR | PollFlags::NVAL) {
                bail!("a device of the link is gone");
            }
            direction.deliver(start);
            if events.contains(PollFlags::IN) {
                direction.collect(start)?;
            }
        }
    }
    let elapsed = start.elapsed();
    let cpu = clock_gettime(ClockId::ThreadCPUTime);
    let cpu = Duration::new(cpu.tv_sec.cast_unsigned(), cpu.tv_nsec.cast_unsigned() as u32);
    let [there, back] = directions.map(Direction::into_one_way);
    Ok(Relayed { ways: EachWay { there, back }, cpu, elapsed })
}

/// Decides how long the relay sleeps.
#[derive(Default)]
struct Sleeper {
    /// The end of a long sleep, for which this has woken up already.
    awake_until: Nanos,
}

impl Sleeper {
    /// The time to sleep before a packet that is due, while that many are on their way.
    fn time(&mut self, due: Nanos, now: Nanos, packets: usize) -> Nanos {
        let wait = due.saturating_sub(now);
        if wait > LONG_SLEEP {
            self.awake_until = due;
            return wait - WAKES_EARLIER;
        }
        if wait == 0 || now < self.awake_until {
            return 0;
        }
        if packets <= FEW_PACKETS { wait.saturating_sub(WAKES_EARLIER) } else { wait.max(SHORTEST_SLEEP) }
    }
}

/// A packet in a buffer that is long enough for any.
struct Packet {
    buffer: Box<[u8]>,
    len: usize,
}

/// One direction of the relay.
struct Direction {
    link: Link<Packet>,
    from: Arc<Tun>,
    to: Arc<Tun>,
    /// Buffers that no packet is in.
    free: Vec<Box<[u8]>>,
    mtu: u16,
    refused: u64,
    lateness: Histogram<u64>,
}

impl Direction {
    fn new(link: Settings, from: &Arc<Tun>, to: &Arc<Tun>, mtu: u16) -> Self {
        let lateness = Histogram::new_with_max(MAX_LATENESS, 2).expect("two digits of a minute");
        let (from, to) = (Arc::clone(from), Arc::clone(to));
        Self { link: Link::new(link), from, to, free: Vec::new(), mtu, refused: 0, lateness }
    }

    /// Takes what the device has, up to the most for one turn, into the link.
    fn collect(&mut self, start: Instant) -> Result<()> {
        for _ in 0..MOST_PER_TURN {
            let mut buffer = self.free.pop().unwrap_or_else(|| vec![0; usize::from(self.mtu)].into());
            let Some(len) = self.from.read(&mut buffer).context("cannot read packets")? else {
                self.free.push(buffer);
                break;
            };
            let unsent = self.link.offer(nanos_since(start), len as u32, Packet { buffer, len });
            self.free.extend(unsent.map(|packet| packet.buffer));
        }
        Ok(())
    }

    /// Hands over what has arrived.
    fn deliver(&mut self, start: Instant) {
        loop {
            let now = nanos_since(start);
            let Some((due, packet)) = self.link.arrival(now) else { break };
            let accepted = self.to.write(&packet.buffer[..packet.len]);
            self.refused += u64::from(!accepted);
            self.lateness.saturating_record(now - due);
            self.free.push(packet.buffer);
        }
    }

    /// Throws away what the device has.
    fn discard(&mut self) -> Result<()> {
        let mut buffer = vec![0; usize::from(self.mtu)];
        while self.from.read(&mut buffer).context("cannot read packets")?.is_some() {}
        Ok(())
    }

    fn into_one_way(self) -> OneWay {
        OneWay { counts: self.link.counts().clone(), refused: self.refused, lateness: self.lateness }
    }
}

fn nanos_since(start: Instant) -> Nanos {
    start.elapsed().as_nanos() as Nanos
}

fn timespec(nanos: Nanos) -> Timespec {
    let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    Timespec { tv_sec: seconds.cast_signed(), tv_nsec: rest.cast_signed() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_sleep_ends_before_its_time_and_only_once() {
        let mut sleeper = Sleeper::default();
        assert_eq!(sleeper.time(5_000_000, 0, 1), 5_000_000 - WAKES_EARLIER);
        assert_eq!(sleeper.time(5_000_000, 5_000_000 - WAKES_EARLIER, 1), 0);
        assert_eq!(sleeper.time(5_000_000, 4_999_999, 9), 0);
        assert_eq!(sleeper.time(5_400_000, 5_000_000, 9), 400_000);
    }

    #[test]
    fn packets_that_follow_closely_come_in_groups() {
        let mut sleeper = Sleeper::default();
        assert_eq!(sleeper.time(12_000, 0, 500), SHORTEST_SLEEP);
        assert_eq!(sleeper.time(77_000, 0, 500), 77_000);
        assert_eq!(sleeper.time(12_000, 0, FEW_PACKETS), 0, "an exchange is not slowed down");
        assert_eq!(sleeper.time(60_000, 0, 1), 0, "the same with a packet of a kilobyte at 155 Mb/s");
        assert_eq!(sleeper.time(400_000, 0, 1), 400_000 - WAKES_EARLIER);
        assert_eq!(sleeper.time(12_000, 0, FEW_PACKETS + 1), SHORTEST_SLEEP);
        assert_eq!(sleeper.time(12_000, 13_000, 500), 0, "due");
    }
}
