//! The memory in which handlers run. It is reused, so that a command allocates nothing.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use stackfuture::StackFuture;

use super::Reply;
use super::channel::Channel;
use crate::limits::MAX_IDLE_WORKSPACES;

/// Bytes of a handler in the workspace. The handlers of reads and writes fit; longer ones are allocated.
const HANDLER_BYTES: usize = 1152;

type Handler = StackFuture<'static, Reply, HANDLER_BYTES>;

/// The slot of a workspace that a handler is placed in until it ends.
pub(crate) struct HandlerSlot<'a>(Pin<&'a mut Option<Handler>>);

impl HandlerSlot<'_> {
    /// Places a handler in the slot.
    pub(crate) fn begin(mut self, handler: impl Future<Output = Reply> + Send + 'static) {
        self.0.set(Some(StackFuture::from_or_box(handler)));
    }
}

/// The memory of one running handler.
struct Workspace {
    channel: Arc<Channel>,
    handler: Pin<Box<Option<Handler>>>,
}

thread_local! {
    /// Workspaces of handlers that have ended. A core has a thread, and its tasks stay on it.
    static IDLE: RefCell<Vec<Workspace>> = const { RefCell::new(Vec::new()) };
}

/// A running handler with its channel to the task.
pub(crate) struct RunningHandler(
    /// `None` only during the drop.
    Option<Workspace>,
);

impl RunningHandler {
    /// A workspace without a handler, which is to be placed in its [`slot`](Self::slot).
    pub(crate) fn new() -> Self {
        let idle = IDLE.try_with(|idle| idle.borrow_mut().pop()).ok().flatten();
        let workspace = idle.unwrap_or_else(|| Workspace { channel: Arc::default(), handler: Box::pin(None) });
        Self(Some(workspace))
    }

    pub(crate) fn slot(&mut self) -> HandlerSlot<'_> {
        HandlerSlot(self.workspace_mut().handler.as_mut())
    }

    pub(crate) fn channel(&self) -> &Arc<Channel> {
        &self.0.as_ref().expect(THERE).channel
    }

    /// Resumes the handler until it makes a request or ends.
    pub(crate) fn poll(&mut self) -> Poll<Reply> {
        let Some(handler) = self.workspace_mut().handler.as_mut().as_pin_mut() else { return Poll::Pending };
        handler.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn workspace_mut(&mut self) -> &mut Workspace {
        self.0.as_mut().expect(THERE)
    }
}

const THERE: &str = "a workspace is taken by the drop alone";

/// Drops the handler and returns its workspace for reuse.
impl Drop for RunningHandler {
    fn drop(&mut self) {
        let Some(mut workspace) = self.0.take() else { return };
        workspace.handler.set(None);
        // The handler is gone, so this is the only reference.
        let Some(channel) = Arc::get_mut(&mut workspace.channel) else { return };
        *channel = Channel::default();
        // A thread that ends keeps no workspace.
        let _ = IDLE.try_with(|idle| {
            let mut idle = idle.borrow_mut();
            if idle.len() < MAX_IDLE_WORKSPACES {
                idle.push(workspace);
            }
        });
    }
}
