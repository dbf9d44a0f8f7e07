//! The command handlers: one file for each family of commands.

pub(crate) mod capacity;
pub(crate) mod compare_and_write;
pub(crate) mod context;
pub(crate) mod copy;
pub(crate) mod defects;
pub(crate) mod flush;
pub(crate) mod identifying;
pub(crate) mod inquiry;
pub(crate) mod lba_status;
pub(crate) mod log;
pub(crate) mod luns;
pub(crate) mod mode;
pub(crate) mod opcodes;
pub(crate) mod opcodes_report;
pub(crate) mod or_write;
pub(crate) mod persistent_in;
pub(crate) mod persistent_out;
pub(crate) mod port_groups;
pub(crate) mod pre_fetch;
pub(crate) mod read_write;
pub(crate) mod request_sense;
pub(crate) mod reserve;
pub(crate) mod row;
pub(crate) mod sanitize;
pub(crate) mod start_stop;
pub(crate) mod task_functions;
pub(crate) mod test_unit_ready;
pub(crate) mod timestamp;
pub(crate) mod unmap;
pub(crate) mod verify;
pub(crate) mod write_same;
pub(crate) mod xor;

/// FUA in the flags byte of the commands that have it.
pub(crate) const FUA: u8 = 0x08;
