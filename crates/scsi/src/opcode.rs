//! Operation codes and service actions by name.

use std::fmt;

/// An operation code, byte 0 of a CDB. Unknown codes are kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpCode(pub u8);

/// A service action of an operation code: the low five bits of CDB byte 1, or two bytes of a variable length CDB (SPC-5
/// 4.2.5.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ServiceAction(pub u16);

/// Generates the constants and their names from one list.
macro_rules! opcodes {
    ($($constant:ident = $value:literal, $name:literal;)*) => {
        impl OpCode {
            $(#[doc = concat!($name, ".")] pub const $constant: Self = Self($value);)*

            /// The name in the standards; `None` for an unknown code.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($name),)*
                    _ => None,
                }
            }
        }
    };
}

opcodes! {
    TEST_UNIT_READY = 0x00, "TEST UNIT READY";
    REQUEST_SENSE = 0x03, "REQUEST SENSE";
    READ_6 = 0x08, "READ(6)";
    WRITE_6 = 0x0a, "WRITE(6)";
    INQUIRY = 0x12, "INQUIRY";
    MODE_SELECT_6 = 0x15, "MODE SELECT(6)";
    RESERVE_6 = 0x16, "RESERVE(6)";
    RELEASE_6 = 0x17, "RELEASE(6)";
    MODE_SENSE_6 = 0x1a, "MODE SENSE(6)";
    START_STOP_UNIT = 0x1b, "START STOP UNIT";
    PREVENT_ALLOW_MEDIUM_REMOVAL = 0x1e, "PREVENT ALLOW MEDIUM REMOVAL";
    READ_CAPACITY_10 = 0x25, "READ CAPACITY(10)";
    READ_10 = 0x28, "READ(10)";
    WRITE_10 = 0x2a, "WRITE(10)";
    WRITE_AND_VERIFY_10 = 0x2e, "WRITE AND VERIFY(10)";
    VERIFY_10 = 0x2f, "VERIFY(10)";
    PRE_FETCH_10 = 0x34, "PRE-FETCH(10)";
    SYNCHRONIZE_CACHE_10 = 0x35, "SYNCHRONIZE CACHE(10)";
    READ_DEFECT_DATA_10 = 0x37, "READ DEFECT DATA(10)";
    WRITE_SAME_10 = 0x41, "WRITE SAME(10)";
    UNMAP = 0x42, "UNMAP";
    SANITIZE = 0x48, "SANITIZE";
    LOG_SELECT = 0x4c, "LOG SELECT";
    LOG_SENSE = 0x4d, "LOG SENSE";
    XDWRITEREAD_10 = 0x53, "XDWRITEREAD(10)";
    MODE_SELECT_10 = 0x55, "MODE SELECT(10)";
    RESERVE_10 = 0x56, "RESERVE(10)";
    RELEASE_10 = 0x57, "RELEASE(10)";
    MODE_SENSE_10 = 0x5a, "MODE SENSE(10)";
    PERSISTENT_RESERVE_IN = 0x5e, "PERSISTENT RESERVE IN";
    PERSISTENT_RESERVE_OUT = 0x5f, "PERSISTENT RESERVE OUT";
    VARIABLE_LENGTH = 0x7f, "VARIABLE LENGTH CDB";
    THIRD_PARTY_COPY_OUT = 0x83, "THIRD-PARTY COPY OUT";
    THIRD_PARTY_COPY_IN = 0x84, "THIRD-PARTY COPY IN";
    READ_16 = 0x88, "READ(16)";
    COMPARE_AND_WRITE = 0x89, "COMPARE AND WRITE";
    WRITE_16 = 0x8a, "WRITE(16)";
    ORWRITE_16 = 0x8b, "ORWRITE(16)";
    WRITE_AND_VERIFY_16 = 0x8e, "WRITE AND VERIFY(16)";
    VERIFY_16 = 0x8f, "VERIFY(16)";
    PRE_FETCH_16 = 0x90, "PRE-FETCH(16)";
    SYNCHRONIZE_CACHE_16 = 0x91, "SYNCHRONIZE CACHE(16)";
    WRITE_SAME_16 = 0x93, "WRITE SAME(16)";
    WRITE_ATOMIC_16 = 0x9c, "WRITE ATOMIC(16)";
    SERVICE_ACTION_IN_16 = 0x9e, "SERVICE ACTION IN(16)";
    REPORT_LUNS = 0xa0, "REPORT LUNS";
    MAINTENANCE_IN = 0xa3, "MAINTENANCE IN";
    MAINTENANCE_OUT = 0xa4, "MAINTENANCE OUT";
    READ_12 = 0xa8, "READ(12)";
    WRITE_12 = 0xaa, "WRITE(12)";
    WRITE_AND_VERIFY_12 = 0xae, "WRITE AND VERIFY(12)";
    VERIFY_12 = 0xaf, "VERIFY(12)";
    READ_DEFECT_DATA_12 = 0xb7, "READ DEFECT DATA(12)";
}

