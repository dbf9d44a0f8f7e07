//! Random requests, compared with a vector of bytes.

use lunette_quanta::Holes;
use lunette_store::{AllocationMap, Op, Store, execute};
use proptest::prelude::*;

use crate::common::{Kind, flush, make, memory, open, read, write};

const QUANTA: u64 = 300;

#[derive(Debug, Clone, Copy)]
enum Act {
    Read,
    Write,
    Zero,
    Unmap,
    Flush,
    Close,
    Reopen,
}

#[derive(Debug, Clone, Copy)]
struct Step {
    act: Act,
    at: u64,
    quanta: u64,
    fill: u8,
    flag: bool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let act = prop_oneof![
        5 => Just(Act::Write),
        4 => Just(Act::Read),
        2 => Just(Act::Zero),
        2 => Just(Act::Unmap),
        1 => Just(Act::Flush),
        1 => Just(Act::Close),
        1 => Just(Act::Reopen),
    ];
    let quanta = prop_oneof![4 => 0..=4_u64, 2 => 0..=40_u64, 1 => 0..=QUANTA];
    let step = (act, 0..QUANTA, quanta, 1..=255_u8, any::<bool>()).prop_map(|(act, at, quanta, fill, flag)| {
        let quanta = quanta.min(QUANTA - at);
        Step { act, at, quanta, fill, flag }
    });
    proptest::collection::vec(step, 1..40)
}

/// Bytes that differ from quantum to quantum.
fn content(fill: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| fill ^ (at / 512) as u8).collect()
}

fn compare(kind: Kind, holes: Holes, steps: &[Step]) {
    let len = kind.size().bytes();
    let unit = kind.blocks(memory(kind.unit_bytes(QUANTA)));
    make(&unit, kind, holes);
    let mut disk = open(&unit);
    let mut model = vec![0; QUANTA as usize * len];
    assert!(disk.geometry().len_bytes >= model.len() as u64);
    for step in steps {
        let (offset, bytes) = (step.at * len as u64, step.quanta as usize * len);
        let range = offset as usize..offset as usize + bytes;
        match step.act {
            Act::Read => assert_eq!(read(&disk, offset, bytes).unwrap(), model[range]),
            Act::Write => {
                model[range.clone()].copy_from_slice(&content(step.fill, bytes));
                write(&disk, offset, &model[range], step.flag).unwrap();
            }
            Act::Zero => {
                let op = Op::WriteZeroes { offset, len: bytes as u64, may_unmap: step.flag, fua: !step.flag };
                execute(&disk, op).result.unwrap();
                model[range].fill(0);
            }
            Act::Unmap => {
                execute(&disk, Op::Unmap { offset, len: bytes as u64 }).result.unwrap();
                if disk.capabilities().unmap_zeroes {
                    model[range].fill(0);
                }
            }
            Act::Flush => flush(&disk).unwrap(),
            Act::Close => disk.close().unwrap(),
            Act::Reopen => {
                // A volume that is only dropped may still write to the unit.
                disk.stop();
                disk = open(&unit);
            }
        }
    }
    assert!(read(&disk, 0, model.len()).unwrap() == model, "the whole disk");
    disk.stop();
    assert!(read(&open(&unit), 0, model.len()).unwrap() == model, "the whole disk, opened again");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_volume_keeps_what_a_plain_disk_would(steps in steps()) {
        for kind in Kind::ALL {
            compare(kind, Holes::Allowed, &steps);
        }
    }

    #[test]
    fn so_does_a_volume_without_holes(steps in steps()) {
        for kind in [Kind::ALL[0], Kind::ALL[3]] {
            compare(kind, Holes::Refused, &steps);
        }
    }
}

#[test]
fn requests_that_are_not_of_whole_quanta_or_lie_outside_are_refused() {
    let kind = Kind::ALL[1];
    let unit = kind.blocks(memory(kind.unit_bytes(QUANTA)));
    make(&unit, kind, Holes::Allowed);
    let disk = open(&unit);
    assert!(read(&disk, 512, 4096).is_err());
    assert!(write(&disk, 0, &[0; 512], false).is_err());
    assert!(write(&disk, disk.geometry().len_bytes, &[0; 4096], false).is_err());
    assert!(execute(&disk, Op::Unmap { offset: 4096, len: u64::MAX - 4095 }).result.is_err());
    let found = std::sync::Arc::new(AllocationMap::default());
    let query = Op::Allocation { offset: 0, len: 8192, found: found.clone() };
    assert!(execute(&disk, query).result.is_ok());
    assert_eq!(found.take().iter().map(|run| run.len).sum::<u64>(), 8192);
    assert_eq!(disk.counts().sealed, 0);
}
