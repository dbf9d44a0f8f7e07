//! The paper's figures again: a table and a plot for each.

use anyhow::Result;

use super::Size;
use super::cell::{Caches, Cell, Digest, Work, name_of};
use super::count::{INSTRUCTIONS, L1_MISSES, L2_MISSES};
use super::measure::CYCLES_PER_SECOND;
use super::numbers::{Numbers, Parts};
use super::paper::Paper;
use super::spec::{LONGEST, ORDERS, OTHER_LENS, OTHERS, PDU_LEN, STATES};
use crate::experiment::Table;
use crate::experiment::plot::{Line, Look, Panel, Plot, Scale};

/// Bytes of an Ethernet frame that carry no payload of TCP: preamble, headers, check and gap; IPv4; TCP with time
/// stamps.
const FRAME_OVERHEAD: f64 = 8.0 + 14.0 + 4.0 + 12.0 + 20.0 + 32.0;
const SEGMENT_PAYLOAD: f64 = 1448.0;
/// Bytes of a PDU that carry no data: its header and both digests.
const PDU_OVERHEAD: f64 = 48.0 + 4.0 + 4.0;
const LINE_BITS_PER_SECOND: f64 = 10e9;

/// The data of the figures.
pub(super) struct Figures<'a> {
    pub(super) paper: &'a Paper,
    pub(super) numbers: Numbers<'a>,
    pub(super) size: Size,
}

/// A figure on the page.
pub(super) struct Figure {
    /// The place of the figure in `report.md`, and the name of its plot.
    pub(super) name: &'static str,
    pub(super) table: Table,
    pub(super) plot: Option<Plot>,
}

impl Figure {
    /// The plot, and the table below it.
    pub(super) fn to_markdown(&self) -> String {
        let plot = self.plot.as_ref().map_or(String::new(), |_| format!("![]({})\n\n", self.plot_name()));
        format!("{plot}{}", self.table)
    }

    pub(super) fn plot_name(&self) -> String {
        format!("sandbox-{}.svg", self.name)
    }

    pub(super) fn svg(&self) -> Result<Option<String>> {
        self.plot.as_ref().map(Plot::to_svg).transpose()
    }
}

