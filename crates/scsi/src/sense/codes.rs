//! Sense keys and additional sense codes by name (SPC-5 4.5.7, annex F).

use std::fmt;

/// A sense key, the class of a condition. Unknown keys are kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SenseKey(pub u8);

impl SenseKey {
    /// No condition to report.
    pub const NO_SENSE: Self = Self(0x0);
    /// The logical unit is not accessible.
    pub const NOT_READY: Self = Self(0x2);
    /// The medium failed.
    pub const MEDIUM_ERROR: Self = Self(0x3);
    /// The device failed.
    pub const HARDWARE_ERROR: Self = Self(0x4);
    /// The command or its parameters are wrong.
    pub const ILLEGAL_REQUEST: Self = Self(0x5);
    /// An event on the logical unit since the last command.
    pub const UNIT_ATTENTION: Self = Self(0x6);
    /// The blocks are protected against the access.
    pub const DATA_PROTECT: Self = Self(0x7);
    /// A third-party copy ended early.
    pub const COPY_ABORTED: Self = Self(0xa);
    /// The device server aborted the command.
    pub const ABORTED_COMMAND: Self = Self(0xb);
    /// The data differs from what is on the medium.
    pub const MISCOMPARE: Self = Self(0xe);
}

impl fmt::Debug for SenseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            Self::NO_SENSE => "NO SENSE",
            Self::NOT_READY => "NOT READY",
            Self::MEDIUM_ERROR => "MEDIUM ERROR",
            Self::HARDWARE_ERROR => "HARDWARE ERROR",
            Self::ILLEGAL_REQUEST => "ILLEGAL REQUEST",
            Self::UNIT_ATTENTION => "UNIT ATTENTION",
            Self::DATA_PROTECT => "DATA PROTECT",
            Self::COPY_ABORTED => "COPY ABORTED",
            Self::ABORTED_COMMAND => "ABORTED COMMAND",
            Self::MISCOMPARE => "MISCOMPARE",
            Self(other) => return write!(f, "SenseKey({other:#03x})"),
        };
        f.write_str(name)
    }
}

/// An ADDITIONAL SENSE CODE with its qualifier. Unknown codes are kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct AdditionalSense {
    /// ADDITIONAL SENSE CODE.
    pub asc: u8,
    /// ADDITIONAL SENSE CODE QUALIFIER.
    pub ascq: u8,
}

