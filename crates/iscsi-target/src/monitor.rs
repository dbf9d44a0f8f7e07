//! The numbers of a server, for other threads that watch it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use lunette_buffer::Pool;
use lunette_reactor::CountsView;
use lunette_session::{SharedTraffic, Traffic};

/// Reads the [`Statistics`] of a [`Server`](crate::Server), from any thread.
#[derive(Clone)]
pub struct Monitor {
    cores: Arc<[Watched]>,
}

/// One core.
pub(crate) struct Watched {
    pub(crate) counts: Arc<Counts>,
    pub(crate) event_loop: CountsView,
    pub(crate) pool: Pool,
}

/// What a server has and has done, as it stood after the last batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Connections, in whatever state.
    pub connections: usize,
    /// Connections that are lost and whose tasks wait for another one of their session.
    pub suspended: usize,
    /// Sessions, with those whose login is about to be answered.
    pub sessions: usize,
    /// Running commands, with those that were aborted and that a store still works on.
    pub tasks: usize,
    /// Entries in the table of times.
    pub timers: usize,
    /// Bytes of buffers that are out.
    pub buffer_bytes: usize,
    /// What the event loop has done since the start: batches, system calls, bytes.
    pub event_loop: lunette_reactor::Counts,
    /// PDUs and copies of all connections since the start.
    pub traffic: Traffic,
    /// How often a command had to wait for a buffer, since the start.
    pub buffer_waits: u64,
}

#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) connections: AtomicUsize,
    pub(crate) suspended: AtomicUsize,
    pub(crate) sessions: AtomicUsize,
    pub(crate) tasks: AtomicUsize,
    pub(crate) timers: AtomicUsize,
    pub(crate) traffic: SharedTraffic,
    pub(crate) buffer_waits: AtomicU64,
}

impl Monitor {
    pub(crate) fn new(cores: Vec<Watched>) -> Self {
        Self { cores: cores.into() }
    }

    /// The numbers of all cores together, each as it is now; they need not belong to one moment.
    pub fn read(&self) -> Statistics {
        self.read_cores().fold(Statistics::default(), Statistics::and)
    }

    /// The same of each core.
    pub fn read_cores(&self) -> impl Iterator<Item = Statistics> {
        self.cores.iter().map(Watched::read)
    }
}

impl Statistics {
    fn and(self, other: Self) -> Self {
        Self {
            connections: self.connections + other.connections,
            suspended: self.suspended + other.suspended,
            sessions: self.sessions + other.sessions,
            tasks: self.tasks + other.tasks,
            timers: self.timers + other.timers,
            buffer_bytes: self.buffer_bytes + other.buffer_bytes,
            event_loop: self.event_loop.and(&other.event_loop),
            traffic: self.traffic.and(&other.traffic),
            buffer_waits: self.buffer_waits + other.buffer_waits,
        }
    }
}

impl Watched {
    fn read(&self) -> Statistics {
        let load = |count: &AtomicUsize| count.load(Ordering::Acquire);
        Statistics {
            connections: load(&self.counts.connections),
            suspended: load(&self.counts.suspended),
            sessions: load(&self.counts.sessions),
            tasks: load(&self.counts.tasks),
            timers: load(&self.counts.timers),
            buffer_bytes: self.pool.used_bytes(),
            event_loop: self.event_loop.counts(),
            traffic: self.counts.traffic.read(),
            buffer_waits: self.counts.buffer_waits.load(Ordering::Relaxed),
        }
    }
}
