//! The numbers of the charts, from the text that Prometheus reads (`lunette_lun_*`, docs/monitoring.md).
//!
//! All of them count from the start of the server. The browser has the differences, so that the server keeps nothing
//! for it.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::limits::MAX_CHARTED_LUNS;

/// The numbers for the charts: `GET /console/numbers`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Numbers {
    /// When it was read, in milliseconds since a moment that stays the same while the server runs.
    pub(crate) time_ms: u64,
    /// All logical units together.
    pub(crate) all: Unit,
    /// The logical units with the most commands.
    pub(crate) luns: Vec<Lun>,
}

/// A logical unit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Lun {
    pub(crate) target: String,
    #[serde(rename = "lun")]
    pub(crate) number: String,
    #[serde(flatten)]
    pub(crate) numbers: Unit,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Unit {
    pub(crate) read: Direction,
    pub(crate) write: Direction,
}

/// Reads or writes.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Direction {
    pub(crate) bytes: f64,
    pub(crate) commands: f64,
    /// The time that they took together.
    pub(crate) seconds: f64,
    /// Commands that took no longer than this many seconds; each includes those before it.
    pub(crate) buckets: Vec<(f64, f64)>,
}

/// Reads the text of `/metrics`. Lines that the charts do not need, or that are no samples, do not count.
pub(crate) fn read(text: &str, time_ms: u64) -> Numbers {
    let mut units: BTreeMap<(String, String), Unit> = BTreeMap::new();
    for sample in text.lines().filter_map(sample) {
        let Some(field) = sample.name.strip_prefix("lunette_lun_") else { continue };
        let (Some(target), Some(lun)) = (sample.label("target"), sample.label("lun")) else { continue };
        let unit = units.entry((target.into(), lun.into())).or_default();
        let direction = match (field, sample.label("op")) {
            ("read_bytes_total", _) | (_, Some("read")) => &mut unit.read,
            ("written_bytes_total", _) | (_, Some("write")) => &mut unit.write,
            _ => continue,
        };
        match field {
            "read_bytes_total" | "written_bytes_total" => direction.bytes = sample.value,
            "commands_total" => direction.commands = sample.value,
            "command_duration_seconds_sum" => direction.seconds = sample.value,
            "command_duration_seconds_bucket" => {
                // The last one, +Inf, has no length that a chart could show.
                let bound = sample.label("le").and_then(|bound| bound.parse::<f64>().ok());
                if let Some(bound) = bound.filter(|bound| bound.is_finite()) {
                    direction.buckets.push((bound, sample.value));
                }
            }
            _ => {}
        }
    }
    let mut numbers = Numbers { time_ms, ..Numbers::default() };
    for ((target, lun), unit) in units {
        numbers.all.read.add(&unit.read);
        numbers.all.write.add(&unit.write);
        numbers.luns.push(Lun { target, number: lun, numbers: unit });
    }
    let commands = |lun: &Lun| lun.numbers.read.commands + lun.numbers.write.commands;
    numbers.luns.sort_by(|a, b| commands(b).total_cmp(&commands(a)));
    numbers.luns.truncate(MAX_CHARTED_LUNS);
    numbers
}

impl Direction {
    fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.commands += other.commands;
        self.seconds += other.seconds;
        for (bound, count) in &other.buckets {
            match self.buckets.iter_mut().find(|(known, _)| known.total_cmp(bound).is_eq()) {
                Some((_, sum)) => *sum += count,
                None => self.buckets.push((*bound, *count)),
            }
        }
    }
}

/// One line: `name{label="value",...} number`.
#[derive(Debug, PartialEq)]
struct Sample<'a> {
    name: &'a str,
    labels: Vec<(&'a str, String)>,
    value: f64,
}

impl Sample<'_> {
    fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(label, _)| *label == name).map(|(_, value)| value.as_str())
    }
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let (name, mut rest) = line.split_once('{')?;
    let mut labels = Vec::new();
    while !rest.starts_with('}') {
        let (label, value) = rest.split_once("=\"")?;
        let (value, after) = quoted(value)?;
        labels.push((label.trim(), value));
        rest = after.strip_prefix(',').unwrap_or(after);
    }
    let value = rest[1..].split_ascii_whitespace().next()?.parse().ok()?;
    Some(Sample { name, labels, value })
}

/// A text up to its quotation mark, and what comes after it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    #[test]
    fn a_unit_has_its_numbers_by_direction_and_the_sum_has_all() {
        let text = "# HELP lunette_lun_commands_total Commands\n\
            # TYPE lunette_lun_commands_total counter\n\
            lunette_lun_commands_total{target=\"iqn.a\",lun=\"0\",op=\"read\"} 7\n\
            lunette_lun_commands_total{target=\"iqn.a\",lun=\"0\",op=\"flush\"} 100\n\
            lunette_lun_commands_total{op=\"write\",lun=\"0\",target=\"iqn.b\"} 9\n\
            lunette_lun_read_bytes_total{target=\"iqn.a\",lun=\"0\"} 4096\n\
            lunette_lun_written_bytes_total{target=\"iqn.b\",lun=\"0\"} 512 1764000000\n\
            lunette_lun_command_duration_seconds_sum{target=\"iqn.a\",lun=\"0\",op=\"read\"} 0.5\n\
            lunette_lun_command_duration_seconds_bucket{target=\"iqn.a\",lun=\"0\",op=\"read\",le=\"0.001\"} 3\n\
            lunette_lun_command_duration_seconds_bucket{target=\"iqn.a\",lun=\"0\",op=\"read\",le=\"+Inf\"} 7\n\
            lunette_sessions{target=\"iqn.a\"} 1\n";
        let numbers = read(text, 5);
        let read = Direction { bytes: 4096., commands: 7., seconds: 0.5, buckets: vec![(0.001, 3.)] };
        let write = Direction { bytes: 512., commands: 9., ..Direction::default() };
        assert_eq!(numbers.all, Unit { read: read.clone(), write: write.clone() });
        let luns: Vec<_> = numbers.luns.iter().map(|lun| (lun.target.as_str(), &lun.numbers)).collect();
        let units = [("iqn.b", &Unit { write, ..Unit::default() }), ("iqn.a", &Unit { read, ..Unit::default() })];
        assert_eq!(luns, units);
    }

    #[test]
    fn only_the_busiest_units_travel_and_the_sum_has_all() {
        let mut text = String::new();
        for lun in 0..=MAX_CHARTED_LUNS {
            writeln!(text, "lunette_lun_commands_total{{target=\"t\",lun=\"{lun}\",op=\"read\"}} {lun}").unwrap();
        }
        let numbers = read(&text, 0);
        assert_eq!(numbers.luns.len(), MAX_CHARTED_LUNS);
        assert!(numbers.luns.iter().all(|lun| lun.number != "0"));
        let sum = MAX_CHARTED_LUNS * (MAX_CHARTED_LUNS + 1) / 2;
        assert_eq!(format!("{}", numbers.all.read.commands), format!("{sum}"));
    }

    #[test]
    fn labels_may_hold_anything_and_broken_lines_hold_nothing() {
        let found = sample("a{x=\"},=\\\"\\\\\\n\",y=\"\"} 1e3").unwrap();
        assert_eq!(
            found,
            Sample { name: "a", labels: vec![("x", "},=\"\\\n".into()), ("y", String::new())], value: 1000. }
        );
        for line in ["", "a 1", "a{", "a{x", "a{x=\"", "a{x=\"1\"", "a{x=\"1\"}", "a{x=\"1\"} b", "a{x=\"\\"] {
            assert_eq!(sample(line), None, "{line}");
        }
    }
}
