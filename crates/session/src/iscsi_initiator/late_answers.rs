//! Answers of the target that come after the end of what they answer.

use std::collections::VecDeque;

use lunette_pdu::Cid;

use super::event::TaskTag;
use crate::limits::{MAX_COMMANDS, MAX_REQUESTS};

/// The last commands that a request on another connection ended. What the target sent for them before may still be
/// under way.
#[derive(Default)]
pub(super) struct Withdrawn(VecDeque<(Cid, TaskTag)>);

impl Withdrawn {
    pub(super) fn add(&mut self, cid: Cid, tag: TaskTag) {
        if self.0.len() == MAX_COMMANDS {
            self.0.pop_front();
        }
        self.0.push_back((cid, tag));
    }

    /// Whether the tag has named such a command. It may name another one by now.
    pub(super) fn has(&self, cid: Cid, tag: TaskTag) -> bool {
        self.0.contains(&(cid, tag))
    }
}

/// The last requests that were sent again without being asked for: they may be answered twice.
#[derive(Default)]
pub(super) struct Repeated(VecDeque<TaskTag>);

impl Repeated {
    /// A request is sent again, though the target may have it.
    pub(super) fn add(&mut self, tag: TaskTag) {
        if self.has(tag) {
            return;
        }
        if self.0.len() == MAX_REQUESTS {
            self.0.pop_front();
        }
        self.0.push_back(tag);
    }

    /// Whether a request may be answered a second time.
    pub(super) fn has(&self, tag: TaskTag) -> bool {
        self.0.contains(&tag)
    }
}
