//! Task Management Function Response (RFC 7143, 11.6; RFC 7144 adds the response information).

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, Unaligned};

use crate::bhs::{FINAL, Head};
use crate::codes::codes;
use crate::{BHS_LEN, Bhs, InitiatorTaskTag, Opcode, PduError, SerialNumber};

#[derive(FromBytes, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct Wire {
    /// The response code is byte 2.
    head: Head,
    additional_response_information: [u8; 3],
    reserved11: [u8; 5],
    itt: U32,
    reserved20: [u8; 4],
    stat_sn: U32,
    exp_cmd_sn: U32,
    max_cmd_sn: U32,
    reserved36: [u8; 12],
}

const _: () = assert!(size_of::<Wire>() == BHS_LEN);

codes! {
    /// The result of a task management function (RFC 7143, 11.6.1, and RFC 7144).
    TaskManagementResponseCode {
        FUNCTION_COMPLETE = 0, "function complete";
        TASK_DOES_NOT_EXIST = 1, "task does not exist";
        LUN_DOES_NOT_EXIST = 2, "LUN does not exist";
        TASK_STILL_ALLEGIANT = 3, "task still allegiant";
        REASSIGNMENT_NOT_SUPPORTED = 4, "task allegiance reassignment not supported";
        FUNCTION_NOT_SUPPORTED = 5, "function not supported";
        AUTHORIZATION_FAILED = 6, "function authorization failed";
        FUNCTION_SUCCEEDED = 7, "function succeeded";
        FUNCTION_REJECTED = 255, "function rejected";
    }
}

/// The response to a [`crate::TaskManagementRequest`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskManagementResponse {
    /// The result of the function.
    pub response: TaskManagementResponseCode,
    /// The finding of QUERY ASYNCHRONOUS EVENT; zeros otherwise (RFC 7144; SAM-5, 7.8).
    pub additional_response_information: [u8; 3],
    /// The tag of the request.
    pub itt: InitiatorTaskTag,
    /// The status number of this response.
    pub stat_sn: SerialNumber,
    /// Next command number the target expects.
    pub exp_cmd_sn: SerialNumber,
    /// Last command number the target takes.
    pub max_cmd_sn: SerialNumber,
}

impl TaskManagementResponse {
    /// The opcode of this PDU.
    pub const OPCODE: Opcode = Opcode::TASK_MANAGEMENT_RESPONSE;

    /// Parses a Task Management Function Response.
    ///
    /// # Errors
    ///
    /// [`PduError::Length`] when anything follows the header.
    pub fn parse(bhs: &Bhs) -> Result<Self, PduError> {
        bhs.expect_opcode(Self::OPCODE)?;
        bhs.expect_header_only()?;
        let wire: &Wire = zerocopy::transmute_ref!(bhs);
        let [response, _] = wire.head.specific;
        Ok(Self {
            response: TaskManagementResponseCode(response),
            additional_response_information: wire.additional_response_information,
            itt: bhs.itt(),
            stat_sn: SerialNumber(wire.stat_sn.get()),
            exp_cmd_sn: SerialNumber(wire.exp_cmd_sn.get()),
            max_cmd_sn: SerialNumber(wire.max_cmd_sn.get()),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> [u8; BHS_LEN] {
        zerocopy::transmute!(Wire {
            head: Head::new(Self::OPCODE, FINAL).specific(self.response.0, 0),
            additional_response_information: self.additional_response_information,
            itt: self.itt.0.into(),
            stat_sn: self.stat_sn.0.into(),
            exp_cmd_sn: self.exp_cmd_sn.0.into(),
            max_cmd_sn: self.max_cmd_sn.0.into(),
            ..Wire::new_zeroed()
        })
    }
}
