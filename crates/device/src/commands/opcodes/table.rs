//! The rows of the opcode table.

use std::future::ready;

use lunette_scsi::{OpCode, ServiceAction};

use crate::commands::copy::{extended, results, tokens};
use crate::commands::row::{AbsentUnit, AttentionRule, Direction, Handler, RangeRule, Requirement, Row, SharedEffect};
use crate::commands::{
    capacity, compare_and_write, defects, flush, identifying, inquiry, lba_status, log, luns, mode, opcodes_report,
    or_write, persistent_in, persistent_out, port_groups, pre_fetch, read_write, request_sense, reserve, sanitize,
    start_stop, task_functions, test_unit_ready, timestamp, unmap, verify, write_same, xor,
};
use crate::port_groups::access::AccessRule;
use crate::reservations::ReservationRule;
use crate::sanitize::SanitizeRule;
use crate::unit::medium::MediumUse;

/// The bits of GROUP NUMBER. It is accepted and ignored: grouping functions are not supported.
const GROUP: u8 = 0x3f;
const DPO: u8 = 0x10;
const FUA: u8 = 0x08;
const DISABLE_WRITE: u8 = 0x04;
const BYTCHK: u8 = 0x06;
/// The bit of BYTCHK that WRITE AND VERIFY supports: values 0 and 1.
const BYTCHK_COMPARE: u8 = 0x02;
const UNMAP: u8 = 0x08;
/// ANCHOR of WRITE SAME.
const ANCHOR: u8 = 0x10;
/// ANCHOR of UNMAP.
const UNMAP_ANCHOR: u8 = 0x01;
const NDOB: u8 = 0x01;
const IMMED: u8 = 0x02;
/// ADDITIONAL CDB LENGTH of a 32-byte CDB.
const ADDITIONAL_LEN_32: u8 = 0x18;
/// `SYNC_NV` of SBC-3: a non-volatile cache would be enough. The medium is better still.
const SYNC_NV: u8 = 0x04;

/// IMMED and AUSE of SANITIZE. ZNR is for zoned media alone.
const SANITIZE_FLAGS: u8 = 0xa0;

/// CDB usage of commands on blocks. NACA and the obsolete bits of the CONTROL byte are not supported.
const fn blocks_6(opcode: u8) -> [u8; 6] {
    [opcode, 0x1f, 0xff, 0xff, 0xff, 0]
}
const fn blocks_10(opcode: u8, flags: u8) -> [u8; 10] {
    [opcode, flags, 0xff, 0xff, 0xff, 0xff, GROUP, 0xff, 0xff, 0]
}
const fn blocks_12(opcode: u8, flags: u8) -> [u8; 12] {
    [opcode, flags, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, GROUP, 0]
}
const fn blocks_16(opcode: u8, flags: u8) -> [u8; 16] {
    [opcode, flags, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, GROUP, 0]
}

/// The usage of a 32-byte CDB. The expected reference and application tags are accepted and, without protection
/// information, ignored.
const fn blocks_32(action: u8, flags: u8) -> [u8; 32] {
    let mut usage = [0xff; 32];
    let head = [0x7f, 0, 0, 0, 0, 0, GROUP, ADDITIONAL_LEN_32, 0, action, flags, 0];
    let mut at = 0;
    while at < head.len() {
        usage[at] = head[at];
        at += 1;
    }
    usage
}

/// The defaults of most rows: a command on a logical unit that does not access the medium.
const PLAIN: Row = Row {
    opcode: OpCode(0xff),
    action: None,
    name: "",
    usage: &[],
    direction: Direction::None,
    attention: AttentionRule::Reported,
    absent: AbsentUnit::Refused,
    access: AccessRule::Active,
    medium: MediumUse::Untouched,
    effect: SharedEffect::None,
    reservation: ReservationRule::Conflicts,
    sanitizing: SanitizeRule::Refused,
    range: RangeRule::None,
    needs: Requirement::Nothing,
    handler: |cx, slot| slot.begin(ready(test_unit_ready::test_unit_ready(&cx))),
    at_once: false,
};

