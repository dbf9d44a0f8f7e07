//! The opcode table: every command that the device server knows, and all that is to be known about it besides its work.
//!
//! The gate checks by it, REPORT SUPPORTED OPERATION CODES prints it, the task runs its handler.

mod table;

use lunette_scsi::report::SupportedCommand;
use lunette_scsi::{AdditionalSense, Cdb, OpCode, SenseData, ServiceAction};

use super::context::Cx;
use crate::coroutine::workspace::HandlerSlot;
use crate::port_groups::access::AccessRule;
use crate::reservations::ReservationRule;
use crate::sanitize::SanitizeRule;
use crate::unit::itl_nexus::ItlNexus;
use crate::unit::medium::MediumUse;
pub(crate) use table::TABLE;

/// Begins the work of a command.
pub(crate) type Handler = fn(Cx, HandlerSlot<'_>);

/// One command.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) opcode: OpCode,
    pub(crate) action: Option<ServiceAction>,
    pub(crate) name: &'static str,
    /// CDB USAGE DATA: the bits that are evaluated. As long as the CDB.
    pub(crate) usage: &'static [u8],
    pub(crate) direction: Direction,
    pub(crate) attention: AttentionRule,
    pub(crate) absent: AbsentUnit,
    pub(crate) access: AccessRule,
    pub(crate) medium: MediumUse,
    pub(crate) reservation: ReservationRule,
    pub(crate) sanitizing: SanitizeRule,
    pub(crate) range: RangeRule,
    pub(crate) needs: Requirement,
    pub(crate) handler: Handler,
}

/// Which way data goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    None,
    In,
    Out,
    Both,
}

/// Whether a pending unit attention is reported instead of running the command (SAM-5 5.14).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttentionRule {
    Reported,
    AccessRule,
}

/// What happens where there is no logical unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AbsentUnit {
    Refused,
    Answered,
}

/// Which blocks the CDB names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RangeRule {
    None,
    /// As many as MAXIMUM TRANSFER LENGTH.
    Transfer,
    /// As many as MAXIMUM ATOMIC TRANSFER LENGTH.
    Atomic,
    /// As many as MAXIMUM WRITE SAME LENGTH; where there is no such limit, zero means all from the first to the end.
    WriteSame,
    /// Any number; zero means all from the first to the end.
    ToEnd,
}

/// What the unit or the way to it must be, or the store be able to do, for the command to exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requirement {
    Nothing,
    Unmap,
    RemovableMedium,
    /// A unit that is to take 32-byte CDBs.
    LongCdbs,
    /// A place for what must survive a restart.
    State,
    /// Access states that initiators may change.
    ExplicitAccess,
    /// A store in memory, which forgets as a whole and at once.
    Memory,
}

impl Requirement {
    /// Whether the unit at the end of `itl` has it.
    pub(crate) fn met_by(self, itl: &ItlNexus) -> bool {
        let unit = &itl.unit;
        match self {
            Self::Nothing => true,
            Self::Unmap => unit.capabilities().unmap,
            Self::RemovableMedium => unit.removable(),
            Self::LongCdbs => unit.config().long_cdbs,
            Self::State => unit.config().state.is_some(),
            Self::ExplicitAccess => itl.access.explicit(),
            Self::Memory => unit.capabilities().memory,
        }
    }
}

impl Row {
    /// Whether the unit at the end of `itl` has the command.
    pub(crate) fn supported_by(&self, itl: &ItlNexus) -> bool {
        self.needs.met_by(itl)
    }

    /// The row for REPORT SUPPORTED OPERATION CODES.
    pub(crate) fn report(&self) -> SupportedCommand {
        SupportedCommand { opcode: self.opcode, service_action: self.action, usage: self.usage }
    }
}

/// The row of a CDB.
///
/// # Errors
///
/// INVALID COMMAND OPERATION CODE; or INVALID FIELD IN CDB, pointing at it, for an unknown service action of a known
/// operation code.
pub(crate) fn find(cdb: &Cdb) -> Result<&'static Row, SenseData> {
    let mut rows = with_opcode(cdb.opcode()).peekable();
    if rows.peek().is_none() {
        return Err(SenseData::illegal_request(AdditionalSense::INVALID_COMMAND_OPERATION_CODE));
    }
    let action = cdb.service_action();
    rows.find(|row| row.action.is_none_or(|wanted| wanted == action)).ok_or(cdb.service_action_field().into())
}

