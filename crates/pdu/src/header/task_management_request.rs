//! Task Management Function Request (RFC 7143, 11.5; RFC 7144 adds functions 9 to 12).

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, Unaligned};

use crate::bhs::{FINAL, Head};
use crate::codes::codes;
use crate::{BHS_LEN, Bhs, InitiatorTaskTag, LunField, Opcode, PduError, SerialNumber};

/// The function field of the flags byte.
const FUNCTION_MASK: u8 = 0x7f;

#[derive(FromBytes, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct Wire {
    head: Head,
    lun: [u8; 8],
    itt: U32,
    referenced_task_tag: U32,
    cmd_sn: U32,
    exp_stat_sn: U32,
    ref_cmd_sn: U32,
    exp_data_sn: U32,
    reserved40: [u8; 8],
}

const _: () = assert!(size_of::<Wire>() == BHS_LEN);

codes! {
    /// The function to perform on tasks (RFC 7143, 11.5.1, and RFC 7144), seven bits.
    TaskManagementFunction {
        ABORT_TASK = 1, "ABORT TASK";
        ABORT_TASK_SET = 2, "ABORT TASK SET";
        CLEAR_ACA = 3, "CLEAR ACA";
        CLEAR_TASK_SET = 4, "CLEAR TASK SET";
        LOGICAL_UNIT_RESET = 5, "LOGICAL UNIT RESET";
        TARGET_WARM_RESET = 6, "TARGET WARM RESET";
        TARGET_COLD_RESET = 7, "TARGET COLD RESET";
        TASK_REASSIGN = 8, "TASK REASSIGN";
        QUERY_TASK = 9, "QUERY TASK";
        QUERY_TASK_SET = 10, "QUERY TASK SET";
        I_T_NEXUS_RESET = 11, "I_T NEXUS RESET";
        QUERY_ASYNCHRONOUS_EVENT = 12, "QUERY ASYNCHRONOUS EVENT";
    }
}

/// A request for a task management function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskManagementRequest {
    /// I: delivered ahead of `CmdSN` order.
    pub immediate: bool,
    /// The function to perform.
    pub function: TaskManagementFunction,
    /// The logical unit, for functions that address one.
    pub lun: LunField,
    /// The tag of this request.
    pub itt: InitiatorTaskTag,
    /// The task to abort, reassign or ask about; reserved for other functions.
    pub referenced_task_tag: InitiatorTaskTag,
    /// The command number of this request.
    pub cmd_sn: SerialNumber,
    /// Next status number the initiator expects on this connection.
    pub exp_stat_sn: SerialNumber,
    /// The command number of the task to abort.
    pub ref_cmd_sn: SerialNumber,
    /// For TASK REASSIGN of a read: the first Data-In not yet acknowledged, or 0.
    pub exp_data_sn: u32,
}

impl TaskManagementRequest {
    /// The opcode of this PDU.
    pub const OPCODE: Opcode = Opcode::TASK_MANAGEMENT_REQUEST;

    /// Parses a Task Management Function Request.
    ///
    /// # Errors
    ///
    /// [`PduError::Length`] when anything follows the header.
    pub fn parse(bhs: &Bhs) -> Result<Self, PduError> {
        bhs.expect_opcode(Self::OPCODE)?;
        bhs.expect_header_only()?;
        let wire: &Wire = zerocopy::transmute_ref!(bhs);
        Ok(Self {
            immediate: bhs.immediate(),
            function: TaskManagementFunction(bhs.flags() & FUNCTION_MASK),
            lun: bhs.lun(),
            itt: bhs.itt(),
            referenced_task_tag: InitiatorTaskTag(wire.referenced_task_tag.get()),
            cmd_sn: SerialNumber(wire.cmd_sn.get()),
            exp_stat_sn: SerialNumber(wire.exp_stat_sn.get()),
            ref_cmd_sn: SerialNumber(wire.ref_cmd_sn.get()),
            exp_data_sn: wire.exp_data_sn.get(),
        })
    }

    /// The header's bytes. Only seven bits of `function` are sent.
    pub fn emit(&self) -> [u8; BHS_LEN] {
        zerocopy::transmute!(Wire {
            head: Head::new(Self::OPCODE, FINAL | self.function.0 & FUNCTION_MASK).immediate(self.immediate),
            lun: self.lun.0,
            itt: self.itt.0.into(),
            referenced_task_tag: self.referenced_task_tag.0.into(),
            cmd_sn: self.cmd_sn.0.into(),
            exp_stat_sn: self.exp_stat_sn.0.into(),
            ref_cmd_sn: self.ref_cmd_sn.0.into(),
            exp_data_sn: self.exp_data_sn.into(),
            ..Wire::new_zeroed()
        })
    }
}
