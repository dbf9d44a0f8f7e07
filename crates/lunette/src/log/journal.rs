//! The journal of systemd, which gets the fields of each entry.

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::fd::AsFd;

use lunette_initiator::redacted;
use tracing::field::{Field, Value, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// The journal, when it has standard error and can be reached.
pub(super) fn journal<S: Subscriber + for<'span> LookupSpan<'span>>() -> Option<impl Layer<S>> {
    if !is_journal(&env::var_os("JOURNAL_STREAM")?, io::stderr()) {
        return None;
    }
    let journal = tracing_journald::layer().ok()?;
    let journal = journal.with_field_prefix(Some("LUNETTE".to_owned())).with_syslog_identifier("lunette".to_owned());
    Some(Redacting(journal))
}

/// Whether `file` is the stream whose device and inode are told so (systemd.exec(5), `$JOURNAL_STREAM`).
fn is_journal(stream: &OsStr, file: impl AsFd) -> bool {
    rustix::fs::fstat(file).is_ok_and(|stat| stream == OsStr::new(&format!("{}:{}", stat.st_dev, stat.st_ino)))
}

/// Hands events on without the passwords of URLs in their fields.
struct Redacting<L>(L);

impl<S: Subscriber, L: Layer<S>> Layer<S> for Redacting<L> {
    // Spans go on as they are: this program has none, and those of libraries know no URL of a disk.
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        self.0.on_new_span(attributes, id, context);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        self.0.on_record(id, values, context);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let fields = event.metadata().fields();
        let mut texts = Texts(vec![None; fields.len()]);
        event.record(&mut texts);
        let values: Vec<_> = texts.0.iter().map(|text| text.as_ref().map(|text| text as &dyn Value)).collect();
        self.0.on_event(&Event::new(event.metadata(), &fields.value_set_all(&values)), context);
    }
}

/// The fields of an event as text, in their order.
struct Texts(Vec<Option<String>>);

impl Visit for Texts {
    fn record_str(&mut self, field: &Field, value: &str) {
        if let Some(text) = self.0.get_mut(field.index()) {
            *text = Some(redacted(value).into_owned());
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[test]
    fn the_journal_is_known_by_its_stream() {
        let (file, other) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let stat = rustix::fs::fstat(&file).unwrap();
        let stream = format!("{}:{}", stat.st_dev, stat.st_ino);
        assert!(is_journal(stream.as_ref(), &file));
        assert!(!is_journal(stream.as_ref(), &other));
        assert!(!is_journal("".as_ref(), &file));
    }

    /// Keeps what it is handed.
    struct Kept(Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber> Layer<S> for Kept {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            // Not `Texts`, which would redact here, too.
            let mut kept = self.0.lock().unwrap();
            event.record(&mut |field: &Field, value: &dyn fmt::Debug| {
                kept.push(format!("{}={value:?}", field.name()));
            });
        }
    }

    #[test]
    fn passwords_of_urls_do_not_reach_the_journal() {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let subscriber = tracing_subscriber::registry().with(Redacting(Kept(Arc::clone(&kept))));
        tracing::subscriber::with_default(subscriber, || {
            let (disk, left_out) = ("iscsi://user%secret@192.0.2.1/iqn.a/0", None::<&str>);
            tracing::warn!(%disk, text = disk, left_out, count = 3, "cannot open {disk}");
        });
        let shown = "iscsi://user%***@192.0.2.1/iqn.a/0";
        let mut kept = kept.lock().unwrap().clone();
        kept.sort();
        let expected = [
            "count=\"3\"".to_owned(),
            format!("disk={shown:?}"),
            format!("message=\"cannot open {shown}\""),
            format!("text={shown:?}"),
        ];
        assert_eq!(kept, expected);
    }
}
