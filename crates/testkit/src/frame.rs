//! The bytes of a PDU: header, additional header segments, data, pad and digests (RFC 7143 section 11.2).

use std::io::{self, Read};

use lunette_crc32c::{crc32c, to_wire};
use lunette_pdu::{BHS_LEN, Bhs, DIGEST_LEN, InitiatorPdu, TargetPdu, pad_len};

/// The digests that a connection has negotiated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Format {
    /// Whether HeaderDigest=CRC32C was negotiated.
    pub header_digest: bool,
    /// Whether DataDigest=CRC32C was negotiated.
    pub data_digest: bool,
}

/// A PDU that was cut from a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The header.
    pub bhs: Bhs,
    /// The additional header segments, with their pad.
    pub ahs: Vec<u8>,
    /// The data segment without its pad.
    pub data: Vec<u8>,
    /// The part that is not as it has to be: a digest, or a pad byte that is not zero.
    pub wrong: Option<&'static str>,
}

impl Format {
    /// No digests, as in every login.
    pub const PLAIN: Self = Self { header_digest: false, data_digest: false };

    /// The format after a login that was answered with these keys.
    pub fn agreed(answer: &str) -> Self {
        Self {
            header_digest: answer.contains("HeaderDigest=CRC32C"),
            data_digest: answer.contains("DataDigest=CRC32C"),
        }
    }

    /// The bytes of a PDU. The lengths in `header` are not looked at.
    pub fn encode(self, header: &[u8; BHS_LEN], ahs: &[u8], data: &[u8]) -> Vec<u8> {
        let mut bytes = [header, ahs].concat();
        if self.header_digest {
            bytes.extend(to_wire(crc32c(&bytes)));
        }
        let start = bytes.len();
        bytes.extend_from_slice(data);
        bytes.resize(bytes.len() + pad_len(data.len()), 0);
        if self.data_digest && !data.is_empty() {
            bytes.extend(to_wire(crc32c(&bytes[start..])));
        }
        bytes
    }

    /// The length on the wire of the PDU with this header.
    pub fn wire_len(self, bhs: &Bhs) -> usize {
        let (data_len, digest_len) = (bhs.data_segment_len(), |on: bool| if on { DIGEST_LEN } else { 0 });
        let head = BHS_LEN + bhs.ahs_len() + digest_len(self.header_digest);
        head + data_len + pad_len(data_len) + digest_len(self.data_digest && data_len > 0)
    }

    /// The first PDU of `stream` and its length on the wire. `None` when it is not complete.
    pub fn first(self, stream: &[u8]) -> Option<(Frame, usize)> {
        let bhs = Bhs::from(*stream.first_chunk::<BHS_LEN>()?);
        let bytes = stream.get(..self.wire_len(&bhs))?;
        let (header, rest) = bytes.split_at(BHS_LEN + bhs.ahs_len());
        let (header_digest, rest) = rest.split_at(if self.header_digest { DIGEST_LEN } else { 0 });
        let data_len = bhs.data_segment_len();
        let (padded, data_digest) = rest.split_at(data_len + pad_len(data_len));
        let is_wrong = |digest: &[u8], of: &[u8]| !digest.is_empty() && digest != to_wire(crc32c(of));
        let wrong = if is_wrong(header_digest, header) {
            Some("header digest")
        } else if is_wrong(data_digest, padded) {
            Some("data digest")
        } else {
            padded[data_len..].iter().any(|pad| *pad != 0).then_some("pad")
        };
        let frame = Frame { bhs, ahs: header[BHS_LEN..].to_vec(), data: padded[..data_len].to_vec(), wrong };
        Some((frame, bytes.len()))
    }

    /// Takes the first PDU off the stream, if it is complete.
    pub fn take(self, stream: &mut Vec<u8>) -> Option<Frame> {
        let (frame, len) = self.first(stream)?;
        stream.drain(..len);
        Some(frame)
    }
}

impl Frame {
    /// The frame, whose digests and pad are right.
    #[must_use]
    pub fn verified(self) -> Self {
        assert_eq!(self.wrong, None, "of {}", self.bhs.opcode());
        self
    }

    /// The header, which is one of a target.
    pub fn target_pdu(&self) -> TargetPdu {
        TargetPdu::parse(&self.bhs).unwrap_or_else(|error| panic!("a target sent a bad header: {error}"))
    }

    /// The header, which is one of an initiator.
    pub fn initiator_pdu(&self) -> InitiatorPdu {
        InitiatorPdu::parse(&self.bhs).unwrap_or_else(|error| panic!("an initiator sent a bad header: {error}"))
    }
}

/// Reads the next PDU of a blocking stream.
pub fn read_frame(stream: &mut impl Read, format: Format) -> io::Result<Frame> {
    let mut bytes = vec![0; BHS_LEN];
    stream.read_exact(&mut bytes)?;
    let header: [u8; BHS_LEN] = *bytes.first_chunk().expect("a whole header");
    bytes.resize(format.wire_len(&Bhs::from(header)), 0);
    stream.read_exact(&mut bytes[BHS_LEN..])?;
    Ok(format.first(&bytes).expect("a whole PDU").0)
}

/// Keys and values as they are in a data segment.
pub fn keys(pairs: &[(&str, &str)]) -> String {
    pairs.iter().flat_map(|(key, value)| [*key, "=", *value, "\0"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests;
    use lunette_pdu::ScsiCommand;

    #[test]
    fn a_pdu_is_read_back_in_every_format() {
        let command = ScsiCommand { ahs_len: 8, data_segment_len: 5, ..requests::command(7) }.emit();
        for (header_digest, data_digest, len) in [(false, false, 64), (true, false, 68), (true, true, 72)] {
            let format = Format { header_digest, data_digest };
            let bytes = format.encode(&command, &[1; 8], b"bytes");
            assert_eq!(bytes.len(), len);
            assert_eq!(format.first(&bytes[..len - 1]), None, "it is not complete");
            let mut stream = [&bytes[..], &command[..3]].concat();
            let frame = format.take(&mut stream).expect("it is complete").verified();
            assert_eq!((*frame.bhs.as_array(), &frame.ahs[..], &frame.data[..]), (command, &[1; 8][..], &b"bytes"[..]));
            assert_eq!(stream, command[..3], "what follows stays");
        }
    }

    #[test]
    fn damage_is_found() {
        let format = Format { header_digest: true, data_digest: true };
        let ping = lunette_pdu::NopOut { data_segment_len: 5, ..requests::nop_out(7) }.emit();
        let wrong = |format: Format, at: usize| {
            let mut bytes = format.encode(&ping, &[], b"bytes");
            bytes[at] ^= 1;
            format.first(&bytes).expect("it is complete").0.wrong
        };
        assert_eq!(wrong(format, 40), Some("header digest"));
        assert_eq!(wrong(format, BHS_LEN + DIGEST_LEN), Some("data digest"));
        assert_eq!(wrong(Format::PLAIN, BHS_LEN + 7), Some("pad"));
        assert_eq!(wrong(Format::PLAIN, BHS_LEN), None, "no digest covers it");
    }
}
