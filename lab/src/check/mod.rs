//! The emulator's measurements of itself before it is used: its errors on this machine, now.
//!
//! Round trips and throughput are measured over a link like the one asked for, but without loss, jitter and reordering
//! and with a queue for any TCP, so that they show the emulator and not the link. Losses are counted on the link asked
//! for, by a relay of its own: those of the command begin with the seed.

mod echo;
mod greedy;
mod losses;

use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::link::{LossModel, Nanos, Settings};
use crate::net::{Pair, Relay};
use crate::units::EachWay;

pub(crate) use losses::Losses;

/// The share of the rate below which the emulator says that this machine does not hold it.
pub(crate) const LEAST_SHARE: f64 = 0.97;
/// IP and TCP headers with time stamps.
const TCP_HEADERS: u16 = 52;
/// The queue for the throughput, in round trips and in bytes.
const QUEUE_ROUND_TRIPS: u64 = 4;
const LEAST_QUEUE_BYTES: u64 = 4 << 20;

/// The measurements.
#[derive(Serialize)]
pub(crate) struct Check {
    pub(crate) idle: Idle,
    pub(crate) tcp: Throughput,
    /// For links that lose packets.
    pub(crate) loss: Option<BothLosses>,
}

/// Round trips of small packets over an idle link.
#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "the unit stands in the name")]
pub(crate) struct Idle {
    pub(crate) asked_ms: f64,
    pub(crate) median_ms: f64,
    pub(crate) most_ms: f64,
}

/// The throughput of one TCP connection that always has something to send, from the command's end.
#[derive(Serialize)]
pub(crate) struct Throughput {
    /// Payload in bits per second.
    pub(crate) bits_per_second: f64,
    /// The payload that packets of the link's MTU can carry at its rate. `None` if the link has no rate.
    pub(crate) most_bits_per_second: Option<f64>,
    /// CPU time of the relay per second, with that of the system for its packets.
    pub(crate) relay_cores: f64,
}

/// Losses of both directions.
#[derive(Serialize)]
pub(crate) struct BothLosses {
    pub(crate) there: Losses,
    pub(crate) back: Losses,
}

impl Throughput {
    /// The share of what is possible.
    pub(crate) fn share(&self) -> Option<f64> {
        self.most_bits_per_second.map(|most| self.bits_per_second / most)
    }
}

/// Measures the link between the ends of a pair. No relay may be at work.
pub(crate) fn run(pair: &Pair, link: &EachWay<Settings>, mtu: u16) -> Result<Check> {
    let clean = EachWay { there: clean(&link.there, link), back: clean(&link.back, link) };
    let relay = Relay::start(pair, clean.clone(), mtu)?;
    let idle = idle(pair, &clean)?;
    relay.stop()?;
    let tcp = throughput(pair, &clean, mtu)?;
    let lossy = link.there.loss.mean() > 0.0 || link.back.loss.mean() > 0.0;
    let loss = if lossy { Some(losses::count(pair, link, mtu)?) } else { None };
    Ok(Check { idle, tcp, loss })
}

/// The direction without randomness, and with a queue for any TCP.
fn clean(settings: &Settings, link: &EachWay<Settings>) -> Settings {
    let bytes_per_round_trip = bytes_per(round_trip(link), settings);
    Settings {
        jitter: 0,
        loss: LossModel::random(0.0),
        reordering: None,
        queue_bytes: LEAST_QUEUE_BYTES.max(QUEUE_ROUND_TRIPS * bytes_per_round_trip),
        ..settings.clone()
    }
}

fn round_trip(link: &EachWay<Settings>) -> Nanos {
    link.there.delay + link.back.delay
}

/// The bytes that the line sends in that time.
fn bytes_per(time: Nanos, settings: &Settings) -> u64 {
    settings.bits_per_second.map_or(0, |rate| (u128::from(rate) * u128::from(time) / 8_000_000_000) as u64)
}

fn idle(pair: &Pair, link: &EachWay<Settings>) -> Result<Idle> {
    let on_the_line = |settings: &Settings| {
        settings.bits_per_second.map_or(0, |rate| u64::from(echo::PACKET_BYTES) * 8_000_000_000 / rate)
    };
    let asked = Duration::from_nanos(round_trip(link) + on_the_line(&link.there) + on_the_line(&link.back));
    let peer = pair.near.peer;
    let mut times =
        pair.near.namespace.run(move || echo::round_trips(peer, asked)).context("cannot measure round trips")?;
    times.sort_unstable();
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    Ok(Idle {
        asked_ms: milliseconds(asked),
        median_ms: milliseconds(times[times.len() / 2]),
        most_ms: milliseconds(times[times.len() - 1]),
    })
}

fn throughput(pair: &Pair, link: &EachWay<Settings>, mtu: u16) -> Result<Throughput> {
    let round_trip = round_trip(link);
    // The system has its limits in an `int`.
    let window = LEAST_QUEUE_BYTES
        .max(2 * (QUEUE_ROUND_TRIPS + 1) * bytes_per(round_trip, &link.there))
        .min(i32::MAX.cast_unsigned().into());
    let bits = greedy::MEASURED_PACKETS * u64::from(mtu) * 8;
    let least = Duration::from_nanos(link.there.bits_per_second.map_or(0, |rate| bits * 1_000_000_000 / rate));
    let relay = Relay::start(pair, link.clone(), mtu)?;
    let bits_per_second = greedy::bits_per_second(pair, Duration::from_nanos(round_trip), least, window)
        .context("cannot measure the throughput")?;
    let relayed = relay.stop()?;
    let payload = f64::from(mtu - TCP_HEADERS) / f64::from(mtu);
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let most = link.there.bits_per_second.map(|rate| rate as f64 * payload);
    let relay_cores = relayed.cpu.as_secs_f64() / relayed.elapsed.as_secs_f64();
    Ok(Throughput { bits_per_second, most_bits_per_second: most, relay_cores })
}
