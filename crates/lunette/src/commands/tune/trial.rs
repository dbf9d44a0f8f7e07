//! One measurement: a session with given settings, and a load on it.

#![expect(clippy::cast_precision_loss, reason = "counts of a few seconds lie far below 2^52")]

use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use lunette_initiator::{Disk, Error, Initiator, Observation, Options, TcpInfo, TcpOptions, Url, wait};
use lunette_scsi::Lun;
use lunette_tuning::{Candidate, Rates, Transfer};

use super::scratch::{Misfit, Requests};
use crate::commands::bench::Mode;
use crate::commands::bench::job::{Job, JobError, Plan};
use crate::commands::bench::medium::Medium;
use crate::commands::depth::Depth;

/// The share of a trial in which TCP finds its pace; it does not count.
const WARM_UP: f64 = 0.4;

/// Time between two looks at the connections.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);

/// Looks that show a steady rate.
const MIN_SAMPLES: usize = 4;

/// The disk that all trials use.
pub(super) struct Subject {
    pub(super) initiator: Initiator,
    pub(super) url: Url,
    /// The options of the URL. Trials change what they are about.
    pub(super) options: Options,
    /// Bytes of the disk that may be overwritten.
    pub(super) scratch: Option<Range<u64>>,
}

/// The budget of a trial, for each direction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    pub(super) time: Duration,
    pub(super) bytes: u64,
}

/// The result of a trial.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    pub(super) read: Load,
    pub(super) write: Option<Load>,
    /// Commands that the session could have in flight.
    pub(super) command_window: usize,
}

impl Outcome {
    pub(super) fn rates(&self) -> Rates {
        Rates { read: self.read.bytes_per_second, write: self.write.as_ref().map(|write| write.bytes_per_second) }
    }

    /// Whether segments were sent again, or came out of order.
    pub(super) fn shows_loss(&self) -> bool {
        let shows = |load: &Load| load.resent > 0.0 || load.out_of_order > 0.0;
        shows(&self.read) || self.write.as_ref().is_some_and(shows)
    }
}

