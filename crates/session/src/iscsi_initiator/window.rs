//! Command numbers, the initiator's view (RFC 7143 section 4.2.2.1).

use lunette_pdu::SerialNumber;

use super::error::{SessionError, broken};

/// CmdSN, and what the target has said about it.
#[derive(Debug)]
pub(crate) struct Window {
    /// CmdSN of the next command.
    next: SerialNumber,
    /// ExpCmdSN.
    expected: SerialNumber,
    /// MaxCmdSN.
    max: SerialNumber,
}

impl Window {
    /// Closed, until the target opens it. `first` is the number of the first command.
    pub(crate) fn new(first: SerialNumber) -> Self {
        Self { next: first, expected: first, max: first.add(u32::MAX) }
    }

    /// The number that the next command will carry, and every immediate one before it.
    pub(crate) fn cmd_sn(&self) -> SerialNumber {
        self.next
    }

    /// The number of a command that is sent now.
    pub(crate) fn take(&mut self) -> SerialNumber {
        let cmd_sn = self.next;
        self.next = cmd_sn.next();
        cmd_sn
    }

    /// Commands that the target takes now.
    pub(crate) fn room(&self) -> usize {
        usize::try_from(self.max.next().distance_from(self.next)).unwrap_or(0)
    }

    /// Whether the target has said that it has everything up to this number.
    pub(crate) fn is_acknowledged(&self, cmd_sn: SerialNumber) -> bool {
        cmd_sn.is_before(self.expected)
    }

    /// The number that the target waits for, when it has not said that it has all that were sent.
    pub(crate) fn waits_for(&self) -> Option<SerialNumber> {
        (self.expected != self.next).then_some(self.expected)
    }

    /// Every PDU of a target reports ExpCmdSN and MaxCmdSN. Those that were overtaken by others change nothing.
    pub(crate) fn update(&mut self, exp_cmd_sn: SerialNumber, max_cmd_sn: SerialNumber) -> Result<(), SessionError> {
        if exp_cmd_sn.is_after(self.next) {
            let sent = self.next;
            return Err(broken("4.2.2.1", format!("ExpCmdSN {exp_cmd_sn} lies beyond {sent}, which is not sent yet")));
        }
        if max_cmd_sn.is_before(exp_cmd_sn.add(u32::MAX)) {
            return Ok(());
        }
        if exp_cmd_sn.is_after(self.expected) {
            self.expected = exp_cmd_sn;
        }
        if max_cmd_sn.is_after(self.max) {
            self.max = max_cmd_sn;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_what_the_target_grants_less_what_was_sent() {
        for first in [SerialNumber(0), SerialNumber(u32::MAX - 2)] {
            let mut window = Window::new(first);
            assert_eq!(window.room(), 0);
            window.update(first, first.add(3)).unwrap();
            assert_eq!(window.room(), 4);
            assert_eq!(window.take(), first);
            assert_eq!((window.take(), window.room()), (first.next(), 2));
            window.update(first.next(), first.add(8)).unwrap();
            assert_eq!(window.room(), 7);
        }
    }

    #[test]
    fn stale_and_contradictory_numbers_are_ignored() {
        let mut window = Window::new(SerialNumber(10));
        window.update(SerialNumber(10), SerialNumber(19)).unwrap();
        for _ in 0..5 {
            window.take();
        }
        window.update(SerialNumber(15), SerialNumber(30)).unwrap();
        window.update(SerialNumber(12), SerialNumber(20)).unwrap();
        assert_eq!(window.room(), 16);
        window.update(SerialNumber(15), SerialNumber(13)).unwrap();
        assert_eq!(window.room(), 16);
    }

    #[test]
    fn a_number_that_was_not_sent_cannot_be_expected() {
        let mut window = Window::new(SerialNumber(10));
        assert!(window.update(SerialNumber(11), SerialNumber(20)).is_err());
        assert_eq!(window.room(), 0);
    }
}
