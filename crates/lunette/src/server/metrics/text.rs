//! The text format of Prometheus (Content-Type `text/plain; version=0.0.4`): lines of a name, labels and a value.

use std::fmt::{Display, Write as _};

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Counter,
    Gauge,
    Histogram,
}

/// A label: its name and its value.
pub(super) type Label<'a> = (&'static str, &'a dyn Display);

/// Metrics as text. All lines of a metric follow its head.
#[derive(Default)]
pub(super) struct Text(String);

impl Text {
    /// Begins a metric.
    pub(super) fn begin(&mut self, name: &str, kind: Type, help: &str) {
        let kind = match kind {
            Type::Counter => "counter",
            Type::Gauge => "gauge",
            Type::Histogram => "histogram",
        };
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// A value of the metric that has begun.
    pub(super) fn sample(&mut self, name: &str, labels: &[Label<'_>], value: impl Display) {
        self.0.push_str(name);
        for (at, (label, of)) in labels.iter().enumerate() {
            let _ = write!(self.0, "{}{label}=\"", if at == 0 { '{' } else { ',' });
            for character in of.to_string().chars() {
                match character {
                    '\\' => self.0.push_str("\\\\"),
                    '"' => self.0.push_str("\\\""),
                    '\n' => self.0.push_str("\\n"),
                    other => self.0.push(other),
                }
            }
            self.0.push('"');
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    pub(super) fn into_string(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_a_label_or_a_line_is_escaped() {
        let mut text = Text::default();
        text.begin("a_total", Type::Counter, "What a is.");
        text.sample("a_total", &[("name", &"x\"y\\z\nw"), ("lun", &3)], 7);
        text.sample("a_total", &[], 0.5);
        let expected = "# HELP a_total What a is.\n# TYPE a_total counter\na_total{name=\"x\\\"y\\\\z\\nw\",lun=\"3\"} 7\na_total 0.5\n";
        assert_eq!(text.into_string(), expected);
    }
}
