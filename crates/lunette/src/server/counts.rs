//! The statistics of a running server, printed on standard error on request.

mod disks;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::time::Instant;

use lunette_api::Health;
use lunette_target::{Monitor, Statistics};
use serde_json::{Map, Value, json};

use crate::disks::encrypted::volumes;
use crate::log::Stderr;
use crate::server::metrics::{self, Snapshot};

/// A number: its JSON key, its label, and its place in the statistics.
struct Row(&'static str, &'static str, fn(&Statistics) -> u64);

/// Numbers that rise and fall.
const IN_HAND: &[Row] = &[
    Row("sessions", "sessions", |s| s.sessions as u64),
    Row("connections", "connections", |s| s.connections as u64),
    Row("lost_connections", "lost connections to be recovered", |s| s.suspended as u64),
    Row("commands", "commands", |s| s.tasks as u64),
    Row("buffer_bytes", "bytes of buffers", |s| s.buffer_bytes as u64),
];

/// Numbers that only grow.
const DONE: &[Row] = &[
    Row("received_pdus", "PDUs received", |s| s.traffic.received_pdus),
    Row("sent_pdus", "PDUs sent", |s| s.traffic.sent_pdus),
    Row("received_bytes", "bytes received", |s| s.event_loop.received_bytes),
    Row("direct_bytes", "  straight to their place", |s| s.event_loop.direct_bytes),
    Row("sent_bytes", "bytes sent", |s| s.event_loop.sent_bytes),
    Row("file_bytes", "  out of files", |s| s.event_loop.file_bytes),
    Row("batches", "batches", |s| s.event_loop.batches),
    Row("system_calls", "system calls", |s| s.event_loop.system_calls),
    Row("direct_receives", "receives straight to their place", |s| s.traffic.direct_receives),
    Row("header_digest_errors", "headers with a wrong digest", |s| s.traffic.header_digest_errors),
    Row("data_digest_errors", "data segments with a wrong digest", |s| s.traffic.data_digest_errors),
    Row("copies", "copies without a digest", |s| s.traffic.copies),
    Row("copied_bytes", "  bytes", |s| s.traffic.copied_bytes),
    Row("digested_copies", "copies with a digest", |s| s.traffic.digested_copies),
    Row("digested_copied_bytes", "  bytes", |s| s.traffic.digested_copied_bytes),
    Row("buffer_waits", "waits for a buffer", |s| s.buffer_waits),
];

/// The format of printed numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// A table.
    Table,
    /// One JSON object in a line.
    Json,
    /// The text format of Prometheus.
    Prometheus,
}

/// Prints the numbers of one server.
pub(crate) struct Counts {
    monitor: Monitor,
    health: Health,
    format: Format,
    start: Instant,
    /// The time of the last print, and the numbers at that time.
    last: (Instant, Statistics),
}

/// Numbers, and the earlier ones that they are compared with.
struct Reading {
    now: Statistics,
    seconds: f64,
    last: Statistics,
    /// The time since the last print, in seconds.
    last_seconds: f64,
}

impl Counts {
    /// Starts counting at the start of a server.
    pub(crate) fn new(monitor: Monitor, health: Health, format: Format) -> Self {
        let start = Instant::now();
        Self { monitor, health, format, start, last: (start, Statistics::default()) }
    }

    /// Prints all numbers since the start, and since the last call.
    pub(crate) fn print(&mut self) {
        let text = match self.format {
            Format::Table => self.table(),
            Format::Json => format!("{}\n", self.json()),
            Format::Prometheus => metrics::render(&Snapshot::take(&self.monitor, &self.health, true)),
        };
        // In one write, or lines of the log could end up inside. A closed standard error is not an error.
        let _ = Stderr.write_all(text.as_bytes());
    }

    fn table(&mut self) -> String {
        let disks = self.read().to_table() + &disks::table(&Snapshot::take(&self.monitor, &self.health, false));
        let volumes = volumes::counts().unwrap_or_default();
        volumes.iter().fold(disks, |text, (name, counts)| text + &volume_table(name, counts))
    }

    fn json(&mut self) -> Value {
        let mut json = self.read().to_json();
        json["disks"] = disks::json(&Snapshot::take(&self.monitor, &self.health, false));
        let volumes = volumes::counts().unwrap_or_default();
        if !volumes.is_empty() {
            json["encrypted_disks"] = volumes.iter().map(|(name, counts)| volume_json(name, counts)).collect();
        }
        json
    }

    /// The numbers of the whole server, which are remembered for the next time.
    fn read(&mut self) -> Reading {
        let (at, now) = (Instant::now(), self.monitor.read());
        let (last_at, last) = std::mem::replace(&mut self.last, (at, now));
        let seconds = at.duration_since(self.start).as_secs_f64();
        let last_seconds = at.duration_since(last_at).as_secs_f64();
        Reading { now, seconds, last, last_seconds }
    }
}

/// Prints what encrypted disks have done, for a server without numbers of its own. Nothing, when there are none.
pub(crate) fn print_volumes(json: bool) {
    let volumes = volumes::counts().unwrap_or_default();
    let text =
        volumes.iter().map(
            |(name, counts)| {
                if json { format!("{}\n", volume_json(name, counts)) } else { volume_table(name, counts) }
            },
        );
    let _ = io::stderr().write_all(text.collect::<String>().as_bytes());
}

