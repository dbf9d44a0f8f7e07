//! Tests of the counts of both sides.

use lunette_initiator::{Disk, Session, wait};
use lunette_scsi::Lun;
use lunette_session::Traffic;
use lunette_session::keys::Choices;

use crate::fixture::{TARGET, Target, blocks, event_loop, options, portal};

/// Short enough to be copied, and longer than what goes without an R2T.
const BLOCKS: usize = 16;

/// The counts of initiator and target for one write and one read of 16 blocks.
fn counted(digests: bool) -> (Traffic, Traffic) {
    let (target, initiator) = (Target::new(), event_loop());
    let mut options = options();
    // With its data in the command, the target would store the write out of the bytes that it received, behind their
    // digest.
    options.offer.immediate_data = false;
    options.offer.data_digest = Choices(if digests { 0b10 } else { 0b01 });
    let session = wait(Session::connect(&initiator, &portal(target.address), TARGET, options)).unwrap();
    let disk = wait(Disk::open(session, Lun::ZERO)).unwrap();
    // The initiator tells the caller before it counts, so what opening the disk has copied counts when one answer more
    // is there.
    wait(disk.flush()).unwrap();
    let before = (initiator.traffic(), target.monitor.read().traffic);
    let data = blocks(BLOCKS, 3);
    wait(disk.write(0, &data, false)).unwrap();
    let mut read = vec![0; data.len()];
    wait(disk.read_into(0, &mut read)).unwrap();
    assert!(read == data);
    // As above; the target counts before it sends.
    wait(disk.flush()).unwrap();
    (initiator.traffic().since(&before.0), target.monitor.read().traffic.since(&before.1))
}

#[test]
fn copies_are_counted_with_their_digests() {
    let len = blocks(BLOCKS, 3).len() as u64;
    for digests in [false, true] {
        let (initiator, target) = counted(digests);
        for side in [initiator, target] {
            let (with, without) = (side.digested_copied_bytes, side.copied_bytes);
            assert_eq!(if digests { (without, with) } else { (with, without) }, (0, len), "{side:?}");
            assert!(side.copies + side.digested_copies >= 1, "{side:?}");
            assert!(side.received_pdus >= 2 && side.sent_pdus >= 2, "{side:?}");
        }
        assert!(target.received_pdus <= initiator.sent_pdus + 1, "{initiator:?} {target:?}");
    }
}
