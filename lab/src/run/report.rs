//! The output of the tool: the link, its errors, and its traffic.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::check::{Check, LEAST_SHARE, Losses};
use crate::link::{Counts, Nanos, Settings};
use crate::net::{OneWay, Relayed};
use crate::units::EachWay;

/// A report, which grows while the tool works. Text is printed as it comes, JSON at the end.
///
/// With a command it goes to standard error, because standard output is the command's.
#[derive(Serialize)]
pub(crate) struct Report {
    #[serde(skip)]
    json: bool,
    #[serde(skip)]
    to_output: bool,
    mtu: u16,
    seed: u64,
    there: Direction,
    back: Direction,
    check: Option<Check>,
    command: Option<Command>,
}

/// One direction of the link that was asked for.
#[derive(Serialize)]
struct Direction {
    bits_per_second: Option<u64>,
    delay_ms: f64,
    jitter_ms: f64,
    loss_share: f64,
    reorder_share: f64,
    queue_bytes: Option<u64>,
}

#[derive(Serialize)]
struct Command {
    status: i32,
    seconds: f64,
    traffic: Option<Traffic>,
}

/// The traffic over the link.
#[derive(Serialize)]
pub(crate) struct Traffic {
    there: WayCounts,
    back: WayCounts,
    /// Packets that the devices dropped before they were part of the link.
    dropped_before_the_link: u64,
    relay_cpu_seconds: f64,
    relay_seconds: f64,
}

#[derive(Serialize)]
struct WayCounts {
    #[serde(flatten)]
    counts: Counts,
    refused: u64,
    late_us: Lateness,
}

/// By how much packets came later than the link says, in microseconds.
#[derive(Serialize)]
struct Lateness {
    median: f64,
    p99: f64,
    most: f64,
}

impl Report {
    /// Begins with the link.
    pub(crate) fn new(link: &EachWay<Settings>, mtu: u16, seed: u64, json: bool, to_output: bool) -> Self {
        let (there, back) = (Direction::new(&link.there), Direction::new(&link.back));
        let report = Self { json, to_output, mtu, seed, there, back, check: None, command: None };
        report.line(&format!("link: {}; MTU {mtu}, seed {seed}", report.link()));
        report
    }

    pub(crate) fn checked(&mut self, check: Check) {
        self.line(&idle_text(&check));
        self.line(&throughput_text(&check));
        for (way, losses) in check.loss.iter().flat_map(|loss| [("there", &loss.there), ("back", &loss.back)]) {
            self.line(&losses_text(way, losses));
        }
        self.check = Some(check);
    }

    /// The command has ended. `traffic` is what passed over an emulated link.
    pub(crate) fn ran(&mut self, status: i32, elapsed: Duration, traffic: Option<Traffic>) {
        self.line(&format!("command: status {status} after {:.3} s", elapsed.as_secs_f64()));
        if let Some(traffic) = &traffic {
            self.passed(traffic);
        }
        self.command = Some(Command { status, seconds: elapsed.as_secs_f64(), traffic });
    }

    fn passed(&self, traffic: &Traffic) {
        self.line(&traffic.there.text("there"));
        self.line(&traffic.back.text("back"));
        self.line(&format!("relay: {:.2} s of CPU in {:.2} s", traffic.relay_cpu_seconds, traffic.relay_seconds));
        if traffic.dropped_before_the_link > 0 {
            self.line(&format!(
                "warning: {} packets were dropped before the link, because this machine was too slow",
                traffic.dropped_before_the_link
            ));
        }
    }

    /// Prints what is not printed yet.
    pub(crate) fn print(&self) {
        if self.json {
            self.print_line(&serde_json::to_string(self).expect("a report is made of numbers"));
        }
    }

    fn line(&self, text: &str) {
        if !self.json {
            self.print_line(text);
        }
    }

    fn print_line(&self, text: &str) {
        if self.to_output { println!("{text}") } else { eprintln!("{text}") }
    }

    fn link(&self) -> String {
        let (there, back) = (self.there.text(), self.back.text());
        if there == back { format!("{there} each way") } else { format!("{there} there, {back} back") }
    }
}

impl Direction {
    fn new(settings: &Settings) -> Self {
        Self {
            bits_per_second: settings.bits_per_second,
            delay_ms: milliseconds(settings.delay),
            jitter_ms: milliseconds(settings.jitter),
            loss_share: settings.loss.mean(),
            reorder_share: settings.reordering.map_or(0.0, |by| by.share),
            queue_bytes: settings.bits_per_second.map(|_| settings.queue_bytes),
        }
    }

    fn text(&self) -> String {
        let rate = self.bits_per_second.map_or("no rate".into(), rate_text);
        let mut parts = vec![rate, format!("{} ms", self.delay_ms)];
        if self.jitter_ms > 0.0 {
            parts.push(format!("jitter {} ms", self.jitter_ms));
        }
        parts.extend(self.queue_bytes.map(|bytes| format!("queue {bytes} bytes")));
        for (share, what) in [(self.loss_share, "loss"), (self.reorder_share, "held back")] {
            if share > 0.0 {
                parts.push(format!("{what} {:.3}%", share * 100.0));
            }
        }
        parts.join(", ")
    }
}

