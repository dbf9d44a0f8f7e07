//! The format of requests and answers: one request on each connection, in the order of bytes of the machine.

use crate::limits::MAX_PARAMETER_BYTES;

/// The length of a request without its parameters.
pub(crate) const REQUEST_LEN: usize = 120;

/// The length of an answer without its text.
pub(crate) const ANSWER_LEN: usize = 8;

/// The only driver that is there.
const DRIVER: &str = "iscsi";

/// The thing that a request is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// All of it.
    System,
    /// A target.
    Target,
    /// A logical unit.
    LogicalUnit,
    /// An address that is listened at.
    Portal,
    /// The driver: iSCSI.
    Driver,
    /// A session.
    Session,
    /// A connection of a session.
    Connection,
    /// A user of CHAP.
    Account,
}

impl Mode {
    const ALL: [Self; 8] = [
        Self::System,
        Self::Target,
        Self::LogicalUnit,
        Self::Portal,
        Self::Driver,
        Self::Session,
        Self::Connection,
        Self::Account,
    ];
}

impl Mode {
    /// The answer to an operation that it does not have.
    pub(crate) fn fault(self) -> Fault {
        match self {
            Self::LogicalUnit | Self::Account => Fault::Unsupported,
            Self::System | Self::Target | Self::Portal | Self::Driver | Self::Session | Self::Connection => {
                Fault::Invalid
            }
        }
    }
}

/// The operation of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    /// Create it.
    New,
    /// Remove it.
    Delete,
    /// Print it.
    Show,
    /// Let something in.
    Bind,
    /// Let it in no more.
    Unbind,
    /// Change it.
    Update,
    /// Print counts.
    Stat,
    /// Start it.
    Start,
    /// Stop it.
    Stop,
}

impl Op {
    const ALL: [Self; 9] = [
        Self::New,
        Self::Delete,
        Self::Show,
        Self::Bind,
        Self::Unbind,
        Self::Update,
        Self::Stat,
        Self::Start,
        Self::Stop,
    ];
}

/// Why a request fails. tgtadm prints a sentence for each, and people match on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[repr(u32)]
pub(crate) enum Fault {
    /// The server has failed.
    #[error("unknown error")]
    Unknown = 1,
    /// The driver is not iSCSI.
    #[error("can't find the driver")]
    NoDriver = 3,
    /// No target has the number.
    #[error("can't find the target")]
    NoTarget = 4,
    /// The target has no such logical unit.
    #[error("can't find the logical unit")]
    NoUnit = 5,
    /// The target has no such session.
    #[error("can't find the session")]
    NoSession = 6,
    /// The session has no such connection.
    #[error("can't find the connection")]
    NoConnection = 7,
    /// A target has the number or the name.
    #[error("this target already exists")]
    TargetExists = 9,
    /// The target has a logical unit with the number.
    #[error("this logical unit number already exists")]
    UnitExists = 10,
    /// The rule is there.
    #[error("this access control rule already exists")]
    RuleExists = 12,
    /// The rule is not there.
    #[error("this access control rule does not exist")]
    NoRule = 13,
    /// The account is there, or the target has it.
    #[error("this account already exists")]
    AccountExists = 14,
    /// The account is not there, or the target does not have it.
    #[error("can't find the account")]
    NoAccount = 15,
    /// One more account would be too many.
    #[error("too many accounts")]
    TooManyAccounts = 16,
    /// Something in the request is wrong, or cannot be had here.
    #[error("invalid request")]
    Invalid = 17,
    /// The target proves its identity as another user.
    #[error("this target already has an outgoing account")]
    OutgoingExists = 18,
    /// The target has sessions.
    #[error("this target is still active")]
    TargetActive = 19,
    /// The driver has targets.
    #[error("this driver is busy")]
    DriverBusy = 21,
    /// Not here.
    #[error("this operation isn't supported")]
    Unsupported = 22,
}

/// The fixed part of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    /// The thing that it is about.
    pub(crate) mode: Mode,
    /// The operation on it.
    pub(crate) op: Op,
    /// The number of the target; `None` when it says none.
    pub(crate) tid: Option<u32>,
    /// The session.
    pub(crate) session: u64,
    /// The logical unit.
    pub(crate) lun: u64,
    /// The connection.
    pub(crate) connection: u32,
    /// The type of a device; 0 is a disk.
    pub(crate) device_type: u32,
    /// Whether an account is the target's own.
    pub(crate) is_outgoing: bool,
    /// Whether to do it although something is in use.
    pub(crate) force: bool,
    /// The bytes of parameters behind it.
    pub(crate) parameter_bytes: usize,
}

