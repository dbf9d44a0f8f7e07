//! The reservation column of the opcode table.

use lunette_scsi::Cdb;

/// Which reservations of other nexuses let a command pass (SPC-5 table 70, SBC-4 table 13; for RESERVE, SPC-2 table
/// 10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReservationRule {
    /// All reservations, RESERVE(6) and (10) included. Commands that check reservations themselves have this rule too.
    PassesAll,
    /// All persistent reservations.
    Passes,
    /// `PassesAll` for a START STOP UNIT that starts, otherwise `Conflicts`.
    PassesStart,
    /// `PassesAll` for a PREVENT ALLOW MEDIUM REMOVAL that allows, otherwise `Conflicts`.
    PassesAllow,
    /// Only reservations that exclude writing.
    PassesWriteExclusive,
    /// No reservation.
    Conflicts,
}

impl ReservationRule {
    /// The rule for this CDB.
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