/// A command that is answered in every state.
const ALWAYS: Row = Row {
    direction: Direction::In,
    attention: AttentionRule::Passes,
    absent: AbsentUnit::Answered,
    access: AccessRule::Always,
    reservation: ReservationRule::PassesAll,
    sanitizing: SanitizeRule::Passes,
    ..PLAIN
};

const READ: Row = Row {
    direction: Direction::In,
    medium: MediumUse::Reads,
    reservation: ReservationRule::PassesWriteExclusive,
    range: RangeRule::Transfer,
    handler: |cx, slot| slot.begin(read_write::read(cx)),
    ..PLAIN
};

const WRITE: Row = Row {
    direction: Direction::Out,
    medium: MediumUse::Writes,
    range: RangeRule::Transfer,
    handler: |cx, slot| slot.begin(read_write::write(cx)),
    ..PLAIN
};

/// READ itself, which a store may answer at once; those below only resemble it.
const READ_AT_ONCE: Row = Row { at_once: true, ..READ };

/// The row of a WRITE that may be answered at once.
const WRITE_AT_ONCE: Row = Row { at_once: true, ..WRITE };

const VERIFY: Row = Row { direction: Direction::Out, handler: |cx, slot| slot.begin(verify::verify(cx)), ..READ };

const WRITE_AND_VERIFY: Row = Row { handler: |cx, slot| slot.begin(verify::write_and_verify(cx)), ..WRITE };

const PRE_FETCH: Row = Row {
    direction: Direction::None,
    range: RangeRule::ToEnd,
    handler: |cx, slot| slot.begin(pre_fetch::pre_fetch(cx)),
    ..READ
};

const DEFECTS: Row =
    Row { range: RangeRule::None, handler: |cx, slot| slot.begin(defects::read_defect_data(cx)), ..READ };

const WRITE_SAME: Row =
    Row { range: RangeRule::WriteSame, handler: |cx, slot| slot.begin(write_same::write_same(cx)), ..WRITE };

/// SPC-4 does not list the command among those that standby permits, but initiators inspect disks before they choose a
/// path.
const CAPACITY: Row = Row {
    direction: Direction::In,
    access: AccessRule::Standby,
    medium: MediumUse::Needed,
    reservation: ReservationRule::PassesAll,
    ..PLAIN
};

/// RESERVE and RELEASE check reservations themselves.
const RESERVE: Row = Row {
    effect: SharedEffect::Changes,
    reservation: ReservationRule::PassesAll,
    handler: |cx, slot| slot.begin(ready(reserve::reserve(&cx))),
    ..PLAIN
};

const RELEASE: Row =
    Row { effect: SharedEffect::None, handler: |cx, slot| slot.begin(ready(reserve::release(&cx))), ..RESERVE };

const MODE_SENSE: Row = Row {
    direction: Direction::In,
    access: AccessRule::Standby,
    sanitizing: SanitizeRule::Passes,
    reservation: ReservationRule::PassesWriteExclusive,
    handler: |cx, slot| slot.begin(mode::mode_sense(cx)),
    ..PLAIN
};

const MODE_SELECT: Row = Row {
    direction: Direction::Out,
    effect: SharedEffect::Changes,
    access: AccessRule::Standby,
    handler: |cx, slot| slot.begin(mode::mode_select(cx)),
    ..PLAIN
};

/// A command on the whole medium, whose CDB names no blocks.
const SANITIZE: Row = Row {
    direction: Direction::None,
    sanitizing: SanitizeRule::Ends,
    range: RangeRule::None,
    handler: |cx, slot| slot.begin(sanitize::sanitize(cx)),
    ..WRITE
};

const SYNCHRONIZE: Row = Row {
    medium: MediumUse::Needed,
    range: RangeRule::ToEnd,
    handler: |cx, slot| slot.begin(flush::synchronize_cache(cx)),
    ..PLAIN
};

const EXTENDED_COPY: Row =
    Row { direction: Direction::Out, handler: |cx, slot| slot.begin(extended::extended_copy(cx)), ..PLAIN };

