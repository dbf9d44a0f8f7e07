//! The numbers and claims of the paper, from the data file of all papers.

use anyhow::Result;
use serde::Deserialize;

use crate::experiment::paper::{self, Claim};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Paper {
    local_mbit_per_s: f64,
    ecl_mbit_per_s: f64,
    iscsi_mbit_per_s: f64,
    #[serde(rename = "claim")]
    pub(super) claims: Vec<Claim>,
}

impl Paper {
    pub(super) fn load() -> Result<Self> {
        paper::section("ecl")
    }

    /// Reads of the local disk, by ECL and by iSCSI, in 10^6 bytes per second.
    pub(super) fn reads_mb_per_s(&self) -> [f64; 3] {
        [self.local_mbit_per_s, self.ecl_mbit_per_s, self.iscsi_mbit_per_s].map(|mbit| mbit / 8.0)
    }
}
