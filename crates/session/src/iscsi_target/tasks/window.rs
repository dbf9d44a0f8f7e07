//! CmdSN order and the command window of a session (RFC 7143 section 4.2.2.1), over all of its connections.
//!
//! The window begins with [`COMMAND_WINDOW`] places and doubles when the session uses most of them, because over a long
//! distance most commands of a window are on their way: 128 of 4 KiB are 10 MB/s over 50 ms. It takes places back when
//! the share of the buffers of one of the session's connections is used up. MaxCmdSN does not go back then: it stands
//! still until the tasks that are too many have ended. The same holds for a window of which less than a quarter is used
//! for [`UNUSED_WINDOW_TIME`]. So the places that count are those of the tasks and of the numbers that may still
//! arrive, whatever the width is by now.

mod handover;

use lunette_pdu::{Cid, SerialNumber};

use crate::Time;
use crate::limits::{COMMAND_WINDOW, MAX_COMMAND_WINDOW, MAX_RECOVERY_COMMAND_WINDOW, UNUSED_WINDOW_TIME};

/// The buffers that the commands of one connection hold, and the most that they may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferShare {
    /// Bytes that they hold.
    pub held_bytes: usize,
    /// Bytes that they may hold.
    pub most_bytes: usize,
}

impl BufferShare {
    /// The one of which the greater part is held.
    pub(crate) fn fuller(self, other: Self) -> Self {
        let held_of = |a: Self, b: Self| a.held_bytes as u128 * b.most_bytes as u128;
        if held_of(self, other) >= held_of(other, self) { self } else { other }
    }

    fn is_used_up(self) -> bool {
        self.held_bytes >= self.most_bytes
    }

    /// Whether there is room for twice as many commands that hold as much each.
    fn has_room_for_twice(self) -> bool {
        self.held_bytes <= self.most_bytes / 2
    }
}

/// The fate of a non-immediate command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The command is the next one: deliver it. Others may have waited for it.
    Next(Waiters),
    /// The command is inside the window, but commands before it have not arrived.
    Early,
    /// The command is outside the window or has been received before: RFC 7143 wants it ignored without an answer.
    Ignored,
}

/// Connections that hold what is due now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiters {
    /// No connection holds anything that is due.
    None,
    /// The connection of this CID holds the next command.
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
    /// Places for tasks.
    width: u32,
    /// The most places that there may be.
    most: u32,
    /// Whether a quarter of them has been used since the last look at that.
    is_used: bool,
    /// The time of the next one.
    next_look: Option<Time>,
    /// Tasks that have arrived through the window and not ended.
    active: u32,
    /// The commands that were received early, by the last bits of their numbers. Empty until a command overtakes
    /// another for the first time; then a power of two of slots, at least as many as numbers that may arrive.
    early: Vec<Option<Early>>,
    /// How many of these there are.
    early_len: u32,
    /// Tasks have ended with their connection, so that no answer tells the initiator how far the window is open.
    is_untold: bool,
    /// Numbers that task management requests wait for: they are due once every command before them has been received.
    fences: Vec<SerialNumber>,
}

const _: () = assert!(COMMAND_WINDOW.is_power_of_two(), "numbers keep their slot when they wrap");
const _: () =
    assert!(COMMAND_WINDOW <= MAX_RECOVERY_COMMAND_WINDOW && MAX_RECOVERY_COMMAND_WINDOW <= MAX_COMMAND_WINDOW);

