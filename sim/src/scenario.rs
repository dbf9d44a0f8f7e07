//! The choices that are drawn from the seed before a run begins: parameters, network, load, faults.

use std::time::Duration;

use lunette_ecl::association::{Config as AssociationConfig, Seal};
use lunette_ecl::recovery::CongestionControl;
use lunette_ecl_endpoint::Config as DatagramConfig;
use lunette_initiator::ChapIdentity;
use lunette_session::keys::{Choices, Offer};
use lunette_session::limits::MIN_MARKER_INTERVAL_WORDS;
use lunette_session::{Authentication, ChapAlgorithms, Credentials, Secret, Timers};

use crate::dice::Dice;
use crate::fault::{self, Fault, FaultKind};
use crate::frames::Format;
use crate::{Setup, Transport};

pub(crate) const TARGET: &str = "iqn.2026-11.example:simulated";
const INITIATOR: &str = "iqn.2026-11.example:simulator";

/// Faults of a run over datagrams.
const MAX_DATAGRAM_FAULTS: u64 = 10;

/// Logical units of the target.
pub(crate) const UNITS: usize = 2;

/// How the network is when nothing happens to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weather {
    pub(crate) latency_us: u64,
    pub(crate) jitter_us: u64,
    /// Bytes that arrive together, at most.
    pub(crate) piece: u64,
    /// Bytes that one direction of a connection holds.
    pub(crate) capacity: usize,
}

/// How the network treats datagrams, and how associations are made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Air {
    /// The share of a million datagrams that is lost, repeated, damaged or marked (ECN's CE).
    pub(crate) lost: u64,
    pub(crate) repeated: u64,
    pub(crate) damaged: u64,
    pub(crate) marked: u64,
    /// The MTU of interfaces, and of the path at first: bytes of an IP packet.
    pub(crate) mtu: u32,
    /// The network says so when the target's port is not there.
    pub(crate) refuses: bool,
    pub(crate) association: AssociationConfig,
    pub(crate) trusts_addresses: bool,
    /// How often the target is gone without a word and started again, and whether with the same secret for Reset.
    pub(crate) kills: u32,
    pub(crate) keeps_secret: bool,
}

/// The load of the initiator.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) commands: u32,
    /// Commands under way at most.
    pub(crate) depth: usize,
    pub(crate) block_len: usize,
    /// The blocks of each logical unit.
    pub(crate) blocks: usize,
    /// Blocks of one command at most.
    pub(crate) longest: usize,
    /// Between two actions at most.
    pub(crate) pause_us: u64,
    /// The device takes up to so long for a command.
    pub(crate) work_us: u64,
    /// The device answers one read or write in this number within the call, where it may; 0: none.
    pub(crate) at_once: u64,
    /// One action in this number is a task management function; 0: none is.
    pub(crate) manage: u64,
    /// Changes of what the target serves.
    pub(crate) changes: u32,
    /// Between two of them at most.
    pub(crate) change_pause_us: u64,
    /// Freezes of logical units, and how long one lasts at most.
    pub(crate) freezes: u32,
    pub(crate) freeze_us: u64,
    /// The target is stopped once, and started again.
    pub(crate) stops: bool,
}

/// Everything that was drawn.
pub(crate) struct Scenario {
    pub(crate) transport: Transport,
    /// Initiators, each with a session of its own.
    pub(crate) initiators: usize,
    /// The last initiator is of a host that may only read.
    pub(crate) has_reader: bool,
    /// Event loops of the target.
    pub(crate) cores: usize,
    pub(crate) chap: Option<ChapIdentity>,
    pub(crate) offers: Offer,
    pub(crate) timers: Timers,
    /// The offer of the target.
    pub(crate) agrees: Offer,
    pub(crate) format: Format,
    pub(crate) weather: Weather,
    pub(crate) air: Air,
    pub(crate) load: Load,
    pub(crate) faults: Vec<Fault>,
    /// How often the target is to leave its sessions to another process.
    pub(crate) handovers: u32,
}

/// The name of an initiator.
pub(crate) fn name(client: usize) -> String {
    format!("{INITIATOR}-{client}")
}

