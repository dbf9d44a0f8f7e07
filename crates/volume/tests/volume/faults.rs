//! Failures of the unit: they reach the caller, and later requests go on unless the state of the medium is unknown.

use std::io;
use std::sync::Arc;

use lunette_quanta::packed::Layout;
use lunette_quanta::{Holes, QuantumSize};
use lunette_store::filters::{Fault, Rule};
use lunette_store::{OpKind, Store, StoreError};
use lunette_volume::{JournalState, Volume, VolumeError, find, verify};

use crate::common::{Kind, flush, keys, make, memory, open, read, write};

const PACKED: Kind = Kind::Packed(QuantumSize::B512, 512);

fn failing(kind: Kind) -> (Arc<Fault>, Arc<dyn Store>, Volume) {
    let fault = Arc::new(Fault::new(memory(kind.unit_bytes(256))));
    let unit = kind.blocks(Arc::<Fault>::clone(&fault));
    make(&unit, kind, Holes::Allowed);
    let volume = open(&unit);
    (fault, unit, volume)
}

fn broken() -> StoreError {
    StoreError::Io(io::Error::other("the medium is broken"))
}

fn one(kind: OpKind) -> Rule {
    Rule { kind: Some(kind), times: 1, ..Rule::always(broken) }
}

#[test]
fn a_failed_read_or_write_reaches_its_caller_and_no_other() {
    for kind in Kind::ALL {
        let (fault, _, volume) = failing(kind);
        let len = kind.size().bytes();
        write(&volume, 0, &vec![1; 2 * len], false).unwrap();
        fault.add(one(OpKind::Write));
        let error = write(&volume, 0, &vec![2; len], false).unwrap_err();
        assert!(matches!(error, StoreError::Io(_)) && error.to_string().contains("broken"), "{error}");
        assert_eq!(read(&volume, 0, len).unwrap(), vec![1; len], "what was there before");
        fault.add(one(OpKind::Read));
        let (error, bytes) = read(&volume, 0, 2 * len).unwrap_err();
        assert!(matches!(error, StoreError::Io(_)), "{error}");
        assert!(bytes.iter().all(|byte| *byte == 0));
        write(&volume, 0, &vec![3; len], true).unwrap();
        flush(&volume).unwrap();
        assert_eq!(read(&volume, 0, len).unwrap(), vec![3; len]);
        volume.close().unwrap();
    }
}

#[test]
fn kinds_of_failures_are_kept() {
    let (fault, _, volume) = failing(PACKED);
    fault.add(Rule { kind: Some(OpKind::Write), times: 1, ..Rule::always(|| StoreError::NoSpace) });
    assert!(matches!(write(&volume, 0, &[1; 512], false), Err(StoreError::NoSpace)));
    fault.add(Rule { kind: Some(OpKind::Write), times: 1, ..Rule::always(|| StoreError::ReadOnly) });
    assert!(matches!(write(&volume, 0, &[1; 512], false), Err(StoreError::ReadOnly)));
    let gone = || StoreError::Gone(io::ErrorKind::NotConnected.into());
    fault.add(Rule { kind: Some(OpKind::Write), times: 1, ..Rule::always(gone) });
    assert!(matches!(write(&volume, 0, &[1; 512], false), Err(StoreError::Gone(_))));
    fault.add(Rule { kind: Some(OpKind::Write), times: 1, ..Rule::always(shut_out) });
    assert!(matches!(write(&volume, 0, &[1; 512], false), Err(StoreError::ShutOut(_))));
}

fn shut_out() -> StoreError {
    StoreError::ShutOut("another server has it".into())
}

/// No quantum is called unreadable that another server may well read.
#[test]
fn a_unit_that_serves_nothing_ends_a_verification() {
    for kind in Kind::ALL {
        let (fault, unit, volume) = failing(kind);
        volume.close().unwrap();
        let found = find(&unit).unwrap();
        fault.add(Rule { kind: Some(OpKind::Read), ..Rule::always(shut_out) });
        let error = verify(&unit, &found, None, None, &mut |_| {}).unwrap_err();
        assert!(error.to_string().contains("another server has it"), "{error}");
    }
}

