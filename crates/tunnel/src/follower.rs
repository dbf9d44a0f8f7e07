//! The two directions of one connection.

use lunette_pdu::text::TextError;
use lunette_pdu::{Bhs, LoginResponse, LoginStatus, Opcode, PduError, Stage, TextResponse};

use crate::Ways;
use crate::addresses::{Addresses, Segment};
use crate::framing::{self, Digests, Framing, Piece};
use crate::limits::{MAX_ADDRESS_BYTES, MAX_LOGIN_TEXT_BYTES, MAX_SEGMENT_BYTES};
use crate::login::{DEFAULT_SEGMENT_BYTES, Login, Side, continues};

/// Follows what initiator and target say on one connection, and rewrites the addresses that the target names.
pub struct Follower {
    phase: Phase,
    /// The initiator's stream, as long as it logs in.
    requests: Option<(Framing, Vec<u8>)>,
    responses: Framing,
    /// The PDU of the target that has begun.
    pdu: Pdu,
    addresses: Addresses,
}

/// How far the session has come.
enum Phase {
    Login(Box<Login>),
    Discovery {
        digests: Digests,
        max_segment_bytes: usize,
    },
    /// Nothing more is looked at.
    Done,
}

/// The fate of a PDU of the target.
enum Pdu {
    /// Passes as it comes.
    Passes,
    /// Passes, and its text is looked at.
    Watched(LoginResponse, Vec<u8>),
    /// Leaves when it is complete: the header, and the bytes behind it.
    Held(Vec<u8>, Vec<u8>),
}

