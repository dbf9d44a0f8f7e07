//! Logout Request (RFC 7143, 11.14).

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, Unaligned};

use crate::bhs::{FINAL, Head};
use crate::codes::codes;
use crate::{BHS_LEN, Bhs, Cid, InitiatorTaskTag, Opcode, PduError, SerialNumber};

/// The reason field of the flags byte.
const REASON_MASK: u8 = 0x7f;

#[derive(FromBytes, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct Wire {
    head: Head,
    reserved8: [u8; 8],
    itt: U32,
    cid: U16,
    reserved22: [u8; 2],
    cmd_sn: U32,
    exp_stat_sn: U32,
    reserved32: [u8; 16],
}

const _: () = assert!(size_of::<Wire>() == BHS_LEN);

codes! {
    /// The extent of a logout (RFC 7143, 11.14.1), seven bits.
    LogoutReason {
        CLOSE_SESSION = 0, "close the session";
        CLOSE_CONNECTION = 1, "close the connection";
        REMOVE_CONNECTION_FOR_RECOVERY = 2, "remove the connection for recovery";
    }
}

/// A request to end a session or one of its connections in an orderly way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogoutRequest {
    /// I: delivered ahead of `CmdSN` order.
    pub immediate: bool,
    /// The extent of the logout: the session or a connection.
    pub reason: LogoutReason,
    /// The tag of this request.
    pub itt: InitiatorTaskTag,
    /// The connection to end. Ignored when the session is to end.
    pub cid: Cid,
    /// The command number of this request.
    pub cmd_sn: SerialNumber,
    /// Next status number the initiator expects on this connection.
    pub exp_stat_sn: SerialNumber,
}

impl LogoutRequest {
    /// The opcode of this PDU.
    pub const OPCODE: Opcode = Opcode::LOGOUT_REQUEST;

    /// Parses a Logout Request.
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
            reason: LogoutReason(bhs.flags() & REASON_MASK),
            itt: bhs.itt(),
            cid: Cid(wire.cid.get()),
            cmd_sn: SerialNumber(wire.cmd_sn.get()),
            exp_stat_sn: SerialNumber(wire.exp_stat_sn.get()),
        })
    }

    /// The header's bytes. Only seven bits of `reason` are sent.
    pub fn emit(&self) -> [u8; BHS_LEN] {
        zerocopy::transmute!(Wire {
            head: Head::new(Self::OPCODE, FINAL | self.reason.0 & REASON_MASK).immediate(self.immediate),
            itt: self.itt.0.into(),
            cid: self.cid.0.into(),
            cmd_sn: self.cmd_sn.0.into(),
            exp_stat_sn: self.exp_stat_sn.0.into(),
            ..Wire::new_zeroed()
        })
    }
}
