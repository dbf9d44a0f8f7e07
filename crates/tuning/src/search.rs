//! The search for settings.

use crate::model::predict;
use crate::path::{Path, Target};
use crate::settings::{Settings, Transfer};

/// The share of the best throughput that is good enough to spare memory and connections.
const GOOD_ENOUGH: f64 = 0.98;

/// The spare requests in flight for each one that the closed form asks for: responses do not come evenly.
const SPARE: f64 = 1.5;

/// The bounds of the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of a block of the device. Requests are whole blocks.
    pub block_len: u64,
    /// Bytes of one request; `Some` when the load decides it.
    pub request_len: Option<u64>,
    /// Bytes of the longest request that the device takes in one command.
    pub max_request_len: u64,
    /// Connections of a session that both sides allow.
    pub max_connections: u32,
    /// Bytes of requests in flight.
    pub max_in_flight_bytes: u64,
    /// Whether both ends agree to InitialR2T=No.
    pub may_send_unsolicited: bool,
    /// Whether both ends agree to ImmediateData=Yes.
    pub may_send_immediate: bool,
    /// FirstBurstLength that the target takes.
    pub max_first_burst_len: u64,
    /// MaxBurstLength that both ends take.
    pub max_burst_len: u64,
    /// MaxOutstandingR2T that both ends take.
    pub max_outstanding_r2t: u32,
    /// MaxRecvDataSegmentLength of the receiver of data.
    pub max_data_segment_len: u64,
    /// Bytes of digests per PDU with data.
    pub digest_len: u32,
}

impl Default for Bounds {
    /// The agreement of two ends of this project.
    fn default() -> Self {
        Self {
            block_len: 512,
            request_len: None,
            max_request_len: 4 << 20,
            max_connections: 8,
            max_in_flight_bytes: 256 << 20,
            may_send_unsolicited: true,
            may_send_immediate: true,
            max_first_burst_len: 256 << 10,
            max_burst_len: 16 << 20,
            max_outstanding_r2t: 16,
            max_data_segment_len: 256 << 10,
            digest_len: 0,
        }
    }
}

impl Bounds {
    /// The bytes of the whole blocks in `len`, but of one block at least.
    ///
    /// ```
    /// let bounds = lunette_tuning::Bounds { block_len: 4160, ..Default::default() };
    /// assert_eq!(bounds.whole_blocks(64 << 10), 15 * 4160);
    /// assert_eq!(bounds.whole_blocks(1), 4160);
    /// ```
    pub fn whole_blocks(&self, len: u64) -> u64 {
        let block_len = self.block_len.max(1);
        (len - len % block_len).max(block_len)
    }

    /// The settings that cost nothing: data goes unsolicited where that is allowed, and bursts are as long as both ends
    /// take.
    pub(crate) fn keys(&self) -> Settings {
        Settings {
            initial_r2t: !self.may_send_unsolicited,
            immediate_data: self.may_send_immediate,
            first_burst_len: self.max_first_burst_len.min(self.max_burst_len),
            max_burst_len: self.max_burst_len,
            max_outstanding_r2t: self.max_outstanding_r2t,
            max_data_segment_len: self.max_data_segment_len,
            digest_len: self.digest_len,
            ..Settings::default()
        }
    }
}

/// The shortest request that is tried when the load does not decide it.
const MIN_REQUEST_LEN: u64 = 64 << 10;

/// Finds the settings that the model predicts the most throughput for, in both directions. Of those within 2% of each
/// other it takes the one with the fewest connections, then the fewest bytes in flight.
///
/// What costs nothing is always set: data goes unsolicited where that is allowed, and bursts are as long as both ends
/// take.
pub fn recommend(path: &Path, target: &Target, bounds: &Bounds) -> Settings {
    let candidates: Vec<(Settings, f64)> = request_lens(bounds)
        .flat_map(|request_len| connections(bounds).map(move |connections| (request_len, connections)))
        .map(|(request_len, connections)| {
            let settings = candidate(path, target, bounds, request_len, connections);
            (settings, both_ways(path, target, &settings))
        })
        .collect();
    let best = candidates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let good = candidates.into_iter().filter(|(_, rate)| *rate >= GOOD_ENOUGH * best);
    let cost = |settings: &Settings| {
        let in_flight_bytes = u64::from(settings.depth) * settings.request_len;
        (settings.connections, in_flight_bytes, settings.depth)
    };
    good.map(|(settings, _)| settings).min_by_key(cost).expect("the best candidate is good enough")
}

/// Powers of two up to what the device takes, cut to whole blocks, or the length that is given.
fn request_lens(bounds: &Bounds) -> impl Iterator<Item = u64> {
    let max_len = bounds.whole_blocks(bounds.max_request_len.max(MIN_REQUEST_LEN));
    let powers = std::iter::successors(Some(MIN_REQUEST_LEN), |len| len.checked_mul(2));
    let whole = powers.map(|len| bounds.whole_blocks(len));
    let chosen = whole.take_while(move |len| bounds.request_len.is_none() && *len <= max_len);
    chosen.chain(bounds.request_len)
}

fn connections(bounds: &Bounds) -> impl Iterator<Item = u32> + use<> {
    let max = bounds.max_connections.max(1);
    std::iter::successors(Some(1_u32), |count| count.checked_mul(2)).take_while(move |count| *count <= max)
}

/// The settings for requests of one length: as many in flight as fill the path.
fn candidate(path: &Path, target: &Target, bounds: &Bounds, request_len: u64, connections: u32) -> Settings {
    let settings = Settings { request_len, depth: 1, connections, ..bounds.keys() };
    let alone = |transfer| predict(path, target, &settings, transfer);
    let filling = [alone(Transfer::Read), alone(Transfer::Write)]
        .map(|one| one.line * one.request_time.as_secs_f64() / request_len as f64)
        .into_iter()
        .fold(1.0, f64::max);
    let affordable = (bounds.max_in_flight_bytes / request_len.max(1)).max(1);
    let depth = ((filling * SPARE).ceil() as u64).min(affordable).min(target.command_window.into()).max(1);
    Settings { depth: depth as u32, ..settings }
}

/// The smaller one of the throughputs of reads and writes.
fn both_ways(path: &Path, target: &Target, settings: &Settings) -> f64 {
    let rate = |transfer| predict(path, target, settings, transfer).bytes_per_second;
    rate(Transfer::Read).min(rate(Transfer::Write))
}

#[cfg(test)]
mod tests;
