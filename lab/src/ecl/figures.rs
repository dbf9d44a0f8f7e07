//! The tables and plots of the figures.

use super::plan::{self, DISTANT, ECL, ENCRYPTION, FRAMES, ISCSI, JUMBO, LOSSES, QUANTA, QUANTA_CARRIERS, QUANTA_MTU};
use super::plan::{SHARED_MS, SHARING, SNAPSHOT, SNAPSHOT_MTU, SWEEP, System};
use super::report::Report;
use super::spec::{BESIDE, Data, Spec, Wire};
use crate::experiment::plot::{Line, Look, Panel, Plot, Scale};
use crate::experiment::{Table, figure};

const BOTH: [bool; 2] = [false, true];

fn offloads(on: bool) -> &'static str {
    if on { "offloads on" } else { "offloads off" }
}

fn kind(write: bool) -> &'static str {
    if write { "writes" } else { "reads" }
}

fn ratio(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    Some(one? / other?)
}

/// A line of a plot over ticks.
fn line(name: &str, colour: usize, values: Vec<Option<f64>>) -> Line {
    Line { name: name.into(), colour, look: Look::Joined, values }
}

fn panel(title: String, ticks: Vec<String>, lines: Vec<Line>) -> Panel {
    Panel { title, ticks, lines, rises: true }
}

