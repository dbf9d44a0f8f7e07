//! REPORT SUPPORTED OPERATION CODES (SPC-5 6.34), from the opcode table.

use lunette_scsi::{FieldPointer, OpCode, SenseData, ServiceAction, report};

use crate::commands::context::Cx;
use crate::commands::opcodes;
use crate::commands::row::Row;
use crate::coroutine::Reply;
use crate::unit::itl_nexus::ItlNexus;

const RCTD: u8 = 0x80;
const REPORTING_OPTIONS: u8 = 0x07;

/// Executes REPORT SUPPORTED OPERATION CODES.
pub(crate) async fn report_supported_operation_codes(cx: Cx) -> Reply {
    let itl = cx.itl()?;
    let timeouts = cx.cdb.bit(2, RCTD);
    let (opcode, action) = (OpCode(cx.cdb.byte(3)), ServiceAction(cx.cdb.u16_at(4)));
    let data = match cx.cdb.byte(2) & REPORTING_OPTIONS {
        0 => report::all_commands(opcodes::TABLE.iter().filter(|row| row.supported_by(itl)).map(Row::report), timeouts),
        option => report::one_command(one(option, opcode, action, itl)?.map(Row::report), timeouts),
    };
    cx.reply(&data, cx.cdb.u32_at(6) as usize).await
}

/// The requested row; `None` when the command is not supported.
///
/// Option 1 is for operation codes without service actions, option 2 for those with service actions, and option 3 for
/// both.
fn one(option: u8, opcode: OpCode, action: ServiceAction, itl: &ItlNexus) -> Result<Option<&'static Row>, SenseData> {
    let mut rows = opcodes::with_opcode(opcode).filter(|row| row.supported_by(itl)).peekable();
    let Some(has_actions) = rows.peek().map(|row| row.action.is_some()) else { return Ok(None) };
    let fits = match option {
        1 => !has_actions,
        2 => has_actions,
        3 => true,
        _ => false,
    };
    if !fits {
        return Err(FieldPointer::cdb(2).bit(2).into());
    }
    Ok(rows.find(|row| match row.action {
        Some(known) => known == action,
        // Only option 3 evaluates the service action of an operation code without one.
        None => option == 1 || action == ServiceAction(0),
    }))
}
