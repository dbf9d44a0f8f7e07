//! The claims of the paper, and whether the measurements support them.

use super::plan::{
    self, DISTANT, ECL, ECL_LONG, ECL_QUANTA, FRAMES, ISCSI, JUMBO, LOCAL, LOSSES, QUANTA, QUANTA_CARRIERS, QUANTA_MTU,
};
use super::plan::{SHARED_MS, SHARING, SNAPSHOT_MTU, System, TUNNEL};
use super::report::Report;
use super::spec::{BESIDE, Data, Wire};
use crate::experiment::paper::{Claim, Judge, Verdict};
use crate::experiment::{Table, figure};

/// The threshold of the paper's gain: half of its 63%.
const GAIN: f64 = 1.3;
/// The threshold of equality.
const EQUAL: f64 = 0.1;

impl Judge for Report<'_> {
    fn claims(&self) -> &[Claim] {
        &self.paper.claims
    }

    fn verdict(&self, id: &str) -> Verdict {
        match id {
            "local" => self.local(),
            "gain" => self.gain(false),
            "gain_on" => self.gain(true),
            "reads" => self.gain_everywhere(),
            "writes_slower" => self.writes_slower(),
            "writes_converge" => self.writes_converge(),
            "peak_reads" => self.peak(false),
            "peak_writes" => self.peak(true),
            "quanta" => self.larger_quanta(),
            "server" => self.server(),
            "ipsec" => self.tunnel(),
            _ => None,
        }
    }
}