impl ServiceAction {
    /// READ(32), of [`OpCode::VARIABLE_LENGTH`].
    pub const READ_32: Self = Self(0x09);
    /// VERIFY(32), of [`OpCode::VARIABLE_LENGTH`].
    pub const VERIFY_32: Self = Self(0x0a);
    /// WRITE(32), of [`OpCode::VARIABLE_LENGTH`].
    pub const WRITE_32: Self = Self(0x0b);
    /// WRITE AND VERIFY(32), of [`OpCode::VARIABLE_LENGTH`].
    pub const WRITE_AND_VERIFY_32: Self = Self(0x0c);
    /// WRITE SAME(32), of [`OpCode::VARIABLE_LENGTH`].
    pub const WRITE_SAME_32: Self = Self(0x0d);
    /// WRITE ATOMIC(32), of [`OpCode::VARIABLE_LENGTH`].
    pub const WRITE_ATOMIC_32: Self = Self(0x0f);
    /// GET LBA STATUS(32), of [`OpCode::VARIABLE_LENGTH`].
    pub const GET_LBA_STATUS_32: Self = Self(0x12);
    /// OVERWRITE, of [`OpCode::SANITIZE`].
    pub const OVERWRITE: Self = Self(0x01);
    /// BLOCK ERASE, of [`OpCode::SANITIZE`].
    pub const BLOCK_ERASE: Self = Self(0x02);
    /// CRYPTOGRAPHIC ERASE, of [`OpCode::SANITIZE`].
    pub const CRYPTOGRAPHIC_ERASE: Self = Self(0x03);
    /// EXIT FAILURE MODE, of [`OpCode::SANITIZE`].
    pub const EXIT_FAILURE_MODE: Self = Self(0x1f);
    /// EXTENDED COPY(LID1), of [`OpCode::THIRD_PARTY_COPY_OUT`].
    pub const EXTENDED_COPY_LID1: Self = Self(0x00);
    /// EXTENDED COPY(LID4), of [`OpCode::THIRD_PARTY_COPY_OUT`].
    pub const EXTENDED_COPY_LID4: Self = Self(0x01);
    /// POPULATE TOKEN, of [`OpCode::THIRD_PARTY_COPY_OUT`].
    pub const POPULATE_TOKEN: Self = Self(0x10);
    /// WRITE USING TOKEN, of [`OpCode::THIRD_PARTY_COPY_OUT`].
    pub const WRITE_USING_TOKEN: Self = Self(0x11);
    /// COPY OPERATION ABORT, of [`OpCode::THIRD_PARTY_COPY_OUT`].
    pub const COPY_OPERATION_ABORT: Self = Self(0x1c);
    /// RECEIVE COPY STATUS(LID1), of [`OpCode::THIRD_PARTY_COPY_IN`].
    pub const RECEIVE_COPY_STATUS_LID1: Self = Self(0x00);
    /// RECEIVE COPY OPERATING PARAMETERS, of [`OpCode::THIRD_PARTY_COPY_IN`].
    pub const RECEIVE_COPY_OPERATING_PARAMETERS: Self = Self(0x03);
    /// RECEIVE COPY FAILURE DETAILS(LID1), of [`OpCode::THIRD_PARTY_COPY_IN`].
    pub const RECEIVE_COPY_FAILURE_DETAILS: Self = Self(0x04);
    /// RECEIVE COPY STATUS(LID4), of [`OpCode::THIRD_PARTY_COPY_IN`].
    pub const RECEIVE_COPY_STATUS_LID4: Self = Self(0x05);
    /// RECEIVE ROD TOKEN INFORMATION, of [`OpCode::THIRD_PARTY_COPY_IN`].
    pub const RECEIVE_ROD_TOKEN_INFORMATION: Self = Self(0x07);
    /// REPORT ALL ROD TOKENS, of [`OpCode::THIRD_PARTY_COPY_IN`].
    pub const REPORT_ALL_ROD_TOKENS: Self = Self(0x08);
    /// READ CAPACITY(16), of [`OpCode::SERVICE_ACTION_IN_16`].
    pub const READ_CAPACITY_16: Self = Self(0x10);
    /// GET LBA STATUS(16), of [`OpCode::SERVICE_ACTION_IN_16`].
    pub const GET_LBA_STATUS_16: Self = Self(0x12);
    /// REPORT IDENTIFYING INFORMATION, of [`OpCode::MAINTENANCE_IN`].
    pub const REPORT_IDENTIFYING_INFORMATION: Self = Self(0x05);
    /// SET IDENTIFYING INFORMATION, of [`OpCode::MAINTENANCE_OUT`].
    pub const SET_IDENTIFYING_INFORMATION: Self = Self(0x06);
    /// REPORT TARGET PORT GROUPS, of [`OpCode::MAINTENANCE_IN`].
    pub const REPORT_TARGET_PORT_GROUPS: Self = Self(0x0a);
    /// SET TARGET PORT GROUPS, of [`OpCode::MAINTENANCE_OUT`].
    pub const SET_TARGET_PORT_GROUPS: Self = Self(0x0a);
    /// REPORT SUPPORTED OPERATION CODES, of [`OpCode::MAINTENANCE_IN`].
    pub const REPORT_SUPPORTED_OPERATION_CODES: Self = Self(0x0c);
    /// REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS, of [`OpCode::MAINTENANCE_IN`].
    pub const REPORT_SUPPORTED_TASK_MANAGEMENT_FUNCTIONS: Self = Self(0x0d);
    /// REPORT TIMESTAMP, of [`OpCode::MAINTENANCE_IN`].
    pub const REPORT_TIMESTAMP: Self = Self(0x0f);
    /// SET TIMESTAMP, of [`OpCode::MAINTENANCE_OUT`].
    pub const SET_TIMESTAMP: Self = Self(0x0f);
}

impl fmt::Debug for OpCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "OpCode({:#04x})", self.0),
        }
    }
}
