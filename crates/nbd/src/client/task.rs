//! A request of the store as a sequence of commands. Pure.

use lunette_store::Op;

use super::facts::Facts;
use crate::wire::{Request, can, command, flag};

/// The zeroes that are written to a server without `WRITE_ZEROES`.
static ZEROES: [u8; 256 << 10] = [0; 256 << 10];

/// A request of the store, of which some commands may have succeeded. They follow one another.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) op: Op,
    /// Bytes that are done.
    at: u64,
    /// The flush after a write is under way, because the server has no FUA.
    flushes: bool,
}

impl Task {
    pub(crate) fn new(op: Op) -> Self {
        Self { op, at: 0, flushes: false }
    }

    /// Whether the request takes no command, because the export has nothing to do for it.
    pub(crate) fn is_void(op: &Op, facts: &Facts) -> bool {
        match op {
            Op::Flush => facts.read_only() || facts.writes_through(),
            Op::Unmap { len, .. } => *len == 0 || !facts.can(can::TRIM),
            Op::Allocation { .. } | Op::Copy { .. } => true,
            Op::Read { .. } | Op::Write { .. } | Op::WriteZeroes { .. } => op.range().1 == 0,
        }
    }

    /// The next command. Its length is 0 for a flush alone.
    pub(crate) fn request(&self, facts: &Facts, cookie: u64) -> Request {
        let (offset, len) = self.op.range();
        let left = len.saturating_sub(self.at);
        let at_most = |most: u32| u32::try_from(left).unwrap_or(u32::MAX).min(most);
        let whole = at_most(facts.max_len);
        let through = (self.op.fua() || facts.writes_through()) && facts.can(can::FUA);
        let fua = if through { flag::FUA } else { 0 };
        let (command, flags, len) = match &self.op {
            _ if self.flushes => (command::FLUSH, 0, 0),
            Op::Read { .. } => (command::READ, 0, whole),
            Op::Write { .. } => (command::WRITE, fua, whole),
            Op::WriteZeroes { may_unmap, .. } if facts.can(can::WRITE_ZEROES) => {
                (command::WRITE_ZEROES, fua | if *may_unmap { 0 } else { flag::NO_HOLE }, whole)
            }
            Op::WriteZeroes { .. } => (command::WRITE, fua, at_most(facts.max_len.min(ZEROES.len() as u32))),
            Op::Unmap { .. } => (command::TRIM, fua, whole),
            Op::Flush | Op::Allocation { .. } | Op::Copy { .. } => (command::FLUSH, 0, 0),
        };
        // The range was checked against the length of the export.
        let offset = if len == 0 { 0 } else { offset.saturating_add(self.at) };
        Request { flags, command, cookie, offset, len }
    }

    /// The bytes that follow the present command.
    pub(crate) fn payload(&self, request: &Request) -> &[u8] {
        match &self.op {
            _ if request.command != command::WRITE => None,
            Op::Write { from, .. } => from.get(self.at as usize..).and_then(|rest| rest.get(..request.len as usize)),
            _ => ZEROES.get(..request.len as usize),
        }
        .unwrap_or_default()
    }

    /// The room for `len` bytes from the byte `at` of the present command, which is a read.
    pub(crate) fn room(&mut self, at: u32, len: u32) -> Option<&mut [u8]> {
        let Op::Read { into, .. } = &mut self.op else { return None };
        let begin = usize::try_from(self.at).ok()?.checked_add(at as usize)?;
        into.get_mut(begin..begin.checked_add(len as usize)?)
    }

    /// The present command has succeeded. Whether it was the last one.
    pub(crate) fn advance(&mut self, request: &Request, facts: &Facts) -> bool {
        if self.flushes {
            return true;
        }
        self.at = self.at.saturating_add(request.len.into());
        if self.at < self.op.range().1 {
            return false;
        }
        self.flushes = self.op.fua() && !facts.can(can::FUA);
        !self.flushes
    }

