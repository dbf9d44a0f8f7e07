//! Access states of an `I_T_L` nexus, as admission checks them.

use std::sync::atomic::{AtomicU8, Ordering};

use lunette_scsi::port_groups::AccessState;
use lunette_scsi::{AdditionalSense, SenseData};

/// The access state of a target port for a logical unit, and whether SET TARGET PORT GROUPS is supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PortAccess {
    pub(crate) state: AccessState,
    pub(crate) explicit: bool,
}

/// A [`PortAccess`] in one atomic word: the code of the state in the low bits.
#[derive(Debug)]
pub(crate) struct AtomicAccess(AtomicU8);

const EXPLICIT: u8 = 0x80;
const STATE: u8 = 0x0f;

/// Which access states permit a command (SPC-4 5.16.2.4 and 5.16.2.5), from the strictest rule to the most permissive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AccessRule {
    /// The active states.
    Active,
    /// The active states and standby.
    Standby,
    /// The active states, standby and unavailable.
    Unavailable,
    /// Every state, transitioning and offline included.
    Always,
}

impl AtomicAccess {
    pub(crate) fn new(access: PortAccess) -> Self {
        let word = Self(AtomicU8::default());
        word.set(access);
        word
    }

    pub(crate) fn set(&self, PortAccess { state, explicit }: PortAccess) {
        self.0.store(state.code() | if explicit { EXPLICIT } else { 0 }, Ordering::Release);
    }

    /// Whether SET TARGET PORT GROUPS is supported.
    pub(crate) fn explicit(&self) -> bool {
        self.0.load(Ordering::Acquire) & EXPLICIT != 0
    }

    pub(crate) fn state(&self) -> AccessState {
        AccessState::decode(self.0.load(Ordering::Acquire) & STATE).unwrap_or(AccessState::ActiveOptimized)
    }

    /// Checks `passes` against the access state.
    pub(crate) fn check(&self, passes: AccessRule) -> Result<(), SenseData> {
        const _: () = assert!(AccessState::ActiveOptimized.code() == 0 && AccessState::ActiveNonOptimized.code() == 1);
        if self.0.load(Ordering::Acquire) & STATE <= 1 {
            return Ok(());
        }
        let least = match self.state() {
            AccessState::ActiveOptimized | AccessState::ActiveNonOptimized => AccessRule::Active,
            AccessState::Standby => AccessRule::Standby,
            AccessState::Unavailable => AccessRule::Unavailable,
            AccessState::Offline | AccessState::Transitioning => AccessRule::Always,
        };
        if passes >= least { Ok(()) } else { self.not_ready().map_or(Ok(()), Err) }
    }

    /// The reason why the logical unit cannot be used through the port, if it cannot.
    pub(crate) fn not_ready(&self) -> Option<SenseData> {
        let code = match self.state() {
            AccessState::ActiveOptimized | AccessState::ActiveNonOptimized => return None,
            AccessState::Standby => AdditionalSense::PORT_IN_STANDBY_STATE,
            AccessState::Unavailable => AdditionalSense::PORT_IN_UNAVAILABLE_STATE,
            AccessState::Offline => AdditionalSense::OFFLINE,
            AccessState::Transitioning => AdditionalSense::ACCESS_STATE_TRANSITION,
        };
        Some(SenseData::not_ready(code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_is_read_as_it_was_written() {
        for state in AccessState::ALL {
            for explicit in [false, true] {
                let word = AtomicAccess::new(PortAccess { state, explicit });
                assert_eq!((word.state(), word.explicit()), (state, explicit));
            }
        }
    }

    #[test]
    fn each_state_lets_its_commands_pass() {
        use AccessState::*;
        let columns = [AccessRule::Active, AccessRule::Standby, AccessRule::Unavailable, AccessRule::Always];
        for (state, passing) in [
            (ActiveOptimized, 4),
            (ActiveNonOptimized, 4),
            (Standby, 3),
            (Unavailable, 2),
            (Transitioning, 1),
            (Offline, 1),
        ] {
            let word = AtomicAccess::new(PortAccess { state, explicit: true });
            let refused = columns.iter().filter_map(|passes| word.check(*passes).err()).collect::<Vec<_>>();
            assert_eq!(refused.len(), 4 - passing, "{state:?}");
            assert!(refused.iter().all(|sense| Some(*sense) == word.not_ready()));
        }
    }
}
