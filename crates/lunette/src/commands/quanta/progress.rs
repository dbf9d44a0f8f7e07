//! How far the work on a volume has come, on a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lunette_volume::Progress;

/// A bar on standard error, when that is a terminal; otherwise invisible.
pub(super) struct Bar(ProgressBar);

impl Bar {
    pub(super) fn new() -> Self {
        let bar = ProgressBar::new(0);
        bar.set_draw_target(ProgressDrawTarget::stderr());
        let template = "{bar:30} {percent:>3}% {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
        bar.set_style(ProgressStyle::with_template(template).expect("a template that is a constant"));
        Self(bar)
    }

    pub(super) fn set(&self, progress: Progress) {
        self.0.set_length(progress.total_bytes);
        self.0.set_position(progress.done_bytes);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
