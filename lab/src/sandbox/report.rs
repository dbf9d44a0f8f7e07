//! The page: the text of `report.md` with the figures in it.

use std::fmt::Write as _;

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;

use super::Size;
use super::TIMES;
use super::cell::{Caches, Cell, Digest, Work};
use super::count::{INSTRUCTIONS, L2_MISSES};
use super::figures::{Figure, Figures, decimal, whole};
use super::measure::{CORE_CYCLES, COUNTED_COMMANDS, CYCLES_PER_SECOND};
use super::numbers::{Numbers, Parts};
use super::paper::Paper;
use super::spec::{self, LONGEST, PDU_LEN, Run};
use crate::experiment::{self, Results, Spread, Table};

/// The text around the tables.
const PAGE: &str = include_str!("report.md");
/// The least value of the paper's own ratio of both digests.
const LEAST_GAIN_OF_SLICING: f64 = 2.5;

pub(super) struct Report<'a> {
    figures: Figures<'a>,
    drawn: Vec<Figure>,
    results: &'a Results,
    size: Size,
    claims: Vec<Claim>,
}

/// Something that should hold on any CPU.
#[derive(Serialize)]
struct Claim {
    what: &'static str,
    /// The value in the paper.
    paper: String,
    ours: String,
    holds: Option<bool>,
}

/// A measurement, for JSON.
#[derive(Serialize)]
pub(super) struct Row {
    command: String,
    cycles: Option<Spread>,
    instructions: Option<f64>,
    l2_misses: Option<f64>,
}

impl<'a> Report<'a> {
    pub(super) fn new(paper: &'a Paper, size: Size, results: &'a Results) -> Self {
        let figures = Figures { paper, numbers: Numbers::new(results), size };
        let drawn = figures.all();
        let claims = claims(&figures);
        Self { figures, drawn, results, size, claims }
    }

    fn runs(&self) -> String {
        let load = self.results.loads();
        let most = spec::runs(self.size).iter().map(|run| self.results.runs(run).len()).max().unwrap_or(0);
        format!(
            "{most} runs of each cell, in rounds over all cells; each a process of its own with {TIMES} times {COUNTED_COMMANDS} commands,{load}"
        )
    }

    fn clock(&self) -> String {
        let figure = |name| self.figures.numbers.all(name);
        let (Some(rate), Some(core)) = (figure(CYCLES_PER_SECOND), figure(CORE_CYCLES)) else { return "–".into() };
        format!(
            "counts {:.2} GHz, at which the core makes {:.2} cycles of its own ({:.2} to {:.2})",
            rate.median / 1e9,
            core.median,
            core.least,
            core.most
        )
    }

    /// The paper's numbers of the protocol beside ours.
    fn protocol(&self) -> Table {
        let (numbers, paper) = (&self.figures.numbers, &self.figures.paper.protocol);
        let mut table = Table::new([
            "a Data-In PDU with status, digest and copy apart",
            "paper, 8 KB",
            "8 KB, 6 segments",
            "512 bytes, 1 segment",
        ]);
        let mut row = |what: &str, paper: f64, ours: &dyn Fn(usize) -> Option<f64>| {
            table.row([what.to_owned(), whole(Some(paper)), whole(ours(PDU_LEN)), whole(ours(512))]);
        };
        let cycles = |caches| move |len| numbers.protocol(Work::DataIn, Work::CopyWithDigest, len, caches);
        row("cycles, state in memory", paper.cold_cycles, &cycles(Caches::ColdState));
        row("cycles, state in the cache", paper.warm_cycles, &cycles(Caches::Warm));
        let short = self.size != Size::Smallest;
        let count = |name, caches| {
            move |len: usize| {
                let counted = short || len == PDU_LEN;
                counted.then(|| numbers.protocol_count(name, Work::DataIn, Work::CopyWithDigest, len, caches)).flatten()
            }
        };
        row("instructions", paper.instructions, &count(INSTRUCTIONS, Caches::Warm));
        row("L2 misses, state in memory", paper.l2_misses, &count(L2_MISSES, Caches::ColdState));
        let copy = |len: usize| {
            let parts = numbers.in_sequence(Digest::Sarwate, len, Caches::Cold)?;
            Some(parts.copy / len as f64)
        };
        let published = Some(self.figures.paper.copy.cycles_per_byte);
        table.row([
            "copy, cycles per byte, data in memory".into(),
            decimal(published),
            decimal(copy(PDU_LEN)),
            decimal(copy(512)),
        ]);
        table
    }

    fn claims(&self) -> Table {
        let mut table = Table::new(["claim", "paper", "ours", "holds"]);
        for claim in &self.claims {
            let holds = claim.holds.map_or("–", |holds| if holds { "yes" } else { "no" });
            table.row([claim.what.to_owned(), claim.paper.clone(), claim.ours.clone(), holds.to_owned()]);
        }
        table
    }
}

