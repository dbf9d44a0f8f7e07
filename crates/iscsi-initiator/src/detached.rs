//! Futures that run without an executor.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

/// A future that runs on the threads that wake it: those that complete what it waits for.
struct Detached(Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>);

/// Starts `future` on this thread. It goes on by itself, on the threads that complete what it waits for.
pub(crate) fn detach(future: impl Future<Output = ()> + Send + 'static) {
    Arc::new(Detached(Mutex::new(Some(Box::pin(future))))).wake();
}

impl Wake for Detached {
    fn wake(self: Arc<Self>) {
        let waker = Waker::from(Arc::clone(&self));
        // A wake-up from within the poll, on the same thread, would find the lock taken. There is none: a future that
        // is completed while it is being polled finds its slot filled before it leaves its waker there.
        let mut future = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = future.as_mut()
            && running.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
        {
            *future = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::pending::{Answer, Slot};
    use crate::wait;

    #[test]
    fn a_detached_future_goes_on_where_its_answer_comes_from() {
        let (first, last) = (Slot::new(), Slot::new());
        let (from, to) = (Arc::clone(&first), Arc::clone(&last));
        detach(async move {
            let value: i32 = Answer(from).await;
            to.fill((value, thread::current().id()));
        });
        let thread = thread::spawn(move || {
            first.fill(3);
            thread::current().id()
        });
        assert_eq!(wait(Answer(last)), (3, thread.join().unwrap()));
    }
}
