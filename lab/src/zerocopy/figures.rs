//! The tables and plots.

use super::layers::{BUSY, ENDS};
use super::load::Way;
use super::plan::{self, LENS, LONGEST, MTUS, REMAPPED, TABLE_LEN, WAY_LENS, WAYS};
use super::remap::MAPPED;
use super::report::Report;
use super::rewrite::{DIGEST_ERRORS, LATER, MIXED, WRITES};
use super::spec::{Blocks, CPU_US, Spec, With};
use crate::experiment::commands::MB_PER_S;
use crate::experiment::plot::{Line, Look, Panel, Plot, Scale};
use crate::experiment::{Table, figure};

/// The rows of the paper's tables, as its data file names them, and beyond them what is between its layers.
const PARTS: [(&str, &str, &[&str]); 8] = [
    ("idle", "idle, and others", &[]),
    ("iscsi", "iSCSI", &["iscsi"]),
    ("scsi", "SCSI", &["scsi"]),
    ("copy_and_checksum", "copy and checksum", &["copy", "checksum", "digest"]),
    ("driver", "NIC driver", &["driver"]),
    ("tcp_ip", "TCP/IP", &["tcp_ip"]),
    ("memory", "VM system", &["memory"]),
    ("", "system calls, scheduler, client's loop", &["event_loop", "system"]),
];
/// The columns of the paper's tables.
const COLUMNS: [With; 3] = [With::Nothing, With::Checksums, With::ZeroCopy];

/// Two digits behind the point, as the paper prints its percentages.
fn percent(value: Option<f64>) -> String {
    value.filter(|value| value.is_finite()).map_or("–".into(), |value| format!("{value:.2}"))
}

/// A length as people write it.
fn length(bytes: u32) -> String {
    if bytes < 1024 { format!("{bytes} B") } else { format!("{} KB", bytes / 1024) }
}

fn kind(write: bool) -> &'static str {
    if write { "writes" } else { "reads" }
}

/// The cell of a column of the paper's tables. Its reads without copies are payloads by page, which have a table of
/// their own here.
fn table_spec(write: bool, mtu: u16, with: With) -> Option<Spec> {
    (write || with != With::ZeroCopy).then_some(Spec::Load { write, len: TABLE_LEN, mtu, with })
}

