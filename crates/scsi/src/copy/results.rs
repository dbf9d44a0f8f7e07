//! The data of RECEIVE COPY STATUS, FAILURE DETAILS and OPERATING PARAMETERS, RECEIVE ROD TOKEN INFORMATION and REPORT
//! ALL ROD TOKENS (SPC-5 6.22 and following).

use super::extended::DESCRIPTOR_TYPES;
use super::tokens::{MANAGEMENT_TOKEN_LEN, TOKEN_LEN};
use super::{CopyLimits, put};
use crate::ServiceAction;

/// The state of a third-party copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyState {
    /// The copy is running, and its command has not ended.
    InProgress,
    /// The copy has completed.
    Completed,
    /// The copy ended with an error.
    Failed,
    /// The copy was aborted.
    Aborted,
}

/// A report on a copy that has a list identifier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyReport {
    /// The service action of [`THIRD_PARTY_COPY_OUT`](crate::OpCode::THIRD_PARTY_COPY_OUT) that started the copy.
    pub action: ServiceAction,
    /// The state of the copy.
    pub state: CopyState,
    /// Number of completed segments or ranges.
    pub segments: u16,
    /// Number of bytes copied.
    pub bytes: u64,
    /// Block length in bytes of the logical unit that received the command.
    pub block_len: u32,
    /// The status of the command, once it has ended.
    pub status: u8,
    /// The sense data of the command.
    pub sense: Vec<u8>,
    /// The ROD token that the copy has created.
    pub token: Option<Box<[u8; TOKEN_LEN]>>,
}

/// TRANSFER COUNT UNITS: powers of 1,024 bytes.
const UNITS: [u8; 5] = [0, 1, 2, 3, 4];
/// TRANSFER COUNT UNITS: blocks.
const UNIT_BLOCKS: u8 = 0xf1;

/// RECEIVE COPY STATUS(LID1).
pub fn status_lid1(report: &CopyReport) -> [u8; 12] {
    let state = match report.state {
        CopyState::InProgress => 0x00,
        CopyState::Completed => 0x01,
        CopyState::Failed | CopyState::Aborted => 0x02,
    };
    // The smallest unit in which the number of bytes fits.
    let in_units = |unit: u8| u32::try_from(report.bytes >> (10 * unit)).ok().map(|count| (unit, count));
    let (unit, count) = UNITS.into_iter().find_map(in_units).unwrap_or_default();
    let mut data = [0; 12];
    put(&mut data, 0, &8u32.to_be_bytes());
    data[4] = state;
    put(&mut data, 5, &report.segments.to_be_bytes());
    data[7] = unit;
    put(&mut data, 8, &count.to_be_bytes());
    data
}

/// RECEIVE COPY FAILURE DETAILS(LID1) data, which is empty for a copy that has not failed.
pub fn failure_details(report: Option<&CopyReport>) -> Vec<u8> {
    const HEADER_LEN: usize = 60;
    let Some(report) = report.filter(|report| matches!(report.state, CopyState::Failed | CopyState::Aborted)) else {
        return vec![0; 4];
    };
    let mut data = vec![0; HEADER_LEN];
    data.extend(&report.sense);
    let len = data.len() as u32 - 4;
    put(&mut data, 0, &len.to_be_bytes());
    data[56] = report.status;
    put(&mut data, 58, &(report.sense.len() as u16).to_be_bytes());
    data
}

/// RECEIVE COPY STATUS(LID4).
pub fn status_lid4(report: &CopyReport) -> Vec<u8> {
    let mut data = status(report, 0, report.bytes);
    set_len(&mut data);
    data
}

/// RECEIVE ROD TOKEN INFORMATION.
pub fn rod_token_information(report: &CopyReport) -> Vec<u8> {
    const DESCRIPTOR_ID: [u8; 2] = [0; 2];
    let mut data = status(report, UNIT_BLOCKS, report.bytes / u64::from(report.block_len.max(1)));
    let tokens = report.token.iter().flat_map(|token| [&DESCRIPTOR_ID, token.as_slice()].concat()).collect::<Vec<_>>();
    data.extend((tokens.len() as u32).to_be_bytes());
    data.extend(tokens);
    set_len(&mut data);
    data
}

