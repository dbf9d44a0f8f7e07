//! Long reads from memory, which are answered with the memory itself.

use std::sync::Arc;

use lunette_store::OpKind;
use lunette_store::filters::Trace;

use crate::common::{BLOCK_LEN, Initiator, Port, TARGET, Target, blocks, device, memory};

/// Blocks of one read: not a whole number of chunks of the store.
const BLOCKS: usize = 520;
const READS: usize = 64;

fn target(buffer_bytes: usize) -> (Target, Arc<Trace>) {
    let trace = Arc::new(Trace::new(memory()));
    let device = device(TARGET, vec![trace.clone()]);
    (Target::of(vec![device], |config| (config.cores, config.buffer_bytes) = (1, buffer_bytes)), trace)
}

/// The content at the place of a read, in a version of it.
fn content(at: usize, version: u8) -> Vec<u8> {
    blocks(BLOCKS, (2 * at) as u8 + version)
}

fn write_all(initiator: &mut Initiator, version: u8) {
    for at in 0..READS {
        initiator.write(0, (at * BLOCKS) as u32, content(at, version)).good();
    }
}

/// More than the sockets hold is read by an initiator that does not take it, and overwritten by another one.
#[test]
fn answers_that_wait_are_what_was_read_whatever_is_written_meanwhile() {
    for keys in [
        &[][..],
        &[("MaxRecvDataSegmentLength", "262144"), ("MaxBurstLength", "1048576")],
        &[("MaxRecvDataSegmentLength", "100000"), ("ErrorRecoveryLevel", "2")],
    ] {
        let (target, trace) = target(256 << 20);
        let mut reader = Initiator::log_in(&target, Port::A, keys);
        let mut writer = Initiator::attach(&target, Port::B);
        reader.test_unit_ready(0);
        write_all(&mut writer, 0);
        let reads: Vec<_> = (0..READS).map(|at| reader.start_read(0, (at * BLOCKS) as u32, BLOCKS as u16)).collect();
        let is_read = |record: &lunette_store::filters::Record| record.kind == OpKind::Read && record.ended.is_some();
        while trace.records().iter().filter(|record| is_read(record)).count() < READS {
            std::thread::yield_now();
        }
        write_all(&mut writer, 1);
        for (at, read) in reads.into_iter().enumerate() {
            assert!(reader.finish(read).good() == content(at, 0), "read {at}, {keys:?}");
        }
        assert!(reader.read(0, 0, BLOCKS as u16).good() == content(0, 1));
    }
}

#[test]
fn what_is_lent_counts_as_buffers_do() {
    let budget = 16 << 20;
    let (target, _) = target(budget);
    let mut reader = Initiator::attach(&target, Port::A);
    let mut writer = Initiator::attach(&target, Port::B);
    write_all(&mut writer, 0);
    let reads: Vec<_> = (0..READS).map(|at| reader.start_read(0, (at * BLOCKS) as u32, BLOCKS as u16)).collect();
    let full = target.wait_until("a share that is used up", |now| now.buffer_waits > 0);
    assert!(full.buffer_bytes <= budget / 4 + BLOCKS * BLOCK_LEN * 4, "{full:?}");
    for (at, read) in reads.into_iter().enumerate() {
        assert!(reader.finish(read).good() == content(at, 0), "read {at}");
    }
    target.wait_until("the return of all bytes", |now| now.buffer_bytes == 0);
}
