//! A network namespace without a name, which lives as long as a thread in it.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use super::sys::{self, Unshared};

type Job = Box<dyn FnOnce() + Send>;

/// A network namespace, in which closures run one after another.
///
/// Threads and processes that a closure starts are in the namespace, too. It ends with the last of them, with the last
/// socket, and with this value; the kernel cleans up.
pub(crate) struct Namespace {
    jobs: Sender<Job>,
}

impl Namespace {
    /// Makes an empty namespace. Only root may.
    pub(crate) fn new() -> io::Result<Self> {
        let (jobs, queue) = channel::<Job>();
        let (entered, has_entered) = channel();
        thread::Builder::new().name("namespace".into()).spawn(move || {
            let outcome = sys::unshare(Unshared::Network);
            let failed = outcome.is_err();
            // The caller waits for it.
            let _ = entered.send(outcome);
            if !failed {
                for job in queue {
                    job();
                }
            }
        })?;
        has_entered.recv().expect("the thread says how it went")?;
        Ok(Self { jobs })
    }

    /// Runs a closure in the namespace and waits for its result.
    pub(crate) fn run<R: Send + 'static>(&self, job: impl FnOnce() -> R + Send + 'static) -> R {
        let (done, result) = channel();
        let job = move || drop(done.send(job()));
        self.jobs.send(Box::new(job)).expect("the thread lives as long as this value");
        result.recv().expect("a job returns")
    }
}