impl Report<'_> {
    /// The throughput with the CPU time of both sides: `1130 (38 + 22)`.
    fn with_cpu(&self, spec: Option<Spec>) -> String {
        let Some(spec) = spec else { return "–".into() };
        let rate = figure(self.mb_per_s(&spec));
        match self.ns_per_kb(&spec) {
            Some([client, server]) => format!("{rate} ({client:.0} + {server:.0})"),
            None => rate,
        }
    }

    /// Figure 5: all systems beside iSCSI.
    pub(super) fn snapshot(&self) -> Table {
        let [local, ecl, iscsi] = self.paper.reads_mb_per_s();
        let mut table = Table::new([
            "reads, MTU 16,000",
            "paper, MB/s",
            "÷ iSCSI",
            "offloads off",
            "÷ iSCSI",
            "offloads on",
            "÷ iSCSI",
        ]);
        let [off, on] = BOTH.map(|on| self.at(ISCSI, SNAPSHOT_MTU, on, false));
        for system in SNAPSHOT {
            let paper = match system.name {
                name if name == ISCSI.name => Some(iscsi),
                name if name == FRAMES.name => Some(ecl),
                "local" => Some(local),
                _ => None,
            };
            let specs = BOTH.map(|on| system.at(SNAPSHOT_MTU, on, false));
            let values = specs.map(|spec| self.mb_per_s(&spec?));
            table.row([
                system.name.into(),
                figure(paper),
                figure(paper.map(|paper| paper / iscsi)),
                self.with_cpu(specs[0]),
                figure(ratio(values[0], off)),
                self.with_cpu(specs[1]),
                figure(ratio(values[1], on)),
            ]);
        }
        table
    }

    pub(super) fn snapshot_plot(&self) -> Plot {
        let [local, ecl, iscsi] = self.paper.reads_mb_per_s();
        let systems = [plan::LOCAL, FRAMES, ECL, ISCSI];
        let paper = [Some(local / iscsi), Some(ecl / iscsi), None, Some(1.0)];
        let ours = |on: bool| {
            let of = |system: System| {
                ratio(self.at(system, SNAPSHOT_MTU, on, false), self.at(ISCSI, SNAPSHOT_MTU, on, false))
            };
            // Beside networks the local disk is far above the paper's.
            systems.map(|system| of(system).filter(|_| system != plan::LOCAL)).to_vec()
        };
        let ticks = systems.map(|system| system.name.replace("ECL over Ethernet", "ECL, Ethernet")).to_vec();
        let marks = |name: &str, colour, look, values| Line { name: name.into(), colour, look, values };
        let lines = vec![
            marks("paper", 3, Look::Published, paper.to_vec()),
            marks("offloads off", 0, Look::Measured, ours(false)),
            marks("offloads on", 1, Look::Measured, ours(true)),
        ];
        Plot {
            panels: vec![panel("Figure 5: reads at MTU 16,000".into(), ticks, lines)],
            x_label: "",
            y_label: "÷ iSCSI",
            scale: Scale::FromZero,
        }
    }

    /// Figures 6 and 7: throughput by MTU.
    pub(super) fn sweep(&self, on: bool, write: bool) -> Table {
        let head = format!("MTU, {} ({})", kind(write), offloads(on));
        let heads = [head].into_iter().chain(SWEEP.map(|system| system.name.to_owned())).chain(["ECL ÷ iSCSI".into()]);
        let mut table = Table::new(heads);
        for mtu in plan::mtus(on) {
            let cells = SWEEP.map(|system| self.with_cpu(system.at(*mtu, on, write)));
            let ratio = ratio(self.at(ECL, *mtu, on, write), self.at(ISCSI, *mtu, on, write));
            table.row([mtu.to_string()].into_iter().chain(cells).chain([figure(ratio)]));
        }
        table
    }

    pub(super) fn sweep_plot(&self, write: bool) -> Plot {
        let number = if write { 7 } else { 6 };
        let panels = BOTH.map(|on| {
            let values = |system: System| plan::mtus(on).iter().map(|mtu| self.at(system, *mtu, on, write)).collect();
            let lines = SWEEP.iter().enumerate().map(|(n, system)| line(system.name, n, values(*system)));
            let ticks = plan::mtus(on).iter().map(ToString::to_string).collect();
            panel(format!("Figure {number}: {}, {}", kind(write), offloads(on)), ticks, lines.collect())
        });
        Plot { panels: panels.into(), x_label: "MTU", y_label: "MB/s", scale: Scale::FromZero }
    }

    /// Figures 8 and 9: ECL alone, as a share of its largest throughput.
    pub(super) fn peak_plot(&self) -> Plot {
        let mtus: Vec<u16> = plan::mtus(false).iter().copied().filter(|mtu| *mtu >= plan::LEAST_ECL_MTU).collect();
        let panels = BOTH.map(|write| {
            let share = |system: System| {
                let values: Vec<_> = mtus.iter().map(|mtu| self.at(system, *mtu, false, write)).collect();
                let most = values.iter().flatten().copied().fold(f64::MIN_POSITIVE, f64::max);
                values.into_iter().map(|value| Some(value? / most)).collect()
            };
            let lines = [ECL, FRAMES].iter().enumerate().map(|(n, system)| line(system.name, 2 * n, share(*system)));
            let number = if write { 9 } else { 8 };
            let title = format!("Figure {number}: {} of 4,096 bytes, offloads off", kind(write));
            panel(title, mtus.iter().map(ToString::to_string).collect(), lines.collect())
        });
        Plot { panels: panels.into(), x_label: "MTU", y_label: "share of the peak", scale: Scale::FromZero }
    }

    /// Figure 10: quanta of all sizes.
    pub(super) fn quanta(&self) -> Table {
        let lines = Self::quanta_lines();
        let heads = ["quantum".to_owned()].into_iter().chain(lines.iter().map(|(name, _)| name.clone()));
        let mut table = Table::new(heads);
        for (n, len) in QUANTA.iter().enumerate() {
            let cells = lines.iter().map(|(_, specs)| self.with_cpu(specs[n]));
            table.row([len.to_string()].into_iter().chain(cells));
        }
        table
    }

    /// Each line of Figure 10, and its cells.
    fn quanta_lines() -> Vec<(String, [Option<Spec>; 4])> {
        let kinds = BOTH.into_iter().flat_map(|write| BOTH.map(|on| (write, on)));
        let kinds = kinds.filter(|(write, _)| *write).chain(BOTH.map(|on| (false, on)));
        let lines = kinds.flat_map(|(write, on)| QUANTA_CARRIERS.map(|(name, carrier)| (write, on, name, carrier)));
        lines
            .map(|(write, on, name, carrier)| {
                let of = |len| System { name, carrier, data: Data::Pdus(len) }.at(QUANTA_MTU, on, write);
                (format!("{name}, {}, {}", kind(write), offloads(on)), QUANTA.map(of))
            })
            .collect()
    }

    pub(super) fn quanta_plot(&self) -> Plot {
        let lines = Self::quanta_lines();
        let panels = BOTH.map(|on| {
            let of = lines.iter().filter(|(name, _)| name.ends_with(offloads(on)));
            let lines = of.enumerate().map(|(n, (name, specs))| {
                let values = specs.iter().map(|spec| self.mb_per_s(&(*spec)?)).collect();
                line(name.trim_end_matches(offloads(on)).trim_end_matches(", "), n, values)
            });
            let title = format!("Figure 10: MTU 5,000, {}", offloads(on));
            panel(title, QUANTA.iter().map(ToString::to_string).collect(), lines.collect())
        });
        Plot { panels: panels.into(), x_label: "bytes of a quantum", y_label: "MB/s", scale: Scale::FromZero }
    }

    /// The cost of encryption.
    pub(super) fn encryption(&self) -> Table {
        let kinds = BOTH.into_iter().flat_map(|on| BOTH.map(|write| (on, write)));
        let heads = kinds.clone().map(|(on, write)| format!("{}, {}", kind(write), offloads(on)));
        let mut table = Table::new(["MTU 9,000".to_owned()].into_iter().chain(heads));
        for system in ENCRYPTION {
            let cells = kinds.clone().map(|(on, write)| self.with_cpu(system.at(JUMBO, on, write)));
            table.row([system.name.to_owned()].into_iter().chain(cells));
        }
        table
    }

    /// The effect of loss over a distance.
    pub(super) fn distant(&self) -> Table {
        let heads = DISTANT.map(|system| format!("{}, MB/s", system.name));
        let mut table = Table::new(
            [String::new(), "RTT, ms".into(), "loss".into()].into_iter().chain(heads).chain(["ECL ÷ iSCSI".into()]),
        );
        for (write, (round_trip_ms, loss_percent)) in
            BOTH.into_iter().flat_map(|write| LOSSES.map(|loss| (write, loss)))
        {
            let wire = Wire::Distance { round_trip_ms, loss_percent };
            let values = DISTANT.map(|system| self.mb_per_s(&system.on(wire, write)));
            let row = [kind(write).to_owned(), round_trip_ms.to_string(), format!("{loss_percent}%")];
            table.row(row.into_iter().chain(values.map(figure)).chain([figure(ratio(values[2], values[0]))]));
        }
        table
    }

    pub(super) fn distant_plot(&self) -> Plot {
        let panels = BOTH.map(|write| {
            let values = |system: System| {
                let wire = |(round_trip_ms, loss_percent)| Wire::Distance { round_trip_ms, loss_percent };
                LOSSES.map(|loss| self.mb_per_s(&system.on(wire(loss), write))).to_vec()
            };
            let lines = DISTANT.iter().enumerate().map(|(n, system)| Line {
                name: system.name.into(),
                colour: n,
                look: Look::Measured,
                values: values(*system),
            });
            let ticks = LOSSES.map(|(ms, loss)| format!("{ms} ms, {loss}%")).to_vec();
            let title = format!("155 Mb/s with loss: {}", kind(write));
            Panel { rises: false, ..panel(title, ticks, lines.collect()) }
        });
        Plot { panels: panels.into(), x_label: "round trip and loss", y_label: "MB/s", scale: Scale::FromZero }
    }

    /// The sharing of a bottleneck with one TCP connection.
    pub(super) fn shared(&self) -> Table {
        let mut table = Table::new(["beside one TCP connection", "RTT, ms", "its own, MB/s", "TCP's, MB/s", "ratio"]);
        for (round_trip_ms, system) in SHARED_MS.into_iter().flat_map(|ms| SHARING.map(|system| (ms, system))) {
            let spec = system.on(Wire::Shared { round_trip_ms }, false);
            let (own, other) = (self.mb_per_s(&spec), self.median(&spec, BESIDE));
            table.row([
                system.name.to_owned(),
                round_trip_ms.to_string(),
                figure(own),
                figure(other),
                figure(ratio(own, other)),
            ]);
        }
        table
    }
}