impl Report<'_> {
    /// The share of an end's CPU that a part of [`PARTS`] has, in percent.
    fn part(&self, spec: &Spec, end: &str, layers: &[&str]) -> Option<f64> {
        if layers.is_empty() {
            return Some(100.0 - self.percent(spec, end, BUSY)?);
        }
        layers.iter().map(|layer| self.percent(spec, end, layer)).sum()
    }

    /// CPU utilisation of both ends by the length of requests.
    pub(super) fn utilisation(&self, write: bool, mtu: u16) -> Table {
        let heads = With::ALL.map(With::name).map(String::from);
        let head = format!("{}, MTU {mtu}", kind(write));
        let mut table = Table::new([head].into_iter().chain(heads));
        for len in LENS {
            let cells = With::ALL.map(|with| {
                let spec = Spec::Load { write, len, mtu, with };
                let busy = ENDS.map(|end| figure(self.percent(&spec, end, BUSY)));
                format!("{} + {} ({})", busy[0], busy[1], figure(self.median(&spec, MB_PER_S)))
            });
            table.row([length(len)].into_iter().chain(cells));
        }
        table
    }

    pub(super) fn utilisation_plot(&self, write: bool, end: usize) -> Plot {
        let panels = MTUS.map(|mtu| {
            let lines = With::ALL.into_iter().enumerate().map(|(colour, with)| {
                let value = |len| self.percent(&Spec::Load { write, len, mtu, with }, ENDS[end], BUSY);
                Line { name: with.name().into(), colour, look: Look::Joined, values: LENS.map(value).to_vec() }
            });
            let side = ["initiator", "target"][end];
            Panel {
                title: format!("CPU utilisation of the {side}: {}, MTU {mtu}", kind(write)),
                ticks: LENS.map(|len| length(len).replace([' ', 'B'], "")).to_vec(),
                lines: lines.collect(),
                rises: false,
            }
        });
        Plot { panels: panels.into(), x_label: "bytes of a request", y_label: "% of a CPU", scale: Scale::FromZero }
    }

    /// The paper's table of CPU time by layer, beside ours: `paper / ours`.
    pub(super) fn distribution(&self, write: bool) -> Table {
        let heads = COLUMNS.iter().flat_map(|with| MTUS.map(|mtu| format!("{}, {mtu}", with.name())));
        let head = format!("{} of 8 KB: % of the initiator's CPU", kind(write));
        let mut table = Table::new([head].into_iter().chain(heads));
        for (part, name, layers) in PARTS {
            let paper = self.paper.table(write).rows.iter().find(|row| row.part == part);
            let cells =
                COLUMNS.iter().flat_map(|with| MTUS.map(|mtu| (*with, mtu))).enumerate().map(|(n, (with, mtu))| {
                    let ours = table_spec(write, mtu, with).and_then(|spec| self.part(&spec, ENDS[0], layers));
                    format!("{} / {}", percent(paper.map(|row| row.values[n])), percent(ours))
                });
            table.row([name.to_owned()].into_iter().chain(cells));
        }
        table
    }

    /// The initiator's busy time by layer, at MTU 1500.
    pub(super) fn distribution_plot(&self) -> Plot {
        let panels = [true, false].map(|write| {
            let ticks: Vec<String> = PARTS[1..]
                .iter()
                .map(|(_, name, _)| name.split([',', ' ']).next().unwrap_or(name).to_owned())
                .collect();
            // Checksum offload, MTU 1500.
            let column = 2;
            let paper = PARTS[1..].iter().map(|(part, ..)| {
                self.paper.table(write).rows.iter().find(|row| row.part == *part).map(|row| row.values[column])
            });
            let ours = |with: With| {
                let spec = Spec::Load { write, len: TABLE_LEN, mtu: MTUS[0], with };
                PARTS[1..].iter().map(|(_, _, layers)| self.part(&spec, ENDS[0], layers)).collect()
            };
            let line = |name: &str, colour, look, values| Line { name: name.into(), colour, look, values };
            Panel {
                title: format!("CPU time of the initiator: {} of 8 KB, MTU 1500", kind(write)),
                ticks,
                lines: vec![
                    line("paper, checksum offload", 3, Look::Published, paper.collect()),
                    line("nothing", 0, Look::Measured, ours(With::Nothing)),
                    line("checksum offload", 1, Look::Measured, ours(With::Checksums)),
                ],
                rises: true,
            }
        });
        Plot { panels: panels.into(), x_label: "", y_label: "% of a CPU", scale: Scale::FromZero }
    }

    /// Ways for the bytes of a file to a disk.
    pub(super) fn ways(&self) -> Table {
        let heads = WAY_LENS.into_iter().map(|len| format!("{}: µs of the initiator's CPU (MB/s)", length(len)));
        let mut table = Table::new(["writes of a file's bytes".to_owned()].into_iter().chain(heads));
        for way in WAYS {
            let cells = WAY_LENS.map(|len| {
                let spec = Spec::File { way, len };
                format!("{} ({})", figure(self.client_us(&spec)), figure(self.median(&spec, MB_PER_S)))
            });
            let name = match way {
                Way::Read => "read(2) to memory, sent from there, as `lunette cp` does",
                Way::Memory => "sent from memory, where it lies already",
                Way::Pages => "sendfile(2), from the file's pages",
                Way::Flag => "MSG_ZEROCOPY, from memory",
            };
            table.row([name.to_owned()].into_iter().chain(cells));
        }
        table
    }

    /// The product, beside the laboratory's client.
    pub(super) fn shipping(&self) -> Table {
        let mut table = Table::new(["8 KB, MTU 1500, checksum offload", "`lunette bench`, µs of its process", "MB/s"]);
        for spec in plan::shipping() {
            let Spec::Shipping { write, .. } = spec else { continue };
            table.row([kind(write).into(), figure(self.median(&spec, CPU_US)), figure(self.median(&spec, MB_PER_S))]);
        }
        table
    }

    /// Received payloads, copied and by page.
    pub(super) fn remapped(&self) -> Table {
        let mut table = Table::new([
            "MTU",
            "payload",
            "by page",
            "µs of the receiver's CPU: copied",
            "by page",
            "ratio",
            "copy, %: copied",
            "by page",
            "VM system, %: copied",
            "by page",
        ]);
        for (mtu, len) in REMAPPED {
            let [copied, by_page] = [true, false].map(|copy| Spec::Remap { mtu, len, copy });
            let both = [&copied, &by_page];
            let us = both.map(|spec| self.client_us(spec));
            let part = |layer: &str| both.map(|spec| percent(self.percent(spec, ENDS[0], layer)));
            let ([copy_copied, copy_by_page], [vm_copied, vm_by_page]) = (part("copy"), part("memory"));
            table.row([
                mtu.to_string(),
                length(len),
                self.median(&by_page, MAPPED).map_or("–".into(), |mapped| format!("{mapped:.0}%")),
                figure(us[0]),
                figure(us[1]),
                figure(us[1].zip(us[0]).map(|(by_page, copied)| by_page / copied)),
                copy_copied,
                copy_by_page,
                vm_copied,
                vm_by_page,
            ]);
        }
        table
    }

    pub(super) fn remapped_plot(&self) -> Plot {
        let per_page = |copy: bool| {
            let value = |(mtu, len): (u16, u32)| {
                let us = self.client_us(&Spec::Remap { mtu, len, copy })?;
                Some(us * 4096.0 / f64::from(len))
            };
            REMAPPED.map(value).to_vec()
        };
        let line = |name: &str, colour, values| Line { name: name.into(), colour, look: Look::Measured, values };
        let panel = Panel {
            title: "Received payloads, 1 Gb/s".into(),
            ticks: REMAPPED.map(|(mtu, len)| format!("{mtu}, {}K", len / 1024)).to_vec(),
            lines: vec![line("copied", 0, per_page(true)), line("by page", 1, per_page(false))],
            rises: false,
        };
        Plot {
            panels: vec![panel],
            x_label: "MTU, payload of a PDU",
            y_label: "µs of CPU for 4 KB",
            scale: Scale::FromZero,
        }
    }

    /// Pages that were rewritten while they were sent.
    pub(super) fn rewritten(&self) -> Table {
        let mut table = Table::new([
            "sent from",
            "blocks",
            "data digests",
            "writes",
            "digest errors",
            "stored as a mixture",
            "stored as they became later",
        ]);
        for spec in plan::rewrites(self.size) {
            let Spec::Rewrite { pages, blocks, .. } = spec else { continue };
            let count = |name| self.median(&spec, name).map_or("–".into(), |count| format!("{count:.0}"));
            let (what, digests) = match blocks {
                Blocks::Plain => ("plain", "off"),
                Blocks::Digested => ("plain", "on"),
                Blocks::Quanta => ("quanta", "on"),
            };
            table.row([
                if pages { "the pages" } else { "a copy, as all that ships" }.to_owned(),
                what.into(),
                digests.into(),
                count(WRITES),
                count(DIGEST_ERRORS),
                count(MIXED),
                count(LATER),
            ]);
        }
        table
    }

    /// The target's zero-copy reads, which ship: its CPU time for the longest ones.
    pub(super) fn target_saves(&self, mtu: u16) -> Option<f64> {
        let us = |with| self.server_us(&Spec::Load { write: false, len: LONGEST, mtu, with });
        Some(us(With::ZeroCopy)? / us(With::Checksums)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zerocopy::layers::LAYERS;

    #[test]
    fn each_layer_is_in_one_part() {
        let mut layers: Vec<&str> = PARTS.iter().flat_map(|(_, _, layers)| layers.iter().copied()).collect();
        let mut all = LAYERS.to_vec();
        layers.sort_unstable();
        all.sort_unstable();
        assert_eq!(layers, all);
    }

    #[test]
    fn lengths_are_written_as_people_do() {
        assert_eq!([512, 8192, LONGEST].map(length), ["512 B", "8 KB", "256 KB"]);
    }
}
