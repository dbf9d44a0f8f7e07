//! The page, and what its figures are made of.

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;

use super::Size;
use super::paper::Paper;
use super::plan::{self, System};
use super::spec::{BYTES, CLIENT_NS_PER_KB, Spec};
use crate::experiment::commands::MB_PER_S;
use crate::experiment::paper::Judge as _;
use crate::experiment::{self, CLIENT_CPU, Results, SERVER_CPU, Spread};

/// The text around the tables.
const PAGE: &str = include_str!("report.md");

/// Everything that is known of the cells.
pub(super) struct Report<'a> {
    pub(super) paper: &'a Paper,
    size: Size,
    results: &'a Results,
}

/// A cell with its figures, for JSON.
#[derive(Serialize)]
pub(super) struct Measured {
    cell: String,
    mb_per_s: Option<Spread>,
    client_and_server_ns_per_kb: Option<[f64; 2]>,
}

impl<'a> Report<'a> {
    pub(super) fn new(paper: &'a Paper, size: Size, results: &'a Results) -> Self {
        Self { paper, size, results }
    }

    pub(super) fn median(&self, spec: &Spec, name: &str) -> Option<f64> {
        Spread::of_figure(self.results.runs(&spec.cell()), name).map(|spread| spread.median)
    }

    pub(super) fn mb_per_s(&self, spec: &Spec) -> Option<f64> {
        self.median(spec, MB_PER_S)
    }

    pub(super) fn at(&self, system: System, mtu: u16, on: bool, write: bool) -> Option<f64> {
        self.mb_per_s(&system.at(mtu, on, write)?)
    }

    /// CPU time of the client and of the server, in ns for 1,000 bytes.
    pub(super) fn ns_per_kb(&self, spec: &Spec) -> Option<[f64; 2]> {
        let cell = spec.cell();
        let runs = self.results.runs(&cell);
        let of = |cpu: &str| {
            let values = runs.iter().filter_map(|figures| Some(figures.get(cpu)? * 1e12 / figures.get(BYTES)?));
            Spread::of(values).map(|spread| spread.median)
        };
        let client = if spec.counts_all() { of(CLIENT_CPU) } else { self.median(spec, CLIENT_NS_PER_KB) };
        client.zip(of(SERVER_CPU)).map(<[f64; 2]>::from)
    }

    fn runs(&self) -> String {
        let cells: Vec<_> = plan::chosen(self.size).iter().map(Spec::cell).collect();
        let (least, most) = self.results.least_and_most(&cells);
        let load = self.results.loads();
        format!("{least} to {most} runs of each cell{load}; medians")
    }

    fn link(&self) -> String {
        let (late, unread) = self.results.lateness();
        format!(
            "99% of the packets were no more than {late:.0} µs late in half of the runs, and {unread} packets did not reach it because \
             the machine was too slow"
        )
    }
}

impl experiment::Report for Report<'_> {
    fn page(&self) -> Result<String> {
        let sweep = |write| format!("{}\n{}", self.sweep(false, write), self.sweep(true, write));
        let parts = [
            ("summary", self.summary()),
            ("origin", self.results.origin()),
            ("runs", self.runs()),
            ("link", self.link()),
            ("claims", self.judged().to_string()),
            ("snapshot", self.snapshot().to_string()),
            ("reads", sweep(false)),
            ("writes", sweep(true)),
            ("quanta", self.quanta().to_string()),
            ("encryption", self.encryption().to_string()),
            ("distant", self.distant().to_string()),
            ("shared", self.shared().to_string()),
            ("beyond", self.beyond().to_string()),
        ];
        Ok(experiment::filled(PAGE, parts))
    }

    fn plots(&self) -> Result<Vec<(String, String)>> {
        let plots = [
            ("ecl-figure-5.svg", self.snapshot_plot()),
            ("ecl-figure-6.svg", self.sweep_plot(false)),
            ("ecl-figure-7.svg", self.sweep_plot(true)),
            ("ecl-figures-8-9.svg", self.peak_plot()),
            ("ecl-figure-10.svg", self.quanta_plot()),
            ("ecl-loss.svg", self.distant_plot()),
        ];
        plots.into_iter().map(|(name, plot)| Ok((name.to_owned(), plot.to_svg()?))).collect()
    }

    fn summary(&self) -> String {
        let named = [
            ("gain", "Reads, offloads off: ECL ÷ iSCSI at MTU 16,000"),
            ("gain_on", "Reads, offloads on: ECL ÷ iSCSI at MTU 16,000"),
        ];
        self.outcome(&named).trim_end().into()
    }

    fn figures(&self) -> Result<Value> {
        let measured = |spec: &Spec| Measured {
            cell: spec.cell().to_string(),
            mb_per_s: Spread::of_figure(self.results.runs(&spec.cell()), MB_PER_S),
            client_and_server_ns_per_kb: self.ns_per_kb(spec),
        };
        Ok(serde_json::to_value(plan::chosen(self.size).iter().map(measured).collect::<Vec<_>>())?)
    }

    fn unmeasured(&self) -> usize {
        let chosen = plan::chosen(self.size);
        chosen.iter().filter(|spec| spec.program().is_none() && self.mb_per_s(spec).is_none()).count()
    }
}
