//! Whether all event loops still turn, for a service manager that restarts what does not.

use lunette_reactor::{CountsView, Waker};

/// Looks at the event loops of a [`Server`](crate::Server), from any thread.
pub struct Pulse(Vec<Core>);

struct Core {
    waker: Waker,
    counts: CountsView,
    /// The batches at the last look.
    batches: u64,
}

impl Pulse {
    pub(crate) fn new(cores: impl Iterator<Item = (Waker, CountsView)>) -> Self {
        let core = |(waker, counts): (Waker, CountsView)| Core { waker, batches: counts.counts().batches, counts };
        Self(cores.map(core).collect())
    }

    /// Whether every event loop has begun a batch since the last look. A loop without work waits, so each look wakes
    /// all of them for the next one.
    pub fn beats(&mut self) -> bool {
        // All of them, also when the first one stands still.
        self.0.iter_mut().map(Core::has_turned).filter(|turned| !turned).count() == 0
    }
}

impl Core {
    fn has_turned(&mut self) -> bool {
        let batches = self.counts.counts().batches;
        self.waker.wake();
        std::mem::replace(&mut self.batches, batches) != batches
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use crate::{Server, ServerConfig};

    #[test]
    fn it_beats_while_all_event_loops_turn() {
        let config = ServerConfig { cores: 2, ..ServerConfig::new(Vec::new(), Vec::new()) };
        let server = Server::bind(config).unwrap();
        let (mut pulse, stopper) = (server.pulse(), server.stopper());
        assert!(!pulse.beats());
        let running = thread::spawn(move || server.run());
        let deadline = Instant::now() + Duration::from_secs(20);
        while !pulse.beats() {
            assert!(Instant::now() < deadline, "the loops have nothing to do, and are not woken either");
            thread::yield_now();
        }
        stopper.stop();
        running.join().unwrap().unwrap();
        // What they did between the last look and their end.
        pulse.beats();
        assert!(!pulse.beats());
    }
}
