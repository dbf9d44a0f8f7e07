//! A few threads for calls that block.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// What the threads of a [`ThreadPool`] do. A type of its own spares the allocation that a [`Job`] is.
pub trait Work: Send + 'static {
    /// Does it, on one of the threads.
    fn run(self);
}

/// Work of any kind.
pub type Job = Box<dyn FnOnce() + Send>;

impl Work for Job {
    fn run(self) {
        self();
    }
}

/// A fixed number of threads that run jobs in the order in which they came.
///
/// The queue is bounded. [`spawn`](Self::spawn) never blocks: when the queue is full it gives the job back, and the
/// caller chooses between running it on its own thread, which slows the source of the jobs down, and refusing it.
///
/// A job that panics is logged and does not harm the pool. When the pool is dropped it finishes all queued jobs first.
pub struct ThreadPool<W: Work = Job> {
    shared: Arc<Shared<W>>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared<W> {
    queue: Mutex<Queue<W>>,
    filled: Condvar,
    max_queued: usize,
}

struct Queue<W> {
    jobs: VecDeque<W>,
    closed: bool,
}

impl<W: Work> ThreadPool<W> {
    /// Starts `threads` threads (at least one), named `name`, with room for `max_queued` jobs that wait for one.
    ///
    /// # Errors
    ///
    /// When the system refuses a thread.
    pub fn new(name: &str, threads: usize, max_queued: usize) -> io::Result<Self> {
        let queue = Mutex::new(Queue { jobs: VecDeque::new(), closed: false });
        let shared = Arc::new(Shared { queue, filled: Condvar::new(), max_queued });
        let mut pool = Self { shared, threads: Vec::new() };
        for _ in 0..threads.max(1) {
            let shared = Arc::clone(&pool.shared);
            pool.threads.push(thread::Builder::new().name(name.to_owned()).spawn(move || shared.work())?);
        }
        Ok(pool)
    }

    /// Queues `job`.
    ///
    /// # Errors
    ///
    /// The job itself, when as many as allowed are waiting.
    pub fn spawn(&self, job: W) -> Result<(), W> {
        let mut queue = self.shared.lock();
        if queue.jobs.len() >= self.shared.max_queued {
            return Err(job);
        }
        queue.jobs.push_back(job);
        drop(queue);
        self.shared.filled.notify_one();
        Ok(())
    }

    /// Jobs that wait for a thread.
    pub fn queued(&self) -> usize {
        self.shared.lock().jobs.len()
    }
}

impl<W: Work> Shared<W> {
    fn lock(&self) -> MutexGuard<'_, Queue<W>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            if catch_unwind(AssertUnwindSafe(|| job.run())).is_err() {
                tracing::error!(thread = thread::current().name(), "a job panicked");
            }
        }
    }

    /// The next job, or `None` when the pool is closed and everything is done.
    fn next(&self) -> Option<W> {
        let mut queue = self
            .filled
            .wait_while(self.lock(), |queue| queue.jobs.is_empty() && !queue.closed)
            .unwrap_or_else(PoisonError::into_inner);
        queue.jobs.pop_front()
    }
}

impl<W: Work> ThreadPool<W> {
    /// Leaves the threads to themselves: dropping the pool does not wait for them. One may hang in the system for ever.
    pub fn detach(&mut self) {
        self.threads.clear();
    }
}

impl<W: Work> Drop for ThreadPool<W> {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.filled.notify_all();
        for thread in self.threads.drain(..) {
            // A job may hold the last handle on its own pool; a thread cannot wait for itself.
            if thread.thread().id() != thread::current().id() {
                // Panics of jobs were caught and logged.
                let _ = thread.join();
            }
        }
    }
}

impl<W: Work> fmt::Debug for ThreadPool<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ThreadPool({} threads, {} jobs queued)", self.threads.len(), self.queued())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn finishes_what_is_queued_before_it_goes() {
        let (tx, rx) = mpsc::channel();
        let pool = ThreadPool::<Job>::new("test", 2, 100).unwrap();
        for i in 0..100 {
            let tx = tx.clone();
            let job: Job = Box::new(move || tx.send(i).unwrap());
            if let Err(job) = pool.spawn(job) {
                job();
            }
        }
        drop((pool, tx));
        let mut done: Vec<i32> = rx.iter().collect();
        done.sort_unstable();
        assert_eq!(done, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn gives_a_job_back_when_the_queue_is_full() {
        let pool = ThreadPool::<Job>::new("test", 1, 1).unwrap();
        let (started_tx, started) = mpsc::channel();
        let (release, gate) = mpsc::channel::<()>();
        let blocker = move || {
            started_tx.send(()).unwrap();
            gate.recv().unwrap();
        };
        assert!(pool.spawn(Box::new(blocker)).is_ok());
        started.recv().unwrap();
        assert!(pool.spawn(Box::new(|| ())).is_ok());
        assert_eq!(pool.queued(), 1);
        assert!(pool.spawn(Box::new(|| ())).is_err());
        release.send(()).unwrap();
    }

    #[test]
    fn survives_a_job_that_panics() {
        let pool = ThreadPool::<Job>::new("test", 1, 8).unwrap();
        let (tx, rx) = mpsc::channel();
        assert!(pool.spawn(Box::new(|| panic!("on purpose"))).is_ok());
        assert!(pool.spawn(Box::new(move || tx.send(()).unwrap())).is_ok());
        rx.recv().unwrap();
    }

    #[test]
    fn may_be_dropped_by_its_own_job() {
        let pool = Arc::new(ThreadPool::<Job>::new("test", 1, 8).unwrap());
        let (go, gate) = mpsc::channel::<()>();
        let (tx, rx) = mpsc::channel();
        let held = Arc::clone(&pool);
        let job = move || {
            gate.recv().unwrap();
            drop(held);
            tx.send(()).unwrap();
        };
        assert!(pool.spawn(Box::new(job)).is_ok());
        drop(pool);
        go.send(()).unwrap();
        rx.recv().unwrap();
    }
}