impl Figures<'_> {
    pub(super) fn all(&self) -> Vec<Figure> {
        vec![
            self.profile("figure-11", 11, Digest::Sarwate),
            self.per_pdu(),
            self.digests(),
            self.profile("figure-15", 15, Digest::Slicing8),
            self.today(),
            self.interleaving(),
            self.throughput(),
            self.unusual(),
            self.others(),
            self.whole(),
        ]
    }

    /// Figures 11 and 15: a read of one PDU, in parts.
    fn profile(&self, name: &'static str, number: u8, digest: Digest) -> Figure {
        let lens = self.size.short_lens();
        let heads = ["data", "bytes", "protocol", "CRC", "copy", "total", "shares, %", "paper: total", "shares, %"];
        let mut table = Table::new(heads);
        let mut panels = Vec::new();
        for (caches, what) in [(Caches::Cold, "cold"), (Caches::Warm, "warm")] {
            let parts: Vec<Option<Parts>> =
                lens.iter().map(|len| self.numbers.in_sequence(digest, *len, caches)).collect();
            let published: Vec<Option<[f64; 3]>> =
                lens.iter().map(|len| self.published(number, *len, caches)).collect();
            for ((len, parts), published) in lens.iter().zip(&parts).zip(&published) {
                let value = |of: fn(&Parts) -> f64| whole(parts.as_ref().map(of));
                let total = published.map(|parts| parts.iter().sum::<f64>());
                table.row([
                    what.to_owned(),
                    len.to_string(),
                    value(|parts| parts.protocol),
                    value(|parts| parts.digest),
                    value(|parts| parts.copy),
                    value(|parts| parts.total()),
                    shares(parts.map(Parts::percents)),
                    whole(total),
                    shares(published.zip(total).map(|(parts, total)| parts.map(|part| part / total * 100.0))),
                ]);
            }
            let ours = |of: fn(Parts) -> f64| parts.iter().map(|parts| parts.map(of)).collect::<Vec<_>>();
            let theirs = |at: usize| published.iter().map(|parts| parts.map(|parts| parts[at])).collect();
            let lines = [
                ("protocol", ours(|parts| parts.protocol)),
                ("CRC", ours(|parts| parts.digest)),
                ("copy", ours(|parts| parts.copy)),
            ];
            let lines =
                lines.into_iter().enumerate().flat_map(|(at, (name, values))| curve(name, at, values, theirs(at)));
            let title = format!("Data-In with {}: {what}", name_of(&Digest::ALL, digest));
            panels.push(Panel { title, ticks: ticks(lens), lines: lines.collect(), rises: true });
        }
        Figure { name, table, plot: Some(cycles_plot(panels, "bytes")) }
    }

    /// The paper's parts of such a read. It has them for cold data.
    fn published(&self, number: u8, len: usize, caches: Caches) -> Option<[f64; 3]> {
        let profile = self.paper.profile(number, len).filter(|_| caches == Caches::Cold)?;
        Some(profile.parts(self.paper.protocol.cold_cycles))
    }

    /// Figure 12: the protocol's part of a PDU, by the number of PDUs of a read.
    fn per_pdu(&self) -> Figure {
        let lens = self.size.long_lens();
        let mut table =
            Table::new(["bytes", "cold", "paper", "warm", "instructions", "L1 misses, cold", "L2 misses, cold"]);
        let protocol = |len: usize, caches| self.numbers.protocol(Work::DataIn, Work::CopyWithDigest, len, caches);
        let count =
            |name, len, caches| self.numbers.protocol_count(name, Work::DataIn, Work::CopyWithDigest, len, caches);
        for len in lens.iter().copied() {
            table.row([
                len.to_string(),
                whole(protocol(len, Caches::ColdState)),
                whole(self.paper.per_pdu(len)),
                whole(protocol(len, Caches::Warm)),
                whole(count(INSTRUCTIONS, len, Caches::Warm)),
                whole(count(L1_MISSES, len, Caches::ColdState)),
                whole(count(L2_MISSES, len, Caches::ColdState)),
            ]);
        }
        let of = |caches| lens.iter().map(|len| protocol(*len, caches)).collect::<Vec<_>>();
        let published = lens.iter().map(|len| self.paper.per_pdu(*len)).collect();
        let mut lines = curve("state in memory", 0, of(Caches::ColdState), published);
        lines.extend(curve("state in the cache", 1, of(Caches::Warm), vec![None; lens.len()]));
        let panel = Panel { title: "Protocol cycles of a PDU of 8 KB".into(), ticks: ticks(lens), lines, rises: false };
        Figure { name: "figure-12", table, plot: Some(cycles_plot(vec![panel], "bytes of the read")) }
    }

    /// Figure 14: digests of data in the cache.
    fn digests(&self) -> Figure {
        let lens = self.size.short_lens();
        let lengths = lens.iter().map(|len| format!("{len} bytes"));
        let heads = ["digest".to_owned()].into_iter().chain(lengths);
        let rest = ["cycles per byte", "paper", "instructions per 4 bytes", "paper"].map(String::from);
        let mut table = Table::new(heads.chain(rest));
        let mut lines = Vec::new();
        for (at, (digest, name)) in Digest::ALL.into_iter().enumerate() {
            let of = |len: usize| self.numbers.digest(digest, len, Caches::Warm);
            let paper = self.paper.digest(digest);
            let counted = (digest != Digest::Shipping).then(|| {
                self.numbers
                    .count(INSTRUCTIONS, Cell { work: Work::Digest, digest, len: PDU_LEN, caches: Caches::Warm })
            });
            let row = [name.to_owned()].into_iter().chain(lens.iter().map(|len| whole(of(*len))));
            table.row(row.chain([
                decimal(of(PDU_LEN).map(|cycles| cycles / PDU_LEN as f64)),
                decimal(paper.map(|paper| paper.cycles_per_byte)),
                decimal(counted.flatten().map(|count| count * 4.0 / PDU_LEN as f64)),
                whole(paper.map(|paper| paper.instructions_per_4_bytes)),
            ]));
            let published =
                lens.iter().map(|len| Some(paper?.cycles_per_byte * *len as f64).filter(|_| *len == PDU_LEN));
            lines.extend(curve(name, at, lens.iter().map(|len| of(*len)).collect(), published.collect()));
        }
        let panel = Panel { title: "Digest of data in the cache".into(), ticks: ticks(lens), lines, rises: true };
        Figure { name: "figure-14", table, plot: Some(cycles_plot(vec![panel], "bytes")) }
    }

    /// Figures 11 and 15 carried to today: one PDU of 8 KB with each digest, in sequence and interleaved.
    fn today(&self) -> Figure {
        let heads = ["data", "digest", "", "protocol", "CRC", "copy", "total", "shares, %"];
        let mut table = Table::new(heads);
        for (caches, what) in [(Caches::Cold, "cold"), (Caches::Warm, "warm")] {
            for (digest, name) in Digest::ALL {
                let ways = [
                    ("in sequence", self.numbers.in_sequence(digest, PDU_LEN, caches)),
                    ("interleaved", self.numbers.interleaved(digest, PDU_LEN, caches)),
                ];
                for (way, parts) in ways {
                    let value = |of: fn(&Parts) -> f64| whole(parts.as_ref().map(of));
                    table.row([
                        what.to_owned(),
                        name.to_owned(),
                        way.to_owned(),
                        value(|parts| parts.protocol),
                        value(|parts| parts.digest),
                        value(|parts| parts.copy),
                        value(|parts| parts.total()),
                        shares(parts.map(Parts::percents)),
                    ]);
                }
            }
        }
        Figure { name: "today", table, plot: None }
    }

    /// Figure 16: copy and digest of 8 KB, in sequence and interleaved.
    fn interleaving(&self) -> Figure {
        let heads = [
            "data",
            "digest",
            "in sequence",
            "interleaved",
            "saved",
            "saved, %",
            "paper",
            "paper, %",
            "instructions: in sequence",
            "interleaved",
        ];
        let mut table = Table::new(heads);
        let mut panels = Vec::new();
        for (caches, what) in [(Caches::Cold, "cold"), (Caches::Warm, "warm")] {
            let mut both = (Vec::new(), Vec::new());
            for (digest, name) in Digest::ALL {
                let copies = self.numbers.copies(digest, PDU_LEN, caches);
                let paper = self.paper.interleaving(digest).filter(|_| caches == Caches::Cold);
                let count = |work| {
                    let cell = Cell { work, digest, len: PDU_LEN, caches: Caches::Warm };
                    (digest != Digest::Shipping).then(|| self.numbers.count(INSTRUCTIONS, cell)).flatten()
                };
                let saved = copies.map(|(sequence, interleaved)| sequence - interleaved);
                table.row([
                    what.to_owned(),
                    name.to_owned(),
                    whole(copies.map(|(sequence, _)| sequence)),
                    whole(copies.map(|(_, interleaved)| interleaved)),
                    whole(saved),
                    whole(saved.zip(copies).map(|(saved, (sequence, _))| saved / sequence * 100.0)),
                    whole(paper.map(|paper| paper.saved_cycles)),
                    whole(paper.map(|paper| paper.saved_percent)),
                    whole(count(Work::CopyThenDigest)),
                    whole(count(Work::CopyWithDigest)),
                ]);
                both.0.push(copies.map(|(sequence, _)| sequence));
                both.1.push(copies.map(|(_, interleaved)| interleaved));
            }
            let line = |name: &str, colour, values| Line { name: name.into(), colour, look: Look::Measured, values };
            let lines = vec![line("in sequence", 1, both.0), line("interleaved", 0, both.1)];
            let ticks = Digest::ALL.map(|(_, name)| name.to_owned()).into();
            panels.push(Panel { title: format!("Copy and digest of 8 KB: {what}"), ticks, lines, rises: false });
        }
        Figure { name: "figure-16", table, plot: Some(cycles_plot(panels, "digest")) }
    }

    /// Figure 17: what a core carries, by the length of reads.
    fn throughput(&self) -> Figure {
        let lens = self.size.short_lens();
        let heads = [
            "bytes",
            "as it was",
            "slicing-by-8",
            "and interleaved",
            "as it ships",
            "the line",
            "with the paper's TCP/IP: as it was",
            "as it ships",
        ];
        let mut table = Table::new(heads);
        let hertz = self.numbers.all(CYCLES_PER_SECOND).map_or(f64::NAN, |hertz| hertz.median);
        let rate = |len: usize, parts: Option<Parts>, more: f64| {
            parts.map(|parts| len as f64 * hertz / (parts.total() + more) / 1e6)
        };
        // TCP's cycles are those of segments, so they follow the length.
        let tcp = |len: usize| self.paper.tcp_cycles(PDU_LEN).unwrap_or(f64::NAN) * len as f64 / PDU_LEN as f64;
        let mut columns: [Vec<Option<f64>>; 5] = Default::default();
        for len in lens.iter().copied() {
            let was = self.numbers.in_sequence(Digest::Sarwate, len, Caches::Cold);
            let ships = self.numbers.interleaved(Digest::Shipping, len, Caches::Cold);
            let values = [
                rate(len, was, 0.0),
                rate(len, self.numbers.in_sequence(Digest::Slicing8, len, Caches::Cold), 0.0),
                rate(len, self.numbers.interleaved(Digest::Slicing8, len, Caches::Cold), 0.0),
                rate(len, ships, 0.0),
                Some(line_mb_per_s(len)),
            ];
            let with_tcp = [rate(len, was, tcp(len)), rate(len, ships, tcp(len))];
            table.row([len.to_string()].into_iter().chain(values.into_iter().chain(with_tcp).map(whole)));
            columns.iter_mut().zip(values).for_each(|(column, value)| column.push(value));
        }
        let names = ["as it was", "slicing-by-8", "and interleaved", "as it ships", "the line"];
        let paper = &self.paper.throughput;
        let published = [Some(paper.before_mb_per_s), None, Some(paper.after_mb_per_s), None, None];
        let lines = names.into_iter().zip(columns).zip(published).enumerate();
        let lines = lines.flat_map(|(at, ((name, values), published))| {
            let published = lens.iter().map(|len| published.filter(|_| *len == PDU_LEN)).collect();
            curve(name, at, values, published)
        });
        let panel =
            Panel { title: "Reads on one core".into(), ticks: ticks(lens), lines: lines.collect(), rises: true };
        let plot = Plot { panels: vec![panel], x_label: "bytes of a read", y_label: "MB/s", scale: Scale::Decades };
        Figure { name: "figure-17", table, plot: Some(plot) }
    }

    /// Markers, and PDUs in other orders.
    fn unusual(&self) -> Figure {
        let mut table = Table::new(["Data-In", "bytes", "PDUs", "cold", "warm", "instructions"]);
        let rows = [("", Work::DataIn, PDU_LEN), ("with markers", Work::DataInMarked, PDU_LEN)];
        let orders = ORDERS.into_iter().zip(["in order", "the last first", "shuffled"]);
        let rows = rows.into_iter().chain(orders.map(|(work, name)| (name, work, LONGEST)));
        for (name, work, len) in rows {
            let [cold, warm] = STATES.map(|caches| self.numbers.protocol(work, Work::CopyWithDigest, len, caches));
            let count = self.numbers.protocol_count(INSTRUCTIONS, work, Work::CopyWithDigest, len, Caches::Warm);
            table.row([
                name.to_owned(),
                len.to_string(),
                len.div_ceil(PDU_LEN).to_string(),
                whole(cold),
                whole(warm),
                whole(count),
            ]);
        }
        Figure { name: "unusual", table, plot: None }
    }

    /// Data-Out, and the target's side.
    fn others(&self) -> Figure {
        let mut table = Table::new([
            "",
            "bytes",
            "PDUs",
            "protocol, cold",
            "warm",
            "instructions",
            "digest, and copy where there is one",
        ]);
        let names = [
            "initiator, R2T to Data-Out",
            "initiator, command and Data-Out unasked",
            "target, Data-Out",
            "target, Data-In",
        ];
        for ((work, part), name) in OTHERS.into_iter().zip(names) {
            for len in OTHER_LENS {
                let pdus = len.div_ceil(PDU_LEN);
                let [cold, warm] = STATES.map(|caches| self.numbers.protocol(work, part, len, caches));
                let count = self.numbers.protocol_count(INSTRUCTIONS, work, part, len, Caches::Warm);
                let data =
                    self.numbers.cycles(Cell { work: part, digest: Digest::Shipping, len, caches: Caches::Warm });
                let data = data.map(|cycles| cycles.median / pdus as f64);
                table.row([
                    name.to_owned(),
                    len.to_string(),
                    pdus.to_string(),
                    whole(cold),
                    whole(warm),
                    whole(count),
                    whole(data),
                ]);
            }
        }
        Figure { name: "others", table, plot: None }
    }

    /// Whether the parts add up to what is measured as a whole.
    fn whole(&self) -> Figure {
        let mut table = Table::new(["data", "digest", "sum of the parts", "measured", "least–most", "off, %"]);
        for (caches, what) in [(Caches::Cold, "cold"), (Caches::Warm, "warm")] {
            for (digest, name) in Digest::ALL {
                let sum = self.numbers.interleaved(digest, PDU_LEN, caches).map(Parts::total);
                let measured = self.numbers.cycles(Cell { work: Work::DataIn, digest, len: PDU_LEN, caches });
                table.row([
                    what.to_owned(),
                    name.to_owned(),
                    whole(sum),
                    whole(measured.map(|measured| measured.median)),
                    measured.map_or("–".into(), |measured| format!("{:.0}–{:.0}", measured.least, measured.most)),
                    decimal(sum.zip(measured).map(|(sum, measured)| (sum / measured.median - 1.0) * 100.0)),
                ]);
            }
        }
        Figure { name: "whole", table, plot: None }
    }
}

