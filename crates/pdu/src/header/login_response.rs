//! Login Response (RFC 7143, 11.13).

use core::fmt;

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, Unaligned};

use super::stage::LoginFlags;
use crate::bhs::Head;
use crate::{BHS_LEN, Bhs, InitiatorTaskTag, Isid, Opcode, PduError, SerialNumber, Stage, Tsih};

#[derive(FromBytes, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct Wire {
    /// Version-max is byte 2, Version-active byte 3.
    head: Head,
    isid: [u8; 6],
    tsih: U16,
    itt: U32,
    reserved20: [u8; 4],
    stat_sn: U32,
    exp_cmd_sn: U32,
    max_cmd_sn: U32,
    status_class: u8,
    status_detail: u8,
    reserved38: [u8; 10],
}

const _: () = assert!(size_of::<Wire>() == BHS_LEN);

/// The status of a login (RFC 7143, 11.13.5).
///
/// ```
/// use lunette_pdu::LoginStatus;
/// assert_eq!(LoginStatus::NOT_FOUND.to_string(), "target not found (0x0203)");
/// assert_eq!(LoginStatus { class: 2, detail: 0x77 }.to_string(), "initiator error (0x0277)");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LoginStatus {
    /// The kind of status; see the `CLASS_` constants.
    pub class: u8,
    /// The status within its class.
    pub detail: u8,
}

/// Declares the statuses of RFC 7143, 11.13.5.
macro_rules! login_statuses {
    ($($name:ident = $class:literal, $detail:literal, $words:literal;)*) => {
        impl LoginStatus {
            $(
                #[doc = concat!("Class ", $class, ", detail ", $detail, ": ", $words, ".")]
                pub const $name: Self = Self { class: $class, detail: $detail };
            )*

            /// A description, or `None` for a status that the RFC does not list.
            const fn words(self) -> Option<&'static str> {
                match (self.class, self.detail) {
                    $(($class, $detail) => Some($words),)*
                    _ => None,
                }
            }
        }
    };
}

login_statuses! {
    SUCCESS = 0, 0x00, "success";
    TARGET_MOVED_TEMPORARILY = 1, 0x01, "target moved temporarily";
    TARGET_MOVED_PERMANENTLY = 1, 0x02, "target moved permanently";
    INITIATOR_ERROR = 2, 0x00, "initiator error";
    AUTHENTICATION_FAILURE = 2, 0x01, "authentication failure";
    AUTHORIZATION_FAILURE = 2, 0x02, "initiator may not use this target";
    NOT_FOUND = 2, 0x03, "target not found";
    TARGET_REMOVED = 2, 0x04, "target removed";
    UNSUPPORTED_VERSION = 2, 0x05, "unsupported protocol version";
    TOO_MANY_CONNECTIONS = 2, 0x06, "too many connections in the session";
    MISSING_PARAMETER = 2, 0x07, "missing parameter";
    CANT_INCLUDE_IN_SESSION = 2, 0x08, "target cannot add a connection to the session";
    SESSION_TYPE_NOT_SUPPORTED = 2, 0x09, "session type not supported";
    SESSION_DOES_NOT_EXIST = 2, 0x0a, "session does not exist";
    INVALID_REQUEST_DURING_LOGIN = 2, 0x0b, "invalid request during login";
    TARGET_ERROR = 3, 0x00, "target error";
    SERVICE_UNAVAILABLE = 3, 0x01, "service unavailable";
    OUT_OF_RESOURCES = 3, 0x02, "target is out of resources";
}

impl LoginStatus {
    /// Class of the one status that lets the login go on.
    pub const CLASS_SUCCESS: u8 = 0;
    /// Class of statuses that send the initiator to another address.
    pub const CLASS_REDIRECTION: u8 = 1;
    /// Class of statuses that blame the initiator.
    pub const CLASS_INITIATOR_ERROR: u8 = 2;
    /// Class of statuses that blame the target; trying again later may help.
    pub const CLASS_TARGET_ERROR: u8 = 3;

    /// Whether the login goes on. The class alone decides.
    pub const fn is_success(self) -> bool {
        self.class == Self::CLASS_SUCCESS
    }
}