/// The volume has its length from its header, so no range of it is wrong.
#[test]
fn a_unit_that_has_become_shorter_fails_what_it_has_lost() {
    for kind in Kind::ALL {
        let (fault, _, volume) = failing(kind);
        let len = kind.size().bytes();
        write(&volume, 0, &vec![1; len], false).unwrap();
        let lost = || StoreError::OutOfRange { offset: 4096, len: 1, store_len: 4096 };
        for request in [OpKind::Read, OpKind::Write] {
            fault.add(Rule { kind: Some(request), times: 1, ..Rule::always(lost) });
        }
        let (error, _) = read(&volume, 0, len).unwrap_err();
        assert!(matches!(&error, StoreError::Io(_)), "{kind:?}: {error}");
        let error = write(&volume, 0, &vec![2; len], false).unwrap_err();
        assert!(matches!(&error, StoreError::Io(_)), "{kind:?}: {error}");
        let beyond = volume.geometry().len_bytes;
        assert!(matches!(write(&volume, beyond, &vec![2; len], false), Err(StoreError::OutOfRange { .. })));
    }
}

#[test]
fn a_checkpoint_that_cannot_move_quanta_fails_those_who_wait_and_is_made_later() {
    let (fault, unit, volume) = failing(PACKED);
    let layout = Layout::of(&volume.header(), unit.geometry().len_bytes).unwrap();
    let places = layout.slot(0)..layout.len_bytes();
    fault.add(Rule { kind: Some(OpKind::Write), range: Some(places), ..Rule::always(broken) });
    let quantum = |at: u64| write(&volume, at % 200 * 512, &[at as u8; 512], false);
    let failed = (0..10_000).find_map(|at| quantum(at).err().map(|error| (at, error)));
    let (at, error) = failed.expect("the journal is full at some time");
    assert!(matches!(error, StoreError::Io(_)), "{error}");
    assert!(read(&volume, (at - 1) % 200 * 512, 512).unwrap() == [(at - 1) as u8; 512]);
    fault.clear();
    (at..at + 1000).for_each(|at| quantum(at).unwrap());
    volume.close().unwrap();
    drop(volume);
    let report = verify(&unit, &find(&unit).unwrap(), Some(&keys(&[1])), None, &mut |_| {}).unwrap();
    assert!(report.is_whole() && report.journal == Some(JournalState::Empty), "{report:?}");
}

/// The volume refuses to change, and reads.
fn assert_closed(volume: &Volume) {
    assert!(matches!(write(volume, 0, &[9; 512], false), Err(StoreError::FlushFailed(_))));
    assert!(matches!(flush(volume), Err(StoreError::FlushFailed(_))));
    assert!(volume.close().is_err());
    assert_eq!(read(volume, 0, 512).unwrap(), [1; 512]);
}

#[test]
fn after_a_failed_flush_a_packed_volume_is_closed_until_it_is_opened_again() {
    let (fault, unit, volume) = failing(PACKED);
    write(&volume, 0, &[1; 512], false).unwrap();
    fault.add(one(OpKind::Flush));
    let error = flush(&volume).unwrap_err();
    assert!(matches!(error, StoreError::FlushFailed(_)) && error.to_string().contains("open the store again"));
    assert_closed(&volume);
    drop(volume);
    let volume = open(&unit);
    assert_eq!(read(&volume, 0, 512).unwrap(), [1; 512]);
    write(&volume, 0, &[2; 512], false).unwrap();
    flush(&volume).unwrap();
}

#[test]
fn so_it_is_after_a_tail_that_could_not_be_written() {
    let (fault, unit, volume) = failing(PACKED);
    write(&volume, 0, &[1; 512], false).unwrap();
    let layout = Layout::of(&volume.header(), unit.geometry().len_bytes).unwrap();
    let tails = layout.journal_offset()..layout.journal_offset() + 8192;
    fault.add(Rule { kind: Some(OpKind::Write), range: Some(tails), times: 1, ..Rule::always(broken) });
    assert!(matches!(volume.close(), Err(VolumeError::Unit { .. })));
    assert_closed(&volume);
    drop(volume);
    let volume = open(&unit);
    assert_eq!(read(&volume, 0, 512).unwrap(), [1; 512]);
    volume.close().unwrap();
}

#[test]
fn keys_that_cannot_be_noted_in_the_header_are_not_used() {
    for kind in [Kind::Native(QuantumSize::B512), PACKED] {
        let (fault, unit, volume) = failing(kind);
        fault.add(one(OpKind::Write));
        assert!(volume.set_keys(keys(&[1, 2])).is_err());
        assert_eq!(volume.header().newest_epoch, 1);
        write(&volume, 0, &[1; 512], true).unwrap();
        drop(volume);
        let volume = open(&unit);
        assert_eq!(read(&volume, 0, 512).unwrap(), [1; 512]);
    }
}
