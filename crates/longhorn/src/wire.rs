//! The format of messages: a header in little-endian order, and data behind it.

/// The length of a header.
pub(crate) const HEADER_LEN: usize = 26;

/// The first two bytes of each message: the version of the protocol.
const MAGIC: u16 = 0x1b01;

/// A request to an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    Read,
    Write,
    Unmap,
}

/// The header of a request for this many bytes.
pub(crate) fn request(sequence: u32, request: Request, offset: u64, len_bytes: u32) -> [u8; HEADER_LEN] {
    let (kind, data_bytes): (u32, u32) = match request {
        Request::Read => (0, 0),
        Request::Write => (1, len_bytes),
        Request::Unmap => (7, 0),
    };
    let mut bytes = [0; HEADER_LEN];
    bytes[..2].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[2..6].copy_from_slice(&sequence.to_le_bytes());
    bytes[6..10].copy_from_slice(&kind.to_le_bytes());
    bytes[10..18].copy_from_slice(&offset.to_le_bytes());
    bytes[18..22].copy_from_slice(&len_bytes.to_le_bytes());
    bytes[22..].copy_from_slice(&data_bytes.to_le_bytes());
    bytes
}

/// The kind of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Done, with the data that were read.
    Done,
    /// Not done, with a text.
    Failed,
    /// Beyond the end of the volume.
    Beyond,
}

/// The header of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) sequence: u32,
    pub(crate) kind: Kind,
    pub(crate) data_bytes: u32,
}

impl Answer {
    /// Reads a header; `None` for one that is no answer.
    pub(crate) fn decode(bytes: &[u8; HEADER_LEN]) -> Option<Self> {
        let number = |at: usize| bytes.get(at..)?.first_chunk().map(|field| u32::from_le_bytes(*field));
        if bytes[..2] != MAGIC.to_le_bytes() {
            return None;
        }
        let kind = match number(6)? {
            2 => Kind::Done,
            3 => Kind::Failed,
            4 => Kind::Beyond,
            _ => return None,
        };
        Some(Self { sequence: number(2)?, kind, data_bytes: number(22)? })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn headers_have_their_fields_where_the_engine_has_them() {
        let mut bytes = request(7, Request::Write, 0x0102_0304, 512);
        assert_eq!(bytes, *b"\x01\x1b\x07\0\0\0\x01\0\0\0\x04\x03\x02\x01\0\0\0\0\0\x02\0\0\0\x02\0\0");
        assert_eq!(request(7, Request::Read, 0, 512)[18..], *b"\0\x02\0\0\0\0\0\0");
        assert_eq!(Answer::decode(&bytes), None, "a request is no answer");
        bytes[6] = 2;
        assert_eq!(Answer::decode(&bytes), Some(Answer { sequence: 7, kind: Kind::Done, data_bytes: 512 }));
        bytes[0] = 0;
        assert_eq!(Answer::decode(&bytes), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: [u8; HEADER_LEN]) {
            let _ = Answer::decode(&bytes);
        }
    }
}
