//! One pass over a unit, and what its owner is told.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};

use lunette_device::{QuantaOptions, ScrubEnd, ScrubOwner, ScrubbedBlocks, scrub_once};
use lunette_scsi::Lun;
use lunette_store::StoreError;

use crate::fixture::{Fixture, Medium, THIN};

/// The blocks of one request: the first, their number, and the damaged ones, or whether they cannot be read.
type Request = (u64, u64, Result<Vec<u64>, ()>);

struct Owner {
    requests: Sender<Request>,
    end: Sender<Result<(), ScrubEnd>>,
    /// Stops after this block.
    last_lba: u64,
}

impl ScrubOwner for Owner {
    fn scrubbed(&mut self, ScrubbedBlocks { first_lba, blocks, damaged, .. }: ScrubbedBlocks) -> ControlFlow<()> {
        self.requests.send((first_lba, blocks, damaged.map_err(drop))).unwrap();
        if first_lba + blocks > self.last_lba { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn ended(self, end: Result<(), ScrubEnd>) {
        self.end.send(end).unwrap();
    }
}

fn begin(fixture: &Fixture, last_lba: u64) -> (Receiver<Request>, Receiver<Result<(), ScrubEnd>>) {
    let ((requests, told), (end, ended)) = (channel(), channel());
    fixture.begin_background(scrub_once(&fixture.unit, Owner { requests, end, last_lba }));
    (told, ended)
}

#[test]
fn a_pass_reads_each_block_once_and_tells_what_cannot_be_read() {
    // One and a half requests of 256 KiB.
    let fixture = Fixture::new(Medium { len_bytes: 768 * 512, ..THIN });
    *fixture.store.fails.lock().unwrap() = Some(StoreError::Io(std::io::Error::other("bad sectors")));
    let (told, ended) = begin(&fixture, u64::MAX);
    fixture.finish_background();
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [(0, 512, Err(())), (512, 256, Ok(Vec::new()))]);
    assert_eq!((ended.try_recv(), fixture.buffer_bytes()), (Ok(Ok(())), 0));
}

/// Another server has the disk, or its device is gone: no block of it is unreadable.
#[test]
fn a_pass_ends_at_once_when_the_store_serves_nothing() {
    for error in [StoreError::ShutOut("another gateway".into()), StoreError::Gone(std::io::Error::other("pulled out"))]
    {
        let fixture = Fixture::new(Medium { len_bytes: 768 * 512, ..THIN });
        let text = error.to_string();
        *fixture.store.fails.lock().unwrap() = Some(error);
        let (told, ended) = begin(&fixture, u64::MAX);
        fixture.finish_background();
        assert_eq!((told.try_iter().count(), fixture.seen().len()), (0, 1), "{text}");
        assert_eq!(ended.try_recv(), Ok(Err(ScrubEnd::Unserved(text))));
    }
}

#[test]
fn a_pass_over_quanta_tells_the_damaged_ones() {
    let quanta = QuantaOptions { check_writes: true, ..QuantaOptions::default() };
    let fixture = Fixture::new(Medium { len_bytes: 100 * 576, block_size: 576, quanta, ..THIN });
    for lba in [3, 99] {
        fixture.store.bytes.lock().unwrap()[lba * 576] = 1;
    }
    let (told, ended) = begin(&fixture, u64::MAX);
    fixture.finish_background();
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [(0, 100, Ok(vec![3, 99]))]);
    assert_eq!(ended.try_recv(), Ok(Ok(())));
    let counts = fixture.unit.quanta_counts().unwrap();
    assert_eq!((counts.scrubs, counts.scrubbed_damage, counts.scrubbed_bytes), (1, 2, 100 * 576));
}

#[test]
fn an_owner_stops_its_pass() {
    let fixture = Fixture::new(THIN);
    let (told, ended) = begin(&fixture, 0);
    fixture.finish_background();
    assert_eq!((told.try_iter().count(), ended.try_recv()), (1, Ok(Err(ScrubEnd::Stopped))));
}

#[test]
fn a_pass_follows_the_length_of_its_unit() {
    let fixture = Fixture::new(THIN);
    let (told, ended) = begin(&fixture, u64::MAX);
    assert!(fixture.step_background());
    fixture.store.len_bytes.store(600 * 512, Ordering::Relaxed);
    fixture.finish_background();
    assert_eq!(told.try_iter().map(|(_, blocks, _)| blocks).sum::<u64>(), 600);
    assert_eq!(ended.try_recv(), Ok(Ok(())));
}

#[test]
fn a_pass_ends_with_its_unit_and_without_its_medium() {
    let mut fixture = Fixture::new(THIN);
    let resize = |len_bytes| {
        fixture.store.len_bytes.store(len_bytes, Ordering::Relaxed);
        fixture.unit.capacity_changed();
    };
    resize(0);
    let (_told, ended) = begin(&fixture, u64::MAX);
    assert_eq!(ended.try_recv(), Ok(Err(ScrubEnd::NotReady)));
    resize(THIN.len_bytes);
    let (_told, ended) = begin(&fixture, u64::MAX);
    fixture.device.assign(Lun::ZERO, None);
    fixture.unit = Fixture::new(THIN).unit;
    fixture.finish_background();
    assert_eq!(ended.try_recv(), Ok(Err(ScrubEnd::Removed)));
}