impl fmt::Display for LoginStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.words().unwrap_or(match self.class {
            Self::CLASS_SUCCESS => "success",
            Self::CLASS_REDIRECTION => "redirection",
            Self::CLASS_INITIATOR_ERROR => "initiator error",
            Self::CLASS_TARGET_ERROR => "target error",
            _ => "unknown status",
        });
        write!(f, "{words} (0x{:02x}{:02x})", self.class, self.detail)
    }
}

impl fmt::Debug for LoginStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LoginStatus({self})")
    }
}

/// A step of the login, from the target. Its keys are in the data segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoginResponse {
    /// T: the target agrees to leave the current stage.
    pub transit: bool,
    /// C: the keys continue in the next response. Never together with T.
    pub continue_: bool,
    /// The current stage.
    pub csg: Stage,
    /// The stage to enter next. Valid only with `transit`; otherwise it is parsed as [`Stage::SecurityNegotiation`] and
    /// emitted as zero.
    pub nsg: Stage,
    /// Highest protocol version supported.
    pub version_max: u8,
    /// The protocol version in use.
    pub version_active: u8,
    /// The ISID of the request.
    pub isid: Isid,
    /// The TSIH of the request, except in the response that ends the login of a new session.
    pub tsih: Tsih,
    /// The tag of the request.
    pub itt: InitiatorTaskTag,
    /// The status number of this response; valid if the status is a success.
    pub stat_sn: SerialNumber,
    /// Next command number the target expects.
    pub exp_cmd_sn: SerialNumber,
    /// Last command number the target takes.
    pub max_cmd_sn: SerialNumber,
    /// The status of the login.
    pub status: LoginStatus,
    /// Bytes of text in the data segment.
    pub data_segment_len: usize,
}

impl LoginResponse {
    /// The opcode of this PDU.
    pub const OPCODE: Opcode = Opcode::LOGIN_RESPONSE;

    /// Parses a Login Response.
    ///
    /// In a response that ends the login without success the flags have no meaning, and none of
    /// their values is refused: the status is what the initiator needs to see.
    ///
    /// # Errors
    ///
    /// [`PduError`] when T and C are both set, when CSG (or, with T, NSG) is the reserved stage 2,
    /// or when there are additional header segments.
    pub fn parse(bhs: &Bhs) -> Result<Self, PduError> {
        bhs.expect_opcode(Self::OPCODE)?;
        bhs.expect_no_ahs()?;
        let wire: &Wire = zerocopy::transmute_ref!(bhs);
        let status = LoginStatus { class: wire.status_class, detail: wire.status_detail };
        let LoginFlags { transit, continue_, csg, nsg } =
            if status.is_success() { LoginFlags::parse(bhs)? } else { LoginFlags::parse_leniently(bhs) };
        let [version_max, version_active] = wire.head.specific;
        Ok(Self {
            transit,
            continue_,
            csg,
            nsg,
            version_max,
            version_active,
            isid: Isid(wire.isid),
            tsih: Tsih(wire.tsih.get()),
            itt: bhs.itt(),
            stat_sn: SerialNumber(wire.stat_sn.get()),
            exp_cmd_sn: SerialNumber(wire.exp_cmd_sn.get()),
            max_cmd_sn: SerialNumber(wire.max_cmd_sn.get()),
            status,
            data_segment_len: bhs.data_segment_len(),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> [u8; BHS_LEN] {
        let &Self { transit, continue_, csg, nsg, .. } = self;
        let flags = LoginFlags { transit, continue_, csg, nsg }.emit();
        zerocopy::transmute!(Wire {
            head: Head::new(Self::OPCODE, flags)
                .specific(self.version_max, self.version_active)
                .data_segment_len(self.data_segment_len),
            isid: self.isid.0,
            tsih: self.tsih.0.into(),
            itt: self.itt.0.into(),
            stat_sn: self.stat_sn.0.into(),
            exp_cmd_sn: self.exp_cmd_sn.0.into(),
            max_cmd_sn: self.max_cmd_sn.0.into(),
            status_class: self.status.class,
            status_detail: self.status.detail,
            ..Wire::new_zeroed()
        })
    }
}
