//! CmdSN order and the command window of a session (RFC 7143 section 4.2.2.1), over all of its connections.

use lunette_pdu::{Cid, SerialNumber};

use crate::limits::COMMAND_WINDOW;

/// What becomes of a non-immediate command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It is the next one: deliver it. Others may have waited for it.
    Next(Waiters),
    /// It is inside the window, but commands before it have not arrived.
    Early,
    /// It is outside the window or has been received before: RFC 7143 wants it ignored without an answer.
    Ignored,
}

/// Connections that hold what is due now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiters {
    /// None.
    None,
    /// This connection holds the next command.
    One(Cid),
    /// A connection holds a task management request that is due; which one is not recorded.
    Any,
}

/// A number of the window that has been received before its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Early {
    /// The connection keeps the command until its turn.
    Held(Cid),
    /// Nothing is to be delivered: the command was aborted.
    Skipped,
}

/// ExpCmdSN, MaxCmdSN and the tasks that hold the window open or shut.
#[derive(Debug)]
pub(crate) struct CommandWindow {
    exp_cmd_sn: SerialNumber,
    max_cmd_sn: SerialNumber,
    /// Tasks that have arrived through the window and not ended.
    active: u32,
    /// What has been received early, by the last bits of its number. Empty until a command overtakes another for the first
    /// time.
    early: Vec<Option<Early>>,
    /// How many of these there are.
    early_len: u32,
    /// Tasks have ended with their connection, so that no answer tells the initiator how far the window is open.
    is_untold: bool,
    /// Numbers that task management requests wait for: they are due once every command before them has been received.
    fences: Vec<SerialNumber>,
}

const _: () = assert!(COMMAND_WINDOW.is_power_of_two(), "numbers keep their place when they wrap");