impl Report<'_> {
    /// The better of both ways to carry ECL.
    fn best(&self, mtu: u16, on: bool, write: bool) -> Option<f64> {
        [ECL, ECL_LONG, FRAMES].iter().filter_map(|system| self.at(*system, mtu, on, write)).reduce(f64::max)
    }

    fn over_iscsi(&self, system: System, mtu: u16, on: bool, write: bool) -> Option<f64> {
        Some(self.at(system, mtu, on, write)? / self.at(ISCSI, mtu, on, write)?)
    }

    fn local(&self) -> Verdict {
        let (local, ecl) = (self.at(LOCAL, SNAPSHOT_MTU, false, false)?, self.best(SNAPSHOT_MTU, false, false)?);
        let text = format!("{} of {} MB/s", figure(Some(ecl)), figure(Some(local)));
        Some((ecl >= (1.0 - EQUAL) * local, text))
    }

    fn gain(&self, on: bool) -> Verdict {
        let at = |system, mtu| self.over_iscsi(system, mtu, on, false);
        let [udp, long, frames] = [ECL, ECL_LONG, FRAMES].map(|system| at(system, SNAPSHOT_MTU));
        let best = self.best(SNAPSHOT_MTU, on, false)? / self.at(ISCSI, SNAPSHOT_MTU, on, false)?;
        let text = format!(
            "{} over Ethernet, {} over UDP, {} with long packets over UDP; at MTU 9,000 {}, {} and {}",
            figure(frames),
            figure(udp),
            figure(long),
            figure(at(FRAMES, JUMBO)),
            figure(at(ECL, JUMBO)),
            figure(at(ECL_LONG, JUMBO)),
        );
        Some((best >= GAIN, text))
    }

    /// ECL with one quantum in a packet beside iSCSI, for all MTUs.
    fn ratios(&self, write: bool) -> Vec<(u16, f64)> {
        let mtus = plan::mtus(false).iter();
        mtus.filter_map(|mtu| Some((*mtu, self.over_iscsi(ECL, *mtu, false, write)?))).collect()
    }

    fn gain_everywhere(&self) -> Verdict {
        let ratios = self.ratios(false);
        let least = ratios.iter().map(|(_, ratio)| *ratio).reduce(f64::min)?;
        let most = ratios.iter().map(|(_, ratio)| *ratio).reduce(f64::max)?;
        Some((least >= GAIN, format!("{} to {} times iSCSI, over UDP", figure(Some(least)), figure(Some(most)))))
    }

    fn writes_slower(&self) -> Verdict {
        let mtus = || plan::mtus(false).iter();
        let slower = |system: System| {
            let pairs = mtus()
                .filter_map(|mtu| Some((self.at(system, *mtu, false, true)?, self.at(system, *mtu, false, false)?)));
            pairs.fold((0, 0), |(slower, all), (write, read)| (slower + usize::from(write < read), all + 1))
        };
        let [(ecl, of_ecl), (iscsi, of_iscsi)] = [ECL, ISCSI].map(slower);
        let text = format!("at {ecl} of {of_ecl} MTUs with ECL, at {iscsi} of {of_iscsi} with iSCSI");
        (of_ecl > 0 && of_iscsi > 0).then_some((ecl == of_ecl && iscsi == of_iscsi, text))
    }

    fn writes_converge(&self) -> Verdict {
        let ratios = self.ratios(true);
        let ((near, first), (far, last)) = (*ratios.first()?, *ratios.last()?);
        let text = format!("{} times iSCSI at MTU {near}, {} at {far}", figure(Some(first)), figure(Some(last)));
        Some((first > last && last <= 1.0 + EQUAL && first > 1.0, text))
    }

    fn peak(&self, write: bool) -> Verdict {
        let mtus = plan::mtus(false).iter();
        let values: Vec<(u16, f64)> = mtus.filter_map(|mtu| Some((*mtu, self.at(ECL, *mtu, false, write)?))).collect();
        let (peak, most) = values.iter().copied().max_by(|one, other| one.1.total_cmp(&other.1))?;
        let (_, last) = *values.last()?;
        let below = values.iter().filter(|(mtu, _)| *mtu <= 4000).map(|(_, value)| *value).reduce(f64::max)?;
        let knee = values.iter().find(|(mtu, _)| *mtu > 4000)?;
        let text = format!(
            "most at MTU {peak}; {} of it at {}, {} at most below the quantum, {} at 16,000",
            figure(Some(knee.1 / most)),
            knee.0,
            figure(Some(below / most)),
            figure(Some(last / most)),
        );
        Some(((4000..=5000).contains(&peak) && last < (1.0 - EQUAL) * most, text))
    }

    fn larger_quanta(&self) -> Verdict {
        let (name, carrier) = QUANTA_CARRIERS[0];
        let of = |len| self.at(System { name, carrier, data: Data::Pdus(len) }, QUANTA_MTU, false, true);
        let values: Vec<f64> = QUANTA.into_iter().map(of).collect::<Option<_>>()?;
        let text = values.iter().map(|value| figure(Some(*value))).collect::<Vec<_>>().join(", ");
        Some((values.is_sorted(), format!("{text} MB/s for 512, 1,024, 2,048 and 4,096 bytes over UDP, offloads off")))
    }

    fn server(&self) -> Verdict {
        let of = |system: System| Some(self.ns_per_kb(&system.at(JUMBO, true, true)?)?[1]);
        let (plain, quanta) = (of(ECL_LONG)?, of(ECL_QUANTA)?);
        let text = format!("{quanta:.0} ns of the server's CPU for 1 kB of writes, {plain:.0} without encryption");
        Some((quanta <= (1.0 + EQUAL) * plain, text))
    }

    fn tunnel(&self) -> Verdict {
        let cost = |system: System| Some(self.ns_per_kb(&system.at(JUMBO, true, false)?)?.iter().sum::<f64>());
        let (quanta, tunnel) = (cost(ECL_QUANTA)?, cost(TUNNEL)?);
        let text = format!("{quanta:.0} ns of both CPUs for 1 kB of reads, {tunnel:.0} in the tunnel");
        Some((quanta < tunnel, text))
    }

    /// The results beyond the paper: loss, and other flows.
    pub(super) fn beyond(&self) -> Table {
        let mut table = Table::new(["question", "answer"]);
        for (round_trip_ms, loss_percent) in LOSSES {
            let wire = Wire::Distance { round_trip_ms, loss_percent };
            let values = DISTANT.map(|system| (system.name, self.mb_per_s(&system.on(wire, false))));
            let (Some(one), Some(ecl)) = (values[0].1, values[2].1) else { continue };
            let all = values.map(|(name, value)| format!("{name} {}", figure(value))).join(", ");
            table.row([
                format!("How much does ECL read over {round_trip_ms} ms with {loss_percent}% loss, beside iSCSI over one TCP connection?"),
                format!("{} times as much. MB/s: {all}", figure(Some(ecl / one))),
            ]);
        }
        for (round_trip_ms, system) in SHARED_MS.into_iter().flat_map(|ms| SHARING.map(|system| (ms, system))) {
            let spec = system.on(Wire::Shared { round_trip_ms }, false);
            let Some((own, other)) = self.mb_per_s(&spec).zip(self.median(&spec, BESIDE)) else { continue };
            let answer = if (0.5..=2.0).contains(&(own / other)) { "yes" } else { "no" };
            table.row([
                format!(
                    "Does {} share 155 Mb/s and {round_trip_ms} ms with a TCP connection within 1 : 2?",
                    system.name
                ),
                format!("{answer}: {} and {} MB/s", figure(Some(own)), figure(Some(other))),
            ]);
        }
        table
    }
}
