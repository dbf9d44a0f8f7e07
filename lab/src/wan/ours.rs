//! The closed form for this project's stack on this machine.
//!
//! It is `lunette_tuning::predict`, with what it needs to know of the machine measured by commands that are in no
//! table: one command of 512 bytes at a time and 32 of them, each without distance, and pings over each distance.

use std::time::Duration;

use anyhow::Result;
use lunette_tuning::{Path, Prediction, Settings, Target, Transfer, predict};

use super::paper::{LinkKind, Load, PaperCell};
use super::spec::{ROUND_TRIP_US, Spec, WINDOW, Work};
use crate::experiment::commands::MB_PER_S;
use crate::experiment::{Results, Spread};

/// The length of the commands that show what a command costs.
const PROBE_LEN: u32 = 512;
const ALONE: u32 = 1;
const BUSY: u32 = 32;
/// The part of a full socket buffer that has to be free before Linux wakes the sender (`sk_stream_is_writeable`). Its
/// bytes are acknowledged one after another, at the rate of the line.
const REFILLED: f64 = 1.0 / 3.0;
pub(super) const LOADS: [Load; 3] = [Load::Solicited, Load::Unsolicited, Load::Reads];
pub(super) const LINKS: [LinkKind; 2] = [LinkKind::Oc3, LinkKind::Lan];

/// The facts about this machine for the closed form.
pub(super) struct Terms {
    commands: Vec<CommandTerms>,
    /// By how much round trips are longer than the link's, by its round trip in ms.
    longer: Vec<(u32, Duration)>,
}

/// The cost of commands.
pub(super) struct CommandTerms {
    pub(super) link: LinkKind,
    pub(super) load: Load,
    /// The latency of a command that is alone, without the time of its bytes on the line.
    pub(super) latency: Duration,
    /// The cost of each command, when many are under way.
    pub(super) cost: Duration,
}

/// The measurements that give the terms: commands without distance, and pings over these distances.
pub(super) fn probes(burst_bytes: u64, round_trips_ms: &[u32]) -> Vec<Spec> {
    let commands = LINKS.into_iter().flat_map(|link| {
        LOADS.into_iter().flat_map(move |load| [ALONE, BUSY].map(|window| probe(burst_bytes, link, load, window)))
    });
    commands.chain(round_trips_ms.iter().map(|ms| Spec::on(LinkKind::Oc3, *ms, Work::Pings))).collect()
}

fn probe(burst_bytes: u64, link: LinkKind, load: Load, window: u32) -> Spec {
    let cell =
        PaperCell { table: 0, link, load, request_len: PROBE_LEN.into(), window, round_trip_ms: 0, mb_per_s: 0.0 };
    Spec::of_paper(burst_bytes, &cell)
}

impl Terms {
    /// Reads the terms from the probes. What was not measured is as the model assumes.
    pub(super) fn of(burst_bytes: u64, round_trips_ms: &[u32], results: &Results) -> Result<Self> {
        let mut commands = Vec::new();
        for link in LINKS {
            for load in LOADS {
                commands.push(CommandTerms::of(burst_bytes, link, load, results)?);
            }
        }
        let ping = |ms| {
            let runs = Spec::on(LinkKind::Oc3, ms, Work::Pings).cell();
            Spread::of_figure(results.runs(&runs), ROUND_TRIP_US).map(|spread| spread.median)
        };
        let near = ping(0);
        let longer = round_trips_ms.iter().map(|ms| {
            let longer_us = ping(*ms).zip(near).map_or(0.0, |(far, near)| far - near - f64::from(*ms) * 1e3);
            (*ms, Duration::from_secs_f64(longer_us.max(0.0) / 1e6))
        });
        Ok(Self { commands, longer: longer.collect() })
    }

    pub(super) fn commands(&self) -> &[CommandTerms] {
        &self.commands
    }

    /// By how much a round trip is longer than the link's.
    pub(super) fn longer(&self, round_trip_ms: u32) -> Duration {
        self.longer.iter().find(|(ms, _)| *ms == round_trip_ms).map_or(Duration::ZERO, |(_, longer)| *longer)
    }

    /// The closed form for a cell of iSCSI commands. `None` for other work.
    pub(super) fn predict(&self, spec: &Spec) -> Result<Option<Prediction>> {
        let Work::Commands { settings, transfer, .. } = &spec.work else { return Ok(None) };
        let link = if spec.rate == super::spec::LAN { LinkKind::Lan } else { LinkKind::Oc3 };
        let load = match transfer {
            Transfer::Read => Load::Reads,
            Transfer::Write if settings.unsolicited_len() == 0 => Load::Solicited,
            Transfer::Write => Load::Unsolicited,
        };
        let terms = self.commands.iter().find(|terms| terms.link == link && terms.load == load);
        let target = terms.map_or_else(Target::default, |terms| Target {
            latency: terms.latency,
            command_cost: terms.cost,
            ..Target::default()
        });
        predicted(spec, &target, self.longer(spec.round_trip_ms)).map(Some)
    }

    /// The closed form in MB/s: that of commands, or a window in each round trip for streams.
    pub(super) fn mb_per_s(&self, spec: &Spec, results: &Results) -> Result<Option<f64>> {
        if let Some(prediction) = self.predict(spec)? {
            return Ok(Some(prediction.bytes_per_second / 1e6));
        }
        let Some(window) = Spread::of_figure(results.runs(&spec.cell()), WINDOW) else { return Ok(None) };
        let path = self.path(spec)?;
        let refilled = window.median * REFILLED / path.payload_rate();
        let limit = window.median / (path.round_trip.as_secs_f64() + refilled);
        Ok(Some(limit.min(path.payload_rate()) / 1e6))
    }

    fn path(&self, spec: &Spec) -> Result<Path> {
        let path = spec.path()?;
        Ok(Path { round_trip: path.round_trip + self.longer(spec.round_trip_ms), ..path })
    }
}

impl CommandTerms {
    fn of(burst_bytes: u64, link: LinkKind, load: Load, results: &Results) -> Result<Self> {
        let seconds = |window| {
            let runs = probe(burst_bytes, link, load, window).cell();
            Spread::of_figure(results.runs(&runs), MB_PER_S)
                .map(|measured| f64::from(PROBE_LEN) / (measured.median * 1e6))
        };
        let alone = probe(burst_bytes, link, load, ALONE);
        let on_the_line = predicted(&alone, &Target::default(), Duration::ZERO)?.serialisation;
        let latency = seconds(ALONE)
            .map_or(Target::default().latency, |alone| Duration::from_secs_f64(alone).saturating_sub(on_the_line));
        let cost = seconds(BUSY).map_or(Target::default().command_cost, Duration::from_secs_f64);
        Ok(Self { link, load, latency, cost })
    }
}

fn predicted(spec: &Spec, target: &Target, longer: Duration) -> Result<Prediction> {
    let path = spec.path()?;
    let path = Path { round_trip: path.round_trip + longer, ..path };
    let (settings, transfer) = match &spec.work {
        Work::Commands { settings, transfer, .. } => (*settings, *transfer),
        _ => (Settings::default(), Transfer::Read),
    };
    Ok(predict(&path, target, &settings, transfer))
}