/// The table, in the order of operation codes and service actions.
#[rustfmt::skip]
pub(crate) static TABLE: &[Row] = &[
    row("TEST UNIT READY", &[0x00, 0, 0, 0, 0, 0], Row { medium: MediumUse::Needed, reservation: ReservationRule::Passes, ..PLAIN }),
    row("REQUEST SENSE", &[0x03, 0x01, 0, 0, 0xff, 0],
        Row { handler: |cx, slot| slot.begin(request_sense::request_sense(cx)), ..ALWAYS }),
    row("READ(6)", &blocks_6(0x08), READ_AT_ONCE),
    row("WRITE(6)", &blocks_6(0x0a), WRITE_AT_ONCE),
    row("INQUIRY", &[0x12, 0x01, 0xff, 0xff, 0xff, 0], Row { handler: |cx, slot| slot.begin(inquiry::inquiry(cx)), ..ALWAYS }),
    row("MODE SELECT(6)", &[0x15, 0x11, 0, 0, 0xff, 0], MODE_SELECT),
    row("RESERVE(6)", &[0x16, 0, 0, 0, 0, 0], RESERVE),
    row("RELEASE(6)", &[0x17, 0, 0, 0, 0, 0], RELEASE),
    row("MODE SENSE(6)", &[0x1a, 0x08, 0xff, 0xff, 0xff, 0], MODE_SENSE),
    row("START STOP UNIT", &[0x1b, 0x01, 0, 0x0f, 0xf7, 0],
        Row { effect: SharedEffect::ChangesUnlessStart, reservation: ReservationRule::PassesStart,
              handler: |cx, slot| slot.begin(start_stop::start_stop_unit(cx)), ..PLAIN }),
    row("PREVENT ALLOW MEDIUM REMOVAL", &[0x1e, 0, 0, 0, 0x01, 0],
        Row { effect: SharedEffect::ChangesUnlessAllow, reservation: ReservationRule::PassesAllow, needs: Requirement::RemovableMedium,
              handler: |cx, slot| slot.begin(ready(start_stop::prevent_allow_medium_removal(&cx))), ..PLAIN }),
    row("READ CAPACITY(10)", &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        Row { handler: |cx, slot| slot.begin(capacity::read_capacity_10(cx)), ..CAPACITY }),
    row("READ(10)", &blocks_10(0x28, DPO | FUA), READ_AT_ONCE),
    row("WRITE(10)", &blocks_10(0x2a, DPO | FUA), WRITE_AT_ONCE),
    row("WRITE AND VERIFY(10)", &blocks_10(0x2e, DPO | BYTCHK_COMPARE), WRITE_AND_VERIFY),
    row("VERIFY(10)", &blocks_10(0x2f, DPO | BYTCHK), VERIFY),
    row("PRE-FETCH(10)", &blocks_10(0x34, IMMED), PRE_FETCH),
    row("SYNCHRONIZE CACHE(10)", &blocks_10(0x35, IMMED | SYNC_NV), SYNCHRONIZE),
    row("READ DEFECT DATA(10)", &[0x37, 0, lunette_scsi::defects::REQUEST, 0, 0, 0, 0, 0xff, 0xff, 0], DEFECTS),
    row("WRITE SAME(10)", &blocks_10(0x41, ANCHOR | UNMAP), WRITE_SAME),
    row("UNMAP", &[0x42, UNMAP_ANCHOR, 0, 0, 0, 0, GROUP, 0xff, 0xff, 0],
        Row { range: RangeRule::None, needs: Requirement::Unmap, handler: |cx, slot| slot.begin(unmap::unmap(cx)), ..WRITE }),
    row("SANITIZE: OVERWRITE", &[0x48, SANITIZE_FLAGS | 0x01, 0, 0, 0, 0, 0, 0xff, 0xff, 0],
        Row { action: Some(ServiceAction::OVERWRITE), direction: Direction::Out, ..SANITIZE }),
    row("SANITIZE: BLOCK ERASE", &[0x48, SANITIZE_FLAGS | 0x02, 0, 0, 0, 0, 0, 0, 0, 0],
        Row { action: Some(ServiceAction::BLOCK_ERASE), needs: Requirement::Unmap, ..SANITIZE }),
    row("SANITIZE: CRYPTOGRAPHIC ERASE", &[0x48, SANITIZE_FLAGS | 0x03, 0, 0, 0, 0, 0, 0, 0, 0],
        Row { action: Some(ServiceAction::CRYPTOGRAPHIC_ERASE), needs: Requirement::Memory, ..SANITIZE }),
    row("SANITIZE: EXIT FAILURE MODE", &[0x48, SANITIZE_FLAGS | 0x1f, 0, 0, 0, 0, 0, 0, 0, 0],
        Row { action: Some(ServiceAction::EXIT_FAILURE_MODE), medium: MediumUse::Untouched, effect: SharedEffect::Changes,
              handler: |cx, slot| slot.begin(sanitize::exit_failure_mode(cx)), ..SANITIZE }),
    row("LOG SELECT", &[0x4c, 0x02, 0xff, 0xff, 0, 0, 0, 0xff, 0xff, 0],
        Row { direction: Direction::Out, access: AccessRule::Standby, effect: SharedEffect::Changes,
              handler: |cx, slot| slot.begin(log::log_select(cx)), ..PLAIN }),
    row("LOG SENSE", &[0x4d, 0, 0xff, 0xff, 0, 0xff, 0xff, 0xff, 0xff, 0],
        Row { direction: Direction::In, access: AccessRule::Standby, reservation: ReservationRule::PassesAll,
              sanitizing: SanitizeRule::Passes,
              handler: |cx, slot| slot.begin(log::log_sense(cx)), ..PLAIN }),
    row("XDWRITEREAD(10)", &blocks_10(0x53, DPO | FUA | DISABLE_WRITE),
        Row { direction: Direction::Both, handler: |cx, slot| slot.begin(xor::xdwriteread(cx)), ..WRITE }),
    row("MODE SELECT(10)", &[0x55, 0x11, 0, 0, 0, 0, 0, 0xff, 0xff, 0], MODE_SELECT),
    row("RESERVE(10)", &[0x56, 0, 0, 0, 0, 0, 0, 0, 0, 0], RESERVE),
    row("RELEASE(10)", &[0x57, 0, 0, 0, 0, 0, 0, 0, 0, 0], RELEASE),
    row("MODE SENSE(10)", &[0x5a, 0x18, 0xff, 0xff, 0, 0, 0, 0xff, 0xff, 0], MODE_SENSE),
    persistent_in("PERSISTENT RESERVE IN: READ KEYS", &PERSISTENT_IN[0]),
    persistent_in("PERSISTENT RESERVE IN: READ RESERVATION", &PERSISTENT_IN[1]),
    persistent_in("PERSISTENT RESERVE IN: REPORT CAPABILITIES", &PERSISTENT_IN[2]),
    persistent_in("PERSISTENT RESERVE IN: READ FULL STATUS", &PERSISTENT_IN[3]),
    persistent_out("PERSISTENT RESERVE OUT: REGISTER", &PERSISTENT_OUT[0]),
    persistent_out("PERSISTENT RESERVE OUT: RESERVE", &PERSISTENT_OUT[1]),
    persistent_out("PERSISTENT RESERVE OUT: RELEASE", &PERSISTENT_OUT[2]),
    persistent_out("PERSISTENT RESERVE OUT: CLEAR", &PERSISTENT_OUT[3]),
    persistent_out("PERSISTENT RESERVE OUT: PREEMPT", &PERSISTENT_OUT[4]),
    persistent_out("PERSISTENT RESERVE OUT: PREEMPT AND ABORT", &PERSISTENT_OUT[5]),
    persistent_out("PERSISTENT RESERVE OUT: REGISTER AND IGNORE EXISTING KEY", &PERSISTENT_OUT[6]),
    persistent_out("PERSISTENT RESERVE OUT: REGISTER AND MOVE", &PERSISTENT_OUT[7]),
    long("READ(32)", &blocks_32(0x09, DPO | FUA), READ),
    long("VERIFY(32)", &blocks_32(0x0a, DPO | BYTCHK), VERIFY),
    long("WRITE(32)", &blocks_32(0x0b, DPO | FUA), WRITE),
    long("WRITE AND VERIFY(32)", &blocks_32(0x0c, DPO | BYTCHK_COMPARE), WRITE_AND_VERIFY),
    long("WRITE SAME(32)", &blocks_32(0x0d, ANCHOR | UNMAP | NDOB), WRITE_SAME),
    long("WRITE ATOMIC(32)", &blocks_32(0x0f, DPO | FUA),
        Row { range: RangeRule::Atomic, handler: |cx, slot| slot.begin(read_write::write_atomic(cx)), ..WRITE }),
    long("GET LBA STATUS(32)", &LBA_STATUS_32,
        Row { range: RangeRule::None, handler: |cx, slot| slot.begin(lba_status::get_lba_status(cx)), ..READ }),
    copy_out("EXTENDED COPY(LID1)", &extended_copy_usage(0x00), EXTENDED_COPY),
    copy_out("EXTENDED COPY(LID4)", &extended_copy_usage(0x01), EXTENDED_COPY),
    copy_out("POPULATE TOKEN", &token_usage(0x10),
        Row { medium: MediumUse::Reads, reservation: ReservationRule::PassesWriteExclusive,
              handler: |cx, slot| slot.begin(tokens::populate_token(cx)), ..EXTENDED_COPY }),
    copy_out("WRITE USING TOKEN", &token_usage(0x11),
        Row { medium: MediumUse::Writes, handler: |cx, slot| slot.begin(tokens::write_using_token(cx)), ..EXTENDED_COPY }),
    copy_out("COPY OPERATION ABORT", &[0x83, 0x1c, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        Row { direction: Direction::None, handler: |cx, slot| slot.begin(ready(extended::copy_operation_abort(&cx))), ..PLAIN }),
    copy_in("RECEIVE COPY STATUS(LID1)", &copy_in_usage(0x00, 1), |cx, slot| slot.begin(results::status_lid1(cx))),
    copy_in("RECEIVE COPY OPERATING PARAMETERS", &copy_in_usage(0x03, 0),
        |cx, slot| slot.begin(results::operating_parameters(cx))),
    copy_in("RECEIVE COPY FAILURE DETAILS(LID1)", &copy_in_usage(0x04, 1),
        |cx, slot| slot.begin(results::failure_details(cx))),
    copy_in("RECEIVE COPY STATUS(LID4)", &copy_in_usage(0x05, 4), |cx, slot| slot.begin(results::status_lid4(cx))),
    copy_in("RECEIVE ROD TOKEN INFORMATION", &copy_in_usage(0x07, 4),
        |cx, slot| slot.begin(results::rod_token_information(cx))),
    copy_in("REPORT ALL ROD TOKENS", &copy_in_usage(0x08, 0), |cx, slot| slot.begin(results::all_rod_tokens(cx))),
    row("READ(16)", &blocks_16(0x88, DPO | FUA), READ_AT_ONCE),
    row("COMPARE AND WRITE", &[0x89, DPO | FUA, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0xff, GROUP, 0],
        Row { handler: |cx, slot| slot.begin(compare_and_write::compare_and_write(cx)), ..WRITE }),
    row("WRITE(16)", &blocks_16(0x8a, DPO | FUA), WRITE_AT_ONCE),
    row("ORWRITE(16)", &blocks_16(0x8b, DPO | FUA), Row { handler: |cx, slot| slot.begin(or_write::or_write(cx)), ..WRITE }),
    row("WRITE AND VERIFY(16)", &blocks_16(0x8e, DPO | BYTCHK_COMPARE), WRITE_AND_VERIFY),
    row("VERIFY(16)", &blocks_16(0x8f, DPO | BYTCHK), VERIFY),
    row("PRE-FETCH(16)", &blocks_16(0x90, IMMED), PRE_FETCH),
    row("SYNCHRONIZE CACHE(16)", &blocks_16(0x91, IMMED | SYNC_NV), SYNCHRONIZE),
    row("WRITE SAME(16)", &blocks_16(0x93, ANCHOR | UNMAP | NDOB), WRITE_SAME),
    row("WRITE ATOMIC(16)", &[0x9c, DPO | FUA, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0xff, 0xff, GROUP, 0],
        Row { range: RangeRule::Atomic, handler: |cx, slot| slot.begin(read_write::write_atomic(cx)), ..WRITE }),
    row("READ CAPACITY(16)", &[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
        Row { action: Some(ServiceAction::READ_CAPACITY_16),
              handler: |cx, slot| slot.begin(capacity::read_capacity_16(cx)), ..CAPACITY }),
    row("GET LBA STATUS(16)", &[0x9e, 0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0],
        Row { action: Some(ServiceAction::GET_LBA_STATUS_16), range: RangeRule::None,
              handler: |cx, slot| slot.begin(lba_status::get_lba_status(cx)), ..READ }),
    row("REPORT LUNS", &[0xa0, 0, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
        Row { handler: |cx, slot| slot.begin(luns::report_luns(cx)), ..ALWAYS }),
    row("REPORT IDENTIFYING INFORMATION", &[0xa3, 0x05, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xfe, 0],
        Row { action: Some(ServiceAction::REPORT_IDENTIFYING_INFORMATION), direction: Direction::In,
              reservation: ReservationRule::Passes, needs: Requirement::State,
              handler: |cx, slot| slot.begin(identifying::report_identifying_information(cx)), ..PLAIN }),
    row("REPORT TARGET PORT GROUPS", &[0xa3, 0xea, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
        Row { action: Some(ServiceAction::REPORT_TARGET_PORT_GROUPS), direction: Direction::In,
              access: AccessRule::Always, reservation: ReservationRule::Passes, sanitizing: SanitizeRule::Passes,
              handler: |cx, slot| slot.begin(port_groups::report_target_port_groups(cx)), ..PLAIN }),
    row("REPORT SUPPORTED OPERATION CODES", &[0xa3, 0x0c, 0x87, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0],
        Row { action: Some(ServiceAction::REPORT_SUPPORTED_OPERATION_CODES), direction: Direction::In,
              access: AccessRule::Standby, reservation: ReservationRule::Passes, sanitizing: SanitizeRule::Passes,
              handler: |cx, slot| slot.begin(opcodes_report::report_supported_operation_codes(cx)), ..PLAIN }),
    row("REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS", &[0xa3, 0x0d, 0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
        Row { action: Some(ServiceAction::REPORT_SUPPORTED_TASK_MANAGEMENT_FUNCTIONS), direction: Direction::In,
              access: AccessRule::Standby, reservation: ReservationRule::Passes, sanitizing: SanitizeRule::Passes,
              handler: |cx, slot| slot.begin(task_functions::report_supported_task_management_functions(cx)), ..PLAIN }),
    row("REPORT TIMESTAMP", &[0xa3, 0x0f, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
        Row { action: Some(ServiceAction::REPORT_TIMESTAMP), direction: Direction::In,
              reservation: ReservationRule::Passes, handler: |cx, slot| slot.begin(timestamp::report_timestamp(cx)), ..PLAIN }),
    row("SET IDENTIFYING INFORMATION", &[0xa4, 0x06, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xfe, 0],
        Row { action: Some(ServiceAction::SET_IDENTIFYING_INFORMATION), direction: Direction::Out,
              effect: SharedEffect::Changes, needs: Requirement::State,
              handler: |cx, slot| slot.begin(identifying::set_identifying_information(cx)), ..PLAIN }),
    row("SET TARGET PORT GROUPS", &[0xa4, 0x0a, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
        Row { action: Some(ServiceAction::SET_TARGET_PORT_GROUPS), direction: Direction::Out,
              access: AccessRule::Unavailable, effect: SharedEffect::Changes, needs: Requirement::ExplicitAccess,
              handler: |cx, slot| slot.begin(port_groups::set_target_port_groups(cx)), ..PLAIN }),
    row("SET TIMESTAMP", &[0xa4, 0x0f, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
        Row { action: Some(ServiceAction::SET_TIMESTAMP), direction: Direction::Out, effect: SharedEffect::Changes,
              handler: |cx, slot| slot.begin(timestamp::set_timestamp(cx)), ..PLAIN }),
    row("READ(12)", &blocks_12(0xa8, DPO | FUA), READ_AT_ONCE),
    row("WRITE(12)", &blocks_12(0xaa, DPO | FUA), WRITE_AT_ONCE),
    row("WRITE AND VERIFY(12)", &blocks_12(0xae, DPO | BYTCHK_COMPARE), WRITE_AND_VERIFY),
    row("VERIFY(12)", &blocks_12(0xaf, DPO | BYTCHK), VERIFY),
    row("READ DEFECT DATA(12)", &[0xb7, lunette_scsi::defects::REQUEST, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0], DEFECTS),
];

/// REPORT TYPE and ELEMENT IDENTIFIER are not supported: all blocks are reported, and there are no elements.
static LBA_STATUS_32: [u8; 32] = {
    let mut usage = blocks_32(0x12, 0);
    (usage[6], usage[24], usage[25], usage[26], usage[27]) = (0, 0, 0, 0, 0);
    usage
};

/// The usage of EXTENDED COPY: a parameter list length.
const fn extended_copy_usage(action: u8) -> [u8; 16] {
    [0x83, action, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]
}

/// The usage of the token commands: list identifier and parameter list length.
const fn token_usage(action: u8) -> [u8; 16] {
    [0x83, action, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, GROUP, 0]
}

/// The usage of the commands that report on copies: a list identifier of `list_id_len` bytes, and an allocation length.
const fn copy_in_usage(action: u8, list_id_len: usize) -> [u8; 16] {
    let mut usage = [0x84, action, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0];
    let mut at = 0;
    while at < list_id_len {
        usage[2 + at] = 0xff;
        at += 1;
    }
    usage
}

/// A row of third-party copy, with the service action of its usage bitmap.
const fn copy_out(name: &'static str, usage: &'static [u8; 16], base: Row) -> Row {
    row(name, usage, Row { action: Some(ServiceAction(usage[1] as u16)), ..base })
}

const fn copy_in(name: &'static str, usage: &'static [u8; 16], handler: Handler) -> Row {
    copy_out(name, usage, Row { direction: Direction::In, handler, ..PLAIN })
}

/// The usage bitmaps of PERSISTENT RESERVE IN and OUT, by service action.
static PERSISTENT_IN: [[u8; 10]; 4] = persistent(0x5e, 0, 0);
static PERSISTENT_OUT: [[u8; 10]; 8] = persistent(0x5f, 0xff, 0xff);

/// The usage of both commands has a length in bytes 7 and 8; OUT has two more bytes of it, and SCOPE and TYPE.
const fn persistent<const N: usize>(opcode: u8, scope_type: u8, long: u8) -> [[u8; 10]; N] {
    let mut usages = [[opcode, 0, scope_type, 0, 0, long, long, 0xff, 0xff, 0]; N];
    let mut action = 0;
    while action < N {
        usages[action][1] = action as u8;
        action += 1;
    }
    usages
}

/// A row of PERSISTENT RESERVE IN, which persistent reservations permit and those of RESERVE do not.
const fn persistent_in(name: &'static str, usage: &'static [u8; 10]) -> Row {
    let base = Row {
        action: Some(ServiceAction(usage[1] as u16)),
        direction: Direction::In,
        access: AccessRule::Standby,
        reservation: ReservationRule::Passes,
        handler: |cx, slot| slot.begin(persistent_in::persistent_reserve_in(cx)),
        ..PLAIN
    };
    row(name, usage, base)
}

/// A row of PERSISTENT RESERVE OUT, which checks reservations itself.
const fn persistent_out(name: &'static str, usage: &'static [u8; 10]) -> Row {
    let base = Row {
        action: Some(ServiceAction(usage[1] as u16)),
        direction: Direction::Out,
        access: AccessRule::Standby,
        effect: SharedEffect::Changes,
        reservation: ReservationRule::PassesAll,
        handler: |cx, slot| slot.begin(persistent_out::persistent_reserve_out(cx)),
        ..PLAIN
    };
    row(name, usage, base)
}

/// A row of the variable length operation code.
const fn long(name: &'static str, usage: &'static [u8; 32], base: Row) -> Row {
    let action = u16::from_be_bytes([usage[8], usage[9]]);
    row(name, usage, Row { action: Some(ServiceAction(action)), needs: Requirement::LongCdbs, ..base })
}

/// A row whose operation code is the first byte of its usage bitmap.
const fn row(name: &'static str, usage: &'static [u8], base: Row) -> Row {
    Row { opcode: OpCode(usage[0]), name, usage, ..base }
}
