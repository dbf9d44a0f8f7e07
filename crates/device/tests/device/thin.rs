//! UNMAP and WRITE SAME.

use lunette_device::{MAX_UNMAP_DESCRIPTORS, MAX_WRITE_SAME_BLOCKS};
use lunette_scsi::unmap::{UnmapRange, emit};
use lunette_scsi::{AdditionalSense, FieldPointer, Status};
use lunette_store::{Capabilities, OpKind};

use crate::fixture::{Fixture, Medium, Seen, THIN, cdb};

const THICK: Medium = Medium { capabilities: Capabilities { unmap: false, ..THIN.capabilities }, ..THIN };

fn unmap(list: &[u8]) -> [u8; 16] {
    let [high, low] = (list.len() as u16).to_be_bytes();
    cdb(&[0x42, 0, 0, 0, 0, 0, 0, high, low, 0])
}

#[test]
fn unmap_frees_its_ranges_in_their_order() {
    let fixture = Fixture::new(THIN);
    fixture.store.bytes.lock().unwrap().fill(9);
    let list =
        emit(&[UnmapRange { lba: 10, blocks: 2 }, UnmapRange { lba: 50, blocks: 0 }, UnmapRange { lba: 3, blocks: 1 }]);
    let response = fixture.run(&unmap(&list), &list);
    assert_eq!((response.status, response.data_out_transfer_len), (Status::GOOD, 8 + 3 * 16));
    let seen = |offset, len| Seen { kind: OpKind::Unmap, offset, len, fua: false };
    assert_eq!(fixture.seen(), [seen(10 * 512, 1024), seen(3 * 512, 512)]);
    assert_eq!(fixture.bytes(9 * 512, 2048), [vec![9; 512], vec![0; 1024], vec![9; 512]].concat());
}

#[test]
fn one_bad_range_keeps_all_from_being_unmapped() {
    let fixture = Fixture::new(THIN);
    for bad in [UnmapRange { lba: 1024, blocks: 1 }, UnmapRange { lba: u64::MAX, blocks: u32::MAX }] {
        let list = emit(&[UnmapRange { lba: 0, blocks: 1 }, bad]);
        let sense = fixture.refused(&unmap(&list), &list);
        assert_eq!((sense.code, sense.field), (AdditionalSense::LBA_OUT_OF_RANGE, Some(FieldPointer::data(24))));
    }
    assert_eq!(fixture.seen(), []);
}