/// What a CDB ends with whose row the unit at the end of `itl` does not have: its operation code is invalid when there is
/// none with it, else its service action.
pub(crate) fn unsupported(cdb: &Cdb, itl: &ItlNexus) -> SenseData {
    if with_opcode(cdb.opcode()).any(|row| row.supported_by(itl)) {
        return cdb.service_action_field().into();
    }
    SenseData::illegal_request(AdditionalSense::INVALID_COMMAND_OPERATION_CODE)
}

/// The rows of an operation code: one, or one for each service action.
pub(crate) fn with_opcode(opcode: OpCode) -> impl Iterator<Item = &'static Row> {
    let first = usize::from(FIRST_ROW[usize::from(opcode.0)]);
    TABLE[first..].iter().take_while(move |row| row.opcode == opcode)
}

/// Where the rows of each operation code begin; the end of the table for codes without rows.
static FIRST_ROW: [u8; 256] = {
    let mut first = [TABLE.len() as u8; 256];
    let mut at = TABLE.len();
    while at > 0 {
        at -= 1;
        first[TABLE[at].opcode.0 as usize] = at as u8;
    }
    first
};

#[cfg(test)]
mod tests {
    use lunette_scsi::FieldPointer;

    use super::*;

    #[test]
    fn the_table_is_sorted_and_without_duplicates() {
        let keys: Vec<_> = TABLE.iter().map(|row| (row.opcode, row.action)).collect();
        assert!(keys.is_sorted_by(|before, after| before < after), "{keys:?}");
    }

    #[test]
    fn usage_bitmaps_have_the_length_of_their_group_and_hold_the_service_action() {
        for row in TABLE {
            let len = [6, 10, 10, 32, 16, 12, 0, 0][usize::from(row.opcode.0 >> 5)];
            assert_eq!(row.usage.len(), len, "{}", row.name);
            let long = row.opcode == OpCode::VARIABLE_LENGTH;
            if let Some(action) = row.action {
                let stated = if long { [row.usage[8], row.usage[9]] } else { [0, row.usage[1] & 0x1f] };
                assert_eq!(u16::from_be_bytes(stated), action.0, "{}", row.name);
            }
            let control = if long { row.usage[1] } else { row.usage[len - 1] };
            assert_eq!(control, 0, "{}: CONTROL", row.name);
        }
    }

    #[test]
    fn names_are_those_of_the_operation_codes() {
        for row in TABLE.iter().filter(|row| row.action.is_none()) {
            assert_eq!(row.opcode.name(), Some(row.name));
        }
    }

    #[test]
    fn every_row_is_found_by_its_cdb_and_nothing_else_is() {
        for opcode in 0..=255 {
            let mut cdb = [0; 16];
            cdb[0] = opcode;
            for action in 0..32 {
                let at = if OpCode(opcode) == OpCode::VARIABLE_LENGTH { 9 } else { 1 };
                cdb[at] = action;
                let found = find(&Cdb::from(cdb)).map(|row| row.name);
                let expected = TABLE.iter().find(|row| {
                    row.opcode.0 == opcode && row.action.is_none_or(|wanted| wanted.0 == u16::from(action))
                });
                assert_eq!(found.ok(), expected.map(|row| row.name));
            }
        }
    }

    #[test]
    fn an_unknown_service_action_is_told_from_an_unknown_operation_code() {
        let mut cdb = [0; 16];
        cdb[0] = 0x9e;
        let sense = find(&Cdb::from(cdb)).err().unwrap();
        assert_eq!(
            (sense.code, sense.field),
            (AdditionalSense::INVALID_FIELD_IN_CDB, Some(FieldPointer::cdb(1).bit(4)))
        );
        cdb[0] = 0xff;
        assert_eq!(find(&Cdb::from(cdb)).err().unwrap().code, AdditionalSense::INVALID_COMMAND_OPERATION_CODE);
    }
}