    /// Whether the present command is a flush.
    pub(crate) fn is_flush(&self) -> bool {
        self.flushes || matches!(self.op, Op::Flush)
    }

    /// Begins with the first command again: what an earlier connection has acknowledged may be lost with it.
    pub(crate) fn restart(&mut self) {
        self.at = 0;
        self.flushes = false;
    }
}

#[cfg(test)]
mod tests {
    use lunette_buffer::Pool;

    use super::super::handshake::Agreed;
    use super::*;

    fn facts(flags: u16) -> Facts {
        let block_sizes = Some([1, 4096, 1 << 20]);
        let flags = flags | can::HAS_FLAGS;
        Facts::new(&Agreed { len_bytes: 1 << 40, flags, block_sizes, structured: false }, false).unwrap()
    }

    /// The commands of `op`: command, flags, offset, length and bytes of payload.
    fn commands(op: Op, facts: &Facts) -> Vec<(u16, u16, u64, u32, usize)> {
        let (mut task, mut commands) = (Task::new(op), Vec::new());
        loop {
            let request = task.request(facts, 0);
            let payload = task.payload(&request).len();
            commands.push((request.command, request.flags, request.offset, request.len, payload));
            if task.advance(&request, facts) {
                return commands;
            }
        }
    }

    fn write(len: usize, fua: bool) -> Op {
        Op::Write { offset: 512, from: Pool::new(4 << 20).take(len).unwrap(), fua }
    }

    #[test]
    fn long_requests_are_sent_in_pieces() {
        let (all, mib) = (facts(can::FLUSH | can::FUA | can::WRITE_ZEROES), 1 << 20);
        assert_eq!(
            commands(write(mib + 512, true), &all),
            [(command::WRITE, flag::FUA, 512, 1 << 20, mib), (command::WRITE, flag::FUA, 512 + (1 << 20), 512, 512)]
        );
        let zeroes = |may_unmap| Op::WriteZeroes { offset: 0, len: 1 << 40, may_unmap, fua: false };
        let sent = commands(zeroes(false), &all);
        assert_eq!(sent.len(), 1 << 20);
        assert_eq!(sent[1], (command::WRITE_ZEROES, flag::NO_HOLE, 1 << 20, 1 << 20, 0));
        assert_eq!(commands(zeroes(true), &all)[0].1, 0);
    }

    #[test]
    fn what_the_server_has_not_is_made_of_what_it_has() {
        let flushes = facts(can::FLUSH);
        assert_eq!(
            commands(write(512, true), &flushes),
            [(command::WRITE, 0, 512, 512, 512), (command::FLUSH, 0, 0, 0, 0)]
        );
        let zeroes = Op::WriteZeroes { offset: 0, len: 300 << 10, may_unmap: true, fua: false };
        assert_eq!(
            commands(zeroes, &flushes),
            [(command::WRITE, 0, 0, 256 << 10, 256 << 10), (command::WRITE, 0, 256 << 10, 44 << 10, 44 << 10)]
        );
        assert!(Task::is_void(&Op::Unmap { offset: 0, len: 512 }, &flushes));
        let through = facts(can::FUA | can::TRIM);
        assert_eq!(commands(write(512, false), &through), [(command::WRITE, flag::FUA, 512, 512, 512)]);
        assert!(Task::is_void(&Op::Flush, &through), "nothing is left to flush");
        let trim = Op::Unmap { offset: 512, len: 512 };
        assert_eq!(commands(trim, &through), [(command::TRIM, flag::FUA, 512, 512, 0)]);
    }

    #[test]
    fn a_task_that_begins_again_forgets_what_was_done() {
        let flushes = facts(can::FLUSH);
        let mut task = Task::new(write(512, true));
        let first = task.request(&flushes, 1);
        assert!(!task.advance(&first, &flushes) && task.is_flush());
        task.restart();
        assert_eq!(task.request(&flushes, 1), first);
    }
}
