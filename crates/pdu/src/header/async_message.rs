//! Asynchronous Message (RFC 7143, 11.9).

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, Unaligned};

use crate::bhs::{FINAL, Head};
use crate::codes::codes;
use crate::{BHS_LEN, Bhs, InitiatorTaskTag, LunField, Opcode, PduError, SerialNumber};

#[derive(FromBytes, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct Wire {
    head: Head,
    lun: [u8; 8],
    /// Always the reserved tag.
    itt: U32,
    reserved20: [u8; 4],
    stat_sn: U32,
    exp_cmd_sn: U32,
    max_cmd_sn: U32,
    event: u8,
    vcode: u8,
    parameter1: U16,
    parameter2: U16,
    parameter3: U16,
    reserved44: [u8; 4],
}

const _: () = assert!(size_of::<Wire>() == BHS_LEN);

codes! {
    /// The kind of event (RFC 7143, 11.9.1).
    AsyncEvent {
        /// Sense data is in the data segment.
        SCSI_EVENT = 0, "SCSI asynchronous event";
        /// Parameter3 is the number of seconds within which the target expects the logout.
        LOGOUT_REQUEST = 1, "target requests logout";
        /// Parameter1 is the CID, Parameter2 and 3 are `DefaultTime2Wait` and `DefaultTime2Retain`.
        CONNECTION_DROP = 2, "target will drop a connection";
        /// Parameter2 and 3 are `DefaultTime2Wait` and `DefaultTime2Retain`.
        SESSION_DROP = 3, "target will drop the session";
        /// Parameter3 is the number of seconds within which the target expects the negotiation.
        NEGOTIATION_REQUEST = 4, "target requests parameter negotiation";
        /// Parameter1 and 2 are reserved; all tasks of the LUN have ended.
        TASK_TERMINATION = 5, "all tasks of the logical unit were terminated";
        /// `AsyncVCode` says which event.
        VENDOR_SPECIFIC = 255, "vendor-specific event";
    }
}

/// A message from the target that answers no request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AsyncMessage {
    /// The logical unit, for SCSI events and task termination.
    pub lun: LunField,
    /// The status number of this message.
    pub stat_sn: SerialNumber,
    /// Next command number the target expects.
    pub exp_cmd_sn: SerialNumber,
    /// Last command number the target takes.
    pub max_cmd_sn: SerialNumber,
    /// The kind of event.
    pub event: AsyncEvent,
    /// The code of a vendor-specific event; reserved for other events.
    pub vcode: u8,
    /// A parameter whose meaning depends on the event: see the constants of [`AsyncEvent`].
    pub parameter1: u16,
    /// A parameter whose meaning depends on the event: see the constants of [`AsyncEvent`].
    pub parameter2: u16,
    /// A parameter whose meaning depends on the event: see the constants of [`AsyncEvent`].
    pub parameter3: u16,
    /// Bytes of sense and event data.
    pub data_segment_len: usize,
}

impl AsyncMessage {
    /// The opcode of this PDU.
    pub const OPCODE: Opcode = Opcode::ASYNC_MESSAGE;

    /// Parses an Asynchronous Message.
    ///
    /// # Errors
    ///
    /// [`PduError::Length`] when there are additional header segments.
    pub fn parse(bhs: &Bhs) -> Result<Self, PduError> {
        bhs.expect_opcode(Self::OPCODE)?;
        bhs.expect_no_ahs()?;
        let wire: &Wire = zerocopy::transmute_ref!(bhs);
        Ok(Self {
            lun: bhs.lun(),
            stat_sn: SerialNumber(wire.stat_sn.get()),
            exp_cmd_sn: SerialNumber(wire.exp_cmd_sn.get()),
            max_cmd_sn: SerialNumber(wire.max_cmd_sn.get()),
            event: AsyncEvent(wire.event),
            vcode: wire.vcode,
            parameter1: wire.parameter1.get(),
            parameter2: wire.parameter2.get(),
            parameter3: wire.parameter3.get(),
            data_segment_len: bhs.data_segment_len(),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> [u8; BHS_LEN] {
        zerocopy::transmute!(Wire {
            head: Head::new(Self::OPCODE, FINAL).data_segment_len(self.data_segment_len),
            lun: self.lun.0,
            itt: InitiatorTaskTag::RESERVED.0.into(),
            stat_sn: self.stat_sn.0.into(),
            exp_cmd_sn: self.exp_cmd_sn.0.into(),
            max_cmd_sn: self.max_cmd_sn.0.into(),
            event: self.event.0,
            vcode: self.vcode,
            parameter1: self.parameter1.into(),
            parameter2: self.parameter2.into(),
            parameter3: self.parameter3.into(),
            ..Wire::new_zeroed()
        })
    }
}
