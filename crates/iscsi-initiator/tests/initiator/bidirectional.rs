//! Raw commands that need additional header segments: data in both directions, CDBs beyond 16 bytes.

use lunette_initiator::{Disk, Outcome, Request, wait};
use lunette_pdu::Residual;
use lunette_scsi::{Lun, SenseKey, Status};

use crate::fixture::{BLOCK_LEN, Target, blocks, disk, options};

/// XDWRITEREAD(10) of `count` blocks from the third on, with room for `room` bytes.
fn xdwriteread(disk: &Disk, count: u16, data: &[u8], room: usize) -> Outcome {
    let [high, low] = count.to_be_bytes();
    let cdb = [0x53, 0, 0, 0, 0, 3, 0, high, low, 0];
    let mut data_out = disk.session().buffer(data.len()).unwrap();
    data_out.copy_from_slice(data);
    let data_in = disk.session().buffer(room).unwrap();
    let request = Request::from_cdb(Lun::ZERO, &cdb).with_data_out(data_out.share()).with_data_in(data_in);
    wait(disk.session().execute(request))
}

#[test]
fn xdwriteread_goes_both_ways() {
    for (initial_r2t, segment) in [(true, 512), (false, 8192), (false, 262_144)] {
        let target = Target::new();
        let mut options = options();
        options.offer.initial_r2t = initial_r2t;
        options.offer.recv_data_segment_len = segment;
        let disk = disk(target.address, options);
        for count in [1, 7, 300] {
            let (old, new) = (blocks(count, 3), blocks(count, 0x70));
            wait(disk.write(3, &old, false)).unwrap();
            let outcome = xdwriteread(&disk, count as u16, &new, new.len());
            let reply = outcome.result.unwrap();
            assert_eq!((reply.status, reply.residual, reply.read_residual), (Status::GOOD, None, None));
            let difference: Vec<u8> = old.iter().zip(&new).map(|(old, new)| old ^ new).collect();
            assert!(outcome.data_in.unwrap()[..] == difference[..], "{count} blocks");
            let mut back = vec![0; new.len()];
            wait(disk.read_into(3, &mut back)).unwrap();
            assert!(back == new, "{count} blocks");
        }
    }
}

#[test]
fn both_residuals_are_told() {
    let target = Target::new();
    let disk = disk(target.address, options());
    let reply = xdwriteread(&disk, 2, &blocks(3, 1), BLOCK_LEN).result.unwrap();
    let block = BLOCK_LEN as u32;
    assert_eq!((reply.status, reply.data_in_len), (Status::GOOD, BLOCK_LEN));
    assert_eq!(reply.residual, Some(Residual::Underflow(block)));
    assert_eq!(reply.read_residual, Some(Residual::Overflow(block)));
}

#[test]
fn the_longest_cdb_reaches_the_logical_unit() {
    let target = Target::new();
    let disk = disk(target.address, options());
    // ADDITIONAL CDB LENGTH says what there is; no service action has such a length.
    let mut cdb = [0; 260];
    (cdb[0], cdb[7], cdb[9]) = (0x7f, 252, 9);
    let reply = wait(disk.session().execute(Request::from_cdb(Lun::ZERO, &cdb))).result.unwrap();
    assert_eq!(reply.status, Status::CHECK_CONDITION);
    assert_eq!(reply.sense_data().map(|sense| sense.key), Some(SenseKey::ILLEGAL_REQUEST));
    wait(disk.read(0, 1)).expect("the session goes on");
}