impl Scenario {
    pub(crate) fn draw(setup: Setup, dice: &mut Dice) -> Self {
        let is_over_datagrams = setup.transport.is_of_datagrams();
        let marker_words = dice.pick(&[None, None, Some(MIN_MARKER_INTERVAL_WORDS), Some(512)]);
        let (header_digest, data_digest) = (!dice.one_in(3), !dice.one_in(3));
        let format = if is_over_datagrams {
            Format::default()
        } else {
            Format { header_digest, data_digest, marker_interval: marker_words.map(|words| words as usize * 4) }
        };
        let offers = Offer {
            task_reporting: dice.pick(&[Choices(0b111), Choices(0b101), Choices(0b011), Choices(0b001)]),
            ..offer(setup, format, dice)
        };
        // The target takes what is offered.
        let agrees = Offer { header_digest: Choices(0b11), data_digest: Choices(0b11), ..offer(setup, format, dice) };
        let load = load(dice);
        let most_faults = 4 + 3 * u64::from(setup.level);
        let faults = match setup.transport {
            Transport::Tcp => fault::draw(dice, format, load.commands, most_faults),
            Transport::Tls => fault::draw_of_tls(dice, load.commands, most_faults),
            Transport::Ecl => fault::draw_of_datagrams(dice, load.commands, MAX_DATAGRAM_FAULTS),
        };
        let initiators = dice.pick(&[1, 1, 2, 3]);
        let mut scenario = Self {
            transport: setup.transport,
            initiators,
            has_reader: initiators > 1 && dice.coin(),
            cores: dice.pick(&[1, 1, 2, 3]),
            chap: identity(dice),
            offers,
            timers: timers(dice),
            agrees,
            format,
            weather: weather(setup.transport, dice),
            air: air(setup.transport, dice),
            load,
            faults,
            handovers: dice.pick(&[0, 1, 3, 6]),
        };
        if scenario.handovers > 0 {
            scenario.make_room_for_handovers(dice);
        }
        scenario
    }

    /// A handover alone is no reason for anything that initiators notice, and in half of the runs there is no other
    /// one. Most sessions can go over.
    fn make_room_for_handovers(&mut self, dice: &mut Dice) {
        if !dice.one_in(8) {
            for interval in [&mut self.offers.marker_interval, &mut self.agrees.marker_interval] {
                *interval = None;
            }
            self.format.marker_interval = None;
            self.faults.retain(|fault| fault.kind != FaultKind::Marker);
        }
        if dice.coin() {
            self.faults.clear();
            self.load.stops = false;
            self.air.kills = 0;
            if dice.coin() {
                self.load.manage = 0;
            }
        }
    }

    /// Whether nothing happens for which a session may be lost. A reset of the target ends sessions.
    pub(crate) fn is_calm(&self) -> bool {
        let stays = self.handovers == 0 || self.goes_over();
        (self.faults.len(), self.load.manage, self.air.kills) == (0, 0, 0) && !self.load.stops && stays
    }

    /// Whether sessions can be left to another process.
    pub(crate) fn goes_over(&self) -> bool {
        self.transport == Transport::Tcp && self.format.marker_interval.is_none()
    }

    /// The authentication that the target wants, and its proof when the initiator wants one.
    pub(crate) fn authentication(&self) -> Authentication {
        match &self.chap {
            None => Authentication::None,
            Some(ChapIdentity { initiator, target, algorithms }) => Authentication::Chap {
                initiators: vec![initiator.clone()],
                target: target.clone(),
                algorithms: *algorithms,
            },
        }
    }

    /// The initiator of a host that may only read.
    pub(crate) fn reader(&self) -> Option<usize> {
        self.has_reader.then_some(self.initiators - 1)
    }

    /// The whole draw in a few lines.
    pub(crate) fn describe(&self) -> String {
        format!(
            "{}, {} initiators, reader {:?}, {} cores, {:?} {:?} {:?} {:?}, {} handovers\noffers {:?}\ntarget {:?}\nCHAP {:?}\nfaults {:?}",
            self.transport.word(),
            self.initiators,
            self.reader(),
            self.cores,
            self.format,
            self.weather,
            self.air,
            self.load,
            self.handovers,
            self.offers,
            self.agrees,
            self.chap,
            self.faults
        )
    }
}

/// None, CHAP, or CHAP both ways.
fn identity(dice: &mut Dice) -> Option<ChapIdentity> {
    let credentials = |user: &str, dice: &mut Dice| Credentials {
        user: user.into(),
        secret: Secret::new(dice.bytes::<16>().to_vec()),
    };
    let ways = dice.below(3);
    (ways > 0).then(|| ChapIdentity {
        initiator: credentials("initiator", dice),
        target: (ways == 2).then(|| credentials("target", dice)),
        algorithms: ChapAlgorithms::ALL,
    })
}

fn timers(dice: &mut Dice) -> Timers {
    Timers {
        login: Duration::from_secs(15),
        ping_after: Duration::from_secs(dice.between(2, 30)),
        ping_answer: Duration::from_secs(dice.between(2, 20)),
        resend: Duration::from_millis(dice.between(200, 5000)),
        progress: Duration::from_secs(30),
    }
}