impl CommandWindow {
    pub(crate) fn new(first: SerialNumber) -> Self {
        Self {
            exp_cmd_sn: first,
            max_cmd_sn: first.add(COMMAND_WINDOW - 1),
            active: 0,
            early: Vec::new(),
            early_len: 0,
            is_untold: false,
            fences: Vec::new(),
        }
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

    /// ExpCmdSN and MaxCmdSN, as every PDU of the target reports them.
    pub(crate) fn numbers(&mut self) -> (SerialNumber, SerialNumber) {
        (self.exp_cmd_sn, self.max_cmd_sn())
    }

    /// Whether the initiator may send no numbered command: MaxCmdSN is ExpCmdSN − 1.
    pub(crate) fn is_closed(&self) -> bool {
        self.max_cmd_sn.is_before(self.exp_cmd_sn)
    }

    /// Judges the number of a command and, when it is the next one, counts it as received. What has become of it (a task, or
    /// nothing that lasts) is known only later, so MaxCmdSN does not move yet.
    pub(crate) fn arrive(&mut self, cmd_sn: SerialNumber) -> Arrival {
        if cmd_sn == self.exp_cmd_sn && !self.is_closed() && self.early_len == 0 && self.fences.is_empty() {
            self.exp_cmd_sn = cmd_sn.next();
            return Arrival::Next(Waiters::None);
        }
        self.arrive_among_others(cmd_sn)
    }

    fn arrive_among_others(&mut self, cmd_sn: SerialNumber) -> Arrival {
        let received = !self.is_open(cmd_sn) || self.early.get(place(cmd_sn)).is_some_and(Option::is_some);
        match cmd_sn == self.exp_cmd_sn {
            _ if received => Arrival::Ignored,
            true => Arrival::Next(self.pass()),
            false => Arrival::Early,
        }
    }

    /// Whether `cmd_sn` is one that may still arrive, or has arrived before its turn.
    fn is_open(&self, cmd_sn: SerialNumber) -> bool {
        !cmd_sn.is_before(self.exp_cmd_sn) && !cmd_sn.is_after(self.max_cmd_sn)
    }

    /// ExpCmdSN moves over what is being delivered, and over what is not to be.
    fn pass(&mut self) -> Waiters {
        loop {
            self.take(self.exp_cmd_sn);
            self.exp_cmd_sn = self.exp_cmd_sn.next();
            if self.early.get(place(self.exp_cmd_sn)) != Some(&Some(Early::Skipped)) {
                return self.waiters();
            }
        }
    }

    fn waiters(&self) -> Waiters {
        match self.early.get(place(self.exp_cmd_sn)) {
            _ if self.fences.iter().any(|fence| !fence.is_after(self.exp_cmd_sn)) => Waiters::Any,
            Some(Some(Early::Held(cid))) => Waiters::One(*cid),
            _ => Waiters::None,
        }
    }

    fn put(&mut self, cmd_sn: SerialNumber, early: Early) {
        if self.early.is_empty() {
            self.early.resize(COMMAND_WINDOW as usize, None);
        }
        if self.early[place(cmd_sn)].replace(early).is_none() {
            self.early_len += 1;
        }
    }

    fn take(&mut self, cmd_sn: SerialNumber) {
        if self.early.get_mut(place(cmd_sn)).is_some_and(|early| early.take().is_some()) {
            self.early_len -= 1;
        }
    }

    /// A command that came [`Arrival::Early`] waits on connection `cid`.
    pub(crate) fn hold(&mut self, cmd_sn: SerialNumber, cid: Cid) {
        self.put(cmd_sn, Early::Held(cid));
    }

    /// Counts a command that waits as delivered, when it is the next one.
    pub(crate) fn deliver(&mut self, cmd_sn: SerialNumber) -> Option<Waiters> {
        (cmd_sn == self.exp_cmd_sn).then(|| self.pass())
    }

    /// The command that waits is gone with its connection: its number may come again (RFC 7143 section 11.14).
    pub(crate) fn discard(&mut self, cmd_sn: SerialNumber) {
        self.take(cmd_sn);
    }

    /// Counts a command as received that will not be delivered: it was aborted before it came, or while it waited. `None`
    /// when its number is not one of those that are to come before `before` (RFC 7143 section 11.6.1).
    pub(crate) fn skip(&mut self, cmd_sn: SerialNumber, before: SerialNumber) -> Option<Waiters> {
        if !self.is_open(cmd_sn) || !cmd_sn.is_before(before) {
            return None;
        }
        if cmd_sn == self.exp_cmd_sn {
            return Some(self.pass());
        }
        self.put(cmd_sn, Early::Skipped);
        Some(Waiters::None)
    }

    /// Whether a connection holds the command of that number.
    pub(crate) fn holds(&self, cmd_sn: SerialNumber) -> bool {
        self.is_open(cmd_sn) && matches!(self.early.get(place(cmd_sn)), Some(Some(Early::Held(_))))
    }

    /// Whether all commands before `cmd_sn` have been received; if not, the connection that waits for them is told when they are.
    pub(crate) fn fence(&mut self, cmd_sn: SerialNumber) -> bool {
        let passed = !cmd_sn.is_after(self.exp_cmd_sn);
        if !passed {
            self.fences.push(cmd_sn);
        }
        passed
    }

    /// Whether what waits at `fence` is due. It waits no more then.
    pub(crate) fn pass_fence(&mut self, fence: SerialNumber) -> bool {
        let passed = !fence.is_after(self.exp_cmd_sn);
        if passed {
            self.remove_fence(fence);
        }
        passed
    }

    /// No request waits at `fence` any more.
    pub(crate) fn remove_fence(&mut self, fence: SerialNumber) {
        if let Some(at) = self.fences.iter().position(|known| *known == fence) {
            self.fences.swap_remove(at);
        }
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

    /// `tasks` of them have ended with their connection.
    pub(crate) fn tasks_lost(&mut self, tasks: u32) {
        (0..tasks).for_each(|_| self.task_ended());
        self.is_untold |= tasks > 0;
    }

    /// Whether the initiator has to be told how far the window is open.
    pub(crate) fn is_untold(&self) -> bool {
        self.is_untold
    }

    /// The initiator is told.
    pub(crate) fn told(&mut self) {
        self.is_untold = false;
    }

    fn advance(&mut self) {
        let room = COMMAND_WINDOW.saturating_sub(self.active);
        let edge = self.exp_cmd_sn.add(room).add(u32::MAX);
        if edge.is_after(self.max_cmd_sn) {
            self.max_cmd_sn = edge;
        }
    }
}

/// Where a number has its place. The window is never wider than the ring.
fn place(cmd_sn: SerialNumber) -> usize {
    (cmd_sn.0 % COMMAND_WINDOW) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEXT: Arrival = Arrival::Next(Waiters::None);

    #[test]
    fn commands_arrive_in_order_and_once() {
        for first in [0, 5, u32::MAX - 3] {
            let first = SerialNumber(first);
            let mut window = CommandWindow::new(first);
            assert_eq!(window.arrive(first.next()), Arrival::Early);
            assert_eq!(window.arrive(first), NEXT);
            assert_eq!(window.arrive(first), Arrival::Ignored);
            assert_eq!(window.arrive(first.next()), NEXT);
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
        while window.arrive(next) == NEXT {
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

    #[test]
    fn what_comes_early_is_delivered_by_its_connection_when_the_gap_is_filled() {
        for first in [10, u32::MAX - 1] {
            let first = SerialNumber(first);
            let mut window = CommandWindow::new(first);
            for (ahead, cid) in [(1, 7), (2, 8)] {
                assert_eq!(window.arrive(first.add(ahead)), Arrival::Early);
                window.hold(first.add(ahead), Cid(cid));
                assert_eq!(window.arrive(first.add(ahead)), Arrival::Ignored, "it has been received");
            }
            assert_eq!(window.deliver(first.add(1)), None, "not its turn");
            assert_eq!(window.arrive(first), Arrival::Next(Waiters::One(Cid(7))));
            assert_eq!(window.deliver(first.add(1)), Some(Waiters::One(Cid(8))));
            assert_eq!(window.deliver(first.add(2)), Some(Waiters::None));
            assert_eq!(window.exp_cmd_sn(), first.add(3));
            assert_eq!(window.arrive(first.add(3)), NEXT);
        }
    }

    #[test]
    fn what_waited_on_a_lost_connection_may_come_again() {
        let mut window = CommandWindow::new(SerialNumber(0));
        window.hold(SerialNumber(1), Cid(7));
        window.discard(SerialNumber(1));
        assert_eq!(window.arrive(SerialNumber(0)), NEXT);
        assert_eq!(window.arrive(SerialNumber(1)), NEXT);
    }

    #[test]
    fn a_number_that_was_aborted_is_passed_over() {
        let mut window = CommandWindow::new(SerialNumber(0));
        assert_eq!(window.skip(SerialNumber(1), SerialNumber(3)), Some(Waiters::None));
        assert_eq!(window.skip(SerialNumber(3), SerialNumber(3)), None, "not before the request");
        window.hold(SerialNumber(2), Cid(7));
        assert_eq!(window.arrive(SerialNumber(1)), Arrival::Ignored);
        assert_eq!(window.arrive(SerialNumber(0)), Arrival::Next(Waiters::One(Cid(7))));
        assert_eq!(window.exp_cmd_sn(), SerialNumber(2));
        assert_eq!(window.skip(SerialNumber(1), SerialNumber(3)), None, "it has been received");
    }

    #[test]
    fn a_fence_is_passed_when_all_before_it_has_come() {
        let mut window = CommandWindow::new(SerialNumber(0));
        assert!(window.fence(SerialNumber(0)));
        assert!(!window.fence(SerialNumber(2)));
        assert_eq!(window.arrive(SerialNumber(0)), NEXT);
        assert!(!window.pass_fence(SerialNumber(2)));
        assert_eq!(window.arrive(SerialNumber(1)), Arrival::Next(Waiters::Any));
        assert!(window.pass_fence(SerialNumber(2)));
        assert_eq!(window.arrive(SerialNumber(2)), NEXT);
    }
}