impl CommandWindow {
    /// The window of a session of that recovery level, whose first command has that number.
    pub(crate) fn new(first: SerialNumber, error_recovery_level: u32) -> Self {
        Self {
            exp_cmd_sn: first,
            max_cmd_sn: first.add(COMMAND_WINDOW - 1),
            width: COMMAND_WINDOW,
            most: if error_recovery_level == 0 { MAX_COMMAND_WINDOW } else { MAX_RECOVERY_COMMAND_WINDOW },
            is_used: false,
            next_look: None,
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

    /// MaxCmdSN as it is told from now on. It moves as commands are *received*, so that an initiator never waits for an
    /// answer that it does not need, but only as far as there is room for tasks. It never goes back.
    pub(crate) fn max_cmd_sn(&mut self) -> SerialNumber {
        self.advance();
        self.max_cmd_sn
    }

    /// Places beyond those that every session has: this many tasks may be added before [`fit`](Self::fit) is called
    /// again.
    pub(crate) fn extra_places(&self) -> u32 {
        self.width.max(self.active.saturating_add(self.open_numbers())) - COMMAND_WINDOW
    }

    /// Numbers that may still arrive, or have arrived before their turn.
    fn open_numbers(&self) -> u32 {
        self.max_cmd_sn.next().distance_from(self.exp_cmd_sn).try_into().unwrap_or(0)
    }

    /// Lets the number of places follow its use. `awaited`: commands that the initiator waits for, as far as the target
    /// can tell. `most_extra`: the window does not grow beyond as many [extra places](Self::extra_places).
    pub(crate) fn fit(&mut self, awaited: u32, share: BufferShare, most_extra: u32) {
        self.is_used |= awaited >= self.quarter();
        if share.is_used_up() {
            self.width = self.active.clamp(COMMAND_WINDOW, self.width);
        } else if awaited >= self.most_of_it() && share.has_room_for_twice() {
            let most = self.most.min(COMMAND_WINDOW.saturating_add(most_extra));
            self.widen((2 * self.width).min(most).max(self.width));
        }
    }

    /// Takes half of the places back when less than a quarter of them has been used for [`UNUSED_WINDOW_TIME`].
    pub(crate) fn narrow_unused(&mut self, awaited: u32, now: Time) {
        self.is_used |= awaited >= self.quarter();
        if self.next_look.is_some_and(|at| now < at) {
            return;
        }
        let is_first = self.next_look.replace(now + UNUSED_WINDOW_TIME).is_none();
        if !std::mem::take(&mut self.is_used) && !is_first {
            self.width = (self.width / 2).max(COMMAND_WINDOW);
        }
    }

    /// Commands that the initiator waits for from which on [`fit`](Self::fit) may change something.
    pub(crate) fn fit_from(&self) -> u32 {
        if self.is_used || self.width == COMMAND_WINDOW { self.most_of_it() } else { self.quarter() }
    }

    fn quarter(&self) -> u32 {
        self.width / 4
    }

    fn most_of_it(&self) -> u32 {
        self.width - self.quarter()
    }

    fn widen(&mut self, width: u32) {
        self.width = width;
        if !self.early.is_empty() {
            self.make_slots();
        }
        self.advance();
    }

    /// Makes slots for all numbers that may arrive early. After the window became narrower there are more of them than
    /// its width.
    fn make_slots(&mut self) {
        let len = self.width.max(self.open_numbers()).next_power_of_two() as usize;
        if len <= self.early.len() {
            return;
        }
        let old = std::mem::replace(&mut self.early, vec![None; len]);
        for ahead in 0..old.len() as u32 {
            let cmd_sn = self.exp_cmd_sn.add(ahead);
            let at = self.slot(cmd_sn);
            self.early[at] = old[cmd_sn.0 as usize % old.len()];
        }
    }

    /// The index of a number in `early`, once there are slots.
    fn slot(&self, cmd_sn: SerialNumber) -> usize {
        // The length is a power of two, so numbers keep their slot when they wrap.
        cmd_sn.0 as usize & self.early.len().wrapping_sub(1)
    }

    /// ExpCmdSN and MaxCmdSN, as every PDU of the target reports them.
    pub(crate) fn numbers(&mut self) -> (SerialNumber, SerialNumber) {
        (self.exp_cmd_sn, self.max_cmd_sn())
    }

    /// Whether the initiator may send no numbered command: MaxCmdSN is ExpCmdSN − 1.
    pub(crate) fn is_closed(&self) -> bool {
        self.max_cmd_sn.is_before(self.exp_cmd_sn)
    }

    /// Judges the number of a command and, when it is the next one, counts it as received. What has become of it (a
    /// task, or nothing that lasts) is known only later, so MaxCmdSN does not move yet.
    pub(crate) fn arrive(&mut self, cmd_sn: SerialNumber) -> Arrival {
        if self.is_next(cmd_sn) {
            self.exp_cmd_sn = cmd_sn.next();
            return Arrival::Next(Waiters::None);
        }
        self.arrive_among_others(cmd_sn)
    }

    /// Whether a command is the next one, and none has come before its turn.
    #[inline]
    pub(crate) fn is_next(&self, cmd_sn: SerialNumber) -> bool {
        cmd_sn == self.exp_cmd_sn && !self.is_closed() && self.early_len == 0 && self.fences.is_empty()
    }

    fn arrive_among_others(&mut self, cmd_sn: SerialNumber) -> Arrival {
        let received = !self.is_open(cmd_sn) || self.early.get(self.slot(cmd_sn)).is_some_and(Option::is_some);
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
            if self.early.get(self.slot(self.exp_cmd_sn)) != Some(&Some(Early::Skipped)) {
                return self.waiters();
            }
        }
    }

    fn waiters(&self) -> Waiters {
        match self.early.get(self.slot(self.exp_cmd_sn)) {
            _ if self.fences.iter().any(|fence| !fence.is_after(self.exp_cmd_sn)) => Waiters::Any,
            Some(Some(Early::Held(cid))) => Waiters::One(*cid),
            _ => Waiters::None,
        }
    }

    fn put(&mut self, cmd_sn: SerialNumber, early: Early) {
        if self.early.is_empty() {
            self.make_slots();
        }
        let at = self.slot(cmd_sn);
        if self.early[at].replace(early).is_none() {
            self.early_len += 1;
        }
    }

    fn take(&mut self, cmd_sn: SerialNumber) {
        let at = self.slot(cmd_sn);
        if self.early.get_mut(at).is_some_and(|early| early.take().is_some()) {
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

    /// Counts a command as received that will not be delivered: it was aborted before it came, or while it waited.
    /// `None` when its number is not one of those that are to come before `before` (RFC 7143 section 11.6.1).
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
        self.is_open(cmd_sn) && matches!(self.early.get(self.slot(cmd_sn)), Some(Some(Early::Held(_))))
    }

    /// Whether all commands before `cmd_sn` have been received; if not, the connection that waits for them is told when
    /// they are.
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

    /// Notes the end of such a task; the window opens by one.
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
        let room = self.width.saturating_sub(self.active);
        let edge = self.exp_cmd_sn.add(room).add(u32::MAX);
        if edge.is_after(self.max_cmd_sn) {
            self.max_cmd_sn = edge;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEXT: Arrival = Arrival::Next(Waiters::None);

    #[test]
    fn commands_arrive_in_order_and_once() {
        for first in [0, 5, u32::MAX - 3] {
            let first = SerialNumber(first);
            let mut window = CommandWindow::new(first, 0);
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
        let mut window = CommandWindow::new(SerialNumber(100), 0);
        assert_eq!(window.arrive(SerialNumber(100 + COMMAND_WINDOW)), Arrival::Ignored);
        assert_eq!(window.arrive(SerialNumber(99)), Arrival::Ignored);
        assert_eq!(window.arrive(SerialNumber(100 + COMMAND_WINDOW - 1)), Arrival::Early);
    }

    #[test]
    fn the_window_closes_when_tasks_pile_up_and_opens_when_they_end() {
        let mut window = CommandWindow::new(SerialNumber(0), 0);
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
            let mut window = CommandWindow::new(first, 0);
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
        let mut window = CommandWindow::new(SerialNumber(0), 0);
        window.hold(SerialNumber(1), Cid(7));
        window.discard(SerialNumber(1));
        assert_eq!(window.arrive(SerialNumber(0)), NEXT);
        assert_eq!(window.arrive(SerialNumber(1)), NEXT);
    }

    #[test]
    fn a_number_that_was_aborted_is_passed_over() {
        let mut window = CommandWindow::new(SerialNumber(0), 0);
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
        let mut window = CommandWindow::new(SerialNumber(0), 0);
        assert!(window.fence(SerialNumber(0)));
        assert!(!window.fence(SerialNumber(2)));
        assert_eq!(window.arrive(SerialNumber(0)), NEXT);
        assert!(!window.pass_fence(SerialNumber(2)));
        assert_eq!(window.arrive(SerialNumber(1)), Arrival::Next(Waiters::Any));
        assert!(window.pass_fence(SerialNumber(2)));
        assert_eq!(window.arrive(SerialNumber(2)), NEXT);
    }

    /// A share of which nothing is held.
    const FREE: BufferShare = BufferShare { held_bytes: 0, most_bytes: 1 << 20 };

    fn width(window: &mut CommandWindow) -> u32 {
        window.max_cmd_sn().next().distance_from(window.exp_cmd_sn()).unsigned_abs()
    }

    #[test]
    fn a_window_that_is_used_doubles_up_to_its_bounds() {
        for (level, most) in [(0, MAX_COMMAND_WINDOW), (1, MAX_RECOVERY_COMMAND_WINDOW)] {
            let mut window = CommandWindow::new(SerialNumber(u32::MAX - 200), level);
            window.fit(COMMAND_WINDOW / 2, FREE, u32::MAX / 2);
            assert_eq!(width(&mut window), COMMAND_WINDOW, "half of it is enough");
            let mut expected = COMMAND_WINDOW;
            while expected < most {
                window.fit(expected, FREE, u32::MAX / 2);
                expected *= 2;
                assert_eq!(width(&mut window), expected);
            }
            window.fit(expected, FREE, u32::MAX / 2);
            assert_eq!(width(&mut window), most);
        }
    }

    #[test]
    fn no_window_grows_beyond_the_buffers_or_the_spare_places() {
        let mut window = CommandWindow::new(SerialNumber(0), 0);
        window.fit(COMMAND_WINDOW, BufferShare { held_bytes: 51, most_bytes: 100 }, 1000);
        assert_eq!(width(&mut window), COMMAND_WINDOW, "twice as many commands would hold more than the share");
        window.fit(COMMAND_WINDOW, FREE, 0);
        assert_eq!(width(&mut window), COMMAND_WINDOW);
        window.fit(COMMAND_WINDOW, FREE, 30);
        assert_eq!((width(&mut window), window.extra_places()), (COMMAND_WINDOW + 30, 30));
    }

    #[test]
    fn the_fuller_share_is_that_of_which_the_greater_part_is_held() {
        let share = |held_bytes, most_bytes| BufferShare { held_bytes, most_bytes };
        for (fuller, other) in [((1, 2), (9, 20)), ((5, 5), (99, 100)), ((7, 3), (1, 1)), ((1, 0), (50, 100))] {
            let (fuller, other) = (share(fuller.0, fuller.1), share(other.0, other.1));
            assert_eq!((fuller.fuller(other), other.fuller(fuller)), (fuller, fuller));
        }
    }

    #[test]
    fn a_share_that_is_used_up_takes_places_back_as_tasks_end() {
        let mut window = CommandWindow::new(SerialNumber(0), 0);
        window.fit(COMMAND_WINDOW, FREE, 1000);
        let mut next = SerialNumber(0);
        for _ in 0..200 {
            assert_eq!(window.arrive(next), NEXT);
            window.task_started();
            next = next.next();
        }
        let told = window.max_cmd_sn();
        window.fit(200, BufferShare { held_bytes: 100, most_bytes: 100 }, 1000);
        assert_eq!(window.max_cmd_sn(), told, "what was told holds");
        assert_eq!(window.extra_places(), COMMAND_WINDOW, "those that were told may run beside those that do");
        for _ in 0..56 {
            window.task_ended();
        }
        assert_eq!(window.max_cmd_sn(), told, "the places of those that were told are still to be used");
        assert_eq!(window.extra_places(), 200 - COMMAND_WINDOW, "those that ran keep theirs");
        window.task_ended();
        assert_eq!(window.max_cmd_sn(), told.next());
        assert_eq!(window.extra_places(), 200 - COMMAND_WINDOW);
    }

    #[test]
    fn a_window_that_is_little_used_for_a_time_gives_places_back() {
        let at = |seconds| Time::new(std::time::Duration::from_secs(seconds));
        let period = UNUSED_WINDOW_TIME.as_secs();
        let mut window = CommandWindow::new(SerialNumber(0), 0);
        window.narrow_unused(0, at(0));
        for width in [COMMAND_WINDOW, 2 * COMMAND_WINDOW] {
            window.fit(width, FREE, u32::MAX);
        }
        let wide = 4 * COMMAND_WINDOW;
        assert_eq!(window.fit_from(), wide - wide / 4, "it has been used");
        window.narrow_unused(0, at(period));
        assert_eq!(window.fit_from(), wide / 4, "whether it is used again is to be seen");
        window.fit(wide / 4, FREE, u32::MAX);
        window.narrow_unused(0, at(2 * period));
        window.narrow_unused(wide / 4 - 1, at(3 * period - 1));
        assert_eq!(window.width, wide, "a quarter was used, and then the time was not over");
        window.narrow_unused(wide / 4 - 1, at(3 * period));
        assert_eq!((window.width, window.extra_places()), (wide / 2, wide - COMMAND_WINDOW), "what was told holds");
        let told = window.max_cmd_sn();
        for cmd_sn in 0..wide / 2 {
            assert_eq!(window.max_cmd_sn(), told);
            assert_eq!(window.arrive(SerialNumber(cmd_sn)), NEXT);
        }
        assert_eq!((window.max_cmd_sn(), window.extra_places()), (told, wide / 2 - COMMAND_WINDOW));
        for check in 4..10 {
            window.narrow_unused(0, at(check * period));
        }
        assert_eq!(window.width, COMMAND_WINDOW);
    }

    mod random {
        use std::collections::BTreeMap;

        use proptest::prelude::*;

        use super::*;

        #[derive(Debug, Clone)]
        enum Step {
            /// A command that is so far ahead of the one that is due.
            Arrive(u32),
            End,
            Fit {
                awaited: u32,
                held_bytes: usize,
            },
        }

        fn step() -> impl Strategy<Value = Step> {
            prop_oneof![
                4 => (0..40_u32).prop_map(Step::Arrive),
                2 => (0..600_u32).prop_map(Step::Arrive),
                2 => Just(Step::End),
                1 => (0..600_u32, 0..4_usize).prop_map(|(awaited, held_bytes)| Step::Fit { awaited, held_bytes }),
            ]
        }

        proptest! {
            /// Against a map of what came early. A connection that holds a command has its number.
            #[test]
            fn max_cmd_sn_never_goes_back_and_what_came_early_is_found(
                first: u32,
                steps in prop::collection::vec(step(), 1..600),
            ) {
                let mut window = CommandWindow::new(SerialNumber(first), 0);
                let mut early = BTreeMap::new();
                let (mut due, mut told) = (SerialNumber(first), window.max_cmd_sn());
                let mut extra = window.extra_places();
                for step in steps {
                    let fitted = matches!(step, Step::Fit { .. });
                    match step {
                        Step::Arrive(ahead) => {
                            let cmd_sn = due.add(ahead);
                            let is_open = !cmd_sn.is_after(told) && !early.contains_key(&cmd_sn.0);
                            let arrival = window.arrive(cmd_sn);
                            match (is_open, ahead) {
                                (false, _) => prop_assert_eq!(arrival, Arrival::Ignored),
                                (true, 1..) => {
                                    prop_assert_eq!(arrival, Arrival::Early);
                                    let cid = Cid(early.len() as u16);
                                    window.hold(cmd_sn, cid);
                                    early.insert(cmd_sn.0, cid);
                                }
                                (true, 0) => {
                                    let mut waiters = arrival;
                                    loop {
                                        window.task_started();
                                        due = due.next();
                                        let Some(cid) = early.remove(&due.0) else { break };
                                        prop_assert_eq!(waiters, Arrival::Next(Waiters::One(cid)));
                                        waiters = Arrival::Next(window.deliver(due).expect("it is due"));
                                    }
                                    prop_assert_eq!(waiters, NEXT);
                                }
                            }
                        }
                        Step::End => window.task_ended(),
                        Step::Fit { awaited, held_bytes } => {
                            window.fit(awaited, BufferShare { held_bytes, most_bytes: 3 }, 1000);
                        }
                    }
                    prop_assert_eq!(window.exp_cmd_sn(), due);
                    prop_assert!(!window.max_cmd_sn().is_before(told));
                    told = window.max_cmd_sn();
                    prop_assert!(fitted || window.extra_places() <= extra, "{} after {extra}", window.extra_places());
                    prop_assert!(window.extra_places() <= extra.max(1000));
                    extra = window.extra_places();
                }
            }
        }
    }
}
