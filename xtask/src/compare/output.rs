//! The results of a comparison, for people and for programs.

use serde_json::{Value, json};

use super::measure::{Measured, Sample};
use super::statistics::Spread;
use super::table::Row;

/// The conditions of the comparison: names and values.
pub(super) type Conditions = Vec<(&'static str, String)>;

/// Prints tables.
pub(super) fn tables(conditions: &Conditions, measured: &[Measured], rows: &[Row]) {
    for (name, value) in conditions {
        println!("{name}: {value}");
    }
    if !measured.is_empty() {
        println!(
            "\n{:48} {:>10} {:>21} {:>8} {:>8} {:>9} {:>9}",
            "median of all rounds", "IOPS", "lowest to highest", "GB/s", "p50 us", "target", "initiator"
        );
        println!("{:48} {:>10} {:>21} {:>8} {:>8} {:>9} {:>9}", "", "", "", "", "", "us/IO", "us/IO");
    }
    for measured in measured {
        println!("{}", cell_line(measured));
    }
    println!("\n{:70} {:>7} {:>15} {:>7} {:>7}  met", "ratios of this comparison", "value", "rounds", "solid", "aim");
    for row in rows {
        println!("{}", row_line(row));
    }
}

fn cell_line(measured: &Measured) -> String {
    let figure = |figure: fn(&Sample) -> Option<f64>| Spread::of(measured.figures(figure));
    let median = |spread: Option<Spread>, digits: usize| match spread {
        Some(spread) => format!("{:.digits$}", spread.median),
        None => "-".into(),
    };
    let iops = figure(|sample| Some(sample.iops));
    let range = iops.map_or_else(String::new, |iops| format!("{:.0} to {:.0}", iops.low, iops.high));
    let len = f64::from(measured.cell.len);
    let bytes = iops.map(|iops| Spread { median: iops.median * len / 1e9, ..iops });
    format!(
        "{:48} {:>10} {range:>21} {:>8} {:>8} {:>9} {:>9}",
        measured.cell.to_string(),
        median(iops, 0),
        median(bytes, 3),
        median(figure(|sample| sample.latency_us), 1),
        median(figure(|sample| Some(sample.target_cpu_us)), 2),
        median(figure(|sample| Some(sample.initiator_cpu_us)), 2),
    )
}

fn row_line(row: &Row) -> String {
    let goal = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.2}"));
    let name = if row.unit.is_empty() { row.name.clone() } else { format!("{}, {}", row.name, row.unit) };
    let (value, range) = match row.value {
        Some(value) => (format!("{:.2}", value.median), format!("{:.2} to {:.2}", value.low, value.high)),
        None => ("-".into(), String::new()),
    };
    let line = format!(
        "{name:70} {value:>7} {range:>15} {:>7} {:>7}  {}",
        goal(row.goal.solid()),
        goal(row.goal.aim()),
        row.verdict.words()
    );
    line.trim_end().into()
}

/// Prints one JSON object a line: the conditions, then the cells, then the rows of the table of ratios.
pub(super) fn json_lines(conditions: &Conditions, measured: &[Measured], rows: &[Row]) {
    let conditions: serde_json::Map<String, Value> =
        conditions.iter().map(|(name, value)| ((*name).into(), value.as_str().into())).collect();
    println!("{}", json!({ "conditions": conditions }));
    for measured in measured {
        println!("{}", cell_json(measured));
    }
    for row in rows {
        println!("{}", row_json(row));
    }
}

fn cell_json(measured: &Measured) -> Value {
    let figure = |figure: fn(&Sample) -> Option<f64>| spread_json(Spread::of(measured.figures(figure)));
    json!({
        "cell": measured.cell.to_string(),
        "bytes": measured.cell.len,
        "depth": measured.cell.depth,
        "digests": measured.cell.digests,
        "rounds": measured.samples.len(),
        "iops": figure(|sample| Some(sample.iops)),
        "latency_us": figure(|sample| sample.latency_us),
        "target_cpu_us_per_io": figure(|sample| Some(sample.target_cpu_us)),
        "initiator_cpu_us_per_io": figure(|sample| Some(sample.initiator_cpu_us)),
    })
}

fn row_json(row: &Row) -> Value {
    json!({
        "ratio": row.name,
        "value": spread_json(row.value),
        "unit": row.unit,
        "solid": row.goal.solid(),
        "aim": row.goal.aim(),
        "met": row.verdict.words(),
    })
}

fn spread_json(spread: Option<Spread>) -> Value {
    spread.map_or(Value::Null, |spread| json!({ "median": spread.median, "low": spread.low, "high": spread.high }))
}

#[cfg(test)]
mod tests {
    use super::super::cells::{OURS, read};
    use super::super::table::{Goal, Verdict};
    use super::*;

    #[test]
    fn what_was_not_measured_is_shown_as_such() {
        let row = Row {
            name: "x ÷ y".into(),
            value: None,
            unit: "",
            goal: Goal::AtLeast { solid: 0.5, aim: Some(0.9) },
            verdict: Verdict::NotMeasured,
        };
        let words: Vec<_> = row_line(&row).split_whitespace().map(str::to_owned).collect();
        assert_eq!(words, ["x", "÷", "y", "-", "0.50", "0.90", "not", "measured"]);
        assert_eq!(row_json(&row)["value"], Value::Null);
    }

    #[test]
    fn a_cell_shows_the_medians_of_its_rounds() {
        let sample = |iops| Sample { iops, latency_us: None, target_cpu_us: 1.25, initiator_cpu_us: 3.0 };
        let measured = Measured { cell: read(OURS, 4), samples: vec![sample(1000.0), sample(3000.0), sample(2000.0)] };
        let line = cell_line(&measured);
        assert!(line.contains("2000 ") && line.contains("1000 to 3000") && line.contains("0.008"), "{line}");
        assert_eq!(cell_json(&measured)["iops"]["high"], 3000.0);
        assert_eq!(cell_json(&measured)["latency_us"], Value::Null);
    }
}
