//! The threads of a server with several cores.

use std::io;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

use lunette_reactor::{CountsView, Reactor, Waker};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::core::{Core, CoreConfig, CoreMessage, Mailbox};
use crate::monitor::Watched;

/// A core that has no thread yet.
pub(crate) struct Seat {
    pub(crate) reactor: Reactor,
    pub(crate) config: CoreConfig,
}

impl Seat {
    pub(crate) fn watched(&self) -> Watched {
        let Self { reactor, config } = self;
        Watched { counts: Arc::clone(&config.counts), event_loop: reactor.counts(), pool: config.pool.clone() }
    }

    pub(crate) fn pulse(&self) -> (Waker, CountsView) {
        (self.reactor.waker(), self.reactor.counts())
    }

    /// Runs the core on this thread: here it is made, so that it touches its memory first.
    fn run(mut self, pinning: &Pinning) -> io::Result<()> {
        let _farewell = Farewell(self.config.mailbox.clone());
        self.config.counts.runs_here();
        let _pinned = pinning.pin(self.config.mailbox.me());
        let mut endpoint = Core::on_endpoint(self.config);
        let ended = self.reactor.run(&mut endpoint);
        let core = endpoint.into_upper();
        if let Err(error) = ended {
            core.abandon();
            return Err(error);
        }
        core.into_stop_result()
    }
}

/// Runs the first core here and the others on threads of their own, until all have ended.
///
/// # Errors
///
/// When an event loop fails, or how the stop ended.
pub(crate) fn run_all(mut seats: Vec<Seat>) -> io::Result<()> {
    let pinning = Pinning::of(seats.len());
    let others = seats.split_off(1);
    let Some(first) = seats.pop() else { return Ok(()) };
    thread::scope(|scope| {
        // Whatever happens here ends the others, for the scope waits for them.
        let _farewell = Farewell(first.config.mailbox.clone());
        let mut threads = Vec::new();
        for seat in others {
            let thread = thread::Builder::new().name(format!("lunette-core-{}", seat.config.mailbox.me()));
            threads.push(thread.spawn_scoped(scope, || seat.run(&pinning))?);
        }
        let mut results = vec![first.run(&pinning)];
        results.extend(threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))));
        worst(results)
    })
}

/// The error to report. A core that fails ends all others, whose tasks then end too late: its own error is the cause.
fn worst(results: Vec<io::Result<()>>) -> io::Result<()> {
    let (late, failed): (Vec<_>, Vec<_>) =
        results.into_iter().filter_map(Result::err).partition(|error| error.kind() == io::ErrorKind::TimedOut);
    failed.into_iter().chain(late).next().map_or(Ok(()), Err)
}

/// Has all other cores leave their event loops when this one has left its own, by whatever way.
pub(crate) struct Farewell(pub(crate) Mailbox<CoreMessage>);

impl Drop for Farewell {
    fn drop(&mut self) {
        for core in self.0.others() {
            self.0.send(core, CoreMessage::Leave);
        }
    }
}

/// A CPU for each core, of those that the process may use.
struct Pinning {
    allowed: CpuSet,
    /// Empty when there are too few, and of a single core, which goes where the system wants it.
    cpus: Vec<usize>,
}

impl Pinning {
    fn of(cores: usize) -> Self {
        let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        let mut cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
        if cpus.len() < cores {
            tracing::info!(cores, cpus = cpus.len(), "fewer CPUs than cores: their threads are not pinned");
        }
        if cpus.len() < cores || cores == 1 {
            cpus.clear();
        }
        Self { allowed, cpus }
    }

    /// Keeps this thread on the CPU of the core.
    fn pin(&self, core: usize) -> Option<Pinned<'_>> {
        let cpu = *self.cpus.get(core)?;
        let mut own = CpuSet::new();
        own.set(cpu);
        sched_setaffinity(None, &own)
            .inspect_err(|error| tracing::warn!(core, cpu, %error, "cannot keep a thread on its CPU"))
            .ok()?;
        Some(Pinned(&self.allowed))
    }
}

/// Lets its thread, which may be that of a caller, go everywhere again.
struct Pinned<'a>(&'a CpuSet);

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        // It was possible before.
        let _ = sched_setaffinity(None, self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_failure_is_told_and_not_what_came_of_it() {
        let late = || Err(io::ErrorKind::TimedOut.into());
        let result = worst(vec![late(), Ok(()), Err(io::ErrorKind::Unsupported.into()), late()]);
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::Unsupported);
        assert_eq!(worst(vec![Ok(()), late()]).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(worst(vec![Ok(()), Ok(())]).is_ok());
    }

    #[test]
    fn each_of_several_cores_has_a_cpu_of_its_own_or_none_has() {
        assert!(Pinning::of(1).cpus.is_empty());
        let allowed = Pinning::of(1).allowed.count() as usize;
        for cores in 2..=allowed {
            let pinning = Pinning::of(cores);
            let pinned = pinning.pin(cores - 1).unwrap();
            let own = sched_getaffinity(None).unwrap();
            assert!(own.count() == 1 && own.is_set(pinning.cpus[cores - 1]));
            drop(pinned);
            assert_eq!(sched_getaffinity(None).unwrap().count() as usize, allowed);
        }
        assert!(Pinning::of(allowed + 1).pin(0).is_none());
    }
}