impl Request {
    /// Reads the fixed part.
    ///
    /// # Errors
    ///
    /// The answer to a request that is none.
    pub(crate) fn decode(bytes: &[u8; REQUEST_LEN]) -> Result<Self, Fault> {
        let number = |at: usize| {
            let field = bytes.get(at..).and_then(<[u8]>::first_chunk);
            field.map_or(0, |field| u32::from_ne_bytes(*field))
        };
        let wide = |at: usize| {
            let field = bytes.get(at..).and_then(<[u8]>::first_chunk);
            field.map_or(0, |field| u64::from_ne_bytes(*field))
        };
        let driver = bytes[8..72].split(|byte| *byte == 0).next().unwrap_or_default();
        // tgt-admin names none where it asks for all.
        if !driver.is_empty() && driver != DRIVER.as_bytes() {
            return Err(Fault::NoDriver);
        }
        let length = usize::try_from(number(72)).unwrap_or(usize::MAX);
        let parameter_bytes = length.checked_sub(REQUEST_LEN).filter(|bytes| *bytes <= MAX_PARAMETER_BYTES);
        let one = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        Ok(Self {
            mode: *Mode::ALL.get(one(number(0))).ok_or(Fault::Invalid)?,
            op: *Op::ALL.get(one(number(4))).ok_or(Fault::Invalid)?,
            // A signed number: -1 is none.
            tid: Some(number(76)).filter(|tid| i32::try_from(*tid).is_ok()),
            session: wide(80),
            lun: wide(88),
            connection: number(96),
            device_type: number(104),
            is_outgoing: number(108) != 0,
            force: number(116) != 0,
            parameter_bytes: parameter_bytes.ok_or(Fault::Invalid)?,
        })
    }
}

/// The bytes of an answer. A text ends with a zero, up to which tgtadm prints it.
pub(crate) fn answer(outcome: &Result<String, Fault>) -> Vec<u8> {
    let (code, text) = match outcome {
        Ok(text) => (0, text.as_str()),
        Err(fault) => (*fault as u32, ""),
    };
    let end: &[u8] = if text.is_empty() { &[] } else { &[0] };
    let length = u32::try_from(ANSWER_LEN.saturating_add(text.len()).saturating_add(end.len())).unwrap_or(u32::MAX);
    [&code.to_ne_bytes()[..], &length.to_ne_bytes(), text.as_bytes(), end].concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A request to show all targets.
    fn show_targets() -> [u8; REQUEST_LEN] {
        let mut bytes = [0; REQUEST_LEN];
        bytes[0] = 1;
        bytes[4] = 2;
        bytes[8..13].copy_from_slice(b"iscsi");
        bytes[72..76].copy_from_slice(&120_u32.to_ne_bytes());
        bytes[76..80].fill(0xff);
        bytes[88..96].fill(0xff);
        bytes
    }

    #[test]
    fn a_request_is_read_as_tgtadm_writes_it() {
        let mut bytes = show_targets();
        let request = Request::decode(&bytes).unwrap();
        assert_eq!((request.mode, request.op, request.tid), (Mode::Target, Op::Show, None));
        assert_eq!((request.lun, request.parameter_bytes, request.force), (u64::MAX, 0, false));
        bytes[76..80].copy_from_slice(&7_u32.to_ne_bytes());
        bytes[72..76].copy_from_slice(&137_u32.to_ne_bytes());
        bytes[116] = 1;
        let request = Request::decode(&bytes).unwrap();
        assert_eq!((request.tid, request.parameter_bytes, request.force), (Some(7), 17, true));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let with = |at: usize, value: u8| {
            let mut bytes = show_targets();
            bytes[at] = value;
            Request::decode(&bytes).unwrap_err()
        };
        assert_eq!(with(0, 8), Fault::Invalid);
        assert_eq!(with(4, 9), Fault::Invalid);
        assert_eq!(with(12, b'r'), Fault::NoDriver);
        assert_eq!(with(72, 119), Fault::Invalid);
        assert_eq!(with(74, 1), Fault::Invalid);
    }

    #[test]
    fn an_answer_counts_its_own_header() {
        assert_eq!(answer(&Err(Fault::NoTarget)), [4_u32.to_ne_bytes(), 8_u32.to_ne_bytes()].concat());
        let text = answer(&Ok("Target".to_owned()));
        assert_eq!(text[4..8], 15_u32.to_ne_bytes());
        assert_eq!(&text[8..], b"Target\0");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: [u8; REQUEST_LEN]) {
            let _ = Request::decode(&bytes);
        }
    }
}
