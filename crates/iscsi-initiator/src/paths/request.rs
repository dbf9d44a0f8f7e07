//! A request of a disk with several paths, between two attempts.

use std::time::Duration;

use crate::Error;
use crate::request::{Completion, Outcome, Reply, Request};

/// A request, whose buffers are here while it is not on its way.
pub(super) struct PathRequest {
    pub(super) request: Request,
    pub(super) completion: Completion,
}

impl PathRequest {
    /// Ends the request.
    pub(super) fn end(self, result: Result<Reply, Error>) {
        let Request { data_in, data_out, .. } = self.request;
        self.completion.complete(Outcome { result, data_in, data_out });
    }
}

impl Request {
    /// The request as it is sent: the buffers go with it.
    pub(super) fn send(&mut self, timeout: Duration) -> Self {
        let (data_out, data_in) = (self.data_out.take(), self.data_in.take());
        Self { cdb_rest: self.cdb_rest.clone(), data_out, data_in, timeout: Some(timeout), ..*self }
    }
}
