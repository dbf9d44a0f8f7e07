//! The progress bar.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar on standard error, when that is a terminal; otherwise invisible.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A bar for `len` bytes, if the length is known.
    pub(crate) fn new(len: Option<u64>, start: u64) -> Self {
        let (bar, template) = match len {
            Some(len) => {
                (ProgressBar::new(len), "{bar:30} {percent:>3}% {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left")
            }
            None => (ProgressBar::new_spinner(), "{spinner} {bytes}, {bytes_per_sec}"),
        };
        // The bar hides itself where there is no terminal.
        bar.set_draw_target(ProgressDrawTarget::stderr());
        let bar = bar.with_position(start);
        bar.reset_eta();
        bar.set_style(ProgressStyle::with_template(template).expect("a template that is a constant"));
        Self(bar)
    }

    /// Advances the bar by `bytes` of the source.
    pub(crate) fn advance(&self, bytes: u64) {
        self.0.inc(bytes);
    }

    pub(crate) fn finish(&self) {
        self.0.finish_and_clear();
    }
}