/// A number of an encrypted disk: its JSON key, its label, and its place in the counts.
struct VolumeRow(&'static str, &'static str, fn(&lunette_volume::Counts) -> u64);

const OF_VOLUMES: &[VolumeRow] = &[
    VolumeRow("sealed", "quanta sealed", |c| c.sealed),
    VolumeRow("opened", "quanta opened", |c| c.opened),
    VolumeRow("repaired", "quanta repaired from parity", |c| c.repaired),
    VolumeRow("read_again", "reads made twice", |c| c.read_again),
    VolumeRow("refused_damaged", "requests refused: damaged", |c| c.refused_damaged),
    VolumeRow("refused_holes", "  deleted", |c| c.refused_holes),
    VolumeRow("refused_unknown_epoch", "  no key of the epoch", |c| c.refused_unknown_epoch),
    VolumeRow("refused_not_authentic", "  not authentic", |c| c.refused_not_authentic),
    VolumeRow("refused_rolled_back", "  rolled back", |c| c.refused_rolled_back),
    VolumeRow("records", "records of the journal", |c| c.records),
    VolumeRow("checkpoints", "checkpoints", |c| c.checkpoints),
];

fn volume_table(name: &str, counts: &lunette_volume::Counts) -> String {
    let mut text = format!("encrypted disk {name}\n");
    for VolumeRow(_, label, count) in OF_VOLUMES {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{label:34}{:>20}", count(counts));
    }
    text
}

fn volume_json(name: &str, counts: &lunette_volume::Counts) -> Value {
    let mut object: Map<String, Value> =
        OF_VOLUMES.iter().map(|row| (row.0.to_owned(), row.2(counts).into())).collect();
    object.insert("disk".into(), name.into());
    object.into()
}

impl Reading {
    fn since_last(&self, Row(_, _, count): &Row) -> u64 {
        count(&self.now).saturating_sub(count(&self.last))
    }

    fn to_table(&self) -> String {
        let mut text = format!("{:34}{:>20}{:>20}\n", "", "since the start", "since the last");
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:34}{:>20.1}{:>20.1}", "seconds", self.seconds, self.last_seconds);
        for row @ Row(_, name, count) in DONE {
            let _ = writeln!(text, "{name:34}{:>20}{:>20}", count(&self.now), self.since_last(row));
        }
        let _ = writeln!(text, "{:34}{:>20}", "", "now");
        for Row(_, name, count) in IN_HAND {
            let _ = writeln!(text, "{name:34}{:>20}", count(&self.now));
        }
        text
    }

    fn to_json(&self) -> Value {
        let object = |rows: &[Row], value: &dyn Fn(&Row) -> u64| -> Map<String, Value> {
            rows.iter().map(|row| (row.0.to_owned(), value(row).into())).collect()
        };
        let mut since_start = object(DONE, &|row| row.2(&self.now));
        since_start.insert("seconds".into(), self.seconds.into());
        let mut since_last = object(DONE, &|row| self.since_last(row));
        since_last.insert("seconds".into(), self.last_seconds.into());
        json!({ "since_start": since_start, "since_last": since_last, "now": object(IN_HAND, &|row| row.2(&self.now)) })
    }
}

#[cfg(test)]
mod tests {
    use lunette_target::Statistics;

    use super::*;

    fn statistics(sessions: usize, received_pdus: u64) -> Statistics {
        let mut statistics = Statistics { sessions, buffer_waits: 5, ..Statistics::default() };
        statistics.traffic.received_pdus = received_pdus;
        statistics
    }

    /// The words of the line that begins with `name`, without the name.
    fn line<'a>(table: &'a str, name: &str) -> Vec<&'a str> {
        let line = table.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name}\n{table}"));
        line.split_whitespace().collect()
    }

    #[test]
    fn numbers_are_given_since_the_start_and_since_the_last_print() {
        let (last, now) = (statistics(7, 30), statistics(2, 100));
        let reading = Reading { now, seconds: 12.0, last, last_seconds: 1.5 };
        let table = reading.to_table();
        assert_eq!(line(&table, "seconds"), ["12.0", "1.5"]);
        assert_eq!(line(&table, "PDUs received"), ["100", "70"]);
        assert_eq!(line(&table, "waits for a buffer"), ["5", "0"]);
        assert_eq!(line(&table, "sessions"), ["2"]);
        let json = reading.to_json();
        assert_eq!(json["since_start"]["received_pdus"], 100);
        assert_eq!(json["since_last"]["received_pdus"], 70);
        assert_eq!(json["since_last"]["seconds"], 1.5);
        assert_eq!(json["now"]["sessions"], 2);
    }

    #[test]
    fn numbers_of_an_encrypted_disk_follow_with_its_name() {
        let counts = lunette_volume::Counts { repaired: 3, refused_rolled_back: 2, ..Default::default() };
        let table = volume_table("disk.img", &counts);
        assert!(table.starts_with("encrypted disk disk.img\n"));
        assert_eq!(line(&table, "quanta repaired from parity"), ["3"]);
        assert_eq!(line(&table, "  rolled back"), ["2"]);
        let json = volume_json("disk.img", &counts);
        assert_eq!((&json["disk"], &json["refused_rolled_back"]), (&"disk.img".into(), &2.into()));
    }

    #[test]
    fn all_numbers_have_different_names() {
        let mut keys: Vec<_> = DONE.iter().chain(IN_HAND).map(|row| row.0).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), DONE.len() + IN_HAND.len());
    }
}