/// Why a stream cannot be followed any more. The connection must end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Broken {
    /// A header contradicts itself.
    #[error(transparent)]
    Pdu(#[from] PduError),
    /// The text of a login is too long.
    #[error("the login is too long: {0}")]
    Text(#[from] TextError),
    /// A data segment that would have to be rewritten is too long.
    #[error("a data segment of {0} bytes with text came; at most {MAX_SEGMENT_BYTES} can be carried")]
    SegmentTooLong(usize),
    /// The data segment of a Login Request is too long.
    #[error("a login request of {0} bytes came; at most {MAX_LOGIN_TEXT_BYTES} can be carried")]
    RequestTooLong(usize),
    /// The digest of a header does not match.
    #[error("the digest of a header does not match")]
    HeaderDigest,
    /// The digest of a data segment does not match.
    #[error("the digest of a text does not match")]
    DataDigest,
    /// A value of TargetAddress is too long.
    #[error("TargetAddress has more than {MAX_ADDRESS_BYTES} bytes")]
    AddressTooLong,
    /// A text ends within a value of TargetAddress.
    #[error("a text ends within TargetAddress")]
    Unterminated,
    /// A text does not fit into the data segments that the initiator takes.
    #[error("a text is longer than the initiator's MaxRecvDataSegmentLength")]
    NoRoom,
    /// A discovery session has markers.
    #[error("a discovery session with markers cannot be followed; set IFMarker=No at the initiator")]
    Markers,
    /// The target redirects the login to an address that cannot be reached through the tunnel.
    #[error("the login is redirected to an address that cannot be carried")]
    NoWay,
}

impl Default for Follower {
    fn default() -> Self {
        Self::new()
    }
}

impl Follower {
    /// The beginning of a connection.
    pub fn new() -> Self {
        Self {
            phase: Phase::Login(Box::new(Login::new())),
            requests: Some(Default::default()),
            responses: Framing::default(),
            pdu: Pdu::Passes,
            addresses: Addresses::default(),
        }
    }

    /// Looks at bytes of the initiator, which pass as they are.
    ///
    /// # Errors
    ///
    /// [`Broken`]: the connection must end, without these bytes.
    pub fn request(&mut self, mut bytes: &[u8]) -> Result<(), Broken> {
        let (Phase::Login(login), Some((framing, text))) = (&mut self.phase, &mut self.requests) else {
            return Ok(());
        };
        while let Some((bhs, piece)) = framing.next(&mut bytes, Digests::default())? {
            match piece {
                // Behind the login, or no iSCSI: the target will say which.
                Piece::Header if bhs.opcode() != Opcode::LOGIN_REQUEST => {
                    self.requests = None;
                    return Ok(());
                }
                Piece::Header if bhs.data_segment_len() > MAX_LOGIN_TEXT_BYTES => {
                    return Err(Broken::RequestTooLong(bhs.data_segment_len()));
                }
                Piece::Header => {}
                Piece::Body(part, ends) => {
                    text.extend_from_slice(part);
                    if ends {
                        let whole = std::mem::take(text);
                        login.text(Side::Initiator, &bhs, framing::content(&bhs, &whole, Digests::default())?)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes bytes of the target, and appends to `out` what the initiator gets of them. `ways` is asked for each
    /// address in them.
    ///
    /// # Errors
    ///
    /// [`Broken`]: the connection must end. What was appended is for the initiator all the same.
    pub fn response(&mut self, mut bytes: &[u8], out: &mut Vec<u8>, ways: &mut Ways<'_>) -> Result<(), Broken> {
        while let Some(digests) = self.digests() {
            let Some((bhs, piece)) = self.responses.next(&mut bytes, digests)? else { return Ok(()) };
            match piece {
                Piece::Header => {
                    self.pdu = self.receive(&bhs)?;
                    if !matches!(self.pdu, Pdu::Held(..)) {
                        out.extend_from_slice(self.responses.header());
                    }
                }
                Piece::Body(part, ends) => {
                    match &mut self.pdu {
                        Pdu::Passes => out.extend_from_slice(part),
                        Pdu::Watched(_, body) => {
                            out.extend_from_slice(part);
                            body.extend_from_slice(part);
                        }
                        Pdu::Held(_, body) => body.extend_from_slice(part),
                    }
                    if ends {
                        self.end(&bhs, digests, out, ways)?;
                    }
                }
            }
        }
        out.extend_from_slice(bytes);
        Ok(())
    }

    /// Whether nothing more is looked at: bytes may pass by without being shown.
    pub fn is_done(&self) -> bool {
        matches!(self.phase, Phase::Done)
    }

    /// The addresses that were left out since the last call: those without a way, and those without room.
    pub fn take_left_out(&mut self) -> u64 {
        self.addresses.take_left_out()
    }

    /// The digests now, while anything is looked at.
    fn digests(&self) -> Option<Digests> {
        match &self.phase {
            Phase::Login(_) => Some(Digests::default()),
            Phase::Discovery { digests, .. } => Some(*digests),
            Phase::Done => None,
        }
    }

    /// The fate of the PDU with this header.
    fn receive(&self, bhs: &Bhs) -> Result<Pdu, Broken> {
        let held = match (&self.phase, bhs.opcode()) {
            (Phase::Login(_), Opcode::LOGIN_RESPONSE) => {
                let response = LoginResponse::parse(bhs)?;
                if response.status.is_success() {
                    check_len(bhs)?;
                    return Ok(Pdu::Watched(response, Vec::new()));
                }
                response.status.class == LoginStatus::CLASS_REDIRECTION
            }
            (Phase::Discovery { .. }, Opcode::TEXT_RESPONSE) => TextResponse::parse(bhs).map(|_| true)?,
            _ => false,
        };
        if !held {
            return Ok(Pdu::Passes);
        }
        check_len(bhs)?;
        Ok(Pdu::Held(self.responses.header().to_vec(), Vec::new()))
    }

    /// The PDU is complete.
    fn end(&mut self, bhs: &Bhs, digests: Digests, out: &mut Vec<u8>, ways: &mut Ways<'_>) -> Result<(), Broken> {
        match std::mem::replace(&mut self.pdu, Pdu::Passes) {
            Pdu::Passes => Ok(()),
            Pdu::Watched(response, body) => self.login(bhs, &response, &body),
            Pdu::Held(header, body) => {
                let text = framing::content(bhs, &body, digests)?;
                let (is_login, room) = match &self.phase {
                    Phase::Discovery { max_segment_bytes, .. } => (false, *max_segment_bytes),
                    Phase::Login(_) | Phase::Done => (true, DEFAULT_SEGMENT_BYTES),
                };
                // A target that sends more than it may is not stopped here.
                let room = room.max(text.len());
                let is_last = is_login || !continues(bhs);
                let rewritten = self.addresses.rewrite(Segment { text, is_last, room }, ways)?;
                if is_login && self.addresses.take_left_out() > 0 {
                    return Err(Broken::NoWay);
                }
                if rewritten == text {
                    out.extend_from_slice(&header);
                    out.extend_from_slice(&body);
                } else {
                    framing::write(&header, &rewritten, digests, out);
                }
                Ok(())
            }
        }
    }

    /// The login has come a step further.
    fn login(&mut self, bhs: &Bhs, response: &LoginResponse, body: &[u8]) -> Result<(), Broken> {
        let Phase::Login(login) = &mut self.phase else { return Ok(()) };
        login.text(Side::Target, bhs, framing::content(bhs, body, Digests::default())?)?;
        if !response.transit || response.nsg != Stage::FullFeaturePhase {
            return Ok(());
        }
        self.requests = None;
        if !login.is_discovery() {
            self.phase = Phase::Done;
        } else if login.has_markers() {
            return Err(Broken::Markers);
        } else {
            let (digests, max_segment_bytes) = (login.digests(), login.max_segment_bytes());
            self.phase = Phase::Discovery { digests, max_segment_bytes };
        }
        Ok(())
    }
}

fn check_len(bhs: &Bhs) -> Result<(), Broken> {
    match bhs.data_segment_len() {
        len if len > MAX_SEGMENT_BYTES => Err(Broken::SegmentTooLong(len)),
        _ => Ok(()),
    }
}
