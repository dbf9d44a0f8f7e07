//! The logs of both sides: faults that no answer shows.

use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// A line of the log.
pub(crate) struct Line {
    pub(crate) level: Level,
    pub(crate) text: String,
}

/// Keeps the lines of the log of one run.
#[derive(Clone)]
pub(crate) struct Watch {
    lines: Arc<Mutex<Vec<Line>>>,
    most_verbose: Level,
}

impl Watch {
    /// A watch on everything of interest in a run that is `traced`; on warnings and errors in any other.
    pub(crate) fn new(traced: bool) -> Self {
        let most_verbose = if traced { Level::DEBUG } else { Level::WARN };
        Self { lines: Arc::default(), most_verbose }
    }

    /// The lines since the last call.
    pub(crate) fn take(&self) -> Vec<Line> {
        std::mem::take(&mut self.lines.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Subscriber for Watch {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.most_verbose && metadata.target().starts_with("lunette")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        let line = Line { level: *event.metadata().level(), text: text.0 };
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?} "),
            name => write!(self.0, "{name}={value:?} "),
        };
    }
}
