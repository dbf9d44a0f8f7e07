//! A few threads for calls that block.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// The work of the threads of a [`ThreadPool`]. A type of its own spares the allocation that a [`Job`] is.
pub trait Work: Send + 'static {
    /// Does it, on one of the threads.
    fn run(self);
}

/// Flows whose memory is kept to be used again.
const MAX_SPARE_FLOWS: usize = 64;

/// Work of any kind.
pub type Job = Box<dyn FnOnce() + Send>;

impl Work for Job {
    fn run(self) {
        self();
    }
}

/// The owner of a job. Flows that have jobs waiting take turns, so one with many does not keep the others waiting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Flow(pub u64);

/// A fixed number of threads that run jobs: those of one [`Flow`] in the order in which they came, the flows by turns.
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
    /// The jobs of each flow that has any.
    flows: HashMap<Flow, VecDeque<W>>,
    /// The flows that wait, each once, the next one first.
    turns: VecDeque<Flow>,
    /// Memory of flows that have none any more, for the next.
    spare: Vec<VecDeque<W>>,
    len: usize,
    /// Threads that wait for a job.
    waiting: usize,
    closed: bool,
}

impl<W> Queue<W> {
    fn new() -> Self {
        Self { flows: HashMap::new(), turns: VecDeque::new(), spare: Vec::new(), len: 0, waiting: 0, closed: false }
    }

    fn push(&mut self, flow: Flow, job: W) {
        let spare = &mut self.spare;
        let jobs = self.flows.entry(flow).or_insert_with(|| spare.pop().unwrap_or_default());
        if jobs.is_empty() {
            self.turns.push_back(flow);
        }
        jobs.push_back(job);
        self.len += 1;
    }

    fn pop(&mut self) -> Option<W> {
        let flow = self.turns.pop_front()?;
        let jobs = self.flows.get_mut(&flow)?;
        let job = jobs.pop_front()?;
        self.len -= 1;
        if !jobs.is_empty() {
            self.turns.push_back(flow);
        } else if let Some(empty) = self.flows.remove(&flow)
            && self.spare.len() < MAX_SPARE_FLOWS
        {
            self.spare.push(empty);
        }
        Some(job)
    }
}

impl<W: Work> ThreadPool<W> {
    /// Starts `threads` threads (at least one), named `name`, with room for `max_queued` jobs that wait for one.
    ///
    /// # Errors
    ///
    /// When the system refuses a thread.
    pub fn new(name: &str, threads: usize, max_queued: usize) -> io::Result<Self> {
        let queue = Mutex::new(Queue::new());
        let shared = Arc::new(Shared { queue, filled: Condvar::new(), max_queued });
        let mut pool = Self { shared, threads: Vec::new() };
        for _ in 0..threads.max(1) {
            let shared = Arc::clone(&pool.shared);
            pool.threads.push(thread::Builder::new().name(name.to_owned()).spawn(move || shared.work())?);
        }
        Ok(pool)
    }

    /// Queues `job` of `flow`.
    ///
    /// # Errors
    ///
    /// The job itself, when as many as allowed are waiting.
    pub fn spawn(&self, flow: Flow, job: W) -> Result<(), W> {
        let mut queue = self.shared.lock();
        if queue.len >= self.shared.max_queued {
            return Err(job);
        }
        queue.push(flow, job);
        // To wake is a system call, also when all threads are at work.
        let has_idle_thread = queue.waiting > 0;
        drop(queue);
        if has_idle_thread {
            self.shared.filled.notify_one();
        }
        Ok(())
    }

    /// Jobs that wait for a thread.
    pub fn queued(&self) -> usize {
        self.shared.lock().len
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
        let mut queue = self.lock();
        queue.waiting += 1;
        let has_none = |queue: &mut Queue<W>| queue.len == 0 && !queue.closed;
        let mut queue = self.filled.wait_while(queue, has_none).unwrap_or_else(PoisonError::into_inner);
        queue.waiting -= 1;
        queue.pop()
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
            if let Err(job) = pool.spawn(Flow(i % 3), job) {
                job();
            }
        }
        drop((pool, tx));
        let mut done: Vec<u64> = rx.iter().collect();
        done.sort_unstable();
        assert_eq!(done, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn flows_take_turns_and_keep_their_own_order() {
        let mut queue = Queue::new();
        for job in 0..4 {
            queue.push(Flow(1), (1, job));
        }
        queue.push(Flow(2), (2, 0));
        queue.push(Flow(3), (3, 0));
        assert_eq!(queue.pop(), Some((1, 0)));
        queue.push(Flow(2), (2, 1));
        let rest: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(rest, [(2, 0), (3, 0), (1, 1), (2, 1), (1, 2), (1, 3)]);
        assert_eq!((queue.len, queue.flows.len(), queue.turns.len()), (0, 0, 0));
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
        assert!(pool.spawn(Flow(0), Box::new(blocker)).is_ok());
        started.recv().unwrap();
        assert!(pool.spawn(Flow(0), Box::new(|| ())).is_ok());
        assert_eq!(pool.queued(), 1);
        assert!(pool.spawn(Flow(0), Box::new(|| ())).is_err());
        release.send(()).unwrap();
    }

    #[test]
    fn survives_a_job_that_panics() {
        let pool = ThreadPool::<Job>::new("test", 1, 8).unwrap();
        let (tx, rx) = mpsc::channel();
        assert!(pool.spawn(Flow(0), Box::new(|| panic!("on purpose"))).is_ok());
        assert!(pool.spawn(Flow(0), Box::new(move || tx.send(()).unwrap())).is_ok());
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
        assert!(pool.spawn(Flow(0), Box::new(job)).is_ok());
        drop(pool);
        go.send(()).unwrap();
        rx.recv().unwrap();
    }
}
