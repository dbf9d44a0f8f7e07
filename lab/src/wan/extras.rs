//! The cells that the paper could not measure, from `extras.toml`.

use anyhow::{Context, Result};
use lunette_tuning::{CongestionControl, Settings, Transfer};
use serde::Deserialize;

use super::spec::{Client, OC3, Spec, Target, Work};

const DATA: &str = include_str!("extras.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Extras {
    #[serde(rename = "group")]
    pub(super) groups: Vec<Group>,
}

/// Cells that answer one question.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Group {
    pub(super) title: String,
    pub(super) text: String,
    pub(super) rows: Vec<Row>,
}

/// A cell. What is not said is as the head of the data file says.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    pub(super) what: String,
    round_trip_ms: u32,
    #[serde(default)]
    write: bool,
    #[serde(default = "default_request_kb")]
    request_kb: u64,
    #[serde(default = "default_window")]
    window: u32,
    #[serde(default)]
    loss_percent: f64,
    #[serde(default)]
    congestion: Congestion,
    #[serde(default = "default_connections")]
    connections: u32,
    /// No data before an R2T.
    #[serde(default)]
    solicited: bool,
    #[serde(default)]
    initial_r2t: bool,
    #[serde(default = "default_immediate_data")]
    immediate_data: bool,
    #[serde(default = "default_burst_kb")]
    first_burst_kb: u64,
    #[serde(default = "default_burst_kb")]
    max_burst_kb: u64,
    #[serde(default = "default_connections")]
    max_outstanding_r2t: u32,
    #[serde(default = "default_tcp_buffer_kb")]
    tcp_buffer_kb: u64,
    #[serde(default = "default_coalesce")]
    coalesce: bool,
    #[serde(default = "default_target")]
    target: Target,
    #[serde(default = "default_client")]
    client: Client,
    seconds: Option<u32>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Congestion {
    #[default]
    Cubic,
    Bbr,
}

fn default_request_kb() -> u64 {
    64
}

fn default_window() -> u32 {
    32
}

fn default_connections() -> u32 {
    1
}

fn default_immediate_data() -> bool {
    true
}

/// One block less than 16 MB, the most that the protocol has.
fn default_burst_kb() -> u64 {
    (16 << 10) - 1
}

fn default_tcp_buffer_kb() -> u64 {
    10 << 10
}

fn default_coalesce() -> bool {
    true
}

fn default_target() -> Target {
    Target::Lunette
}

fn default_client() -> Client {
    Client::Lunette
}

impl Extras {
    pub(super) fn load() -> Result<Self> {
        toml::from_str(DATA).context("the data file of what goes beyond the paper is wrong")
    }

    pub(super) fn specs(&self) -> Vec<Spec> {
        self.groups.iter().flat_map(|group| &group.rows).map(Row::spec).collect()
    }
}

impl Row {
    pub(super) fn spec(&self) -> Spec {
        let settings = Settings {
            request_len: self.request_kb << 10,
            depth: self.window,
            connections: self.connections,
            initial_r2t: self.solicited || self.initial_r2t,
            immediate_data: self.immediate_data && !self.solicited,
            first_burst_len: (self.first_burst_kb << 10).min(self.max_burst_kb << 10),
            max_burst_len: self.max_burst_kb << 10,
            max_outstanding_r2t: self.max_outstanding_r2t,
            max_data_segment_len: 256 << 10,
            digest_len: 0,
        };
        let transfer = if self.write { Transfer::Write } else { Transfer::Read };
        Spec {
            rate: OC3.into(),
            round_trip_ms: self.round_trip_ms,
            loss_percent: self.loss_percent,
            congestion: match self.congestion {
                Congestion::Cubic => CongestionControl::Cubic,
                Congestion::Bbr => CongestionControl::Bbr,
            },
            tcp_buffer: self.tcp_buffer_kb << 10,
            work: Work::Commands { settings, transfer, target: self.target, client: self.client },
            coalesce: self.coalesce,
            seconds: self.seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iscsi_perf_only_reads() {
        for row in Extras::load().expect("the data file").groups.iter().flat_map(|group| &group.rows) {
            assert!(row.client == Client::Lunette || !row.write, "{}", row.what);
        }
    }
}
