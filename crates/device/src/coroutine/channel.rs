//! The channel through which a handler makes requests and gets the answers.
//!
//! A handler is an `async fn` without an executor. Each of its awaits ends in [`Channel::ask`], which leaves one
//! [`Step`] in a cell shared with the task and is pending until the task has put the answer there. The task polls it
//! again with the answer, and at no other time, so no waker is needed.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use lunette_buffer::Payload;
use lunette_scsi::Status;
use lunette_state::StateError;
use lunette_store::{Outcome, StoreError};

use super::background::contract_violation;
use super::{Input, Step};
use crate::unit::{LogicalUnit, StoredDigests};

/// The channel between a task and its handler. The lock is never contended: the task polls the handler on its own
/// thread.
#[derive(Default)]
pub(crate) struct Channel(Mutex<State>);

#[derive(Default)]
struct State {
    asked: Option<Step>,
    answered: Option<Input>,
    data_out_transfer_len: u64,
    status: Option<(Status, u16)>,
    reply: Payload,
    digests: Option<StoredDigests>,
    /// Logical units that the command accesses besides its own.
    others: Vec<Arc<LogicalUnit>>,
}

impl Channel {
    /// Makes one request and waits for the answer.
    pub(crate) async fn ask(&self, step: Step) -> Input {
        self.state().asked = Some(step);
        poll_fn(|_| self.state().answered.take().map_or(Poll::Pending, Poll::Ready)).await
    }

    /// Makes a change that saves its state before it takes effect, on a thread that may wait for the medium.
    pub(crate) async fn persist<T: Send + 'static>(
        &self,
        change: impl FnOnce() -> Result<T, StateError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let done = Arc::new(Mutex::new(None));
        let told = Arc::clone(&done);
        let work = move || {
            let result = change().map_err(|error| StoreError::Io(std::io::Error::other(error)))?;
            *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            Ok(())
        };
        if let Input::Store(Outcome { result, .. }) = self.ask(Step::Work(Box::new(work))).await {
            result?;
        }
        done.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or_else(contract_violation)
    }

    /// Takes the request of the handler, if it made one.
    pub(crate) fn asked(&self) -> Option<Step> {
        self.state().asked.take()
    }

    /// Stores the answer for the next poll.
    pub(crate) fn answer(&self, input: Input) {
        self.state().answered = Some(input);
    }

    /// Records how many bytes the CDB asked the initiator to send.
    pub(crate) fn expect_data_out(&self, len: u64) {
        self.state().data_out_transfer_len = len;
    }

    /// The number of bytes that the CDB asked the initiator to send.
    pub(crate) fn data_out_transfer_len(&self) -> u64 {
        self.state().data_out_transfer_len
    }

    /// Makes the command end with Data-In that its handler does not return: no buffer holds it.
    pub(crate) fn reply(&self, data: Payload) {
        self.state().reply = data;
    }

    /// Takes the Data-In of [`Self::reply`].
    pub(crate) fn take_reply(&self) -> Payload {
        std::mem::take(&mut self.state().reply)
    }

    /// Says which blocks the Data-In holds, where their digests are known.
    pub(crate) fn know_digests(&self, digests: Option<StoredDigests>) {
        self.state().digests = digests;
    }

    /// Takes what [`Self::know_digests`] said.
    pub(crate) fn take_digests(&self) -> Option<StoredDigests> {
        self.state().digests.take()
    }

    /// Makes the command end with a status other than GOOD and CHECK CONDITION, and its qualifier.
    pub(crate) fn end_with(&self, status: Status, qualifier: u16) {
        self.state().status = Some((status, qualifier));
    }

    /// The status of a command that ends without sense data, and its qualifier.
    pub(crate) fn status(&self) -> (Status, u16) {
        self.state().status.unwrap_or((Status::GOOD, 0))
    }

    /// Records that the command accesses `unit` too.
    pub(crate) fn use_unit(&self, unit: &Arc<LogicalUnit>) {
        let mut state = self.state();
        if !state.others.iter().any(|known| Arc::ptr_eq(known, unit)) {
            state.others.push(Arc::clone(unit));
        }
    }

    /// Whether the command accesses `unit` besides its own.
    pub(crate) fn uses(&self, unit: &Arc<LogicalUnit>) -> bool {
        self.state().others.iter().any(|known| Arc::ptr_eq(known, unit))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
