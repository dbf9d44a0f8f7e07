//! The page, its tables and its plots.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;

use super::extras::Extras;
use super::ours::Terms;
use super::paper::{LinkKind, Paper, PaperCell, PaperTable, Whose};
use super::spec::{PDUS, Spec};
use super::{Size, chosen, published};
use crate::experiment::commands::MB_PER_S;
use crate::experiment::plot::{Line, Look, Panel, Plot, Scale};
use crate::experiment::{self, Results, Spread, Table, figure};

/// The text around the tables.
const PAGE: &str = include_str!("report.md");
/// The most that a cell may be off our closed form, and the paper's value off that with its parameters.
const OURS_OFF: f64 = 0.08;
const PAPER_OFF: f64 = 0.15;

/// Everything that is known of the cells that a campaign measures.
pub(super) struct Report<'a> {
    paper: &'a Paper,
    extras: &'a Extras,
    size: Size,
    terms: Terms,
    results: &'a Results,
    cells: Vec<Row>,
}

/// A cell of the paper, beside ours.
#[derive(Serialize)]
pub(super) struct Row {
    #[serde(flatten)]
    cell: PaperCell,
    /// The closed form with the paper's parameters.
    paper_form_mb_per_s: f64,
    ours_mb_per_s: Option<Spread>,
    ours_form_mb_per_s: Option<f64>,
}

impl<'a> Report<'a> {
    pub(super) fn new(paper: &'a Paper, extras: &'a Extras, size: Size, results: &'a Results) -> Result<Self> {
        let burst_bytes = paper.parameters.burst_bytes;
        let terms = Terms::of(burst_bytes, &paper.round_trips_ms(), results)?;
        let row = |cell: PaperCell| {
            let spec = Spec::of_paper(burst_bytes, &cell);
            anyhow::Ok(Row {
                cell,
                paper_form_mb_per_s: published::mb_per_s(&paper.parameters, &cell),
                ours_mb_per_s: Spread::of_figure(results.runs(&spec.cell()), MB_PER_S),
                ours_form_mb_per_s: terms.mb_per_s(&spec, results)?,
            })
        };
        let cells = chosen(paper, size).into_iter().map(row).collect::<Result<_>>()?;
        Ok(Self { paper, extras, size, terms, results, cells })
    }

    fn runs(&self) -> String {
        let counts = self.cells.iter().map(|row| self.results.runs(&self.spec(&row.cell).cell()).len());
        let runs = counts.clone().min().zip(counts.max());
        let runs =
            runs.map_or(
                String::new(),
                |(least, most)| {
                    if least == most { least.to_string() } else { format!("{least} to {most}") }
                },
            );
        let load = self.results.loads();
        format!("{runs} runs of each cell{load}")
    }

    fn spec(&self, cell: &PaperCell) -> Spec {
        Spec::of_paper(self.paper.parameters.burst_bytes, cell)
    }

    fn terms_table(&self) -> String {
        let mut table = Table::new(["", "a command alone, µs", "each of many, µs"]);
        for terms in self.terms.commands() {
            let link = if terms.link == LinkKind::Oc3 { "155 Mb/s" } else { "LAN" };
            table.row([
                format!("{}, {link}", terms.load.name()),
                format!("{:.0}", terms.latency.as_secs_f64() * 1e6),
                format!("{:.1}", terms.cost.as_secs_f64() * 1e6),
            ]);
        }
        let longer = self.paper.round_trips_ms().into_iter().filter(|ms| *ms > 0);
        let longer: Vec<String> =
            longer.map(|ms| format!("{:.0} µs at {ms} ms", self.terms.longer(ms).as_secs_f64() * 1e6)).collect();
        format!("{table}\nRound trips are longer than asked for by {}.", longer.join(", "))
    }

    fn tables(&self) -> String {
        let mut text = String::new();
        for table in &self.paper.tables {
            writeln!(text, "### Table {}: {}\n\n![]({})\n", table.number, table.caption, plot_name(table.number))
                .expect("memory");
            writeln!(text, "{}", self.table(table)).expect("memory");
        }
        text
    }

    fn table(&self, paper: &PaperTable) -> Table {
        let what = if paper.number <= 2 { "direction" } else { "request × window" };
        let heads = [what, "RTT, ms", "paper, MB/s", "form", "off", "ours, MB/s", "least–most", "form", "off"];
        let mut table = Table::new(heads);
        for row in self.cells.iter().filter(|row| row.cell.table == paper.number) {
            let ours = row.ours_mb_per_s;
            table.row([
                name(&row.cell),
                row.cell.round_trip_ms.to_string(),
                format!("{}", row.cell.mb_per_s),
                figure(Some(row.paper_form_mb_per_s)),
                percent(Some(row.paper_off())),
                figure(ours.map(|ours| ours.median)),
                ours.map_or("–".into(), |ours| format!("{}–{}", figure(Some(ours.least)), figure(Some(ours.most)))),
                figure(row.ours_form_mb_per_s),
                percent(row.ours_off()),
            ]);
        }
        table
    }

