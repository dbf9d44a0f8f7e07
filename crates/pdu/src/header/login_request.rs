//! Login Request (RFC 7143, 11.12).

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, Unaligned};

use super::stage::LoginFlags;
use crate::bhs::Head;
use crate::{BHS_LEN, Bhs, Cid, InitiatorTaskTag, Isid, Opcode, PduError, SerialNumber, Stage, Tsih};

#[derive(FromBytes, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct Wire {
    /// Version-max is byte 2, Version-min byte 3.
    head: Head,
    isid: [u8; 6],
    tsih: U16,
    itt: U32,
    cid: U16,
    reserved22: [u8; 2],
    cmd_sn: U32,
    exp_stat_sn: U32,
    reserved32: [u8; 16],
}

const _: () = assert!(size_of::<Wire>() == BHS_LEN);

/// A step of the login, from the initiator, always sent for immediate delivery. Its keys are in the data segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoginRequest {
    /// T: the initiator is ready to leave the current stage.
    pub transit: bool,
    /// C: the keys continue in the next request. Never together with T.
    pub continue_: bool,
    /// The current stage.
    pub csg: Stage,
    /// The stage to enter next. Valid only with `transit`; otherwise it is parsed as [`Stage::SecurityNegotiation`] and
    /// emitted as zero.
    pub nsg: Stage,
    /// Highest protocol version supported.
    pub version_max: u8,
    /// Lowest protocol version supported.
    pub version_min: u8,
    /// The initiator's part of the session identifier.
    pub isid: Isid,
    /// The session to join or restore, or [`Tsih::NEW`].
    pub tsih: Tsih,
    /// The tag that all requests of one login share.
    pub itt: InitiatorTaskTag,
    /// The connection's ID in its session.
    pub cid: Cid,
    /// The first command number of a new session, or the next one of an existing session.
    pub cmd_sn: SerialNumber,
    /// Acknowledges login responses, from the second request on.
    pub exp_stat_sn: SerialNumber,
    /// Bytes of text in the data segment.
    pub data_segment_len: usize,
}

impl LoginRequest {
    /// The opcode of this PDU.
    pub const OPCODE: Opcode = Opcode::LOGIN_REQUEST;

    /// Parses a Login Request. Whether the transition from CSG to NSG exists is not checked: the answer to one that
    /// does not is a Login Response.
    ///
    /// # Errors
    ///
    /// [`PduError`] when T and C are both set, when CSG (or, with T, NSG) is the reserved stage 2,
    /// or when there are additional header segments.
    pub fn parse(bhs: &Bhs) -> Result<Self, PduError> {
        bhs.expect_opcode(Self::OPCODE)?;
        bhs.expect_no_ahs()?;
        let LoginFlags { transit, continue_, csg, nsg } = LoginFlags::parse(bhs)?;
        let wire: &Wire = zerocopy::transmute_ref!(bhs);
        let [version_max, version_min] = wire.head.specific;
        Ok(Self {
            transit,
            continue_,
            csg,
            nsg,
            version_max,
            version_min,
            isid: Isid(wire.isid),
            tsih: Tsih(wire.tsih.get()),
            itt: bhs.itt(),
            cid: Cid(wire.cid.get()),
            cmd_sn: SerialNumber(wire.cmd_sn.get()),
            exp_stat_sn: SerialNumber(wire.exp_stat_sn.get()),
            data_segment_len: bhs.data_segment_len(),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> [u8; BHS_LEN] {
        let &Self { transit, continue_, csg, nsg, .. } = self;
        let flags = LoginFlags { transit, continue_, csg, nsg }.emit();
        zerocopy::transmute!(Wire {
            head: Head::new(Self::OPCODE, flags)
                .immediate(true)
                .specific(self.version_max, self.version_min)
                .data_segment_len(self.data_segment_len),
            isid: self.isid.0,
            tsih: self.tsih.0.into(),
            itt: self.itt.0.into(),
            cid: self.cid.0.into(),
            cmd_sn: self.cmd_sn.0.into(),
            exp_stat_sn: self.exp_stat_sn.0.into(),
            ..Wire::new_zeroed()
        })
    }
}
