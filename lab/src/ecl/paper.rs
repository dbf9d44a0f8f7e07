//! The numbers and claims of the paper, from the data file of all papers.

use anyhow::{Context, Result};
use serde::Deserialize;

const DATA: &str = include_str!("../papers.toml");

#[derive(Deserialize)]
struct Papers {
    ecl: Paper,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Paper {
    local_mbit_per_s: f64,
    ecl_mbit_per_s: f64,
    iscsi_mbit_per_s: f64,
    #[serde(rename = "claim")]
    pub(super) claims: Vec<Claim>,
}

/// The statement of the paper, and why it holds or not.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Claim {
    pub(super) id: String,
    /// The figure or section.
    #[serde(rename = "where")]
    pub(super) place: String,
    pub(super) text: String,
    pub(super) why_yes: String,
    pub(super) why_not: String,
}

impl Paper {
    pub(super) fn load() -> Result<Self> {
        let papers: Papers = toml::from_str(DATA).context("the data file of the papers is wrong")?;
        Ok(papers.ecl)
    }

    /// Reads of the local disk, by ECL and by iSCSI, in 10^6 bytes per second.
    pub(super) fn reads_mb_per_s(&self) -> [f64; 3] {
        [self.local_mbit_per_s, self.ecl_mbit_per_s, self.iscsi_mbit_per_s].map(|mbit| mbit / 8.0)
    }
}
