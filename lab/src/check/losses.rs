//! Losses, counted one by one.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::link::Settings;
use crate::net::{End, Pair, Relay};
use crate::units::EachWay;

use super::BothLosses;

/// Headers of IP and UDP, and four bytes.
const PACKET_BYTES: u64 = 32;
/// The number of losses to expect, if a number of packets within these bounds has them...
const ENOUGH: f64 = 400.0;
const FEWEST: u64 = 1_000;
const MOST: u64 = 40_000;
/// ...in the time that the line needs for them, or that machines need which are slower than the line.
const TIME: Duration = Duration::from_secs(1);
const MOST_PER_SECOND: u64 = 100_000;
/// Packets that are sent at once.
const BURST: u64 = 32;
/// The receiver's memory: a packet takes less than a kibibyte of it.
const RECEIVE_BUFFER: usize = (MOST as usize) << 10;
/// The time that a packet may take longer than it should.
const PATIENCE: Duration = Duration::from_millis(500);
/// Deviations from the mean that are unlikely by chance.
const DEVIATIONS: f64 = 5.0;

/// Packets that were sent in one direction, and those that did not arrive.
#[derive(Serialize)]
pub(crate) struct Losses {
    pub(crate) sent: u64,
    pub(crate) lost: u64,
    pub(crate) asked_share: f64,
    /// The share that was lost is not one that chance explains.
    pub(crate) strange: bool,
}

/// Counts the losses of a link in both directions. A queue that is too short for the bursts of this is made longer.
pub(crate) fn count(pair: &Pair, link: &EachWay<Settings>, mtu: u16) -> Result<BothLosses> {
    let roomy =
        |settings: Settings| Settings { queue_bytes: settings.queue_bytes.max(MOST * PACKET_BYTES), ..settings };
    let relay = Relay::start(pair, link.clone().map(roomy), mtu)?;
    let there = one_way(&pair.near, &pair.far, &link.there).context("cannot count the losses of the way there")?;
    let back = one_way(&pair.far, &pair.near, &link.back).context("cannot count the losses of the way back")?;
    let relayed = relay.stop()?;
    for (seen, way) in [(&there, &relayed.ways.there), (&back, &relayed.ways.back)] {
        let known = way.counts.lost + way.counts.dropped + way.counts.overflowed;
        ensure!(seen.lost == known, "{} packets did not arrive, and the link lost {known}", seen.lost);
    }
    Ok(BothLosses { there, back })
}

#[expect(clippy::cast_precision_loss, clippy::cast_sign_loss, reason = "thousands of packets")]
fn one_way(from: &End, to: &End, settings: &Settings) -> Result<Losses> {
    let asked_share = settings.loss.mean();
    let per_second =
        settings.bits_per_second.map_or(MOST_PER_SECOND, |rate| (rate / 8 / PACKET_BYTES).min(MOST_PER_SECOND));
    // The slowest lines send four packets a second.
    let per_second = per_second.max(1);
    let wanted = ((ENOUGH / asked_share.max(1e-9)) as u64).clamp(FEWEST, MOST);
    let count = wanted.min(per_second * TIME.as_secs()).max(BURST);
    let longest = settings.delay + settings.jitter + settings.reordering.map_or(0, |by| by.longer);
    let patience = Duration::from_nanos(longest) + PATIENCE;

    let (address, peer) = (SocketAddr::new(to.address.into(), 0), from.namespace.run(|| UdpSocket::bind("0.0.0.0:0"))?);
    let receiver = to.namespace.run(move || UdpSocket::bind(address))?;
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&receiver, RECEIVE_BUFFER)?;
    receiver.set_read_timeout(Some(patience))?;
    peer.connect(receiver.local_addr()?)?;
    let sender = thread::spawn(move || send(&peer, count, per_second));
    let mut arrived = 0;
    let mut packet = [0; 4];
    loop {
        match receiver.recv(&mut packet) {
            Ok(_) => arrived += 1,
            Err(error) if error.kind() == ErrorKind::WouldBlock && sender.is_finished() => break,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error.into()),
        }
    }
    sender.join().expect("the sender does not panic")?;
    let lost = count - arrived;
    let off = (lost as f64 / count as f64 - asked_share).abs();
    let strange = off > DEVIATIONS * settings.loss.deviation(count) + 1.0 / count as f64;
    Ok(Losses { sent: count, lost, asked_share, strange })
}

/// Sends packets as fast as the line does, so that its queue drops none.
fn send(socket: &UdpSocket, count: u64, per_second: u64) -> Result<()> {
    let began = Instant::now();
    for number in 0..count {
        socket.send(&(number as u32).to_be_bytes())?;
        if number % BURST == BURST - 1 {
            let due = Duration::from_nanos(number * 1_000_000_000 / per_second);
            thread::sleep(due.saturating_sub(began.elapsed()));
        }
    }
    Ok(())
}
