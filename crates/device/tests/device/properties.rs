//! Random commands: the device server answers each, and the store sees only requests within its length.

use lunette_scsi::{SenseData, Status};
use lunette_store::OpKind;
use proptest::prelude::*;

use crate::fixture::{Fixture, Medium, THIN, name};

const LUNS: [[u8; 8]; 4] = [[0; 8], [0x40, 0, 0, 0, 0, 0, 0, 0], [0, 9, 0, 0, 0, 0, 0, 0], [0xc1, 1, 0, 0, 0, 0, 0, 0]];

/// Existing operation codes, so that most cases pass the first check.
#[rustfmt::skip]
const OPCODES: &[u8] = &[
    0x00, 0x03, 0x08, 0x0a, 0x12, 0x15, 0x55, 0x1a, 0x1b, 0x25, 0x28, 0x2a, 0x2f, 0x35, 0x41, 0x42, 0x5a, 0x88, 0x8a,
    0x8f, 0x91, 0x93, 0x9e, 0xa0, 0xa3, 0xa8, 0xaa, 0xaf,
    0x1e, 0x4c, 0x4d, 0xa4, 0x89, 0x2e, 0x34, 0x37, 0x8b, 0x8e, 0x90, 0x9c, 0xae, 0xb7,
    0x16, 0x17, 0x53, 0x56, 0x57, 0x5e, 0x5f,
];

fn any_cdb() -> impl Strategy<Value = [u8; 16]> {
    // Small values and zeroes make CDBs that pass admission likely; arbitrary bytes cover the rest.
    let byte = prop_oneof![6 => Just(0u8), 2 => 0..8u8, 1 => any::<u8>()];
    let plausible = (proptest::sample::select(OPCODES), proptest::array::uniform15(byte)).prop_map(|(opcode, rest)| {
        let mut cdb = [opcode; 16];
        cdb[1..].copy_from_slice(&rest);
        cdb
    });
    prop_oneof![4 => plausible, 1 => any::<[u8; 16]>()]
}

fn any_medium() -> impl Strategy<Value = Medium> {
    (proptest::sample::select(&lunette_device::BLOCK_SIZES[..]), any::<bool>(), any::<bool>(), 4160..600_000u64)
        .prop_map(|(block_size, read_only, unmap, len_bytes)| {
            let mut medium = Medium { len_bytes, block_size, read_only, ..THIN };
            medium.capabilities.unmap = unmap;
            medium
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_command_ends_and_stays_within_the_store(
        medium in any_medium(),
        lun in prop_oneof![4 => proptest::sample::select(&LUNS[..]), 1 => any::<[u8; 8]>()],
        cdbs in proptest::collection::vec(any_cdb(), 1..8),
        data in proptest::collection::vec(any::<u8>(), 0..9000),
        new_nexus: bool,
    ) {
        let fixture = Fixture::new(medium);
        let other = new_nexus.then(|| fixture.device.attach(name("iqn.2026-11.host:b")));
        let nexus = other.as_ref().unwrap_or(&fixture.nexus);
        for cdb in cdbs {
            let response = fixture.run_on(nexus, lun, cdb, &data);
            match response.status {
                Status::GOOD | Status::CONDITION_MET => prop_assert!(response.sense.is_none()),
                Status::CHECK_CONDITION => {
                    prop_assert!(response.data_in.is_empty());
                    prop_assert!(SenseData::decode(&response.sense.expect("sense data")).is_ok());
                }
                Status::RESERVATION_CONFLICT => prop_assert!(response.sense.is_none() && response.data_in.is_empty()),
                other => prop_assert!(false, "status {other:?}"),
            }
            for seen in fixture.seen() {
                let end = seen.offset.checked_add(seen.len);
                prop_assert!(end.is_some_and(|end| end <= medium.len_bytes), "{seen:?}");
                prop_assert!(seen.offset % u64::from(medium.block_size) == 0);
                prop_assert!(seen.len % u64::from(medium.block_size) == 0);
                prop_assert!(!medium.read_only || !matches!(seen.kind, OpKind::Write | OpKind::WriteZeroes | OpKind::Unmap));
            }
        }
    }
}