/// Why settings could not be measured.
#[derive(Debug, thiserror::Error)]
pub(super) enum TrialError {
    #[error(transparent)]
    Session(#[from] Error),
    #[error(transparent)]
    Misfit(#[from] Misfit),
    /// Nothing was moved, or in no time.
    #[error("the load moved too little to show a rate")]
    NoRate,
}

/// A load in one direction.
#[derive(Debug, Clone)]
pub(super) struct Load {
    /// Bytes of data.
    pub(super) bytes_per_second: f64,
    /// Requests in flight at the end.
    pub(super) depth: usize,
    /// The median of the connections' round trips, under this load.
    pub(super) round_trip: Duration,
    /// Segments that we sent again, of those that we sent.
    pub(super) resent: f64,
    /// Segments that came out of order, of those that came.
    pub(super) out_of_order: f64,
    /// Bytes of data that were moved.
    pub(super) data_bytes: u64,
}

/// A look at the connections in the middle of a load.
#[derive(Clone)]
struct Sample {
    at: Instant,
    observation: Observation,
}

impl Subject {
    /// Opens the disk with the settings of a candidate.
    pub(super) fn open(&self, candidate: &Candidate) -> Result<Disk, Error> {
        let session = wait(self.url.connect(&self.initiator, self.options_of(candidate)))?;
        wait(Disk::open(session, self.url.lun.unwrap_or(Lun::ZERO)))
    }

    fn options_of(&self, candidate: &Candidate) -> Options {
        let settings = &candidate.settings;
        let len = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        let mut options = self.options.clone();
        let offer = &mut options.offer;
        offer.max_connections = settings.connections;
        offer.initial_r2t = settings.initial_r2t;
        offer.immediate_data = settings.immediate_data;
        offer.first_burst_len = len(settings.first_burst_len);
        offer.max_burst_len = len(settings.max_burst_len);
        offer.max_outstanding_r2t = settings.max_outstanding_r2t;
        offer.recv_data_segment_len = len(settings.max_data_segment_len);
        options.tcp = TcpOptions {
            congestion_control: candidate.congestion.map(|control| control.name().into()),
            send_buffer_bytes: candidate.send_buffer_bytes,
            receive_buffer_bytes: candidate.receive_buffer_bytes,
        };
        options
    }

    /// Measures a candidate: reads, then writes if a range may be overwritten.
    pub(super) fn measure(&self, candidate: &Candidate, budget: Budget) -> Result<Outcome, TrialError> {
        let disk = self.open(candidate)?;
        let read = self.load(&disk, candidate, Transfer::Read, budget)?;
        let write = match &self.scratch {
            Some(_) => Some(self.load(&disk, candidate, Transfer::Write, budget)?),
            None => None,
        };
        let window = wait(disk.session().observe())?.command_window;
        Ok(Outcome { read, write, command_window: window })
    }

    fn load(&self, disk: &Disk, candidate: &Candidate, transfer: Transfer, budget: Budget) -> Result<Load, TrialError> {
        let settings = &candidate.settings;
        let (mode, range) = match (transfer, &self.scratch) {
            (Transfer::Write, Some(range)) => (Mode::Write, range.clone()),
            _ => (Mode::Read, 0..disk.facts().len_bytes()),
        };
        let requests = Requests::within(&range, settings.request_len, disk.facts().block_len().into())?;
        let depth = settings.depth as usize;
        let job = Job::new(
            Medium::Disk(disk.clone()),
            Plan {
                mode,
                chunk_len: settings.request_len as usize,
                depth: if candidate.finds_depth { Depth::Measured(depth) } else { Depth::Given(depth) },
                time: budget.time,
                warm_up: Duration::ZERO,
                max_requests: budget.bytes / settings.request_len,
                read_percent: 0,
                first_chunk: requests.first,
                chunks: requests.count,
                seed: 1,
            },
        );
        let mut samples = vec![sample(disk)?];
        let (tally, has_ended) = thread::scope(|scope| {
            let running = scope.spawn(|| job.run());
            let until = Instant::now() + budget.time;
            while !running.is_finished() && Instant::now() < until {
                thread::sleep(SAMPLE_INTERVAL);
                // A session that is lost ends the job as well, which tells why.
                let Ok(next) = sample(disk) else { break };
                samples.push(next);
            }
            let has_ended = running.is_finished();
            job.stop();
            (running.join().expect("a job does not panic"), has_ended)
        });
        let tally = tally.map_err(|error| match error {
            JobError::Request(error) => error,
            JobError::Store(_) | JobError::WrongData { .. } => {
                unreachable!("no job of the tuner compares or uses a store")
            }
        })?;
        let data_bytes = (tally.reads + tally.writes) * settings.request_len;
        let whole = data_bytes as f64 / tally.elapsed.as_secs_f64();
        let end = sample(disk)?;
        // The part of the moved bytes that is data.
        let share = settings.request_len as f64 / settings.payload_len(transfer) as f64;
        let round_trips =
            samples.last().unwrap_or(&end).observation.connections.iter().map(|of| of.round_trip).collect();
        // A load that was stopped ends with a path that drains, which is no steady rate; of one that has sent all its
        // bytes the end counts, too.
        if has_ended {
            samples.push(end.clone());
        }
        let steady = steady_rate(&samples, transfer).map(|rate| rate * share);
        let rate = Some(steady.unwrap_or(whole)).filter(|rate| rate.is_finite() && *rate > 0.0);
        let connections = &end.observation.connections;
        let sum = |of: fn(&TcpInfo) -> u64| connections.iter().map(of).sum::<u64>() as f64;
        Ok(Load {
            bytes_per_second: rate.ok_or(TrialError::NoRate)?,
            depth: tally.depth,
            round_trip: median(round_trips),
            resent: sum(|of| of.resent_segments) / sum(|of| of.sent_data_segments).max(1.0),
            out_of_order: sum(|of| of.out_of_order_segments) / sum(|of| of.received_data_segments).max(1.0),
            data_bytes,
        })
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn sample(disk: &Disk) -> Result<Sample, Error> {
    let observation = wait(disk.session().observe())?;
    Ok(Sample { at: Instant::now(), observation })
}

/// Bytes that have arrived at the receiver between two looks, headers of iSCSI included.
fn moved(from: &Sample, to: &Sample, transfer: Transfer) -> u64 {
    let bytes = |of: &TcpInfo| if transfer == Transfer::Read { of.received_bytes } else { of.acknowledged_bytes };
    let sum = |sample: &Sample| sample.observation.connections.iter().map(bytes).sum::<u64>();
    sum(to).saturating_sub(sum(from))
}

/// Bytes per second once TCP has found its pace; `None` when the load was too short to show it.
fn steady_rate(samples: &[Sample], transfer: Transfer) -> Option<f64> {
    let (first, last) = (samples.first()?, samples.last().filter(|_| samples.len() >= MIN_SAMPLES)?);
    let warm = first.at + last.at.duration_since(first.at).mul_f64(WARM_UP);
    let begin = samples.iter().find(|sample| sample.at >= warm)?;
    let seconds = last.at.duration_since(begin.at).as_secs_f64();
    // A path that is long and slow may have moved nothing in the second part: then the time to the last answer tells.
    let rate = moved(begin, last, transfer) as f64 / seconds;
    (rate.is_finite() && rate > 0.0).then_some(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples with these received bytes, 100 ms apart.
    fn samples(received: &[u64]) -> Vec<Sample> {
        let began = Instant::now();
        let sample = |(index, bytes): (u32, &u64)| {
            let mut observation = Observation::default();
            observation.connections = vec![TcpInfo { received_bytes: *bytes, ..TcpInfo::default() }; 2];
            Sample { at: began + index * Duration::from_millis(100), observation }
        };
        (0..).zip(received).map(sample).collect()
    }

    #[test]
    fn the_warm_up_does_not_count() {
        let rate = steady_rate(&samples(&[0, 1, 2, 4, 8, 1008, 2008, 3008, 4008, 5008, 6008]), Transfer::Read).unwrap();
        assert!((rate - 20_000.0).abs() < 1.0, "{rate}");
    }

    #[test]
    fn a_load_that_is_too_short_or_stands_still_shows_no_steady_rate() {
        for received in [&[][..], &[0, 5], &[0, 9, 9, 9, 9, 9], &[7; 9]] {
            assert_eq!(steady_rate(&samples(received), Transfer::Read), None, "{received:?}");
        }
        assert_eq!(steady_rate(&samples(&[0, 1, 2, 3, 4]), Transfer::Write), None);
    }
}
