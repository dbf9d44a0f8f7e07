//! Logout Response (RFC 7143, 11.15).

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, Unaligned};

use crate::bhs::{FINAL, Head};
use crate::codes::codes;
use crate::{BHS_LEN, Bhs, InitiatorTaskTag, Opcode, PduError, SerialNumber};

#[derive(FromBytes, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct Wire {
    /// The response code is byte 2.
    head: Head,
    reserved8: [u8; 8],
    itt: U32,
    reserved20: [u8; 4],
    stat_sn: U32,
    exp_cmd_sn: U32,
    max_cmd_sn: U32,
    reserved36: [u8; 4],
    time2wait: U16,
    time2retain: U16,
    reserved44: [u8; 4],
}

const _: () = assert!(size_of::<Wire>() == BHS_LEN);

codes! {
    /// The result of a logout (RFC 7143, 11.15.1).
    LogoutResponseCode {
        CLOSED = 0, "closed successfully";
        CID_NOT_FOUND = 1, "CID not found";
        RECOVERY_NOT_SUPPORTED = 2, "connection recovery not supported";
        CLEANUP_FAILED = 3, "cleanup failed";
    }
}

/// The response to a [`crate::LogoutRequest`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogoutResponse {
    /// The result of the logout.
    pub response: LogoutResponseCode,
    /// The tag of the request.
    pub itt: InitiatorTaskTag,
    /// The status number of this response.
    pub stat_sn: SerialNumber,
    /// Next command number the target expects.
    pub exp_cmd_sn: SerialNumber,
    /// Last command number the target takes.
    pub max_cmd_sn: SerialNumber,
    /// Seconds to wait before the next attempt to log in or reassign tasks.
    pub time2wait: u16,
    /// Seconds, after `time2wait`, for which the target keeps state for recovery.
    pub time2retain: u16,
}

impl LogoutResponse {
    /// The opcode of this PDU.
    pub const OPCODE: Opcode = Opcode::LOGOUT_RESPONSE;

    /// Parses a Logout Response.
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
            response: LogoutResponseCode(response),
            itt: bhs.itt(),
            stat_sn: SerialNumber(wire.stat_sn.get()),
            exp_cmd_sn: SerialNumber(wire.exp_cmd_sn.get()),
            max_cmd_sn: SerialNumber(wire.max_cmd_sn.get()),
            time2wait: wire.time2wait.get(),
            time2retain: wire.time2retain.get(),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> [u8; BHS_LEN] {
        zerocopy::transmute!(Wire {
            head: Head::new(Self::OPCODE, FINAL).specific(self.response.0, 0),
            itt: self.itt.0.into(),
            stat_sn: self.stat_sn.0.into(),
            exp_cmd_sn: self.exp_cmd_sn.0.into(),
            max_cmd_sn: self.max_cmd_sn.0.into(),
            time2wait: self.time2wait.into(),
            time2retain: self.time2retain.into(),
            ..Wire::new_zeroed()
        })
    }
}
