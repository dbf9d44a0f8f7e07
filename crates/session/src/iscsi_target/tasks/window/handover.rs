//! The command window of a session at a standstill, as a value.

use lunette_handover as handover;
use lunette_pdu::SerialNumber;

use super::CommandWindow;
use crate::iscsi_target::handover::InheritError;
use crate::limits::{COMMAND_WINDOW, MAX_COMMAND_WINDOW};

impl CommandWindow {
    /// Whether a request that has come before its turn waits for this number.
    pub(crate) fn is_awaited(&self, cmd_sn: SerialNumber) -> bool {
        let waits = |ahead: &SerialNumber| self.holds(*ahead);
        self.is_open(cmd_sn)
            && (self.fences.iter().any(|fence| cmd_sn.is_before(*fence))
                || (self.early_len > 0
                    && (1..self.open_numbers()).map(|ahead| cmd_sn.add(ahead)).any(|ahead| waits(&ahead))))
    }

    /// Whether a task holds a place, or a request waits for others.
    pub(crate) fn is_in_use(&self) -> bool {
        self.active > 0 || self.early_len > 0 || !self.fences.is_empty()
    }

    pub(crate) fn hand_over(&self) -> handover::Window {
        handover::Window {
            exp_cmd_sn: self.exp_cmd_sn.0,
            max_cmd_sn: self.max_cmd_sn.0,
            width: self.width,
            untold: self.is_untold,
        }
    }

    pub(crate) fn inherit(from: &handover::Window, error_recovery_level: u32) -> Result<Self, InheritError> {
        let mut window = Self::new(SerialNumber(from.exp_cmd_sn), error_recovery_level);
        let max_cmd_sn = SerialNumber(from.max_cmd_sn);
        // One number before ExpCmdSN, when the window is closed.
        let open = max_cmd_sn.next().distance_from(window.exp_cmd_sn);
        if !(0..=i64::from(MAX_COMMAND_WINDOW)).contains(&i64::from(open)) {
            return Err(InheritError::Malformed("a command window"));
        }
        window.max_cmd_sn = max_cmd_sn;
        window.width = from.width.clamp(COMMAND_WINDOW, window.most);
        window.is_untold = from.untold;
        Ok(window)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Arrival;
    use super::*;
    use lunette_pdu::Cid;

    #[test]
    fn what_may_come_next_stays_the_same() {
        let mut window = CommandWindow::new(SerialNumber(u32::MAX - 1), 0);
        window.arrive(SerialNumber(u32::MAX - 1));
        window.task_started();
        window.task_ended();
        let mut other = CommandWindow::inherit(&window.hand_over(), 0).unwrap();
        assert_eq!(other.numbers(), window.numbers());
        assert_eq!(other.arrive(SerialNumber(u32::MAX - 1)), Arrival::Ignored);
        assert!(matches!(other.arrive(SerialNumber(u32::MAX)), Arrival::Next(_)));
    }

    #[test]
    fn a_number_before_one_that_waits_is_awaited() {
        let mut window = CommandWindow::new(SerialNumber(7), 0);
        assert!(!window.is_awaited(SerialNumber(7)) && !window.is_in_use());
        window.hold(SerialNumber(9), Cid(1));
        let awaited: Vec<u32> = (5..12).filter(|number| window.is_awaited(SerialNumber(*number))).collect();
        assert_eq!(awaited, [7, 8]);
        assert!(window.is_in_use());
        window.discard(SerialNumber(9));
        assert!(!window.fence(SerialNumber(8)));
        assert!(window.is_awaited(SerialNumber(7)) && !window.is_awaited(SerialNumber(8)));
    }

    #[test]
    fn numbers_that_no_window_has_are_refused() {
        for max_cmd_sn in [0, 98, 99 + MAX_COMMAND_WINDOW + 1] {
            let from = handover::Window { exp_cmd_sn: 100, max_cmd_sn, ..Default::default() };
            assert!(CommandWindow::inherit(&from, 0).is_err(), "{max_cmd_sn}");
        }
        let closed = handover::Window { exp_cmd_sn: 100, max_cmd_sn: 99, ..Default::default() };
        assert!(CommandWindow::inherit(&closed, 0).is_ok());
    }
}