#[test]
fn unmap_lists_are_bounded_and_whole() {
    let fixture = Fixture::new(THIN);
    assert_eq!(fixture.run(&unmap(&[]), &[]).status, Status::GOOD, "no list is no error");
    let list = emit(&[UnmapRange { lba: 0, blocks: 1 }; 2]);
    for short in [&list[..7], &list[..39]] {
        assert_eq!(fixture.refused(&unmap(short), short).code, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
    }
    assert_eq!(fixture.refused(&unmap(&list), &[]).code, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
    let most = usize::from(MAX_UNMAP_DESCRIPTORS);
    let list = emit(&vec![UnmapRange { lba: 0, blocks: 1 }; most]);
    assert_eq!(fixture.run(&unmap(&list), &list).status, Status::GOOD);
    assert_eq!(fixture.seen().len(), most);
    let list = emit(&vec![UnmapRange { lba: 0, blocks: 1 }; most + 1]);
    let sense = fixture.refused(&unmap(&list), &list);
    assert_eq!(
        (sense.code, sense.field),
        (AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST, Some(FieldPointer::data(2)))
    );
}

#[test]
fn a_store_that_frees_nothing_has_no_unmap() {
    let fixture = Fixture::new(THICK);
    let list = emit(&[UnmapRange { lba: 0, blocks: 1 }]);
    assert_eq!(fixture.refused(&unmap(&list), &list).code, AdditionalSense::INVALID_COMMAND_OPERATION_CODE);
    for (opcode, count_at) in [(0x41, 8), (0x93, 13)] {
        let mut cdb = cdb(&[opcode, 0x08]);
        cdb[count_at] = 1;
        let sense = fixture.refused(&cdb, &[0; 512]);
        assert_eq!(sense.field, Some(FieldPointer::cdb(1).bit(3)), "WRITE SAME with UNMAP");
    }
    let opcodes = fixture.read(&[0xa3, 0x0c, 0x01, 0x42, 0, 0, 0, 0, 1, 0]);
    assert_eq!(opcodes, [0, 1, 0, 0], "and does not report it");
}

#[test]
fn write_same_repeats_its_block() {
    let fixture = Fixture::new(Medium { len_bytes: 4 << 20, ..THIN });
    let block: Vec<u8> = (0..512u32).map(|at| (at % 255 + 1) as u8).collect();
    let response = fixture.run(&[0x41, 0, 0, 0, 0, 1, 0, 0x03, 0xe8, 0], &block);
    assert_eq!((response.status, response.data_out_transfer_len), (Status::GOOD, 512));
    let seen = fixture.seen();
    assert!(seen.len() > 1 && seen.iter().all(|seen| seen.kind == OpKind::Write), "piece by piece: {seen:?}");
    assert_eq!(fixture.bytes(0, 512), [0; 512]);
    assert_eq!(fixture.bytes(512, 1000 * 512), block.repeat(1000));
    assert_eq!(fixture.bytes(1001 * 512, 512), [0; 512]);
}

#[test]
fn zeroes_are_one_request_and_may_free_space_with_unmap() {
    let fixture = Fixture::new(THIN);
    for (bytes, data) in [
        (cdb(&[0x41, 0x00, 0, 0, 0, 1, 0, 0, 2, 0]), vec![0; 512]),
        (cdb(&[0x41, 0x08, 0, 0, 0, 1, 0, 0, 2, 0]), vec![0; 512]),
        (cdb(&[0x93, 0x09, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0]), Vec::new()),
    ] {
        fixture.store.bytes.lock().unwrap().fill(9);
        assert_eq!(fixture.run(&bytes, &data).status, Status::GOOD);
        assert_eq!(fixture.seen(), [Seen { kind: OpKind::WriteZeroes, offset: 512, len: 1024, fua: false }]);
        assert_eq!(fixture.bytes(0, 2048), [vec![9; 512], vec![0; 1024], vec![9; 512]].concat());
    }
}

#[test]
fn unmap_with_other_bytes_writes_them() {
    let fixture = Fixture::new(THIN);
    fixture.run(&[0x41, 0x08, 0, 0, 0, 0, 0, 0, 2, 0], &[3; 512]);
    assert_eq!(fixture.bytes(0, 1024), [3; 1024]);
}

fn write_same(flags: u8, lba: u8, blocks: u32) -> [u8; 16] {
    let [a, b, c, d] = blocks.to_be_bytes();
    cdb(&[0x93, flags, 0, 0, 0, 0, 0, 0, 0, lba, a, b, c, d, 0, 0])
}

#[test]
fn no_number_of_blocks_means_all_to_the_end_where_no_space_is_freed() {
    let fixture = Fixture::new(THICK);
    fixture.store.bytes.lock().unwrap().fill(9);
    assert_eq!(fixture.run(&write_same(0x01, 2, 0), &[]).status, Status::GOOD);
    assert_eq!(fixture.seen(), [Seen { kind: OpKind::WriteZeroes, offset: 1024, len: 1022 * 512, fua: false }]);
    assert_eq!(fixture.run(&[0x41, 0, 0, 0, 3, 0xfe, 0, 0, 0, 0], &[7; 512]).status, Status::GOOD);
    assert_eq!(fixture.bytes(1021 * 512, 3 * 512), [[0; 512], [7; 512], [7; 512]].concat());
    assert_eq!(fixture.refused(&write_same(0x01, 0, 1025), &[]).code, AdditionalSense::LBA_OUT_OF_RANGE);
}

#[test]
fn the_number_of_blocks_is_bounded() {
    let fixture = Fixture::new(Medium { len_bytes: 64 << 20, ..THIN });
    assert_eq!(fixture.run(&write_same(0x01, 0, MAX_WRITE_SAME_BLOCKS), &[]).status, Status::GOOD);
    for too_many in [MAX_WRITE_SAME_BLOCKS + 1, 0] {
        let sense = fixture.refused(&write_same(0x01, 0, too_many), &[]);
        assert_eq!((sense.code, sense.field), (AdditionalSense::INVALID_FIELD_IN_CDB, Some(FieldPointer::cdb(10))));
    }
}

#[test]
fn many_zeroes_are_written_piece_by_piece() {
    let fixture = Fixture::new(Medium { len_bytes: (256 << 20) + 512, ..THICK });
    assert_eq!(fixture.run(&write_same(0x01, 0, 0), &[]).status, Status::GOOD);
    let seen = |offset, len| Seen { kind: OpKind::WriteZeroes, offset, len, fua: false };
    assert_eq!(fixture.seen(), [seen(0, 256 << 20), seen(256 << 20, 512)]);
}

#[test]
fn the_data_out_is_one_block() {
    let fixture = Fixture::new(THIN);
    for len in [0, 256, 1024] {
        let sense = fixture.refused(&write_same(0, 0, 1), &vec![0; len]);
        assert_eq!(sense.code, AdditionalSense::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT, "{len} bytes");
    }
}

#[test]
fn anchored_blocks_are_zero_and_keep_their_space() {
    let fixture = Fixture::new(THIN);
    fixture.store.bytes.lock().unwrap().fill(9);
    assert_eq!(fixture.run(&write_same(0x19, 0, 2), &[]).status, Status::GOOD);
    assert!(!fixture.store.may_unmap(), "the store may not free it");
    let list = emit(&[UnmapRange { lba: 2, blocks: 1 }]);
    let mut anchor = unmap(&list);
    anchor[1] = 1;
    assert_eq!(fixture.run(&anchor, &list).status, Status::GOOD);
    assert!(!fixture.store.may_unmap());
    assert_eq!(fixture.seen().iter().map(|seen| seen.kind).collect::<Vec<_>>(), [OpKind::WriteZeroes; 2]);
    assert_eq!(fixture.bytes(0, 4 * 512), [vec![0; 3 * 512], vec![9; 512]].concat());
    assert_eq!(fixture.run(&write_same(0x09, 0, 2), &[]).status, Status::GOOD);
    assert!(fixture.store.may_unmap(), "without ANCHOR it may");
    let field = fixture.refused(&write_same(0x11, 0, 1), &[]).field;
    assert_eq!(field, Some(FieldPointer::cdb(1).bit(4)), "ANCHOR without UNMAP");
}

#[test]
fn a_store_that_sets_no_space_aside_has_no_anchors() {
    let fixture = Fixture::new(Medium { capabilities: Capabilities { anchors: false, ..THIN.capabilities }, ..THIN });
    assert_eq!(fixture.refused(&write_same(0x19, 0, 1), &[]).field, Some(FieldPointer::cdb(1).bit(4)));
    let list = emit(&[UnmapRange { lba: 0, blocks: 1 }]);
    let mut anchor = unmap(&list);
    anchor[1] = 1;
    assert_eq!(fixture.refused(&anchor, &list).field, Some(FieldPointer::cdb(1).bit(0)));
    assert_eq!(fixture.read(&[0x12, 1, 0xb2, 1, 0, 0])[5] & 0x02, 0);
}

#[test]
fn get_lba_status_reports_allocated_blocks() {
    let status =
        |fixture: &Fixture, lba: u8, len: u8| fixture.read(&[0x9e, 0x12, 0, 0, 0, 0, 0, 0, 0, lba, 0, 0, 0, len, 0, 0]);
    let thin = Fixture::new(THIN);
    thin.store.bytes.lock().unwrap()[8 * 512..10 * 512].fill(1);
    let data = status(&thin, 7, 255);
    assert_eq!(data[..8], [0, 0, 0, 52, 0, 0, 0, 0]);
    let descriptors: Vec<_> = data[8..].chunks(16).map(|bytes| (bytes[7], bytes[10], bytes[11], bytes[12])).collect();
    assert_eq!(descriptors, [(7, 0, 1, 1), (8, 0, 2, 0), (10, 3, 0xf6, 1)], "first, number in two bytes, status");
    assert_eq!(status(&thin, 7, 24), data[..24], "cut to the allocation length");
    let thick = Fixture::new(THICK);
    assert_eq!(status(&thick, 0, 255)[8..], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0], "all is mapped");
    let sense = thin.refused(&[0x9e, 0x12, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 24], &[]);
    assert_eq!((sense.code, sense.field), (AdditionalSense::LBA_OUT_OF_RANGE, Some(FieldPointer::cdb(2))));
}
