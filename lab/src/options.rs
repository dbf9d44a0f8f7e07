//! The options of `lunette-lab link`, and the link that they describe.

use std::ffi::OsString;

use anyhow::{Result, bail};
use clap::ValueEnum;

use crate::limits::{MAX_BYTES_ON_THE_WAY, MIN_MTU};
use crate::link::{LossModel, Reordering, Settings};
use crate::net::Ethernet;
use crate::units::{EachWay, Percent, Queue, Rate, Time};

/// A queue without an option holds at least what the line sends in that time...
const LEAST_QUEUE: Time = Time(20_000_000);
/// ...and that many packets.
const LEAST_QUEUE_PACKETS: u64 = 32;

/// Two network namespaces, a link between them, and a command in one of them.
///
/// A value with a slash is one for the way there (from the command) and one for the way back: `--rate 20M/1M`.
#[derive(Clone, clap::Args)]
pub(crate) struct Options {
    /// Bits per second of IP packets, like 155M; without it the line takes no time
    #[arg(long, value_name = "RATE[/RATE]")]
    rate: Option<EachWay<Rate>>,
    /// Round trip time, half of it each way
    #[arg(long, value_name = "TIME", conflicts_with = "delay")]
    rtt: Option<Time>,
    /// Delay each way
    #[arg(long, value_name = "TIME[/TIME]")]
    delay: Option<EachWay<Time>>,
    /// Each packet takes from 0 to this time longer; the order is kept
    #[arg(long, value_name = "TIME", default_value = "0")]
    jitter: Time,
    /// Share of the packets that the line loses
    #[arg(long, value_name = "PERCENT[/PERCENT]", default_value = "0")]
    loss: EachWay<Percent>,
    /// Lose packets in bursts of this many on average
    #[arg(long, value_name = "PACKETS", requires = "loss")]
    burst: Option<f64>,
    /// Loss in two states: turns from good to bad and back per packet, loss in bad (100%) and in good (0)
    #[arg(long, value_name = "P,R[,BAD[,GOOD]]", conflicts_with_all = ["loss", "burst"])]
    gilbert_elliott: Option<LossModel>,
    /// Share of the packets that take longer, so that those behind pass them
    #[arg(long, value_name = "PERCENT", default_value = "0")]
    reorder: Percent,
    /// How much longer they take
    #[arg(long, value_name = "TIME", default_value = "1ms", requires = "reorder")]
    reorder_by: Time,
    /// Room before the line, in bytes (256K) or time (20ms); packets beyond it are dropped [default: one round trip, at
    /// least 20ms and 32 packets]
    #[arg(long, value_name = "QUEUE[/QUEUE]", requires = "rate")]
    queue: Option<EachWay<Queue>>,
    /// Bytes of the longest IP packet
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u16).range(MIN_MTU..))]
    pub(crate) mtu: u16,
    /// Seed of what is random
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Setting of the network at both ends, like net.ipv4.tcp_congestion_control=cubic
    #[arg(long, value_name = "KEY=VALUE", value_parser = sysctl)]
    pub(crate) sysctl: Vec<(String, String)>,
    /// Join the ends by a pair of Ethernet interfaces (veth), as fast as the machine is or as --rate says, in the place
    /// of an emulated link
    #[arg(long, conflicts_with_all = ["rtt", "delay", "jitter", "loss", "gilbert_elliott", "reorder", "queue"])]
    pub(crate) veth: bool,
    /// Whether these segment and join what they carry (TSO, GSO, GRO) [default: on]
    #[arg(long, value_name = "on|off", requires = "veth")]
    pub(crate) offloads: Option<Switch>,
    /// Whether they stand for the checksums of what they carry; without it the systems compute and verify them
    /// [default: on]
    #[arg(long, value_name = "on|off", requires = "veth")]
    pub(crate) checksums: Option<Switch>,
    /// Receive packets on the CPU of their end, as with network cards; without it the sender's CPU does that
    #[arg(long, requires_all = ["veth", "pin"])]
    pub(crate) rps: bool,
    /// Give the processes of each end a CPU of their own
    #[arg(long)]
    pub(crate) pin: bool,
    /// A command for the shell that runs at the other end as long as COMMAND
    #[arg(long, value_name = "COMMAND", requires = "command")]
    pub(crate) serve: Option<String>,
    /// Wait until something at the other end listens on this TCP port
    #[arg(long, value_name = "PORT", requires = "serve")]
    pub(crate) wait_port: Option<u16>,
    /// Do not measure the link first
    #[arg(long, requires = "command")]
    pub(crate) no_check: bool,
    /// The report as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Command to run; without it the link is only measured. LAB_ADDRESS and LAB_PEER have the addresses
    #[arg(last = true)]
    pub(crate) command: Vec<OsString>,
}

/// The position of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

fn sysctl(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
    Ok((key.into(), value.into()))
}

impl Options {
    /// The pair of Ethernet interfaces in the place of a link.
    pub(crate) fn ethernet(&self) -> Ethernet {
        Ethernet {
            mtu: self.mtu,
            segments: self.offloads != Some(Switch::Off),
            checksums: self.checksums != Some(Switch::Off),
            bits_per_second: self.rate.map(|rate| rate.map(|rate| rate.0)),
        }
    }

