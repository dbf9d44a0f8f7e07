//! Papers: their values and claims, from the data file.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Table;

const DATA: &str = include_str!("../papers.toml");

/// The section of one paper.
pub(crate) fn section<P: DeserializeOwned>(name: &str) -> Result<P> {
    let mut papers: toml::Table = toml::from_str(DATA).context("the data file of the papers is wrong")?;
    let paper = papers.remove(name).with_context(|| format!("the data file of the papers has no {name}"))?;
    paper.try_into().with_context(|| format!("the data file of the papers is wrong about {name}"))
}

/// The statement of the paper, and why it holds or not.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Claim {
    pub(crate) id: String,
    /// The figure, section or page.
    #[serde(rename = "where")]
    place: String,
    text: String,
    why_yes: String,
    why_not: String,
}

/// A verdict with its figures. `None` where cells are missing.
pub(crate) type Verdict = Option<(bool, String)>;

/// A report that judges the claims of a paper.
pub(crate) trait Judge {
    fn claims(&self) -> &[Claim];

    /// The judgement of the claim with that id.
    fn verdict(&self, id: &str) -> Verdict;

    /// Every claim of the paper with its verdict, and the figures behind it.
    fn judged(&self) -> Table {
        let mut table = Table::new(["where", "claim", "holds?", "figures here", "why"]);
        for Claim { id, place, text, why_yes, why_not } in self.claims() {
            let (verdict, figures, why) = match self.verdict(id) {
                Some((true, figures)) => ("yes", figures, why_yes.as_str()),
                Some((false, figures)) => ("no", figures, why_not.as_str()),
                None => ("not measured", "–".into(), "–"),
            };
            table.row([place.as_str(), text, verdict, &figures, why]);
        }
        table
    }

    /// How many claims hold, and the figures of some of them, which are named by their id.
    fn outcome(&self, named: &[(&str, &str)]) -> String {
        let verdicts: Vec<_> = self.claims().iter().filter_map(|claim| self.verdict(&claim.id)).collect();
        let holds = verdicts.iter().filter(|(holds, _)| *holds).count();
        let mut text = format!("- {holds} of {} claims hold.\n", verdicts.len());
        for (id, what) in named {
            if let Some((_, figures)) = self.verdict(id) {
                let _ = writeln!(text, "- {what}: {figures}.");
            }
        }
        text
    }
}
