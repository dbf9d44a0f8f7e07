//! Tests that failures of stores reach the initiator as sense data.

use std::io;
use std::sync::Arc;

use lunette_store::filters::{Fault, PowerLoss, Rule, Trace};
use lunette_store::{OpKind, Store, StoreError};

use crate::common::{Initiator, Port, Target, blocks, memory};

fn failing(kind: OpKind, error: fn() -> StoreError) -> (Target, Initiator) {
    let fault = Arc::new(Fault::new(memory()));
    fault.add(Rule { kind: Some(kind), times: 1, ..Rule::always(error) });
    let target = Target::over(vec![fault]);
    let initiator = Initiator::attach(&target, Port::A);
    (target, initiator)
}

fn broken() -> StoreError {
    StoreError::Io(io::Error::other("broken"))
}

#[test]
fn a_read_that_fails_is_a_medium_error_and_the_next_works() {
    let (target, mut initiator) = failing(OpKind::Read, broken);
    assert_eq!(initiator.read(0, 3, 8).sense(), (3, 0x11, 0));
    assert_eq!(initiator.read(0, 3, 8).good(), vec![0; 4096]);
    target.wait_until("the return of the buffers", |now| now.buffer_bytes == 0);
}

#[test]
fn a_write_that_fails_is_a_medium_error() {
    let (target, mut initiator) = failing(OpKind::Write, broken);
    assert_eq!(initiator.write(0, 3, blocks(8, 1)).sense(), (3, 0x0c, 0));
    target.wait_until("the return of the buffers", |now| now.buffer_bytes == 0);
}

#[test]
fn no_space_is_told() {
    let (_target, mut initiator) = failing(OpKind::Write, || StoreError::NoSpace);
    assert_eq!(initiator.write(0, 3, blocks(8, 1)).sense(), (7, 0x27, 7));
}

#[test]
fn a_flush_that_fails_is_reported() {
    let (_target, mut initiator) =
        failing(OpKind::Flush, || StoreError::FlushFailed(Arc::new(io::ErrorKind::Other.into())));
    let (key, _, _) = initiator.synchronize_cache(0).sense();
    assert!(key == 3 || key == 4, "sense key {key}");
    assert!(initiator.synchronize_cache(0).good().is_empty());
}

#[test]
fn what_was_synchronized_survives_a_power_loss() {
    let disk = Arc::new(PowerLoss::new(1 << 20).unwrap());
    let target = Target::over(vec![disk.clone()]);
    let mut initiator = Initiator::attach(&target, Port::A);
    initiator.write(0, 0, blocks(8, 1)).good();
    assert_ne!(disk.unflushed(), 0);
    initiator.synchronize_cache(0).good();
    assert_eq!(disk.unflushed(), 0);
    assert_eq!(initiator.read(0, 0, 8).good(), blocks(8, 1));
}

#[test]
fn one_command_is_one_request() {
    let trace = Arc::new(Trace::new(memory()));
    let target = Target::over(vec![trace.clone() as Arc<dyn Store>]);
    let mut initiator = Initiator::attach(&target, Port::A);
    initiator.write(0, 16, blocks(64, 1)).good();
    initiator.read(0, 16, 64).good();
    let seen: Vec<_> = trace.take().into_iter().map(|record| (record.kind, record.offset, record.len)).collect();
    assert_eq!(seen, [(OpKind::Write, 8192, 32768), (OpKind::Read, 8192, 32768)]);
}