    /// The cells that are further from a closed form than they should be, and why.
    fn missed(&self) -> String {
        let ours =
            self.cells.iter().filter_map(|row| Some((row, row.ours_off()?))).filter(|(_, off)| off.abs() > OURS_OFF);
        let paper = self.cells.iter().map(|row| (row, row.paper_off())).filter(|(_, off)| off.abs() > PAPER_OFF);
        let ours = self.missed_list(Whose::Ours, ours);
        let paper = self.missed_list(Whose::Paper, paper);
        format!(
            "Ours, by more than {:.0}% of our closed form:\n\n{ours}\nThe paper's, which the closed form with its parameters misses \
             by more than {:.0}%:\n\n{paper}",
            OURS_OFF * 100.0,
            PAPER_OFF * 100.0
        )
    }

    fn missed_list<'b>(&self, whose: Whose, rows: impl Iterator<Item = (&'b Row, f64)>) -> String {
        let mut table = Table::new(["table", "cell", "off", "why"]);
        let mut count = 0;
        for (row, off) in rows {
            let cell = &row.cell;
            let rounded = whose == Whose::Paper && published::prints_as(row.paper_form_mb_per_s, cell.mb_per_s);
            let why = if rounded {
                Some("the closed form prints as the paper's value: one digit is all it has")
            } else {
                self.paper.why(whose, cell)
            };
            let at = format!("{}, {} ms", name(cell), cell.round_trip_ms);
            table.row([cell.table.to_string(), at, percent(Some(off)), why.unwrap_or("not explained").to_owned()]);
            count += 1;
        }
        if count == 0 { "None.\n".into() } else { table.to_string() }
    }

    fn extras_tables(&self) -> Result<String> {
        if self.size != Size::Full {
            return Ok("Not measured in a run of this size.".into());
        }
        let mut text = String::new();
        for group in &self.extras.groups {
            let mut table =
                Table::new(["", "RTT, ms", "loss", "MB/s", "least–most", "form", "off", "limit", "PDUs per command"]);
            for row in &group.rows {
                let spec = row.spec();
                let runs = self.results.runs(&spec.cell());
                let measured = Spread::of_figure(runs, MB_PER_S);
                let prediction = self.terms.predict(&spec)?.context("a row has commands")?;
                let form = prediction.bytes_per_second / 1e6;
                table.row([
                    row.what.clone(),
                    spec.round_trip_ms.to_string(),
                    if spec.loss_percent > 0.0 { format!("{}%", spec.loss_percent) } else { "–".into() },
                    figure(measured.map(|measured| measured.median)),
                    measured.map_or("–".into(), |spread| {
                        format!("{}–{}", figure(Some(spread.least)), figure(Some(spread.most)))
                    }),
                    figure(Some(form)),
                    percent(measured.map(|measured| measured.median / form - 1.0)),
                    prediction.limit.to_string(),
                    Spread::of_figure(runs, PDUS).map_or("–".into(), |pdus| format!("{:.2}", pdus.median)),
                ]);
            }
            writeln!(text, "### {}\n\n{}\n\n{table}", group.title, group.text.trim()).expect("memory");
        }
        Ok(text)
    }

    /// A panel for each number of commands in flight, a colour for each length of requests. On the LAN lengths are the
    /// ticks.
    fn plot(&self, table: &PaperTable) -> Plot {
        let rows: Vec<&Row> = self.cells.iter().filter(|row| row.cell.table == table.number).collect();
        let mut windows: Vec<u32> = rows.iter().map(|row| row.cell.window).collect();
        windows.sort_unstable();
        windows.dedup();
        let by_length = table.link == LinkKind::Lan;
        let panel = |window: &u32| {
            let rows = rows.iter().copied().filter(|row| row.cell.window == *window);
            let title = if table.number <= 2 {
                table.caption.clone()
            } else {
                format!("{}: {window} in flight", table.caption)
            };
            if by_length { panel_by_length(title, rows) } else { panel_by_distance(title, &table.round_trips_ms, rows) }
        };
        let x_label = if by_length { "request, KB" } else { "round trip, ms" };
        Plot { panels: windows.iter().map(panel).collect(), x_label, y_label: "MB/s", scale: Scale::Decades }
    }
}

