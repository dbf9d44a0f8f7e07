//! The numbers of disks, as SIGUSR1 prints them.

use std::fmt::Write as _;

use lunette_device::{CommandKind, UnitCounts};
use lunette_scsi::SenseKey;
use serde_json::{Map, Value, json};

use crate::server::metrics::{LunNumbers, Snapshot, TargetNumbers};

/// A number: its JSON key, the head of its column, and how it is found.
struct Column(&'static str, &'static str, fn(&UnitCounts) -> u64);

const COLUMNS: [Column; 8] = [
    Column("reads", "reads", |counts| counts.commands(CommandKind::Read)),
    Column("read_bytes", "bytes", UnitCounts::read_bytes),
    Column("read_us", "us each", |counts| mean_micros(counts, CommandKind::Read)),
    Column("writes", "writes", |counts| counts.commands(CommandKind::Write)),
    Column("written_bytes", "bytes", UnitCounts::written_bytes),
    Column("write_us", "us each", |counts| mean_micros(counts, CommandKind::Write)),
    Column("errors", "errors", errors),
    Column("in_flight", "in flight", UnitCounts::in_flight),
];

/// The mean latency in microseconds.
fn mean_micros(counts: &UnitCounts, kind: CommandKind) -> u64 {
    let timed: u64 = counts.latencies(kind).iter().sum();
    let micros = u64::try_from(counts.total_latency(kind).as_micros()).unwrap_or(u64::MAX);
    micros.checked_div(timed).unwrap_or_default()
}

/// Commands that ended with CHECK CONDITION, except for unit attentions, which are news and no failures.
fn errors(counts: &UnitCounts) -> u64 {
    (0..16).map(SenseKey).filter(|key| *key != SenseKey::UNIT_ATTENTION).map(|key| counts.errors(key)).sum()
}

/// A line for each disk.
pub(super) fn table(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    for target in &snapshot.targets {
        let _ = write!(text, "{}\n{:>5}", target.name, "LUN");
        for Column(_, head, _) in COLUMNS {
            let _ = write!(text, "{head:>16}");
        }
        for lun in &target.luns {
            let _ = write!(text, "\n{:>5}", lun.lun.to_string());
            for Column(_, _, number) in COLUMNS {
                let _ = write!(text, "{:>16}", number(&lun.counts));
            }
        }
        text.push('\n');
    }
    text
}

/// An object for each disk.
pub(super) fn json(snapshot: &Snapshot) -> Value {
    let luns = snapshot.targets.iter().flat_map(|target| target.luns.iter().map(move |lun| (target, lun)));
    luns.map(|(target, lun)| disk(target, lun)).collect()
}

fn disk(target: &TargetNumbers, lun: &LunNumbers) -> Value {
    let mut object: Map<String, Value> =
        COLUMNS.iter().map(|Column(key, _, number)| ((*key).to_owned(), number(&lun.counts).into())).collect();
    object.insert("target".into(), json!(&*target.name));
    object.insert("lun".into(), json!(lun.lun.to_string()));
    object.into()
}