/// Data that a 10 Gb/s Ethernet carries in reads of that length, each of one PDU, in MB/s.
pub(super) fn line_mb_per_s(len: usize) -> f64 {
    let data = len as f64 / (len as f64 + PDU_OVERHEAD);
    LINE_BITS_PER_SECOND / 8.0 * SEGMENT_PAYLOAD / (SEGMENT_PAYLOAD + FRAME_OVERHEAD) * data / 1e6
}

/// Ours as circles on a line, the paper's as crosses, all in one colour.
fn curve(name: &str, colour: usize, ours: Vec<Option<f64>>, published: Vec<Option<f64>>) -> Vec<Line> {
    let line = |name: &str, look, values| Line { name: name.into(), colour, look, values };
    vec![line("", Look::Computed, ours.clone()), line(name, Look::Measured, ours), line("", Look::Published, published)]
}

fn cycles_plot(panels: Vec<Panel>, x_label: &'static str) -> Plot {
    Plot { panels, x_label, y_label: "cycles", scale: Scale::Decades }
}

fn ticks(lens: &[usize]) -> Vec<String> {
    lens.iter().map(ToString::to_string).collect()
}

pub(super) fn whole(value: Option<f64>) -> String {
    value.map_or("–".into(), |value| format!("{value:.0}"))
}

pub(super) fn decimal(value: Option<f64>) -> String {
    value.map_or("–".into(), |value| format!("{value:.2}"))
}

fn shares(percents: Option<[f64; 3]>) -> String {
    percents.map_or("–".into(), |shares| shares.map(|share| format!("{share:.0}")).join(" / "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_carries_less_of_short_reads() {
        // 1,448 of 1,538 bytes, and 8,192 of 8,248.
        assert!((line_mb_per_s(8192) - 1250.0 * 1448.0 / 1538.0 * 8192.0 / 8248.0).abs() < 1e-6);
        assert!(line_mb_per_s(512) < line_mb_per_s(1024));
    }

    #[test]
    fn what_is_not_known_is_a_dash() {
        assert_eq!((whole(None), decimal(None), shares(None)), ("–".into(), "–".into(), "–".into()));
        assert_eq!(shares(Some([3.4, 72.6, 24.0])), "3 / 73 / 24");
    }
}