fn offer(setup: Setup, format: Format, dice: &mut Dice) -> Offer {
    let digest = |wanted| if wanted { Choices(0b10) } else { Choices(0b01) };
    let lens = [512, 513, 1000, 1024, 4096, 8191, 8192, 65_536, 262_144];
    Offer {
        header_digest: digest(format.header_digest),
        data_digest: digest(format.data_digest),
        recv_data_segment_len: dice.pick(&lens),
        max_connections: setup.connections,
        initial_r2t: dice.coin(),
        immediate_data: !dice.one_in(3),
        max_burst_len: dice.pick(&lens),
        first_burst_len: dice.pick(&lens),
        time2wait_s: dice.below(3) as u32,
        time2retain_s: dice.pick(&[0, 5, 20, 60]),
        max_outstanding_r2t: dice.pick(&[1, 2, 4, 16]),
        data_pdu_in_order: dice.coin(),
        data_sequence_in_order: dice.coin(),
        error_recovery_level: setup.level,
        marker_interval: format.marker_interval.map(|bytes| bytes as u32 / 4),
        ..Offer::default()
    }
}

fn weather(transport: Transport, dice: &mut Dice) -> Weather {
    // A path that holds no handshake carries nothing.
    let capacities = match transport {
        Transport::Tcp | Transport::Tls => [2000, 16 << 10, 256 << 10, 4 << 20],
        Transport::Ecl => [10_000, 64 << 10, 1 << 20, 64 << 20],
    };
    Weather {
        latency_us: dice.pick(&[0, 50, 500, 5000]),
        jitter_us: dice.pick(&[0, 20, 500, 3000]),
        piece: dice.pick(&[100, 1460, 9000, 65_536]),
        capacity: dice.pick(&capacities),
    }
}

fn air(transport: Transport, dice: &mut Dice) -> Air {
    if !transport.is_of_datagrams() {
        return Air::STILL;
    }
    let share = |dice: &mut Dice| dice.pick(&[0, 0, 0, 1000, 10_000, 50_000]);
    let mtu = dice.pick(&[1280, 1500, 1500, 4000, 9000, 16_000, 65_535]);
    Air {
        lost: share(dice),
        repeated: share(dice),
        damaged: share(dice),
        marked: share(dice),
        mtu,
        refuses: dice.coin(),
        association: AssociationConfig {
            credit_bytes: dice.pick(&[1, 300_000, 2 << 20, 64 << 20]),
            seal: dice.pick(&[Seal::Headers, Seal::Everything]),
            congestion_control: dice.pick(&[CongestionControl::Cubic, CongestionControl::Bbr]),
            ..AssociationConfig::default()
        },
        trusts_addresses: dice.one_in(4),
        kills: dice.pick(&[0, 0, 0, 1, 2]),
        keeps_secret: dice.coin(),
    }
}

impl Air {
    /// How endpoints run.
    pub(crate) fn datagrams(&self) -> DatagramConfig {
        DatagramConfig {
            association: self.association,
            seal: Some(self.association.seal),
            trusts_addresses: self.trusts_addresses,
            interface_mtu: Some(self.mtu),
            reset_secret: None,
            ..DatagramConfig::default()
        }
    }

    /// The settings of streams.
    const STILL: Self = Self {
        lost: 0,
        repeated: 0,
        damaged: 0,
        marked: 0,
        mtu: 1500,
        refuses: false,
        association: AssociationConfig {
            credit_bytes: 64 << 20,
            interface_len: 1472,
            seal: Seal::Headers,
            congestion_control: CongestionControl::Cubic,
        },
        trusts_addresses: false,
        kills: 0,
        keeps_secret: false,
    };
}

fn load(dice: &mut Dice) -> Load {
    let block_len = dice.pick(&[512, 512, 4096]);
    // Long commands of 4 KiB blocks make the buffers of the target run short.
    let longest = if dice.one_in(16) { 256 } else { dice.pick(&[1, 4, 16, 64]) };
    Load {
        commands: dice.between(40, 120) as u32,
        depth: dice.pick(&[1, 4, 16, 64, 200]),
        block_len,
        blocks: longest.max(64) * 2,
        longest,
        pause_us: dice.pick(&[10, 200, 2000]),
        work_us: dice.pick(&[0, 100, 2000, 50_000]),
        at_once: dice.pick(&[0, 1, 2, 4]),
        manage: dice.pick(&[0, 60, 15]),
        changes: dice.pick(&[0, 0, 1, 4]),
        change_pause_us: dice.pick(&[10_000, 500_000, 20_000_000]),
        freezes: dice.pick(&[0, 0, 1, 8]),
        freeze_us: dice.pick(&[1000, 50_000, 3_000_000]),
        stops: dice.one_in(4),
    }
}
