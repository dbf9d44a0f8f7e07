//! What the answers of one connection keep of the pool: until they are sent, or until the initiator has acknowledged them when
//! they may have to be sent again.

use std::collections::VecDeque;
use std::rc::Rc;

use lunette_reactor::ConnectionId;
use lunette_session::iscsi_target::{Connection, ConnectionMut, Response, Session, TaskTag};

use super::connection::Conn;
use crate::core::buffers::{Account, Reservation};

/// Buffers of answers, in the order in which they leave. Each counts as a whole: an initiator that takes four bytes of what
/// a command has read keeps all of its buffer.
pub(in crate::core) struct Answers {
    /// Where in the stream of data segments each ends, and its bytes of the pool.
    waiting: VecDeque<(u64, usize)>,
    /// Bytes of data segments that were ever queued by answers.
    queued: u64,
    held_bytes: usize,
    reservation: Reservation,
}

impl Answers {
    pub(in crate::core) fn new(account: &Rc<Account>) -> Self {
        Self { waiting: VecDeque::new(), queued: 0, held_bytes: 0, reservation: Reservation::new(account) }
    }

    /// Bytes of the pool that they hold.
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    fn push(&mut self, segment_bytes: usize, pooled_bytes: usize) {
        self.queued += segment_bytes as u64;
        self.waiting.push_back((self.queued, pooled_bytes));
        self.held_bytes += pooled_bytes;
    }

    /// `left` bytes of data segments are still held. Those that no answer queued make this late, never early.
    pub(super) fn released(&mut self, left: usize) {
        let released = self.queued.saturating_sub(left as u64);
        while let Some((_, pooled_bytes)) = self.waiting.front().filter(|(end, _)| *end <= released) {
            self.held_bytes -= pooled_bytes;
            self.waiting.pop_front();
        }
    }
}

impl Conn {
    /// Answers a task.
    pub(super) fn complete(
        &mut self,
        id: ConnectionId,
        session: &mut Session<ConnectionId>,
        task: TaskTag,
        response: Response,
    ) {
        let pooled = response.data_in.pooled_bytes();
        let before = session.connection(id).map_or(0, Connection::queued_bytes);
        session.complete(id, task, response);
        let Some(mut protocol) = session.connection_mut(id) else {
            debug_assert!(false, "an answer ends its connection");
            return;
        };
        let segment_bytes = protocol.queued_bytes() - before;
        if let Some(pooled_bytes) = pooled.filter(|_| segment_bytes > 0) {
            self.answers.push(segment_bytes, pooled_bytes);
        }
        self.count_answers(&mut protocol);
    }

    /// Looks what its answers still hold.
    pub(in crate::core) fn count_answers(&mut self, protocol: &mut ConnectionMut<'_>) {
        for (segment_bytes, pooled_bytes) in protocol.take_drained() {
            self.answers.push(segment_bytes, pooled_bytes);
        }
        self.answers.released(protocol.kept_bytes());
        let suspended = protocol.is_suspended();
        let held =
            if suspended { protocol.suspended_bytes() } else { self.answers.held_bytes() + protocol.draining_bytes() };
        self.answers.reservation.resize(held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_as_a_whole_until_its_last_byte_is_sent() {
        let mut answers = Answers::new(&Rc::default());
        answers.push(4, 4096);
        answers.push(100, 8192);
        for (left, held) in [(104, 12288), (101, 12288), (100, 8192), (1, 8192), (0, 0)] {
            answers.released(left);
            assert_eq!(answers.held_bytes(), held, "{left} bytes left");
        }
        answers.push(4, 4096);
        answers.released(4);
        assert_eq!(answers.held_bytes(), 4096);
    }

    #[test]
    fn bytes_of_others_make_it_late_and_the_end_makes_it_right() {
        let mut answers = Answers::new(&Rc::default());
        answers.push(4, 4096);
        answers.released(50);
        assert_eq!(answers.held_bytes(), 4096);
        answers.released(0);
        assert_eq!(answers.held_bytes(), 0);
    }
}
