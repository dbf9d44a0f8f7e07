//! A target that sends out of its file.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use lunette_device::{LogicalUnit, LogicalUnitConfig, TargetDevice};
use lunette_initiator::{Options, wait};
use lunette_scsi::Lun;
use lunette_session::keys::Choices;
use lunette_store::{FileStore, OpenOptions};
use lunette_target::TargetConfig;

use crate::fixture::{BLOCK_LEN, TARGET, Target, blocks, disk, memory, options};

const LEN: usize = 4 << 20;

/// A target over a file in the page cache, full of known bytes.
fn target() -> (Target, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let store = FileStore::open(&path, &OpenOptions { create: Some(LEN as u64), ..OpenOptions::default() }).unwrap();
    File::options().write(true).open(&path).unwrap().write_all_at(&content(), 0).unwrap();
    let unit = LogicalUnitConfig { zero_copy: true, ..LogicalUnitConfig::new(Arc::new(store), "serial-1") };
    let device = TargetDevice::new(TARGET);
    device.add(Lun::ZERO, Arc::new(LogicalUnit::new(unit).unwrap())).unwrap();
    let device = Arc::new(device);
    let target = Target::with(memory(), move |config| config.targets = vec![TargetConfig::open(device)]);
    (target, folder)
}

fn content() -> Vec<u8> {
    blocks(LEN / BLOCK_LEN, 7)
}

fn read_all(target: &Target, options: Options, chunk_len: usize) -> Vec<u8> {
    let disk = disk(target.address, options);
    let mut all = Vec::new();
    for offset in (0..LEN).step_by(chunk_len) {
        let mut into = vec![0; chunk_len.min(LEN - offset)];
        wait(disk.read_into((offset / BLOCK_LEN) as u64, &mut into)).unwrap();
        all.extend(into);
    }
    all
}

fn file_bytes(target: &Target) -> u64 {
    target.monitor.read().event_loop.file_bytes
}

#[test]
fn long_reads_bring_the_same_bytes_out_of_the_file() {
    for (segment_len, burst_len) in [(262_144, 1 << 20), (8192, 16_384), (65_536, 100_000), (513, 512)] {
        let (target, _folder) = target();
        let mut options = options();
        options.offer.recv_data_segment_len = segment_len;
        options.offer.max_burst_len = burst_len;
        for chunk_len in [LEN / 2, 96 * 1024 + BLOCK_LEN, 32 * 1024] {
            assert!(
                read_all(&target, options.clone(), chunk_len) == content(),
                "{segment_len} {burst_len} {chunk_len}"
            );
        }
        // The last chunk of the second size is a short one.
        assert!(file_bytes(&target) > 2 * LEN as u64, "{} bytes came out of the file", file_bytes(&target));
    }
}

#[test]
fn where_bytes_must_be_looked_at_they_are_read() {
    let (target, _folder) = target();
    let mut digested = options();
    digested.offer.data_digest = Choices(0b10);
    assert!(read_all(&target, digested, LEN / 2) == content());
    assert!(read_all(&target, options(), 16 * 1024) == content());
    assert_eq!(file_bytes(&target), 0);
}
