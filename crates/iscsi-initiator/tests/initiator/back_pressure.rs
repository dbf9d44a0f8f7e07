//! A target that takes nothing more, and a caller that gives more and more.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use lunette_initiator::limits::MAX_UNFINISHED_REQUESTS;
use lunette_initiator::{Completion, Disk, Error, Initiator, Request, Session, wait};
use lunette_scsi::{Lun, requests};
use lunette_store::filters::Delay;

use crate::fixture::{BLOCK_LEN, Relay, TARGET, Target, blocks, disk, io, memory, options, portal};

const WRITE_BLOCKS: u32 = 128;
const WRITE_LEN: usize = WRITE_BLOCKS as usize * BLOCK_LEN;
const BUFFER_BYTES: usize = 16 << 20;

#[test]
fn a_target_that_reads_nothing_holds_up_its_own_session_alone() {
    let target = Target::new();
    let relay = Relay::to(target.address);
    let initiator = Initiator::with(BUFFER_BYTES, io()).unwrap();
    let open = |address| {
        let session = wait(Session::connect(&initiator, &portal(address), TARGET, options())).unwrap();
        wait(Disk::open(session, Lun::ZERO)).unwrap()
    };
    let (slow, quick) = (open(relay.address), open(target.address));
    let first = slow.session().buffer(WRITE_LEN).unwrap();
    relay.stall();
    // Far more than the sockets between take.
    let (tx, rx) = channel();
    let mut buffers = vec![first];
    while let Ok(buffer) = slow.session().buffer(WRITE_LEN) {
        buffers.push(buffer);
    }
    assert_eq!(buffers.len(), BUFFER_BYTES / WRITE_LEN);
    // The other session needs some, too.
    buffers.truncate(buffers.len() - 16);
    let count = buffers.len();
    for (at, mut buffer) in buffers.into_iter().enumerate() {
        buffer.copy_from_slice(&blocks(WRITE_BLOCKS as usize, at as u8));
        let write = requests::write(at as u64 * u64::from(WRITE_BLOCKS), WRITE_BLOCKS, false);
        let request = Request::new(Lun::ZERO, write).with_data_out(buffer.share());
        let tx = tx.clone();
        slow.session().submit(
            request,
            Completion::call(move |outcome| {
                let _ = tx.send((at, outcome.result.is_ok_and(|reply| reply.ok().is_ok())));
            }),
        );
    }
    let far = STORE_END - u64::from(WRITE_BLOCKS);
    for seed in 0..20 {
        let data = blocks(WRITE_BLOCKS as usize, seed);
        wait(quick.write(far, &data, false)).unwrap();
        assert!(wait(quick.read(far, WRITE_BLOCKS)).unwrap()[..] == data);
    }
    assert!(rx.try_iter().count() < count, "the target cannot have read all of it");
    relay.go_on();
    drop(tx);
    assert!(rx.iter().all(|(_, good)| good));
    for at in [0, count - 1] {
        let read = wait(quick.read(at as u64 * u64::from(WRITE_BLOCKS), WRITE_BLOCKS)).unwrap();
        assert!(read[..] == blocks(WRITE_BLOCKS as usize, at as u8), "write {at}");
    }
}

/// Blocks of the disk.
const STORE_END: u64 = crate::fixture::STORE_LEN / BLOCK_LEN as u64;

#[test]
fn a_target_that_reads_nothing_any_more_is_left() {
    let target = Target::new();
    let relay = Relay::to(target.address);
    let mut options = options();
    options.request_timeout = Duration::from_millis(300);
    options.abort_timeout = Duration::from_millis(100);
    let disk = disk(relay.address, options);
    relay.stall();
    let error = wait(disk.write(0, &blocks(16_384, 1), false)).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    wait(disk.write(0, &blocks(8, 2), false)).unwrap();
    assert_eq!(relay.accepted(), 2);
    relay.go_on();
}

#[test]
fn a_caller_that_submits_without_end_is_refused() {
    let store = Arc::new(Delay::new(memory()));
    let target = Target::over(Arc::clone(&store) as _);
    let disk = disk(target.address, options());
    store.hold();
    let (tx, rx) = channel();
    let beyond = 1000;
    for _ in 0..MAX_UNFINISHED_REQUESTS + beyond {
        let tx = tx.clone();
        disk.session().submit(
            Request::new(Lun::ZERO, requests::synchronize_cache()),
            Completion::call(move |outcome| {
                let _ = tx.send(outcome.result.map(|reply| reply.ok().unwrap()));
            }),
        );
    }
    drop(tx);
    for _ in 0..beyond {
        let refused = rx.recv().unwrap();
        assert!(matches!(refused, Err(Error::TooMuch { limit: MAX_UNFINISHED_REQUESTS, .. })), "{refused:?}");
    }
    store.release();
    assert_eq!(rx.iter().flatten().count(), MAX_UNFINISHED_REQUESTS);
}
