//! Where handlers live while they run: used again and again, so that a command allocates nothing.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use stackfuture::StackFuture;

use super::Reply;
use super::channel::Channel;
use crate::limits::MAX_IDLE_WORKSPACES;

/// Room for a handler that is at work. Those of reads and writes fit; longer ones are allocated.
const HANDLER_BYTES: usize = 1152;

type Handler = StackFuture<'static, Reply, HANDLER_BYTES>;

/// Where a handler is put, and stays until it has ended.
pub(crate) struct HandlerSlot<'a>(Pin<&'a mut Option<Handler>>);

impl HandlerSlot<'_> {
    /// Puts a handler here.
    pub(crate) fn begin(mut self, handler: impl Future<Output = Reply> + Send + 'static) {
        self.0.set(Some(StackFuture::from_or_box(handler)));
    }
}

/// What a handler needs while it runs.
struct Workspace {
    channel: Arc<Channel>,
    handler: Pin<Box<Option<Handler>>>,
}

thread_local! {
    /// What ended handlers have left. A core has a thread, and its tasks stay there.
    static IDLE: RefCell<Vec<Workspace>> = const { RefCell::new(Vec::new()) };
}

/// A handler at work, and what it talks to its task by.
pub(crate) struct RunningHandler(
    /// There until the drop.
    Option<Workspace>,
);

impl RunningHandler {
    /// Begins nothing yet: the handler is to be put in its [`slot`](Self::slot).
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

    /// Lets the handler go on until it asks for something or ends.
    pub(crate) fn poll(&mut self) -> Poll<Reply> {
        let Some(handler) = self.workspace_mut().handler.as_mut().as_pin_mut() else { return Poll::Pending };
        handler.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn workspace_mut(&mut self) -> &mut Workspace {
        self.0.as_mut().expect(THERE)
    }
}

const THERE: &str = "a workspace is taken by the drop alone";

/// The handler ends with what it holds; its memory waits for the next one.
impl Drop for RunningHandler {
    fn drop(&mut self) {
        let Some(mut workspace) = self.0.take() else { return };
        workspace.handler.set(None);
        // Nobody else has it any more, now that the handler is gone.
        let Some(channel) = Arc::get_mut(&mut workspace.channel) else { return };
        *channel = Channel::default();
        // A thread that ends keeps nothing.
        let _ = IDLE.try_with(|idle| {
            let mut idle = idle.borrow_mut();
            if idle.len() < MAX_IDLE_WORKSPACES {
                idle.push(workspace);
            }
        });
    }
}
