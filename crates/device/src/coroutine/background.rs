//! Work of a logical unit that belongs to no command.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use lunette_buffer::Buffer;
use lunette_store::{Op, Outcome, Store, StoreError};

use super::channel::Channel;
use super::{Input, Step, Work};
use crate::wait::Waitable;

/// Work that goes on after the command that began it, or after the process that did. It is driven as a
/// [`Task`](crate::Task) is, and asks for buffers, requests to a store, work that waits for a medium, the passing of time,
/// and what other tasks bring about.
///
/// One that is dropped before its end goes on after the next start of the process, where there is a state store.
pub struct BackgroundTask {
    /// `None` after the end.
    working: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    channel: Arc<Channel>,
}

impl BackgroundTask {
    /// Work that asks for what it needs by the [`BackgroundCx`] that it is given.
    pub(crate) fn new<F>(begin: impl FnOnce(BackgroundCx) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let channel = Arc::new(Channel::default());
        let working = begin(BackgroundCx(Arc::clone(&channel)));
        Self { working: Some(Box::pin(working)), channel }
    }

    /// Gives what was asked for ([`Input::Start`] first) and learns what is wanted next; `None` at the end.
    pub fn step(&mut self, input: Input) -> Option<Step> {
        if !matches!(input, Input::Start) {
            self.channel.answer(input);
        }
        let working = self.working.as_mut()?;
        match working.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => self.channel.asked(),
            Poll::Ready(()) => {
                self.working = None;
                None
            }
        }
    }
}

impl fmt::Debug for BackgroundTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.working.is_some() { "BackgroundTask(at work)" } else { "BackgroundTask(ended)" })
    }
}

/// How background work asks for something.
pub(crate) struct BackgroundCx(Arc<Channel>);

impl BackgroundCx {
    /// A buffer of `len` bytes, more than zero.
    pub(crate) async fn buffer(&self, len: usize) -> Result<Buffer, StoreError> {
        match self.0.ask(Step::Buffer { len }).await {
            Input::Buffer(mut buffer) if buffer.len() >= len => {
                buffer.truncate(len);
                Ok(buffer)
            }
            _ => Err(contract_violation()),
        }
    }

    /// One request to a store.
    pub(crate) async fn store(&self, store: &Arc<dyn Store>, op: Op) -> Result<Option<Buffer>, StoreError> {
        match self.0.ask(Step::Store { store: Arc::clone(store), op }).await {
            Input::Store(Outcome { result, buffer, .. }) => result.map(|()| buffer),
            _ => Err(contract_violation()),
        }
    }

    /// Does what waits for a medium.
    pub(crate) async fn work(&self, work: Work) -> Result<(), StoreError> {
        match self.0.ask(Step::Work(work)).await {
            Input::Store(Outcome { result, .. }) => result,
            _ => Err(contract_violation()),
        }
    }

    /// Lets `time` pass. No thread waits meanwhile.
    pub(crate) async fn pause(&self, time: Duration) -> Result<(), StoreError> {
        match self.0.ask(Step::Pause { time }).await {
            Input::Waited => Ok(()),
            _ => Err(contract_violation()),
        }
    }

    /// Waits for something that others bring about.
    pub(crate) async fn wait(&self, on: Arc<dyn Waitable>) -> Result<(), StoreError> {
        match self.0.ask(Step::Wait { on }).await {
            Input::Waited => Ok(()),
            _ => Err(contract_violation()),
        }
    }
}

/// The work was driven against its contract.
pub(crate) fn contract_violation() -> StoreError {
    StoreError::Io(std::io::Error::other("background work was driven against its contract"))
}
