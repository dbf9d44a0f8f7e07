//! The data segment of SCSI Responses and SCSI asynchronous messages: sense data with its length in
//! front (RFC 7143, 11.4.7.1 and 11.9.4).

/// The length of the `SenseLength` field in front of the sense data, in bytes.
pub const SENSE_LENGTH_LEN: usize = 2;

/// The error for a data segment that is too short for the sense data it announces.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("sense data needs {needed} bytes of data segment, there are {len}")]
pub struct SenseError {
    /// The least number of bytes that the segment should have.
    pub needed: usize,
    /// The number of bytes that the segment has.
    pub len: usize,
}

/// Splits a data segment into sense data and what follows it: response data in a SCSI Response, the
/// iSCSI event data in an asynchronous message.
///
/// Both are empty when the segment is.
///
/// # Errors
///
/// [`SenseError`] when the segment ends inside the sense data or its length.
pub fn split_sense(data_segment: &[u8]) -> Result<(&[u8], &[u8]), SenseError> {
    if data_segment.is_empty() {
        return Ok((&[], &[]));
    }
    let short = |needed| SenseError { needed, len: data_segment.len() };
    let (len, rest) = data_segment.split_first_chunk().ok_or(short(SENSE_LENGTH_LEN))?;
    let len = usize::from(u16::from_be_bytes(*len));
    rest.split_at_checked(len).ok_or(short(SENSE_LENGTH_LEN + len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sense_is_split_from_response_data() {
        assert_eq!(split_sense(&[0, 2, 0x70, 0, 9, 8]), Ok((&[0x70, 0][..], &[9, 8][..])));
        assert_eq!(split_sense(&[0, 0]), Ok((&[][..], &[][..])));
        assert_eq!(split_sense(&[]), Ok((&[][..], &[][..])));
    }

    #[test]
    fn short_segments_say_what_is_missing() {
        assert_eq!(split_sense(&[0]), Err(SenseError { needed: 2, len: 1 }));
        assert_eq!(split_sense(&[1, 0, 7]), Err(SenseError { needed: 258, len: 3 }));
    }
}