impl Traffic {
    pub(crate) fn new(relayed: &Relayed, dropped_before_the_link: u64) -> Self {
        Self {
            there: WayCounts::new(&relayed.ways.there),
            back: WayCounts::new(&relayed.ways.back),
            dropped_before_the_link,
            relay_cpu_seconds: relayed.cpu.as_secs_f64(),
            relay_seconds: relayed.elapsed.as_secs_f64(),
        }
    }

    /// Packets that the relay could not read in time.
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    pub(crate) fn unread(&self) -> f64 {
        self.dropped_before_the_link as f64
    }

    /// Packets that the queues had no room for.
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    pub(crate) fn dropped(&self) -> f64 {
        (self.there.counts.dropped + self.back.counts.dropped) as f64
    }

    /// By how many microseconds all but 1% of the packets were late at most, in the worse direction.
    pub(crate) fn late_us(&self) -> f64 {
        self.there.late_us.p99.max(self.back.late_us.p99)
    }
}

impl WayCounts {
    fn new(way: &OneWay) -> Self {
        Self { counts: way.counts.clone(), refused: way.refused, late_us: Lateness::new(&way.lateness) }
    }

    fn text(&self, way: &str) -> String {
        let Self { counts, refused, late_us } = self;
        let mut parts = vec![format!("{way}: {} packets, {} bytes", counts.offered, counts.offered_bytes)];
        let others = [
            (counts.lost, "lost"),
            (counts.dropped, "dropped by the queue"),
            (counts.overflowed, "dropped because the link's memory was full"),
            (counts.held, "held back"),
            (*refused, "refused by the other end"),
        ];
        parts.extend(others.iter().filter(|(number, _)| *number > 0).map(|(number, what)| format!("{number} {what}")));
        parts.push(format!("longest queue {} bytes", counts.longest_queue_bytes));
        let Lateness { median, p99, most } = late_us;
        format!("{}; late by {median:.0} µs (median), {p99:.0} (99%), {most:.0} (most)", parts.join(", "))
    }
}

impl Lateness {
    fn new(histogram: &Histogram<u64>) -> Self {
        let microseconds = |nanos| milliseconds(nanos) * 1e3;
        Self {
            median: microseconds(histogram.value_at_quantile(0.5)),
            p99: microseconds(histogram.value_at_quantile(0.99)),
            most: microseconds(histogram.max()),
        }
    }
}

fn idle_text(check: &Check) -> String {
    let idle = &check.idle;
    let over = |milliseconds: f64| (milliseconds - idle.asked_ms) * 1e3;
    format!(
        "check: idle round trips {:.3} ms, {:+.0} µs (median), {:+.0} µs (most)",
        idle.asked_ms,
        over(idle.median_ms),
        over(idle.most_ms)
    )
}

fn throughput_text(check: &Check) -> String {
    let measured = bits(check.tcp.bits_per_second);
    let cores = format!("the relay takes {:.2} of a core", check.tcp.relay_cores);
    let (Some(most), Some(share)) = (check.tcp.most_bits_per_second, check.tcp.share()) else {
        return format!("check: one TCP connection carries {measured}; {cores}");
    };
    let verdict = if share < LEAST_SHARE { "; warning: this machine does not hold the rate now" } else { "" };
    format!("check: one TCP connection carries {measured} of {}, {:.1}%; {cores}{verdict}", bits(most), share * 100.0)
}

fn losses_text(way: &str, losses: &Losses) -> String {
    let verdict = if losses.strange { "; warning: unlikely by chance" } else { "" };
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let share = losses.lost as f64 / losses.sent as f64;
    format!(
        "check: {way}: {} of {} packets lost, {:.3}% for {:.3}%{verdict}",
        losses.lost,
        losses.sent,
        share * 100.0,
        losses.asked_share * 100.0
    )
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn rate_text(bits_per_second: u64) -> String {
    bits(bits_per_second as f64)
}

/// Bits per second with the largest unit that leaves a number above one.
fn bits(rate: f64) -> String {
    let units = [(1e9, "Gb/s"), (1e6, "Mb/s"), (1e3, "kb/s"), (1.0, "b/s")];
    let (scale, unit) = units.into_iter().find(|(scale, _)| rate >= *scale).unwrap_or((1.0, "b/s"));
    let number = format!("{:.3}", rate / scale);
    format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn milliseconds(nanos: Nanos) -> f64 {
    nanos as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_printed_as_people_write_them() {
        for (rate, text) in [(155e6, "155 Mb/s"), (622.08e6, "622.08 Mb/s"), (1e9, "1 Gb/s"), (0.0, "0 b/s")] {
            assert_eq!(bits(rate), text);
        }
    }
}