impl experiment::Report for Report<'_> {
    fn page(&self) -> Result<String> {
        let parts = [
            ("summary", self.summary()),
            ("origin", self.results.origin()),
            ("runs", self.runs()),
            ("terms", self.terms_table()),
            ("tables", self.tables()),
            ("missed", self.missed()),
            ("extras", self.extras_tables()?),
        ];
        Ok(experiment::filled(PAGE, parts))
    }

    fn plots(&self) -> Result<Vec<(String, String)>> {
        self.paper.tables.iter().map(|table| Ok((plot_name(table.number), self.plot(table).to_svg()?))).collect()
    }

    fn summary(&self) -> String {
        let measured: Vec<f64> = self.cells.iter().filter_map(Row::ours_off).collect();
        let good = measured.iter().filter(|off| off.abs() <= OURS_OFF).count();
        let distant = || self.cells.iter().filter(|row| row.is_distant());
        let reached = distant().filter(|row| row.paper_off().abs() <= PAPER_OFF).count();
        let (late, unread) = self.results.lateness();
        format!(
            "- Ours: {good} of {} cells are within {:.0}% of our closed form.\n\
             - The paper: the closed form with its parameters is within {:.0}% of {reached} of the {} cells of Tables 3 to 5 with a delay.\n\
             - The link: 99% of the packets were no more than {late:.0} µs late in half of the runs; {unread} packets did not reach it \
             because the machine was too slow.",
            measured.len(),
            OURS_OFF * 100.0,
            PAPER_OFF * 100.0,
            distant().count(),
        )
    }

    fn figures(&self) -> Result<Value> {
        Ok(serde_json::to_value(&self.cells)?)
    }

    fn unmeasured(&self) -> usize {
        self.cells.iter().filter(|row| row.ours_off().is_none()).count()
    }
}

/// A line for each request length, or each direction, over the round trips.
fn panel_by_distance<'b>(title: String, round_trips_ms: &[u32], rows: impl Iterator<Item = &'b Row>) -> Panel {
    let ticks = round_trips_ms.iter().map(ToString::to_string).collect();
    let key = |cell: &PaperCell| {
        if cell.load.is_stream() { cell.load.name().to_owned() } else { format!("{} KB", cell.request_len >> 10) }
    };
    panel(title, ticks, rows, key, |cell| round_trips_ms.iter().position(|ms| *ms == cell.round_trip_ms))
}

/// A line for each kind of load, over the request lengths.
fn panel_by_length<'b>(title: String, rows: impl Iterator<Item = &'b Row>) -> Panel {
    const LENGTHS_KB: [u64; 4] = [1, 8, 64, 256];
    let ticks = LENGTHS_KB.iter().map(ToString::to_string).collect();
    let key = |cell: &PaperCell| cell.load.name().to_owned();
    let panel =
        panel(title, ticks, rows, key, |cell| LENGTHS_KB.iter().position(|length| *length == cell.request_len >> 10));
    Panel { rises: true, ..panel }
}

/// Three lines for each key: measured, computed, and the paper's.
fn panel<'b>(
    title: String,
    ticks: Vec<String>,
    rows: impl Iterator<Item = &'b Row>,
    key: impl Fn(&PaperCell) -> String,
    place: impl Fn(&PaperCell) -> Option<usize>,
) -> Panel {
    let mut lines: Vec<Line> = Vec::new();
    let mut keys: Vec<String> = Vec::new();
    for row in rows {
        let key = key(&row.cell);
        let colour = keys.iter().position(|known| *known == key).unwrap_or_else(|| {
            let none = vec![None; ticks.len()];
            let line = |look, name: &str| Line { name: name.into(), colour: keys.len(), look, values: none.clone() };
            lines.extend([line(Look::Computed, ""), line(Look::Measured, &key), line(Look::Published, "")]);
            keys.push(key.clone());
            keys.len() - 1
        });
        let values = [row.ours_form_mb_per_s, row.ours_mb_per_s.map(|ours| ours.median), Some(row.cell.mb_per_s)];
        if let Some(place) = place(&row.cell) {
            for (line, value) in lines[3 * colour..].iter_mut().zip(values) {
                line.values[place] = value;
            }
        }
    }
    Panel { title, ticks, lines, rises: false }
}

impl Row {
    /// By which share of the closed form our measurement is off.
    fn ours_off(&self) -> Option<f64> {
        Some(self.ours_mb_per_s?.median / self.ours_form_mb_per_s? - 1.0)
    }

    /// By which share of it the paper's value is missed by the closed form with its parameters.
    fn paper_off(&self) -> f64 {
        self.paper_form_mb_per_s / self.cell.mb_per_s - 1.0
    }

    /// Whether the cell is in Tables 3 to 5 and has a delay.
    fn is_distant(&self) -> bool {
        (3..=5).contains(&self.cell.table) && self.cell.round_trip_ms > 0
    }
}

/// The request, but for the distance.
pub(super) fn name(cell: &PaperCell) -> String {
    let size = format!("{} KB × {}", cell.request_len >> 10, cell.window);
    match (cell.load.is_stream(), cell.link) {
        (true, _) => cell.load.name().into(),
        (false, LinkKind::Oc3) => size,
        (false, LinkKind::Lan) => format!("{}, {size}", cell.load.name()),
    }
}

fn plot_name(table: u8) -> String {
    format!("wan-table-{table}.svg")
}

fn percent(share: Option<f64>) -> String {
    share.map_or("–".into(), |share| format!("{:+.1}%", share * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_a_sign() {
        assert_eq!(percent(Some(-0.051)), "-5.1%");
    }
}