impl experiment::Report for Report<'_> {
    fn page(&self) -> Result<String> {
        let parts = [
            ("summary", self.summary()),
            ("origin", self.results.origin()),
            ("runs", self.runs()),
            ("clock", self.clock()),
            ("protocol", self.protocol().to_string()),
            ("claims", self.claims().to_string()),
        ];
        let drawn = self.drawn.iter().map(|figure| (figure.name, figure.to_markdown()));
        Ok(experiment::filled(PAGE, parts.into_iter().chain(drawn)))
    }

    fn plots(&self) -> Result<Vec<(String, String)>> {
        let mut plots = Vec::new();
        for figure in &self.drawn {
            plots.extend(figure.svg()?.map(|svg| (figure.plot_name(), svg)));
        }
        Ok(plots)
    }

    fn summary(&self) -> String {
        let numbers = &self.figures.numbers;
        let protocol = |caches| numbers.protocol(Work::DataIn, Work::CopyWithDigest, PDU_LEN, caches);
        let before = numbers.in_sequence(Digest::Sarwate, PDU_LEN, Caches::Cold).map(Parts::total);
        let now = numbers.interleaved(Digest::Shipping, PDU_LEN, Caches::Cold).map(Parts::total);
        let paper = self.figures.paper;
        let mut text = format!(
            "- A Data-In PDU of 8 KB with status costs {} cycles with Sarwate's CRC after the copy, and {} as it ships, with state and data \
             in memory before. The paper came from {} to {}.\n- Of these the protocol takes {} cycles with its state in memory, and {} \
             with its state in the cache.\n",
            whole(before),
            whole(now),
            whole(paper.profile(11, PDU_LEN).and_then(|profile| profile.cycles)),
            whole(paper.best_cycles(PDU_LEN)),
            whole(protocol(Caches::ColdState)),
            whole(protocol(Caches::Warm)),
        );
        let held = self.claims.iter().filter(|claim| claim.holds == Some(true)).count();
        write!(text, "- {held} of {} claims of the paper that should hold on any CPU do.", self.claims.len())
            .expect("memory");
        text
    }

    fn figures(&self) -> Result<Value> {
        let row = |run: Run| {
            let runs = self.results.runs(&run);
            let median = |name| Spread::of_figure(runs, name).map(|spread| spread.median);
            Row {
                command: run.to_string(),
                cycles: Spread::of_figure(runs, super::measure::CYCLES),
                instructions: median(INSTRUCTIONS),
                l2_misses: median(L2_MISSES),
            }
        };
        Ok(serde_json::to_value(spec::runs(self.size).into_iter().map(row).collect::<Vec<_>>())?)
    }

    fn unmeasured(&self) -> usize {
        self.figures.numbers.missing()
    }
}

/// The claims that should hold on any CPU.
fn claims(figures: &Figures) -> Vec<Claim> {
    let Figures { numbers, paper, size } = figures;
    let ratio = |of: &dyn Fn(Digest) -> Option<f64>| Some(of(Digest::Sarwate)? / of(Digest::Slicing8)?);
    let faster = ratio(&|digest| numbers.digest(digest, PDU_LEN, Caches::Warm));
    let fewer = ratio(&|digest| {
        numbers.count(INSTRUCTIONS, Cell { work: Work::Digest, digest, len: PDU_LEN, caches: Caches::Warm })
    });
    let published = paper.digest(Digest::Sarwate).zip(paper.digest(Digest::Slicing8));
    let mut claims = vec![Claim {
        what: "Slicing-by-8 is at least 2.5 times as fast as Sarwate",
        paper: decimal(published.map(|(sarwate, slicing)| sarwate.cycles_per_byte / slicing.cycles_per_byte)),
        ours: format!("{} ({} of the instructions)", decimal(faster), decimal(fewer.map(f64::recip))),
        holds: faster.map(|ratio| ratio >= LEAST_GAIN_OF_SLICING),
    }];
    let gains = [
        ("Interleaving copy and Sarwate's CRC gains on cold data", Digest::Sarwate),
        ("Interleaving copy and slicing-by-8 gains on cold data", Digest::Slicing8),
    ];
    for (what, digest) in gains {
        let saved =
            numbers.copies(digest, PDU_LEN, Caches::Cold).map(|(sequence, interleaved)| 1.0 - interleaved / sequence);
        claims.push(Claim {
            what,
            paper: format!("{} %", whole(paper.interleaving(digest).map(|paper| paper.saved_percent))),
            ours: format!("{} %", decimal(saved.map(|saved| saved * 100.0))),
            holds: saved.map(|saved| saved > 0.0),
        });
    }
    let shares: Option<Vec<f64>> = size
        .short_lens()
        .iter()
        .map(|len| Some(numbers.in_sequence(Digest::Sarwate, *len, Caches::Cold)?.percents()[0]))
        .collect();
    let per_pdu: Option<Vec<f64>> = size
        .long_lens()
        .iter()
        .map(|len| numbers.protocol(Work::DataIn, Work::CopyWithDigest, *len, Caches::ColdState))
        .collect();
    let list = |values: &Option<Vec<f64>>| {
        values.as_ref().map_or("–".into(), |values| {
            values.iter().map(|value| format!("{value:.0}")).collect::<Vec<_>>().join(", ")
        })
    };
    let falls =
        |values: &Option<Vec<f64>>| values.as_ref().map(|values| values.windows(2).all(|pair| pair[1] < pair[0]));
    claims.push(Claim {
        what: "The protocol's share falls with the length of a PDU (512 bytes to 8 KB)",
        paper: "28 to 3 %".into(),
        ours: format!("{} %", list(&shares)),
        holds: falls(&shares),
    });
    claims.push(Claim {
        what: "The protocol's cycles per PDU fall with the length of a read (8 to 64 KB)",
        paper: format!("{} to {}", whole(paper.per_pdu(PDU_LEN)), whole(paper.per_pdu(LONGEST))),
        ours: list(&per_pdu),
        holds: falls(&per_pdu),
    });
    claims
}
