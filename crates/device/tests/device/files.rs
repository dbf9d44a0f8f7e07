//! Reads whose bytes are sent from the store's file.

use std::sync::Arc;

use lunette_buffer::Payload;
use lunette_device::{Command, Input, LogicalUnit, LogicalUnitConfig, Nexus, Response, Step, TargetDevice, Task};
use lunette_scsi::{Lun, Status, TaskAttribute, requests};
use lunette_store::{FileStore, OpenOptions};

const LEN: u64 = 1 << 20;

struct Files {
    _folder: tempfile::TempDir,
    device: Arc<TargetDevice>,
    nexus: Nexus,
}

impl Files {
    fn new(zero_copy: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = OpenOptions { create: Some(LEN), ..OpenOptions::default() };
        let store = Arc::new(FileStore::open(folder.path().join("disk"), &options).unwrap());
        let config = LogicalUnitConfig { zero_copy, ..LogicalUnitConfig::new(store, "serial") };
        let device = Arc::new(TargetDevice::new("iqn.2026-11.org.example:disk"));
        device.add(Lun::ZERO, Arc::new(LogicalUnit::new(config).unwrap())).unwrap();
        let nexus = device.attach(super::fixture::name("iqn.2026-11.host:a"));
        Self { _folder: folder, device, nexus }
    }

    /// A READ, and its first step after the power on is reported.
    fn read(&self, lba: u64, blocks: u32) -> (Task, Step) {
        let command = || Command {
            lun: [0; 8],
            cdb: requests::read(lba, blocks, false).into(),
            attribute: TaskAttribute::Simple,
            data_out_len: 0,
            data_in_len: u32::MAX,
        };
        let mut task = self.device.start(&self.nexus, command());
        match task.step(Input::Start) {
            Step::Done(Response { status: Status::CHECK_CONDITION, .. }) => {}
            first => return (task, first),
        }
        let mut task = self.device.start(&self.nexus, command());
        let first = task.step(Input::Start);
        (task, first)
    }
}

#[test]
fn a_long_read_is_answered_with_its_place_in_the_file() {
    let files = Files::new(true);
    let (mut task, first) = files.read(8, 128);
    let Step::File { slice } = first else { panic!("{first:?}") };
    assert_eq!((slice.offset(), slice.len()), (4096, 65536));
    let Step::Done(response) = task.step(Input::File(true)) else { panic!("it has all that it needs") };
    let Payload::File(slice) = &response.data_in else { panic!("{response:?}") };
    assert_eq!((response.status, slice.offset(), slice.len()), (Status::GOOD, 4096, 65536));
}

#[test]
fn a_slice_that_the_transport_cannot_send_is_read() {
    let files = Files::new(true);
    let (mut task, first) = files.read(8, 128);
    assert!(matches!(first, Step::File { .. }), "{first:?}");
    let next = task.step(Input::File(false));
    assert!(matches!(next, Step::Buffer { len: 65536 }), "{next:?}");
}

/// The read that takes its place waits for the thaw.
#[test]
fn nothing_is_sent_from_the_file_of_a_frozen_unit() {
    let files = Files::new(true);
    let (_, unit) = files.device.units().remove(0);
    let frozen = unit.freeze().unwrap();
    let (mut task, first) = files.read(8, 128);
    let Step::Buffer { len } = first else { panic!("{first:?}") };
    let buffer = lunette_buffer::Pool::new(1 << 20).take(len).unwrap();
    assert!(matches!(task.step(Input::Buffer(buffer)), Step::Wait { .. }));
    drop(frozen);
    assert!(matches!(task.step(Input::Waited), Step::Store { .. }));
}

#[test]
fn short_reads_and_other_units_are_not_asked_about() {
    let (_task, first) = Files::new(true).read(0, 63);
    assert!(matches!(first, Step::Buffer { .. }), "{first:?}");
    let (_task, first) = Files::new(false).read(0, 128);
    assert!(matches!(first, Step::Buffer { .. }), "{first:?}");
}

#[test]
fn a_range_beyond_the_medium_is_refused_before_the_file_is_asked_for() {
    let (_task, first) = Files::new(true).read(LEN / 512 - 1, 128);
    assert!(matches!(first, Step::Done(Response { status: Status::CHECK_CONDITION, .. })), "{first:?}");
}
