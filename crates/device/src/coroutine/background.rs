//! Background work: coroutines of a logical unit that outlive their command.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use lunette_buffer::Buffer;
use lunette_scsi::Lun;
use lunette_state::StateError;
use lunette_store::{Op, Outcome, StoreError};

use super::channel::Channel;
use super::{Input, Step};
use crate::nexus::NexusId;
use crate::unit::LogicalUnit;
use crate::wait::Waitable;

/// Work that outlives the command that started it, or the process that did. It is driven like a [`Task`](crate::Task),
/// and asks for buffers, requests to a store, blocking work, pauses, conditions and the abort of tasks.
///
/// Work that is dropped before its end is resumed after the next start of the process, where a state store exists.
pub struct BackgroundTask {
    /// `None` after the end.
    working: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    channel: Arc<Channel>,
}

impl BackgroundTask {
    /// Creates work that makes its requests through the [`BackgroundCx`] that it is passed.
    pub(crate) fn new<F>(begin: impl FnOnce(BackgroundCx) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let channel = Arc::new(Channel::default());
        let working = begin(BackgroundCx(Arc::clone(&channel)));
        Self { working: Some(Box::pin(working)), channel }
    }

    /// Passes the answer to the last step ([`Input::Start`] first) and returns the next step; `None` at the end.
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

/// The requests of background work to its driver.
pub(crate) struct BackgroundCx(Arc<Channel>);

impl BackgroundCx {
    /// Asks for a buffer of `len` bytes, more than zero.
    pub(crate) async fn buffer(&self, len: usize) -> Result<Buffer, StoreError> {
        match self.0.ask(Step::Buffer { len }).await {
            Input::Buffer(mut buffer) if buffer.len() >= len => {
                buffer.truncate(len);
                Ok(buffer)
            }
            _ => Err(contract_violation()),
        }
    }

    /// Sends one request to the store of `unit`. While that is frozen, the work waits.
    pub(crate) async fn store(&self, unit: &LogicalUnit, op: Op) -> Result<Option<Buffer>, StoreError> {
        while let Some(thaw) = unit.pending_thaw() {
            self.wait(Arc::clone(&thaw) as Arc<dyn Waitable>).await?;
        }
        match self.0.ask(Step::Store { store: Arc::clone(unit.store()), op }).await {
            Input::Store(Outcome { result, buffer, .. }) => result.map(|()| buffer),
            _ => Err(contract_violation()),
        }
    }

    /// Makes a change that saves its state before it takes effect, so a failed one has changed nothing.
    pub(crate) async fn persist<T: Send + 'static>(
        &self,
        change: impl FnOnce() -> Result<T, StateError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.0.persist(change).await
    }

    /// Waits for `time`, without blocking a thread.
    pub(crate) async fn pause(&self, time: Duration) -> Result<(), StoreError> {
        match self.0.ask(Step::Pause { time }).await {
            Input::Waited => Ok(()),
            _ => Err(contract_violation()),
        }
    }

    /// Ends all tasks of these nexuses on `unit`. Returns the nexuses that lost tasks.
    pub(crate) async fn abort(
        &self,
        tasks: Vec<(NexusId, Lun)>,
        unit: &Arc<LogicalUnit>,
    ) -> Result<Vec<NexusId>, StoreError> {
        match self.0.ask(Step::Abort { tasks, unit: Arc::clone(unit) }).await {
            Input::Aborted { lost } => Ok(lost),
            _ => Err(contract_violation()),
        }
    }

    /// Waits for a condition that other tasks bring about.
    pub(crate) async fn wait(&self, on: Arc<dyn Waitable>) -> Result<(), StoreError> {
        match self.0.ask(Step::Wait { on }).await {
            Input::Waited => Ok(()),
            _ => Err(contract_violation()),
        }
    }
}

/// The error of work whose driver broke the order of steps.
pub(crate) fn contract_violation() -> StoreError {
    StoreError::Io(std::io::Error::other("the work was driven against its contract"))
}
