//! The values of the paper, from the data file of all papers.

use anyhow::Result;
use serde::Deserialize;

use super::cell::{Digest, name_of};
use crate::experiment::paper;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Paper {
    pub(super) machine: Machine,
    pub(super) protocol: Protocol,
    profile: Vec<Profile>,
    per_pdu: Vec<PerPdu>,
    digest: Vec<DigestCost>,
    pub(super) copy: CopyCost,
    interleaving: Vec<Interleaving>,
    pub(super) throughput: Throughput,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Machine {
    pub(super) hertz: f64,
}

/// The cost of a Data-In PDU of 8 KB with status without digest and copy.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Protocol {
    pub(super) cold_cycles: f64,
    pub(super) warm_cycles: f64,
    pub(super) instructions: f64,
    pub(super) l2_misses: f64,
}

/// The whole cost of a Data-In PDU, and its parts.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Profile {
    figure: u8,
    length: usize,
    pub(super) cycles: Option<f64>,
    pub(super) protocol_percent: f64,
    pub(super) digest_percent: f64,
    pub(super) copy_percent: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PerPdu {
    #[serde(rename = "figure")]
    _figure: u8,
    length: usize,
    cycles: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DigestCost {
    #[serde(rename = "figure")]
    _figure: u8,
    name: String,
    pub(super) cycles_per_byte: f64,
    pub(super) instructions_per_4_bytes: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CopyCost {
    pub(super) cycles_per_byte: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Interleaving {
    #[serde(rename = "figure")]
    _figure: u8,
    name: String,
    pub(super) saved_cycles: f64,
    pub(super) saved_percent: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Throughput {
    #[serde(rename = "figure")]
    _figure: u8,
    pub(super) before_mb_per_s: f64,
    pub(super) after_mb_per_s: f64,
}

impl Paper {
    pub(super) fn load() -> Result<Self> {
        paper::section("sandbox")
    }

    /// The cost of a PDU of that length in one of the figures.
    pub(super) fn profile(&self, figure: u8, length: usize) -> Option<&Profile> {
        self.profile.iter().find(|profile| (profile.figure, profile.length) == (figure, length))
    }

    /// Protocol cycles for each PDU of a read of that length.
    pub(super) fn per_pdu(&self, length: usize) -> Option<f64> {
        self.per_pdu.iter().find(|row| row.length == length).map(|row| row.cycles)
    }

    pub(super) fn digest(&self, digest: Digest) -> Option<&DigestCost> {
        self.digest.iter().find(|row| row.name == name_of(&Digest::ALL, digest))
    }

    pub(super) fn interleaving(&self, digest: Digest) -> Option<&Interleaving> {
        self.interleaving.iter().find(|row| row.name == name_of(&Digest::ALL, digest))
    }

    /// Cycles of a PDU with both optimisations.
    pub(super) fn best_cycles(&self, length: usize) -> Option<f64> {
        Some(self.profile(15, length)?.cycles? - self.interleaving(Digest::Slicing8)?.saved_cycles)
    }

    /// Cycles that TCP/IP takes for a read of 8 KB: what the throughput as it was leaves beside iSCSI's own cycles.
    pub(super) fn tcp_cycles(&self, length: usize) -> Option<f64> {
        let of_iscsi = self.profile(11, length)?.cycles?;
        Some(length as f64 * self.machine.hertz / (self.throughput.before_mb_per_s * 1e6) - of_iscsi)
    }
}

impl Profile {
    /// Cycles of protocol, digest and copy. Where the paper has no total, it follows from the protocol's cycles, which
    /// do not change with the length.
    pub(super) fn parts(&self, protocol_cycles: f64) -> [f64; 3] {
        let percents = [self.protocol_percent, self.digest_percent, self.copy_percent];
        let total = self.cycles.unwrap_or(protocol_cycles * 100.0 / self.protocol_percent);
        percents.map(|percent| total * percent / 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_the_paper_agree_with_each_other() {
        let paper = Paper::load().expect("the data file");
        let close = |a: f64, b: f64| (a / b - 1.0).abs() < 0.05;
        let whole = paper.profile(11, 8192).expect("Figure 11");
        let [_, digest, copy] = whole.parts(paper.protocol.cold_cycles);
        let sarwate = paper.digest(Digest::Sarwate).expect("Figure 14");
        assert!(close(digest / 8192.0, sarwate.cycles_per_byte));
        assert!(close(copy / 8192.0, paper.copy.cycles_per_byte));
        // The other end of Figure 17 follows from TCP's cycles at the first one.
        let both = paper.best_cycles(8192).expect("Figures 15 and 16");
        let cycles = both + paper.tcp_cycles(8192).expect("Figure 17");
        assert!(close(8192.0 * paper.machine.hertz / cycles / 1e6, paper.throughput.after_mb_per_s));
    }
}
