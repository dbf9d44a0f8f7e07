//! The orderly end: no new connections, a request to log out, the last tasks, a flush, and out.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use lunette_reactor::{ConnectionId, Context};
use lunette_store::Outcome;

use super::leaving::needs_flush;
use super::orders::Order;
use super::{Core, FIRST};
use crate::limits::{LOGOUT_GRACE, STOP_TIMEOUT};

/// The tag of flushes that belong to no task. No slab key has this index.
pub(super) const FLUSH_TAG: u64 = u64::MAX;

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
    pub(super) fn is_no(&self) -> bool {
        matches!(self, Self::No)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        match self {
            Self::LoggingOut { deadline } | Self::Flushing { deadline, .. } => Some(*deadline),
            _ => None,
        }
    }

    /// Whether the end had to come before tasks or flushes did.
    pub(super) fn is_overdue(&self) -> bool {
        matches!(self, Self::Done(Err(error)) if error.kind() == io::ErrorKind::TimedOut)
    }

    pub(super) fn result(self) -> io::Result<()> {
        if let Self::Done(result) = self { result } else { Ok(()) }
    }
}

impl Core {
    pub(super) fn begin_stop_if_asked(&mut self, cx: &mut Context<'_>) {
        if !self.stopping.is_no() || !self.stop_asked.load(Ordering::Acquire) {
            return;
        }
        tracing::info!(connections = self.connections.len_everywhere(), "stopping");
        let deadline = cx.now() + STOP_TIMEOUT;
        for core in self.post.others() {
            self.post.send(core, Order::Stop { deadline });
        }
        self.begin_stop(cx, deadline);
    }

    /// Asks all initiators to log out.
    pub(super) fn begin_stop(&mut self, cx: &mut Context<'_>, deadline: Instant) {
        self.portals.close(cx);
        self.end_suspended(cx, |_| true);
        for id in self.connections.ids_where(|_| true) {
            self.request_logout(cx, id);
        }
        self.stopping = Stopping::LoggingOut { deadline };
    }

    /// Asks the initiator to log out. A login that has not ended does so at once.
    pub(super) fn request_logout(&mut self, cx: &Context<'_>, id: ConnectionId) {
        let now = self.time(cx);
        if let Some(login) = self.connections.get_mut(id).and_then(|conn| conn.login.as_mut()) {
            login.stop();
        } else if let Some((_, mut protocol)) = self.connections.link(id) {
            protocol.request_logout(LOGOUT_GRACE, now);
        }
        self.touch(id);
    }

    /// Goes on when nothing of a stage is left.
    pub(super) fn continue_stop(&mut self, cx: &mut Context<'_>) {
        if let Stopping::LoggingOut { deadline } = self.stopping
            && self.connections.len() == 0
            && self.tasks.is_idle()
            && self.leaving.is_empty()
        {
            if self.post.me() != FIRST {
                self.stopping = Stopping::Quiet;
                self.post.send(FIRST, Order::Quiet);
            } else if self.quiet == self.post.others().count() {
                self.flush_all(deadline);
                self.take_completions();
            }
        }
        if let Stopping::Flushing { left: 0, result, .. } = &mut self.stopping {
            let result = std::mem::replace(result, Ok(()));
            self.stopping = Stopping::Done(result);
            cx.stop();
        }
    }

    /// The event loop of another core has ended: that of the first one, which comes last, or one that has failed.
    pub(super) fn leave(&mut self, cx: &mut Context<'_>) {
        match self.stopping {
            Stopping::Done(_) => {}
            Stopping::Quiet => self.stopping = Stopping::Done(Ok(())),
            _ => {
                let error = io::Error::new(io::ErrorKind::TimedOut, "the end came before that of tasks or flushes");
                self.stopping = Stopping::Done(Err(error));
            }
        }
        cx.stop();
    }

    fn flush_all(&mut self, deadline: Instant) {
        let stores: Vec<_> = self
            .devices
            .iter()
            .flat_map(|device| device.units())
            .filter(|(_, unit)| needs_flush(unit))
            .map(|(_, unit)| Arc::clone(unit.store()))
            .collect();
        self.stopping = Stopping::Flushing { deadline, left: stores.len(), result: Ok(()) };
        for store in stores {
            self.tasks.flush(&store, FLUSH_TAG);
        }
    }

    /// An outcome that belongs to no task.
    pub(super) fn store_flushed(&mut self, outcome: Outcome) {
        if let Stopping::Flushing { left, result, .. } = &mut self.stopping {
            *left -= 1;
            if let Err(error) = outcome.result {
                tracing::error!(%error, "a store could not be flushed");
                *result = Err(io::Error::other(error));
            }
        }
    }

    pub(super) fn end_stop_if_overdue(&mut self, cx: &mut Context<'_>) {
        if self.stopping.deadline().is_some_and(|deadline| deadline <= cx.now()) {
            tracing::error!("the stop took too long; what was not flushed may be lost");
            let error = io::Error::new(io::ErrorKind::TimedOut, "tasks or flushes did not end in time");
            self.stopping = Stopping::Done(Err(error));
            cx.stop();
        }
    }
}
