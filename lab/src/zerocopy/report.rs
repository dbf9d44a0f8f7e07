//! The page, and what its figures are made of.

use std::fmt::Write as _;

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;

use super::layers::{self, BUSY, ENDS};
use super::load::IOPS;
use super::paper::Paper;
use super::plan;
use super::rewrite::WRITES;
use super::spec::{CPU_US, Spec};
use crate::experiment::paper::Judge as _;
use crate::experiment::{self, Figures, Results, Size, Spread};

/// The text around the tables.
const PAGE: &str = include_str!("report.md");

/// Everything that is known of the cells.
pub(super) struct Report<'a> {
    pub(super) paper: &'a Paper,
    pub(super) size: Size,
    results: &'a Results,
}

/// A cell with its figures, for JSON.
#[derive(Serialize)]
struct Measured {
    cell: String,
    runs: Vec<Figures>,
}

impl<'a> Report<'a> {
    pub(super) fn new(paper: &'a Paper, size: Size, results: &'a Results) -> Self {
        Self { paper, size, results }
    }

    pub(super) fn median(&self, spec: &Spec, name: &str) -> Option<f64> {
        Spread::of_figure(self.results.runs(&spec.cell()), name).map(|spread| spread.median)
    }

    /// The share of an end's CPU that a layer has.
    pub(super) fn percent(&self, spec: &Spec, end: &str, layer: &str) -> Option<f64> {
        self.median(spec, &layers::figure(end, layer))
    }

    /// CPU time of an end for one request, in µs.
    fn us(&self, spec: &Spec, end: &str) -> Option<f64> {
        let busy = layers::figure(end, BUSY);
        let values = self.results.runs(&spec.cell()).iter();
        let values = values.filter_map(|figures| Some(figures.get(&busy)? * 1e4 / figures.get(IOPS)?));
        Spread::of(values).map(|spread| spread.median)
    }

    pub(super) fn client_us(&self, spec: &Spec) -> Option<f64> {
        self.us(spec, ENDS[0])
    }

    pub(super) fn server_us(&self, spec: &Spec) -> Option<f64> {
        self.us(spec, ENDS[1])
    }

    /// Whether perf was there.
    fn has_layers(&self) -> bool {
        self.results.all(&layers::figure(ENDS[1], BUSY)).next().is_some()
    }

    fn is_measured(&self, spec: &Spec) -> bool {
        match spec {
            Spec::Shipping { .. } => self.median(spec, CPU_US).is_some(),
            Spec::Rewrite { .. } => self.median(spec, WRITES).is_some_and(|writes| writes > 0.0),
            _ => {
                let layers = || ENDS.iter().all(|end| self.percent(spec, end, "tcp_ip").is_some());
                self.client_us(spec).is_some() && (!self.has_layers() || layers())
            }
        }
    }

    fn runs(&self) -> String {
        let cells: Vec<_> = plan::chosen(self.size).iter().map(Spec::cell).collect();
        let (least, most) = self.results.least_and_most(&cells);
        let load = self.results.loads();
        let perf = if self.has_layers() {
            ""
        } else {
            ". perf was missing: there are no layers, and CPU times are those of the processes"
        };
        format!("{least} to {most} runs of each cell{load}; medians{perf}")
    }

    /// The tables of a figure.
    fn utilisations(&self, write: bool) -> String {
        plan::MTUS.map(|mtu| self.utilisation(write, mtu).to_string()).join("\n")
    }
}

impl experiment::Report for Report<'_> {
    fn page(&self) -> Result<String> {
        let parts = [
            ("summary", self.summary()),
            ("origin", self.results.origin()),
            ("runs", self.runs()),
            ("claims", self.judged().to_string()),
            ("writes", self.utilisations(true)),
            ("reads", self.utilisations(false)),
            ("distribution_writes", self.distribution(true).to_string()),
            ("distribution_reads", self.distribution(false).to_string()),
            ("ways", self.ways().to_string()),
            ("shipping", self.shipping().to_string()),
            ("remapped", self.remapped().to_string()),
            ("rewritten", self.rewritten().to_string()),
        ];
        Ok(experiment::filled(PAGE, parts))
    }

    fn plots(&self) -> Result<Vec<(String, String)>> {
        let plots = [
            ("zerocopy-writes.svg", self.utilisation_plot(true, 0)),
            ("zerocopy-reads.svg", self.utilisation_plot(false, 0)),
            ("zerocopy-reads-target.svg", self.utilisation_plot(false, 1)),
            ("zerocopy-layers.svg", self.distribution_plot()),
            ("zerocopy-remap.svg", self.remapped_plot()),
        ];
        plots.into_iter().map(|(name, plot)| Ok((name.to_owned(), plot.to_svg()?))).collect()
    }

    fn summary(&self) -> String {
        let named = [
            ("zero_copy_large", "Writes from a file's pages"),
            ("tso", "TSO, GSO and GRO"),
            ("remap", "Received pages of 8 KB, remapped"),
            ("digest", "Pages that change while they are sent"),
        ];
        let mut text = self.outcome(&named);
        if let [Some(standard), Some(jumbo)] = plan::MTUS.map(|mtu| self.target_saves(mtu)) {
            let _ = writeln!(
                text,
                "- Reads of 256 KB from a file with `zero_copy`: × {standard:.2} of the target's CPU time at MTU 1500, × {jumbo:.2} at 9000."
            );
        }
        text.trim_end().into()
    }

    fn figures(&self) -> Result<Value> {
        let measured = |spec: &Spec| {
            let cell = spec.cell();
            Measured { runs: self.results.runs(&cell).to_vec(), cell: cell.to_string() }
        };
        Ok(serde_json::to_value(plan::chosen(self.size).iter().map(measured).collect::<Vec<_>>())?)
    }

    fn unmeasured(&self) -> usize {
        plan::chosen(self.size).iter().filter(|spec| !self.is_measured(spec)).count()
    }
}
