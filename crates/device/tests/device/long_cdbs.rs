//! Commands with 32-byte CDBs.

use lunette_device::Response;
use lunette_scsi::{AdditionalSense, Cdb, FieldPointer, Status};
use lunette_store::OpKind;

use crate::fixture::{Fixture, Medium, Seen, THIN, sense};

const LONG: Medium = Medium { long_cdbs: true, ..THIN };

/// A CDB of this service action and these flags, with the number of blocks at its end.
fn long(action: u8, flags: u8, lba: u8, blocks: u8) -> [u8; 32] {
    let mut cdb = [0; 32];
    (cdb[0], cdb[7], cdb[9], cdb[10], cdb[19], cdb[31]) = (0x7f, 0x18, action, flags, lba, blocks);
    cdb
}

fn extended(cdb: &[u8]) -> Cdb {
    let (base, rest) = cdb.split_first_chunk().unwrap();
    Cdb::extended(*base, rest).unwrap()
}

fn run(fixture: &Fixture, cdb: &[u8], data_out: &[u8]) -> Response {
    fixture.run_on(&fixture.nexus, [0; 8], extended(cdb), data_out)
}

#[test]
fn written_blocks_are_read_and_verified() {
    let fixture = Fixture::new(LONG);
    let mut write = long(0x0b, 0x08, 3, 2);
    write[20..28].fill(0xff);
    let response = run(&fixture, &write, &[7; 1024]);
    assert_eq!((response.status, response.data_out_transfer_len), (Status::GOOD, 1024), "tags mean nothing");
    assert_eq!(fixture.seen(), [Seen { kind: OpKind::Write, offset: 3 * 512, len: 1024, fua: true }]);
    let read = run(&fixture, &long(0x09, 0, 3, 2), &[]);
    assert_eq!(read.data_in.first_run(), [7; 1024]);
    assert_eq!(run(&fixture, &long(0x0a, 0x02, 3, 2), &[7; 1024]).status, Status::GOOD, "VERIFY, BYTCHK 1");
    let differs = sense(&run(&fixture, &long(0x0a, 0x06, 3, 2), &[8; 512]));
    assert_eq!(differs.code, AdditionalSense::MISCOMPARE_DURING_VERIFY, "VERIFY, BYTCHK 3");
    assert_eq!(run(&fixture, &long(0x0c, 0x02, 3, 1), &[9; 512]).status, Status::GOOD, "WRITE AND VERIFY");
    assert_eq!(fixture.bytes(3 * 512, 1024), [[9; 512], [7; 512]].concat());
    assert_eq!(run(&fixture, &long(0x0f, 0, 0, 8), &[5; 4096]).status, Status::GOOD, "WRITE ATOMIC");
    assert_eq!(fixture.bytes(0, 4096), [5; 4096]);
    assert_eq!(run(&fixture, &long(0x0d, 0x01, 0, 4), &[]).status, Status::GOOD, "WRITE SAME with NDOB");
    assert_eq!(fixture.bytes(0, 4 * 512), [0; 4 * 512]);
}

#[test]
fn lba_status_scans_as_far_as_scan_length() {
    let fixture = Fixture::new(LONG);
    fixture.store.bytes.lock().unwrap()[8 * 512..10 * 512].fill(1);
    let mut status = long(0x12, 0, 7, 255);
    status[23] = 2;
    let data = run(&fixture, &status, &[]).data_in.to_vec();
    let descriptors: Vec<_> = data[8..].chunks(16).map(|bytes| (bytes[7], bytes[11], bytes[12])).collect();
    assert_eq!(descriptors, [(7, 1, 1), (8, 1, 0)], "first, number, status");
    let refused = sense(&run(
        &fixture,
        &{
            status[18] = 4;
            status
        },
        &[],
    ));
    assert_eq!((refused.code, refused.field), (AdditionalSense::LBA_OUT_OF_RANGE, Some(FieldPointer::cdb(12))));
}

#[test]
fn fields_are_pointed_at_where_they_stand() {
    let fixture = Fixture::new(LONG);
    let refused = |cdb: &[u8]| sense(&run(&fixture, cdb, &[])).field;
    assert_eq!(refused(&long(0x77, 0, 0, 1)), Some(FieldPointer::cdb(8)), "SERVICE ACTION");
    assert_eq!(refused(&long(0x09, 0x20, 0, 1)), Some(FieldPointer::cdb(10).bit(5)), "RDPROTECT");
    assert_eq!(refused(&long(0x0d, 0x10, 0, 1)), Some(FieldPointer::cdb(10).bit(4)), "ANCHOR without UNMAP");
    let mut many = long(0x09, 0, 0, 1);
    many[29] = 1;
    assert_eq!(refused(&many), Some(FieldPointer::cdb(12)), "LOGICAL BLOCK ADDRESS");
    let mut other_len = long(0x09, 0, 0, 1);
    other_len[7] = 0x1c;
    assert_eq!(refused(&other_len), Some(FieldPointer::cdb(7)), "ADDITIONAL CDB LENGTH");
    assert_eq!(refused(&long(0x09, 0, 0, 1)[..31]), Some(FieldPointer::cdb(7)), "a byte is missing");
}

#[test]
fn a_unit_without_long_cdbs_supports_none() {
    let fixture = Fixture::new(THIN);
    for action in [0x09, 0x77] {
        let refused = sense(&run(&fixture, &long(action, 0, 0, 1), &[]));
        assert_eq!(refused.code, AdditionalSense::INVALID_COMMAND_OPERATION_CODE);
    }
    let listed = |fixture: &Fixture| {
        let list = fixture.read(&[0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
        list[4..].chunks(8).filter(|descriptor| descriptor[0] == 0x7f).map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    assert_eq!(listed(&fixture).len(), 0);
    let fixture = Fixture::new(LONG);
    assert_eq!(listed(&fixture)[0], [0x7f, 0, 0, 0x09, 0, 1, 0, 32]);
    assert_eq!(listed(&fixture).len(), 7);
    let one = fixture.read(&[0xa3, 0x0c, 2, 0x7f, 0, 0x0b, 0, 0, 1, 0]);
    assert_eq!(
        (one.len(), &one[..4], &one[4..16]),
        (36, &[0, 3, 0, 32][..], &[0x7f, 0, 0, 0, 0, 0, 0x3f, 0x18, 0, 0x0b, 0x18, 0][..])
    );
}
