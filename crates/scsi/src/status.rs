//! Status codes (SAM-5 5.3.1).

use std::fmt;

/// The status that ends a command (SAM-5 5.3.1). Unknown codes are kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub u8);

impl Status {
    /// The command was successful.
    pub const GOOD: Self = Self(0x00);
    /// The command failed; sense data describe the condition.
    pub const CHECK_CONDITION: Self = Self(0x02);
    /// A PRE-FETCH found room in the cache for all blocks.
    pub const CONDITION_MET: Self = Self(0x04);
    /// The logical unit cannot accept the command now.
    pub const BUSY: Self = Self(0x08);
    /// A reservation of another `I_T` nexus conflicts with the command.
    pub const RESERVATION_CONFLICT: Self = Self(0x18);
    /// The task set has no room.
    pub const TASK_SET_FULL: Self = Self(0x28);
    /// An auto contingent allegiance exists.
    pub const ACA_ACTIVE: Self = Self(0x30);
    /// Another `I_T` nexus aborted the task.
    pub const TASK_ABORTED: Self = Self(0x40);
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            Self::GOOD => "GOOD",
            Self::CHECK_CONDITION => "CHECK CONDITION",
            Self::CONDITION_MET => "CONDITION MET",
            Self::BUSY => "BUSY",
            Self::RESERVATION_CONFLICT => "RESERVATION CONFLICT",
            Self::TASK_SET_FULL => "TASK SET FULL",
            Self::ACA_ACTIVE => "ACA ACTIVE",
            Self::TASK_ABORTED => "TASK ABORTED",
            Self(other) => return write!(f, "Status({other:#04x})"),
        };
        f.write_str(name)
    }
}
