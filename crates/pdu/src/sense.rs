//! The data segment of SCSI Responses and SCSI asynchronous messages: sense data with its length in
//! front (RFC 7143, 11.4.7.1 and 11.9.4).

/// The length of the `SenseLength` field in front of the sense data, in bytes.
pub const SENSE_LENGTH_LEN: usize = 2;

/// Bytes of sense data in fixed format without additional bytes (SPC-4 4.5.3).
pub const FIXED_SENSE_LEN: usize = 18;

/// An additional sense code with its qualifier that the iSCSI layer itself reports, as (ASC, ASCQ) (RFC 7143,
/// 11.4.7.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IscsiCondition(pub u8, pub u8);

impl IscsiCondition {
    /// WRITE ERROR - UNEXPECTED UNSOLICITED DATA.
    pub const UNEXPECTED_UNSOLICITED_DATA: Self = Self(0x0c, 0x0c);
    /// WRITE ERROR - NOT ENOUGH UNSOLICITED DATA: the incorrect amount of data.
    pub const INCORRECT_AMOUNT_OF_DATA: Self = Self(0x0c, 0x0d);
    /// READ ERROR - FAILED RETRANSMISSION REQUEST: a SNACK that was rejected.
    pub const FAILED_RETRANSMISSION_REQUEST: Self = Self(0x11, 0x13);
    /// PROTOCOL SERVICE CRC ERROR.
    pub const PROTOCOL_SERVICE_CRC_ERROR: Self = Self(0x47, 0x05);
    /// INITIATOR RESPONSE TIMEOUT (SPC-4 annex F).
    pub const INITIATOR_RESPONSE_TIMEOUT: Self = Self(0x4b, 0x06);
}

/// Current sense data in fixed format: ABORTED COMMAND with `condition`.
///
/// ```
/// use lunette_pdu::sense::{IscsiCondition, aborted_command};
///
/// let sense = aborted_command(IscsiCondition::PROTOCOL_SERVICE_CRC_ERROR);
/// assert_eq!((sense[2], sense[12], sense[13]), (0x0b, 0x47, 0x05));
/// ```
pub const fn aborted_command(condition: IscsiCondition) -> [u8; FIXED_SENSE_LEN] {
    const CURRENT_FIXED: u8 = 0x70;
    const ABORTED_COMMAND: u8 = 0x0b;
    const ADDITIONAL_SENSE_LENGTH: u8 = FIXED_SENSE_LEN as u8 - 8;
    let IscsiCondition(asc, ascq) = condition;
    [CURRENT_FIXED, 0, ABORTED_COMMAND, 0, 0, 0, 0, ADDITIONAL_SENSE_LENGTH, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0]
}

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
    fn an_aborted_command_has_18_bytes_of_fixed_sense() {
        let expected = [0x70, 0, 0x0b, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x4b, 0x06, 0, 0, 0, 0];
        assert_eq!(aborted_command(IscsiCondition::INITIATOR_RESPONSE_TIMEOUT), expected);
    }

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
