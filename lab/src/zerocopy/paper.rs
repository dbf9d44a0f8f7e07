//! The numbers and claims of the paper, from the data file of all papers.

use anyhow::{Context, Result};
use serde::Deserialize;

const DATA: &str = include_str!("../papers.toml");

#[derive(Deserialize)]
struct Papers {
    zerocopy: Paper,
}

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

/// The statement of the paper, and why it holds or not.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Claim {
    pub(super) id: String,
    /// The page of the slides.
    #[serde(rename = "where")]
    pub(super) place: String,
    pub(super) text: String,
    pub(super) why_yes: String,
    pub(super) why_not: String,
}

impl Paper {
    pub(super) fn load() -> Result<Self> {
        let papers: Papers = toml::from_str(DATA).context("the data file of the papers is wrong")?;
        Ok(papers.zerocopy)
    }

    pub(super) fn table(&self, write: bool) -> &PaperTable {
        self.tables.iter().find(|table| table.write == write).expect("the paper has both")
    }
}
