//! The Third-party Copy VPD page (SPC-5 7.8.17, SBC-4 6.6.9).

use super::{PageCode, page};
use crate::copy::CopyLimits;
use crate::copy::extended::{DESCRIPTOR_TYPES, THIS_UNIT};
use crate::copy::tokens::RodType;
use crate::{OpCode, ServiceAction};

const BLOCK_DEVICE_ROD_LIMITS: u16 = 0x0000;
const SUPPORTED_COMMANDS: u16 = 0x0001;
const PARAMETER_DATA: u16 = 0x0004;
const SUPPORTED_DESCRIPTORS: u16 = 0x0008;
const SUPPORTED_CSCD_IDS: u16 = 0x000c;
const ROD_TOKEN_FEATURES: u16 = 0x0106;
const SUPPORTED_ROD_TYPES: u16 = 0x0108;
const GENERAL_COPY_OPERATIONS: u16 = 0x8001;

/// Encodes the Third-party Copy page: the limits, and the commands with their service actions.
pub fn third_party_copy(limits: &CopyLimits, commands: &[(OpCode, Vec<ServiceAction>)]) -> Vec<u8> {
    let descriptors = [
        (BLOCK_DEVICE_ROD_LIMITS, rod_limits(limits)),
        (SUPPORTED_COMMANDS, supported_commands(commands)),
        (PARAMETER_DATA, parameter_data(limits)),
        (SUPPORTED_DESCRIPTORS, [&[DESCRIPTOR_TYPES.len() as u8], DESCRIPTOR_TYPES.as_slice()].concat()),
        (SUPPORTED_CSCD_IDS, [2u16.to_be_bytes(), THIS_UNIT.to_be_bytes()].concat()),
        (ROD_TOKEN_FEATURES, token_features(limits)),
        (SUPPORTED_ROD_TYPES, rod_types()),
        (GENERAL_COPY_OPERATIONS, general(limits)),
    ];
    page(
        PageCode::THIRD_PARTY_COPY,
        &descriptors.into_iter().flat_map(|(kind, body)| descriptor(kind, body)).collect::<Vec<_>>(),
    )
}

/// Encodes a descriptor, whose length is padded to a multiple of four bytes.
fn descriptor(kind: u16, mut body: Vec<u8>) -> Vec<u8> {
    body.resize(body.len().next_multiple_of(4), 0);
    [kind.to_be_bytes().as_slice(), &(body.len() as u16).to_be_bytes(), &body].concat()
}

fn rod_limits(limits: &CopyLimits) -> Vec<u8> {
    [
        [0; 6].as_slice(),
        &limits.max_ranges.to_be_bytes(),
        &limits.max_inactivity_timeout_s.to_be_bytes(),
        &limits.default_inactivity_timeout_s.to_be_bytes(),
        &limits.max_token_blocks.to_be_bytes(),
        // The optimal transfer length is the maximum one.
        &limits.max_token_blocks.to_be_bytes(),
    ]
    .concat()
}

fn supported_commands(commands: &[(OpCode, Vec<ServiceAction>)]) -> Vec<u8> {
    let mut list = vec![0];
    for (opcode, actions) in commands {
        list.extend([opcode.0, actions.len() as u8]);
        list.extend(actions.iter().map(|action| action.0 as u8));
    }
    list[0] = list.len() as u8 - 1;
    list
}

fn parameter_data(limits: &CopyLimits) -> Vec<u8> {
    [
        [0; 4].as_slice(),
        &limits.max_cscds.to_be_bytes(),
        &limits.max_segments.to_be_bytes(),
        &limits.max_descriptors_len.to_be_bytes(),
        // No inline data, and twelve reserved bytes.
        &[0; 16],
    ]
    .concat()
}

/// Only tokens of this copy manager are accepted. A token lives until its inactivity timeout, whatever its age.
fn token_features(limits: &CopyLimits) -> Vec<u8> {
    const BLOCK_DEVICE_FEATURES_LEN: u16 = 48;
    const MIN_LIFETIME_S: u32 = 1;
    let mut block_device = vec![0; BLOCK_DEVICE_FEATURES_LEN.into()];
    // Type 0 and its length; granularity and sizes are those of the block device ROD limits.
    block_device[2..4].copy_from_slice(&(BLOCK_DEVICE_FEATURES_LEN - 4).to_be_bytes());
    [
        [0; 12].as_slice(),
        &MIN_LIFETIME_S.to_be_bytes(),
        &u32::MAX.to_be_bytes(),
        &limits.max_inactivity_timeout_s.to_be_bytes(),
        &[0; 18],
        &BLOCK_DEVICE_FEATURES_LEN.to_be_bytes(),
        &block_device,
    ]
    .concat()
}

fn rod_types() -> Vec<u8> {
    const TOKEN_OUT: u8 = 0x01;
    const TOKEN_IN: u8 = 0x02;
    const TYPE_LEN: u16 = 64;
    let types =
        [(RodType::POINT_IN_TIME_CHANGE_VULNERABLE, TOKEN_OUT | TOKEN_IN), (RodType::BLOCK_DEVICE_ZERO, TOKEN_IN)];
    let mut body = vec![0; 2];
    body.extend((types.len() as u16 * TYPE_LEN).to_be_bytes());
    for (rod_type, uses) in types {
        let mut descriptor = [0; TYPE_LEN as usize];
        descriptor[..4].copy_from_slice(&rod_type.0.to_be_bytes());
        descriptor[4] = uses;
        body.extend(descriptor);
    }
    body
}

fn general(limits: &CopyLimits) -> Vec<u8> {
    let copies = u32::from(limits.max_copies).to_be_bytes();
    // Granularities of one byte (2 to the power of 0) and reserved bytes.
    [copies.as_slice(), &copies, &limits.max_segment_len.to_be_bytes(), &[0; 20]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_follow_each_other_in_the_order_of_their_types() {
        let limits = CopyLimits {
            max_cscds: 1,
            max_segments: 2,
            max_descriptors_len: 3,
            max_segment_len: 4,
            max_copies: 5,
            max_ranges: 6,
            max_token_blocks: 7,
            max_inactivity_timeout_s: 8,
            default_inactivity_timeout_s: 9,
        };
        let commands =
            [(OpCode(0x83), vec![ServiceAction(0)]), (OpCode(0x84), vec![ServiceAction(3), ServiceAction(5)])];
        let page = third_party_copy(&limits, &commands);
        assert_eq!((&page[..2], usize::from(u16::from_be_bytes([page[2], page[3]]))), (&[0, 0x8f][..], page.len() - 4));
        let mut rest = &page[4..];
        let mut found = Vec::new();
        while let Some((header, behind)) = rest.split_first_chunk::<4>() {
            let (body, next) = behind.split_at(usize::from(u16::from_be_bytes([header[2], header[3]])));
            assert_eq!(body.len() % 4, 0);
            found.push((u16::from_be_bytes([header[0], header[1]]), body.to_vec()));
            rest = next;
        }
        assert_eq!(found.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [0, 1, 4, 8, 12, 0x106, 0x108, 0x8001]);
        let lens: Vec<usize> = found.iter().map(|(_, body)| body.len()).collect();
        assert_eq!(lens, [32, 8, 28, 4, 4, 92, 132, 32]);
        assert_eq!(found[1].1, [7, 0x83, 1, 0, 0x84, 2, 3, 5]);
        assert_eq!(found[3].1, [3, 0x02, 0x07, 0xe4]);
    }
}
