//! Decides whether a command that has ended is sent again: a pure function of its status.

use std::time::Duration;

use lunette_scsi::{AdditionalSense, SenseData, SenseKey, Status};

use crate::limits::{FIRST_BUSY_PAUSE, MAX_BUSY_PAUSE, MAX_REPEATS, MAX_RETRY_DELAY};
use crate::request::Repeat;

/// The result of [`decide`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    /// The outcome is reported to the caller.
    Report,
    /// The command is sent again after a pause of `after`.
    Retry { after: Duration },
}

/// Decides on a command that ended with `status` and its `qualifier`, and was sent again `repeats` times before.
#[inline]
pub(super) fn decide(
    repeat: Repeat,
    repeats: u32,
    status: Status,
    qualifier: u16,
    sense: Option<&SenseData>,
) -> Decision {
    if repeat == Repeat::Never || repeats >= MAX_REPEATS {
        return Decision::Report;
    }
    match (status, sense) {
        // SAM-5 5.14: the unit attention was reported in place of running the command.
        (Status::CHECK_CONDITION, Some(sense)) if sense.key == SenseKey::UNIT_ATTENTION => {
            Decision::Retry { after: Duration::ZERO }
        }
        (Status::CHECK_CONDITION, Some(sense)) if becomes_ready(sense) => pause(repeats),
        // Data was damaged on its way to the device, which said so and did not use it.
        (Status::CHECK_CONDITION, Some(sense))
            if sense.key == SenseKey::ABORTED_COMMAND && repeat == Repeat::Always =>
        {
            pause(repeats)
        }
        // Another initiator aborted the command; it may have run.
        (Status::TASK_ABORTED, _) if repeat == Repeat::Always => pause(repeats),
        (Status::BUSY | Status::TASK_SET_FULL, _) => {
            let Decision::Retry { after } = pause(repeats) else { return Decision::Report };
            Decision::Retry { after: after.max(retry_delay(qualifier)) }
        }
        _ => Decision::Report,
    }
}

/// Whether the unit is NOT READY and becomes ready by itself: becoming ready, or in transition between ALUA states.
fn becomes_ready(sense: &SenseData) -> bool {
    const NOT_READY: u8 = 0x04;
    const BECOMING_READY: u8 = 0x01;
    const ASYMMETRIC_ACCESS_TRANSITION: u8 = 0x0a;
    let AdditionalSense { asc, ascq } = sense.code;
    sense.key == SenseKey::NOT_READY
        && asc == NOT_READY
        && matches!(ascq, BECOMING_READY | ASYMMETRIC_ACCESS_TRANSITION)
}

/// Whether writes that were acknowledged before this unit attention, and not flushed, may be lost: POWER ON, RESET, OR
/// BUS DEVICE RESET OCCURRED, POWER ON OCCURRED, DEVICE INTERNAL RESET (SPC-6 annex F). Resets by command and the loss
/// of a nexus keep them.
pub(crate) fn may_lose_cache(sense: &SenseData) -> bool {
    matches!(sense.code, AdditionalSense { asc: 0x29, ascq: 0x00 | 0x01 | 0x04 })
}

/// The delay that the target asks for (SAM-5 5.3.2): units of 100 ms in the lower 14 bits of the status qualifier. The
/// highest values are not times.
fn retry_delay(qualifier: u16) -> Duration {
    const UNIT: Duration = Duration::from_millis(100);
    const LONGEST: u16 = 0x3fef;
    let units = qualifier & 0x3fff;
    if units > LONGEST { Duration::ZERO } else { (UNIT * units.into()).min(MAX_RETRY_DELAY) }
}

fn pause(repeats: u32) -> Decision {
    Decision::Retry { after: backoff(FIRST_BUSY_PAUSE, MAX_BUSY_PAUSE, repeats) }
}

/// A pause that doubles with every attempt, up to `most`.
pub(super) fn backoff(first: Duration, most: Duration, attempts: u32) -> Duration {
    first.saturating_mul(1 << attempts.min(16)).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_ONCE: Decision = Decision::Retry { after: Duration::ZERO };

    fn check(repeat: Repeat, key: SenseKey, asc: u8, ascq: u8) -> Decision {
        let sense = SenseData::new(key, AdditionalSense { asc, ascq });
        decide(repeat, 0, Status::CHECK_CONDITION, 0, Some(&sense))
    }

    #[test]
    fn a_unit_attention_is_read_and_the_command_sent_again() {
        assert_eq!(check(Repeat::IfNotRun, SenseKey::UNIT_ATTENTION, 0x29, 0), AT_ONCE);
        assert_eq!(check(Repeat::Never, SenseKey::UNIT_ATTENTION, 0x29, 0), Decision::Report);
    }

    #[test]
    fn a_full_target_is_given_time() {
        let of = |repeats| decide(Repeat::IfNotRun, repeats, Status::TASK_SET_FULL, 0, None);
        assert_eq!(of(0), Decision::Retry { after: FIRST_BUSY_PAUSE });
        assert_eq!(of(1), Decision::Retry { after: FIRST_BUSY_PAUSE * 2 });
        assert_eq!(of(MAX_REPEATS - 1), Decision::Retry { after: MAX_BUSY_PAUSE });
        assert_eq!(of(MAX_REPEATS), Decision::Report, "a target that is always full ends in an error");
    }

    #[test]
    fn a_target_may_say_for_how_long_it_is_full() {
        let of = |status, qualifier| decide(Repeat::IfNotRun, 0, status, qualifier, None);
        for (qualifier, after) in [
            (0, FIRST_BUSY_PAUSE),
            (3, Duration::from_millis(300)),
            (0x4003, Duration::from_millis(300)),
            (0x3fef, MAX_RETRY_DELAY),
            (0x3ff0, FIRST_BUSY_PAUSE),
            (0xffff, FIRST_BUSY_PAUSE),
        ] {
            assert_eq!(of(Status::TASK_SET_FULL, qualifier), Decision::Retry { after }, "{qualifier:#x}");
            assert_eq!(of(Status::BUSY, qualifier), Decision::Retry { after }, "{qualifier:#x}");
        }
    }

    #[test]
    fn a_unit_that_becomes_ready_is_waited_for_and_one_that_does_not_is_not() {
        assert_ne!(check(Repeat::IfNotRun, SenseKey::NOT_READY, 0x04, 0x01), Decision::Report);
        assert_ne!(check(Repeat::IfNotRun, SenseKey::NOT_READY, 0x04, 0x0a), Decision::Report);
        assert_eq!(check(Repeat::Always, SenseKey::NOT_READY, 0x3a, 0), Decision::Report);
        assert_eq!(check(Repeat::Always, SenseKey::MEDIUM_ERROR, 0x11, 0), Decision::Report);
    }

    #[test]
    fn what_was_aborted_may_have_run() {
        assert_ne!(check(Repeat::Always, SenseKey::ABORTED_COMMAND, 0x47, 0x05), Decision::Report);
        assert_eq!(check(Repeat::IfNotRun, SenseKey::ABORTED_COMMAND, 0x47, 0x05), Decision::Report);
        assert_ne!(decide(Repeat::Always, 0, Status::TASK_ABORTED, 0, None), Decision::Report);
        assert_eq!(decide(Repeat::IfNotRun, 0, Status::TASK_ABORTED, 0, None), Decision::Report);
    }
}
