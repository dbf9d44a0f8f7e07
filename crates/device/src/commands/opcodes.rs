//! The opcode table: every command of the device server, with everything that is checked and reported about it.
//!
//! Admission checks a command by its row, REPORT SUPPORTED OPERATION CODES reports it, and the task calls its handler.

mod table;

use lunette_scsi::{AdditionalSense, Cdb, OpCode, SenseData};

use super::row::Row;
use crate::unit::itl_nexus::ItlNexus;
use crate::unit::medium::MediumUse;
pub(crate) use table::TABLE;

/// Finds the row of a CDB.
///
/// # Errors
///
/// INVALID COMMAND OPERATION CODE, or INVALID FIELD IN CDB with a pointer to the unknown service action of a known
/// operation code.
pub(crate) fn find(cdb: &Cdb) -> Result<&'static Row, SenseData> {
    let mut rows = with_opcode(cdb.opcode()).peekable();
    if rows.peek().is_none() {
        return Err(SenseData::illegal_request(AdditionalSense::INVALID_COMMAND_OPERATION_CODE));
    }
    let action = cdb.service_action();
    rows.find(|row| row.action.is_none_or(|wanted| wanted == action)).ok_or(cdb.service_action_field().into())
}

/// Whether a nexus that may only read is refused a command, because it changes the medium or what other nexuses see.
/// The drivers of the device need not ask; models of them compare it with what they observe.
pub fn is_refused_to_readers(cdb: &Cdb) -> bool {
    find(cdb).is_ok_and(|row| row.medium == MediumUse::Writes || row.effect.is_of(cdb))
}

/// Sense data for a CDB whose row the unit of `itl` does not support: the operation code is invalid when none of its
/// rows is supported, otherwise the service action is.
pub(crate) fn unsupported(cdb: &Cdb, itl: &ItlNexus) -> SenseData {
    if with_opcode(cdb.opcode()).any(|row| row.supported_by(itl)) {
        return cdb.service_action_field().into();
    }
    SenseData::illegal_request(AdditionalSense::INVALID_COMMAND_OPERATION_CODE)
}

/// The rows of an operation code: one row, or one for each service action.
pub(crate) fn with_opcode(opcode: OpCode) -> impl Iterator<Item = &'static Row> {
    let first = usize::from(FIRST_ROW[usize::from(opcode.0)]);
    TABLE[first..].iter().take_while(move |row| row.opcode == opcode)
}

/// The index of the first row of each operation code; the length of the table for codes without rows.
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
    use crate::commands::row::SharedEffect;

    #[test]
    fn the_page_on_limits_lists_all_that_a_host_that_may_only_read_is_refused() {
        let page = include_str!("../../../../docs/limits.md");
        let section = page.split("## A host that may only read").nth(1).unwrap().split("\n## ").next().unwrap();
        let listed: Vec<&str> = section
            .lines()
            .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next())
            .flat_map(|cell| cell.split(", "))
            .collect();
        for row in TABLE {
            let is_refused = row.medium == MediumUse::Writes || row.effect != SharedEffect::None;
            assert_eq!(listed.contains(&row.name), is_refused, "{}", row.name);
        }
    }

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
    fn an_unknown_service_action_differs_from_an_unknown_operation_code() {
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