    /// The link in both directions.
    pub(crate) fn link(&self) -> Result<EachWay<Settings>> {
        let delay = match (self.rtt, self.delay) {
            (Some(rtt), _) => EachWay { there: Time(rtt.0 / 2), back: Time(rtt.0 - rtt.0 / 2) },
            (None, delay) => delay.unwrap_or(EachWay::both(Time(0))),
        };
        let round_trip = Time(delay.there.0 + delay.back.0);
        let rate = self.rate.map_or(EachWay::both(None), |rate| rate.map(Some));
        let queue = self.queue.map_or(EachWay::both(None), |queue| queue.map(Some));
        let there = self.direction(0, rate.there, delay.there, self.loss.there, queue.there, round_trip)?;
        let back = self.direction(1, rate.back, delay.back, self.loss.back, queue.back, round_trip)?;
        Ok(EachWay { there, back })
    }

    fn direction(
        &self,
        direction: u64,
        rate: Option<Rate>,
        delay: Time,
        loss: Percent,
        queue: Option<Queue>,
        round_trip: Time,
    ) -> Result<Settings> {
        let reordering = Reordering { share: self.reorder.0, longer: self.reorder_by.0 };
        Ok(Settings {
            bits_per_second: rate.map(|rate| rate.0),
            delay: delay.0,
            jitter: self.jitter.0,
            loss: self.loss_model(loss)?,
            reordering: (reordering.share > 0.0).then_some(reordering),
            queue_bytes: rate.map_or(0, |rate| self.queue_bytes(rate, queue, round_trip)),
            max_packets: MAX_BYTES_ON_THE_WAY / usize::from(self.mtu),
            seed: self.seed,
            direction,
        })
    }

    fn loss_model(&self, share: Percent) -> Result<LossModel> {
        if let Some(model) = self.gilbert_elliott {
            return Ok(model);
        }
        let Some(burst) = self.burst else { return Ok(LossModel::random(share.0)) };
        match LossModel::bursts(share.0, burst) {
            Some(model) => Ok(model),
            None => bail!(
                "no line loses {:.3}% of its packets in bursts of {burst}: a burst has one packet at least, and so have \
                 the gaps between them",
                share.0 * 100.0
            ),
        }
    }

    fn queue_bytes(&self, rate: Rate, queue: Option<Queue>, round_trip: Time) -> u64 {
        let sent_in = |time: Time| (u128::from(rate.0) * u128::from(time.0) / 8_000_000_000) as u64;
        match queue {
            Some(Queue::Bytes(bytes)) => bytes,
            Some(Queue::Time(time)) => sent_in(time),
            None => {
                let packets = LEAST_QUEUE_PACKETS * u64::from(self.mtu);
                sent_in(round_trip).max(sent_in(LEAST_QUEUE)).max(packets)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        options: Options,
    }

    fn link(arguments: &str) -> EachWay<Settings> {
        let arguments = ["link"].into_iter().chain(arguments.split_whitespace());
        Arguments::try_parse_from(arguments).expect("valid options").options.link().expect("a possible link")
    }

    #[test]
    fn half_of_the_round_trip_is_each_way() {
        let link = link("--rate 155M --rtt 50ms --loss 0.1%");
        assert_eq!((link.there.delay, link.back.delay), (25_000_000, 25_000_000));
        assert_eq!(link.there.bits_per_second, Some(155_000_000));
        assert_eq!(link.back.loss, LossModel::random(0.001));
        assert_ne!(link.there.direction, link.back.direction);
    }

    #[test]
    fn an_odd_round_trip_loses_nothing() {
        let link = link("--rtt 5ns");
        assert_eq!(link.there.delay + link.back.delay, 5);
    }

    #[test]
    fn directions_may_differ() {
        let link = link("--rate 20M/1M --delay 10ms/5ms --loss 0/1% --queue 64K/100ms");
        assert_eq!((link.there.bits_per_second, link.back.bits_per_second), (Some(20_000_000), Some(1_000_000)));
        assert_eq!((link.there.delay, link.back.delay), (10_000_000, 5_000_000));
        assert_eq!((link.there.loss, link.back.loss), (LossModel::random(0.0), LossModel::random(0.01)));
        assert_eq!((link.there.queue_bytes, link.back.queue_bytes), (65_536, 12_500));
    }

    #[test]
    fn a_queue_holds_a_round_trip_unless_that_is_short() {
        assert_eq!(link("--rate 155M --rtt 50ms").there.queue_bytes, 968_750);
        assert_eq!(link("--rate 1G").there.queue_bytes, 2_500_000, "20 ms");
        assert_eq!(link("--rate 10M").there.queue_bytes, 48_000, "32 packets");
    }

    #[test]
    fn impossible_bursts_are_refused() {
        let arguments = ["link", "--loss", "90%", "--burst", "2"];
        let options = Arguments::try_parse_from(arguments).expect("valid options").options;
        assert!(options.link().is_err());
    }

    #[test]
    fn packets_on_the_way_are_bounded_in_bytes() {
        assert_eq!(link("--mtu 9000").there.max_packets, (1 << 30) / 9000);
    }
}