fn status(report: &CopyReport, units: u8, count: u64) -> Vec<u8> {
    const HEADER_LEN: usize = 32;
    /// ESTIMATED STATUS UPDATE DELAY: unknown while the copy runs, meaningless afterwards.
    const UNKNOWN_DELAY: [u8; 4] = [0xff; 4];
    let mut data = vec![0; HEADER_LEN];
    data[4] = report.action.0 as u8;
    data[5] = match report.state {
        CopyState::InProgress => 0x11,
        CopyState::Completed => 0x01,
        CopyState::Failed => 0x02,
        CopyState::Aborted => 0x60,
    };
    put(&mut data, 6, &report.segments.to_be_bytes());
    put(&mut data, 8, &UNKNOWN_DELAY);
    data[12] = report.status;
    data[13] = report.sense.len() as u8;
    data[14] = report.sense.len() as u8;
    data[15] = units;
    put(&mut data, 16, &count.to_be_bytes());
    put(&mut data, 24, &report.segments.to_be_bytes());
    data.extend(&report.sense);
    data
}

/// Sets AVAILABLE DATA, which does not count itself.
fn set_len(data: &mut [u8]) {
    let len = (data.len() as u32).saturating_sub(4);
    put(data, 0, &len.to_be_bytes());
}

/// RECEIVE COPY OPERATING PARAMETERS.
pub fn operating_parameters(limits: &CopyLimits) -> Vec<u8> {
    const HEADER_LEN: usize = 44;
    const SNLID: u8 = 0x01;
    let mut data = vec![0; HEADER_LEN];
    data[4] = SNLID;
    put(&mut data, 8, &limits.max_cscds.to_be_bytes());
    put(&mut data, 10, &limits.max_segments.to_be_bytes());
    put(&mut data, 12, &limits.max_descriptors_len.to_be_bytes());
    put(&mut data, 16, &limits.max_segment_len.to_be_bytes());
    put(&mut data, 34, &u16::from(limits.max_copies).to_be_bytes());
    data[36] = limits.max_copies;
    data[43] = DESCRIPTOR_TYPES.len() as u8;
    data.extend(DESCRIPTOR_TYPES);
    set_len(&mut data);
    data
}

/// REPORT ALL ROD TOKENS.
pub fn all_rod_tokens<'a>(tokens: impl IntoIterator<Item = &'a [u8; TOKEN_LEN]>) -> Vec<u8> {
    let mut data = vec![0; 8];
    for token in tokens {
        data.extend(&token[..MANAGEMENT_TOKEN_LEN]);
    }
    set_len(&mut data);
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(state: CopyState) -> CopyReport {
        let sense = if state == CopyState::Failed { vec![0x70, 1, 2] } else { Vec::new() };
        let status = if state == CopyState::Failed { 2 } else { 0 };
        CopyReport {
            action: ServiceAction(1),
            state,
            segments: 3,
            bytes: 5 << 10,
            block_len: 512,
            status,
            sense,
            token: None,
        }
    }

    #[test]
    fn a_count_takes_the_smallest_units_that_it_fits_in() {
        let of = |bytes| status_lid1(&CopyReport { bytes, ..report(CopyState::Completed) });
        assert_eq!(of(5 << 10), [0, 0, 0, 8, 1, 0, 3, 0, 0, 0, 0x14, 0]);
        assert_eq!(of(u64::from(u32::MAX))[7..], [0, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(of(1 << 32)[7..], [1, 0, 0x40, 0, 0]);
        assert_eq!(of(u64::MAX)[7], 4);
    }

    #[test]
    fn failures_come_with_their_sense_data() {
        assert_eq!(failure_details(Some(&report(CopyState::Completed))), [0; 4]);
        let data = failure_details(Some(&report(CopyState::Failed)));
        assert_eq!((data.len(), data[3], data[56], &data[58..]), (63, 59, 2, &[0, 3, 0x70, 1, 2][..]));
        let data = status_lid4(&report(CopyState::Failed));
        assert_eq!((data.len(), data[3], data[4], data[5], &data[12..15]), (35, 31, 1, 2, &[2, 3, 3][..]));
        assert_eq!((&data[16..26], &data[32..]), (&[0, 0, 0, 0, 0, 0, 0x14, 0, 0, 3][..], &[0x70, 1, 2][..]));
    }

    #[test]
    fn a_token_stands_behind_the_sense_data() {
        let token = Some(Box::new([7; TOKEN_LEN]));
        let data = rod_token_information(&CopyReport { token, ..report(CopyState::Completed) });
        assert_eq!((data.len(), data[15], data[23]), (36 + 514, UNIT_BLOCKS, 10));
        assert_eq!(data[32..39], [0, 0, 2, 2, 0, 0, 7]);
        assert_eq!(rod_token_information(&report(CopyState::InProgress)).len(), 36);
        assert_eq!(all_rod_tokens([&[7; TOKEN_LEN]; 2]).len(), 8 + 2 * 96);
    }
}