/// Generates the constants and their names from one list.
macro_rules! codes {
    ($($constant:ident = $asc:literal / $ascq:literal, $name:literal;)*) => {
        impl AdditionalSense {
            $(#[doc = concat!($name, ".")] pub const $constant: Self = Self { asc: $asc, ascq: $ascq };)*

            /// The name in the standard; `None` for an unknown code.
            pub fn name(self) -> Option<&'static str> {
                match (self.asc, self.ascq) {
                    $(($asc, $ascq) => Some($name),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    NONE = 0x00 / 0x00, "NO ADDITIONAL SENSE INFORMATION";
    BECOMING_READY = 0x04 / 0x01, "LOGICAL UNIT IS IN PROCESS OF BECOMING READY";
    MANUAL_INTERVENTION_REQUIRED = 0x04 / 0x03, "LOGICAL UNIT NOT READY, MANUAL INTERVENTION REQUIRED";
    ACCESS_STATE_TRANSITION = 0x04 / 0x0a, "LOGICAL UNIT NOT ACCESSIBLE, ASYMMETRIC ACCESS STATE TRANSITION";
    PORT_IN_STANDBY_STATE = 0x04 / 0x0b, "LOGICAL UNIT NOT ACCESSIBLE, TARGET PORT IN STANDBY STATE";
    PORT_IN_UNAVAILABLE_STATE = 0x04 / 0x0c, "LOGICAL UNIT NOT ACCESSIBLE, TARGET PORT IN UNAVAILABLE STATE";
    OFFLINE = 0x04 / 0x12, "LOGICAL UNIT NOT READY, OFFLINE";
    SANITIZE_IN_PROGRESS = 0x04 / 0x1b, "LOGICAL UNIT NOT READY, SANITIZE IN PROGRESS";
    OPERATION_IN_PROGRESS = 0x00 / 0x16, "OPERATION IN PROGRESS";
    LOGICAL_UNIT_COMMUNICATION_FAILURE = 0x08 / 0x00, "LOGICAL UNIT COMMUNICATION FAILURE";
    UNREACHABLE_COPY_TARGET = 0x08 / 0x04, "UNREACHABLE COPY TARGET";
    WRITE_ERROR = 0x0c / 0x00, "WRITE ERROR";
    THIRD_PARTY_DEVICE_FAILURE = 0x0d / 0x01, "THIRD PARTY DEVICE FAILURE";
    COPY_TARGET_DEVICE_NOT_REACHABLE = 0x0d / 0x02, "COPY TARGET DEVICE NOT REACHABLE";
    INCORRECT_COPY_TARGET_DEVICE_TYPE = 0x0d / 0x03, "INCORRECT COPY TARGET DEVICE TYPE";
    INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT = 0x0e / 0x03, "INVALID FIELD IN COMMAND INFORMATION UNIT";
    LOGICAL_BLOCK_GUARD_CHECK_FAILED = 0x10 / 0x01, "LOGICAL BLOCK GUARD CHECK FAILED";
    UNRECOVERED_READ_ERROR = 0x11 / 0x00, "UNRECOVERED READ ERROR";
    PARAMETER_LIST_LENGTH_ERROR = 0x1a / 0x00, "PARAMETER LIST LENGTH ERROR";
    MISCOMPARE_DURING_VERIFY = 0x1d / 0x00, "MISCOMPARE DURING VERIFY OPERATION";
    INVALID_COMMAND_OPERATION_CODE = 0x20 / 0x00, "INVALID COMMAND OPERATION CODE";
    LBA_OUT_OF_RANGE = 0x21 / 0x00, "LOGICAL BLOCK ADDRESS OUT OF RANGE";
    UNSUPPORTED_TOKEN_TYPE = 0x23 / 0x01, "INVALID TOKEN OPERATION, UNSUPPORTED TOKEN TYPE";
    TOKEN_UNKNOWN = 0x23 / 0x04, "INVALID TOKEN OPERATION, TOKEN UNKNOWN";
    TOKEN_REVOKED = 0x23 / 0x06, "INVALID TOKEN OPERATION, TOKEN REVOKED";
    TOKEN_EXPIRED = 0x23 / 0x07, "INVALID TOKEN OPERATION, TOKEN EXPIRED";
    INVALID_TOKEN_LENGTH = 0x23 / 0x0a, "INVALID TOKEN OPERATION, INVALID TOKEN LENGTH";
    INVALID_FIELD_IN_CDB = 0x24 / 0x00, "INVALID FIELD IN CDB";
    LOGICAL_UNIT_NOT_SUPPORTED = 0x25 / 0x00, "LOGICAL UNIT NOT SUPPORTED";
    INVALID_FIELD_IN_PARAMETER_LIST = 0x26 / 0x00, "INVALID FIELD IN PARAMETER LIST";
    INVALID_RELEASE_OF_PERSISTENT_RESERVATION = 0x26 / 0x04, "INVALID RELEASE OF PERSISTENT RESERVATION";
    TOO_MANY_TARGET_DESCRIPTORS = 0x26 / 0x06, "TOO MANY TARGET DESCRIPTORS";
    UNSUPPORTED_TARGET_DESCRIPTOR_TYPE_CODE = 0x26 / 0x07, "UNSUPPORTED TARGET DESCRIPTOR TYPE CODE";
    TOO_MANY_SEGMENT_DESCRIPTORS = 0x26 / 0x08, "TOO MANY SEGMENT DESCRIPTORS";
    UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE_CODE = 0x26 / 0x09, "UNSUPPORTED SEGMENT DESCRIPTOR TYPE CODE";
    INEXACT_SEGMENT = 0x26 / 0x0a, "UNEXPECTED INEXACT SEGMENT";
    INLINE_DATA_LENGTH_EXCEEDED = 0x26 / 0x0b, "INLINE DATA LENGTH EXCEEDED";
    WRITE_PROTECTED = 0x27 / 0x00, "WRITE PROTECTED";
    SOFTWARE_WRITE_PROTECTED = 0x27 / 0x02, "LOGICAL UNIT SOFTWARE WRITE PROTECTED";
    SPACE_ALLOCATION_FAILED = 0x27 / 0x07, "SPACE ALLOCATION FAILED WRITE PROTECT";
    MEDIUM_MAY_HAVE_CHANGED = 0x28 / 0x00, "NOT READY TO READY CHANGE, MEDIUM MAY HAVE CHANGED";
    POWER_ON_OR_RESET = 0x29 / 0x00, "POWER ON, RESET, OR BUS DEVICE RESET OCCURRED";
    BUS_DEVICE_RESET = 0x29 / 0x03, "BUS DEVICE RESET FUNCTION OCCURRED";
    I_T_NEXUS_LOSS = 0x29 / 0x07, "I_T NEXUS LOSS OCCURRED";
    MODE_PARAMETERS_CHANGED = 0x2a / 0x01, "MODE PARAMETERS CHANGED";
    LOG_PARAMETERS_CHANGED = 0x2a / 0x02, "LOG PARAMETERS CHANGED";
    CAPACITY_DATA_CHANGED = 0x2a / 0x09, "CAPACITY DATA HAS CHANGED";
    TIMESTAMP_CHANGED = 0x2a / 0x10, "TIMESTAMP CHANGED";
    RESERVATIONS_PREEMPTED = 0x2a / 0x03, "RESERVATIONS PREEMPTED";
    RESERVATIONS_RELEASED = 0x2a / 0x04, "RESERVATIONS RELEASED";
    REGISTRATIONS_PREEMPTED = 0x2a / 0x05, "REGISTRATIONS PREEMPTED";
    ACCESS_STATE_CHANGED = 0x2a / 0x06, "ASYMMETRIC ACCESS STATE CHANGED";
    IMPLICIT_ACCESS_STATE_TRANSITION_FAILED = 0x2a / 0x07, "IMPLICIT ASYMMETRIC ACCESS STATE TRANSITION FAILED";
    COMMANDS_CLEARED_BY_ANOTHER_INITIATOR = 0x2f / 0x00, "COMMANDS CLEARED BY ANOTHER INITIATOR";
    COMMANDS_CLEARED_BY_DEVICE_SERVER = 0x2f / 0x02, "COMMANDS CLEARED BY DEVICE SERVER";
    THIN_PROVISIONING_SOFT_THRESHOLD_REACHED = 0x38 / 0x07, "THIN PROVISIONING SOFT THRESHOLD REACHED";
    SANITIZE_COMMAND_FAILED = 0x31 / 0x03, "SANITIZE COMMAND FAILED";
    SAVING_PARAMETERS_NOT_SUPPORTED = 0x39 / 0x00, "SAVING PARAMETERS NOT SUPPORTED";
    MEDIUM_NOT_PRESENT = 0x3a / 0x00, "MEDIUM NOT PRESENT";
    INQUIRY_DATA_CHANGED = 0x3f / 0x03, "INQUIRY DATA HAS CHANGED";
    DEVICE_IDENTIFIER_CHANGED = 0x3f / 0x05, "DEVICE IDENTIFIER CHANGED";
    REPORTED_LUNS_DATA_CHANGED = 0x3f / 0x0e, "REPORTED LUNS DATA HAS CHANGED";
    INTERNAL_TARGET_FAILURE = 0x44 / 0x00, "INTERNAL TARGET FAILURE";
    SOME_COMMANDS_CLEARED_BY_ISCSI_PROTOCOL_EVENT = 0x47 / 0x7f, "SOME COMMANDS CLEARED BY ISCSI PROTOCOL EVENT";
    INVALID_MESSAGE_ERROR = 0x49 / 0x00, "INVALID MESSAGE ERROR";
    MEDIUM_REMOVAL_PREVENTED = 0x53 / 0x02, "MEDIUM REMOVAL PREVENTED";
    INSUFFICIENT_RESOURCES = 0x55 / 0x03, "INSUFFICIENT RESOURCES";
    INSUFFICIENT_RESOURCES_TO_CREATE_ROD_TOKEN = 0x55 / 0x0d, "INSUFFICIENT RESOURCES TO CREATE ROD TOKEN";
    INSUFFICIENT_REGISTRATION_RESOURCES = 0x55 / 0x04, "INSUFFICIENT REGISTRATION RESOURCES";
    SET_TARGET_PORT_GROUPS_FAILED = 0x67 / 0x0a, "SET TARGET PORT GROUPS COMMAND FAILED";
}

impl AdditionalSense {
    /// Whether the condition is a power on, a reset or an `I_T` nexus loss (ASC 29h), which ends the tasks of the
    /// nexus.
    pub const fn is_reset(self) -> bool {
        self.asc == Self::POWER_ON_OR_RESET.asc
    }

    /// Whether the condition reports that commands were cleared by another initiator or by the device server (ASC 2Fh).
    pub const fn is_commands_cleared(self) -> bool {
        self.asc == Self::COMMANDS_CLEARED_BY_ANOTHER_INITIATOR.asc
    }
}

impl fmt::Debug for AdditionalSense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "AdditionalSense({:#04x}/{:#04x})", self.asc, self.ascq),
        }
    }
}
