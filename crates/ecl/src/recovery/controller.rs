//! Which rule says how much may be in flight.

use std::time::Duration;

use lunette_session::Time;

use super::bbr::Bbr;
use super::congestion::{Cubic, initial_window};
use super::delivery::Sample;
use super::pacer::Rate;
use super::rtt::Rtt;
use super::{Config, PACING_GAIN, SLOW_START_GAIN};

/// The names of the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum CongestionControl {
    /// RFC 9438: losses make the window smaller. It shares a path with TCP.
    #[default]
    Cubic,
    /// A model of the path: losses change nothing up to 2% of the packets. It fills paths that lose as many.
    Bbr,
}

impl CongestionControl {
    /// The rule with that name, as Linux has it.
    pub fn of_name(name: &str) -> Option<Self> {
        match name {
            "cubic" => Some(Self::Cubic),
            "bbr" => Some(Self::Bbr),
            _ => None,
        }
    }
}

/// The state of one of them.
#[derive(Debug, Clone, Copy)]
pub(super) enum Controller {
    Cubic(Cubic),
    Bbr(Bbr),
}

/// The news of an acknowledgement, as both rules need them.
pub(super) struct News<'a> {
    /// Bytes that filled the window.
    pub(super) growth_bytes: u64,
    pub(super) sample: Option<Sample>,
    pub(super) rtt: &'a Rtt,
    pub(super) in_flight: u64,
}

impl Controller {
    pub(super) fn new(config: &Config) -> Self {
        match config.control {
            CongestionControl::Cubic => Self::Cubic(Cubic::new(config.datagram_len, config.flows)),
            CongestionControl::Bbr => Self::Bbr(Bbr::new(config.datagram_len, config.seed)),
        }
    }

    pub(super) const fn window(&self) -> u64 {
        match self {
            Self::Cubic(cubic) => cubic.window(),
            Self::Bbr(bbr) => bbr.window(),
        }
    }

    pub(super) fn rate(&self, smoothed: Duration, datagram_len: u64) -> Rate {
        match self {
            Self::Cubic(cubic) => {
                let gain = if cubic.is_slow_start() { SLOW_START_GAIN } else { PACING_GAIN };
                Rate::new(cubic.window(), smoothed, gain, initial_window(datagram_len))
            }
            Self::Bbr(bbr) => bbr.rate(),
        }
    }

    pub(super) const fn decreased_at(&self) -> Option<Time> {
        match self {
            Self::Cubic(cubic) => cubic.decreased_at(),
            Self::Bbr(_) => None,
        }
    }

    pub(super) const fn ignore_losses_before(&mut self, now: Time) {
        match self {
            Self::Cubic(cubic) => cubic.ignore_losses_before(now),
            Self::Bbr(bbr) => bbr.ignore_losses_before(now),
        }
    }

    pub(super) fn set_datagram_len(&mut self, datagram_len: usize) {
        match self {
            Self::Cubic(cubic) => cubic.set_datagram_len(datagram_len),
            Self::Bbr(bbr) => bbr.set_datagram_len(datagram_len),
        }
    }

    pub(super) fn on_rtt(&mut self, rtt: Duration, acknowledged: u64, next: u64) {
        if let Self::Cubic(cubic) = self {
            cubic.on_rtt(rtt, acknowledged, next);
        }
    }

    pub(super) fn on_acknowledged(&mut self, news: &News<'_>, now: Time) {
        match self {
            Self::Cubic(cubic) => cubic.on_acknowledged(news.growth_bytes, news.rtt.smoothed(), now),
            Self::Bbr(bbr) => {
                if let Some(sample) = &news.sample {
                    bbr.on_acknowledged(sample, news.rtt.adjusted(), news.in_flight, now);
                }
            }
        }
    }

    pub(super) fn on_restart(&mut self, now: Time) {
        match self {
            Self::Cubic(cubic) => cubic.on_restart(now),
            Self::Bbr(bbr) => bbr.on_restart(now),
        }
    }

    /// Packets were lost, the newest of which was sent at `sent_at`. The answer is whether the window became smaller at
    /// once.
    pub(super) fn on_lost(&mut self, sent_at: Time, packets: u32, bytes: u64, rtt: &Rtt, now: Time) -> bool {
        match self {
            Self::Cubic(cubic) => cubic.on_congestion(sent_at, packets, rtt, now),
            Self::Bbr(bbr) => {
                bbr.on_lost(bytes, sent_at);
                false
            }
        }
    }

    /// A packet came marked "congestion experienced".
    pub(super) fn on_marked(&mut self, sent_at: Time, rtt: &Rtt, now: Time) {
        match self {
            Self::Cubic(cubic) => {
                cubic.on_congestion(sent_at, 0, rtt, now);
            }
            Self::Bbr(bbr) => bbr.on_marked(),
        }
    }

    pub(super) fn on_late(&mut self, late: u32, sent_at: Time) {
        if let Self::Cubic(cubic) = self {
            cubic.on_late(late, sent_at);
        }
    }

    pub(super) fn on_persistent_congestion(&mut self) {
        match self {
            Self::Cubic(cubic) => cubic.on_persistent_congestion(),
            Self::Bbr(bbr) => bbr.on_persistent_congestion(),
        }
    }
}
