//! CmdSN order and the command window of a session (RFC 7143 section 4.2.2.1).

use lunette_pdu::SerialNumber;

use crate::limits::COMMAND_WINDOW;

/// What becomes of a non-immediate command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It is the next one: deliver it.
    Next,
    /// It is inside the window, but commands before it have not arrived.
    Early,
    /// It is outside the window or has been received before: RFC 7143 wants it ignored without an answer.
    Ignored,
}

/// ExpCmdSN, MaxCmdSN and the tasks that hold the window open or shut.
#[derive(Debug)]
pub(crate) struct CommandWindow {
    exp_cmd_sn: SerialNumber,
    max_cmd_sn: SerialNumber,
    /// Tasks that have arrived through the window and not ended.
    active: u32,
}

impl CommandWindow {
    pub(crate) fn new(first: SerialNumber) -> Self {
        Self { exp_cmd_sn: first, max_cmd_sn: first.add(COMMAND_WINDOW - 1), active: 0 }
    }

    pub(crate) fn exp_cmd_sn(&self) -> SerialNumber {
        self.exp_cmd_sn
    }

    /// MaxCmdSN as it is told from now on. It moves as commands are *received*, so that an initiator never waits for an answer
    /// that it does not need, but only as far as there is room for tasks. It never goes back.
    pub(crate) fn max_cmd_sn(&mut self) -> SerialNumber {
        self.advance();
        self.max_cmd_sn
    }

    /// Whether the initiator may send no numbered command: MaxCmdSN is ExpCmdSN − 1.
    pub(crate) fn is_closed(&self) -> bool {
        self.max_cmd_sn.is_before(self.exp_cmd_sn)
    }

    /// Judges the number of a command and, when it is the next one, counts it as received. What has become of it (a task, or
    /// nothing that lasts) is known only later, so MaxCmdSN does not move yet.
    pub(crate) fn arrive(&mut self, cmd_sn: SerialNumber) -> Arrival {
        if cmd_sn.is_before(self.exp_cmd_sn) || cmd_sn.is_after(self.max_cmd_sn) {
            return Arrival::Ignored;
        }
        if cmd_sn != self.exp_cmd_sn {
            return Arrival::Early;
        }
        self.exp_cmd_sn = self.exp_cmd_sn.next();
        Arrival::Next
    }

    /// A command that arrived has become a task.
    pub(crate) fn task_started(&mut self) {
        self.active += 1;
    }

    /// Such a task has ended; the window opens by one.
    pub(crate) fn task_ended(&mut self) {
        self.active = self.active.saturating_sub(1);
        self.advance();
    }

    fn advance(&mut self) {
        let room = COMMAND_WINDOW.saturating_sub(self.active);
        let edge = self.exp_cmd_sn.add(room).add(u32::MAX);
        if edge.is_after(self.max_cmd_sn) {
            self.max_cmd_sn = edge;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_arrive_in_order_and_once() {
        for first in [0, 5, u32::MAX - 3] {
            let first = SerialNumber(first);
            let mut window = CommandWindow::new(first);
            assert_eq!(window.arrive(first.next()), Arrival::Early);
            assert_eq!(window.arrive(first), Arrival::Next);
            assert_eq!(window.arrive(first), Arrival::Ignored);
            assert_eq!(window.arrive(first.next()), Arrival::Next);
            assert_eq!(window.exp_cmd_sn(), first.add(2));
            assert_eq!(window.max_cmd_sn(), first.add(1 + COMMAND_WINDOW));
        }
    }

    #[test]
    fn a_number_outside_the_window_is_ignored() {
        let mut window = CommandWindow::new(SerialNumber(100));
        assert_eq!(window.arrive(SerialNumber(100 + COMMAND_WINDOW)), Arrival::Ignored);
        assert_eq!(window.arrive(SerialNumber(99)), Arrival::Ignored);
        assert_eq!(window.arrive(SerialNumber(100 + COMMAND_WINDOW - 1)), Arrival::Early);
    }

    #[test]
    fn the_window_closes_when_tasks_pile_up_and_opens_when_they_end() {
        let mut window = CommandWindow::new(SerialNumber(0));
        let mut next = SerialNumber(0);
        while window.arrive(next) == Arrival::Next {
            window.task_started();
            next = next.next();
        }
        assert_eq!(next.0, COMMAND_WINDOW);
        assert_eq!(window.max_cmd_sn().next(), window.exp_cmd_sn(), "closed: MaxCmdSN is ExpCmdSN − 1");
        for _ in 0..next.0 {
            window.task_ended();
        }
        assert_eq!(window.max_cmd_sn(), next.add(COMMAND_WINDOW - 1));
    }
}
