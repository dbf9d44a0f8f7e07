//! The orderly end: no new connections, a request to log out, the last tasks, a flush, and out.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use lunette_reactor::Context;
use lunette_store::{Outcome, Store};

use super::Lifecycle;

/// How far the stop of a core has come.
#[derive(Default)]
pub(super) enum Stopping {
    #[default]
    No,
    /// Initiators have been asked to log out.
    LoggingOut {
        deadline: Instant,
    },
    /// Nothing is left on this core. The first one flushes the stores when that is so on all.
    Quiet,
    /// Stores are being flushed.
    Flushing {
        deadline: Instant,
        left: usize,
        result: io::Result<()>,
    },
    Done(io::Result<()>),
}

impl Stopping {
    fn timed_out(why: &'static str) -> Self {
        Self::Done(Err(io::Error::new(io::ErrorKind::TimedOut, why)))
    }
}

/// The next step of the core's stop.
pub(in crate::core) enum StopStep {
    /// No step is due: the core waits.
    Nothing,
    /// Tell the first core that nothing is left here.
    TellFirst,
    /// Flush these stores, and report each with [`Lifecycle::store_flushed`].
    Flush(Vec<Arc<dyn Store>>),
    /// Leave the event loop.
    Leave,
}

impl Lifecycle {
    pub(in crate::core) fn is_stopping(&self) -> bool {
        !matches!(self.stopping, Stopping::No)
    }

    /// Whether the user wants a stop that has not begun.
    pub(in crate::core) fn stop_is_due(&self) -> bool {
        !self.is_stopping() && self.stop_asked.load(Ordering::Acquire)
    }

    /// Stops listening. The core asks all initiators to log out.
    pub(in crate::core) fn begin_stop(&mut self, cx: &mut Context<'_>, deadline: Instant) {
        self.portals.close(cx);
        self.stopping = Stopping::LoggingOut { deadline };
    }

    /// Another core has nothing left to stop.
    pub(in crate::core) fn count_quiet_core(&mut self) {
        self.quiet_cores += 1;
    }

    /// Goes on when nothing of a stage is left. `is_idle`: the core has no connections and tasks any more. `others`: on
    /// the first core, the number of other cores.
    pub(in crate::core) fn next_stop_step(&mut self, is_idle: bool, others: Option<usize>) -> StopStep {
        match &mut self.stopping {
            Stopping::LoggingOut { deadline } if is_idle && self.removals.is_empty() => match others {
                None => {
                    self.stopping = Stopping::Quiet;
                    StopStep::TellFirst
                }
                Some(others) if self.quiet_cores == others => {
                    let deadline = *deadline;
                    let stores = self.stores();
                    self.stopping = Stopping::Flushing { deadline, left: stores.len(), result: Ok(()) };
                    StopStep::Flush(stores)
                }
                Some(_) => StopStep::Nothing,
            },
            Stopping::Flushing { left: 0, result, .. } => {
                let result = std::mem::replace(result, Ok(()));
                self.stopping = Stopping::Done(result);
                StopStep::Leave
            }
            _ => StopStep::Nothing,
        }
    }

    /// A flush of the stop has ended.
    pub(in crate::core) fn store_flushed(&mut self, outcome: Outcome) {
        // The stop may have come to its deadline.
        let Stopping::Flushing { left, result, .. } = &mut self.stopping else { return };
        *left -= 1;
        if let Err(error) = outcome.result {
            tracing::error!(%error, "a store could not be flushed");
            *result = Err(io::Error::other(error));
        }
    }

    /// The event loop of another core has ended: that of the first one, which comes last, or one that has failed.
    /// `is_left`: another process has what was served here.
    pub(in crate::core) fn leave(&mut self, is_left: bool) {
        self.stopping = match std::mem::take(&mut self.stopping) {
            Stopping::Done(result) => Stopping::Done(result),
            Stopping::Quiet => Stopping::Done(Ok(())),
            _ if is_left => Stopping::Done(Ok(())),
            _ => Stopping::timed_out("the end came before that of tasks or flushes"),
        };
    }

    pub(in crate::core) fn stop_deadline(&self) -> Option<Instant> {
        match self.stopping {
            Stopping::LoggingOut { deadline } | Stopping::Flushing { deadline, .. } => Some(deadline),
            _ => None,
        }
    }

    /// Ends a stop that has come to its deadline. Tells whether it has.
    pub(in crate::core) fn end_overdue_stop(&mut self, now: Instant) -> bool {
        let is_overdue = self.stop_deadline().is_some_and(|deadline| deadline <= now);
        if is_overdue {
            tracing::error!("the stop took too long; what was not flushed may be lost");
            self.stopping = Stopping::timed_out("tasks or flushes did not end in time");
        }
        is_overdue
    }

    /// How the stop ended.
    pub(in crate::core) fn take_stop_result(&mut self) -> io::Result<()> {
        match std::mem::take(&mut self.stopping) {
            Stopping::Done(result) => result,
            _ => Ok(()),
        }
    }
}
