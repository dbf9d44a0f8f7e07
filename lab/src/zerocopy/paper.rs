//! The numbers and claims of the paper, from the data file of all papers.

use anyhow::Result;
use serde::Deserialize;

use crate::experiment::paper::{self, Claim};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Paper {
    #[serde(rename = "table")]
    tables: Vec<PaperTable>,
    #[serde(rename = "claim")]
    pub(super) claims: Vec<Claim>,
}

/// CPU time by layer.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PaperTable {
    #[serde(rename = "caption")]
    _caption: String,
    write: bool,
    pub(super) rows: Vec<PaperRow>,
}

/// The part of a layer, or idle time.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PaperRow {
    pub(super) part: String,
    /// Percent; NaN where the paper says that it is impossible.
    pub(super) values: [f64; 6],
}

impl Paper {
    pub(super) fn load() -> Result<Self> {
        paper::section("zerocopy")
    }

    pub(super) fn table(&self, write: bool) -> &PaperTable {
        self.tables.iter().find(|table| table.write == write).expect("the paper has both")
    }
}
