//! Disks in files, on threads and on the reactor's ring, which the system may forbid.

use std::fs::{self, File, OpenOptions as FileOptions};
use std::io::{self, PipeWriter, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use lunette_pdu::TaskManagementFunction;
use lunette_reactor::{IoBackend, Reactor};
use lunette_store::{
    Capabilities, Completion, FileIo, FileOp, FileOpKind, FileStore, Geometry, Op, OpenOptions, Store,
};
use lunette_testkit::Sense;

use crate::common::{Initiator, Port, TARGET, Target, blocks, device};

const LEN: u64 = 1 << 20;
/// Longer than what is read on the reactor's thread.
const LONG: usize = 128;

fn for_each_backend(store: &Arc<dyn Store>, test: impl Fn(&Target, Initiator)) {
    for io in [IoBackend::Epoll, IoBackend::Auto] {
        let device = device(TARGET, vec![Arc::clone(store)]);
        let target = Target::of(vec![device], |config| config.event_loop = io.into());
        let initiator = Initiator::attach(&target, Port::A);
        test(&target, initiator);
    }
}

#[test]
fn what_is_written_is_read_zeroed_and_flushed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let options = OpenOptions { create: Some(LEN), ..OpenOptions::default() };
    let store: Arc<dyn Store> = Arc::new(FileStore::open(&path, &options).unwrap());
    for_each_backend(&store, |target, mut initiator| {
        initiator.write(0, 0, blocks(LONG, 1)).good();
        initiator.write(0, 8, blocks(8, 2)).good();
        let mut expected = blocks(LONG, 1);
        expected[8 * 512..16 * 512].copy_from_slice(&blocks(8, 2));
        assert!(initiator.read(0, 0, LONG as u16).good() == expected);
        assert_eq!(initiator.read(0, 8, 8).good(), blocks(8, 2));
        // WRITE SAME(16) without a block (NDOB): zeroes.
        let mut zeroes = [0; 16];
        (zeroes[0], zeroes[1], zeroes[9], zeroes[13]) = (0x93, 1, 8, 8);
        initiator.command(0, &zeroes, Vec::new(), 0).good();
        expected[8 * 512..16 * 512].fill(0);
        assert!(initiator.read(0, 0, LONG as u16).good() == expected);
        initiator.synchronize_cache(0).good();
        assert!(fs::read(&path).unwrap()[..LONG * 512] == expected);
        initiator.send_logout();
        target.stop().unwrap();
    });
}

#[test]
fn blocks_that_a_file_has_lost_are_out_of_range() {
    const OUT_OF_RANGE: Sense = (5, 0x21, 0);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let options = OpenOptions { create: Some(LEN), ..OpenOptions::default() };
    let store: Arc<dyn Store> = Arc::new(FileStore::open(&path, &options).unwrap());
    for_each_backend(&store, |target, mut initiator| {
        initiator.write(0, 0, blocks(LONG, 1)).good();
        FileOptions::new().write(true).open(&path).unwrap().set_len(5 * 512).unwrap();
        assert!(initiator.read(0, 0, 5).good() == blocks(5, 1));
        assert_eq!(initiator.read(0, 0, 8).sense(), OUT_OF_RANGE);
        assert_eq!(initiator.read(0, 0, LONG as u16).sense(), OUT_OF_RANGE);
        target.wait_until("the return of the buffers", |now| now.buffer_bytes == 0);
    });
}

/// Asks for all of it of one file, whatever that is good for.
struct Raw(Arc<File>);

impl Raw {
    fn over(file: impl Into<OwnedFd>) -> Arc<dyn Store> {
        Arc::new(Self(Arc::new(File::from(file.into()))))
    }
}

impl Store for Raw {
    fn geometry(&self) -> Geometry {
        Geometry { len_bytes: LEN, granularity_bytes: 512, physical_bytes: 4096, unmap_bytes: 4096 }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { volatile_cache: true, ..Capabilities::default() }
    }

    fn submit(&self, op: Op, io: &dyn FileIo, done: Completion) {
        let kind = match op {
            Op::Read { into, .. } => FileOpKind::Read { offset: 0, into },
            Op::Write { from, .. } => FileOpKind::Write { offset: 0, from, dsync: false },
            _ => FileOpKind::Sync,
        };
        io.submit(FileOp { file: Arc::clone(&self.0), kind }, done);
    }
}

#[test]
fn failures_of_files_are_told() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let read_only = Raw::over(File::open(file.path()).unwrap());
    for_each_backend(&read_only, |target, mut initiator| {
        assert_eq!(initiator.write(0, 0, blocks(8, 1)).sense(), (3, 0x0c, 0));
        assert_eq!(initiator.write(0, 0, blocks(LONG, 1)).sense(), (3, 0x0c, 0));
        target.wait_until("the return of the buffers", |now| now.buffer_bytes == 0);
    });
    let write_only = Raw::over(FileOptions::new().write(true).open(file.path()).unwrap());
    for_each_backend(&write_only, |target, mut initiator| {
        assert_eq!(initiator.read(0, 0, 8).sense(), (3, 0x11, 0));
        assert_eq!(initiator.read(0, 0, LONG as u16).sense(), (3, 0x11, 0));
        target.wait_until("the return of the buffers", |now| now.buffer_bytes == 0);
    });
    // A pipe has nothing to synchronize.
    let (_reader, writer) = io::pipe().unwrap();
    for_each_backend(&Raw::over(writer), |_, mut initiator| {
        let (key, _, _) = initiator.synchronize_cache(0).sense();
        assert!(key == 3 || key == 4, "sense key {key}");
    });
}

#[test]
fn an_aborted_read_keeps_its_buffer_until_the_system_lets_go_of_it() {
    let (reader, mut writer): (_, PipeWriter) = io::pipe().unwrap();
    // Only a ring reads from a pipe: pread(2) does not.
    if Reactor::with(IoBackend::Uring).is_err() {
        return;
    }
    let device = device(TARGET, vec![Raw::over(reader)]);
    let target = Target::of(vec![device], |config| config.event_loop = IoBackend::Uring.into());
    let mut initiator = Initiator::attach(&target, Port::A);
    let read = initiator.start_read(0, 0, 8);
    target.wait_until("the read", |now| now.tasks == 1);
    let abort = initiator.start_management(TaskManagementFunction::ABORT_TASK, 0, Some(read));
    initiator.round_trip();
    target.wait_until("the buffer", |now| now.buffer_bytes > 0);
    writer.write_all(&[7; 4096]).unwrap();
    initiator.finish_management(abort);
    target.wait_until("the return of the buffers", |now| now.buffer_bytes == 0 && now.tasks == 0);
}

#[test]
fn a_file_that_hangs_on_the_ring_does_not_hold_up_the_end() {
    let (reader, _writer) = io::pipe().unwrap();
    if Reactor::with(IoBackend::Uring).is_err() {
        return;
    }
    let device = device(TARGET, vec![Raw::over(reader)]);
    let target = Target::of(vec![device], |config| config.event_loop = IoBackend::Uring.into());
    let mut initiator = Initiator::attach(&target, Port::A);
    initiator.start_read(0, 0, 8);
    target.wait_until("the read", |now| now.tasks == 1);
    assert_eq!(target.stop().unwrap_err().kind(), io::ErrorKind::TimedOut);
}
