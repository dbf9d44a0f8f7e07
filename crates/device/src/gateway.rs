//! The way from a shared unit to its gateway: the requests of commands, and what the gateway publishes.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use lunette_gateway::{Answer, Request};
use lunette_store::Completion;

use crate::wait::{Waitable, wake};

/// Takes the answer of a gateway to a request, on any thread.
pub type Answered = Box<dyn FnOnce(Answer) + Send>;

/// Asks the gateway of a shared unit for something. It does not wait for the answer.
pub type AskGateway = Box<dyn Fn(Request, Answered) + Send + Sync>;

/// The gateway of a shared unit, from the moment at which there is one.
#[derive(Default)]
pub(crate) struct Gateway(OnceLock<AskGateway>);

impl Gateway {
    /// False, and without effect, when there is one already.
    pub(crate) fn set(&self, ask: AskGateway) -> bool {
        self.0.set(ask).is_ok()
    }

    fn ask(&self, request: Request, answered: Answered) {
        match self.0.get() {
            Some(ask) => ask(request, answered),
            None => answered(Answer::Refused),
        }
    }
}

/// A request to a gateway, as a condition to wait for: it is asked when a task waits for it, and holds when it is
/// answered.
pub(crate) struct Question {
    gateway: Arc<Gateway>,
    request: Mutex<Option<Request>>,
    answer: Arc<OnceLock<Answer>>,
}

impl Question {
    pub(crate) fn new(gateway: &Arc<Gateway>, request: Request) -> Self {
        Self { gateway: Arc::clone(gateway), request: Mutex::new(Some(request)), answer: Arc::default() }
    }

    /// The answer; [`Answer::Refused`] while there is none.
    pub(crate) fn answer(&self) -> Answer {
        self.answer.get().copied().unwrap_or(Answer::Refused)
    }
}

impl Waitable for Question {
    fn wait(&self, done: Completion) {
        let request = self.request.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(request) = request else { return wake(done) };
        let place = Arc::clone(&self.answer);
        let answered = move |answer| {
            // A gateway answers once.
            let _ = place.set(answer);
            wake(done);
        };
        self.gateway.ask(request, Box::new(answered));
    }
}
