//! The reservation column of the opcode table.

use lunette_scsi::Cdb;

/// Which reservations of others let the command pass (SPC-5 table 70, SBC-4 table 13; for RESERVE, SPC-2 table 10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReservationRule {
    /// All, also what RESERVE(6) and (10) made. Commands that look at reservations themselves have it too.
    PassesAll,
    /// All persistent ones.
    AccessRule,
    /// As `PassesAll` for START STOP UNIT that starts, else none.
    PassesStart,
    /// As `PassesAll` for PREVENT ALLOW MEDIUM REMOVAL that allows, else none.
    PassesAllow,
    /// Those that exclude writing only.
    PassesWriteExclusive,
    /// None.
    Conflicts,
}

impl ReservationRule {
    /// What holds for this CDB.
    pub(crate) fn of(self, cdb: &Cdb) -> Self {
        const START: u8 = 0x01;
        const POWER_CONDITION: u8 = 0xf0;
        const PREVENT: u8 = 0x03;
        match self {
            Self::PassesStart if cdb.bit(4, START) && !cdb.bit(4, POWER_CONDITION) => Self::PassesAll,
            Self::PassesAllow if !cdb.bit(4, PREVENT) => Self::PassesAll,
            Self::PassesStart | Self::PassesAllow => Self::Conflicts,
            other => other,
        }
    }
}
