//! Tests of the operations of a disk.

use std::io::{IoSlice, IoSliceMut};

use lunette_initiator::{Disk, Error, Session, wait};
use lunette_scsi::Lun;
use lunette_session::keys::Choices;

use crate::fixture::{BLOCK_LEN, STORE_LEN, Target, blocks, connect, disk, options};

#[test]
fn a_disk_tells_what_it_is() {
    let target = Target::new();
    let disk = disk(target.address, options());
    let facts = disk.facts();
    assert_eq!((facts.len_bytes(), facts.block_len()), (STORE_LEN, 512));
    assert_eq!(facts.inquiry.vendor, "LUNETTE");
    assert_eq!(facts.serial_number.as_deref(), Some("serial-1"));
    assert!(facts.name.as_deref().is_some_and(|name| name.starts_with("naa.3")), "{:?}", facts.name);
    assert!(facts.can_unmap() && facts.provisioning.unmapped_zero && !facts.read_only);
    assert!(facts.limits.max_compare_and_write > 0);
}

#[test]
fn a_number_without_a_unit_is_no_disk() {
    let target = Target::new();
    let session = connect(target.address, options());
    let error = wait(Disk::open(session, Lun::new(7).unwrap())).err().unwrap();
    assert!(matches!(error, Error::NotADisk { .. }), "{error}");
}

#[test]
fn luns_are_listed() {
    let target = Target::new();
    let session = connect(target.address, options());
    assert_eq!(wait(session.luns()).unwrap(), [Lun::ZERO]);
}

/// Every way that data can take on the wire.
#[test]
fn data_is_the_same_whatever_was_negotiated() {
    for (initial_r2t, immediate_data, digests, segment, burst) in [
        (true, false, 0b01, 262_144, 1 << 20),
        (true, true, 0b10, 8192, 65_536),
        (false, false, 0b10, 65_536, 262_144),
        (false, true, 0b01, 512, 4096),
        (false, true, 0b10, 262_144, 1 << 20),
    ] {
        let target = Target::new();
        let mut options = options();
        options.offer.initial_r2t = initial_r2t;
        options.offer.immediate_data = immediate_data;
        options.offer.header_digest = Choices(digests);
        options.offer.data_digest = Choices(digests);
        options.offer.recv_data_segment_len = segment;
        options.offer.max_burst_len = burst;
        options.offer.first_burst_len = burst / 2;
        let disk = disk(target.address, options);
        for count in [1, 3, 17, 129, 2048, 9000] {
            let data = blocks(count, count as u8);
            wait(disk.write(5, &data, false)).unwrap();
            let mut back = vec![0; data.len()];
            wait(disk.read_into(5, &mut back)).unwrap();
            assert!(back == data, "{count} blocks with {initial_r2t} {immediate_data} {digests} {segment} {burst}");
        }
    }
}

#[test]
fn pieces_of_memory_are_written_and_read_as_one() {
    let target = Target::new();
    let disk = disk(target.address, options());
    let data = blocks(3, 9);
    let (a, b) = data.split_at(700);
    wait(disk.write_vectored(1, &mut [IoSlice::new(a), IoSlice::new(b)], true)).unwrap();
    let (mut x, mut y) = (vec![0; 100], vec![0; data.len() - 100]);
    wait(disk.read_vectored(1, &mut [IoSliceMut::new(&mut x), IoSliceMut::new(&mut y)])).unwrap();
    assert!([x, y].concat() == data);
    assert_eq!(&*wait(disk.read(2, 1)).unwrap(), &data[BLOCK_LEN..2 * BLOCK_LEN]);
}

#[test]
fn memory_given_to_a_write_comes_back() {
    let target = Target::new();
    let disk = disk(target.address, options());
    let mut buffer = disk.session().buffer(BLOCK_LEN).unwrap();
    buffer.fill(7);
    let shared = wait(disk.write_buffer(0, buffer.share(), false)).unwrap().expect("it came with the request");
    assert!(shared.try_into_buffer().is_ok(), "nobody else holds it");
    assert_eq!(wait(disk.read(0, 1)).unwrap()[0], 7);
}

#[test]
fn what_is_not_on_the_disk_is_not_asked_for() {
    let target = Target::new();
    let disk = disk(target.address, options());
    let end = STORE_LEN / BLOCK_LEN as u64;
    for error in [
        wait(disk.read(end, 1)).err(),
        wait(disk.read(u64::MAX, 1)).err(),
        wait(disk.write(0, &[0; 100], false)).err(),
        wait(disk.write(end - 1, &[0; 1024], false)).err(),
        wait(disk.unmap(end - 1, 2)).err(),
        wait(disk.write_zeroes(end, 1, true)).err(),
    ] {
        assert!(matches!(error, Some(Error::OutOfRange { .. })), "{error:?}");
    }
}

#[test]
fn space_is_freed_and_shows_as_free() {
    let target = Target::new();
    let disk = disk(target.address, options());
    let mib = (1 << 20) / BLOCK_LEN as u64;
    wait(disk.write(0, &vec![1; 4 << 20], false)).unwrap();
    wait(disk.unmap(mib, mib)).unwrap();
    let runs = wait(disk.allocation(0, 8 * mib)).unwrap();
    assert_eq!(runs, [(mib, true), (mib, false), (2 * mib, true), (4 * mib, false)]);
    assert!(wait(disk.read(mib, 1)).unwrap().iter().all(|byte| *byte == 0));
    wait(disk.flush()).unwrap();
}

#[test]
fn zeroes_are_zeroes() {
    let target = Target::new();
    let disk = disk(target.address, options());
    wait(disk.write(0, &vec![1; 1 << 20], false)).unwrap();
    for may_unmap in [false, true] {
        wait(disk.write(10, &[1; 10 * BLOCK_LEN], false)).unwrap();
        wait(disk.write_zeroes(12, 3, may_unmap)).unwrap();
        let data = wait(disk.read(10, 10)).unwrap();
        let zero: Vec<bool> = data.chunks(BLOCK_LEN).map(|block| block.iter().all(|byte| *byte == 0)).collect();
        assert_eq!(zero, [false, false, true, true, true, false, false, false, false, false]);
    }
}

#[test]
fn blocks_are_written_only_when_they_compare() {
    let target = Target::new();
    let disk = disk(target.address, options());
    let (old, new) = (blocks(1, 1), blocks(1, 2));
    wait(disk.write(3, &old, false)).unwrap();
    wait(disk.compare_and_write(3, &old, &new)).unwrap();
    let mut almost = new.clone();
    almost[100] ^= 1;
    let error = wait(disk.compare_and_write(3, &almost, &old)).unwrap_err();
    assert!(matches!(error, Error::Miscompare { offset: 100 }), "{error}");
    assert_eq!(&*wait(disk.read(3, 1)).unwrap(), &new[..]);
}

#[test]
fn errors_of_the_disk_are_told_by_name() {
    let target = Target::new();
    let session: Session = connect(target.address, options());
    let request = lunette_initiator::Request::new(Lun::ZERO, [0xfe; 16]);
    // The first command of a nexus meets a unit attention, which a raw command is told of.
    let first = wait(session.execute(lunette_initiator::Request::new(Lun::ZERO, [0; 16]))).result.unwrap().ok();
    assert!(first.unwrap_err().to_string().contains("POWER ON"), "unit attentions have names");
    let error = wait(session.execute(request)).result.unwrap().ok().unwrap_err();
    assert!(error.to_string().contains("INVALID COMMAND OPERATION CODE"), "{error}");
}
