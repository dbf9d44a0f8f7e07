//! The values of a login that say how the bytes behind it are read.

use lunette_pdu::text::{TextAssembler, parse_number};
use lunette_pdu::{Bhs, MAX_DATA_SEGMENT_LEN};

use crate::follower::Broken;
use crate::framing::Digests;
use crate::limits::MAX_LOGIN_TEXT_BYTES;

/// The longest data segment of a side that has not said another (RFC 7143, section 13.12).
pub(crate) const DEFAULT_SEGMENT_BYTES: usize = 8192;

/// The least that a side can say.
const MIN_SEGMENT_BYTES: u32 = 512;

/// The C bit of byte 1 of a Login or Text PDU.
const CONTINUE: u8 = 0x40;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Initiator,
    Target,
}

/// A login, as far as it has come.
pub(crate) struct Login {
    is_discovery: bool,
    header: Digest,
    data: Digest,
    /// The sides that want markers in what the target sends (RFC 3720, appendix A).
    markers: Vec<Side>,
    max_segment_bytes: usize,
    of_initiator: TextAssembler,
    of_target: TextAssembler,
}

/// A negotiation of digests: one side offers, the other one chooses (RFC 7143, section 6.2.1).
#[derive(Clone, Copy)]
enum Digest {
    None,
    Offered(Side),
    Chosen(bool),
}

impl Login {
    pub(crate) fn new() -> Self {
        Self {
            is_discovery: false,
            header: Digest::None,
            data: Digest::None,
            markers: Vec::new(),
            max_segment_bytes: DEFAULT_SEGMENT_BYTES,
            of_initiator: TextAssembler::new(MAX_LOGIN_TEXT_BYTES),
            of_target: TextAssembler::new(MAX_LOGIN_TEXT_BYTES),
        }
    }

    /// Takes the text of a Login PDU.
    pub(crate) fn text(&mut self, from: Side, bhs: &Bhs, segment: &[u8]) -> Result<(), Broken> {
        let assembler = match from {
            Side::Initiator => &mut self.of_initiator,
            Side::Target => &mut self.of_target,
        };
        let Some(text) = assembler.push(segment, continues(bhs))? else { return Ok(()) };
        // Mistakes in it are for the two sides to find.
        let pairs = text.split(|byte| *byte == 0).filter_map(|pair| str::from_utf8(pair).ok()?.split_once('='));
        for (key, value) in pairs {
            self.pair(from, key, value);
        }
        Ok(())
    }

    /// Whether the session is one of discovery.
    pub(crate) fn is_discovery(&self) -> bool {
        self.is_discovery
    }

    /// The digests behind the login.
    pub(crate) fn digests(&self) -> Digests {
        Digests { header: self.header.is_chosen(), data: self.data.is_chosen() }
    }

    /// Whether there are markers in what the target sends behind the login.
    pub(crate) fn has_markers(&self) -> bool {
        [Side::Initiator, Side::Target].iter().all(|side| self.markers.contains(side))
    }

    /// The longest data segment that the initiator takes behind the login.
    pub(crate) fn max_segment_bytes(&self) -> usize {
        self.max_segment_bytes
    }

    fn pair(&mut self, from: Side, key: &str, value: &str) {
        match (key, from) {
            ("SessionType", Side::Initiator) => self.is_discovery = value == "Discovery",
            ("HeaderDigest", _) => self.header.hear(from, value),
            ("DataDigest", _) => self.data.hear(from, value),
            ("IFMarker", _) if value == "Yes" && !self.markers.contains(&from) => self.markers.push(from),
            ("MaxRecvDataSegmentLength", Side::Initiator) => {
                let bytes = parse_number(value).ok().and_then(|bytes| u32::try_from(bytes).ok());
                let bytes = bytes.map(|bytes| bytes.clamp(MIN_SEGMENT_BYTES, MAX_DATA_SEGMENT_LEN as u32) as usize);
                self.max_segment_bytes = bytes.unwrap_or(DEFAULT_SEGMENT_BYTES);
            }
            _ => {}
        }
    }
}

impl Digest {
    fn hear(&mut self, from: Side, value: &str) {
        *self = match *self {
            Self::Offered(by) if by != from => Self::Chosen(value == "CRC32C"),
            Self::None | Self::Offered(_) => Self::Offered(from),
            Self::Chosen(chosen) => Self::Chosen(chosen),
        };
    }

    fn is_chosen(self) -> bool {
        matches!(self, Self::Chosen(true))
    }
}

/// Whether the next PDU continues the text of this one.
pub(crate) fn continues(bhs: &Bhs) -> bool {
    bhs.flags() & CONTINUE != 0
}
